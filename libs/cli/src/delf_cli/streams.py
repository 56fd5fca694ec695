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


class _Redirection:
    """The streams that :func:`restore_stdout` needs to undo the redirection of ``sys.stdout``.

    Both streams are None while stdout is not redirected.
    """

    real_stdout: TextIO | None = None
    """A stream to the place where stdout led before the redirection."""
    replaced_stdout: TextIO | None = None
    """The former ``sys.stdout``. If its descriptor is 1, the object now writes to stderr."""


def real_stdout() -> TextIO:
    """Return the stream to which answers are written.

    The stream is the real stdout, also while ``sys.stdout`` is redirected to stderr.
    """
    return _Redirection.real_stdout or sys.stdout


def reserve_stdout() -> None:
    """Redirect ``sys.stdout`` to stderr, unless stdout is a terminal.

    The output of tools and their child processes then does not mix with the answer, which
    ``click.echo`` still writes to the real stdout.
    """
    if sys.stdout.isatty() or _Redirection.real_stdout is not None:
        return
    _Redirection.replaced_stdout = sys.stdout  # for restore_stdout()
    _Redirection.real_stdout = _redirect_stdout(sys.stdout)
    sys.stdout = sys.stderr
    # click.echo gets its stream from this function, as click has no public setting for it.
    _CLICK._default_text_stdout = _click_stream  # noqa: SLF001


def _click_stream() -> TextIO:
    """Return the stream of ``click.echo``.

    During a tool call, this is ``sys.stdout``, which :func:`reserve_stdout` redirects to stderr: a
    tool may use click, too, and the tool's output must not mix with the answer. Otherwise, this is
    the real stdout.
    """
    if in_call():
        return sys.stdout
    return real_stdout()


def _redirect_stdout(stdout: TextIO) -> TextIO:
    """Redirect descriptor 1 to stderr, and return a stream to the former descriptor 1.

    Child processes and C libraries write to the descriptor, not to ``sys.stdout``. The returned
    stream is unbuffered if ``stdout`` is, so that each text is written at once.
    """
    try:
        if stdout.fileno() != 1:
            return stdout
    except (OSError, ValueError, AttributeError):
        return stdout  # an embedding program replaced stdout
    stdout.flush()
    raw = io.FileIO(os.dup(1), "w")
    os.dup2(2, 1)
    is_unbuffered = isinstance(getattr(stdout, "buffer", None), _UnbufferedWriter)
    return io.TextIOWrapper(
        _UnbufferedWriter(raw) if is_unbuffered else io.BufferedWriter(raw),
        stdout.encoding,
        errors=stdout.errors,
        write_through=is_unbuffered,
    )


def restore_stdout() -> None:
    """Undo :func:`reserve_stdout`."""
    real_stream = _Redirection.real_stdout
    previous_stdout = _Redirection.replaced_stdout
    if real_stream is None or previous_stdout is None:
        return
    if real_stream is not previous_stdout:  # _redirect_stdout() has also redirected descriptor 1
        os.dup2(real_stream.fileno(), 1)
        real_stream.close()
    sys.stdout = previous_stdout
    _Redirection.real_stdout = _Redirection.replaced_stdout = None
    _CLICK._default_text_stdout = _default_of_click  # noqa: SLF001


def prepare() -> None:
    """Make the standard streams safe to write to.

    Closed streams are opened on /dev/null. Characters outside of a stream's encoding are escaped,
    and unbuffered streams write all data or raise.
    """
    _open_closed_streams()  # first, because a closed stream is None in sys
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, io.RawIOBase):  # PYTHONUNBUFFERED, as in many containers
            writer = _UnbufferedWriter(raw)
            setattr(sys, name, io.TextIOWrapper(writer, stream.encoding, write_through=True))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class _UnbufferedWriter(io.BufferedWriter):
    """A writer that writes all data immediately, and raises if its reader has closed the pipe.

    Python's own unbuffered text stream silently drops the data that a pipe did not accept.
    """

    def write(self, data: Any, /) -> int:
        count = super().write(data)
        self.flush()
        return count


def _open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream.

    Without this, the next file to be opened would get the closed stream's descriptor.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is ``number``
        if getattr(sys, name) is None:
            stream = os.fdopen(number, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def ignore_broken_pipe() -> None:
    """Discard the remaining output after a broken pipe, also at the exit of the process."""
    _redirect_to_devnull(real_stdout())
    flush_or_drop()


def flush_or_drop() -> None:
    """Flush the standard streams; drop output that cannot be written, such as to a full disk.

    Python itself would fail at exit because of such output.
    """
    for stream in (real_stdout(), sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _redirect_to_devnull(stream)


def _redirect_to_devnull(stream: Any) -> None:
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
    except (OSError, ValueError, AttributeError):  # the stream has no descriptor
        return


def wrap_text(text: str, *, indent: int = 0, head: int = 0, stream: TextIO | None = None) -> str:
    """Wrap a text to the terminal's width, as :func:`delf.terminal.wrap_text` does."""
    return terminal.wrap_text(text, indent=indent, head=head, stream=stream or real_stdout())
