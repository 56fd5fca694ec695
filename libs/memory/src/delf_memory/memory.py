"""``AgentMemory``: the memory store of an agent, which is never in a task's way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from delf.errors import DelfError, MemoryRetrievalError
from delf.protocols.memory import DoneTask, MemoryStore
from delf.threads import in_own_thread
from delf_memory.learning import propose

T = TypeVar("T")

_MOST_SECONDS: Final = 10.0
_REST_SECONDS: Final = 60.0
"""How long a store that did not answer is left alone."""


class AgentMemory:
    """Opens a store once and bounds the time of all that is asked of it.

    Implements :class:`delf.protocols.memory.TaskMemory`.

    Every failure is a ``MemoryRetrievalError``, so that a task can go on without its memory.

    Args:
        make: Makes the store; called in a thread, as it may import what is heavy.
        top_k: The most facts that a task is given.
        threshold: The least likeness of a fact to the task.
    """

    def __init__(
        self, make: Callable[[], MemoryStore], *, top_k: int = 5, threshold: float = 0.3
    ) -> None:
        self._make = make
        self._top_k = top_k
        self._threshold = threshold
        self._opening: asyncio.Future[MemoryStore] | None = None
        self._rests_until = 0.0

    @property
    def store(self) -> MemoryStore | None:
        """The store, if it is open."""
        opened = self._opening
        if opened is None or not opened.done() or opened.cancelled() or opened.exception():
            return None
        return opened.result()

    def open(self) -> asyncio.Future[MemoryStore]:
        """Begin to open the store, or again after that failed."""
        failed = self._opening is not None and self._opening.done() and self.store is None
        if self._opening is None or failed:
            self._opening = in_own_thread(self._make, "delf-memory")
        return self._opening

    async def recall(self, query: str, seconds: float = _MOST_SECONDS) -> Sequence[str]:
        """The facts that matter for a task, best first.

        Args:
            query: The task.
            seconds: The most that it may take.

        Raises:
            MemoryRetrievalError: When it failed, or took too long.
        """

        async def search() -> list[str]:
            store = await asyncio.shield(self.open())
            facts = list(await store.search(query, self._top_k, self._threshold))
            return [str(fact.content) for fact in facts[: self._top_k]]

        return await self._bounded(search(), min(seconds, _MOST_SECONDS))

    async def learn(self, done: DoneTask) -> Sequence[str]:
        """Let the model propose facts of a task, and save those that nobody objects to.

        Raises:
            DelfError: When nothing could be learned.
        """
        facts = await propose(done, await self.guidelines())
        if facts and done.approve is not None:
            facts = await done.approve(facts)
        if facts:
            await self.save(facts)
        return facts

    async def save(self, facts: Sequence[str]) -> None:
        """Remember facts that are not known yet, word for word.

        Raises:
            MemoryRetrievalError: When it failed, or took too long.
        """

        async def save() -> None:
            store = await asyncio.shield(self.open())
            known = [await store.search(fact, 3, 0.0) for fact in facts]
            new = [
                fact
                for fact, found in zip(facts, known, strict=True)
                if fact not in {item.content for item in found}
            ]
            if new:
                await store.save(new)

        await self._bounded(save(), _MOST_SECONDS)

    async def guidelines(self) -> str | None:
        """What the store says is worth remembering, if it does."""
        store = await self._bounded(asyncio.shield(self.open()), _MOST_SECONDS)
        said = getattr(store, "guidelines", None)
        return said if isinstance(said, str) and said.strip() else None

    async def aclose(self) -> None:
        """Close the store if it is open; it is opened again when it is needed."""
        store, self._opening = self.store, None
        if store is not None:
            await self._bounded(store.aclose(), _MOST_SECONDS)

    async def _bounded(self, work: Awaitable[T], seconds: float) -> T:
        """What something gives, if it does so in time; what hangs is left behind."""
        now = asyncio.get_running_loop().time
        task = asyncio.ensure_future(work)
        try:
            if now() < self._rests_until:
                raise MemoryRetrievalError("the memory store did not answer a moment ago")
            await asyncio.wait({task}, timeout=seconds)
            if not task.done():
                self._rests_until = now() + _REST_SECONDS
                raise MemoryRetrievalError(
                    f"the memory store did not answer within {seconds:g} s",
                    hint="it is not asked again for a minute",
                )
        finally:
            task.cancel()
        try:
            return task.result()
        except MemoryRetrievalError:
            raise
        except DelfError as error:
            raise MemoryRetrievalError(error.message, hint=error.hint) from error
        except Exception as error:
            kind = type(error).__name__
            raise MemoryRetrievalError(f"the memory store failed: {kind}: {error}") from error
