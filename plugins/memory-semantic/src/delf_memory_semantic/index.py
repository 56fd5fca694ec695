"""``VectorIndex``: the vectors of a namespace in memory, with faiss; a graph also in a file."""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

_NEIGHBOURS: Final = 32
"""Links of each vector in the graph (HNSW's M)."""
_LOOKED_THROUGH: Final = 128
"""The number of vectors that a search in the graph keeps in view (HNSW's efSearch)."""
_AT_ONCE: Final = 2000
"""Vectors that are put into a graph before it is asked whether to go on."""
_HEADER: Final = struct.Struct("<8sQQQI")
"""A mark, the state of the facts, the length and checksum of the rest."""
_MARK: Final = b"delfvec2"

State = tuple[int, int]
"""The number of additions of facts, and of their other changes."""


class VectorIndex:
    """Finds the nearest of many vectors of length 1, in several threads at once.

    Each vector is compared, until :meth:`as_graph` makes a graph (HNSW) of them.

    Args:
        dimension: The length of a vector.
        index: The index of faiss that it wraps; an empty one when None.
    """

    def __init__(self, dimension: int, index: Any = None) -> None:
        import faiss

        self._faiss: Any = faiss
        self._dimension = dimension
        self._index: Any = index or faiss.IndexIDMap2(faiss.IndexFlatIP(dimension))
        self.highest: int = faiss.vector_to_array(self._index.id_map).max(initial=0).item()
        """The highest number of a fact; 0 without one."""

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def is_graph(self) -> bool:
        """True if a graph is searched, and not each vector compared."""
        return isinstance(self._faiss.downcast_index(self._index.index), self._faiss.IndexHNSW)

    def add(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Add vectors by the numbers of their facts; those of another length are left out.

        Nobody may search meanwhile.

        Args:
            rows: Numbers, and vectors as little-endian float32.
        """
        size = self._dimension * 4
        kept = [(number, vector) for number, vector in rows if len(vector) == size]
        if not kept:
            return
        matrix = np.frombuffer(b"".join(vector for _, vector in kept), dtype="<f4")
        ids = np.fromiter((number for number, _ in kept), dtype="int64", count=len(kept))
        self._index.add_with_ids(matrix.reshape(len(kept), self._dimension), ids)
        self.highest = max(self.highest, int(ids.max()))

    def as_graph(self, goes_on: Callable[[], bool]) -> VectorIndex | None:
        """A graph of the same vectors; it takes a minute for 100,000.

        Args:
            goes_on: Asked in between; where it says no, there is none.
        """
        faiss = self._faiss
        flat = faiss.downcast_index(self._index.index)
        ids = faiss.vector_to_array(self._index.id_map)
        graph = faiss.IndexHNSWFlat(self._dimension, _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efSearch = _LOOKED_THROUGH
        index = faiss.IndexIDMap2(graph)
        for start in range(0, len(ids), _AT_ONCE):
            if not goes_on():
                return None
            some = ids[start : start + _AT_ONCE]
            index.add_with_ids(flat.reconstruct_n(start, len(some)), some)
        return VectorIndex(self._dimension, index)

    def write(self, path: Path, state: State) -> None:
        """Keep it in a file, whole or not at all.

        Args:
            path: The file.
            state: That of the facts whose vectors these are.

        Raises:
            OSError: When it cannot be written.
        """
        data = self._faiss.serialize_index(self._index).tobytes()
        temporary = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(_HEADER.pack(_MARK, *state, len(data), zlib.crc32(data)))
                file.write(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path, dimension: int) -> tuple[Self, State] | None:
        """An index from its file with the state of its facts; None for one that is not whole."""
        import faiss

        try:
            data = path.read_bytes()
            mark, highest, count, length, checksum = _HEADER.unpack_from(data)
        except (OSError, struct.error):
            return None
        body = memoryview(data)[_HEADER.size :]
        if mark != _MARK or len(body) != length or zlib.crc32(body) != checksum:
            return None
        library: Any = faiss
        index = library.deserialize_index(np.frombuffer(body, dtype="uint8"))
        return (cls(dimension, index), (highest, count)) if index.d == dimension else None

    def nearest(self, vector: Any, limit: int) -> list[tuple[int, float]]:
        """The numbers of the nearest facts with their similarity, best first."""
        if not len(self):
            return []
        query = np.asarray(vector, dtype="float32").reshape(1, self._dimension)
        # For this thread alone: others have no part in one query, and would burn time waiting.
        self._faiss.omp_set_num_threads(1)
        likeness, ids = self._index.search(query, min(limit, len(self)))
        pairs = zip(ids[0].tolist(), likeness[0].tolist(), strict=True)
        return [(number, value) for number, value in pairs if number >= 0]

    def likeness(self, number: int, vector: Any) -> float | None:
        """Return the similarity of a fact to a vector; None where it has none."""
        try:
            own = self._index.reconstruct(number)
        except RuntimeError:  # faiss has no other way to say that it does not know it
            return None
        return float(np.dot(own, np.asarray(vector, dtype="float32")))
