"""The program's standard streams: always open, fully written, silent without a reader."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Final, TextIO

import click.utils

from delf import terminal
from delf.notes import in_call

_CLICK: Final[Any] = click.utils
_default_of_click: Final = _CLICK._default_text_stdout  # noqa: SLF001 - no public one


class _Stdout:
    """The real stdout, while ``sys.stdout`` is redirected to stderr."""

    stream: TextIO | None = None
    before: TextIO | None = None


def answers() -> TextIO:
    """Return the real stdout, reserved for answers that programs read."""
    return _Stdout.stream or sys.stdout


def keep_for_answers() -> None:
    """Redirect the output of tools and their child processes to stderr, unless on a terminal.

    Click still writes to stdout, for commands of plugins, except during a tool call.
    """
    if sys.stdout.isatty() or _Stdout.stream is not None:
        return
    _Stdout.before = sys.stdout
    _Stdout.stream = _redirect_stdout(sys.stdout)
    sys.stdout = sys.stderr
    _CLICK._default_text_stdout = _click_stream  # noqa: SLF001


def _click_stream() -> TextIO:
    return sys.stdout if in_call() else answers()


def _redirect_stdout(stdout: TextIO) -> TextIO:
    """Duplicate stdout to another descriptor, and redirect its own descriptor to stderr."""
    try:
        if stdout.fileno() != 1:
            return stdout
    except (OSError, ValueError, AttributeError):
        return stdout  # an embedding program replaced stdout
    stdout.flush()
    raw = io.FileIO(os.dup(1), "w")
    os.dup2(2, 1)
    is_whole = isinstance(getattr(stdout, "buffer", None), _WholeWriter)
    return io.TextIOWrapper(
        _WholeWriter(raw) if is_whole else io.BufferedWriter(raw),
        stdout.encoding,
        errors=stdout.errors,
        write_through=is_whole,
    )


def give_back() -> None:
    """Undo :func:`keep_for_answers`."""
    kept_stream, before = _Stdout.stream, _Stdout.before
    if kept_stream is None or before is None:
        return
    if kept_stream is not before:
        os.dup2(kept_stream.fileno(), 1)
        kept_stream.close()
    sys.stdout = before
    _Stdout.stream = _Stdout.before = None
    _CLICK._default_text_stdout = _default_of_click  # noqa: SLF001


def prepare() -> None:
    """Open missing standard streams, and make writes complete and encodable."""
    _open_closed()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, io.RawIOBase):  # PYTHONUNBUFFERED, as in many containers
            whole_stream = io.TextIOWrapper(_WholeWriter(raw), stream.encoding, write_through=True)
            setattr(sys, name, whole_stream)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class _WholeWriter(io.BufferedWriter):
    """A writer that writes all data at once, and raises if its reader has closed the pipe.

    Python's own unbuffered text stream silently drops what a pipe did not accept, so a reader that
    ends in the middle of a long text would go unnoticed.
    """

    def write(self, data: Any, /) -> int:
        """Write everything now."""
        count = super().write(data)
        self.flush()
        return count


def _open_closed() -> None:
    """Open /dev/null for a closed stream, whose descriptor the next opened file would take."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        if getattr(sys, name) is None:
            stream = os.fdopen(number, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def hush() -> None:
    """Suppress broken-pipe errors, also at the exit of the process."""
    _to_nowhere(answers())
    finish()


def finish() -> None:
    """Drop unwritable output (such as with a full disk), on which Python would fail at exit."""
    for stream in (answers(), sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _to_nowhere(stream)


def _to_nowhere(stream: Any) -> None:
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
    except (OSError, ValueError, AttributeError):  # the stream has no descriptor
        return


def wrap_text(text: str, *, indent: int = 0, head: int = 0, stream: TextIO | None = None) -> str:
    """Wrap a text to the terminal's width, as :func:`delf.terminal.wrap_text` does."""
    return terminal.wrap_text(text, indent=indent, head=head, stream=stream or answers())
