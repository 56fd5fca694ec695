"""A parser of server-sent events from arbitrarily split bytes."""

from __future__ import annotations

from typing import Final

from delf_model_providers.failures import UnreadableError

MAX_BYTES: Final = 8_000_000
"""The maximum number of bytes of an event, which is more than any answer needs."""

MAX_STREAM: Final = 32 * MAX_BYTES
"""The maximum number of bytes of a stream.

A stream is longer than its answer, because each few characters are an event of some hundred bytes.
"""

_BOM: Final = b"\xef\xbb\xbf"


class EventReader:
    """Parses the bytes of a stream into the data of server-sent events."""

    def __init__(self) -> None:
        self._partial_line = b""  # the start of a line that is incomplete so far
        self._data_lines: list[bytes] = []  # of the current event
        self._event_bytes = 0  # the size of these lines
        self._has_started = False  # whether the first bytes were checked for a byte order mark

    def feed(self, data: bytes) -> list[str]:
        """Parse the next bytes; return the data of each event that is now complete.

        Args:
            data: The next bytes.

        Raises:
            UnreadableError: If the bytes are not UTF-8, or an event is too long.
        """
        unparsed = self._partial_line + data
        if not self._has_started:
            may_begin_with_bom = len(unparsed) < len(_BOM) and _BOM.startswith(unparsed)
            if may_begin_with_bom:
                self._partial_line = unparsed
                return []
            unparsed = unparsed.removeprefix(_BOM)
            self._has_started = True
        lines = unparsed.splitlines(keepends=True)
        # A last line that ends in "\r" is kept, too: its "\n" may be the next byte.
        has_partial_line = bool(lines) and not lines[-1].endswith(b"\n")
        self._partial_line = lines.pop() if has_partial_line else b""
        if len(self._partial_line) + self._event_bytes > MAX_BYTES:
            raise UnreadableError(f"an event of more than {MAX_BYTES // 1_000_000} MB")
        events = map(self._line, lines)
        return [event for event in events if event is not None]

    def end(self) -> list[str]:
        """End the stream; return the data of the last event, if :meth:`feed` has not returned it.

        After a carriage return, :meth:`feed` waits for the next byte, because a newline may follow
        as the second half of the line end. At the end of the stream, the carriage return alone ends
        the line. A line without a line end is incomplete, and ignored.
        """
        waits_for_newline = self._partial_line.endswith(b"\r")
        return self.feed(b"\n") if waits_for_newline else []

    def _line(self, line: bytes) -> str | None:
        """Parse a line; return the data of the event that the line completes, if any."""
        line = line.rstrip(b"\r\n")
        if not line:  # an empty line ends an event
            return self._event_data() if self._data_lines else None
        if line.startswith(b"{"):  # an error as bare JSON
            self._data_lines.append(line)
            self._event_bytes += len(line)
            return self._event_data()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data_lines.append(value.removeprefix(b" "))
            self._event_bytes += len(line)
        return None

    def _event_data(self) -> str:
        data = b"\n".join(self._data_lines)
        self._data_lines, self._event_bytes = [], 0
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadableError("it is not UTF-8") from None
