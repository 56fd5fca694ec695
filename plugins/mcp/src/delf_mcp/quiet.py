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
_is_delf_call: ContextVar[bool] = ContextVar("delf_mcp_ours", default=False)


@contextmanager
def quietly() -> Generator[None]:
    """Suppress the log messages that the MCP library writes while the block runs.

    The library raises errors for failures anyway.
    """
    for name in _LOGGERS:
        # A logger has a filter only once, however often the filter is added.
        logging.getLogger(name).addFilter(_is_foreign_record)
    token = _is_delf_call.set(True)
    try:
        yield
    finally:
        _is_delf_call.reset(token)


def _is_foreign_record(_record: logging.LogRecord) -> bool:
    """Return True, to keep a log record, unless a block of :func:`quietly` is running."""
    return not _is_delf_call.get()
