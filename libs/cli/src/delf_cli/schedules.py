"""The interface of schedules for commands and servers, implemented by the plugin of runners."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from delf.errors import ConfigurationError, UnknownTaskError
from delf.protocols.services import Service
from delf.records import dataclass
from delf.types import TaskState

if TYPE_CHECKING:
    from delf.protocols.journal import TaskRecord
    from delf.protocols.shared_journal import SharedJournal
    from delf_cli.routines import AgentRoutines
    from delf_engine.project.any_project import AnyProject

ITEM: Final = "item"
"""The script variable with the current item, if a schedule starts one task for each new item."""
ROUTINE: Final = "routine"
"""The name of the strategy whose task texts are calls of routines."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A task that runners start at set times, once or for each new item of a read call's result.

    Args:
        name: The name in the project.
        cron: The times as a cron expression: minute, hour, day, month, weekday.
        task: The task, in plain words.
        zone: The time zone of the times; UTC when None.
        each: A read call such as ``gmail.search(query="is:unread")``, for each new item of which
            the task is started. None to start the task once at each time.
        id_field: The field that identifies an item; by default ``id``. An item without the field is
            identified by its whole content, so a changed item counts as new.
        queue: The queue for the tasks.
        setup: The data that a runner needs to create the agent.
        key: The person for whom the tasks are done; the local user when None.
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
    key: str | None = None
    paused: bool = False
    last: float | None = None


@dataclass(frozen=True, kw_only=True)
class Firing:
    """The outcome of one scheduled time.

    Args:
        at: The scheduled Unix time.
        state: The state. The state of a firing that started tasks is their outcome: failed or
            stopped if one of them is, else the state of a task that has not ended, else done.
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
    records: list[TaskRecord] = []
    for task_id in firing.task_ids:
        try:
            records.append(await journal.task(task_id))
        except UnknownTaskError:
            continue  # deleted since
    states = {record.task_id: record.state for record in records}
    is_known = firing.state is TaskState.DONE and bool(states)
    if not is_known:
        return replace(firing, task_states=states)
    ended_badly = (TaskState.FAILED, TaskState.STOPPED)
    worst_first = sorted(
        states.values(), key=lambda state: (state not in ended_badly, state.is_terminal)
    )
    errors = (record.error for record in records if record.state is TaskState.FAILED)
    note = firing.note or next(errors, None)
    return replace(firing, task_states=states, state=worst_first[0], note=note)


@dataclass(frozen=True, kw_only=True)
class RoutineCall:
    """The call of a routine as a schedule's task, such as ``enter(mail=item["id"], year=2026)``.

    Args:
        routine: The name of the routine.
        values: A mapping from parameter to literal value.
        item_paths: A mapping from parameter to the keys that lead to the parameter's value in the
            item that triggers the task, such as ``("id",)`` for ``item["id"]``.
    """

    routine: str
    values: Mapping[str, Any]
    item_paths: Mapping[str, Sequence[str | int]]

    @classmethod
    def read(cls, task: str) -> Self:
        """Parse the task of a schedule.

        Raises:
            ConfigurationError: If the text is not a call of a routine.
        """
        error = ConfigurationError(
            f"{task[:80]!r} is not a call of a routine",
            hint=f'as report(month="2026-10"), or report(mail={ITEM}["id"]) for each item',
        )
        try:
            call = ast.parse(task.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise error from None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise error
        if call.args:  # a routine has no positional parameters
            raise error
        values: dict[str, Any] = {}
        item_paths: dict[str, Sequence[str | int]] = {}  # from argument to keys inside the item
        for argument in call.keywords:
            if argument.arg is None:  # **mapping
                raise error
            keys = _item_keys(argument.value)
            if keys is not None:
                item_paths[argument.arg] = keys
                continue
            try:
                values[argument.arg] = ast.literal_eval(argument.value)
            except (ValueError, TypeError):  # TypeError: a list as a key
                raise error from None
        return cls(routine=call.func.id, values=values, item_paths=item_paths)

    def text_for(self, item: Any) -> str:
        """Return the text of the call for one item of the list over which the routine runs.

        Args:
            item: The item. Its values at ``item_paths`` become arguments of the call.

        Raises:
            ConfigurationError: If a value in the item is missing, or is neither text nor a number.
        """
        values = {**self.values}
        for name, keys in self.item_paths.items():
            value: Any = item
            for key in keys:
                try:
                    value = value[key]
                except (LookupError, TypeError):
                    value = None
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                key_path = "".join(f"[{key!r}]" for key in keys)
                raise ConfigurationError(f"the item has no text or number at {ITEM}{key_path}")
            values[name] = value
        arguments = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"{self.routine}({arguments})"


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
    task = schedule.task.strip()
    # Without `each`, the strategy gets the text as it is: to it, a name is a call without values.
    if schedule.each is None and task.isidentifier():
        task += "()"
    call = RoutineCall.read(task)
    uses_item = bool(call.item_paths)
    if uses_item and schedule.each is None:
        raise ConfigurationError(f"{ITEM} is known only if the schedule has `each`")
    routine = routines.find(call.routine)
    parameters = routine.routine.parameters
    # There is no item yet, so the parameters that get a field of the item have their defaults.
    values = dict(call.values)
    for name in call.item_paths:
        values[name] = parameters[name].default if name in parameters else ""
    routine.task(values)  # raises if the call is invalid


def _item_keys(node: ast.expr) -> tuple[str | int, ...] | None:
    """Return ``("a", 0)`` for ``item["a"][0]``; None for any other expression."""
    keys: list[str | int] = []
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if not isinstance(node.slice.value, (str, int)):
            return None
        keys.append(node.slice.value)
        node = node.value
    is_item = isinstance(node, ast.Name) and node.id == ITEM
    return tuple(reversed(keys)) if is_item else None


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
