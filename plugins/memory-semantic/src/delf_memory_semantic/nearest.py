"""The vectors of a store's facts in memory, kept up to date."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from delf_memory_semantic.database import FactDatabase


class VectorIndex:
    """An index of unit vectors that finds the vectors nearest to a given one.

    Args:
        dimension: The number of components of each vector.
    """

    def __init__(self, dimension: int) -> None:
        import faiss

        self._faiss: Any = faiss
        self._dimension = dimension
        self._index: Any = faiss.IndexIDMap2(faiss.IndexFlatIP(dimension))
        self.highest = 0
        """The highest number of a fact in the index; 0 if the index is empty."""

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Add the vectors of facts; vectors of a different length are ignored.

        Args:
            rows: Pairs of a fact's number and its vector as little-endian float32.
        """
        size = self._dimension * 4
        fitting_rows = [(number, vector) for number, vector in rows if len(vector) == size]
        if not fitting_rows:
            return
        matrix = np.frombuffer(b"".join(vector for _, vector in fitting_rows), dtype="<f4")
        ids = np.fromiter(
            (number for number, _ in fitting_rows), dtype="int64", count=len(fitting_rows)
        )
        self._index.add_with_ids(matrix.reshape(len(fitting_rows), self._dimension), ids)
        self.highest = max(self.highest, int(ids.max()))

    def nearest(self, vector: Any, limit: int) -> list[tuple[int, float]]:
        """Return the facts nearest to a vector as pairs of number and similarity, best first."""
        if not len(self):
            return []
        query = np.asarray(vector, dtype="float32").reshape(1, self._dimension)
        # One thread: for a single query, further threads would only spin.
        self._faiss.omp_set_num_threads(1)
        similarities, ids = self._index.search(query, min(limit, len(self)))
        pairs = zip(ids[0].tolist(), similarities[0].tolist(), strict=True)
        # faiss returns the number -1 for a place without a result.
        return [(number, value) for number, value in pairs if number >= 0]

    def similarity(self, number: int, vector: Any) -> float | None:
        """Return the similarity of a fact to a vector; None if the fact has no vector."""
        try:
            own = self._index.reconstruct(number)
        except RuntimeError:  # how faiss reports an unknown number
            return None
        return float(np.dot(own, np.asarray(vector, dtype="float32")))


class VectorSearch:
    """Finds facts whose vectors are near a query's vector. All methods block; thread-safe.

    Args:
        database: The database of the facts.
    """

    def __init__(self, database: FactDatabase) -> None:
        self._database = database
        # Serialises searches and additions, because faiss does not support both at once.
        self._lock = threading.Lock()
        self._index: VectorIndex | None = None
        self._indexed_counters = (0, 0)  # the database's change counters when it was indexed

    def find(self, vector: Any, model: str, limit: int) -> dict[int, float]:
        """Return the facts nearest to a vector, including those that other processes have added.

        The result is a mapping from the number of a fact to its similarity, best first.

        Args:
            vector: The vector of the query.
            model: The name of the embedding model.
            limit: The maximum number of facts to return.
        """
        with self._lock:
            return dict(self._current_index(len(vector), model).nearest(vector, limit))

    def similarities(self, vector: Any, model: str, numbers: Iterable[int]) -> dict[int, float]:
        """Return the similarities of facts to a vector.

        The result is a mapping from the number of a fact to its similarity; facts without a vector
        are left out.

        Args:
            vector: The vector of the query.
            model: The name of the embedding model.
            numbers: The numbers of the facts.
        """
        with self._lock:
            index = self._current_index(len(vector), model)
            similarities = {number: index.similarity(number, vector) for number in numbers}
        return {
            number: similarity
            for number, similarity in similarities.items()
            if similarity is not None
        }

    def close(self) -> None:
        """Release the vectors from memory. The next search loads them again."""
        with self._lock:
            self._index = None

    def _current_index(self, dimension: int, model: str) -> VectorIndex:
        """Return the index with all changes in the database.

        New vectors are added; after a removal, the index is built again.
        """
        counters = self._database.change_counters()
        index = self._index
        if index is not None and counters == self._indexed_counters:
            return index
        _, invalidations = counters
        _, indexed_invalidations = self._indexed_counters
        if index is None or invalidations != indexed_invalidations:
            index = VectorIndex(dimension)
        for rows in self._database.vectors(model, after=index.highest):
            index.add(rows)
        self._index = index
        self._indexed_counters = counters
        return index
