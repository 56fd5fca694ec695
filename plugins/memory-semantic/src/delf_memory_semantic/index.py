"""``VectorIndex``: the vectors of a namespace in memory, with faiss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_NEIGHBOURS: Final = 32
"""Links of each vector in the graph above the exact range (HNSW's M)."""


class VectorIndex:
    """Finds the nearest of many vectors of length 1. Not safe in several threads at once.

    Up to ``exact`` vectors each is compared; above, a graph (HNSW) is searched.

    Args:
        dimension: The length of a vector.
        exact: The most vectors that are all compared.
    """

    def __init__(self, dimension: int, exact: int = 100_000) -> None:
        import faiss

        self._faiss: Any = faiss
        self._dimension = dimension
        self._exact = exact
        self._index: Any = faiss.IndexIDMap2(faiss.IndexFlatIP(dimension))
        self._is_graph = False

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Add vectors by the numbers of their facts; those of another length are left out.

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
        if len(self) > self._exact and not self._is_graph:
            self._make_graph()

    def _make_graph(self) -> None:
        faiss = self._faiss
        flat = faiss.downcast_index(self._index.index)
        vectors = flat.reconstruct_n(0, flat.ntotal)
        ids = faiss.vector_to_array(self._index.id_map)
        graph = faiss.IndexHNSWFlat(self._dimension, _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efSearch = 128
        index = faiss.IndexIDMap2(graph)
        index.add_with_ids(vectors, ids)
        self._index, self._is_graph = index, True

    def nearest(self, vector: Any, limit: int) -> list[tuple[int, float]]:
        """The numbers of the nearest facts with their likeness, best first."""
        if not len(self):
            return []
        query = np.asarray(vector, dtype="float32").reshape(1, self._dimension)
        likeness, ids = self._index.search(query, min(limit, len(self)))
        pairs = zip(ids[0].tolist(), likeness[0].tolist(), strict=True)
        return [(number, value) for number, value in pairs if number >= 0]

    def likeness(self, number: int, vector: Any) -> float | None:
        """How like a fact is to a vector; None where it has none."""
        try:
            own = self._index.reconstruct(number)
        except RuntimeError:  # faiss has no other way to say that it does not know it
            return None
        return float(np.dot(own, np.asarray(vector, dtype="float32")))
