"""The standard streams of the program: open, whole in what they write, quiet once nobody reads."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from typing import Any, TextIO


def prepare() -> None:
    """Let the standard streams be there, and take every character and every write as a whole."""
    _open_closed()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, io.RawIOBase):  # PYTHONUNBUFFERED, as in many containers
            whole = io.TextIOWrapper(_WholeWriter(raw), stream.encoding, write_through=True)
            setattr(sys, name, whole)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class _WholeWriter(io.BufferedWriter):
    """Writes at once, and all of it.

    A text stream without a buffer forgets what a pipe did not take. Then nobody learns that a
    reader went away in the middle of a long text.
    """

    def write(self, data: Any, /) -> int:
        """Write everything now."""
        count = super().write(data)
        self.flush()
        return count


def _open_closed() -> None:
    """Put /dev/null where a shell closed a stream: else a file that is opened takes its place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            stream = os.fdopen(number, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def hush() -> None:
    """After a broken pipe: nothing more is written to it, not even at the end of the process."""
    _to_nowhere(sys.stdout)
    finish()


def finish() -> None:
    """Give up what a stream does not take (a full disk): Python would fail of it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _to_nowhere(stream)


def _to_nowhere(stream: Any) -> None:
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
    except (OSError, ValueError, AttributeError):  # a stream that is not a file
        return


def wrapped(text: str, *, indent: int = 0, head: int = 0, stream: TextIO | None = None) -> str:
    """A text broken between words where a terminal would break it within one.

    Args:
        text: What is written; its own lines stay.
        indent: Columns before it, and before its further lines.
        head: Columns of what stands in front of its first line.
        stream: Where it goes; stdout when omitted.
    """
    if not (stream or sys.stdout).isatty():
        return text
    room = max(20, shutil.get_terminal_size().columns - indent)
    first = " " * head
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= (room if lines else room - head):
            lines.append(line if lines else first + line)
            continue
        lines += textwrap.wrap(
            line,
            room,
            initial_indent="" if lines else first,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        ) or [""]
    return f"\n{' ' * indent}".join(lines)[head:]
