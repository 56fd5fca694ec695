"""A memory store: facts that outlive a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from delf.records import dataclass
from delf.types import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A remembered fact."""

    content: str
    saved_at: datetime
    namespace: str = "default"


class MemoryStore(Protocol):
    """Saves facts and finds those that matter for a task. Used by many tasks at once.

    It may have ``guidelines``, a text that says what is worth remembering: the model that
    proposes facts after a task reads it.
    """

    async def save(self, facts: Sequence[str]) -> None:
        """Remember facts.

        Raises:
            MemorySetupError: When the store cannot be opened.
        """
        ...

    async def search(self, query: str, top_k: int = 5, threshold: float = 0.3) -> Sequence[Fact]:
        """The facts nearest to a query, best first.

        Args:
            query: What is looked for, in plain words.
            top_k: How many at the most.
            threshold: The least similarity, from 0 to 1.

        Raises:
            MemoryRetrievalError: When they cannot be looked for.
        """
        ...

    async def list(self) -> Sequence[Fact]:
        """All facts, oldest first."""
        ...

    async def delete(self, facts: Sequence[str]) -> int:
        """Forget facts with exactly these texts in this namespace; how many there were."""
        ...

    async def clear(self) -> None:
        """Forget everything in this namespace."""
        ...

    async def aclose(self) -> None:
        """Free what is held. Safe to call twice; used again, it is opened again."""
        ...


@runtime_checkable
class SupportsMemoryWarmUp(Protocol):
    """A store that loads what it searches with, such as an embedding model."""

    async def warm_up(self) -> None:
        """Load it, and return when it is loaded or cannot be.

        An agent calls this when it starts. A search in the meantime waits for nothing: it finds
        what it can, and notes what is missing.
        """
        ...


@runtime_checkable
class SupportsStore(Protocol):
    """Something for programs that has a store inside, such as a face without ``await``."""

    @property
    def store(self) -> MemoryStore:
        """Return the store that an agent uses."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneTask:
    """A task that was done, to be learned from; nothing in it holds a secret.

    Args:
        task: What the user wanted.
        answer: What the user got.
        known: The facts that were recalled for it.
        ask: Asks the agent's light model; its cost is the task's.
        trust: Whose words the answer may hold; facts out of others' words say so.
    """

    task: str
    answer: str
    known: Sequence[str]
    ask: Callable[[str], Awaitable[str]]
    trust: Trust = "own"
