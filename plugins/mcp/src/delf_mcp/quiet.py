"""The library's own log messages about our servers: they hold what strangers sent."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_log = logging.getLogger(__name__)

_LOGGERS: Final = (
    "client",
    "mcp.client.auth.oauth2",
    "mcp.client.caching",
    "mcp.client.client",
    "mcp.client.streamable_http",
    "mcp.shared.dispatcher",
    "mcp.shared.jsonrpc_dispatcher",
)
_MOST: Final = 300
_ours: ContextVar[bool] = ContextVar("delf_mcp_ours", default=False)


@contextmanager
def quietly() -> Generator[None]:
    """Keep the library's logs short meanwhile, and for people who look for faults.

    What matters of it is told by errors.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # once, however often it is added
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


class _Ours(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Pass on what is not about our servers."""
        if not _ours.get():
            return True
        if _log.isEnabledFor(logging.DEBUG):
            error = record.exc_info[1] if record.exc_info else None
            text = f"{record.getMessage()[:_MOST]} {str(error or '')[:_MOST]}"
            _log.debug("%s: %s", record.name, text.encode("unicode_escape").decode())
        return False


_FILTER: Final = _Ours()
