"""Problems that ``delf plugins check`` and ``delf doctor`` report to the author of a plugin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from delf import Connection, action
from delf.plugins.host import PluginHost
from delf.plugins.report import PluginRecord
from delf.specs import (
    CommandSpec,
    ConnectionSpec,
    FormatSpec,
    JournalSpec,
    ObserverSpec,
    SandboxSpec,
    Spec,
)
from delf.testing import TestHost
from delf_console.soundness import (
    distribution_warnings,
    effects,
    factory_problems,
    import_warnings,
    licence_warnings,
    unsupported_features,
)
from delf_devkit.testing.hosts import install_plugin

METADATA = """Metadata-Version: 2.4
Name: delf-plugin-desk
Version: 1.0
Summary: A desk.
License-Expression: MIT
Keywords: delf,delf-plugin-api-1
Requires-Python: >=3.11
Requires-Dist: delf-core>=0.1,<1
"""
HOOK = """
from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec

@hookimpl
def delf_connections():
    yield ConnectionSpec(name="desk", summary="A desk.", factory="delf_desk.connection:Desk")
"""
CONNECTION = """
import json
from delf import Connection, action

class Desk(Connection):
    \"\"\"A desk.\"\"\"

    @action(effect="read")
    def find(self) -> str:
        \"\"\"Find.\"\"\"
        return "x"

    @action
    def burn(self) -> str:
        \"\"\"Burn.\"\"\"
        return "x"
"""
FILES = {
    "delf_desk/__init__.py": "",
    "delf_desk/py.typed": "",
    "delf_desk/plugin.py": HOOK,
    "delf_desk/connection.py": CONNECTION,
}


class Site:
    """A folder in which the plugin ``desk`` is installed, with or without faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, metadata: str = METADATA, record: str = "", without: str = "", **files: str
    ) -> tuple[PluginHost, PluginRecord]:
        name = metadata.partition("Name: ")[2].partition("\n")[0].replace("-", "_")
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text("[delf]\ndesk = delf_desk.plugin\n")
        (info / "RECORD").write_text(record)
        for line in record.splitlines():  # a file that is not there is left out by newer readers
            listed = self.folder / line.partition(",")[0]
            listed.parent.mkdir(exist_ok=True)
            listed.touch()
        changed = {f"delf_desk/{name}.py": text for name, text in files.items()}
        for name, text in {**FILES, **changed}.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            if name != without:
                path.write_text(text)
        host = PluginHost.discover(environ={})
        return host, next(each for each in host.records() if each.name == "desk")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith("delf_desk"):
            del sys.modules[name]


def without(start: str) -> str:
    return "".join(line for line in METADATA.splitlines(True) if not line.startswith(start))


def test_correct_plugin_causes_no_warning(site: Site) -> None:
    host, record = site.install()
    assert list(distribution_warnings(record)) == []
    assert list(import_warnings("desk", "delf-plugin-desk")) == []
    assert list(licence_warnings("delf-plugin-desk")) == []
    (spec,) = host.specs_of("desk")
    assert list(factory_problems(host, spec)) == []
    assert effects(host, spec) == [("find", "read"), ("burn", "irreversible")]


@pytest.mark.parametrize(
    "bounds", [">0,<=1", "~=0.1", f"=={version('delf-core')}", f"==={version('delf-core')}"]
)
def test_bounded_requirement_causes_no_warning(site: Site, bounds: str) -> None:
    _, record = site.install(metadata=METADATA.replace(">=0.1,<1", bounds))
    assert list(distribution_warnings(record)) == []


