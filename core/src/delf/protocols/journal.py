"""A journal: the append-only record of all events."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field, fields
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from delf.events import (
    PROJECT_FOLDER,
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    Event,
    TaskFinished,
    TaskPostponed,
    TaskQueued,
    TaskResumed,
    TaskStarted,
)
from delf.members import ProtocolMeta
from delf.protocols.approval import RememberedDecision
from delf.records import dataclass
from delf.types import TaskState


def column(
    heading: str | None, *, filter_help: str | None = None, setup_keys: Sequence[str] = ()
) -> Any:
    """Declare an optional field of a record, to be shown in lists of tasks. The default is None.

    The terminal, HTTP and the web page show the column if a task has a value.

    Args:
        heading: The heading of the column; None if lists show the value in their own way.
        filter_help: The help text of a filter by the field, if searches can filter by it. The
            field's name is then a command option, an HTTP query parameter and an input of the page.
        setup_keys: Keys in the ``setup`` of the task's first event. A journal takes the field's
            value, a text, from the first of these keys that exists.
    """
    metadata = {"heading": heading, "filter": filter_help, "setup_keys": setup_keys}
    return field(default=None, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task in a list of tasks.

    Args:
        task_id: The task's id.
        task: The task in plain words.
        started_at: The Unix time at which the task began.
        state: The stored state. A task that waits for a person is stored as running; see
            :func:`delf.protocols.states.state_of`.
        origin: The agent's id.
        finished_at: The Unix time at which the task ended.
        duration_ms: The time from acceptance to the end.
        cost_usd: The cost of the model calls; None while the task runs or if a price is unknown.
        error: The message of the error that ended the task.
        events: The number of the task's events.
        owner: The process that works on the task, such as ``pid 7 on host``.
        queue: The queue from which a runner takes, or took, the task.
        user: The user for whom the task runs; None for the local user.
        losses: The number of processes that lost the task because they died or let their lease
            expire.
        tries: The number of failed attempts after which the task returned to its queue; ``error``
            is the latest failure.
        not_before: The Unix time before which no runner takes the task.
        folder: The folder in which a command started the task, or the folder of the agent's
            project.
    """

    task_id: str
    task: str
    started_at: float
    state: TaskState
    origin: str = ""
    finished_at: float | None = None
    duration_ms: float | None = None
    cost_usd: float | None = None
    error: str | None = None
    events: int = 0
    owner: str | None = None
    queue: str | None = column("queue", filter_help="Only tasks of this queue.")
    user: str | None = None
    losses: int = 0
    tries: int = 0
    not_before: float | None = None
    folder: str | None = column(None, setup_keys=("folder", PROJECT_FOLDER))

    @classmethod
    def beginning(cls, event: Event) -> dict[str, Any]:
        """Return the fields that a record copies from the first event of its task.

        Args:
            event: The first event of the task.
        """
        values: dict[str, Any] = {"task_id": event.task_id, "task": "", "started_at": event.at}
        if isinstance(event, (TaskQueued, TaskStarted)):
            values |= {name: getattr(event, name) for name in _shared_names(cls, type(event))}
            for name, setup_keys in fields_of_setup().items():
                # Of the keys for this field, the first that the task's setup has counts.
                value = next((event.setup[key] for key in setup_keys if key in event.setup), None)
                if isinstance(value, str):  # a program may put a value of any type into the setup
                    values[name] = value
        return values

    @staticmethod
    def changes(event: Event) -> dict[str, Any]:
        """Return the fields of a task's record that an event sets; most events set none.

        Args:
            event: Any event of the task but the first; see :meth:`beginning`.
        """
        match event:
            case TaskFinished():
                return {
                    "state": event.state,
                    "finished_at": event.at,
                    "duration_ms": event.duration_ms,
                    "cost_usd": event.cost_usd,
                    "error": event.error,
                }
            case TaskResumed():
                return {"state": TaskState.RUNNING, "finished_at": None, "error": None}
            case TaskPostponed():
                return {
                    "not_before": event.not_before,
                    "tries": event.tries,
                    "error": event.error,
                }
            case _:
                return {}

    @property
    def project(self) -> str | None:
        """The name of the task's project: the last part of its folder."""
        return None if self.folder is None else PurePath(self.folder).name

    @property
    def columns(self) -> dict[str, str]:
        """The values that lists show in further columns, by the heading of the column."""
        columns: dict[str, str] = {}
        for item in fields(self):
            heading = item.metadata.get("heading")
            value = getattr(self, item.name)
            if heading and value is not None:
                columns[heading] = str(value)
        return columns

    @property
    def place(self) -> ListPlace:
        """The position of this task in a list of tasks, to continue ``find`` after the task."""
        return self.started_at, self.task_id


@functools.cache
def filterable_fields() -> Mapping[str, str]:
    """Return the fields by which searches can filter records, each with the filter's help."""
    named = {item.name: item.metadata.get("filter") for item in fields(TaskRecord)}
    return {name: words for name, words in named.items() if words is not None}


