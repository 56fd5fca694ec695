"""Attempts to run forbidden commands, from `attempts.txt`. All fail, with any approval."""

import ast
import contextlib
from pathlib import Path

import pytest

from delf.errors import DelfError
from delf.protocols.connection import Allowed, ProposedCall, Refused
from delf_shell import Shell

LINES = (Path(__file__).parent / "attempts.txt").read_text().splitlines()
ATTEMPTS = [line for line in LINES if line and not line.startswith("# ")]


def command_of(line: str) -> str:
    quoted = line.replace('"', '\\"')
    return ast.literal_eval(f'"{quoted}"')


@pytest.mark.parametrize("line", ATTEMPTS)
async def test_command_attempts_beyond_the_rules_are_refused(
    line: str, shell: Shell, folder: Path
) -> None:
    command = command_of(line)
    verdict = shell.check(ProposedCall(action="run", arguments={"command": command}))
    assert isinstance(verdict, (Allowed, Refused))
    if isinstance(verdict, Allowed):  # what its rule allows: it is run, and nothing else happens
        with contextlib.suppress(DelfError):
            result = await shell.run(command, timeout=5)
            assert "s3cret" not in result["stdout"] + result["stderr"]
            assert "root:" not in result["stdout"]
    assert not list(folder.parent.rglob("OWNED*"))


def test_only_harmless_command_attempts_are_allowed_by_a_rule(shell: Shell) -> None:
    allowed = [
        line
        for line in ATTEMPTS
        if isinstance(
            shell.check(ProposedCall(action="run", arguments={"command": command_of(line)})),
            Allowed,
        )
    ]
    assert allowed == ["echo !touch"]
