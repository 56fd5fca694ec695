"""Tests of a plugin in a single file, without a package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delf import Agent
from delf.errors import PluginError
from delf.plugins.discovery import from_file
from delf.specs import ConnectionSpec
from delf.testing import DelfProject, ScriptedModel, TestHost

DESK = """
from delf import Connection, action
from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec

class Desk(Connection):
    \"\"\"A desk.\"\"\"

    @action(effect="read")
    def find(self) -> str:
        \"\"\"Find.\"\"\"
        return "a lamp"

@hookimpl
def delf_connections():
    yield ConnectionSpec(name="desk", summary="A desk.", factory="one_file_desk:Desk")
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "one_file_desk.py"
    path.write_text(DESK)
    yield path
    sys.modules.pop("one_file_desk", None)


def test_from_file_connection_is_used_in_a_task(file: Path) -> None:
    host = TestHost.discover(environ={}, extra=[from_file(str(file))])
    assert from_file(str(file))[1] is sys.modules["one_file_desk"]
    model = ScriptedModel().writes("print(await desk.find())")
    host.provide(model.spec, model.factory)
    desk = host.resolve(host.spec(ConnectionSpec, "desk"))()
    with Agent(tools=[desk], llm="scripted", host=host) as agent:
        assert agent.run("Find.").raise_for_status().text == "a lamp"


def test_plugin_loaded_from_file_works_on_the_command_line(
    file: Path, delf_project: DelfProject
) -> None:
    llm = delf_project.install_model("print(await desk.find())")
    outcome = delf_project.run("run", "Find.", "-c", "desk", "--llm", llm, "--plugin", str(file))
    assert outcome.succeeded().stdout == "a lamp\n"


def test_failing_import_of_a_plugin_file_raises(file: Path, delf_project: DelfProject) -> None:
    file.write_text("import nowhere_at_all")
    with pytest.raises(PluginError, match="No module named 'nowhere_at_all'"):
        from_file(str(file))
    outcome = delf_project.run("plugins", "--plugin", str(file))
    assert outcome.exit_code == 2
    assert "nowhere_at_all" in outcome.stderr


def test_plugin_file_named_like_a_module_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text("")
    with pytest.raises(PluginError, match="rename the file"):
        from_file(str(path))
