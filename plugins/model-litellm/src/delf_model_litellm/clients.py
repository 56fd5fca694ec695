"""HTTP connections, kept between calls: one pool for each event loop."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, Final
from weakref import WeakKeyDictionary

from delf_model_litellm.endpoint import Endpoint

OWN: Final = frozenset({"openai", "anthropic", "gemini"})
"""Providers whose connections are made here and not by litellm."""


class Clients:
    """The connections of one model. Redirects are not followed: headers would go along.

    Args:
        endpoint: Where they lead.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, Any]] = (
            WeakKeyDictionary()
        )

    def get(self) -> Any | None:
        """What litellm takes as ``client``, or None where it keeps its own connections."""
        if self._endpoint.prefix not in OWN:
            return None
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            handler: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler")
            tail: Any = importlib.import_module("delf_model_litellm.tail")
            hooks = {"response": [tail.watch]}
            pool = handler.AsyncHTTPHandler(follow_redirects=False, event_hooks=hooks)
            self._pools[loop] = (pool, self._client(pool))
        return self._pools[loop][1]

    def _client(self, pool: Any) -> Any:
        if self._endpoint.prefix != "openai":
            return pool
        openai: Any = importlib.import_module("openai")
        return openai.AsyncOpenAI(
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            max_retries=0,
            http_client=pool.client,
        )

    async def aclose(self) -> None:
        """Close this loop's connections. Safe to call twice."""
        pool, _client = self._pools.pop(asyncio.get_running_loop(), (None, None))
        if pool is not None:
            await pool.close()
