"""Limits of a server's messages, because the server is untrusted."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2

from delf_mcp.repair import needs_repair, repaired

MAX_MESSAGE: Final = 32_000_000
"""The maximum number of bytes of one message."""
MAX_RUBBISH: Final = 1000
"""The maximum number of consecutive lines that are not messages."""
MAX_PAGES: Final = 1000
"""The maximum number of pages of one list."""
MAX_ITEMS: Final = 10_000
"""The maximum number of resources of one list."""
MAX_LIST: Final = 16_000_000
"""The maximum number of characters of one list."""
MAX_TEXT: Final = 4000
"""Characters of an error."""
_BLANK: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""Matches the empty line that ends a server-sent event."""
_LONGEST_END: Final = 4
_PLAIN: Final = frozenset({"", "identity"})


class TooLargeError(httpx2.StreamError):
    """A response exceeds the limit and is not read further."""


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of an answer as UTF-8, up to a limit; invalid bytes are replaced.

    Each message is checked before it is passed on.

    Args:
        stream: The body.
        most: The maximum number of bytes.
        refused: The reason to refuse the body, if any.
        whole: Whether the body is a single message instead of an event stream.
    """

    def __init__(self, stream: Any, most: float, refused: str | None, *, whole: bool) -> None:
        self._stream = stream
        self._max_bytes = most
        self._refused = refused
        self._is_single_message = whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._is_single_message:
            body = b"".join([piece async for piece in self._pieces()])
            yield await _repair(body)
            return
        buffer = bytearray()
        async for piece in self._pieces():
            searched = max(0, len(buffer) - _LONGEST_END)
            buffer += piece
            while blank := _BLANK.search(buffer, searched):
                yield await _repair_event(bytes(buffer[: blank.end()]))
                del buffer[: blank.end()]
                searched = 0
            if len(buffer) > MAX_MESSAGE:
                raise TooLargeError(f"an event has more than {MAX_MESSAGE:,} bytes")
        yield bytes(buffer)

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._refused is not None:
            raise TooLargeError(self._refused)
        size = 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for piece in self._stream:
            size += len(piece)
            if size > self._max_bytes:
                raise TooLargeError(f"the answer has more than {self._max_bytes:,} bytes")
            yield decoder.decode(piece).encode()
        yield decoder.decode(b"", final=True).encode()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _repair(body: bytes) -> bytes:
    text = body.decode()
    if not needs_repair(text):
        return body
    try:
        return (await asyncio.to_thread(repaired, text)).encode()
    except (ValueError, RecursionError):
        return body  # the reader reports the fault


async def _repair_event(event: bytes) -> bytes:
    lines = event.splitlines()
    data = [line for line in lines if line.startswith(b"data:")]
    body = b"\n".join(line[5:].removeprefix(b" ") for line in data)
    mended = await _repair(body)
    if mended == body:
        return event
    others = [line for line in lines if line and line not in data]
    return b"\n".join([*others, b"data: " + mended, b"", b""])


async def bounded(response: httpx2.Response) -> None:
    """Limit the size of a response; refuse compressed ones, which were not requested."""
    encoding = response.headers.pop("content-encoding", "").strip().lower()
    refused = None if encoding in _PLAIN else f"the answer is compressed ({encoding[:20]!r})"
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    most = float("inf") if is_stream else MAX_MESSAGE  # streams have a limit per event
    response.stream = _LimitedStream(response.stream, most, refused, whole=not is_stream)
