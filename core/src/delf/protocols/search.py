"""Search and figures over all tasks of a journal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Literal

from delf.protocols.journal import TaskRecord
from delf.records import dataclass
from delf.types import TaskState

FigureBy = Literal["day", "person", "connection", "action", "model"]
Place = Literal["task", "script", "call", "answer", "error"]
"""The part of a task in which words were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Conditions for tasks; None matches any.

    Args:
        text: Words that its task, its scripts, its calls with their arguments, its answer or an
            error of it holds. All words of a text have to be in one such place; what stands in
            double quotes has to follow each other there. The last word may be the beginning of one.
        person: The name of who asked.
        connection: A connection that it called.
        action: An action that it called, as ``shop.orders``.
        model: A model that it asked.
        state: Its state, as in :class:`delf.protocols.journal.TaskRecord`.
        since: The Unix time at which it started, or later.
        until: The Unix time before which it started.
        least_cost: The least cost of it in US dollars.
        keys: The owners of the tasks.
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
    keys: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTask:
    """A task that meets a filter.

    Args:
        task: The task.
        person: The name of the submitter; empty if unnamed.
        place: The place of the words, where words were asked for.
        seq: The number of the event in which they are.
        excerpt: The text around them.
    """

    task: TaskRecord
    person: str = ""
    place: Place | None = None
    seq: int | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a group of tasks.

    Tokens and cost are of models alone: for a group by connection or action they are zero, as no
    call has a price. A child task counts in all figures but ``tasks``, ``failed`` and ``stopped``.

    Args:
        group: The day as ``2026-10-31``, or the name that the tasks have in common.
        tasks: How many tasks.
        failed: How many of them failed.
        stopped: The number of tasks that somebody stopped.
        calls: How many calls of tools; by model, how many of the model.
        failed_calls: How many of these failed.
        questions: How many requests for approval.
        waited_seconds: The time for which these waited for an answer, until now where they do.
        input_tokens: Tokens that models read, those from a cache among them.
        cached_tokens: Tokens that came from a cache.
        output_tokens: Tokens that models wrote.
        cost_usd: The cost of all answers with a known price.
        unpriced: How many answers have no known price.
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
        more: True when there are older ones that meet the filter, too.
        behind: The number of events that are not indexed yet.
    """

    tasks: Sequence[FoundTask] = field(default_factory=tuple[FoundTask, ...])
    more: bool = False
    behind: int = 0
