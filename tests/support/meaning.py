"""An embedder whose vectors know which words mean the same."""

from collections.abc import Sequence
from typing import Any

from delf.errors import ConnectionUnavailableError, ToolRefusedError


class Meaning:
    """Implements :class:`delf.protocols.embedder.Embedder`.

    The embedder refuses a batch with a text that contains ``refused``.

    Args:
        topics: Words that mean the same, for each dimension of the vectors.
        batch_size: The most texts at a time.
    """

    model = "meaning"

    def __init__(self, *topics: tuple[str, ...], batch_size: int = 3) -> None:
        self.topics = topics
        self.dimension = len(topics)
        self.batch_size = batch_size
        self.texts: list[str] = []
        self.fails = False
        self.refused = "never refused"

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> Any:
        assert 0 < len(texts) <= self.batch_size
        if self.fails:
            raise ConnectionUnavailableError("the embedder is gone")
        self.texts += texts
        for text in texts:
            if self.refused in text:
                raise ToolRefusedError(f"this text is too long: {text}")
        rows = []
        for text in texts:
            row = [float(any(w in text.lower() for w in topic)) for topic in self.topics]
            length = sum(value * value for value in row) ** 0.5 or 1.0
            rows.append([value / length for value in row])
        return rows
