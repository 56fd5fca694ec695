"""Which tasks of queues a worker takes next. Everything here blocks: it is called in threads.

A task is at work while a process that lives works on it, or has taken it to begin. Writing
transactions wait for each other, so that limits hold over all processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delf.protocols.journal import TaskRecord
from delf.protocols.queues import QueueLimits
from delf_journal_sql.database import Connection, SqlRow
from delf_journal_sql.owners import COLUMNS, living, looking
from delf_journal_sql.store import TASK, stored_task

_PAGE: Final = 64
_MOST_EXCLUDED: Final = 200
"""Keys without room that one statement leaves out; more of them are left out one by one."""

_Place = tuple[str, str | None]


def take(
    connection: Connection,
    now: float,
    taker: str,
    queues: Mapping[str, QueueLimits],
    most: int,
    without: Collection[str],
) -> list[TaskRecord]:
    """Take tasks, in a writing transaction.

    Args:
        connection: For writing.
        now: The time by which heartbeats are compared.
        taker: The key of this process as an owner.
        queues: Where they wait, and the limits there.
        most: How many at the most.
        without: The ids of tasks that are passed over.
    """
    chosen = choose(connection, now, queues, most, without)
    for key, queue, begins in chosen:
        limits = queues[queue]
        counted = begins and (limits.per_second or limits.key_per_second) is not None
        connection.execute(
            "UPDATE delf_tasks SET taken_by = :taker, losses = COALESCE(losses, 0) + "
            "CASE WHEN taken_by IS NULL THEN 0 ELSE 1 END, "
            "begun_at = CASE WHEN :counted = 1 THEN :now ELSE begun_at END WHERE id = :id",
            {"taker": taker, "counted": int(counted), "now": now, "id": key},
        )
    return records(connection, now, [key for key, _, _ in chosen])


def give_back(connection: Connection, taker: str, task_ids: Collection[str]) -> None:
    """Let others take tasks that were taken and not claimed, in a writing transaction."""
    for task_id in task_ids:
        connection.execute(
            "UPDATE delf_tasks SET taken_by = NULL WHERE task_id = :id AND taken_by = :taker",
            {"id": task_id, "taker": taker},
        )


def records(connection: Connection, now: float, keys: Sequence[int]) -> list[TaskRecord]:
    """Tasks by their keys in the tables, in this order."""
    lives = looking(now)
    found: list[TaskRecord] = []
    for key in keys:
        rows = connection.execute(
            f"SELECT {TASK}, {COLUMNS} FROM delf_tasks AS t "  # noqa: S608 - own names
            "LEFT JOIN delf_owners AS o ON o.owner = t.owner WHERE t.id = :id",
            {"id": key},
        )
        found += [stored_task(row, lives) for row in rows]
    return found


def choose(
    connection: Connection,
    now: float,
    queues: Mapping[str, QueueLimits],
    most: int,
    without: Collection[str],
) -> list[tuple[int, str, bool]]:
    """The tasks to be taken next: key in the tables, queue, and whether it is a beginning.

    Those whose process is gone come first, then those that wait, in the order of their priority.
    """
    if not queues or most < 1:
        return []
    names = {f"queue{number}": name for number, name in enumerate(queues)}
    owners = {f"owner{number}": key for number, key in enumerate(living(connection, now))}
    search = _Search(connection, names, owners, now, frozenset(without))
    room = _Room(queues)
    for queue, key, count in search.at_work():
        room.work[queue, key] += count
        room.work[queue, None] += 0 if key is None else count
    for queue, limits in queues.items():
        search.count_begun(room, queue, limits)
    chosen: list[tuple[int, str, bool]] = []
    for task, _, queue, key, *_ in search.interrupted():
        if len(chosen) < most and room.has(queue, key, begins=False):
            room.use(queue, key, begins=False)
            chosen.append((task, queue, False))
    after: SqlRow | None = None
    size = _PAGE + most
    while len(chosen) < most:
        page = search.waiting(room, after, size)
        for task, _, queue, key, *_ in page:
            if len(chosen) < most and room.has(queue, key, begins=True):
                room.use(queue, key, begins=True)
                chosen.append((task, queue, True))
        if len(page) < size:
            break
        after, size = page[-1], 2 * size
    return chosen


def _window(per_second: float) -> tuple[int, float]:
    """A rate as a number of tasks in so many seconds."""
    count = max(1, int(per_second))
    return count, count / per_second


@dataclass
class _Room:
    """What the limits leave.

    Args:
        queues: The limits.
        work: How many tasks are at work, by queue and key; by queue alone, all of it.
        begun: How many began of late, in the same way.
    """

    queues: Mapping[str, QueueLimits]
    work: Counter[_Place] = field(default_factory=Counter[_Place])
    begun: Counter[_Place] = field(default_factory=Counter[_Place])

    def has(self, queue: str, key: str | None, *, begins: bool) -> bool:
        """Whether a task may be worked on now, or begin."""
        return self._has(queue, None, begins=begins) and (
            key is None or self._has(queue, key, begins=begins)
        )

    def _has(self, queue: str, key: str | None, *, begins: bool) -> bool:
        limits = self.queues[queue]
        at_once = limits.at_once if key is None else limits.key_at_once
        if at_once is not None and self.work[queue, key] >= at_once:
            return False
        rate = limits.per_second if key is None else limits.key_per_second
        return not begins or rate is None or self.begun[queue, key] < _window(rate)[0]

    def use(self, queue: str, key: str | None, *, begins: bool) -> None:
        """A task is taken."""
        for place in {(queue, None), (queue, key)}:
            self.work[place] += 1
            self.begun[place] += int(begins)

    def full(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Queues and keys of which no task may begin now."""
        queues = [name for name in self.queues if not self._has(name, None, begins=True)]
        known = dict.fromkeys((*self.work, *self.begun))
        keys = [
            (queue, key)
            for queue, key in known
            if key is not None and queue not in queues and not self._has(queue, key, begins=True)
        ]
        return queues, keys[:_MOST_EXCLUDED]


