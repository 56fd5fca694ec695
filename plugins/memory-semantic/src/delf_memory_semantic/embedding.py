"""Embedding of texts one by one where an embedder refuses a batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from delf.errors import DelfError, LLMExecutionError
from delf.protocols.embedder import Vectors

# A text that every working embedder accepts.
_ACCEPTED_TEXT: Final = "text"
# The HTTP statuses of failures that say nothing about the texts, such as a rate limit.
_TEMPORARY_STATUSES: Final = frozenset({408, 409, 425, 429})


async def embed_or_refuse(
    embed: Callable[[Sequence[str]], Awaitable[Vectors]], texts: Sequence[str]
) -> Sequence[Iterable[float] | DelfError]:
    """Return the vector of each text, or the error with which the embedder refuses the text.

    An embedder may refuse a text, for example because of its length, and with it the whole batch.
    A refused batch is therefore halved until the refused texts are alone.

    Args:
        embed: Embeds a batch of texts.
        texts: The texts, at most one batch.

    Raises:
        DelfError: If the embedder refuses even a short word, and so does not work at all; or if it
            fails for a while, such as at a rate limit.
    """
    try:
        return [*await embed(texts)]
    except DelfError as error:
        if isinstance(error, LLMExecutionError) and error.status in _TEMPORARY_STATUSES:
            raise  # a short word may pass a rate limit that a longer text exceeds
        await embed([_ACCEPTED_TEXT])
        if len(texts) == 1:
            return [error]
    middle = len(texts) // 2
    first_half = await embed_or_refuse(embed, texts[:middle])
    return [*first_half, *await embed_or_refuse(embed, texts[middle:])]
