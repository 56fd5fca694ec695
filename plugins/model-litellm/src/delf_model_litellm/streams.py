"""Streamed or whole answers, and errors for the unexpected form."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from delf_model_providers.failures import UnreadableError

wants_stream: Final[ContextVar[bool | None]] = ContextVar("wants_stream", default=None)
"""True for a request that asks for a stream, False for any other; None outside of requests."""


class StreamedError(UnreadableError):
    """An unrequested stream."""


class WholeError(UnreadableError):
    """A stream was asked for, and an answer came as a whole."""
