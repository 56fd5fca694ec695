"""``delf run`` in the background, with tools that leave a trace and calls that wait."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.program import DELF, delf, environment, start, write_recording

TOOLS = '''
import os, signal
from delf import Connection, action

class Desk(Connection):
    """A desk."""

    @action(effect="irreversible")
    async def send(self, to: str, copies: int = 1) -> str:
        """Send."""
        with open("sent.txt", "a") as file:
            file.write(f"{to} {copies}\\n")
        return f"sent to {to}"

    @action(effect="write")
    async def close(self, number: int) -> str:
        """Close."""
        with open("sent.txt", "a") as file:
            file.write(f"closed {number}\\n")
        if os.path.exists("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        return "closed"

desk = Desk(name="desk")
'''
FREE_TO_CLOSE = TOOLS.replace('Desk(name="desk")', 'Desk(name="desk", confirm="send")')
"""The same where ``close`` needs no approval."""


class Run:
    """``delf run`` in the background."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def request(self) -> str:
        """The id of the next request, once it waits."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.match(
                r"(?:approval|answer) needed: .*delf approvals show (req_\w+)", line
            ):
                return found[1]
        raise AssertionError("nothing was asked")

    def end(self) -> tuple[int, str, str]:
        """Its exit status and what it wrote."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@contextmanager
def running(
    here: Path, *scripts: str, flags: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[Run]:
    """A run of these scripts in a folder that has ``tools.py``."""
    llm = write_recording(here / "answers.jsonl", *scripts)
    command = [DELF, "run", "x", "--tools", "tools.py", "--llm", llm, "--wait-approvals", *flags]
    with _background(command, here, env) as run:
        yield run


@contextmanager
def _background(
    command: Sequence[str | Path], here: Path, env: Mapping[str, str] | None = None
) -> Iterator[Run]:
    process = start(
        command,
        cwd=here,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Run(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def killed_in_a_call(here: Path, *more: str) -> str:
    """The id of a task whose process was killed in ``desk.close(7)``, after it happened."""
    llm = write_recording(here / "answers.jsonl", "print('answer:', await desk.close(7))")
    (here / "die").touch()
    flags = (
        "--tools",
        "tools.py",
        "--llm",
        llm,
        *(more or ("--wait-approvals", "--approve", "ask")),
    )
    done = delf("run", "x", *flags, cwd=here)
    (here / "die").unlink()
    assert done.returncode == -signal.SIGKILL, done.stderr
    (task,) = json.loads(delf("runs", "list", "--json", cwd=here).stdout)
    assert task["state"] == "interrupted"
    return task["task_id"]


@contextmanager
def resuming(here: Path, task: str, *flags: str) -> Iterator[Run]:
    """``delf resume`` in the background."""
    with _background([DELF, "resume", task, *flags], here) as run:
        yield run


def sent(here: Path) -> list[str]:
    """The effects of the tools in a folder."""
    path = here / "sent.txt"
    return path.read_text().splitlines() if path.exists() else []
