"""``delf run`` in the background, with tools that leave a trace and calls that wait."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.program import DELF, environment, write_recording

TOOLS = '''
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
        return "closed"

desk = Desk(name="desk")
'''


class Run:
    """``delf run`` in the background."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def request(self) -> str:
        """The id of the next request, once it waits."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.match(r"approval needed: .*delf approvals show (req_\w+)", line):
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
    process = subprocess.Popen(
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


def sent(here: Path) -> list[str]:
    """What the tools have done in a folder."""
    path = here / "sent.txt"
    return path.read_text().splitlines() if path.exists() else []
