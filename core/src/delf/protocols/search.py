"""Full-text search and statistics over all tasks of a journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Literal

from delf.protocols.journal import TaskRecord
from delf.records import dataclass
from delf.types import TaskState

FigureBy = Literal["day", "person", "connection", "action", "model"]
Place = Literal["task", "script", "call", "answer", "error"]
"""The part of a task in which the search words were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Conditions for tasks; None matches any.

    Args:
        text: Words to search for in the task, its scripts, calls with arguments, answer and errors.
            All words must occur in one of these texts; a phrase in double quotes must occur as
            such. The last word matches as a prefix.
        person: The name of the person who submitted the task.
        connection: A connection that the task called.
        action: An action that the task called, such as ``shop.orders``.
        model: A model that the task asked.
        state: The state, as in :class:`delf.protocols.journal.TaskRecord`.
        since: The earliest start as Unix time.
        until: The Unix time before which the task started.
        least_cost: The minimum cost of the task in USD.
        users: Users, as in :attr:`delf.protocols.journal.TaskRecord.user`. Tasks of any of these
            users match.
        fields: The values of fields of the record, by their names in
            :func:`delf.protocols.journal.filterable_fields`.
    """

    text: str | None = None
    person: str | None = None
    connection: str | None = None
    action: str | None = None
    model: str | None = None
    state: TaskState | None = None
    since: float | None = None
    until: float | None = None
    least_cost: float | None = None
    users: Collection[str] | None = None
    fields: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTask:
    """A task that meets a filter.

    Args:
        task: The task.
        person: The name of the submitter; empty if unnamed.
        place: The part of the task in which the search words were found: ``task``, ``script``,
            ``call``, ``answer`` or ``error``. None for a search without words.
        event: The number of the event in which the search words were found; None for a search
            without words.
        excerpt: The text around the search words; empty for a search without words.
    """

    task: TaskRecord
    person: str = ""
    place: Place | None = None
    event: int | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a group of tasks.

    Tokens and cost belong to model calls and are zero in groups by connection or action. Child
    tasks are included in all figures except ``tasks``, ``failed`` and ``stopped``.

    Args:
        group: The day as ``2026-10-31``, or the name that the tasks have in common.
        tasks: Number of tasks.
        failed: Number of failed tasks.
        stopped: Number of stopped tasks.
        calls: Number of tool calls; in groups by model, of model calls.
        failed_calls: Number of failed calls.
        questions: Number of approval requests.
        waited_seconds: Total seconds that requests have waited for an answer, including requests
            that still wait.
        input_tokens: Tokens that models read, including tokens from a cache.
        cached_tokens: Tokens that came from a cache.
        output_tokens: Tokens that models wrote.
        cost_usd: The cost of all answers with a known price.
        unpriced: Number of answers without a known price.
    """

    group: str
    tasks: int = 0
    failed: int = 0
    stopped: int = 0
    calls: int = 0
    failed_calls: int = 0
    questions: int = 0
    waited_seconds: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A page of search results, newest tasks first.

    Args:
        tasks: The tasks.
        more: Whether older matching tasks exist.
        behind: Number of events not indexed yet.
    """

    tasks: Sequence[FoundTask] = field(default_factory=tuple[FoundTask, ...])
    more: bool = False
    behind: int = 0
