"""A parser of server-sent events from arbitrarily split bytes."""

from __future__ import annotations

from typing import Final

from delf_model_providers.failures import UnreadableError

MAX_BYTES: Final = 8_000_000
"""The maximum number of bytes of an event, above the length of any answer."""

MAX_STREAM: Final = 32 * MAX_BYTES
"""The maximum number of bytes of a stream, in which an event of a few characters takes some hundred
bytes.
"""

_BOM: Final = b"\xef\xbb\xbf"


class EventReader:
    """Parses bytes into the data of server-sent events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._begun = False

    def feed(self, data: bytes) -> list[str]:
        """Add bytes; return the data of the events that are now complete.

        Args:
            data: The next bytes.

        Raises:
            UnreadableError: If the bytes are not UTF-8, or an event is too long.
        """
        text = self._rest + data
        if not self._begun:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            text, self._begun = text.removeprefix(_BOM), True
        lines = text.splitlines(keepends=True)
        # A line is whole with its end; after a carriage return, a newline may still come.
        unfinished = bool(lines) and not lines[-1].endswith(b"\n")
        self._rest = lines.pop() if unfinished else b""
        if len(self._rest) + self._size > MAX_BYTES:
            raise UnreadableError(f"an event of more than {MAX_BYTES // 1_000_000} MB")
        return [event for line in lines if (event := self._line(line)) is not None]

    def end(self) -> list[str]:
        """Return the last event if only its final line end was missing."""
        return self.feed(b"\n") if self._rest.endswith(b"\r") else []

    def _line(self, line: bytes) -> str | None:
        line = line.rstrip(b"\r\n")
        if line:
            if line.startswith(b"{"):  # an error as bare JSON
                self._data.append(line)
                self._size += len(line)
                return self._event_data()
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._size += len(line)
            return None
        return self._event_data() if self._data else None

    def _event_data(self) -> str:
        data = b"\n".join(self._data)
        self._data, self._size = [], 0
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadableError("it is not UTF-8") from None
