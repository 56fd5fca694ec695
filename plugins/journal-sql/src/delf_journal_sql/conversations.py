"""Conversations, stored in the same database as events; any process may append."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from delf.messages import Role
from delf.protocols.conversation import ChatMessage, ConversationRecord, ConversationState
from delf.types import Trust
from delf_journal_sql.codec import plain_text
from delf_journal_sql.database import Connection

T = TypeVar("T")

_MESSAGE: Final = "seq, role, content, at, task_id, trust"
_TITLE: Final = 200
"""The maximum number of characters of the first message that become the title."""
_PRUNED_AT_ONCE: Final = 20
"""The maximum number of conversations removed in one transaction, so that others can write in
between.
"""
REMEMBERED_SECONDS: Final = 86_400.0
"""The seconds for which a cleared conversation's row is kept.

The row has the number of the last message, from which new messages continue. Otherwise a summary in
progress of the cleared messages could be stored as a summary of the new ones.
"""


class Run(Protocol):
    """Runs a function with a connection, in a transaction and in a thread."""

    def __call__(self, function: Callable[[Connection], T], /) -> Coroutine[Any, Any, T]:
        """Run the function."""
        ...


class SqlConversations:
    """Implements :class:`delf.protocols.conversation.ConversationStore`.

    Summarised messages stay in the database until the conversation is cleared or pruned.

    Args:
        namespace: The namespace of the conversations.
        read: Runs read transactions.
        write: Runs write transactions one at a time.
        reclaim: Releases the space of deleted rows.
    """

    def __init__(
        self, namespace: str, read: Run, write: Run, reclaim: Callable[[], Awaitable[None]]
    ) -> None:
        self._namespace = namespace
        self.reading = read
        self.writing = write
        self._reclaim = reclaim

    async def append(self, conversation: str, messages: Sequence[ChatMessage]) -> int:
        """Append messages together; return the position of the last message.

        Raises:
            JournalError: If the messages cannot be stored.
        """
        new_messages = tuple(messages)
        last_position: int | None = None

        def write(connection: Connection) -> int:
            nonlocal last_position
            if last_position is not None:  # a retry: the messages may already be stored
                stored = _position_of(
                    connection, self._namespace, conversation, last_position, new_messages
                )
                if stored is not None:
                    return stored
            head = _head(connection, self._namespace, conversation)
            last_position = 0 if head is None else head.last
            return _append(connection, self._namespace, conversation, head, new_messages)

        return await self.writing(write)

    async def load(self, conversation: str, limit: int | None = None) -> ConversationState:
        """Load a conversation; a missing conversation is empty.

        Raises:
            JournalError: If the conversation cannot be read.
        """
        return await self.reading(lambda c: _load(c, self._namespace, conversation, limit))

    async def read(self, conversation: str, after: int, limit: int) -> Sequence[ChatMessage]:
        """Return the first messages after a position, in order, summarised ones included."""

        def read(connection: Connection) -> list[ChatMessage]:
            head = _head(connection, self._namespace, conversation)
            if head is None:
                return []
            rows = connection.execute(
                f"SELECT {_MESSAGE} FROM delf_messages "  # noqa: S608 - own names
                "WHERE conversation = :key AND seq > :after ORDER BY seq LIMIT :limit",
                {"key": head.id, "after": after, "limit": limit},
            )
            return [_message(row) for row in rows]

        return await self.reading(read)

    async def summarize(
        self,
        conversation: str,
        summary: str,
        upto: int,
        *,
        instead_of: int,
        trust: Trust = "outside",
    ) -> bool:
        """Replace the summary; return False, unchanged, if another caller was faster."""

        def write(connection: Connection) -> bool:
            rows = connection.execute(
                "UPDATE delf_conversations "
                "SET summary = :summary, summarized = :upto, summary_trust = :trust "
                "WHERE namespace = :namespace AND name = :name AND summarized = :before "
                "AND last >= :upto RETURNING id",
                {
                    "summary": summary,
                    "upto": upto,
                    "trust": trust,
                    "namespace": self._namespace,
                    "name": conversation,
                    "before": instead_of,
                },
            )
            return bool(rows)

        return await self.writing(write)

    async def clear(self, conversation: str) -> None:
        """Remove messages and summary. Positions continue after the last message."""

        def write(connection: Connection) -> None:
            head = _head(connection, self._namespace, conversation)
            if head is not None:
                _forget(connection, head.id)

        await self.writing(write)

    async def find(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Return the conversations that have messages, the newest first."""

        def read(connection: Connection) -> list[ConversationRecord]:
            return [record for _, record in _find(connection, self._namespace, limit)]

        return await self.reading(read)

    async def prune(
        self, before: float | None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Remove old conversations; return their records, the oldest first.

        Raises:
            JournalError: If a write fails; some conversations may be removed by then.
        """

        def choose(connection: Connection) -> list[tuple[int, ConversationRecord]]:
            no_limit = 2**31 - 1
            candidates = _find(connection, self._namespace, no_limit)[keep:]
            old = [(k, r) for k, r in candidates if before is None or r.updated_at < before]
            return old[::-1]  # the oldest first

        def clean(connection: Connection) -> None:
            connection.execute(
                "DELETE FROM delf_conversations "
                "WHERE namespace = :namespace AND messages = 0 AND updated_at < :before",
                {"namespace": self._namespace, "before": time.time() - REMEMBERED_SECONDS},
            )

        chosen = await self.reading(choose)
        if dry_run:
            return [record for _, record in chosen]
        removed: list[ConversationRecord] = []
        for start in range(0, len(chosen), _PRUNED_AT_ONCE):
            batch = chosen[start : start + _PRUNED_AT_ONCE]
            removed += await self.writing(
                lambda c, batch=batch: [r for key, r in batch if _forget(c, key, r.updated_at)]
            )
        await self.writing(clean)
        await self._reclaim()
        return removed


def namespaces(connection: Connection) -> list[str]:
    """Return the namespaces with conversations, including recently removed ones."""
    rows = connection.execute("SELECT DISTINCT namespace FROM delf_conversations")
    return sorted(name for (name,) in rows)


def _find(
    connection: Connection, namespace: str, limit: int
) -> list[tuple[int, ConversationRecord]]:
    """Return conversations with messages and their keys, newest first."""
    rows = connection.execute(
        "SELECT id, name, messages, updated_at, title FROM delf_conversations "
        "WHERE namespace = :namespace AND messages > 0 "
        "ORDER BY updated_at DESC, id DESC LIMIT :limit",
        {"namespace": namespace, "limit": limit},
    )
    return [
        (
            int(key),
            ConversationRecord(
                conversation=name, messages=messages, updated_at=updated, title=title
            ),
        )
        for key, name, messages, updated, title in rows
    ]


def _forget(connection: Connection, key: int, unchanged_since: float | None = None) -> bool:
    """Remove messages and summary; return False if the conversation was changed since a time."""
    condition = "" if unchanged_since is None else "AND messages > 0 AND updated_at = :since "
    rows = connection.execute(
        "UPDATE delf_conversations SET summary = NULL, summarized = last, messages = 0, "  # noqa: S608 - own names
        f"title = '', updated_at = :now WHERE id = :key {condition}RETURNING id",
        {"key": key, "now": time.time(), **({"since": unchanged_since} if condition else {})},
    )
    if rows:
        connection.execute("DELETE FROM delf_messages WHERE conversation = :key", {"key": key})
    return bool(rows)


class _Head(NamedTuple):
    """The row of a conversation: key, positions, summary and its trust."""

    id: int
    last: int
    summarized: int
    summary: str | None
    summary_trust: Trust


def _head(connection: Connection, namespace: str, name: str) -> _Head | None:
    """Find the row of a conversation."""
    rows = connection.execute(
        "SELECT id, last, summarized, summary, summary_trust FROM delf_conversations "
        "WHERE namespace = :namespace AND name = :name",
        {"namespace": namespace, "name": name},
    )
    return _Head(*rows[0]) if rows else None


def _load(
    connection: Connection, namespace: str, name: str, limit: int | None
) -> ConversationState:
    """Return the summary and the messages after it, the newest ones if limited."""
    head = _head(connection, namespace, name)
    if head is None:
        return ConversationState()
    key, last, summarized = head.id, head.last, head.summarized
    # Positions have no gap, so the newest messages are found without counting.
    after = summarized if limit is None else max(summarized, last - limit)
    rows = connection.execute(
        f"SELECT {_MESSAGE} FROM delf_messages "  # noqa: S608 - own names
        "WHERE conversation = :key AND seq > :after ORDER BY seq",
        {"key": key, "after": after},
    )
    messages = tuple(_message(row) for row in rows)
    return ConversationState(
        messages=messages,
        summary=head.summary,
        summarized=summarized,
        summary_trust=head.summary_trust,
        last=last,
    )


def _position_of(
    connection: Connection, namespace: str, name: str, after: int, messages: Sequence[ChatMessage]
) -> int | None:
    """Return the last position of messages that are already stored consecutively; else None."""
    head = _head(connection, namespace, name)
    if head is None or not messages:
        return None
    rows = connection.execute(
        f"SELECT {_MESSAGE} FROM delf_messages "  # noqa: S608 - own names
        "WHERE conversation = :key AND seq > :after ORDER BY seq",
        {"key": head.id, "after": after},
    )
    wanted = [(plain_text(m.content), m.at, m.task_id) for m in messages]
    stored = [(content, at, task_id) for _, _, content, at, task_id, _ in rows]
    for start in range(len(stored) - len(wanted) + 1):
        if stored[start : start + len(wanted)] == wanted:
            return int(rows[start + len(wanted) - 1][0])
    return None


def _append(
    connection: Connection,
    namespace: str,
    name: str,
    head: _Head | None,
    messages: Sequence[ChatMessage],
) -> int:
    """Append messages after the last position, creating the row if needed; return the new last."""
    if not messages:
        return head.last if head is not None else 0
    if head is None:
        rows = connection.execute(
            "INSERT INTO delf_conversations "
            "(namespace, name, title, updated_at, messages, last, summarized) "
            "VALUES (:namespace, :name, '', :at, 0, 0, 0) RETURNING id",
            {"namespace": namespace, "name": name, "at": messages[-1].at},
        )
        head = _Head(int(rows[0].id), 0, 0, None, "outside")
    key, last = head.id, head.last
    rows = [
        (key, number, plain_text(m.role), plain_text(m.content), m.at, m.task_id, m.trust)
        for number, m in enumerate(messages, last + 1)
    ]
    columns = ("conversation", "seq", "role", "content", "at", "task_id", "trust")
    connection.insert("delf_messages", columns, rows)
    last += len(rows)
    connection.execute(
        "UPDATE delf_conversations SET last = :last, messages = messages + :more, "
        "updated_at = :at, title = CASE WHEN title = '' THEN :title ELSE title END "
        "WHERE id = :key",
        {
            "key": key,
            "last": last,
            "more": len(rows),
            "at": messages[-1].at,
            "title": plain_text(" ".join(messages[0].content[: 8 * _TITLE].split()))[:_TITLE],
        },
    )
    return last


def _message(row: Sequence[Any]) -> ChatMessage:
    seq, role, content, at, task_id, trust = row
    return ChatMessage(
        role=cast("Role", role),
        content=content,
        at=at,
        task_id=task_id,
        position=seq,
        trust=cast("Trust", trust),
    )
