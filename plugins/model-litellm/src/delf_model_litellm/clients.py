"""HTTP connections, kept between calls: one pool for each event loop."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, Final
from weakref import WeakKeyDictionary

from delf.network.bodies import ACCEPTED
from delf.network.proxies import Proxies, async_transport
from delf.network.tls import default_context
from delf_model_providers.endpoint import Endpoint

# The maximum seconds to wait until litellm has sent the request of a cancelled call.
_MAX_PREPARATION_SECONDS: Final = 1.0

_request_sent: ContextVar[asyncio.Event | None] = ContextVar("_leaving", default=None)


async def _prepare_request(request: Any) -> None:
    """Set ``Accept-Encoding`` to the encodings that delf can inflate.

    Then set the event that tells the caller that the request is being sent.
    """
    request.headers["Accept-Encoding"] = ACCEPTED
    if (event := _request_sent.get()) is not None:
        event.set()


async def cancellable(call: Coroutine[Any, Any, Any]) -> Any:
    """Await a litellm call that can be cancelled at any time.

    A cancelled call continues for some milliseconds, until its request is sent: litellm creates a
    coroutine in a thread, and an earlier cancellation would leave that coroutine unawaited.

    Args:
        call: The call, which has not started.
    """
    request_sent = asyncio.Event()
    context = copy_context()
    context.run(_request_sent.set, request_sent)  # _prepare_request() then sets the event
    task = asyncio.create_task(call, context=context)
    try:
        return await asyncio.shield(task)  # a cancellation of this function leaves the task running
    except asyncio.CancelledError:
        await _wait_until_cancellable(task, request_sent)
        task.cancel()
        await asyncio.wait((task,))
        has_response = not task.cancelled() and task.exception() is None
        if has_response:
            await _close(task.result())
        raise


async def _wait_until_cancellable(task: asyncio.Task[Any], request_sent: asyncio.Event) -> None:
    """Wait at most a second until the asyncio task of a call ends or sends the call's request."""
    waiting = asyncio.create_task(request_sent.wait())
    await asyncio.wait(
        (task, waiting), timeout=_MAX_PREPARATION_SECONDS, return_when="FIRST_COMPLETED"
    )
    waiting.cancel()


async def _close(response: Any) -> None:
    if hasattr(response, "aclose"):
        await response.aclose()


def _make_pool() -> Any:
    """Make an HTTP handler of litellm; delf's calls share the handler's connections."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        default_context()  # raises for unreadable files, unlike litellm
    handler: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    response_body: Any = importlib.import_module("delf_model_litellm.response_body")
    hooks = {"request": [_prepare_request], "response": [response_body.check_response]}
    httpx: Any = importlib.import_module("httpx")
    has_proxy = bool(Proxies())
    proxy_transport = async_transport(httpx, verify=default_context()) if has_proxy else None
    return handler.AsyncHTTPHandler(
        follow_redirects=False, event_hooks=hooks, transport=proxy_transport
    )


class Clients:
    """The HTTP connections of one model, with a client for each event loop.

    Redirects are not followed, because the headers would be sent along.

    Args:
        endpoint: The endpoint.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        # By event loop: litellm's HTTP handler, which owns the connections, and the client that is
        # passed to litellm and uses them.
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, Any]] = (
            WeakKeyDictionary()
        )

    def get(self) -> Any | None:
        """Return the running loop's client for litellm; None if litellm must make its own."""
        if self._endpoint.dialect is None:  # only litellm knows the API's protocol
            return None
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            pool = _make_pool()
            self._pools[loop] = (pool, self._client(pool))
        _pool, client = self._pools[loop]
        return client

    def _client(self, pool: Any) -> Any:
        """Return the client that litellm accepts for the endpoint's dialect.

        Args:
            pool: litellm's own HTTP handler, which litellm accepts for any dialect but ``openai``.
        """
        if self._endpoint.dialect != "openai":
            return pool
        openai: Any = importlib.import_module("openai")
        return openai.AsyncOpenAI(
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            max_retries=0,
            http_client=pool.client,
        )

    async def aclose(self) -> None:
        """Close the running loop's connections. Idempotent."""
        pool, _client = self._pools.pop(asyncio.get_running_loop(), (None, None))
        if pool is not None:
            await pool.close()
