"""A script's printed output and output files."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Collection, Generator, Mapping
from pathlib import Path
from time import monotonic  # the real clock; scripts get a patched one
from typing import Any

from delf.machine.filenames import check_file_name
from delf_sandbox.guest.channel import WireLock
from delf_sandbox.guest.content import ContentTooLargeError, make_content
from delf_sandbox.guest.scratch import Scratch

_FLUSH_CHARS = 32 * 1024
_PIECE_CHARS = 64 * 1024
"""The maximum number of characters in one frame, so that other work of the host is not delayed."""

_FLUSH_SECONDS = 0.05
_CHUNK = 1024 * 1024
MAX_FILES = 1000


class LimitReachedError(BaseException):
    """Ends a script that exceeded a limit; not caught by ``except Exception``."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.message = message


class Printer(io.TextIOBase):
    """Standard output of scripts: buffers text and sends it in pieces.

    Buffered text is sent before the script's next frame. A script that sleeps or computes sends no
    frames, so an alarm signal flushes the buffer.

    Args:
        send: Sends a piece, immediately if requested.
        lock: Held while sending, so that pieces of different threads do not mix.
    """

    def __init__(self, send: Callable[[str, bool], None], lock: WireLock) -> None:
        super().__init__()
        self._lock = lock
        self.limit = 10 * 1024 * 1024
        self._send = send
        self._parts: list[str] = []
        self._waiting = 0
        self._total = 0
        self._sent_at = 0.0
        self._is_over = False
        self._has_alarm = self._waits_for_alarm = False

    def use_alarm(self) -> None:
        """Flush buffered text by an alarm signal while the script sleeps or computes.

        Call this in the main thread, once the process is the session's own.
        """
        signal.signal(signal.SIGALRM, self._take_alarm)
        self._has_alarm = True

    def start(self) -> None:
        """Reset the output count for a new script."""
        self._total = 0
        self._sent_at = monotonic()
        self._is_over = self._waits_for_alarm = False

    def end(self) -> None:
        """Send the remaining text, and discard output of leftover threads from now on."""
        # First: a thread that prints now must not add to the text that is being sent.
        self._is_over = True
        self.pass_on()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        """Buffer text, and flush if much has gathered or the last flush is long ago."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"write() takes text, not {type(text).__name__}")
        size = len(text)
        if self._is_over:
            return size
        if self._total + size > self.limit:
            self.pass_on()
            raise LimitReachedError(
                "output", f"the script printed more than {self.limit:,} characters"
            )
        self._parts.append(text)
        self._total += size
        self._waiting += size
        if self._waiting >= _FLUSH_CHARS or monotonic() - self._sent_at > _FLUSH_SECONDS:
            self._pass_on(at_once=True)
        elif self._has_alarm and not self._waits_for_alarm:
            self._set_alarm()
        return size

    def flush(self) -> None:
        """Flush at a limited rate, because scripts may flush after every line."""
        if monotonic() - self._sent_at > _FLUSH_SECONDS:
            self._pass_on(at_once=True)

    def pass_on(self) -> None:
        """Send buffered text before the next frame."""
        self._pass_on(at_once=False)

    def _set_alarm(self) -> None:
        """Set the alarm unless the script uses it, because a process has only one."""
        if signal.getsignal(signal.SIGALRM) == self._take_alarm:
            self._waits_for_alarm = True
            signal.setitimer(signal.ITIMER_REAL, _FLUSH_SECONDS)

    def _take_alarm(self, *_: object) -> None:
        """Flush buffered text on an alarm, unless another send is in progress."""
        self._waits_for_alarm = False
        if not self._parts:
            return
        if not self._lock.take_if_free():
            self._set_alarm()  # again later: waiting here would deadlock with the interrupted send
            return
        try:
            self._pass_on(at_once=True)
        finally:
            self._lock.__exit__()

    def _pass_on(self, *, at_once: bool) -> None:
        if not self._parts:
            return
        with self._lock:
            count = len(self._parts)  # other threads may add parts meanwhile
            text = "".join(self._parts[:count])
            del self._parts[:count]
            self._waiting = 0
            self._sent_at = monotonic()
            for start in range(0, len(text), _PIECE_CHARS):
                self._send(text[start : start + _PIECE_CHARS], at_once)


NOT_GIVEN: Any = object()


class FileLimits:
    """The limits on the output files of a session, which the guest and the host each count.

    Args:
        limits: The limits of the session by name.
    """

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.file_bytes = int(limits["file_bytes"])
        self._total_bytes = int(limits["total_file_bytes"])
        self._bytes = self._files = 0

    def excess(self, name: str, size: int, added: int, *, complete: bool) -> str | None:
        """Count a piece of a file, and return the limit that the files exceed, in words.

        Args:
            name: The file's name.
            size: The bytes of the file so far, with this piece.
            added: The bytes of this piece.
            complete: Whether this piece is the last one.
        """
        self._bytes += added
        self._files += complete
        if size > self.file_bytes:
            return f"{name[:80]!r} has {size:,} bytes; at most {self.file_bytes:,} are allowed"
        if self._bytes > self._total_bytes:
            return f"the output files together pass {self._total_bytes:,} bytes"
        if self._files > MAX_FILES:
            return f"a task can have {MAX_FILES:,} files"
        return None


class FileSender:
    """``add_to_output_files`` as scripts see it.

    Args:
        send: Sends a chunk: ``file`` or ``rows``, name, last flag, bytes.
    """

    limits: FileLimits
    """The limits of the session; to be set before a script runs."""

    def __init__(self, send: Callable[[str, str, bool, bytes], None]) -> None:
        self.row_files: Collection[str] = ()
        self.scratch: Scratch | None = None
        """The folder in which scripts write files of their own."""
        self._send = send

    def __call__(self, name: Any, content: Any = NOT_GIVEN) -> Nothing:
        """Send a file to the host; awaiting the result is optional.

        Without content, sends a file that the script has written.
        """
        scratch = self.scratch
        path = None if scratch is None else _written_path(scratch, name, content)
        if scratch is not None and path is not None:
            is_named = content is not NOT_GIVEN and content != name
            return self._hand_over(name if is_named else path, scratch.read(path))
        if content is NOT_GIVEN:
            raise TypeError(
                f"add_to_output_files(name, content): there is no file {str(name)[:200]!r}, and "
                "no content was given"
            )
        if scratch is not None and isinstance(name, str):
            # The script gave the content itself: a file of this name is not sent once more at its
            # end.
            scratch.mark_sent(name)
        return self._hand_over(name, content)

    def hand_over_written(self) -> None:
        """Send the files that the script wrote but did not hand over."""
        if self.scratch is not None:
            # A list, because each file that is sent changes what is new.
            for name in list(self.scratch.new()):
                self._hand_over(name, self.scratch.read(name))

    def _hand_over(self, name: Any, content: Any) -> Nothing:
        """Check a file against the limits, and send it in chunks."""
        limit = self.limits.file_bytes
        try:
            content_to_send = make_content(check_file_name(name), content, self.row_files, limit)
        except ContentTooLargeError:
            message = f"{name!r} has more than {limit:,} bytes, which is the most that is allowed"
            raise LimitReachedError("file", message) from None
        name += content_to_send.ending
        data, kind = content_to_send.data, "rows" if content_to_send.is_rows else "file"
        if (excess := self.limits.excess(name, len(data), len(data), complete=True)) is not None:
            raise LimitReachedError("file", excess)
        # At least one chunk, so that an empty file arrives, too.
        for start in range(0, max(len(data), 1), _CHUNK):
            chunk = data[start : start + _CHUNK]
            self._send(kind, name, start + _CHUNK >= len(data), chunk)
        return Nothing()


def _written_path(scratch: Scratch, name: Any, content: Any) -> str | None:
    """Return the path of the written file that a call refers to, if any."""
    if content is NOT_GIVEN or (isinstance(content, str) and content == name):
        return scratch.find(name)
    if isinstance(content, Path):
        return scratch.find(content)
    if isinstance(content, str) or not hasattr(content, "read") or hasattr(content, "getvalue"):
        return None
    path = scratch.find(content)
    if path is not None and not content.closed:
        content.flush()
    return path


class Nothing:
    """An awaitable that completes at once."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield

    def __repr__(self) -> str:
        return "None"
