"""Laziness: what starting delf, and listing plugins, must not import."""

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.workspace import (
    LIBRARIES,
    PLUGINS,
    Plugin,
    imports_of,
    modules,
    place,
    statements,
    tree_of,
)

PACKAGES = {
    ".".join(path.parts[path.parts.index("src") + 1 : -1])
    for path in modules()
    if path.name == "__init__.py"
}
"""The dotted names of packages: `from delf_cli import session` imports another module each time."""
REPORT = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
COMMAND = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv = ["delf", {argument!r}]
from delf_cli.main import main
sys.exit(main())
"""


def imported_by(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after this code, beside those it starts with."""
    return _modules_after(f"{code}\n{REPORT}") - _modules_after(REPORT)


@functools.cache
def _modules_after(code: str) -> set[str]:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stderr.splitlines()[-1]))


def _roots(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_delf_loads_no_heavy_module() -> None:
    heavy = {"pydantic", "pydantic_settings", "pluggy", "click", "rich"}
    assert not _roots(imported_by("import delf")) & heavy


def test_importing_agent_loads_no_terminal_library() -> None:
    heavy = {"rich", "click", "pydantic", "pydantic_settings"}
    assert not _roots(imported_by("from delf import Agent, tool")) & heavy


def test_version_flag_loads_no_plugin() -> None:
    modules = _modules_after(COMMAND.format(argument="--version"))
    assert {name for name in _roots(modules) if name.startswith("delf_")} <= {"delf_cli"}
    assert not _roots(modules) & {"pydantic", "pydantic_settings", "rich"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "plugin", [plugin for plugin in PLUGINS if plugin.has_hooks], ids=lambda plugin: plugin.name
)
def test_plugin_module_imports_no_vendor_library(plugin: Plugin) -> None:
    roots = _roots(imported_by(f"import {plugin.module}.plugin"))
    ours = {"delf", "pluggy", plugin.module, *(library.module for library in LIBRARIES)}
    vendors = roots - sys.stdlib_module_names - ours
    assert not vendors


def _needless(path: Path) -> Iterator[str]:
    """The imports in functions of what the module has imported at its top."""
    top = imports_of(path, late=False)
    at_top = {name for _, name in top} | {n.module for n, _ in top if isinstance(n, ast.ImportFrom)}
    for function in statements(tree_of(path)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in statements(function):
                if isinstance(node, ast.Import):
                    names = {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module not in PACKAGES:
                    names = {str(node.module)}
                else:
                    continue
                if names & at_top:
                    yield place(path, node)


@pytest.mark.slow
def test_functions_import_nothing_already_loaded() -> None:
    """An import in a function says that the module is loaded late, which would not be true."""
    assert [found for path in modules() for found in _needless(path)] == []
