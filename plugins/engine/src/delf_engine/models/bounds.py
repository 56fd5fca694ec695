"""Upper limits of an answer in size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, TypeAlias

from delf.errors import LLMExecutionError
from delf.llm import DEFAULT_TIMEOUT, MAX_ANSWER_CHARACTERS, LLMConfig
from delf.messages import ModelDelta, ModelReply

Pieces: TypeAlias = AsyncGenerator[ModelDelta | ModelReply]
# The characters counted for each piece in addition, so that empty pieces reach the limit too.
_MIN_LENGTH_PER_PIECE: Final = 16


class EndlessAnswerError(LLMExecutionError):
    """A model's answer exceeds the limit in length or time."""


async def bounded(pieces: Pieces, config: LLMConfig) -> Pieces:
    """Limit a model's streamed answer in length and time, in case its server does not.

    Args:
        pieces: The stream.
        config: The model, whose ``timeout`` is counted from the first piece.

    Raises:
        EndlessAnswerError: If a limit is exceeded.
    """
    seconds = float(config.settings.get("timeout") or DEFAULT_TIMEOUT)
    clock = asyncio.get_running_loop().time
    length = 0
    deadline: float | None = None  # set at the first piece
    async with aclosing(pieces):
        while True:
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not limit.expired():  # raised by the stream, for example by its connection
                    raise
                raise EndlessAnswerError(
                    f"the answer of {config.model} has no end after {seconds:g} s",
                    hint='settings={"timeout": …} gives it more',
                ) from None
            if deadline is None:
                deadline = clock() + seconds
            if isinstance(piece, ModelDelta):
                length += len(piece.text) + _MIN_LENGTH_PER_PIECE
                check_length(length, config)
            yield piece


def check_length(length: int, config: LLMConfig) -> None:
    """Check that an answer does not exceed the maximum length.

    Args:
        length: The length of the answer, in characters.
        config: The model.

    Raises:
        EndlessAnswerError: If the answer is too long.
    """
    if length > MAX_ANSWER_CHARACTERS:
        raise EndlessAnswerError(
            f"the answer of {config.model} is longer than {MAX_ANSWER_CHARACTERS:,} letters",
            hint="no model writes so much; check its server",
        )
