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

_MAX_CACHED: Final = 20
"""The number of catalogs whose vectors are cached, the newest ones."""


class CatalogVectors:
    """The embeddings of all actions, for a search by meaning.

    Args:
        matrix: A unit vector for each action, as rows.
        embedder: The embedding model.
    """

    def __init__(self, matrix: Any, embedder: Embedder) -> None:
        self._matrix = matrix
        self._embedder = embedder

    @classmethod
    async def make(cls, catalog: Catalog, embedder: Embedder, folder: Path) -> CatalogVectors:
        """Return the vectors of a catalog, cached on disk.

        Args:
            catalog: At least one action.
            embedder: The embedder for missing vectors.
            folder: The cache folder.
        """
        texts = [_text(entry) for entry in catalog]
        digest = hashlib.sha256("\0".join((embedder.model, *texts)).encode()).hexdigest()[:32]
        path = folder / f"{digest}.npy"
        matrix = await asyncio.to_thread(_read, path, len(texts))
        if matrix is None:
            rows: list[Any] = []
            for start in range(0, len(texts), embedder.batch_size):
                batch = texts[start : start + embedder.batch_size]
                rows.append(np.asarray(await embedder.embed(batch, "passage"), dtype="float32"))
            matrix = np.concatenate(rows)
            await asyncio.to_thread(_write, path, matrix)
        return cls(matrix, embedder)

    async def likeness(self, text: str) -> Any:
        """Return the similarity of each action to a text, from -1 to 1."""
        (query,) = await self._embedder.embed([text], "query")
        # In one thread: those of BLAS and of a model that has just computed wait for each other.
        return np.einsum("ij,j->i", self._matrix, np.asarray(query, dtype="float32"))


def _text(entry: CatalogEntry) -> str:
    return f"{plain_name(entry.name)}: {entry.summary}"


def _read(path: Path, rows: int) -> Any:
    """Read cached vectors; None if they are missing or belong to another catalog."""
    try:
        matrix = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return matrix if matrix.ndim == 2 and len(matrix) == rows else None


def _write(path: Path, matrix: Any) -> None:
    """Write vectors to the cache atomically; a no-op if the folder is not writable."""
    try:
        make_private_folder(path.parent)
        temporary = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
        make_private_file(temporary)
        with temporary.open("wb") as file:
            np.save(file, matrix, allow_pickle=False)
        temporary.replace(path)
        newest = sorted(path.parent.glob("*.npy"), key=lambda p: p.stat().st_mtime, reverse=True)
        for old in newest[_MAX_CACHED:]:
            old.unlink(missing_ok=True)
    except OSError:
        return
