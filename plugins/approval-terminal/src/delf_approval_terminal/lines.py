"""Reads lines from a terminal on the event loop; nothing blocks, and no thread is left behind.

The terminal stays in the mode that it is in: the system echoes and edits the line, Ctrl-C is a
signal as always, and a request that is cancelled leaves nothing to restore.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, Self, TextIO

_LONGEST: Final = 4095
"""More than this, and the system cuts a line."""


class LineCutError(Exception):
    """A line was too long for the terminal, so that its end is missing."""


class Terminal:
    """A terminal to ask on.

    Args:
        descriptor: Where lines are read.
        output: Where prompts are written.
    """

    def __init__(self, descriptor: int, output: TextIO) -> None:
        self._descriptor = descriptor
        self._output = output

    @classmethod
    @contextmanager
    def standard(cls) -> Generator[Self | None]:
        """Standard input and error if both are terminals, else None."""
        if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
            yield None
            return
        # A descriptor of our own: the loop may watch the standard input for somebody else.
        descriptor = os.dup(sys.stdin.fileno())
        try:
            yield cls(descriptor, sys.stderr)
        finally:
            os.close(descriptor)

    @property
    def width(self) -> int:
        """Columns."""
        columns = 0
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(self._output.fileno()).columns
        return max(20, columns or 80)  # some terminals do not know

    def forget_typed(self) -> None:
        """Drop what was typed before the question could be read."""
        with suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def write(self, text: str) -> None:
        """Write at once."""
        self._output.write(text)
        self._output.flush()

    async def read(self, prompt: str) -> str | None:
        """The line that is typed after a prompt, stripped; None at Ctrl-D.

        Raises:
            LineCutError: When the system could not take all of it.
        """
        self.write(prompt)
        typed = bytearray()
        while not typed.endswith(b"\n"):
            data = await self._read_some()
            if not data:
                self.write("\n")
                return None
            typed += data
        if len(typed) > _LONGEST:
            raise LineCutError
        return typed.decode("utf-8", "replace").strip()

    async def _read_some(self) -> bytes:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()

        def ready() -> None:
            try:
                data = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return
            except OSError:  # the terminal was closed
                data = b""
            if not future.done():
                future.set_result(data)

        loop.add_reader(self._descriptor, ready)
        try:
            return await future
        finally:
            loop.remove_reader(self._descriptor)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
