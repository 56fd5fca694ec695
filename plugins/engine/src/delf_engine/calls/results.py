"""Conversion of tool results for scripts: encoded, limited and redacted."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from delf.values.conversion import plain
from delf.values.encoding import PLAIN, UnsupportedValueError, dumps, loads
from delf.values.frozen import freeze
from delf.values.sizes import is_large, run_in_thread
from delf_engine.redact import Redactor

_SMALL: Final = frozenset({type(None), bool, int, float})


class ResultTooLargeError(UnsupportedValueError):
    """A result exceeds the limit in bytes."""


class Results:
    """Converts the results of tools for scripts.

    Args:
        redactor: Redacts results.
        max_bytes: The largest result, encoded.
    """

    def __init__(self, redactor: Redactor, max_bytes: int) -> None:
        self._redactor = redactor
        self._max_bytes = max_bytes

    async def take(self, result: Any) -> tuple[Any, bytes, str | None]:
        """Return a redacted result, its encoding, and a note about parts converted to text.

        The result is a frozen copy, because the tool may change its object later. A large result is
        encoded in a thread, and a cancellation waits for that thread. Parts that cannot be encoded
        become text, because a failure now would make the script repeat a call that has already
        taken effect.

        Raises:
            UnsupportedValueError: If the result is too large or cannot be encoded at all.
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
            return await run_in_thread(self._cleaned, result)
        return self._cleaned(result)

    def _cleaned(self, result: Any) -> tuple[Any, bytes]:
        encoded = self.encode(result)
        if self._redactor.knows_any and self._redactor.is_in(encoded):
            decoded = _read(encoded)
            clean = self._redactor.value(decoded)
            if clean is not decoded:
                return freeze(clean), self.encode(clean)
        # Frozen from the encoding, so that it equals the result of the script.
        return result if type(result) in PLAIN else freeze(_read(encoded)), encoded

    def encode(self, result: Any) -> bytes:
        """Encode a result without conversion.

        Raises:
            UnsupportedValueError: If the result cannot be encoded or is too large.
        """
        encoded = dumps(result, named=True)
        if len(encoded) > self._max_bytes:
            raise ResultTooLargeError(
                f"the result is too large: {len(encoded):,} bytes, and at most "
                f"{self._max_bytes:,} can be passed; ask for less"
            )
        return encoded


def _read(encoded: bytes) -> Any:
    """Decode a result into plain data, keeping every type that the wire supports."""
    try:
        return loads(encoded)
    except ValueError as error:  # such as a path of 11,000 characters
        raise UnsupportedValueError(f"the result cannot be passed: {error}") from None
