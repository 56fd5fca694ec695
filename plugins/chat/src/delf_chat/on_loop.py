"""``StoreOnLoop``: a store of conversations whose methods all run on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from delf.protocols.conversation import (
    ChatMessage,
    ConversationRecord,
    ConversationState,
    ConversationStore,
)
from delf.types import Trust
from delf_engine.sync import await_on_loop

T = TypeVar("T")


class StoreOnLoop:
    """Implements :class:`delf.protocols.conversation.ConversationStore` for callers on any loop.

    Tasks of an agent use the chat on the agent's event loop, and programs use it from other loops.
    A journal's connections work only on one loop. This class therefore runs all calls on
    ``loop``.

    Args:
        open_store: Returns the store. Called on the loop.
        loop: The event loop, which runs in another thread.
    """

    def __init__(
        self, open_store: Callable[[], ConversationStore], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._open_store = open_store
        self._loop = loop

    async def append(self, conversation: str, messages: Sequence[ChatMessage]) -> int:
        """Append messages atomically, and return the position of the last message."""
        return await self._run(lambda store: store.append(conversation, messages))

    async def load(self, conversation: str, limit: int | None = None) -> ConversationState:
        """Load a conversation. A missing conversation counts as empty."""
        return await self._run(lambda store: store.load(conversation, limit))

    async def read(self, conversation: str, after: int, limit: int) -> Sequence[ChatMessage]:
        """Return stored messages after a position, in order, up to a limit."""
        return await self._run(lambda store: store.read(conversation, after, limit))

    async def summarize(
        self,
        conversation: str,
        summary: str,
        upto: int,
        *,
        expected_upto: int,
        trust: Trust = "outside",
    ) -> bool:
        """Replace the summary, unless another caller has replaced it meanwhile.

        See :meth:`delf.protocols.conversation.ConversationStore.summarize`.
        """
        return await self._run(
            lambda store: store.summarize(
                conversation, summary, upto, expected_upto=expected_upto, trust=trust
            )
        )

    async def clear(self, conversation: str) -> None:
        """Remove all messages and the summary."""
        await self._run(lambda store: store.clear(conversation))

    async def find(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Return the conversations that have messages, newest first."""
        return await self._run(lambda store: store.find(limit))

    async def prune(
        self, before: float | None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Remove old conversations, and return their records, oldest first."""
        return await self._run(lambda store: store.prune(before, keep, dry_run=dry_run))

    async def _run(self, work: Callable[[ConversationStore], Awaitable[T]]) -> T:
        async def run() -> T:
            # The store has to be opened on the loop that uses it.
            return await work(self._open_store())

        return await await_on_loop(run(), self._loop)
