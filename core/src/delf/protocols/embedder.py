"""An embedder: texts become vectors, so that texts of like meaning can be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, runtime_checkable

from delf.members import ProtocolMeta

EmbeddingKind = Literal["query", "passage"]
"""The purpose of an embedded text: a search query, or a passage to be found."""


class Vectors(Protocol):
    """Vectors of texts, one row of floats each: a list of lists, or a two-dimensional numpy array.

    ``numpy.asarray(vectors, dtype="float32")`` takes either.
    """

    def __len__(self) -> int:
        """Count the rows."""
        ...

    def __iter__(self) -> Iterator[Iterable[float]]:
        """The rows, in the order of the texts."""
        ...


class Embedder(Protocol):
    """An embedding model, shared by memory, prefilters and concurrent tasks.

    Long work belongs in a thread. An embedder with resources may have an ``async def
    aclose(self)``, which is called once when the agent stops.
    """

    @property
    def model(self) -> str:
        """The model's name: vectors of different models cannot be compared."""
        ...

    @property
    def dimension(self) -> int | None:
        """The length of a vector; None until the first texts are embedded."""
        ...

    @property
    def batch_size(self) -> int:
        """The largest batch of texts."""
        ...

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        """Embed texts as normalised vectors, whose dot product is the similarity.

        The zero vector stands for an empty text.

        Args:
            texts: At most ``batch_size`` texts; the agent splits longer lists.
            kind: ``query`` for texts to search with, ``passage`` for texts to be found.

        Raises:
            DelfError: If the model cannot be loaded or does not answer.
        """
        ...


@runtime_checkable
class SupportsLoading(Protocol, metaclass=ProtocolMeta):
    """An embedder whose first :meth:`Embedder.embed` takes seconds, because it loads the model."""

    @property
    def is_loaded(self) -> bool:
        """True if ``embed`` returns or raises without loading the model first."""
        ...
