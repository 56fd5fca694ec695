"""Streamed or whole answers, and errors for the unexpected form."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from delf_model_providers.failures import UnreadableError

wants_stream: Final[ContextVar[bool | None]] = ContextVar("wants_stream", default=None)
"""The context variable that is True in a streaming request, False in another request, and None
outside of requests."""


class StreamedError(UnreadableError):
    """The server streamed an answer although no stream was requested."""


class NotStreamedError(UnreadableError):
    """The server did not stream an answer although a stream was requested."""
