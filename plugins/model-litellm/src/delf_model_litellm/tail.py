"""Whether a stream of events was ended by its server, or just stopped.

Imported late: it needs httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import httpx

_END: Final = b"[DONE]"
_LAST_BYTES: Final = 0.1
"""Seconds to wait for the end of a body whose last event has come."""


class Tail(httpx.AsyncByteStream):
    """A body that remembers how it ended.

    Args:
        body: The body as it comes.
    """

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body
        self._data = aiter(body)
        self._last = b""

    @property
    def ended(self) -> bool:
        """Whether the server said that this was all."""
        return _END in self._last

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._data:
            self._last = (self._last + data)[-64:]
            yield data

    async def aclose(self) -> None:
        """Close the body; at its end, read what ends it, so that the connection can be kept."""
        if self.ended:
            with suppress(TimeoutError, OSError, httpx.HTTPError):
                async with asyncio.timeout(_LAST_BYTES):
                    async for _ in self._data:
                        pass
        await self._body.aclose()


async def watch(response: httpx.Response) -> None:
    """Watch the end of a response, if it is a stream of events."""
    body = response.stream
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream") and isinstance(body, httpx.AsyncByteStream):
        response.stream = Tail(body)


def ended(stream: Any) -> bool:
    """Whether a stream of litellm's was ended by its server.

    Args:
        stream: litellm's stream, read to its end.
    """
    reasons = ("received_finish_reason", "intermittent_finish_reason")
    if any(getattr(stream, reason, None) is not None for reason in reasons):
        return True
    response = getattr(getattr(stream, "completion_stream", None), "response", None)
    body = getattr(response, "stream", None)
    return isinstance(body, Tail) and body.ended
