"""The vectors of a store's facts in memory, kept up to date."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from delf.machine.forks import reset_in_forks
from delf_memory_semantic.database import ChangeCounters, FactDatabase


class VectorSearch:
    """Finds facts whose vectors are near a query's vector. All methods block; thread-safe.

    Args:
        database: The database of the facts.
    """

    def __init__(self, database: FactDatabase) -> None:
        self._database = database
        # Serialises searches and additions, because faiss does not support both at once.
        self._lock = threading.Lock()
        self._index: Any = None  # faiss's index of unit vectors; None before the first search
        self._highest = 0  # the highest number of a fact in the index
        # The database's change counters when it was indexed.
        self._indexed_counters = ChangeCounters(0, 0)
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Replace the lock in a forked process, whose parent may have held it."""
        self._lock = threading.Lock()
        self._index = None  # a thread of the parent may have been changing it

    def find(self, vector: Any, model: str, limit: int) -> dict[int, float]:
        """Return the facts nearest to a vector, including those that other processes have added.

        The result is a mapping from the number of a fact to its similarity, best first.

        Args:
            vector: The vector of the query.
            model: The name of the embedding model.
            limit: The maximum number of facts to return.
        """
        with self._lock:
            index = self._current_index(len(vector), model)
            # One thread: for a single query, further threads would only spin.
            _faiss().omp_set_num_threads(1)
            similarities, numbers = index.search(vector.reshape(1, -1), limit)
        pairs = zip(numbers[0].tolist(), similarities[0].tolist(), strict=True)
        # faiss returns the number -1 for a place without a result.
        return {number: value for number, value in pairs if number >= 0}

    def similarities(self, vector: Any, model: str, numbers: Iterable[int]) -> dict[int, float]:
        """Return the similarities of facts to a vector.

        The result is a mapping from the number of a fact to its similarity; facts without a vector
        are left out.

        Args:
            vector: The vector of the query.
            model: The name of the embedding model.
            numbers: The numbers of the facts.
        """
        similarities: dict[int, float] = {}
        with self._lock:
            index = self._current_index(len(vector), model)
            for number in numbers:
                with contextlib.suppress(RuntimeError):  # how faiss reports an unknown number
                    similarities[number] = float(np.dot(index.reconstruct(number), vector))
        return similarities

    def close(self) -> None:
        """Release the vectors from memory. The next search loads them again."""
        with self._lock:
            self._index = None

    def _current_index(self, dimension: int, model: str) -> Any:
        """Return the index, updated with all changes in the database.

        New vectors are added; after a removal, the index is built again.
        """
        # Read the counters before the vectors. If a fact is stored in between, the counters change,
        # and the next search loads the vector of the fact.
        counters = self._database.change_counters()
        if self._index is not None and counters == self._indexed_counters:
            return self._index
        is_outdated = counters.invalidations != self._indexed_counters.invalidations
        if self._index is None or is_outdated:
            self._index = _faiss().IndexIDMap2(_faiss().IndexFlatIP(dimension))
            self._highest = 0
            # Adding the vectors may fail. Until all are added, store counters that the database
            # never has, so that the next search adds the rest.
            self._indexed_counters = counters._replace(additions=-1)
        for rows in self._database.vectors(model, after=self._highest):
            self._add(rows, dimension)
        self._indexed_counters = counters
        return self._index

    def _add(self, rows: Sequence[tuple[int, bytes]], dimension: int) -> None:
        """Add vectors (little-endian float32) to the index; skip those of another dimension."""
        fitting = [(number, vector) for number, vector in rows if len(vector) == 4 * dimension]
        if fitting:
            matrix = np.frombuffer(b"".join(vector for _, vector in fitting), dtype="<f4")
            numbers = np.array([number for number, _ in fitting], dtype="int64")
            self._index.add_with_ids(matrix.reshape(-1, dimension), numbers)
            self._highest = int(numbers[-1])  # the rows are in the order of their numbers


def _faiss() -> Any:
    """Import faiss on first use, because the import is slow."""
    import faiss

    return faiss
