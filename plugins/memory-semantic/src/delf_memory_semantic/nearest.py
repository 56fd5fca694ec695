"""``Nearest``: the vectors of a store's facts, kept up with what is saved and forgotten."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delf.errors import DelfError
from delf_memory_semantic.database import FactDatabase
from delf_memory_semantic.index import State, VectorIndex

_log = logging.getLogger(__name__)


class Nearest:
    """Finds facts by vectors. Its methods block; they may be called in any thread.

    Above ``exact`` facts a graph takes over. It is made in a thread while each vector is still
    compared, and kept in a file, which the next process reads; one that is broken, or of other
    facts, is made again.

    Args:
        database: The facts.
        folder: Where graphs are kept.
        exact: Up to how many facts each vector is compared.
    """

    def __init__(self, database: FactDatabase, folder: Path, exact: int) -> None:
        self._database = database
        self._folder = folder
        self._exact = exact
        self._turn = threading.Condition()
        self._readers = 0
        self._index: VectorIndex | None = None
        self._seen: State = (0, 0)
        self._making: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def is_graph(self) -> bool:
        """True if a graph is searched."""
        return self._index is not None and self._index.is_graph

    def find(self, vector: Any, model: str, limit: int) -> dict[int, float]:
        """The nearest facts with their similarity; those that other processes saved, too.

        Args:
            vector: What they are to be like.
            model: What made it.
            limit: How many at most.
        """
        with self._reading(vector, model) as index:
            return dict(index.nearest(vector, limit))

    def likeness(self, vector: Any, model: str, numbers: Iterable[int]) -> dict[int, float]:
        """Return the similarity of some facts, of those that have vectors.

        Args:
            vector: What they are to be like.
            model: What made it.
            numbers: The facts.
        """
        with self._reading(vector, model) as index:
            likes = {number: index.likeness(number, vector) for number in numbers}
        return {number: like for number, like in likes.items() if like is not None}

    def close(self) -> None:
        """Stop making a graph; used again, it is begun again."""
        self._closed.set()
        making = self._making
        if making is not None:
            making.join()
        self._closed.clear()
        with self._turn:
            self._index = None

    def wait(self) -> None:
        """Wait until a graph is made that is being made."""
        making = self._making
        if making is not None:
            making.join()

    @contextmanager
    def _reading(self, vector: Any, model: str) -> Generator[VectorIndex]:
        """The index of all that is stored now; while it changes nobody searches in it."""
        with self._turn:
            index = self._index
            if index is None or self._database.state() != self._seen:
                self._turn.wait_for(lambda: not self._readers)
                index = self._followed(len(vector), model)
            self._readers += 1
        try:
            yield index
        finally:
            with self._turn:
                self._readers -= 1
                self._turn.notify_all()

    def _followed(self, dimension: int, model: str) -> VectorIndex:
        state = self._database.state()
        index = self._from_file(dimension, model) if self._index is None else self._index
        if index is None or not self._grow(index, model, state):
            index = self._made(dimension, model)
        self._index, self._seen = index, state
        if len(index) > self._exact and not index.is_graph and self._making is None:
            given = dimension, model
            self._making = threading.Thread(target=self._make_graph, args=given, name="delf-graph")
            self._making.start()
        return index

    def _grow(self, index: VectorIndex, model: str, state: State) -> bool:
        """Add what is new; False where anything else was changed, too."""
        if state[1] != self._seen[1]:
            return False
        if state != self._seen:
            for rows in self._database.vectors(model, after=index.highest):
                index.add(rows)
        return True

    def _made(self, dimension: int, model: str) -> VectorIndex:
        index = VectorIndex(dimension)
        for rows in self._database.vectors(model):
            index.add(rows)
        return index

    def _from_file(self, dimension: int, model: str) -> VectorIndex | None:
        found = VectorIndex.read(self._file(model), dimension)
        if found is None:
            return None
        index, self._seen = found
        return index if len(index) == self._database.vector_count(model) else None

    def _make_graph(self, dimension: int, model: str) -> None:
        try:
            state = self._database.state()
            graph = self._made(dimension, model).as_graph(self._goes_on)
            if graph is None:
                return
            try:
                graph.write(self._file(model), state)
            except OSError as error:
                _log.warning("the graph of the memory is not kept: %s", error)
            with self._turn:
                self._index, self._seen = graph, state
        except DelfError as error:
            _log.warning("each fact is compared, the graph could not be made: %s", error)
        finally:
            self._making = None

    def _goes_on(self) -> bool:
        return not self._closed.is_set() and threading.main_thread().is_alive()

    def _file(self, model: str) -> Path:
        named = f"{self._database.place}\0{self._database.namespace}\0{model}"
        return self._folder / f"memory-{hashlib.sha256(named.encode()).hexdigest()[:16]}.vectors"
