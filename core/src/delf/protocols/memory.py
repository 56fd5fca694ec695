"""A memory store: facts that outlive a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from delf.members import ProtocolMeta
from delf.records import dataclass
from delf.types import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A remembered fact.

    Args:
        content: The text.
        saved_at: The time at which the fact was saved.
        namespace: The namespace of the store to which the fact belongs.
        source: The document or person from which somebody took the text; None for a fact that delf
            has learned. A text with a source never counts as the user's own words.
    """

    content: str
    saved_at: datetime
    namespace: str = "default"
    source: str | None = None


class MemoryStore(Protocol):
    """A store of facts with a search for relevant facts, used by concurrent tasks.

    A store may have ``guidelines``: a text about what is worth remembering, for the model that
    proposes facts at the end of a task.
    """

    async def save(self, facts: Sequence[str]) -> None:
        """Remember facts.

        Raises:
            MemorySetupError: If the store cannot be opened.
        """
        ...

    async def search(self, query: str, top_k: int = 5, threshold: float = 0.3) -> Sequence[Fact]:
        """Return the facts nearest to a query, best first.

        Args:
            query: The search text, in plain words.
            top_k: The maximum number of facts to return.
            threshold: The least similarity, from 0 to 1.

        Raises:
            MemoryRetrievalError: If the search fails.
        """
        ...

    async def all(self) -> Sequence[Fact]:
        """Return all facts, oldest first."""
        ...

    async def delete(self, facts: Sequence[str]) -> int:
        """Forget facts with exactly these texts in this namespace; return their number."""
        ...

    async def clear(self) -> None:
        """Forget everything in this namespace."""
        ...

    async def aclose(self) -> None:
        """Release all resources. Idempotent; a later use opens the store again."""
        ...


@runtime_checkable
class SupportsStore(Protocol, metaclass=ProtocolMeta):
    """An object that wraps a store, for example to give programs a synchronous interface."""

    @property
    def store(self) -> MemoryStore:
        """The store that this object wraps; an agent calls the store directly."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneTask:
    """A finished task to learn from, without secrets.

    Args:
        task: The user's task.
        answer: The answer.
        recalled_facts: The facts that were recalled for the task.
        ask: Asks the agent's light model; the cost is added to the task's cost.
        trust: ``own`` if the task had read no untrusted data. The store marks facts from all other
            tasks as untrusted.
    """

    task: str
    answer: str
    recalled_facts: Sequence[str]
    ask: Callable[[str], Awaitable[str]]
    trust: Trust = "own"
