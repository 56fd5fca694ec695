"""A script's printed output and output files."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from time import monotonic  # the real clock; scripts get a patched one
from typing import Any

from delf.machine.filenames import check_file_name
from delf_sandbox.guest.channel import WireLock
from delf_sandbox.guest.content import ContentTooLargeError, make_content
from delf_sandbox.guest.limits import FileLimits, LimitReachedError, PrintLimits
from delf_sandbox.guest.scratch import Scratch

_MAX_BUFFERED_CHARS = 32 * 1024
# The maximum number of characters in a frame of printed text.
#
# Longer frames would delay the host's other work.
_PIECE_CHARS = 64 * 1024

_MAX_BUFFER_SECONDS = 0.05
_CHUNK_BYTES = 1024 * 1024


class Printer(io.TextIOBase):
    """The standard output of scripts, which buffers text and sends it to the host in pieces.

    Buffered text is sent before the script's next frame. A script that sleeps or computes sends no
    frames, so an alarm signal flushes the buffer meanwhile.

    Args:
        send: Sends a piece of text; the flag says whether to send at once.
        lock: The lock held while sending, so that pieces of different threads do not mix.
    """

    limits: PrintLimits
    """The limits on printed text, which must be set before a script runs."""

    def __init__(self, send: Callable[[str, bool], None], lock: WireLock) -> None:
        super().__init__()
        self._lock = lock
        self._send = send
        self._parts: list[str] = []
        self._buffered_chars = 0
        self._sent_at = 0.0  # when text was sent last, on the monotonic clock
        self._is_script_running = False  # between scripts, text is ignored
        # True in a process in which SIGALRM may flush the buffer.
        self._can_use_alarm_signal = False
        # True while a timer runs, at whose end SIGALRM flushes the buffer.
        self._is_alarm_set = False

    def use_alarm(self) -> None:
        """Flush buffered text by an alarm signal while the script sleeps or computes.

        Call this in the main thread of the process that serves the session, not in the template
        process from which that process is forked.
        """
        signal.signal(signal.SIGALRM, self._handle_alarm)
        self._can_use_alarm_signal = True

    def start(self) -> None:
        """Reset the state for a new script."""
        self.limits.begin_script()
        self._sent_at = monotonic()
        self._is_script_running = True
        # Reset this here, too: if an earlier script has replaced the signal handler,
        # _handle_alarm() was not called.
        self._is_alarm_set = False

    def end(self) -> None:
        """Send the remaining text, and ignore text that the script's threads print later."""
        # Set this first: a thread that prints now must not add to the text that is being sent.
        self._is_script_running = False
        self.queue_buffered_text()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        """Buffer text; flush the buffer if it is large or has not been flushed for a while.

        Otherwise set the alarm, which flushes the buffer soon even if nothing more is printed.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"write() takes text, not {type(text).__name__}")
        size = len(text)
        if not self._is_script_running:
            return size
        message = self.limits.count_text(text)
        if message is not None:
            self.queue_buffered_text()
            raise LimitReachedError("output", message)
        self._parts.append(text)
        self._buffered_chars += size
        is_buffer_full = self._buffered_chars >= _MAX_BUFFERED_CHARS
        if is_buffer_full or monotonic() - self._sent_at > _MAX_BUFFER_SECONDS:
            # Send at once, because the script may compute for long before its next frame.
            self._send_buffered_text(at_once=True)
        elif self._can_use_alarm_signal and not self._is_alarm_set:
            self._set_alarm()
        return size

    def flush(self) -> None:
        """Flush the buffer, unless it was flushed a moment ago; scripts may flush each line."""
        if monotonic() - self._sent_at > _MAX_BUFFER_SECONDS:
            self._send_buffered_text(at_once=True)

    def queue_buffered_text(self) -> None:
        """Queue the buffered text, so that it is sent before the next frame."""
        self._send_buffered_text(at_once=False)

    def _set_alarm(self) -> None:
        """Start the alarm timer, unless the script uses the alarm: a process has only one."""
        if signal.getsignal(signal.SIGALRM) == self._handle_alarm:
            self._is_alarm_set = True
            signal.setitimer(signal.ITIMER_REAL, _MAX_BUFFER_SECONDS)

    def _handle_alarm(self, *_: object) -> None:
        """Flush buffered text when the alarm occurs, unless a send is in progress."""
        self._is_alarm_set = False
        if not self._parts:
            return
        if not self._lock.acquire_if_free():
            # Try again later: waiting here would deadlock with the interrupted send.
            self._set_alarm()
            return
        try:
            self._send_buffered_text(at_once=True)
        finally:
            self._lock.release()

    def _send_buffered_text(self, *, at_once: bool) -> None:
        if not self._parts:
            return
        with self._lock:
            count = len(self._parts)  # other threads may add parts meanwhile
            text = "".join(self._parts[:count])
            del self._parts[:count]
            self._buffered_chars = 0
            self._sent_at = monotonic()
            for start in range(0, len(text), _PIECE_CHARS):
                self._send(text[start : start + _PIECE_CHARS], at_once)


NOT_GIVEN: Any = object()


class FileSender:
    """The function ``add_to_output_files`` of scripts, which sends files to the host.

    Args:
        send: Sends a chunk of a file: the kind (``file`` or ``rows``), the file name, whether the
            chunk is the last one, and the bytes.
    """

    limits: FileLimits
    """The limits on output files, which must be set before a script runs."""

    def __init__(self, send: Callable[[str, str, bool, bytes], None]) -> None:
        self.row_files: Collection[str] = ()
        """The suffixes of the file formats that the host writes from rows, such as ``.xlsx``."""
        self.scratch: Scratch | None = None
        """The folder in which scripts can create files; None if there is none."""
        self._send = send

    def __call__(self, name: Any, content: Any = NOT_GIVEN) -> NoResult:
        """Send a file to the host. The script may await the result.

        Without content, send the file of this name that the script has written.
        """
        scratch = self.scratch
        if scratch is not None:
            path = _find_written_file(scratch, name, content)
            if path is not None:
                # The script names the output file in ``add_to_output_files("a.csv", file)``. In
                # ``add_to_output_files("out/a.csv")`` and in ``add_to_output_files(path, path)``,
                # the argument is the path of the written file, whose name is kept.
                has_own_name = content is not NOT_GIVEN and content != name
                output_name = name if has_own_name else path
                return self._send_file(output_name, scratch.read(path))
        if content is NOT_GIVEN:
            raise TypeError(
                f"add_to_output_files(name, content): there is no file {str(name)[:200]!r}, and "
                "no content was given"
            )
        if scratch is not None and isinstance(name, str):
            # The script may have written a file of this name as well. Without this mark, that file
            # would be sent at the script's end, and replace the content given here.
            scratch.mark_sent(name)
        return self._send_file(name, content)

    def send_written(self) -> None:
        """Send the files that the script wrote and did not pass to ``add_to_output_files``."""
        if self.scratch is not None:
            # Iterate over a list, because reading a file changes the set of unsent files.
            for name in list(self.scratch.unsent()):
                self._send_file(name, self.scratch.read(name))

    def _send_file(self, name: Any, content: Any) -> NoResult:
        """Convert the content of a file, check the limits, and send the file in chunks."""
        limit = self.limits.file_bytes
        name = check_file_name(name)  # in the Unicode form NFC
        try:
            converted = make_content(name, content, self.row_files, limit)
        except ContentTooLargeError:
            message = f"{name!r} has more than {limit:,} bytes, which is the most that is allowed"
            raise LimitReachedError("file", message) from None
        name += converted.added_suffix
        data = converted.data
        kind = "rows" if converted.is_rows else "file"
        # Count the whole file before any of its chunks is sent, so that no part of a file that is
        # too large reaches the host.
        message = self.limits.count_chunk(name, size=len(data), added=len(data), complete=True)
        if message is not None:
            raise LimitReachedError("file", message)
        # Send at least one chunk, so that an empty file arrives, too.
        for start in range(0, max(len(data), 1), _CHUNK_BYTES):
            end = start + _CHUNK_BYTES
            is_last = end >= len(data)
            self._send(kind, name, is_last, data[start:end])
        return NoResult()


def _find_written_file(scratch: Scratch, name: Any, content: Any) -> str | None:
    """Return the path of the written file that a script passes to ``add_to_output_files``.

    None if the script passes other content, such as a list of rows.
    """
    if isinstance(content, str):  # a text to write, unless the script gave the name twice
        return scratch.find(name) if content == name else None
    if content is NOT_GIVEN:
        return scratch.find(name)
    if isinstance(content, Path):
        return scratch.find(content)
    is_in_memory = hasattr(content, "getvalue")  # such as io.StringIO
    # A record of a tool has its items as attributes, such as ``read`` of an email.
    is_record = isinstance(content, dict)
    if is_record or is_in_memory or not hasattr(content, "read"):  # no open file
        return None
    path = scratch.find(content)
    if path is not None and not content.closed:
        content.flush()
    return path


class NoResult:
    """The result of ``add_to_output_files``: an awaitable that returns None without waiting."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        # Never reached; it makes this method a generator, as ``__await__`` has to return an
        # iterator.
        yield

    def __repr__(self) -> str:
        """Return ``None``, which is what a script that prints the result expects."""
        return "None"
