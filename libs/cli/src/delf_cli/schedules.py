"""The schedules of a project, as commands and servers use them where their plugin is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.protocols.services import Service
from delf.records import dataclass
from delf.types import TaskState

if TYPE_CHECKING:
    from delf_engine.project.any_project import AnyProject

ITEM: Final = "item"
"""The variable that scripts have where a schedule does its task for each new item of a call."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A task that runners do at set times, or for each new item that a reading call returns.

    Args:
        name: The name in the project.
        cron: The times: minute, hour, day, month, weekday.
        task: The task, in plain words.
        zone: The time zone of the times; UTC when None.
        each: The call whose new items start the task, such as ``gmail.search(query="is:unread")``;
            the times alone when None.
        id_field: The field that identifies an item; by default ``id``. Without that field the whole
            item identifies itself, so a changed item is a new one.
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
    """The outcome of one of a schedule's times.

    Args:
        at: The Unix time.
        state: ``queued`` until a runner takes it.
        task_ids: The tasks that were started.
        test: Whether it was a test, whose task may only read.
        note: The findings, or the reason for a failure.
    """

    at: float
    state: TaskState
    task_ids: Sequence[str] = ()
    test: bool = False
    note: str | None = None


class Schedules(Protocol):
    """The schedules of a project. Each method raises a DelfError if its database is away."""

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
        """Keep a new schedule.

        Raises:
            ConfigurationError: If its name is taken, or its times, zone or call are invalid.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove a schedule; the tasks that it started stay."""
        ...

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause a schedule, or resume it; after a pause it continues where it looked last."""
        ...

    async def test(self, name: str) -> str:
        """Let a runner start the task once, now, so that it changes nothing.

        Returns:
            The name of the test, for :meth:`firing`.
        """
        ...

    async def firing(self, test: str) -> Firing:
        """Return what happened in a test."""
        ...

    async def history(self, name: str, limit: int = 20) -> Sequence[Firing]:
        """Return what happened at the schedule's last times, the newest first."""
        ...

    async def aclose(self) -> None:
        """Release the database. Idempotent."""
        ...


class OpensSchedules(Protocol):
    """The export ``open_schedules`` of a plugin."""

    def __call__(self, project: AnyProject, /) -> Schedules:
        """Return the schedules of a project."""
        ...


SCHEDULES: Final = Service("open_schedules", OpensSchedules, "schedules")
