"""The interface of schedules for commands and servers, implemented by the plugin of runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.errors import ConfigurationError, UnknownTaskError
from delf.protocols.services import Service
from delf.records import dataclass
from delf.types import TaskState
from delf_cli.routine_calls import ITEM, RoutineCall
from delf_cli.routines import ROUTINE

if TYPE_CHECKING:
    from delf.protocols.journal import TaskRecord
    from delf.protocols.shared_journal import SharedJournal
    from delf_cli.routines import AgentRoutines
    from delf_engine.project.any_project import AnyProject

SHOWN_SCHEDULE_FIELDS: Final = (
    "name",
    "cron",
    "zone",
    "task",
    "each",
    "id_field",
    "queue",
    "paused",
    "last",
)
"""The fields of a schedule that users see; the others may name another person or hold settings."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A task that runners start at set times, once or for each new item of a read call's result.

    Args:
        name: The name in the project.
        cron: The times as a cron expression: minute, hour, day, month, weekday.
        task: The task, in plain words.
        zone: The time zone of the times; UTC when None.
        each: A read call such as ``gmail.search(query="is:unread")``: the task is started for each
            new item in the call's result. None to start the task once at each time.
        id_field: The field that identifies an item; by default ``id``. An item without the field is
            identified by its whole content, so a changed item counts as new.
        queue: The queue for the tasks.
        setup: The data that a runner needs to create the agent.
        user: The user for whom the tasks run; the local user when None.
        paused: Whether the schedule is paused and starts no task.
        last: The Unix time of the last firing; None before the first.
    """

    name: str
    cron: str
    task: str
    zone: str | None = None
    each: str | None = None
    id_field: str | None = None
    queue: str = "default"
    setup: Mapping[str, Any] = field(default_factory=dict[str, Any])
    user: str | None = None
    paused: bool = False
    last: float | None = None

    @property
    def is_routine(self) -> bool:
        """True if the task is the call of a routine."""
        return runs_routine(self.setup)


def runs_routine(setup: Mapping[str, Any]) -> bool:
    """Return True if a schedule with this setup calls a routine."""
    return setup.get("flags", {}).get("strategy") == ROUTINE


@dataclass(frozen=True, kw_only=True)
class Firing:
    """The outcome of one scheduled time.

    Args:
        at: The scheduled Unix time.
        state: The state. If tasks were started, this is their worst state: failed or stopped if any
            task failed or was stopped, else the state of a task that has not ended, else done.
        task_ids: The ids of the tasks that were started.
        task_states: The states of these tasks by id, without tasks that the journal no longer has.
        test: Whether the firing was a test run, whose task may only read.
        note: A remark, such as why no task was started, or the reason for a failure.
    """

    at: float
    state: TaskState
    task_ids: Sequence[str] = ()
    task_states: Mapping[str, TaskState] = field(default_factory=dict[str, TaskState])
    test: bool = False
    note: str | None = None


async def add_outcomes(firings: Sequence[Firing], journal: SharedJournal) -> list[Firing]:
    """Return firings with the outcomes of the tasks that they started.

    Args:
        firings: The firings.
        journal: The journal with the tasks.
    """
    return [await _add_outcome(firing, journal) for firing in firings]


async def _add_outcome(firing: Firing, journal: SharedJournal) -> Firing:
    """Return a firing with the states of its tasks.

    In the given firing, the state ``DONE`` means only that the tasks were started. The result has
    the worst state of these tasks instead. A firing with another state, or without tasks, keeps its
    state.
    """
    records: list[TaskRecord] = []
    for task_id in firing.task_ids:
        try:
            records.append(await journal.task(task_id))
        except UnknownTaskError:
            continue  # deleted since
    states = {record.task_id: record.state for record in records}
    if firing.state is not TaskState.DONE or not states:
        return replace(firing, task_states=states)
    errors = (record.error for record in records if record.state is TaskState.FAILED)
    note = firing.note or next(errors, None)
    worst_state = min(states.values(), key=_rank_from_worst)
    return replace(firing, task_states=states, state=worst_state, note=note)


def _rank_from_worst(state: TaskState) -> int:
    """Return a sort key of task states: 0 if failed or stopped, 1 if unfinished, 2 if done."""
    if state in (TaskState.FAILED, TaskState.STOPPED):
        return 0
    return 2 if state.is_terminal else 1


def check_routine(schedule: Schedule, routines: AgentRoutines) -> None:
    """Check the routine call that a schedule runs as its task.

    If the schedule has ``each``, the task starts once for each new item, and the routine call may
    use fields of the item, such as ``item["id"]``.

    Args:
        schedule: The schedule.
        routines: The routines of the project.

    Raises:
        ConfigurationError: If the routine or a parameter is unknown, a value is invalid, or the
            routine call uses a field of an item, but the schedule has no ``each``.
    """
    call = RoutineCall.read(schedule.task, with_item=True)
    uses_item = bool(call.item_paths)
    if uses_item and schedule.each is None:
        raise ConfigurationError(f"{ITEM} is known only if the schedule has `each`")
    routine = routines.find(call.routine)
    parameters = routine.routine.parameters
    # There is no item yet: parameters that get a field of the item are checked with their defaults.
    values = dict(call.values)
    for name in call.item_paths:
        values[name] = parameters[name].default if name in parameters else ""
    routine.task(values)  # raises if the call is invalid


class Schedules(Protocol):
    """The schedules of a project.

    Each method raises a DelfError if the database is unreachable. The plugin ``runner-dbos``
    implements this protocol. A server works without the plugin.
    """

    async def all(self) -> Sequence[Schedule]:
        """Return all schedules, sorted by name."""
        ...

    async def find(self, name: str) -> Schedule:
        """Return a schedule.

        Raises:
            ConfigurationError: If no schedule has that name.
        """
        ...

    async def add(self, schedule: Schedule) -> None:
        """Store a new schedule.

        Raises:
            ConfigurationError: If its name is taken, or its times, zone or call are invalid.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove a schedule; the tasks that it started stay."""
        ...

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a schedule.

        New items of a watched source, such as mails, that arrive during a pause start tasks once
        the schedule is resumed.
        """
        ...

    async def test(self, name: str) -> str:
        """Run the schedule's task once on a runner, rejecting all calls that change something.

        Returns:
            The id of the test run, to pass to :meth:`firing`.
        """
        ...

    async def firing(self, test_id: str) -> Firing:
        """Return the outcome of a test run."""
        ...

    async def history(self, name: str, limit: int = 20) -> Sequence[Firing]:
        """Return the outcomes of the schedule's most recent firings, newest first."""
        ...

    async def aclose(self) -> None:
        """Release the database. Idempotent."""
        ...


SCHEDULES: Final[Service[Callable[[AnyProject], Schedules]]] = Service(
    "open_schedules", None, "schedules"
)
"""A plugin's function that opens the schedules of a project."""
