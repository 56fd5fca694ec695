"""What a sandbox says of its isolation is tried out, once for each version, before it is believed."""

from __future__ import annotations

import importlib.resources
import string
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf.errors import SandboxUnavailableError
from delf.specs import SandboxSpec
from delf.testing import SandboxContract, TestHost
from delf_engine.config import AgentConfig
from delf_engine.sandboxes.isolation import Measured, Measurements, measure
from delf_engine.sandboxes.starting import choose_sandbox
from delf_sandbox_local.backend import LocalBackend
from delf_sandbox_monty.backend import MontyBackend

CONFINED = Measured(calls=True, files=True, network=True, processes=True, starts=True, kernel=False)
linux = pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")


def open_backend(isolation: str = "process") -> Any:
    """What ``delf plugins new --kind sandbox`` writes: a process that nothing confines."""
    template = importlib.resources.files("delf_devkit") / "templates/sandbox/capability.py.txt"
    code = string.Template(template.read_text(encoding="utf-8")).safe_substitute(
        name="open", class_name="OpenBackend"
    )
    module = types.ModuleType("open_backend")
    sys.modules[module.__name__] = module
    exec(compile(code, "open_backend", "exec"), module.__dict__)
    backend = module.OpenBackend()
    backend.isolation = isolation
    return backend


async def measured(backend: Any, *, thorough: bool = False) -> Measured:
    try:
        return await measure(backend, thorough=thorough)
    finally:
        await backend.aclose()


# -- what is found --------------------------------------------------------------------------


@linux
@pytest.mark.slow
async def test_a_sandbox_that_confines_nothing_is_found_out() -> None:
    found = await measured(open_backend(), thorough=True)
    assert found.calls
    assert not any((found.files, found.network, found.processes, found.starts, found.forks))
    assert (found.memory, found.cpu) == (True, True)
    assert {"a file of the host", "a server of the host", "a process of the host"} <= set(
        found.reached
    )
    for claimed in ("vm", "container", "interpreter"):
        assert found.believed(claimed) == "process"


@linux
async def test_the_local_sandbox_holds_what_is_tried() -> None:
    found = await measured(LocalBackend(pool_size=0), thorough=True)
    assert found == replace(CONFINED, memory=True, cpu=True, forks=True)


async def test_monty_gives_no_way_to_a_system_call() -> None:
    found = await measured(MontyBackend(), thorough=True)
    assert found == replace(CONFINED, calls=False, memory=True, cpu=True, forks=True)
    assert found.believed("interpreter") == "interpreter"
    assert found.believed("container") == "interpreter"


async def test_nothing_is_left_of_trying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await measured(MontyBackend())
    assert list(tmp_path.iterdir()) == []


# -- what is kept ---------------------------------------------------------------------------

ABOUT = ("box", "delf_box:Box", "delf-plugin-sandbox-box 1.0", "[]", "Box 7")


@pytest.fixture
def kept(tmp_path: Path) -> Measurements:
    measurements = Measurements(folder_of(tmp_path))
    measurements.keep(ABOUT, replace(CONFINED, reached=("a route",), memory=True))
    return measurements


def folder_of(tmp_path: Path) -> Path:
    return tmp_path / "isolation"


@pytest.fixture
def path(kept: Measurements, tmp_path: Path) -> Path:
    """The file that keeps it."""
    (found,) = folder_of(tmp_path).iterdir()
    return found


