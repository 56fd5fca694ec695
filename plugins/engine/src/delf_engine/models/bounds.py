"""Upper limits of an answer in size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, TypeAlias

from delf.errors import LLMExecutionError
from delf.llm import DEFAULT_TIMEOUT, MOST_LETTERS, LLMConfig
from delf.messages import ModelDelta, ModelReply

Pieces: TypeAlias = AsyncGenerator[ModelDelta | ModelReply]
_LETTERS_OF_A_PIECE: Final = 16
"""So that pieces without any have an end, too."""


class EndlessAnswerError(LLMExecutionError):
    """An answer that is longer, or takes longer, than any may."""


async def bounded(pieces: Pieces, config: LLMConfig) -> Pieces:
    """Return a stream with an end, whatever its plugin and its server do.

    Args:
        pieces: The stream.
        config: The model, whose ``timeout`` counts from the first piece.

    Raises:
        LLMExecutionError: When it is longer, or takes longer, than any answer may.
    """
    seconds = float(config.settings.get("timeout") or DEFAULT_TIMEOUT)
    clock = asyncio.get_running_loop().time
    letters, deadline = 0, None
    async with aclosing(pieces):
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if deadline is None or clock() < deadline:
                    raise
                raise EndlessAnswerError(
                    f"the answer of {config.model} has no end after {seconds:g} s",
                    hint='settings={"timeout": …} gives it more',
                ) from None
            deadline = deadline or clock() + seconds
            if isinstance(piece, ModelDelta):
                letters += len(piece.text) + _LETTERS_OF_A_PIECE
                check_length(letters, config)
            yield piece


def check_length(letters: int, config: LLMConfig) -> None:
    """Refuse an answer that is longer than any may be.

    Raises:
        EndlessAnswerError: When it is.
    """
    if letters > MOST_LETTERS:
        raise EndlessAnswerError(
            f"the answer of {config.model} is longer than {MOST_LETTERS:,} letters",
            hint="no model writes so much; check its server",
        )
