"""Embedding of texts one by one where an embedder refuses a batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from delf.errors import ConnectionUnavailableError, DelfError, LLMExecutionError
from delf.protocols.embedder import Vectors

_PROBE_TEXT: Final = "text"  # every working embedder accepts this short word
# The HTTP statuses of failures that say nothing about the texts, such as a rate limit.
_TEMPORARY_STATUSES: Final = frozenset({408, 409, 425, 429})


async def embed_or_refuse(
    embed: Callable[[Sequence[str]], Awaitable[Vectors]], texts: Sequence[str]
) -> Sequence[Iterable[float] | DelfError]:
    """Return the vector of each text, or the error if the embedder refuses the text.

    A single refused text, such as a very long one, makes the whole batch fail. A failed batch is
    therefore halved until each refused text is alone.

    Args:
        embed: Embeds a batch of texts.
        texts: The texts, at most one batch.

    Raises:
        DelfError: If the embedder has reached a rate limit, or fails even for a short probe text.
    """
    try:
        return [*await embed(texts)]
    except DelfError as error:
        if _is_temporary(error):
            raise
        await embed([_PROBE_TEXT])  # raises if the embedder fails for any text
        if len(texts) <= 1:
            return [error for _ in texts]  # an empty list if there is no text
    # The embedder works, but refuses at least one of several texts.
    middle = len(texts) // 2
    first_half = await embed_or_refuse(embed, texts[:middle])
    return [*first_half, *await embed_or_refuse(embed, texts[middle:])]


def is_refusal(error: DelfError) -> bool:
    """Return True if an error of an embedder means that it will never embed the text.

    Return False for an error that says nothing about the text: a timeout, a lost connection or a
    failure of the server. A later attempt may then succeed.
    """
    if isinstance(error, LLMExecutionError):
        if error.too_long:
            return True
        is_client_error = error.status is not None and 400 <= error.status < 500
        return is_client_error and not _is_temporary(error)
    return not isinstance(error, ConnectionUnavailableError)


def _is_temporary(error: DelfError) -> bool:
    return isinstance(error, LLMExecutionError) and error.status in _TEMPORARY_STATUSES