def test_what_was_measured_is_known_later_for_this_user_alone(
    kept: Measurements, path: Path
) -> None:
    assert kept.known(ABOUT) == replace(CONFINED, reached=("a route",), memory=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", range(len(ABOUT)))
def test_another_version_is_measured_anew(kept: Measurements, place: int) -> None:
    other = [*ABOUT]
    other[place] += "1"
    assert kept.known(other) is None


@pytest.mark.parametrize(
    ("what", "value"), [("release", "9.9"), ("version", "#9"), ("machine", "riscv64")]
)
def test_another_kernel_is_measured_anew(
    kept: Measurements, what: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = __import__("platform").uname()
    monkeypatch.setattr("platform.uname", lambda: own._replace(**{what: value}))
    assert kept.known(ABOUT) is None


def test_what_others_could_have_written_is_not_believed(
    kept: Measurements, path: Path, tmp_path: Path
) -> None:
    path.chmod(0o620)
    assert kept.known(ABOUT) is None
    path.chmod(0o600)
    path.parent.chmod(0o770)
    assert kept.known(ABOUT) is None
    path.parent.chmod(0o700)
    assert kept.known(ABOUT) is not None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert kept.known(ABOUT) is None


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"measured": {}}', "\0", "[" * 100_000, '{"measured": 1}'],
)
def test_what_is_damaged_is_measured_anew(kept: Measurements, path: Path, content: str) -> None:
    path.write_text(content)
    assert kept.known(ABOUT) is None


# -- what is chosen -------------------------------------------------------------------------


async def test_a_version_is_tried_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tried: list[str] = []

    async def noted(backend: Any, *, thorough: bool = False) -> Measured:
        tried.append(type(backend).__name__)
        return await measure(backend, thorough=thorough)

    monkeypatch.setattr("delf_engine.sandboxes.backends.measure", noted)
    host = TestHost.discover(environ={})
    config = AgentConfig(sandbox="monty", min_isolation="interpreter")
    for _ in range(3):
        chosen = await choose_sandbox(host, config, {})
        assert chosen.isolation == "interpreter"
        await chosen.backend.aclose()
    assert tried == ["MontyBackend"]
    (path,) = (tmp_path / "delf/isolation").iterdir()
    assert path.stat().st_mode & 0o077 == 0
    # Where it says nothing is needed, what is known is told and nothing is tried.
    chosen = await choose_sandbox(host, AgentConfig(sandbox="monty"), {})
    assert chosen.isolation == "interpreter"
    await chosen.backend.aclose()


@linux
@pytest.mark.parametrize("claimed", ["interpreter", "container", "vm"])
async def test_a_third_partys_word_is_not_enough(claimed: Any) -> None:
    host = TestHost([])
    backend = open_backend(claimed)
    spec = SandboxSpec(name="boast", summary=".", factory="x:y", isolation=claimed)
    host.provide(spec, lambda: backend)
    for sandbox in ("auto", "boast"):
        with pytest.raises(SandboxUnavailableError, match="reached a file of the host"):
            await choose_sandbox(host, AgentConfig(sandbox=sandbox, min_isolation=claimed), {})
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.isolation == "process"
    await backend.aclose()


# -- what the suite says of it --------------------------------------------------------------


class Suite(SandboxContract):
    """The suite, whose tests are called here."""

    __test__ = False


@linux
@pytest.mark.slow
async def test_the_suite_does_not_certify_what_is_open(tmp_path: Path) -> None:
    """Python's own open() is refused there, and a system call is not."""
    with pytest.raises(AssertionError, match="`confines` says files, and a script reached"):
        await Suite().test_other_files_cannot_be_opened(open_backend(), tmp_path)


@linux
@pytest.mark.parametrize("what", ["files", "network", "processes"])
async def test_the_suite_tries_below_python(what: str) -> None:
    backend = open_backend()
    with pytest.raises(AssertionError, match=f"`confines` says {what}, and a script reached"):
        await Suite()._is_out_of_reach(backend, what)  # noqa: SLF001 - of a broken sandbox
    await backend.aclose()


@linux
@pytest.mark.parametrize("isolation", ["interpreter", "container", "vm"])
async def test_the_suite_does_not_certify_a_word(isolation: str) -> None:
    with pytest.raises(AssertionError, match=f"its isolation is '{isolation}', and a script"):
        await Suite().test_works_here(open_backend(isolation))
    await Suite().test_works_here(open_backend())
