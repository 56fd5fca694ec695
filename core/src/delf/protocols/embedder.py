"""An embedder: texts become vectors, so that texts of like meaning can be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, runtime_checkable

EmbeddingKind = Literal["query", "passage"]
"""The purpose of a text: to look for others, or to be found. Some models tell them apart."""


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
    """One embedding model. Memory and prefilters share it, and many tasks at once.

    Work that takes long belongs in a thread. What holds resources may have an
    ``async def aclose(self)``, which is called once when the agent stops.
    """

    @property
    def model(self) -> str:
        """Names the model: vectors of another model cannot be compared with its own."""
        ...

    @property
    def dimension(self) -> int | None:
        """The length of a vector; None while it is not known, never after the first texts."""
        ...

    @property
    def batch_size(self) -> int:
        """The most texts that it is given at once."""
        ...

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        """A vector of length 1 for each text, so that their dot product is their similarity.

        The zero vector stands for a text that says nothing.

        Args:
            texts: At most ``batch_size`` texts; the agent splits longer lists.
            kind: Whether the texts look for others or are to be found.

        Raises:
            DelfError: When the model cannot be loaded or does not answer.
        """
        ...


@runtime_checkable
class SupportsLoading(Protocol):
    """An embedder whose model is loaded first, which takes seconds."""

    @property
    def is_loaded(self) -> bool:
        """True once ``embed`` computes at once, or fails at once."""
        ...

    async def load(self) -> None:
        """Load the model and wait for it; other callers wait for the same load.

        A caller that is cancelled leaves the load to go on.

        Raises:
            DelfError: When the model cannot be loaded.
        """
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """An embedder that knows whether it could be used."""

    async def check(self) -> None:
        """Look whether what it needs is there, without loading it or asking a server.

        Raises:
            DelfError: When it could not be used, with what to do about it.
        """
        ...
