"""Queries of the index: search for tasks, and statistics."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delf.errors import DelfError
from delf.protocols.journal import filterable_fields
from delf.protocols.search import FigureBy, Figures, Found, FoundTask, Place, TaskFilter
from delf.types import TaskState
from delf.values.encoding import to_jsonable
from delf_journal_sql.blobs import blob_data
from delf_journal_sql.codec import unpack
from delf_journal_sql.database import Connection, Database, SqlRow
from delf_journal_sql.index import (
    SEQ_BITS,
    behind,
    event_at,
    is_there,
    normal,
    place_of,
    texts_of,
    words_of,
)
from delf_journal_sql.owners import COLUMNS, looking
from delf_journal_sql.schema import OTHER_NAMES
from delf_journal_sql.store import EVENT, TASK, in_state, key_of, stored_task

_AROUND: Final = 80
"""The characters of context around a match in an excerpt."""
_QUARTER: Final = 900
"""The seconds in a quarter of an hour: days of all time zones start at multiples of it."""
_HITS: Final = 2_000
"""The number of matching keys that are read at a time."""
_SUMS: Final = (
    "SUM(u.calls) AS calls, SUM(u.failed) AS failed, SUM(u.questions) AS questions, "
    "SUM(u.waited + u.waiting * COALESCE(t.finished_at, :now)) AS waited, SUM(u.input) AS input, "
    "SUM(u.cached) AS cached, SUM(u.output) AS output, SUM(u.cost) AS cost, "
    "SUM(u.unpriced) AS unpriced"
)


def terms_of(text: str) -> Sequence[tuple[str, ...]]:
    """Split a query into phrases of consecutive words; empty without words.

    A text in double quotes is one phrase; other words are phrases of their own.

    Args:
        text: The query.
    """
    terms: list[tuple[str, ...]] = []
    for number, part in enumerate(text.split('"')):
        if number % 2:
            terms.append(tuple(words_of(part)))
        else:  # `ada@example.org` is one term of three words
            terms += [tuple(words_of(chunk)) for chunk in part.split()]
    return [term for term in terms if term]


def find(
    connection: Connection,
    database: Database,
    wanted: TaskFilter,
    *,
    limit: int,
    before: str | None,
) -> Found:
    """Return the newest tasks that match a filter; see ``SharedJournal.search``."""
    unindexed = behind(connection)
    terms = terms_of(wanted.text or "")
    if not is_there(connection) or (wanted.text and not terms):
        return Found(behind=unindexed)
    now = database.now(connection)
    end = None if before is None else key_of(connection, before)
    matches: list[tuple[FoundTask, int | None]] = []
    if terms:
        for places in _places(connection, database, terms, end):
            # "1 = 0": no task of this batch has all phrases.
            conditions = [f"i.task IN ({', '.join(map(str, places))})"] if places else ["1 = 0"]
            page = _newest(connection, now, wanted, conditions, limit + 1 - len(matches))
            matches += [(task, places[key]) for key, task in page]
            if len(matches) > limit:
                break
    else:
        conditions = [] if end is None else [f"i.task < {end}"]
        matches = [
            (task, None) for _, task in _newest(connection, now, wanted, conditions, limit + 1)
        ]
    tasks = [
        task if place is None else _with_excerpt(connection, place, task, terms)
        for task, place in matches[:limit]
    ]
    return Found(tasks=tuple(tasks), more=len(matches) > limit, behind=unindexed)


def _newest(
    connection: Connection, now: float, wanted: TaskFilter, conditions: Sequence[str], limit: int
) -> list[tuple[int, FoundTask]]:
    """Return the newest tasks that match a filter and further conditions, with their keys."""
    where, values = _conditions(connection, now, wanted)
    # Newest first by CROSS JOIN's fixed order; otherwise SQLite would sort all matching tasks.
    rows = connection.execute(
        f"SELECT t.id, i.person, {TASK}, {COLUMNS} "  # noqa: S608 - own names
        "FROM delf_index_tasks AS i CROSS JOIN delf_tasks AS t "
        "LEFT JOIN delf_owners AS o ON o.owner = t.owner "
        f"{_where(['t.id = i.task', *where, *conditions])} ORDER BY i.task DESC LIMIT :limit",
        {**values, "limit": limit},
    )
    is_alive = looking(now)
    return [
        (int(row.id), FoundTask(task=stored_task(row, is_alive), person=row.person)) for row in rows
    ]


def _places(
    connection: Connection, database: Database, terms: Sequence[Sequence[str]], end: int | None
) -> Iterator[Mapping[int, int]]:
    """Yield batches of tasks that contain all phrases, newest first.

    Each task is mapped to the key of its first event that contains all phrases.
    """
    values: dict[str, Any] = {"query": database.words.query(terms), "limit": _HITS}
    places: dict[int, int] = {}
    while True:
        if end is not None:
            values["end"] = place_of(end)
        rows = connection.execute(
            f"SELECT rowid FROM delf_index_words WHERE {database.words.match} "  # noqa: S608 - own names
            f"{'' if end is None else 'AND rowid < :end '}ORDER BY rowid DESC LIMIT :limit",
            values,
        )
        for (place,) in rows:  # a task's first event overwrites its later ones
            places[event_at(place)[0]] = place
        if len(rows) < _HITS:
            yield places
            return
        # The last task may have more keys beyond the limit: read it again, from its beginning.
        end = event_at(rows[-1][0])[0] + (1 if len(places) > 1 else 0)
        if len(places) > 1:
            places.pop(end - 1)
        yield places
        places = {}


def figures(
    connection: Connection, database: Database, by: FigureBy, wanted: TaskFilter, zone: str
) -> list[Figures]:
    """Compute the statistics of tasks that match a filter, by group.

    Raises:
        DelfError: If the time zone is unknown.
    """
    time_zone = zone_of(zone)
    if not is_there(connection):
        return []
    now = database.now(connection)
    where, values = _conditions(connection, now, wanted)
    terms = terms_of(wanted.text or "")
    if wanted.text and not terms:
        return []
    if terms:
        where.append(
            f"t.id IN (SELECT rowid >> {SEQ_BITS} FROM delf_index_words "  # noqa: S608 - own names
            f"WHERE {database.words.match})"
        )
        values["query"] = database.words.query(terms)
    quarter = database.words.whole.format(f"t.started_at / {_QUARTER}")
    match by:
        case "day":
            rows = _of_tasks(connection, quarter, where, values, now)
            return _by_day(rows, time_zone)
        case "person":
            return _of_tasks(connection, "i.person", where, values, now)
        case "model":
            return _of_uses(connection, "u.name", [*where, "u.kind = 'model'"], values, now)
        case "action":
            return _of_uses(connection, "u.name", [*where, "u.kind = 'action'"], values, now)
        case "connection":
            return _of_uses(connection, "u.connection", [*where, "u.kind = 'action'"], values, now)


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its IANA name.

    Raises:
        DelfError: If the time zone is unknown.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"no time zone {name[:60]!r} is known; names are as Europe/Berlin"
        raise DelfError(message) from None


def _of_tasks(
    connection: Connection,
    group: str,
    where: Sequence[str],
    values: Mapping[str, Any],
    now: float,
) -> list[Figures]:
    """Compute statistics for groups of whole tasks."""
    source = "FROM delf_tasks AS t JOIN delf_index_tasks AS i ON i.task = t.id"
    rows = connection.execute(
        f"SELECT {group} AS one, SUM(1 - i.is_child) AS tasks, "
        f"SUM({_ended(TaskState.FAILED)}) AS failed, SUM({_ended(TaskState.STOPPED)}) AS stopped "
        f"{source} {_where(where)} GROUP BY 1 ORDER BY 1",
        values,
    )
    figures = {
        row.one: Figures(
            group=str(row.one),
            tasks=int(row.tasks),
            failed=int(row.failed),
            stopped=int(row.stopped),
        )
        for row in rows
    }
    sums = connection.execute(
        f"SELECT {group} AS one, u.kind, {_SUMS} {source} "
        f"JOIN delf_index_uses AS u ON u.task = t.id {_where(where)} GROUP BY 1, 2",
        {**values, "now": now},
    )
    for row in sums:
        add = _money(row) if row.kind == "model" else _calls(row)
        figures[row.one] = replace(figures[row.one], **add)
    return list(figures.values())


def _of_uses(
    connection: Connection,
    group: str,
    where: Sequence[str],
    values: Mapping[str, Any],
    now: float,
) -> list[Figures]:
    """Compute statistics by model or action; a task counts in each group that it used."""
    source = (
        "FROM delf_index_uses AS u JOIN delf_tasks AS t ON t.id = u.task "
        f"JOIN delf_index_tasks AS i ON i.task = t.id {_where(where)}"
    )
    each = (
        f"SELECT {group} AS one, t.id, MAX(1 - i.is_child) AS own, "
        f"MAX({_ended(TaskState.FAILED)}) AS failed, MAX({_ended(TaskState.STOPPED)}) AS stopped "
        f"{source} GROUP BY 1, 2"
    )
    tasks = connection.execute(
        f"SELECT one, SUM(own), SUM(failed), SUM(stopped) FROM ({each}) AS used "  # noqa: S608 - own names
        "GROUP BY 1 ORDER BY 1",
        values,
    )
    sums = connection.execute(
        f"SELECT {group} AS one, {_SUMS} {source} GROUP BY 1",
        {**values, "now": now},
    )
    numbers = {row.one: row for row in sums}
    return [
        Figures(
            group=str(name),
            tasks=int(own),
            failed=int(failed),
            stopped=int(stopped),
            **_calls(numbers[name]),
            **_money(numbers[name]),
        )
        for name, own, failed, stopped in tasks
    ]


def _ended(state: TaskState) -> str:
    return f"CASE WHEN t.state = '{state}' THEN 1 - i.is_child ELSE 0 END"


def _calls(numbers: SqlRow) -> dict[str, Any]:
    return {
        "calls": int(numbers.calls),
        "failed_calls": int(numbers.failed),
        "questions": int(numbers.questions),
        "waited_seconds": round(max(float(numbers.waited), 0.0), 3),
    }


def _money(numbers: SqlRow) -> dict[str, Any]:
    return {
        "input_tokens": int(numbers.input),
        "cached_tokens": int(numbers.cached),
        "output_tokens": int(numbers.output),
        "cost_usd": float(numbers.cost),
        "unpriced": int(numbers.unpriced),
    }


_ADDED: Final = tuple(name for name in Figures.__dataclass_fields__ if name != "group")


def _by_day(slots: Sequence[Figures], zone: tzinfo) -> list[Figures]:
    days: dict[str, Figures] = {}
    for slot in slots:
        day = datetime.fromtimestamp(int(slot.group) * _QUARTER, zone).date().isoformat()
        figures_of_day = days.setdefault(day, Figures(group=day))
        added = {name: getattr(figures_of_day, name) + getattr(slot, name) for name in _ADDED}
        days[day] = replace(figures_of_day, **added)
    return sorted(days.values(), key=lambda one: one.group)


def _where(conditions: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _conditions(
    connection: Connection, now: float, wanted: TaskFilter
) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions of a filter, with their parameters; callers add its ``text``."""
    where: list[str] = []
    values: dict[str, Any] = {}
    if wanted.state is not None:
        condition, named = in_state(connection, now, wanted.state)
        where.append(condition)
        values |= named
    used = {
        "connection": "used.connection = :connection",
        "action": "used.kind = 'action' AND used.name = :action",
        "model": "used.kind = 'model' AND used.name = :model",
    }
    for name, condition in used.items():
        if (value := getattr(wanted, name)) is not None:
            values[name] = value
            where.append(
                "i.task IN (SELECT used.task FROM delf_index_uses AS used "  # noqa: S608 - own names
                f"WHERE {condition})"
            )
    plain = {
        "person": "i.person = :person",
        "since": "t.started_at >= :since",
        "until": "t.started_at < :until",
        "least_cost": "t.cost_usd >= :least_cost",
    }
    for name, condition in plain.items():
        if (value := getattr(wanted, name)) is not None:
            values[name] = value
            where.append(condition)
    for name in filterable_fields().keys() & wanted.fields.keys():
        values[f"of_{name}"] = wanted.fields[name]
        where.append(f"t.{OTHER_NAMES.get(name, name)} = :of_{name}")
    if wanted.keys is not None:
        keys = {f"key{number}": key for number, key in enumerate(sorted(wanted.keys))}
        values |= keys
        where.append(f"t.limit_key IN ({', '.join(f':{name}' for name in keys) or 'NULL'})")
    return where, values


