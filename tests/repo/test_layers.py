"""The layers: import-linter's contracts for the core, and what plugins may import."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from support.workspace import CORE, LIBRARIES, PLUGINS, ROOT, Library, imports_of, place, tree_of

# L0 and L1 of the layers: what a plugin is written against.
CONTRACTS = frozenset(
    {
        "delf.answers",
        "delf.attributes",
        "delf.environment",
        "delf.errors",
        "delf.events",
        "delf.hookspecs",
        "delf.llm",
        "delf.machine",
        "delf.messages",
        "delf.network",
        "delf.notes",
        "delf_engine.outputs",
        "delf.packages",
        "delf_engine.sandboxes.isolation",
        "delf.protocols",
        "delf_engine.retention",
        "delf.settings",
        "delf.specs",
        "delf.tools",
        "delf.types",
        "delf.values",
    }
)
# The program that a command belongs to.
PROGRAM = frozenset({"delf.terminal"})
CHANGES = "delf_engine.changes"
VIEWS = "delf_engine.views"
# What commands share: tasks are run, looked at and decided about, in whatever process.
SHARED = PROGRAM | {
    "delf_engine.agent", "delf_engine.background", "delf_engine.config", "delf.trust", "delf_engine.approvals", "delf_engine.redact", "delf_engine.views", "delf_engine.waiting", "delf_engine.secrets", CHANGES,
    "delf.plugins", "delf_engine.project", "delf.records", "delf_engine.response", "delf_engine.agent_context", "delf_engine.task_options",
}  # fmt: skip
RUN_TASKS = PROGRAM | {
    "delf.plugins",
    "delf_engine.agent_context",
    "delf_engine.sync",
    CHANGES,
    VIEWS,
}
# Those that need more than the contracts and what commands share.
MORE: dict[str, frozenset[str]] = {
    "approval-slack": frozenset({"delf.terminal"}),
    "approval-terminal": PROGRAM | {CHANGES},
    "chat": RUN_TASKS,
    "cli": SHARED | {"delf_engine.journal.observers", "delf_engine.models"},
    "demo": frozenset({"delf.trust"}),
    "devkit": frozenset({"delf_engine.redact", "delf.plugins", "delf_engine.response"}),
    "filesystem": PROGRAM,
    "mcp": PROGRAM,
    "routines": PROGRAM | {"delf.plugins", "delf.trust"},
    "runner-dbos": PROGRAM
    | {"delf.plugins", "delf_engine.project", "delf_engine.agent_context", "delf_engine.sync"},
    "serve": RUN_TASKS,
    "workers": PROGRAM | {"delf_engine.views.prompts", "delf.trust"},
}


def test_the_contracts_of_import_linter_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_modules_import_each_other_in_a_circle() -> None:
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


def test_no_packages_need_each_other_in_a_circle() -> None:
    below = {f"delf-{library.name}": _needs(library) for library in LIBRARIES}
    below |= {f"delf-plugin-{plugin.name}": _needs(plugin) for plugin in PLUGINS}
    while free := {name for name, needed in below.items() if not needed & below.keys()}:
        for name in free:
            del below[name]
    assert not below, f"among these is a circle: {sorted(below)}"


def _needs(package: Library) -> set[str]:
    lines = package.metadata["project"]["dependencies"]
    return {re.split(r"[\[<>=~! ;]", line, maxsplit=1)[0] for line in lines}


def test_the_core_imports_no_plugin() -> None:
    found = [
        f"{place(path, node)} imports {name}"
        for path in sorted((CORE / "src").rglob("*.py"))
        for node, name in imports_of(path)
        if name.startswith("delf_") and path != CORE / "src/delf/testing.py"
    ]
    assert not found, "\n".join(found)


def test_the_core_imports_by_name_only_what_somebody_else_named() -> None:
    """A spec's factory, a class in ``delf.toml``, names of ``delf``; the program, and the kit."""
    named = {"__init__.py", "cli/start.py", "plugins/loader.py", "project/connections.py"}
    found = {
        path.relative_to(CORE / "src/delf").as_posix()
        for path in (CORE / "src").rglob("*.py")
        if "import_module(" in path.read_text(encoding="utf-8")
    }
    assert found == named | {"testing.py"}


def test_the_guest_needs_the_standard_library_only() -> None:
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


@pytest.mark.parametrize("plugin", [*LIBRARIES, *PLUGINS], ids=lambda plugin: plugin.module)
def test_a_plugin_imports_contracts_only(plugin: Library) -> None:
    allowed = CONTRACTS | MORE.get(plugin.name, frozenset())
    found = [
        f"{place(path, node)} imports {name}"
        for path in sorted((plugin.folder / "src").rglob("*.py"))
        for node, name in imports_of(path)
        if not _may_import(plugin, name, allowed)
    ]
    assert not found, "\n".join(found)


def _may_import(plugin: Library, name: str, allowed: frozenset[str]) -> bool:
    root, _, rest = name.partition(".")
    if root.startswith("delf_"):
        return root in {plugin.module, *(library.module for library in LIBRARIES)}
    if root != "delf" or rest in _public_names():
        return True
    return any(f"{name}.".startswith(f"{open_}.") for open_ in allowed)


@functools.cache
def _public_names() -> frozenset[str]:
    """What `from delf import …` gives: the API, open to commands that run tasks."""
    for node in tree_of(CORE / "src/delf/__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()
