"""Results of tools on their way to scripts: encoded, within limits, and without secrets."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from delf.values.conversion import plain
from delf.values.encoding import PLAIN, UnsupportedValueError, dumps, loads
from delf.values.frozen import frozen
from delf.values.sizes import apart, is_large
from delf_engine.redact import Redactor

_SMALL: Final = frozenset({type(None), bool, int, float})


class ResultTooLargeError(UnsupportedValueError):
    """A result has more bytes than may be passed."""


class Results:
    """Converts the results of tools for scripts.

    Args:
        redactor: Takes secrets out.
        max_bytes: The largest result, encoded.
    """

    def __init__(self, redactor: Redactor, max_bytes: int) -> None:
        self._redactor = redactor
        self._max_bytes = max_bytes

    async def take(self, result: Any) -> tuple[Any, bytes, str | None]:
        """Return a redacted result, its encoding, and a note on parts passed as text.

        The result is a frozen copy, because the tool may change its own later. A large result is
        encoded in a thread; a cancellation waits for that. Unencodable parts are passed as text:
        the tool has done its work, and must not do it again.

        Raises:
            UnsupportedValueError: When it is too large, or cannot be passed at all.
        """
        try:
            return *await self._take(result), None
        except ResultTooLargeError:
            raise
        except UnsupportedValueError:
            notes: dict[str, None] = {}
            data = await asyncio.to_thread(plain, result, notes)
            note = f"passed as text: {', '.join(notes)}" if notes else None
            return *await self._take(data), note

    async def _take(self, result: Any) -> tuple[Any, bytes]:
        if type(result) not in _SMALL and is_large(result):
            return await apart(self._cleaned, result)
        return self._cleaned(result)

    def _cleaned(self, result: Any) -> tuple[Any, bytes]:
        encoded = self.encode(result)
        if self._redactor.knows_any and self._redactor.is_in(encoded):
            read = _read(encoded)
            clean = self._redactor.value(read)
            if clean is not read:
                return frozen(clean), self.encode(clean)
        # Of the same moment as what the script gets.
        return result if type(result) in PLAIN else frozen(_read(encoded)), encoded

    def encode(self, result: Any) -> bytes:
        """Encode a result without a conversion.

        Raises:
            UnsupportedValueError: When it cannot be passed, or is too large.
        """
        encoded = dumps(result, named=True)
        if len(encoded) > self._max_bytes:
            raise ResultTooLargeError(
                f"the result is too large: {len(encoded):,} bytes, and at most "
                f"{self._max_bytes:,} can be passed; ask for less"
            )
        return encoded


def _read(encoded: bytes) -> Any:
    """Return every type that crosses, as plain data."""
    try:
        return loads(encoded)
    except ValueError as error:  # a path of 11,000 letters
        raise UnsupportedValueError(f"the result cannot be passed: {error}") from None
