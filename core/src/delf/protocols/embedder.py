"""An embedder: texts become vectors, so that texts of like meaning can be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, runtime_checkable

EmbeddingKind = Literal["query", "passage"]
"""The purpose of a text: as a query, or as a document to be found."""


class Vectors(Protocol):
    """One row of floats for each text: a list of lists, or a numpy array of two dimensions.

    ``numpy.asarray(vectors, dtype="float32")`` takes either.
    """

    def __len__(self) -> int:
        """Count the rows."""
        ...

    def __iter__(self) -> Iterator[Iterable[float]]:
        """The rows, in the order of the texts."""
        ...


class Embedder(Protocol):
    """One embedding model, shared by memory, prefilters and concurrent tasks.

    Long work belongs in a thread. An embedder with resources may have an ``async def
    aclose(self)``, which is called once when the agent stops.
    """

    @property
    def model(self) -> str:
        """Names the model: vectors of another model cannot be compared with its own."""
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
        """Return a normalised vector for each text, whose dot product is the similarity.

        The zero vector stands for an empty text.

        Args:
            texts: At most ``batch_size`` texts; the agent splits longer lists.
            kind: Whether the texts look for others or are to be found.

        Raises:
            DelfError: When the model cannot be loaded or does not answer.
        """
        ...


@runtime_checkable
class SupportsLoading(Protocol):
    """An embedder whose model takes seconds to load."""

    @property
    def is_loaded(self) -> bool:
        """True once ``embed`` computes at once, or fails at once."""
        ...

    async def load(self) -> None:
        """Load the model and wait; concurrent callers share the load.

        Cancelling a caller does not cancel the load.

        Raises:
            DelfError: When the model cannot be loaded.
        """
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """An embedder that can report whether it is usable."""

    async def check(self) -> None:
        """Check the requirements, without loading the model or a network request.

        Raises:
            DelfError: When it could not be used, with what to do about it.
        """
        ...
