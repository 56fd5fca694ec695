"""Whether an answer is asked for in pieces, and what it is when it comes so all the same."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from delf_model_providers.failures import UnreadableError

wants_stream: Final[ContextVar[bool | None]] = ContextVar("wants_stream", default=None)
"""Whether the request that is under way asks for a stream; None for one that is no question."""


class StreamedError(UnreadableError):
    """A stream came that nobody asked for."""


class WholeError(UnreadableError):
    """A stream was asked for, and an answer came as a whole."""
