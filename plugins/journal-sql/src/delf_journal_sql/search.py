"""Queries of the index: search for tasks, and statistics."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delf.errors import DelfError, UnreadableEventError
from delf.protocols.search import FigureBy, Figures, Found, FoundTask, Place, TaskFilter
from delf.types import TaskState
from delf.values.encoding import to_jsonable
from delf_journal_sql.blobs import blob_data
from delf_journal_sql.codec import unpack
from delf_journal_sql.database import Connection, Database
from delf_journal_sql.index import (
    SEQ_BITS,
    count_unindexed_events,
    event_at,
    index_exists,
    index_key_of,
    normal,
    texts_of,
    words_of,
)
from delf_journal_sql.owners import COLUMNS, SILENCE_SECONDS, IsAlive, cached_is_alive
from delf_journal_sql.statements import SqlRow
from delf_journal_sql.store import EVENT, TASK, in_state, key_of, of_users, stored_task, with_fields

# The number of characters before and after a match in an excerpt.
_EXCERPT_MARGIN: Final = 80
# A quarter of an hour in seconds; the offset of every time zone is a multiple of this.
_QUARTER_HOUR_SECONDS: Final = 900
# The number of matching index keys that are read at a time.
_BATCH_SIZE: Final = 2_000
# The time until which a pending request of a task has waited: now if a process works on the task,
# otherwise the end of the task, the last heartbeat of its process, or its last event.
_WAITED_UNTIL: Final = (
    "COALESCE(t.finished_at, (SELECT CASE "  # noqa: S608 - only a number of this package
    f"WHEN o.heartbeat > :now - {SILENCE_SECONDS} THEN :now ELSE o.heartbeat END "
    "FROM delf_owners AS o WHERE o.owner = t.owner), "
    "(SELECT MAX(e.at) FROM delf_events AS e WHERE e.task = t.id))"
)
_SUMS: Final = (
    "SUM(u.calls) AS calls, SUM(u.failed) AS failed, SUM(u.questions) AS questions, "
    f"SUM(u.waited + u.waiting * {_WAITED_UNTIL}) AS waited, SUM(u.input) AS input, "
    "SUM(u.cached) AS cached, SUM(u.output) AS output, SUM(u.cost) AS cost, "
    "SUM(u.unpriced) AS unpriced"
)


def terms_of(text: str) -> Sequence[tuple[str, ...]]:
    """Split a search text into terms, each a tuple of words that must follow each other.

    A text in double quotes is one term. Any other text is split at blanks; the term of
    ``ada@example.org`` is ``("ada", "example", "org")``.
    """
    terms: list[tuple[str, ...]] = []
    for number, part in enumerate(text.split('"')):
        is_quoted = number % 2 == 1
        chunks = [part] if is_quoted else part.split()
        terms += [tuple(words_of(chunk)) for chunk in chunks]
    return [term for term in terms if term]


def find(
    connection: Connection,
    database: Database,
    wanted: TaskFilter,
    *,
    limit: int,
    before: str | None,
) -> Found:
    """Return the newest tasks that match a filter.

    Args:
        connection: A connection for reading.
        database: The database, for its SQL dialect.
        wanted: The filter.
        limit: The maximum number of tasks.
        before: The id of a task, to return only older tasks; None for all.
    """
    unindexed = count_unindexed_events(connection)
    terms = terms_of(wanted.text or "")
    has_only_punctuation = bool(wanted.text) and not terms
    if has_only_punctuation or not index_exists(connection):
        return Found(behind=unindexed)
    is_alive = cached_is_alive(connection.now())
    before_key = None if before is None else key_of(connection, before)
    wanted_count = limit + 1  # the last of these tasks only shows that there are more
    if terms:
        tasks = _newest_tasks_with_terms(
            connection, database, is_alive, wanted, terms, before_key, wanted_count
        )
    else:
        conditions = [] if before_key is None else [f"i.task < {before_key}"]
        newest = _newest_tasks(connection, is_alive, wanted, conditions, wanted_count)
        tasks = [task for _, task in newest]
    return Found(tasks=tuple(tasks[:limit]), more=len(tasks) > limit, behind=unindexed)


def _newest_tasks_with_terms(
    connection: Connection,
    database: Database,
    is_alive: IsAlive,
    wanted: TaskFilter,
    terms: Sequence[Sequence[str]],
    before_task: int | None,
    limit: int,
) -> list[FoundTask]:
    """Return the newest tasks that match a filter and have an event with all search terms.

    Each task has an excerpt of this event. For the arguments see :func:`_newest_tasks` and
    :func:`_matching_events`.
    """
    tasks: list[FoundTask] = []
    # Each batch has older tasks than the batch before.
    for event_by_task in _matching_events(connection, database, terms, before_task):
        is_in_batch = f"i.task IN ({', '.join(map(str, event_by_task))})"
        missing = limit - len(tasks)
        for key, task in _newest_tasks(connection, is_alive, wanted, [is_in_batch], missing):
            tasks.append(_with_excerpt(connection, event_by_task[key], task, terms))
        if len(tasks) == limit:
            break
    return tasks


def _newest_tasks(
    connection: Connection,
    is_alive: IsAlive,
    wanted: TaskFilter,
    conditions: Sequence[str],
    limit: int,
) -> list[tuple[int, FoundTask]]:
    """Return the database keys and records of the newest tasks that meet all conditions.

    Args:
        connection: A connection for reading.
        is_alive: Checks if a process is alive.
        wanted: The filter, whose ``text`` is ignored.
        conditions: Additional SQL conditions.
        limit: The maximum number of tasks.
    """
    where, values = _conditions(connection, is_alive, wanted)
    all_conditions = _where(["t.id = i.task", *where, *conditions])
    # With CROSS JOIN, SQLite reads delf_index_tasks first, in the order of ``i.task``, and stops at
    # the limit. With a plain JOIN, SQLite might read and sort all matching tasks.
    rows = connection.execute(
        f"SELECT t.id, i.person, {TASK}, {COLUMNS} "  # noqa: S608 - only names of this module
        "FROM delf_index_tasks AS i CROSS JOIN delf_tasks AS t "
        "LEFT JOIN delf_owners AS o ON o.owner = t.owner "
        f"{all_conditions} ORDER BY i.task DESC LIMIT :limit",
        {**values, "limit": limit},
    )
    return [
        (int(row.id), FoundTask(task=stored_task(row, is_alive), person=row.person)) for row in rows
    ]


def _matching_events(
    connection: Connection,
    database: Database,
    terms: Sequence[Sequence[str]],
    before_task: int | None,
) -> Iterator[Mapping[int, int]]:
    """Yield batches of the tasks that have an event with all search terms, newest tasks first.

    A batch maps the database key of a task to the index key of the task's earliest matching event.
    If a task has more than ``_BATCH_SIZE`` matching events, the earliest of the newest
    ``_BATCH_SIZE`` events is used.

    Args:
        connection: A connection for reading.
        database: The database, for its SQL dialect.
        terms: The search terms, each as words that must follow each other.
        before_task: The database key of a task, to yield only older tasks; None for all.
    """
    query = database.text_search.query(terms)
    while True:
        index_keys = _matching_index_keys(connection, database, query, before_task)
        # The keys run from the newest to the earliest event, and the last key of a task replaces
        # the others. So each task keeps its earliest event.
        event_by_task = {event_at(index_key)[0]: index_key for index_key in index_keys}
        is_last_batch = len(index_keys) < _BATCH_SIZE
        if not is_last_batch and len(event_by_task) > 1:
            # The oldest task may have earlier events beyond the batch: the next batch begins with
            # this task.
            del event_by_task[min(event_by_task)]
        if event_by_task:
            yield event_by_task
        if is_last_batch:
            return
        before_task = min(event_by_task)


def _matching_index_keys(
    connection: Connection, database: Database, query: str, before_task: int | None
) -> list[int]:
    """Return the index keys of the newest ``_BATCH_SIZE`` events that match a query, newest first.

    Args:
        connection: A connection for reading.
        database: The database, for its SQL dialect.
        query: The query in the database's form.
        before_task: The database key of a task, to return only events of older tasks; None for all.
    """
    condition = ""
    values: dict[str, Any] = {"query": query, "limit": _BATCH_SIZE}
    if before_task is not None:
        # The events of older tasks have lower index keys.
        condition = "AND rowid < :first_of_task "
        values["first_of_task"] = index_key_of(before_task)
    rows = connection.execute(
        f"SELECT rowid FROM delf_index_words WHERE {database.text_search.match} "  # noqa: S608 - only names of this module
        f"{condition}ORDER BY rowid DESC LIMIT :limit",
        values,
    )
    return [int(row.rowid) for row in rows]


def figures(
    connection: Connection, database: Database, by: FigureBy, wanted: TaskFilter, zone: str
) -> list[Figures]:
    """Compute the statistics of the tasks that match a filter, by group.

    Raises:
        DelfError: If the time zone is unknown.
    """
    time_zone = zone_of(zone)
    terms = terms_of(wanted.text or "")
    has_only_punctuation = bool(wanted.text) and not terms
    if has_only_punctuation or not index_exists(connection):
        return []
    now = connection.now()
    where, values = _conditions(connection, cached_is_alive(now), wanted)
    if terms:
        # The upper bits of an index key, such as ``rowid``, are the database key of the task.
        where.append(
            f"t.id IN (SELECT rowid >> {SEQ_BITS} FROM delf_index_words "  # noqa: S608 - only names of this module
            f"WHERE {database.text_search.match})"
        )
        values["query"] = database.text_search.query(terms)
    match by:
        case "day":
            # In every time zone, midnight is at the beginning of a quarter of an hour in UTC.
            # So the figures of a quarter of an hour belong to one day.
            quarter_hour = database.truncation.format(f"t.started_at / {_QUARTER_HOUR_SECONDS}")
            rows = _figures_by_task(connection, quarter_hour, where, values, now)
            return _by_day(rows, time_zone)
        case "person":
            return _figures_by_task(connection, "i.person", where, values, now)
        case "model":
            return _figures_by_use(connection, "u.name", [*where, "u.kind = 'model'"], values, now)
        case "action":
            return _figures_by_use(connection, "u.name", [*where, "u.kind = 'action'"], values, now)
        case "connection":
            return _figures_by_use(
                connection, "u.connection", [*where, "u.kind = 'action'"], values, now
            )


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


def _figures_by_task(
    connection: Connection,
    group_expression: str,
    where: Sequence[str],
    values: Mapping[str, Any],
    now: float,
) -> list[Figures]:
    """Compute statistics for groups of tasks, where each task is in exactly one group.

    Only top-level tasks are counted as tasks. Calls and costs include those of child tasks.

    Args:
        connection: A connection for reading.
        group_expression: The SQL expression of a task's group.
        where: The SQL conditions that the tasks must meet.
        values: The parameters of the conditions.
        now: The current time, for requests that still wait.
    """
    source = "FROM delf_tasks AS t JOIN delf_index_tasks AS i ON i.task = t.id"
    # ``1 - i.is_child`` is 1 for a top-level task.
    rows = connection.execute(
        f"SELECT {group_expression} AS group_key, SUM(1 - i.is_child) AS tasks, "
        f"SUM({_is_top_level_in(TaskState.FAILED)}) AS failed, "
        f"SUM({_is_top_level_in(TaskState.STOPPED)}) AS stopped "
        f"{source} {_where(where)} GROUP BY 1 ORDER BY 1",
        values,
    )
    figures_by_group = {
        row.group_key: Figures(
            group=str(row.group_key),
            tasks=int(row.tasks),
            failed=int(row.failed),
            stopped=int(row.stopped),
        )
        for row in rows
    }
    # A row of delf_index_uses has the sums of a task's calls of one action or one model.
    sums = connection.execute(
        f"SELECT {group_expression} AS group_key, u.kind, {_SUMS} {source} "
        f"JOIN delf_index_uses AS u ON u.task = t.id {_where(where)} GROUP BY 1, 2",
        {**values, "now": now},
    )
    for row in sums:
        figures_of_kind = _cost_figures(row) if row.kind == "model" else _call_figures(row)
        figures = figures_by_group[row.group_key]
        figures_by_group[row.group_key] = replace(figures, **figures_of_kind)
    return list(figures_by_group.values())


def _figures_by_use(
    connection: Connection,
    group_expression: str,
    where: Sequence[str],
    values: Mapping[str, Any],
    now: float,
) -> list[Figures]:
    """Compute statistics by model, action or connection.

    A task counts once for each model, action or connection that it used. Only top-level tasks are
    counted as tasks. Calls and costs include those of child tasks.

    Args:
        connection: A connection for reading.
        group_expression: The SQL expression of a use's group. A use is a row about one task and
            one model or action.
        where: The SQL conditions that the tasks must meet.
        values: The parameters of the conditions.
        now: The current time, for requests that still wait.
    """
    source = (
        "FROM delf_index_uses AS u JOIN delf_tasks AS t ON t.id = u.task "
        f"JOIN delf_index_tasks AS i ON i.task = t.id {_where(where)}"
    )
    counts = connection.execute(_task_counts_by_use(group_expression, source), values)
    # Each use has its own calls and costs, so sum these over all rows.
    sums = connection.execute(
        f"SELECT {group_expression} AS group_key, {_SUMS} {source} GROUP BY 1",
        {**values, "now": now},
    )
    sums_by_group = {row.group_key: row for row in sums}
    figures: list[Figures] = []
    for row in counts:
        sums_of_group = sums_by_group[row.group_key]
        figures.append(
            Figures(
                group=str(row.group_key),
                tasks=int(row.tasks),
                failed=int(row.failed),
                stopped=int(row.stopped),
                **_call_figures(sums_of_group),
                **_cost_figures(sums_of_group),
            )
        )
    return figures


def _task_counts_by_use(group_expression: str, source: str) -> str:
    """Return an SQL query that counts, for each group of uses, the top-level tasks with such a use.

    Args:
        group_expression: The SQL expression of the group of a use.
        source: The FROM and WHERE clauses of a query with a row for each use. For the task of a
            row, ``t`` is the row in ``delf_tasks``, and ``i`` the row in ``delf_index_tasks``.
    """
    # A task that used two actions of a connection has two rows in the source, but counts once. So
    # the inner query has one row for each group and task. MAX takes the value from any row of the
    # task: all have the same.
    tasks_by_group = (
        f"SELECT {group_expression} AS group_key, t.id, MAX(1 - i.is_child) AS is_top_level, "
        f"MAX({_is_top_level_in(TaskState.FAILED)}) AS failed, "
        f"MAX({_is_top_level_in(TaskState.STOPPED)}) AS stopped "
        f"{source} GROUP BY 1, 2"
    )
    return (
        "SELECT group_key, SUM(is_top_level) AS tasks, SUM(failed) AS failed, "  # noqa: S608 - only names of this module
        f"SUM(stopped) AS stopped FROM ({tasks_by_group}) AS used GROUP BY 1 ORDER BY 1"
    )


def _is_top_level_in(state: TaskState) -> str:
    """Return an SQL expression that is 1 for a top-level task in a state, 0 for any other task.

    The query must name the table ``delf_tasks`` as ``t``, and ``delf_index_tasks`` as ``i``.
    """
    return f"CASE WHEN t.state = '{state}' THEN 1 - i.is_child ELSE 0 END"


def _call_figures(numbers: SqlRow) -> dict[str, Any]:
    """Return the statistics of calls, with the number and waiting time of approval requests.

    A waiting time that is negative, because a clock was set back, counts as 0.
    """
    return {
        "calls": int(numbers.calls),
        "failed_calls": int(numbers.failed),
        "questions": int(numbers.questions),
        "waited_seconds": round(max(float(numbers.waited), 0.0), 3),
    }


def _cost_figures(numbers: SqlRow) -> dict[str, Any]:
    return {
        "input_tokens": int(numbers.input),
        "cached_tokens": int(numbers.cached),
        "output_tokens": int(numbers.output),
        "cost_usd": float(numbers.cost),
        "unpriced": int(numbers.unpriced),
    }


_SUMMED_FIELDS: Final = tuple(name for name in Figures.__dataclass_fields__ if name != "group")


def _by_day(figures_by_quarter_hour: Sequence[Figures], zone: tzinfo) -> list[Figures]:
    """Add up the figures of quarter hours for each day of a time zone.

    In the argument, ``Figures.group`` is the number of quarter hours since 1970 (UTC). In the
    result, ``Figures.group`` is the day.
    """
    days: dict[str, Figures] = {}
    for figures in figures_by_quarter_hour:
        start = int(figures.group) * _QUARTER_HOUR_SECONDS
        day = datetime.fromtimestamp(start, zone).date().isoformat()
        figures_of_day = days.setdefault(day, Figures(group=day))
        sums = {
            name: getattr(figures_of_day, name) + getattr(figures, name) for name in _SUMMED_FIELDS
        }
        days[day] = replace(figures_of_day, **sums)
    return sorted(days.values(), key=lambda figures: figures.group)


def _where(conditions: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _conditions(
    connection: Connection, is_alive: IsAlive, wanted: TaskFilter
) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions for a filter without its ``text``, and the SQL parameters.

    The query must name the table ``delf_tasks`` as ``t``, and ``delf_index_tasks`` as ``i``.
    """
    where: list[str] = []
    values: dict[str, Any] = {}
    if wanted.state is not None:
        condition, parameters = in_state(connection, is_alive, wanted.state)
        where.append(condition)
        values |= parameters
    condition_by_use = {
        "connection": "used.connection = :connection",
        "action": "used.kind = 'action' AND used.name = :action",
        "model": "used.kind = 'model' AND used.name = :model",
    }
    for name, condition in condition_by_use.items():
        if (value := getattr(wanted, name)) is not None:
            values[name] = value
            where.append(
                "i.task IN (SELECT used.task FROM delf_index_uses AS used "  # noqa: S608 - only names of this module
                f"WHERE {condition})"
            )
    condition_by_field = {
        "person": "i.person = :person",
        "since": "t.started_at >= :since",
        "until": "t.started_at < :until",
        "least_cost": "t.cost_usd >= :least_cost",
    }
    for name, condition in condition_by_field.items():
        if (value := getattr(wanted, name)) is not None:
            values[name] = value
            where.append(condition)
    conditions_of_fields, parameters = with_fields(wanted.fields)
    where += conditions_of_fields
    values |= parameters
    if wanted.users is not None:
        condition, parameters = of_users(wanted.users)
        where.append(condition)
        values |= parameters
    return where, values


