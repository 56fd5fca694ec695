"""Bodies within limits, with detection of a truncated end.

Imported late, because it needs httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import httpx

from delf.network.bodies import BodyError, Inflater
from delf_model_litellm.streams import StreamedError, WholeError, wants_stream
from delf_model_providers.failures import UnreadableError

_FINE: Final = 200
_END: Final = b"[DONE]"
_MAX: Final = 8_000_000
_MAX_STREAM_SIZE: Final = 32 * _MAX
"""The size limit: events have some hundred bytes for each of a few letters."""
_LAST_BYTES: Final = 0.1
"""Seconds to wait for the end of a body after its last event."""


class Tail(httpx.AsyncByteStream):
    """An inflated body that remembers how it ended.

    Args:
        body: The body as received.
        inflater: Inflates the body, up to a limit.
    """

    def __init__(self, body: httpx.AsyncByteStream, inflater: Inflater) -> None:
        self._body = body
        self._data = aiter(body)
        self._inflater = inflater
        self._last = b""

    @property
    def ended(self) -> bool:
        """True if the server ended the body."""
        return _END in self._last

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._data:
                for piece in self._inflater.feed(data):
                    self._last = (self._last + piece)[-64:]
                    yield piece
        except BodyError as error:
            raise UnreadableError(str(error)) from None

    async def aclose(self) -> None:
        """Close the body, reading its end so that the connection can be reused."""
        if self.ended:
            with suppress(TimeoutError, OSError, httpx.HTTPError):
                async with asyncio.timeout(_LAST_BYTES):
                    async for _ in self._data:
                        pass
        await self._body.aclose()


async def watch(response: httpx.Response) -> None:
    """Keep a response within its limits, and watch its end."""
    body = response.stream
    if isinstance(body, httpx.AsyncByteStream):
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        is_json = response.headers.get("content-type", "").startswith("application/json")
        if is_stream and wants_stream.get() is False:
            raise StreamedError("it is streamed")
        try:
            inflater = Inflater(response.headers, _MAX_STREAM_SIZE if is_stream else _MAX)
        except BodyError as error:
            raise UnreadableError(str(error)) from None
        response.headers.pop("content-encoding", None)  # the body is inflated already
        response.stream = Tail(body, inflater)
        is_answer = is_json and response.status_code == _FINE
        if is_answer and wants_stream.get() and b'"choices"' in await response.aread():
            raise WholeError("it is not streamed")


def ended(stream: Any) -> bool:
    """Return True if the server ended a stream of litellm properly.

    Args:
        stream: litellm's stream, read to its end.
    """
    reasons = ("received_finish_reason", "intermittent_finish_reason")
    if any(getattr(stream, reason, None) is not None for reason in reasons):
        return True
    response = getattr(getattr(stream, "completion_stream", None), "response", None)
    body = getattr(response, "stream", None)
    return isinstance(body, Tail) and body.ended
