"""Limits of a server's messages, because the server is untrusted."""

from __future__ import annotations

import asyncio
import codecs
import functools
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx2

from delf_mcp.repair import needs_repair, repaired
from delf_mcp.sessions import mark_rejected_session, may_reject_session

MAX_MESSAGE_BYTES: Final = 32_000_000
LARGE_MESSAGE_BYTES: Final = 1_000_000
"""The size from which on a message is parsed in a thread, so that the event loop does not block."""
MAX_INVALID_LINES: Final = 1000
"""The maximum number of consecutive lines that are not messages."""
MAX_PAGES: Final = 1000
"""The maximum number of pages of one list, such as the list of tools."""
MAX_ITEMS: Final = 10_000
"""The maximum number of resources of one list."""
MAX_LIST_CHARACTERS: Final = 16_000_000
MAX_ERROR_CHARACTERS: Final = 4000
# Matches the empty line that ends a server-sent event.
_EVENT_END: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_MAX_EVENT_END_BYTES: Final = 4
_UNCOMPRESSED: Final = frozenset({"", "identity"})


class TooLargeError(httpx2.StreamError):
    """A response exceeds a limit and is not read further."""


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of a response, with a size limit.

    Invalid UTF-8 is replaced, and messages that protocol libraries would reject are repaired.

    Args:
        stream: The body as received.
        max_bytes: The maximum number of bytes of the whole body.
        refusal_message: The reason to refuse the body; None to accept the body.
        is_single_message: Whether the body is a single message instead of an event stream.
        convert: Converts the body of a single message; the body is not converted when omitted.
    """

    def __init__(
        self,
        stream: Any,
        max_bytes: float,
        refusal_message: str | None,
        *,
        is_single_message: bool,
        convert: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._refusal_message = refusal_message
        self._is_single_message = is_single_message
        self._convert = convert

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces, with its messages repaired.

        In an event stream, each event has one message.
        """
        if self._is_single_message:
            body = b"".join([piece async for piece in self._pieces()])
            yield await _repair(body if self._convert is None else self._convert(body))
            return
        buffer = bytearray()
        async for piece in self._pieces():
            # The buffer has no end of an event, but may have the first bytes of an end.
            search_start = max(0, len(buffer) - _MAX_EVENT_END_BYTES)
            buffer += piece
            while event_end := _EVENT_END.search(buffer, search_start):
                yield await _repair_event(bytes(buffer[: event_end.end()]))
                del buffer[: event_end.end()]
                search_start = 0
            if len(buffer) > MAX_MESSAGE_BYTES:
                raise TooLargeError(f"an event has more than {MAX_MESSAGE_BYTES:,} bytes")
        yield bytes(buffer)  # the rest after the last whole event

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces, in which U+FFFD replaces invalid UTF-8.

        Raises:
            TooLargeError: If the body is refused or exceeds the limit.
        """
        if self._refusal_message is not None:
            raise TooLargeError(self._refusal_message)
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
    """Repair a server's message that the client library would refuse.

    For example, the library refuses a message with a lone surrogate. :func:`repaired` lists the
    repairs. A message that is not JSON stays as it is.

    Args:
        body: The JSON of one message, as UTF-8.
    """
    text = body.decode()
    if len(body) > LARGE_MESSAGE_BYTES:
        is_repair_needed = await asyncio.to_thread(needs_repair, text)
    else:
        is_repair_needed = needs_repair(text)
    if not is_repair_needed:
        return body
    try:
        return (await asyncio.to_thread(repaired, text)).encode()
    except (ValueError, RecursionError):
        return body  # the client library reports the fault


async def _repair_event(event: bytes) -> bytes:
    """Repair the message in an event of an event stream.

    In the event, the message may be split into several ``data:`` lines. A repaired message is in
    one line.
    """
    lines = event.splitlines()
    data_lines = [line for line in lines if line.startswith(b"data:")]
    body = b"\n".join(line.removeprefix(b"data:").removeprefix(b" ") for line in data_lines)
    repaired_body = await _repair(body)
    if repaired_body == body:
        return event
    other_lines = [line for line in lines if line and line not in data_lines]
    return b"\n".join([*other_lines, b"data: " + repaired_body, b"", b""])


async def limit_response_size(response: httpx2.Response) -> None:
    """Limit the size of a response's body; a response hook of httpx.

    A compressed response is refused, because delf requests none, and it could expand without limit.
    If a response rejects the session, its body is replaced by an error that :func:`rejection_in`
    recognizes.
    """
    # Without this header, httpx leaves the body as it is.
    encoding = response.headers.pop("content-encoding", "").strip().lower()
    is_compressed = encoding not in _UNCOMPRESSED
    refusal = f"the answer is compressed ({encoding[:20]!r})" if is_compressed else None
    convert: Callable[[bytes], bytes] | None = None
    if may_reject_session(response):
        convert = functools.partial(mark_rejected_session, response)
        # The client library reads no body that is declared as text/html, for example.
        response.headers["content-type"] = "application/json"
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    # An event stream may be endless: _LimitedStream limits the size of each event instead.
    max_bytes = float("inf") if is_stream else MAX_MESSAGE_BYTES
    response.stream = _LimitedStream(
        response.stream, max_bytes, refusal, is_single_message=not is_stream, convert=convert
    )
