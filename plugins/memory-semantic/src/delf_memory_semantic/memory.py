"""``Memory``: the store for programs that are not asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from delf.attributes import FixedAttributes
from delf.errors import AgentStateError, MemorySetupError, PluginError
from delf.machine.folders import expand_home
from delf_memory_semantic.database import StoredFact
from delf_memory_semantic.store import SemanticStore
from delf_memory_semantic.texts import is_file_name, read_file, split_into_pieces

T = TypeVar("T")

_MODEL: Final = "all-MiniLM-L6-v2"
# The source of facts that a program saves without naming one. A fact with a source never counts as
# the user's own words, and a program may save a stranger's mail.
_UNNAMED_SOURCE: Final = "program"


class Memory(FixedAttributes):
    """Facts that outlive a task, for ``Agent(memory=…)`` and for direct use by programs.

    Args:
        guidelines: Instructions on what is worth remembering, for the model that proposes facts.
        path: The path of a SQLite file, or a ``postgresql://`` URL. When None, the memory is a file
            in the user's data folder.
        namespace: The name of this memory among all memories in the database.
        embedding_model: The name of the embedder. If the default embedder is not installed, facts
            are found by words alone.
    """

    # Arguments that are no attributes; see FixedAttributes.
    _options = frozenset(("path", "embedding_model"))

    def __init__(
        self,
        guidelines: str = "",
        path: str | Path | None = None,
        namespace: str = "default",
        embedding_model: str | None = _MODEL,
    ) -> None:
        from delf import plugin_context

        context = plugin_context(namespace=namespace)
        url = None if path is None else str(path)
        if url is not None and "://" not in url:
            url = f"sqlite:///{expand_home(url).absolute()}"
        try:
            store = SemanticStore(context, url, embedding_model, guidelines)
        except PluginError:
            if embedding_model != _MODEL:
                raise
            # Without the default model, search by words alone.
            store = SemanticStore(context, url, "off", guidelines)
        self.store = store
        """The asynchronous memory store on which this object works."""

    @property
    def guidelines(self) -> str:
        """The instructions on what is worth remembering."""
        return self.store.guidelines

    @property
    def namespace(self) -> str:
        """The name of this memory among all memories in the database."""
        return self.store.namespace

    def save(self, facts: str, source: str | None = None) -> None:
        """Store each line of a text as a fact.

        Args:
            facts: The text, with one fact on each line.
            source: The name of the task, document or person from which the facts come, if known.
        """
        lines = [line.strip() for line in facts.splitlines() if line.strip()]
        self._run(self.store.save(lines, source or _UNNAMED_SOURCE))

    def add(self, text: str | Path) -> int:
        """Store a text, or a file (``.txt``, ``.md``), as facts; return the number of facts.

        The text is split into pieces. A single line that looks like a path is taken for the path of
        a file; to store such a line itself, use :meth:`save`.

        Raises:
            MemorySetupError: For a file that does not exist, cannot be read, or is of another kind,
                and for a value that is neither text nor path.
        """
        given = cast("object", text)  # programs without type checks may pass anything
        if not isinstance(given, (str, Path)):
            raise MemorySetupError(
                f"a memory adds a text or the path of a file, not {type(given).__name__}",
                hint="add one text or file after another; decode bytes first",
            )
        source = _UNNAMED_SOURCE
        if isinstance(text, Path) or is_file_name(text):
            source = str(text).strip()
            text = read_file(Path(source))
        parts = split_into_pieces(text)
        self._run(self.store.save(parts, source))
        return len(parts)

    def search(self, query: str, top_k: int = 5, threshold: float = 0.3) -> list[StoredFact]:
        """Return the facts that match a query by words and by meaning, best first.

        Args:
            query: The query in plain words.
            top_k: The maximum number of facts.
            threshold: A number from 0 to 1. The higher the number, the better a fact must match the
                query, and the closer its score must be to the best score.

        Raises:
            MemorySetupError: For a top_k below 1, or a threshold that is not from 0 to 1.
        """
        if top_k < 1 or not 0 <= threshold <= 1:
            raise MemorySetupError(
                f"search with top_k={top_k!r} and threshold={threshold!r} finds nothing",
                hint="top_k is at least 1, and threshold is from 0 to 1",
            )
        return list(self._run(self.store.search(query, top_k, threshold)))

    def retrieve(self, query: str, top_k: int = 5, threshold: float = 0.3) -> str:
        """Return the texts of the facts that :meth:`search` finds, one on each line."""
        return "\n".join(fact.content for fact in self.search(query, top_k, threshold))

    def context(self) -> str:
        """Return the texts of all facts, one on each line."""
        return "\n".join(fact.content for fact in self)

    def clear(self) -> None:
        """Remove all facts of the namespace."""
        self._run(self.store.clear())

    def backfill_embeddings(self) -> int:
        """Compute a vector for each fact that the current embedding model has not embedded yet.

        Returns:
            The number of added vectors.
        """
        return self._run(self.store.fill())

    def close(self) -> None:
        """Close the database. A later use opens it again."""
        self._run(self.store.aclose())

    def __len__(self) -> int:
        return len(self._run(self.store.all()))

    def __bool__(self) -> bool:
        return True  # by its length alone, an empty memory would be false

    def __iter__(self) -> Iterator[StoredFact]:
        return iter(self._run(self.store.all()))

    def __getitem__(self, number: int) -> StoredFact:
        return self._run(self.store.all())[number]

    def __repr__(self) -> str:
        return f"<Memory {self.namespace!r}>"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._await_and_stop_embedding(work))
        work.close()  # Python warns of a coroutine that is neither awaited nor closed
        raise AgentStateError(
            "this would block the event loop", hint="await the methods of memory.store"
        )

    async def _await_and_stop_embedding(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, then stop the background task that adds vectors; return the result.

        The background task must not outlive the event loop.
        """
        try:
            return await work
        finally:
            await self.store.stop_embedding()