@dataclass(frozen=True)
class _Search:
    """Looks for tasks of some queues.

    Args:
        connection: For reading.
        names: The queues, as parameters.
        owners: Who lives, as parameters.
        now: The time by which heartbeats are compared.
        without: The ids of tasks that are passed over.
    """

    connection: Connection
    names: Mapping[str, str]
    owners: Mapping[str, str]
    now: float
    without: Collection[str]

    @property
    def _queues(self) -> str:
        return f"t.queue IN ({', '.join(f':{name}' for name in self.names)})"

    def _lives(self, column: str) -> str:
        return f"{column} IN ({', '.join(f':{name}' for name in self.owners) or 'NULL'})"

    def _ask(self, sql: str, **values: Any) -> list[SqlRow]:
        found = self.connection.execute(sql, {**self.names, **self.owners, **values})
        return [row for row in found if row[1] not in self.without]

    def at_work(self) -> list[tuple[str, str | None, int]]:
        """How many tasks are at work, by queue and key."""
        told: list[tuple[str, str | None, int]] = []
        for of in (f"t.state = 'running' AND {self._lives('t.owner')}", self._lives("t.taken_by")):
            rows = self.connection.execute(
                f"SELECT t.queue, t.limit_key, COUNT(*) FROM delf_tasks AS t "  # noqa: S608 - own names
                f"WHERE {of} AND {self._queues} GROUP BY t.queue, t.limit_key",
                {**self.names, **self.owners},
            )
            told += [(str(queue), key, int(count)) for queue, key, count in rows]
        return told

    def count_begun(self, room: _Room, queue: str, limits: QueueLimits) -> None:
        """Count what began of late, where there is a limit for that."""
        for rate, by_key in ((limits.per_second, False), (limits.key_per_second, True)):
            if rate is None:
                continue
            rows = self.connection.execute(
                "SELECT t.limit_key, COUNT(*) FROM delf_tasks AS t WHERE t.queue = :queue "
                "AND t.begun_at > :since AND t.begun_at <= :now GROUP BY t.limit_key",
                {"queue": queue, "since": self.now - _window(rate)[1], "now": self.now},
            )
            for key, count in rows:
                if not by_key:
                    room.begun[queue, None] += int(count)
                elif key is not None:
                    room.begun[queue, str(key)] += int(count)

    def interrupted(self) -> list[SqlRow]:
        """Tasks whose process is gone."""
        return self._ask(
            "SELECT t.id, t.task_id, t.queue, t.limit_key FROM delf_tasks AS t "  # noqa: S608 - own names
            f"WHERE t.state = 'running' AND {self._queues} "
            f"AND ({self._lives('t.owner')}) IS NOT TRUE "
            f"AND ({self._lives('t.taken_by')}) IS NOT TRUE ORDER BY t.priority, t.id LIMIT 1000"
        )

    def waiting(self, room: _Room, after: SqlRow | None, size: int) -> list[SqlRow]:
        """A page of tasks that wait and may begin."""
        where, values = [""], dict[str, Any](now=self.now, size=size)
        queues, keys = room.full()
        for number, name in enumerate(queues):
            where.append(f"t.queue <> :full{number}")
            values[f"full{number}"] = name
        for number, (queue, key) in enumerate(keys):
            where.append(
                f"NOT (t.queue = :at{number} AND COALESCE(t.limit_key, '') = :key{number})"
            )
            values |= {f"at{number}": queue, f"key{number}": key}
        if after is not None:
            where.append("(t.priority > :priority OR (t.priority = :priority AND t.id > :id))")
            values |= {"priority": after[4], "id": after[0]}
        for number, name in enumerate(sorted(self.without)):
            where.append(f"t.task_id <> :without{number}")
            values[f"without{number}"] = name
        return self._ask(
            "SELECT t.id, t.task_id, t.queue, t.limit_key, t.priority FROM delf_tasks AS t "  # noqa: S608 - own names
            f"WHERE t.state = 'queued' AND {self._queues} "
            "AND (t.not_before IS NULL OR t.not_before <= :now) "
            f"AND ({self._lives('t.taken_by')}) IS NOT TRUE{' AND '.join(where)} "
            "ORDER BY t.priority, t.id LIMIT :size",
            **values,
        )
