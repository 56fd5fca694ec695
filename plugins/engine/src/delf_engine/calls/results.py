"""Conversion of tool results for scripts: encoded, limited and redacted."""

from __future__ import annotations

from typing import Any

from delf.values.conversion import plain
from delf.values.encoding import UnsupportedValueError, dumps, loads
from delf.values.frozen import freeze
from delf.values.sizes import is_large, run_in_thread
from delf_engine.redact import Redactor


class ResultTooLargeError(UnsupportedValueError):
    """The encoded result of a tool is larger than the limit."""


class Results:
    """Redacts and encodes the results of tools for scripts.

    Args:
        redactor: Redacts secrets in results.
        max_bytes: The maximum size of an encoded result in bytes.
    """

    def __init__(self, redactor: Redactor, max_bytes: int) -> None:
        self._redactor = redactor
        self._max_bytes = max_bytes

    async def take(self, result: Any) -> tuple[Any, bytes, str | None]:
        """Redact and encode a result.

        The tool may change its object later, so a frozen copy is returned. A large result is
        encoded in a thread, and a cancellation waits for that thread. Parts that cannot be encoded
        become text: an error would make the script repeat a call that has already taken effect.

        Returns:
            The redacted copy, its encoding, and a note that names parts converted to text, if any.

        Raises:
            UnsupportedValueError: If the result is too large, or cannot even be converted to text.
        """
        try:
            redacted, encoded = await self._redact_and_encode(result)
            return redacted, encoded, None
        except ResultTooLargeError:
            raise
        except UnsupportedValueError:
            converted_parts: dict[str, None] = {}  # filled by plain()
            data = await run_in_thread(plain, result, converted_parts)
        redacted, encoded = await self._redact_and_encode(data)
        note = f"passed as text: {', '.join(converted_parts)}" if converted_parts else None
        return redacted, encoded, note

    async def _redact_and_encode(self, result: Any) -> tuple[Any, bytes]:
        if is_large(result):
            return await run_in_thread(self._redacted, result)
        return self._redacted(result)

    def _redacted(self, result: Any) -> tuple[Any, bytes]:
        """Return a frozen copy of a result without secrets, and the encoding of the copy."""
        encoded = self.encode(result)
        value = _decode(encoded)  # exactly the value that the script gets
        # Most results hold no secret, and a search in the encoded text is the fastest way to know.
        if self._redactor.may_be_in(encoded):
            redacted = self._redactor.redact_value(value)
            if redacted is not value:
                return freeze(redacted), self.encode(redacted)
        return freeze(value), encoded

    def encode(self, result: Any) -> bytes:
        """Encode a result without redaction and without conversion of unsupported parts.

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


def _decode(encoded: bytes) -> Any:
    """Decode an encoded result to plain data.

    Raises:
        UnsupportedValueError: If a value is too large for its type, such as a very long path.
    """
    try:
        return loads(encoded)
    except ValueError as error:  # such as a path of 11,000 characters
        raise UnsupportedValueError(f"the result cannot be passed: {error}") from None
