"""The vectors of a catalog: computed in batches, cached on disk, compared in one product."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from pathlib import Path
from typing import Any, Final

import numpy as np

from delf.machine.own_files import make_private_file, make_private_folder
from delf.protocols.embedder import Embedder
from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.ranking import plain_name

_MAX_CACHED_CATALOGS: Final = 20


class CatalogVectors:
    """The embeddings of all actions of a catalog, for a search by meaning.

    Args:
        matrix: A matrix whose rows are the unit vectors of the actions.
        embedder: The embedder, for search texts.
    """

    def __init__(self, matrix: Any, embedder: Embedder) -> None:
        self._matrix = matrix
        self._embedder = embedder

    @classmethod
    async def make(cls, catalog: Catalog, embedder: Embedder, folder: Path) -> CatalogVectors:
        """Return the vectors of a catalog from the cache, or compute and cache them.

        Args:
            catalog: The catalog, with at least one action.
            embedder: The embedder for vectors that are not cached.
            folder: The cache folder.
        """
        texts = [_embedded_text(entry) for entry in catalog]
        digest = hashlib.sha256("\0".join((embedder.model, *texts)).encode()).hexdigest()[:32]
        path = folder / f"{digest}.npy"
        matrix = await asyncio.to_thread(_read_cached, path, len(texts))
        if matrix is None:
            rows: list[Any] = []
            for start in range(0, len(texts), embedder.batch_size):
                batch = texts[start : start + embedder.batch_size]
                rows.append(np.asarray(await embedder.embed(batch, "passage"), dtype="float32"))
            matrix = np.concatenate(rows)
            await asyncio.to_thread(_write_cached, path, matrix)
        return cls(matrix, embedder)

    async def similarities(self, text: str) -> Any:
        """Return the cosine similarity of each action to a text, from -1 to 1, as an array."""
        (query,) = await self._embedder.embed([text], "query")
        # einsum uses one thread: threads of BLAS would compete with those of a local model.
        return np.einsum("ij,j->i", self._matrix, np.asarray(query, dtype="float32"))


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
