"""The layers: import-linter's contracts for the core, and what plugins may import."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from support.workspace import CORE, LIBRARIES, PLUGINS, ROOT, Library, imports_of, place

ENGINE = "delf-plugin-engine"
"""The one plugin that others may import, if their ``pyproject.toml`` requires it."""


def test_contracts_of_import_linter_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_modules_have_no_import_cycle() -> None:
    """Not even for types, nor late, so that each room can be read without the next one."""
    roots = ["delf", *(package.module for package in (*LIBRARIES, *PLUGINS))]
    graph = grimp.build_graph(*roots, exclude_type_checking_imports=False)
    below = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    while True:
        free = {name for name, imported in below.items() if not imported & below.keys()}
        if not free:
            break
        for name in free:
            del below[name]
    assert not below, f"among these is a circle: {sorted(below)}"


def test_packages_have_no_dependency_cycle() -> None:
    below = {f"delf-{library.name}": _needs(library) for library in LIBRARIES}
    below |= {f"delf-plugin-{plugin.name}": _needs(plugin) for plugin in PLUGINS}
    while free := {name for name, needed in below.items() if not needed & below.keys()}:
        for name in free:
            del below[name]
    assert not below, f"among these is a circle: {sorted(below)}"


def _needs(package: Library) -> set[str]:
    lines = package.metadata["project"]["dependencies"]
    return {re.split(r"[\[<>=~! ;]", line, maxsplit=1)[0] for line in lines}


def test_core_imports_no_plugin() -> None:
    found = [
        f"{place(path, node)} imports {name}"
        for path in sorted((CORE / "src").rglob("*.py"))
        for node, name in imports_of(path)
        if name.startswith("delf_")
    ]
    assert not found, "\n".join(found)


def test_core_imports_dynamically_only_declared_names() -> None:
    """A spec's factory, names of ``delf``, and the program.

    The program is the library delf-cli: to look up its name among the entry points of all
    distributions would take longer than `delf --version` may.
    """
    named = {"__init__.py", "cli/start.py", "plugins/loader.py"}
    found = {
        path.relative_to(CORE / "src/delf").as_posix()
        for path in (CORE / "src").rglob("*.py")
        if "import_module(" in path.read_text(encoding="utf-8")
    }
    assert found == named


def test_sandbox_process_imports_only_the_standard_library() -> None:
    guest = ROOT / "libs/sandbox/src/delf_sandbox/guest"
    names = ("values/conversion", "machine/filenames", "values/encoding")
    shared = [CORE / f"src/delf/{name}.py" for name in names]
    found = [
        f"{place(path, node)} imports {name}"
        for path in [*shared, *sorted(guest.glob("*.py"))]
        for node, name in imports_of(path, late=False)
        if not name.startswith(
            (
                "delf.values.conversion",
                "delf.machine.filenames",
                "delf.values.encoding",
                "delf_sandbox.guest",
            )
        )
        and name.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("plugin", [*LIBRARIES, *PLUGINS], ids=lambda plugin: plugin.module)
def test_plugin_imports_the_core_libraries_and_what_it_requires(plugin: Library) -> None:
    found = [
        f"{place(path, node)} imports {name}"
        for path in sorted((plugin.folder / "src").rglob("*.py"))
        for node, name in imports_of(path)
        if not _may_import(plugin, name)
    ]
    assert not found, "\n".join(found)


def _may_import(plugin: Library, name: str) -> bool:
    root, _, rest = name.partition(".")
    needs_engine = root == "delf_engine" or (root == "delf" and rest in _exports_of_engine())
    if needs_engine:
        return plugin.name == "engine" or ENGINE in _needs(plugin)
    if root.startswith("delf_"):
        needs = _needs(plugin)
        required = {library.module for library in LIBRARIES if f"delf-{library.name}" in needs}
        return root in {plugin.module, *required}
    return True


@functools.cache
def _exports_of_engine() -> frozenset[str]:
    engine = next(each for each in PLUGINS if each.name == "engine")
    return frozenset(engine.metadata["project"]["entry-points"]["delf.exports"])


NO_ENGINE = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "delf_engine":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from delf.plugins.host import PluginHost
from delf.specs import (
    ConnectionSpec, EmbedderSpec, FormatSpec, JournalSpec, ModelSpec, SandboxSpec,
)

host = PluginHost.discover(environ={})
unfit = [record.name for record in host.records() if record.state == "failed"]
assert unfit == ["engine"], unfit
for kind in (ConnectionSpec, EmbedderSpec, FormatSpec, JournalSpec, ModelSpec, SandboxSpec):
    for spec in host.specs(kind):
        if spec.name not in ("workers", "no-model"):  # these two start tasks
            host.resolve(spec)
"""


@pytest.mark.slow
def test_capability_plugins_import_without_the_engine() -> None:
    result = subprocess.run([sys.executable, "-c", NO_ENGINE], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
