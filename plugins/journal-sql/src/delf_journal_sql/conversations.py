"""Conversations, stored in the same database as events; any process may append."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from delf.messages import Role
from delf.protocols.conversation import ChatMessage, ConversationRecord, ConversationState
from delf.types import Trust
from delf_journal_sql.codec import plain_text
from delf_journal_sql.database import Connection
from delf_journal_sql.statements import SqlRow

T = TypeVar("T")

_MESSAGE: Final = "seq, role, content, at, task_id, trust"
# The maximum number of characters of a title, which is the beginning of the first message.
_MAX_TITLE_LENGTH: Final = 200
# The maximum number of conversations removed in one transaction, so that others can write in
# between.
_PRUNE_BATCH_SIZE: Final = 20
_NO_LIMIT: Final = 2**31 - 1
REMEMBERED_SECONDS: Final = 86_400.0
"""The time for which the row of a cleared conversation is kept, in seconds.

The row holds the position of the last message, from which the positions of new messages continue.
If they began again at 1, a late summary of the cleared messages would count for new messages.
"""


class Run(Protocol):
    """Runs ``function(connection)`` in a transaction of the connection, in a worker thread."""

    def __call__(self, function: Callable[[Connection], T], /) -> Coroutine[Any, Any, T]:
        """Run a function with the connection of the transaction, and return its result."""
        ...


class SqlConversations:
    """Implements :class:`delf.protocols.conversation.ConversationStore`.

    Summarised messages stay in the database until the conversation is cleared or pruned.

    Args:
        namespace: The namespace of the conversations.
        read: Runs read transactions.
        write: Runs write transactions, one at a time.
        reclaim_space: Releases the space of deleted rows.
    """

    def __init__(
        self, namespace: str, read: Run, write: Run, reclaim_space: Callable[[], Awaitable[None]]
    ) -> None:
        self._namespace = namespace
        self.run_read = read
        self.run_write = write
        self._reclaim_space = reclaim_space

    async def append(self, conversation: str, messages: Sequence[ChatMessage]) -> int:
        """Append messages in one transaction; return the position of the last message.

        Raises:
            JournalError: If the messages cannot be stored.
        """
        new_messages = tuple(messages)
        # The position of the conversation's last message before the latest attempt. If the
        # connection breaks during the commit, run_write() calls write() again, which must not
        # append messages twice.
        last_before: int | None = None

        def write(connection: Connection) -> int:
            nonlocal last_before
            row = _find_row(connection, self._namespace, conversation)
            # ``last_before`` is set if an earlier attempt has an unknown outcome.
            if last_before is not None and _are_stored(connection, row, last_before, new_messages):
                return last_before + len(new_messages)
            last_before = 0 if row is None else row.last
            return _append(connection, self._namespace, conversation, row, new_messages)

        return await self.run_write(write)

    async def load(self, conversation: str, limit: int | None = None) -> ConversationState:
        """Return the summary and the messages after the summary; empty for a missing conversation.

        Raises:
            JournalError: If the conversation cannot be read.
        """
        return await self.run_read(lambda c: _load(c, self._namespace, conversation, limit))

    async def read(self, conversation: str, after: int, limit: int) -> Sequence[ChatMessage]:
        """Return the first ``limit`` messages after a position, including summarised messages."""

        def select(connection: Connection) -> list[ChatMessage]:
            row = _find_row(connection, self._namespace, conversation)
            if row is None:
                return []
            rows = connection.execute(
                f"SELECT {_MESSAGE} FROM delf_messages "  # noqa: S608 - only names of this module
                "WHERE conversation = :key AND seq > :after ORDER BY seq LIMIT :limit",
                {"key": row.id, "after": after, "limit": limit},
            )
            return [_message(message_row) for message_row in rows]

        return await self.run_read(select)

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

        def write(connection: Connection) -> bool:
            """Store the summary, and return whether it was stored.

            The summary is not stored if another process has replaced the old summary, or if the
            conversation was deleted and begun anew, and has not reached position ``upto`` yet.
            """
            rows = connection.execute(
                "UPDATE delf_conversations "
                "SET summary = :summary, summarized = :upto, summary_trust = :trust "
                "WHERE namespace = :namespace AND name = :name AND summarized = :old_upto "
                "AND last >= :upto RETURNING id",
                {
                    "summary": summary,
                    "upto": upto,
                    "trust": trust,
                    "namespace": self._namespace,
                    "name": conversation,
                    "old_upto": expected_upto,
                },
            )
            return bool(rows)

        return await self.run_write(write)

    async def clear(self, conversation: str) -> None:
        """Remove the messages and the summary of a conversation.

        The positions of new messages continue after the last removed message.
        """

        def write(connection: Connection) -> None:
            row = _find_row(connection, self._namespace, conversation)
            if row is not None:
                _clear(connection, row.id)

        await self.run_write(write)

    async def find(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Return the records of conversations that have messages, newest first."""

        def select(connection: Connection) -> list[ConversationRecord]:
            return [record for _, record in _find_records(connection, self._namespace, limit)]

        return await self.run_read(select)

    async def prune(
        self, before: float | None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Remove the messages of old conversations; return the removed records, oldest first.

        Args:
            before: Conversations that were changed at this Unix time or later are kept; None for no
                such limit.
            keep: The number of newest conversations that are always kept.
            dry_run: Whether to return the records without removing anything.

        Raises:
            JournalError: If a write fails, after which some conversations may have been removed.
        """
        candidates = await self.run_read(lambda c: _find_prunable(c, self._namespace, before, keep))
        if dry_run:
            return [record for _, record in candidates]
        removed: list[ConversationRecord] = []
        for start in range(0, len(candidates), _PRUNE_BATCH_SIZE):
            batch = candidates[start : start + _PRUNE_BATCH_SIZE]
            removed += await self.run_write(functools.partial(_clear_batch, batch=batch))
        await self.run_write(lambda c: _delete_rows_cleared_long_ago(c, self._namespace))
        await self._reclaim_space()
        return removed


def namespaces(connection: Connection) -> list[str]:
    """Return the names of all namespaces that have conversations, also recently cleared ones."""
    rows = connection.execute("SELECT DISTINCT namespace FROM delf_conversations")
    return sorted(row.namespace for row in rows)


def _find_records(
    connection: Connection, namespace: str, limit: int
) -> list[tuple[int, ConversationRecord]]:
    """Return the database keys and records of conversations that have messages, newest first."""
    # The folder of a conversation is that of the task of its last message.
    rows = connection.execute(
        "SELECT c.id, c.name, c.messages, c.updated_at, c.title, t.folder "
        "FROM delf_conversations AS c "
        "LEFT JOIN delf_messages AS m ON m.conversation = c.id AND m.seq = c.last "
        "LEFT JOIN delf_tasks AS t ON t.task_id = m.task_id "
        "WHERE c.namespace = :namespace AND c.messages > 0 "
        "ORDER BY c.updated_at DESC, c.id DESC LIMIT :limit",
        {"namespace": namespace, "limit": limit},
    )
    return [
        (
            int(row.id),
            ConversationRecord(
                conversation=row.name,
                messages=row.messages,
                updated_at=row.updated_at,
                title=row.title,
                folder=row.folder,
            ),
        )
        for row in rows
    ]


def _find_prunable(
    connection: Connection, namespace: str, before: float | None, keep: int
) -> list[tuple[int, ConversationRecord]]:
    """Return the keys and records of the conversations that may be removed, oldest first.

    For the arguments see :meth:`SqlConversations.prune`.
    """
    newest_first = _find_records(connection, namespace, _NO_LIMIT)
    prunable: list[tuple[int, ConversationRecord]] = []
    for key, record in reversed(newest_first[keep:]):
        if before is None or record.updated_at < before:
            prunable.append((key, record))
    return prunable


def _delete_rows_cleared_long_ago(connection: Connection, namespace: str) -> None:
    """Delete the rows of conversations cleared more than ``REMEMBERED_SECONDS`` ago."""
    connection.execute(
        "DELETE FROM delf_conversations "
        "WHERE namespace = :namespace AND messages = 0 AND updated_at < :before",
        {"namespace": namespace, "before": time.time() - REMEMBERED_SECONDS},
    )


def _clear_batch(
    connection: Connection, batch: Sequence[tuple[int, ConversationRecord]]
) -> list[ConversationRecord]:
    """Clear conversations, except those changed since they were read; return the cleared ones."""
    return [record for key, record in batch if _clear(connection, key, record.updated_at)]


def _clear(connection: Connection, key: int, unchanged_since: float | None = None) -> bool:
    """Clear a conversation.

    Args:
        connection: A connection in a write transaction.
        key: The conversation's database key.
        unchanged_since: The expected time of the last change; None to clear in any case.

    Returns:
        False if the conversation was changed since the expected time or was already cleared;
        nothing is changed then.
    """
    condition = ""
    values: dict[str, Any] = {"key": key, "now": time.time()}
    if unchanged_since is not None:
        condition = "AND messages > 0 AND updated_at = :since "
        values["since"] = unchanged_since
    # The columns ``last`` and ``summarized`` are the positions of the last message and of the last
    # message that the summary covers. Positions go on after the conversation is cleared.
    rows = connection.execute(
        "UPDATE delf_conversations SET summary = NULL, summarized = last, messages = 0, "  # noqa: S608 - only names of this module
        f"title = '', updated_at = :now WHERE id = :key {condition}RETURNING id",
        values,
    )
    if rows:
        connection.execute("DELETE FROM delf_messages WHERE conversation = :key", {"key": key})
    return bool(rows)


class _Row(NamedTuple):
    """The row of a conversation in the database.

    Args:
        id: The database key.
        last: The position of the last message.
        summarized: The position of the last summarised message.
        summary: The summary of the messages up to that position, if any.
        summary_trust: The trust level of the summary.
    """

    id: int
    last: int
    summarized: int
    summary: str | None
    summary_trust: Trust


def _find_row(connection: Connection, namespace: str, name: str) -> _Row | None:
    """Return the row of a conversation; None if there is none."""
    rows = connection.execute(
        "SELECT id, last, summarized, summary, summary_trust FROM delf_conversations "
        "WHERE namespace = :namespace AND name = :name",
        {"namespace": namespace, "name": name},
    )
    return _Row(*rows[0]) if rows else None


def _load(
    connection: Connection, namespace: str, name: str, limit: int | None
) -> ConversationState:
    """Return the summary, and the newest messages after the summary up to a limit."""
    row = _find_row(connection, namespace, name)
    if row is None:
        return ConversationState()
    # Positions have no gap, so the newest messages are found without counting.
    after = row.summarized if limit is None else max(row.summarized, row.last - limit)
    rows = connection.execute(
        f"SELECT {_MESSAGE} FROM delf_messages "  # noqa: S608 - only names of this module
        "WHERE conversation = :key AND seq > :after ORDER BY seq",
        {"key": row.id, "after": after},
    )
    return ConversationState(
        messages=tuple(_message(message_row) for message_row in rows),
        summary=row.summary,
        summarized_upto=row.summarized,
        summary_trust=row.summary_trust,
        last=row.last,
    )


def _are_stored(
    connection: Connection, row: _Row | None, after: int, messages: Sequence[ChatMessage]
) -> bool:
    """Return True if messages are stored in a conversation right after a position."""
    if row is None:
        return False
    rows = connection.execute(
        "SELECT content, at, task_id FROM delf_messages "
        "WHERE conversation = :key AND seq > :after ORDER BY seq LIMIT :count",
        {"key": row.id, "after": after, "count": len(messages)},
    )
    stored = [tuple(row) for row in rows]
    return stored == [(plain_text(m.content), m.at, m.task_id) for m in messages]


def _append(
    connection: Connection,
    namespace: str,
    name: str,
    row: _Row | None,
    messages: Sequence[ChatMessage],
) -> int:
    """Append messages to a conversation, which is created if needed; return the last position."""
    if not messages:
        return row.last if row is not None else 0
    if row is None:
        (created,) = connection.execute(
            "INSERT INTO delf_conversations "
            "(namespace, name, title, updated_at, messages, last, summarized) "
            "VALUES (:namespace, :name, '', :at, 0, 0, 0) RETURNING id",
            {"namespace": namespace, "name": name, "at": messages[-1].at},
        )
        row = _Row(id=int(created.id), last=0, summarized=0, summary=None, summary_trust="outside")
    key = row.id
    # Of a very long message, only the beginning is searched for words of the title.
    beginning = messages[0].content[: 8 * _MAX_TITLE_LENGTH]
    title = plain_text(" ".join(beginning.split()))
    columns = ("conversation", "seq", "role", "content", "at", "task_id", "trust")
    rows = [
        (key, number, plain_text(m.role), plain_text(m.content), m.at, m.task_id, m.trust)
        for number, m in enumerate(messages, row.last + 1)
    ]
    connection.insert("delf_messages", columns, rows)
    last = row.last + len(rows)
    connection.execute(
        "UPDATE delf_conversations SET last = :last, messages = messages + :more, "
        "updated_at = :at, title = CASE WHEN title = '' THEN :title ELSE title END "
        "WHERE id = :key",
        {
            "key": key,
            "last": last,
            "more": len(rows),
            "at": messages[-1].at,
            "title": title[:_MAX_TITLE_LENGTH],
        },
    )
    return last


def _message(row: SqlRow) -> ChatMessage:
    return ChatMessage(
        role=cast("Role", row.role),
        content=row.content,
        at=row.at,
        task_id=row.task_id,
        position=row.seq,
        trust=cast("Trust", row.trust),
    )