def test_check_of_a_plugin_in_one_file_reads_no_other_file(site: Site) -> None:
    (site.folder / "other.py").write_text("import yaml12")
    (site.folder / "delf_lone.py").write_text(HOOK)
    install_plugin(site.folder, "lone", module="delf_lone")
    records = PluginHost.discover(environ={}).records()
    warnings = distribution_warnings(next(each for each in records if each.name == "lone"))
    assert not [text for text in warnings if "it imports" in text]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metadata": without("Summary")}, "it has no description"),
        ({"metadata": without("Keywords")}, "it has no keyword delf-plugin-api-1"),
        ({"metadata": without("Requires-Python")}, "which Python it needs"),
        ({"metadata": METADATA.replace(">=3.11", ">=3.8")}, "delf needs 3.11"),
        ({"metadata": without("Requires-Dist")}, "it does not require delf-core"),
        ({"metadata": METADATA.replace(">=0.1,<1", ">=0.1")}, "no upper bound"),
        ({"metadata": METADATA.replace(">=0.1,<1", "<1")}, "no lower bound"),
        ({"metadata": METADATA.replace(">=0.1,<1", ">=99,<100")}, ">=99, and 0.1.0 is installed"),
        ({"metadata": f"{METADATA}Requires-Dist: no-such-sdk>=3\n"}, "no-such-sdk, which is not"),
        ({"metadata": f"{METADATA}Requires-Dist: click>=1.*\n"}, "its metadata cannot be read"),
        (
            {"metadata": METADATA.replace("Python: >=3.11", "Python: >=3.6.*")},
            "cannot be read: Invalid specifier",
        ),
        ({"metadata": METADATA.replace("delf-plugin-desk", "desk")}, "not called delf-plugin-"),
        ({"without": "delf_desk/py.typed"}, "there is no py.typed"),
        ({"record": "tests/test_desk.py,,\n"}, "also installs the top-level folder tests/"),
        ({"tools": "import yaml12"}, "it imports yaml12, and does not require"),
        (
            {"tools": "def late():\n    import httpx"},
            "it imports httpx, and does not require httpx",
        ),
        (
            {"tools": "from delf_engine.views import trace"},
            "of delf-plugin-engine: a plugin is not a library",
        ),
        (
            {"tools": "from delf_sql import connection"},
            "of delf-plugin-sql: a plugin is not a library",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.slow
def test_fixable_plugin_faults_are_reported(site: Site, change: dict[str, Any], says: str) -> None:
    _, record = site.install(**change)
    (message,) = distribution_warnings(record)
    assert says in message


def test_published_package_without_a_licence_is_reported(site: Site) -> None:
    _, record = site.install(metadata=without("License"))
    assert list(distribution_warnings(record)) == []
    (message,) = licence_warnings("delf-plugin-desk")
    assert "it has no licence" in message


@pytest.mark.parametrize(
    "code",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import httpx",
        "try:\n    import httpx\nexcept ImportError:\n    httpx = None",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import httpx",
        "import pydantic",
        "from delf_desk import connection",
    ],
    ids=["for type checkers", "does without", "suppressed", "comes with the core", "its own"],
)
@pytest.mark.slow
def test_harmless_imports_are_not_reported(site: Site, code: str) -> None:
    _, record = site.install(tools=code)
    assert list(distribution_warnings(record)) == []


def test_import_output_and_import_time_are_reported(site: Site) -> None:
    site.install(__init__="import time\nprint('hello')\ntime.sleep(0.4)")
    message = list(import_warnings("desk", "delf-plugin-desk"))
    assert "prints something" in message[0]
    assert "at each start of delf" in message[1]


def problems(spec: Spec, made: Any) -> list[str]:
    host = TestHost.discover(environ={})
    host.provide(spec, made)
    return [*factory_problems(host, spec), *unsupported_features(host, spec)]


def test_plain_function_as_factory_is_reported() -> None:
    def made() -> None: ...

    (message,) = problems(ConnectionSpec(name="c", summary="C.", factory="x:y"), made)
    assert "plain function, not a subclass of delf.Connection" in message
    (message,) = problems(CommandSpec(name="c", summary="C.", factory="x:y"), made)
    assert "mark it with @click.command" in message