@functools.cache
def fields_of_setup() -> Mapping[str, Sequence[str]]:
    """Return the fields whose values are in a task's ``setup``, each with its keys in ``setup``."""
    named = {item.name: item.metadata.get("setup_keys") for item in fields(TaskRecord)}
    return {name: keys for name, keys in named.items() if keys}


@functools.cache
def _shared_names(record: type[TaskRecord], event: type[Event]) -> tuple[str, ...]:
    """Return the fields that a record and a class of events both have."""
    event_names = {item.name for item in fields(event)}
    return tuple(item.name for item in fields(record) if item.name in event_names)


ListPlace = tuple[float, str]
"""A position in a list of tasks: a task's start time and its id."""
Ages = Mapping[TaskState, float]
"""Retention times in seconds by the state of tasks that are not in progress."""


class Journal(Protocol):
    """Stores events in order, exactly once, before any other code acts on them."""

    async def append(self, event: Event) -> None:
        """Append an event; the event is durable when this returns.

        If the caller is cancelled, a started append still completes before later appends. Appending
        a stored event again is a no-op.
        """
        ...

    async def read(self, task_id: str, after: int = 0) -> Sequence[Event]:
        """Return a task's events with ``seq`` greater than ``after``, in order.

        Raises:
            UnknownTaskError: If no such task is known.
        """
        ...

    def subscribe(self, task_id: str | None = None) -> AsyncIterator[Event]:
        """Yield the events that are appended from now on, of one task or of all tasks.

        Call ``read`` after ``subscribe`` to miss no event: an event of another process is then
        returned by ``read``, yielded by the subscription, or both.
        """
        ...

    async def find(self, limit: int = 100) -> Sequence[TaskRecord]:
        """Return the newest ``limit`` tasks, newest first."""
        ...

    async def aclose(self) -> None:
        """Release all resources. Idempotent."""
        ...


@runtime_checkable
class SupportsJournal(Protocol, metaclass=ProtocolMeta):
    """An approval channel that uses the journal, and so can handle requests of other processes."""

    def use_journal(self, journal: Journal) -> None:
        """Use a journal from now on. Called as the agent starts, before any request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A message from any process to the process that works on a task.

    Args:
        position: The note's number, larger than that of each earlier note.
        task_id: The task.
        at: Unix time in seconds.
        kind: The subject, such as ``approval``.
        data: Plain data.
    """

    position: int
    task_id: str
    at: float
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerhapsAlive:
    """The previous process of a task, which may still be alive.

    The process may be suspended or have lost its connection to the journal, while a tool call of
    the task is still in flight.

    Args:
        process: The process, such as ``pid 7 on host``.
        lease: The lease in seconds, after which other processes may claim the task.
    """

    process: str
    lease: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The tasks that ``prune`` removed, or would remove.

    Args:
        tasks: The ids of the tasks, the oldest first.
        events: The number of events of the tasks.
        files: Paths of their output files, which are not deleted.
        inputs: Paths of their input files that no remaining task uses.
    """

    tasks: tuple[str, ...] = ()
    events: int = 0
    files: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request for approval in a journal.

    Args:
        requested: The request.
        decided: The decision, if any.
        task: The task. Its state is ``RUNNING`` only if a live process works on the task.
        discussion: The votes, comments and assignments of the request, in order.
    """

    requested: ApprovalRequested
    decided: ApprovalDecided | None
    task: TaskRecord
    discussion: Sequence[ApprovalVoted | ApprovalCommented | ApprovalAssigned] = ()

    @property
    def assignee(self) -> str | None:
        """The name of the person to whom the request is assigned, if any."""
        assigned = [one.to for one in self.discussion if isinstance(one, ApprovalAssigned)]
        return assigned[-1] if assigned else None

    @property
    def waits(self) -> bool:
        """True if the request is undecided, and a person's decision would still count."""
        # A decision counts only while a process works on the task, which then has this state.
        is_open = self.decided is None and not self.requested.by_policy
        return is_open and self.task.state is TaskState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSize:
    """The size of a journal.

    Args:
        place: The file or URL, without credentials.
        bytes: The size on disk.
        free_bytes: The unused bytes among ``bytes``.
        events: The number of events.
    """

    place: str
    bytes: int
    free_bytes: int
    events: int


@runtime_checkable
class SupportsRemembered(Protocol, metaclass=ProtocolMeta):
    """A journal that stores decisions which hold until they are revoked.

    The decisions are the ``ApprovalDecided`` events with ``remember="until_revoked"``, as
    :meth:`delf.protocols.approval.RememberedDecision.from_events` reads them.
    """

    async def remembered(self) -> Sequence[RememberedDecision]:
        """Return the decisions that hold, oldest first.

        Leave out revoked decisions, and decisions of people who may no longer decide.
        """
        ...

    async def revoke(self, request_id: str, by: str) -> RememberedDecision:
        """Revoke a decision for all processes: later calls need approval again.

        Args:
            request_id: The request that was approved.
            by: The person who revokes.

        Raises:
            UnknownRequestError: If no such decision holds.
        """
        ...
