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
from delf_model_litellm.streams import NotStreamedError, StreamedError, wants_stream
from delf_model_providers.failures import UnreadableError
from delf_model_providers.http import unreadable_body_error

_OK: Final = 200
_END_MARKER: Final = b"[DONE]"
# The number of last bytes in which the end marker is sought; line breaks may follow the marker.
_TAIL_BYTES: Final = 64
_MAX_BYTES: Final = 8_000_000
# The maximum number of bytes of a stream. It is larger because a stream sends every few characters
# in an event of some hundred bytes.
_MAX_STREAM_BYTES: Final = 32 * _MAX_BYTES
# The maximum seconds to wait for the end of a body after its last event.
_SECONDS_FOR_REST: Final = 0.1


class CheckedBody(httpx.AsyncByteStream):
    """The inflated body of a response, which notes whether the end marker arrived.

    Args:
        body: The received body, possibly compressed.
        inflater: Inflates the body up to a limit.
        is_error: Whether the response has an error status. The body of such a response may be
            damaged or incomplete: its readable start is enough.
    """

    def __init__(self, body: httpx.AsyncByteStream, inflater: Inflater, *, is_error: bool) -> None:
        self._body = body
        self._data = aiter(body)  # kept, so that aclose() can read the rest
        self._inflater = inflater
        self._is_error = is_error
        self._last_bytes = b""  # for has_end_marker

    @property
    def has_end_marker(self) -> bool:
        """True if the end marker ``[DONE]`` has arrived, the last event of a stream."""
        return _END_MARKER in self._last_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the inflated body, and keep its last bytes for :attr:`has_end_marker`.

        Raises:
            UnreadableError: If the body is damaged or incomplete, unless the response is an error.
        """
        try:
            async for data in self._data:
                for piece in self._inflater.feed(data):
                    self._last_bytes = (self._last_bytes + piece)[-_TAIL_BYTES:]
                    yield piece
            # With the end marker, the answer is complete, even if the compressed data is not.
            if not self.has_end_marker:
                self._inflater.finish()  # raises for an incomplete body
        except BodyError as error:
            if not self._is_error:  # an incomplete error text is still useful
                raise unreadable_body_error(error) from None

    async def aclose(self) -> None:
        """Close the body.

        If the end marker has arrived, the few bytes after it are read first, so that the connection
        can be reused.
        """
        if self.has_end_marker:
            with suppress(TimeoutError, OSError, httpx.HTTPError):
                async with asyncio.timeout(_SECONDS_FOR_REST):
                    async for _ in self._data:
                        pass
        await self._body.aclose()


async def check_response(response: httpx.Response) -> None:
    """Limit the size of a response, and check that its answer is streamed if and only if requested.

    Raises:
        StreamedError: If the answer is streamed although no stream was requested.
        NotStreamedError: If the answer is a whole completion although a stream was requested.
        UnreadableError: If the body cannot be inflated.
    """
    body = response.stream
    if not isinstance(body, httpx.AsyncByteStream):
        return  # only for type checkers: the client that calls this hook is asynchronous
    # None outside of delf's requests: then both forms are accepted.
    is_wanted = wants_stream.get()
    content_type = response.headers.get("content-type", "")
    is_stream = content_type.startswith("text/event-stream")
    if is_stream and is_wanted is False:
        raise StreamedError("the response is a stream")
    try:
        inflater = Inflater(response.headers, _MAX_STREAM_BYTES if is_stream else _MAX_BYTES)
    except BodyError as error:
        raise UnreadableError(str(error)) from None
    response.headers.pop("content-encoding", None)  # CheckedBody inflates the body
    is_error = response.status_code != _OK
    response.stream = CheckedBody(body, inflater, is_error=is_error)
    is_json_answer = content_type.startswith("application/json") and not is_error
    if is_json_answer and is_wanted:
        # Read the body, which CheckedBody inflates. Some servers send an error with the status 200:
        # such an error has no "choices".
        is_completion = b'"choices"' in await response.aread()
        if is_completion:
            raise NotStreamedError("the completion is not streamed")


def is_complete(stream: Any) -> bool:
    """Return True if a stream of litellm has a finish reason or ends with the end marker.

    Args:
        stream: The stream, which has been read to its end.
    """
    # litellm notes the finish reason of a provider in either of two attributes.
    reasons = ("received_finish_reason", "intermittent_finish_reason")
    if any(getattr(stream, reason, None) is not None for reason in reasons):
        return True
    response = getattr(getattr(stream, "completion_stream", None), "response", None)
    body = getattr(response, "stream", None)
    return isinstance(body, CheckedBody) and body.has_end_marker