def test_command_with_the_name_of_one_of_delf_is_reported() -> None:
    @click.command()
    def made() -> None: ...

    (message,) = problems(CommandSpec(name="trust", summary="T.", factory="x:y"), made)
    assert "is never called, because delf itself has this command" in message


def test_missing_function_for_project_files_is_reported() -> None:
    spec = ObserverSpec(name="o", summary="O.", factory="x:y", project_files="delf_nothing:listed")
    (message,) = problems(spec, lambda: None)
    assert "cannot load delf_nothing:listed" in message


def test_connection_that_never_releases_its_resources_is_reported() -> None:
    class Plain(Connection):
        """Keeps its settings only."""

        @action(effect="read")
        async def find(self) -> None:
            """Find nothing."""

    class Keeps(Plain):
        """Keeps a client."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.client = object()

    spec = ConnectionSpec(name="c", summary="C.", factory="x:y")
    assert problems(spec, Plain) == []
    assert "not a SupportsClose" in problems(spec, Keeps)[0]


class Empty(Connection):
    """A connection without actions."""


class Misfit(Connection):
    """A connection whose action has a wrong default."""

    @action(effect="read")
    async def find(self, limit: int = "many") -> None:  # type: ignore[assignment]
        """Find nothing."""


class Silent(Connection):
    """A connection whose action has no docstring."""

    @action(effect="read")
    async def find_all(self) -> None: ...


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (Empty, "has no action: mark its methods with @action"),
        (Misfit, "find: the default of 'limit', 'many', does not fit its type"),
        (Silent, "has the action find_all without a docstring"),
    ],
)
def test_faulty_action_of_a_connection_is_reported(made: type, problem: str) -> None:
    (message,) = problems(ConnectionSpec(name="c", summary="C.", factory="x:y"), made)
    assert problem in message


def test_missing_member_of_a_plugin_object_is_named() -> None:
    class Half:
        isolation = "process"

        async def open(self, spec: Any) -> None: ...

    spec = SandboxSpec(name="s", summary="S.", factory="x:y", isolation="process")
    assert "has no available, visible_path, aclose" in problems(spec, Half)[0]


def test_missing_optional_protocol_is_reported() -> None:
    from delf_engine.journal.in_process import InProcessJournal

    message = problems(JournalSpec(name="j", summary="J.", factory="x:y"), InProcessJournal)
    assert any("is not a SharedJournal: other processes cannot see" in line for line in message)

    class Rows:
        async def parts(self, path: str) -> list[str]: ...

        async def read(self, path: str, part: str | None) -> list[Any]: ...

        async def peek(self, path: str, part: str | None, max_rows: int | None) -> list[Any]: ...

        async def write(self, parts: Any) -> bytes: ...

    message = problems(FormatSpec(name="f", summary="F.", factory="x:y", endings=(".f",)), Rows)
    assert message == ["format 'f' has a method write, and its spec names no `writes`"]


@pytest.mark.slow
def test_first_party_plugins_have_no_findings() -> None:
    message = {
        record.name: warnings
        for record in PluginHost.discover(environ={}).records()
        if (warnings := list(distribution_warnings(record)))
    }
    assert message == {}


class OneProcess:
    """A journal that other processes cannot use."""

    async def append(self, event: object): ...

    async def read(self, task_id: str, after: int = 0): ...

    def subscribe(self, task_id: str | None = None): ...

    async def find(self, limit: int = 100): ...

    async def aclose(self): ...


def test_journal_declared_shared_without_support_is_reported():
    host = TestHost.discover(environ={})
    for shared in (False, True):
        spec = JournalSpec(name="notes", summary="N.", factory="x:y", durable=True, shared=shared)
        host.provide(spec, OneProcess)
        found = list(factory_problems(host, spec))
        assert bool(found) is shared
    assert "is not a SharedJournal, as `shared` of its spec says: no remembered, revoke" in found[0]
