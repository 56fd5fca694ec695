"""Laziness: what starting delf, and listing plugins, must not import."""

import functools
import json
import subprocess
import sys

import pytest

from support.workspace import PLUGINS, Plugin

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


def test_import_delf_is_bare() -> None:
    heavy = {"pydantic", "pydantic_settings", "pluggy", "click", "rich"}
    assert not _roots(imported_by("import delf")) & heavy


def test_the_agent_needs_no_terminal_and_no_settings() -> None:
    heavy = {"rich", "click", "pydantic", "pydantic_settings", "pluggy"}
    assert not _roots(imported_by("from delf import Agent, tool")) & heavy


def test_the_version_loads_no_plugin() -> None:
    modules = _modules_after(COMMAND.format(argument="--version"))
    assert {name for name in _roots(modules) if name.startswith("delf_")} <= {"delf_cli"}
    assert not _roots(modules) & {"pydantic", "pydantic_settings", "rich"}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_loading_a_plugin_imports_no_vendor(plugin: Plugin) -> None:
    roots = _roots(imported_by(f"import {plugin.module}.plugin"))
    vendors = roots - sys.stdlib_module_names - {"delf", "pluggy", plugin.module}
    assert not vendors
