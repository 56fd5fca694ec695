"""Streamed or whole answers, and errors for the unexpected form."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from delf_model_providers.failures import UnreadableError

wants_stream: Final[ContextVar[bool | None]] = ContextVar("wants_stream", default=None)
"""A context variable: True in a streaming request, False in others, None outside."""


class StreamedError(UnreadableError):
    """A stream that was not requested."""


class WholeError(UnreadableError):
    """A whole answer to a request for a stream."""
