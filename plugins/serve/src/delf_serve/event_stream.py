"""A response of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response

from delf_serve.call import Call
from delf_serve.sessions import OpenRequest


class EventStreamResponse(Response):
    """A response that streams server-sent events.

    The stream ends after the last frame, when the client disconnects, or when the API key or the
    session of the request becomes invalid.

    Args:
        call: The request.
        frames: The encoded events.
    """

    media_type = "text/event-stream"

    def __init__(self, call: Call, frames: AsyncGenerator[bytes]) -> None:
        super().__init__(status_code=200)
        self._call = call
        self._frames = frames

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the frames until the stream ends."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        start = {"type": "http.response.start", "status": self.status_code, "headers": headers}
        end = {"type": "http.response.body", "body": b""}
        if scope["method"] == "HEAD":
            await send(start)
            await send(end)
            return
        call = self._call
        sessions = call.service.sessions
        with sessions.count_open_request(call.caller, call.cookie) as open_request:
            await send(start)
            await self._send_until_ended(receive, send, open_request)
            await send(end)

    async def _send_until_ended(self, receive: Any, send: Any, open_request: OpenRequest) -> None:
        """Send the frames until the last one, or until the client disconnects or loses access.

        :class:`Sessions` ends ``open_request`` when the caller's session or key becomes invalid.
        """
        sending = asyncio.ensure_future(self._send_frames(send))
        disconnection = asyncio.ensure_future(_until_gone(receive))
        open_request.end = sending.cancel
        try:
            await asyncio.wait({sending, disconnection}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            disconnection.cancel()
            # The frames can be closed only once nothing reads them any more.
            await asyncio.gather(sending, return_exceptions=True)
            await self._frames.aclose()
        if not sending.cancelled():
            sending.result()  # raises the error of a frame

    async def _send_frames(self, send: Any) -> None:
        async for chunk in self._frames:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
