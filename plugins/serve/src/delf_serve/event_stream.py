"""A response of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response

from delf_serve.call import Call
from delf_serve.sessions import do_nothing


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
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        request_task = asyncio.current_task()
        assert request_task is not None  # noqa: S101 - a coroutine runs in a task
        call = self._call
        sessions = self._call.service.sessions
        with sessions.count_open_request(call.caller, call.cookie) as open_request:
            await send(start)
            # True if end() cancelled this task, and not the server.
            was_ended = False

            def end() -> None:
                """End the stream, although it has further frames, by cancelling this task."""
                nonlocal was_ended
                was_ended = True
                request_task.cancel()

            def end_if_disconnected(disconnection: asyncio.Future[None]) -> None:
                if not disconnection.cancelled():
                    end()

            disconnection = asyncio.ensure_future(_until_gone(receive))
            disconnection.add_done_callback(end_if_disconnected)
            # The sessions call end() when the caller's session or key is no longer valid.
            open_request.end = end
            try:
                async for chunk in self._frames:
                    body = {"type": "http.response.body", "body": chunk, "more_body": True}
                    await send(body)
            except asyncio.CancelledError:
                if not was_ended:
                    raise
            finally:
                # From now on, the end of the session must not cancel this task any more.
                open_request.end = do_nothing
                disconnection.cancel()
                await self._frames.aclose()
            await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
