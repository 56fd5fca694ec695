"""A program on a terminal of its own: what it shows can be waited for, and it can be typed to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from support.program import start

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
SECONDS = 20.0


class TerminalProcess:
    """A context manager; the process is killed, if need be, at its end.

    Args:
        command: What to run.
        env: All of its environment.
        cwd: Where.
        stdout: Where its standard output goes instead, as a path.
        columns: The width.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdout: Path | None = None,
        columns: int = 100,
    ) -> None:
        self._command = [str(part) for part in command]
        self._env = {**env, "TERM": "xterm-256color"}
        self._cwd = cwd
        self._stdout = stdout
        self._columns = columns
        self._seen = 0
        self.raw = ""

    def __enter__(self) -> Self:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, self._columns, 0, 0))
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(self._stdout.open("wb")) if self._stdout else slave
            self.process = start(
                self._command,
                stdin=slave,
                stdout=out,
                stderr=slave,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
                terminal=True,
            )
        os.close(slave)
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)

    @property
    def text(self) -> str:
        """Everything shown so far, without colours and movements."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, wanted: str, seconds: float = SECONDS) -> str:
        """Wait until a text is shown, after all that was waited for before.

        Returns:
            What was shown up to its end.
        """
        end = time.monotonic() + seconds
        while (at := self.text.find(wanted, self._seen)) < 0:
            if not self._read(end):
                raise AssertionError(f"{wanted!r} was not shown after:\n{self.text}")
        shown = self.text[self._seen : at + len(wanted)]
        self._seen = at + len(wanted)
        return shown

    def send(self, text: str) -> None:
        """Type."""
        os.write(self.master, text.encode())

    def answer(self, replies: Mapping[str, str], seconds: float) -> int:
        """Type a reply to each of these texts whenever it is shown; the exit status at the end."""
        end = time.monotonic() + seconds
        alive = True
        while alive:
            places = [(self.text.find(text, self._seen), text) for text in replies]
            found = min((place for place in places if place[0] >= 0), default=None)
            if found is None:
                alive = self._read(end)
                continue
            self._seen = found[0] + len(found[1])
            self.send(replies[found[1]])
        return self.process.wait(max(0.1, end - time.monotonic()))

    def wait(self, seconds: float = SECONDS) -> int:
        """Read to the end and return the exit status."""
        end = time.monotonic() + seconds
        while self._read(end):
            pass
        return self.process.wait(max(0.1, end - time.monotonic()))

    def _read(self, end: float) -> bool:
        left = end - time.monotonic()
        if left <= 0 or not select.select([self.master], [], [], left)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # Linux's way to say that nobody has the other side open
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
