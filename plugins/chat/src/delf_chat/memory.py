"""In-memory conversations."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from delf.protocols.conversation import ChatMessage, ConversationRecord, ConversationState
from delf.types import Trust

_TITLE: Final = 200
# The seconds for which the positions of a removed conversation are remembered.
#
# A summary that is in progress meanwhile must not match a new conversation of the same name.
_REMEMBERED_SECONDS: Final = 86_400.0


@dataclass
class _Entry:
    messages: list[ChatMessage] = field(default_factory=list[ChatMessage])
    summary: str | None = None
    summarized_upto: int = 0  # the position of the last message in the summary
    summary_trust: Trust = "outside"
    last: int = 0  # the position of the last message
    title: str = ""
    message_count: int = 0
    updated_at: float = 0.0

    def remove_messages(self, removed_at: float) -> None:
        """Remove all messages, the title and the summary.

        The position of the next message is counted from the last removed message.
        """
        self.messages = []
        self.summary = None
        self.title = ""
        self.message_count = 0
        self.updated_at = removed_at
        # Count the removed messages as summarized: a summary of them that is still being made is
        # then rejected as outdated.
        self.summarized_upto = self.last


class MemoryConversations:
    """A store in memory. Implements :class:`delf.protocols.conversation.ConversationStore`.

    No method ever waits. Summarised messages are dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    async def append(self, conversation: str, messages: Sequence[ChatMessage]) -> int:
        """Append messages atomically, and return the position of the last message."""
        with self._lock:
            entry = self._entries.setdefault(conversation, _Entry())
            for message in messages:
                entry.last += 1
                entry.message_count += 1
                entry.updated_at = message.at
                entry.title = entry.title or message.content[:_TITLE]
                entry.messages.append(replace(message, position=entry.last))
            return entry.last

    async def load(self, conversation: str, limit: int | None = None) -> ConversationState:
        """Load a conversation. A missing conversation counts as empty."""
        with self._lock:
            entry = self._entries.get(conversation)
            if entry is None:
                return ConversationState()
            start = 0 if limit is None else max(0, len(entry.messages) - limit)
            return ConversationState(
                messages=tuple(entry.messages[start:]),
                summary=entry.summary,
                summarized_upto=entry.summarized_upto,
                summary_trust=entry.summary_trust,
                last=entry.last,
            )

    async def read(self, conversation: str, after: int, limit: int) -> Sequence[ChatMessage]:
        """Return messages after a position, in order, up to a limit."""
        with self._lock:
            entry = self._entries.get(conversation, _Entry())
            return tuple(m for m in entry.messages if m.position > after)[:limit]

    async def summarize(
        self,
        conversation: str,
        summary: str,
        upto: int,
        *,
        expected_upto: int,
        trust: Trust = "outside",
    ) -> bool:
        """Replace the summary, and drop the summarised messages.

        Return False, and change nothing, if another caller has replaced the summary or removed the
        conversation meanwhile.

        See :meth:`delf.protocols.conversation.ConversationStore.summarize`.
        """
        with self._lock:
            entry = self._entries.get(conversation)
            if entry is None or entry.summarized_upto != expected_upto:
                return False
            entry.summary = summary
            entry.summary_trust = trust
            entry.summarized_upto = upto
            entry.messages = [m for m in entry.messages if m.position > upto]
            return True

    async def clear(self, conversation: str) -> None:
        """Remove all messages and the summary."""
        with self._lock:
            entry = self._entries.get(conversation)
            if entry is not None:
                entry.remove_messages(removed_at=time.time())

    async def find(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Return the conversations that have messages, newest first."""
        with self._lock:
            return self._records()[:limit]

    async def prune(
        self, before: float | None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Remove old conversations, and return their records, oldest first."""
        now = time.time()
        with self._lock:
            newest_first = self._records()
            old = newest_first[keep:]
            if before is not None:
                old = [record for record in old if record.updated_at < before]
            if not dry_run:
                for record in old:
                    self._entries[record.conversation].remove_messages(removed_at=now)
                # The entry of a removed conversation stays for a while: see _REMEMBERED_SECONDS.
                for name, entry in list(self._entries.items()):
                    was_removed = not entry.message_count
                    if was_removed and entry.updated_at < now - _REMEMBERED_SECONDS:
                        del self._entries[name]
        return list(reversed(old))

    def _records(self) -> list[ConversationRecord]:
        records = [
            ConversationRecord(
                conversation=name,
                messages=entry.message_count,
                updated_at=entry.updated_at,
                title=entry.title,
            )
            for name, entry in self._entries.items()
            if entry.message_count
        ]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)
