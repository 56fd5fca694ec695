"""Schedules over HTTP, each owned by a person."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from delf import Agent
from delf.errors import OptionalDependencyError
from delf.protocols.journal import Journal
from delf.protocols.people import name_of_user
from delf.protocols.shared_journal import SharedJournal
from delf_cli.routines import ROUTINE, ROUTINES
from delf_cli.schedules import (
    SCHEDULES,
    Firing,
    Schedule,
    Schedules,
    add_outcomes,
    check_routine,
)
from delf_engine.watched_calls import check_watched_call
from delf_serve import schemas as s
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError

_MAX_SHOWN_FIRINGS: Final = 200


class ProjectSchedules:
    """The schedules of an agent's project.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._schedules: Schedules | None = None

    async def list(self, caller: Caller) -> s.ScheduleList:
        """Return the schedules whose tasks the caller may see.

        If the server cannot run schedules, for example because a plugin is not installed, the list
        is empty, and ``missing`` has the reason.
        """
        try:
            with self._open() as schedules:
                schedule_list = await schedules.all()
        except ProblemError as problem:
            cannot_run_schedules = problem.status in (409, 501)  # no project, or no plugin
            if not cannot_run_schedules:
                raise
            return s.ScheduleList(schedules=[], missing=problem.message)
        visible = [schedule for schedule in schedule_list if caller.sees(schedule.user)]
        return s.ScheduleList(schedules=list(map(_view, visible)))

    async def add(self, given: s.ScheduleRequest, caller: Caller) -> s.ScheduleView:
        """Store a schedule.

        Args:
            given: The schedule.
            caller: The caller, who will own the tasks that the schedule starts.

        Raises:
            ProblemError: If the name is taken, or if the times, the time zone or the call that
                returns new items (``each``) is invalid.
            ConfigurationError: If the task is a routine, and the routine or its arguments are
                invalid.
        """
        setup = {"flags": {"strategy": ROUTINE}} if given.routine else {}
        schedule = Schedule(**given.model_dump(exclude={"routine"}), setup=setup, user=caller.user)
        with self._open() as schedules:
            # The schedule may start its task once for each new item that a read call returns.
            watched_call = schedule.each
            if watched_call is not None:
                await check_watched_call(self._agent.tools, watched_call)
            if given.routine:
                routines = self._agent.plugins.service(ROUTINES)(self._agent)
                await asyncio.to_thread(check_routine, schedule, routines)
            await schedules.add(schedule)
            return _view(await schedules.find(schedule.name))

    async def change(self, name: str, caller: Caller, *, paused: bool) -> s.ScheduleView:
        """Pause or resume one of a person's schedules."""
        with self._open() as schedules:
            await self._check_may_change(schedules, name, caller)
            await schedules.pause(name, paused=paused)
            return _view(await schedules.find(name))

    async def remove(self, name: str, caller: Caller) -> None:
        """Remove one of a person's schedules."""
        with self._open() as schedules:
            await self._check_may_change(schedules, name, caller)
            await schedules.remove(name)

    async def test(self, name: str, caller: Caller) -> s.FiringView:
        """Start the task of a schedule once, as a test: calls that change something are refused."""
        with self._open() as schedules:
            await self._check_may_change(schedules, name, caller)
            return s.FiringView.of(await schedules.firing(await schedules.test(name)))

    async def history(self, name: str, caller: Caller) -> s.ScheduleHistory:
        """Return the outcomes of a schedule's most recent firings, newest first."""
        with self._open() as schedules:
            await self._find_visible(schedules, name, caller)
            firings = await schedules.history(name, _MAX_SHOWN_FIRINGS)
        firings = await self._agent.ause_journal(partial(_add_outcomes, firings))
        return s.ScheduleHistory(firings=[s.FiringView.of(firing) for firing in firings])

    async def _find_visible(self, schedules: Schedules, name: str, caller: Caller) -> Schedule:
        """Return a schedule that a person may see.

        Raises:
            ProblemError: If the schedule does not exist or is hidden from the person.
        """
        schedule = next(
            (schedule for schedule in await schedules.all() if schedule.name == name), None
        )
        if schedule is None or not caller.sees(schedule.user):
            raise ProblemError(404, "no such schedule is known", "GET /schedules")
        return schedule

    async def _check_may_change(self, schedules: Schedules, name: str, caller: Caller) -> None:
        """Check that a person may change a schedule.

        Raises:
            ProblemError: If the schedule belongs to another person.
        """
        schedule = await self._find_visible(schedules, name, caller)
        user = schedule.user  # None if the schedule is of the local user
        if user not in (None, caller.user) and "people" not in caller.rights:
            raise ProblemError(403, "the schedule is somebody else's")

    @contextmanager
    def _open(self) -> Generator[Schedules]:
        """Yield the schedules, and convert their errors to error responses.

        The schedules are opened at the first use.
        """
        try:
            if self._schedules is None:
                if self._agent.project is None:
                    raise ProblemError(409, "schedules need a project, and this agent has none")
                self._schedules = self._agent.plugins.service(SCHEDULES)(self._agent.project)
            yield self._schedules
        except OptionalDependencyError as error:
            raise ProblemError(501, error.message) from None

    async def aclose(self) -> None:
        """Release the database of the schedules. Idempotent."""
        opened, self._schedules = self._schedules, None
        if opened is not None:
            await opened.aclose()


def _view(schedule: Schedule) -> s.ScheduleView:
    user = None if schedule.user is None else name_of_user(schedule.user)
    return s.ScheduleView.of(schedule, routine=schedule.is_routine, user=user)


async def _add_outcomes(firings: Sequence[Firing], journal: Journal) -> Sequence[Firing]:
    """Return firings with the outcomes of their tasks; unchanged if the journal is not shared.

    Only a shared journal has the tasks of the runners, which start the tasks of schedules.
    """
    if not isinstance(journal, SharedJournal):
        return firings
    return await add_outcomes(firings, journal)
