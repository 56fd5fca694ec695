"""Reads lines from a terminal on the event loop; nothing blocks, and no thread is left behind.

The system echoes and edits the line. While a question is asked, Ctrl-C ends a line instead of
being a signal: it answers the question.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, Self, TextIO

from delf_approval_terminal.render import indent_pieces, style

# The index of the list of control characters in the attributes of ``termios.tcgetattr``.
_CONTROL_CHARACTERS: Final = 6
_DISABLED: Final = b"\0" if sys.platform == "linux" else b"\xff"
# The maximum number of bytes of a typed line; the system truncates longer lines.
_MAX_LINE_BYTES: Final = 4095


_CTRL_C: Final = b"\x03"
_TOO_LONG_MESSAGE: Final = "that line was longer than a terminal can take; nothing was changed"


class CtrlCError(Exception):
    """Ctrl-C was typed instead of an answer."""


class Terminal:
    """A terminal at which a person is asked.

    Args:
        descriptor: The file descriptor for input.
        output: The stream for output.
    """

    def __init__(self, descriptor: int, output: TextIO) -> None:
        self._descriptor = descriptor  # typed lines are read from here
        self._output = output  # prompts and texts are written here

    @classmethod
    @contextmanager
    def standard(cls) -> Generator[Self | None]:
        """Yield a terminal on standard input and error; None if these are not terminals."""
        if not has_terminal():
            yield None
            return
        # Duplicate the descriptor: other code may watch the standard input on this loop.
        descriptor = os.dup(sys.stdin.fileno())
        try:
            with _ctrl_c_as_input(descriptor):
                yield cls(descriptor, sys.stderr)
        finally:
            os.close(descriptor)

    @property
    def width(self) -> int:
        """The width in columns."""
        columns = 0
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(self._output.fileno()).columns
        return max(20, columns or 80)  # some terminals report no width

    def forget_typed(self) -> None:
        """Discard keys that were typed before the question was visible."""
        with suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def write(self, text: str) -> None:
        """Write a text and flush the output."""
        self._output.write(text)
        self._output.flush()

    def say(self, text: str, style_name: str | None = None) -> None:
        """Write lines, wrapped between words, in a style such as ``yellow``."""
        for line in text.split("\n"):
            for piece in indent_pieces(line, self.width):
                self.write(f"{style(piece, style_name) if style_name else piece}\n")

    def complain(self, text: str) -> None:
        """Report an invalid answer, in yellow."""
        self.say(text, "yellow")

    async def ask(self, prompt: str) -> str | None:
        """Write a prompt and return the typed line, stripped; None at Ctrl-D.

        Ask again if the line is longer than a terminal can read.

        Raises:
            CtrlCError: If Ctrl-C is typed.
        """
        while len(typed := await self._read_line(prompt)) > _MAX_LINE_BYTES:
            self.complain(_TOO_LONG_MESSAGE)
        return typed.decode("utf-8", "replace").strip() if typed else None

    async def edit(self, prompt: str, text: str) -> str | None:
        """Let the person edit a text in the terminal; return the new text, None at Ctrl-D.

        Args:
            prompt: The prompt.
            text: The text to begin with; it may have several lines.

        Raises:
            CtrlCError: If Ctrl-C is typed.
        """
        from prompt_toolkit import PromptSession
        from prompt_toolkit.input import create_input
        from prompt_toolkit.output import create_output

        # Duplicate the descriptor, because the stream closes its own one at the end.
        with os.fdopen(os.dup(self._descriptor), encoding="utf-8") as typed:
            session: PromptSession[str] = PromptSession(
                input=create_input(typed), output=create_output(self._output)
            )
            try:
                return await session.prompt_async(prompt, default=text)
            except EOFError:
                return None
            except KeyboardInterrupt:
                raise CtrlCError from None

    async def _read_line(self, prompt: str) -> bytes:
        """Write a prompt and read a line with its line break; empty at the end of the input."""
        self.write("\n".join(indent_pieces(prompt, self.width)))
        typed = bytearray()
        while not typed.endswith(b"\n"):
            data = await self._read_some()
            if not data:
                self.write("\n")
                return b""
            typed += data
            if typed.endswith(_CTRL_C):
                self.write("\n")
                raise CtrlCError
        return bytes(typed)

    async def _read_some(self) -> bytes:
        """Wait for input without blocking the event loop; return no bytes at the input's end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()

        def ready() -> None:
            try:
                data = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return  # another reader of the terminal was faster
            except OSError:  # the terminal was closed
                data = b""
            if not future.done():
                future.set_result(data)

        loop.add_reader(self._descriptor, ready)
        try:
            return await future
        finally:
            loop.remove_reader(self._descriptor)


@contextmanager
def _ctrl_c_as_input(descriptor: int) -> Generator[None]:
    """Make Ctrl-C end the typed line instead of raising SIGINT.

    A background process does not own the terminal and leaves it unchanged.
    """
    try:
        original_mode = termios.tcgetattr(descriptor)
    except termios.error:
        original_mode = None
    if original_mode is None or _is_in_background(descriptor):
        yield
        return
    mode = termios.tcgetattr(descriptor)  # to be changed, unlike ``original_mode``
    # VEOL is a second end-of-line character: the system passes on the line with the Ctrl-C.
    mode[_CONTROL_CHARACTERS][termios.VINTR] = _DISABLED
    mode[_CONTROL_CHARACTERS][termios.VEOL] = _CTRL_C
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)
    try:
        yield
    finally:
        if not _is_in_background(descriptor):  # the shell owns the mode otherwise
            with suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(descriptor, termios.TCSANOW, original_mode)


def _is_in_background(descriptor: int) -> bool:
    """Return True for a background process, which the system stops if it changes the terminal."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not the session's terminal: no job control
        return False


def has_terminal() -> bool:
    """Return True if standard input and standard error are terminals."""
    return _is_terminal(sys.stdin) and _is_terminal(sys.stderr)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