# -- excerpts ---------------------------------------------------------------------------------


def _with_excerpt(
    connection: Connection, index_key: int, found: FoundTask, terms: Sequence[Sequence[str]]
) -> FoundTask:
    """Return a found task with an excerpt around the first match of a search term."""
    task_key, seq = event_at(index_key)
    rows = connection.execute(
        f"SELECT {EVENT} FROM delf_events AS e WHERE e.task = :task AND e.seq = :seq",  # noqa: S608 - only names of this module
        {"task": task_key, "seq": seq},
    )
    if not rows:
        return found
    load_blob = functools.partial(blob_data, connection, task_key)
    try:
        event = unpack(found.task.task_id, rows[0], load_blob)
    except UnreadableEventError:  # the words were indexed before the damage
        return found
    data = {name: getattr(event, name, None) for name in _TEXT_FIELDS}
    texts = texts_of(type(event).__name__, cast("Mapping[str, Any]", to_jsonable(data)))
    place, excerpt = _excerpt_of(texts, terms)
    return replace(found, place=place, event=seq, excerpt=" ".join(excerpt.split()))


_TEXT_FIELDS: Final = ("task", "code", "action", "description", "arguments", "text", "error")


def _excerpt_of(
    texts: Sequence[tuple[Place, str]], terms: Sequence[Sequence[str]]
) -> tuple[Place, str]:
    """Return an excerpt of an event, and its place in the event.

    The excerpt surrounds the first occurrence of a term's first word, even if the whole term occurs
    only later. If no text has such a word, the excerpt is the beginning of the first text.

    Args:
        texts: The texts of an event, each with its place in the event.
        terms: The search terms, each as a sequence of words.
    """
    for term in terms:
        first_word = term[0]
        for place, text in texts:
            position = normal(text).find(first_word)
            if position >= 0:
                position = min(position, len(text))  # a text may be shorter than its normal form
                start = max(position - _EXCERPT_MARGIN, 0)
                return place, text[start : position + _EXCERPT_MARGIN]
    place, text = texts[0]
    return place, text[:_EXCERPT_MARGIN]
