"""The vectors of a catalog: computed in batches, cached on disk, compared in one product."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from delf.errors import DelfError
from delf.machine.own_files import make_private_file, make_private_folder
from delf.protocols.embedder import Embedder, Vectors
from delf.protocols.embedding import embed_or_refuse, is_refusal
from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.ranking import plain_name

_log = logging.getLogger(__name__)
_MAX_CACHED_CATALOGS: Final = 20


class CatalogVectors:
    """The embeddings of all actions of a catalog, for a search by meaning.

    Args:
        matrix: A matrix whose rows are the unit vectors of the actions.
        embedder: The embedder, for search texts.
    """

    def __init__(self, matrix: Any, embedder: Embedder) -> None:
        self._matrix = matrix  # one row for each action of the catalog, in the catalog's order
        self._embedder = embedder

    @classmethod
    async def make(cls, catalog: Catalog, embedder: Embedder, folder: Path) -> CatalogVectors:
        """Return the vectors of a catalog from the cache, or compute and cache them.

        An action whose text the embedder refuses gets the zero vector, so that the words of its
        text alone decide about the action.

        Args:
            catalog: The catalog, with at least one action.
            embedder: The embedder for vectors that are not cached.
            folder: The cache folder.

        Raises:
            DelfError: If the embedder does not work, or refuses all texts.
        """
        texts = [_embedded_text(entry) for entry in catalog]
        digest = hashlib.sha256("\0".join((embedder.model, *texts)).encode()).hexdigest()[:32]
        path = folder / f"{digest}.npy"
        matrix = await asyncio.to_thread(_read_cached, path, len(texts))
        if matrix is None:
            outcomes = await _embed(texts, embedder)
            errors = [each for each in outcomes if isinstance(each, DelfError)]
            if errors:
                _log.warning(
                    "%d of %d actions are chosen by words only, because the embedder %s failed "
                    "for their texts: %s",
                    len(errors),
                    len(texts),
                    embedder.model,
                    errors[0].describe(),
                )
            matrix = _matrix_of(outcomes)
            # Do not cache a failure such as a timeout: the next start has to embed the texts again.
            if all(map(is_refusal, errors)):
                await asyncio.to_thread(_write_cached, path, matrix)
        return cls(matrix, embedder)

    async def similarities(self, text: str) -> Any:
        """Return the cosine similarity of each action to a text, from -1 to 1, as an array."""
        (query,) = await self._embedder.embed([text], "query")
        # einsum uses one thread: threads of BLAS would compete with those of a local model.
        return np.einsum("ij,j->i", self._matrix, np.asarray(query, dtype="float32"))


async def _embed(texts: Sequence[str], embedder: Embedder) -> list[Iterable[float] | DelfError]:
    """Return the vector of each text, or the error with which the embedder fails for the text."""

    def embed(batch: Sequence[str]) -> Awaitable[Vectors]:
        return embedder.embed(batch, "passage")

    outcomes: list[Iterable[float] | DelfError] = []
    size = max(1, embedder.batch_size)
    for start in range(0, len(texts), size):
        outcomes += await embed_or_refuse(embed, texts[start : start + size])
    return outcomes


def _matrix_of(outcomes: Sequence[Iterable[float] | DelfError]) -> Any:
    """Return a matrix of the vectors, with a row of zeros for each error.

    Raises:
        DelfError: If there is no vector.
    """
    rows: dict[int, Any] = {}
    errors: list[DelfError] = []
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, DelfError):
            errors.append(outcome)
        else:
            rows[number] = np.asarray(outcome, dtype="float32")
    if not rows:
        raise errors[0]
    first_row = next(iter(rows.values()))
    zeros = np.zeros(len(first_row), dtype="float32")
    return np.stack([rows.get(number, zeros) for number in range(len(outcomes))])


def _embedded_text(entry: CatalogEntry) -> str:
    return f"{plain_name(entry.name)}: {entry.summary}"


def _read_cached(path: Path, rows: int) -> Any:
    """Return the cached matrix; None if the file is missing, damaged or of another size."""
    try:
        matrix = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if matrix.ndim == 2 and len(matrix) == rows:
        return matrix
    return None


def _write_cached(path: Path, matrix: Any) -> None:
    """Write a matrix to the cache atomically, and remove the oldest matrices.

    Nothing is written if the folder is not writable.
    """
    try:
        make_private_folder(path.parent)
        temporary = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
        make_private_file(temporary)
        with temporary.open("wb") as file:
            np.save(file, matrix, allow_pickle=False)
        temporary.replace(path)
        newest = sorted(path.parent.glob("*.npy"), key=lambda p: p.stat().st_mtime, reverse=True)
        for old in newest[_MAX_CACHED_CATALOGS:]:
            old.unlink(missing_ok=True)
    except OSError:
        return
