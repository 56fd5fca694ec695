"""The interface of schedules for commands and servers, implemented by the plugin of runners."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from delf.errors import ConfigurationError
from delf.protocols.services import Service
from delf.records import dataclass
from delf.types import TaskState

if TYPE_CHECKING:
    from delf_engine.project.any_project import AnyProject

ITEM: Final = "item"
"""The script variable with the item that started a schedule's task."""
ROUTINE: Final = "routine"
"""The strategy whose tasks are calls of routines."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A task that runners do at set times, or for each new item that a reading call returns.

    Args:
        name: The name in the project.
        cron: The times: minute, hour, day, month, weekday.
        task: The task, in plain words.
        zone: The time zone of the times; UTC when None.
        each: The call whose new items start the task, such as ``gmail.search(query="is:unread")``;
            None to start the task at each time.
        id_field: The field that identifies an item; by default ``id``. An item without the field is
            identified by its whole content, so a changed item counts as new.
        queue: The queue for the tasks.
        setup: The data that a runner needs to set up the agent.
        key: The person for whom the tasks are done; the local user when None.
        paused: Whether nothing is started until it is resumed.
        last: The Unix time at which it last started something or looked.
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
        at: The Unix time.
        state: The state; ``queued`` until a runner takes the task.
        task_ids: The tasks that were started.
        test: Whether the task was a test run, which may only read.
        note: The findings, or the reason for a failure.
    """

    at: float
    state: TaskState
    task_ids: Sequence[str] = ()
    test: bool = False
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class RoutineCall:
    """The call of a routine as a schedule's task, such as ``enter(mail=item["id"], year=2026)``.

    Args:
        routine: The name of the routine.
        values: The literal values, by parameter.
        parts: The places in the item whose values the call gets, by parameter.
    """

    routine: str
    values: Mapping[str, Any]
    parts: Mapping[str, Sequence[str | int]]

    @classmethod
    def read(cls, task: str) -> Self:
        """Parse the task of a schedule.

        Raises:
            ConfigurationError: If the task is no call of a routine.
        """
        try:
            call = ast.parse(task.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            call = None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            places = {one.arg: _place(one.value) for one in call.keywords if one.arg}
            parts = {name: place for name, place in places.items() if place is not None}
            try:
                values = {
                    one.arg: ast.literal_eval(one.value)
                    for one in call.keywords
                    if one.arg and one.arg not in parts
                }
            except ValueError:
                values = None
            if values is not None and all(one.arg for one in call.keywords):
                return cls(routine=call.func.id, values=values, parts=parts)
        raise ConfigurationError(
            f"{task[:80]!r} is not a call of a routine",
            hint=f'as report(month="2026-10"), or report(mail={ITEM}["id"]) for each item',
        )

    def of(self, item: Any) -> str:
        """Return the call with values from an item filled in.

        Raises:
            ConfigurationError: If the item has no text or number where a value is needed.
        """
        values = {**self.values}
        for name, place in self.parts.items():
            value: Any = item
            for key in place:
                try:
                    value = value[key]
                except (LookupError, TypeError):
                    value = None
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                key_path = "".join(f"[{key!r}]" for key in place)
                raise ConfigurationError(f"the item has no text or number at {ITEM}{key_path}")
            values[name] = value
        return f"{self.routine}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def _place(node: ast.expr) -> tuple[str | int, ...] | None:
    """Return the keys of ``item["a"][0]``; None for another expression."""
    keys: list[str | int] = []
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if not isinstance(node.slice.value, (str, int)):
            return None
        keys.append(node.slice.value)
        node = node.value
    return tuple(reversed(keys)) if isinstance(node, ast.Name) and node.id == ITEM else None


class Schedules(Protocol):
    """The schedules of a project. Each method raises a DelfError if its database is away.

    A protocol, because a server works without the plugin that brings runners and schedules.
    """

    async def all(self) -> Sequence[Schedule]:
        """Return all schedules, by name."""
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
        """Pause or resume a schedule. Items that came during the pause are found after it."""
        ...

    async def test(self, name: str) -> str:
        """Run the schedule's task once now on a runner, rejecting all calls that change something.

        Returns:
            The name of the test run, to pass to :meth:`firing`.
        """
        ...

    async def firing(self, test: str) -> Firing:
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
"""Opens the schedules of a project."""