# -- excerpts ---------------------------------------------------------------------------------


def _with_excerpt(
    connection: Connection, place: int, task: FoundTask, terms: Sequence[Sequence[str]]
) -> FoundTask:
    """Return a found task with an excerpt around the words."""
    key, seq = event_at(place)
    rows = connection.execute(
        f"SELECT {EVENT} FROM delf_events AS e WHERE e.task = :task AND e.seq = :seq",  # noqa: S608 - own names
        {"task": key, "seq": seq},
    )
    if not rows:
        return task
    blob = functools.partial(blob_data, connection, key)
    event = unpack(task.task.task_id, rows[0], blob)
    data = {name: getattr(event, name, None) for name in _TEXT_FIELDS}
    texts = texts_of(type(event).__name__, cast("Mapping[str, Any]", to_jsonable(data)))
    part, text, at = _best(texts, terms)
    excerpt = text[max(at - _AROUND, 0) : at + _AROUND]
    return replace(task, place=part, seq=seq, excerpt=" ".join(excerpt.split()))


_TEXT_FIELDS: Final = ("task", "code", "action", "description", "arguments", "text", "error")


def _best(
    texts: Sequence[tuple[Place, str]], terms: Sequence[Sequence[str]]
) -> tuple[Place, str, int]:
    """Return the text with the first match, and the position of the match."""
    for term in terms:
        for place, text in texts:
            at = normal(text).find(term[0])
            if at >= 0:
                return place, text, min(at, len(text))
    return *texts[0], 0
