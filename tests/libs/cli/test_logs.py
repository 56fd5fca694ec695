"""Tests of what commands log: no secret of the project, whatever the command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delf.testing import DelfProject
from delf_cli.logs import log_to_stderr

DESK = """
import logging

from delf import Connection, action
from delf.hookspecs import hookimpl
from delf.settings import PluginSettings, SecretStr
from delf.specs import ConnectionSpec

class DeskSettings(PluginSettings):
    token: SecretStr

class Desk(Connection[DeskSettings]):
    \"\"\"A desk.\"\"\"

    async def actions(self):
        logging.getLogger("desk").warning("its server\\x1b says: no drawer s3cret-drawer-4711")
        return await super().actions()

    @action(effect="read")
    def find(self) -> str:
        \"\"\"Find.\"\"\"
        return "a lamp"

@hookimpl
def delf_connections():
    yield ConnectionSpec(name="desk", summary="A desk.", factory="logging_desk:Desk")
"""


@pytest.fixture
def file(delf_project: DelfProject) -> Iterator[Path]:
    yield delf_project.write("logging_desk.py", DESK)
    sys.modules.pop("logging_desk", None)


@pytest.mark.parametrize("command", [("inspect", "desk"), ("run", "Find.", "-c", "desk")])
def test_log_of_any_command_has_no_secret_of_the_project(
    command: tuple[str, ...], file: Path, delf_project: DelfProject
) -> None:
    llm = delf_project.install_model("print(await desk.find())")
    delf_project.write_config('[connections.desk]\ntype = "desk"\ntoken = "s3cret-drawer-4711"\n')
    options = ("--llm", llm) if command[0] == "run" else ()
    outcome = delf_project.run("--plugin", str(file), *command, *options)
    assert outcome.succeeded()
    assert "no drawer [redacted]" in outcome.stderr
    assert "s3cret" not in outcome.stderr
    assert "\x1b" not in outcome.stderr


def test_warning_reaches_each_handler_once_if_redaction_loads_the_project(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load_and_redact(text: str) -> str:
        log_to_stderr(load_and_redact, debug=False)  # as a command does when it loads a project
        return text

    log_to_stderr(load_and_redact, debug=False)
    records: list[logging.LogRecord] = []
    later_handler = logging.Handler()
    later_handler.emit = records.append
    logging.getLogger().addHandler(later_handler)
    try:
        logging.getLogger("delf.test").warning("the lamp is broken")
    finally:
        logging.getLogger().removeHandler(later_handler)
    assert capsys.readouterr().err.count("the lamp is broken") == 1
    assert [record.getMessage() for record in records] == ["the lamp is broken"]
