"""Suppression of the library's log messages, which hold untrusted content."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LOGGERS: Final = (
    "client",
    "mcp.client.auth.oauth2",
    "mcp.client.caching",
    "mcp.client.client",
    "mcp.client.streamable_http",
    "mcp.shared.dispatcher",
    "mcp.shared.jsonrpc_dispatcher",
)
_ours: ContextVar[bool] = ContextVar("delf_mcp_ours", default=False)


@contextmanager
def quietly() -> Generator[None]:
    """Suppress the library's logs in a block; errors report what matters."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_not_ours)  # once, however often it is added
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


def _not_ours(_record: logging.LogRecord) -> bool:
    return not _ours.get()
