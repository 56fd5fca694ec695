"""Schedules: DBOS's own, each with a task as its context."""

from __future__ import annotations

import hashlib
import secrets
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from delf import plugin_context
from delf.environment import using_environ
from delf.errors import ConfigurationError
from delf.events import with_user
from delf.types import TaskState
from delf_cli.schedules import Firing, Schedule
from delf_engine.one_call import parse_call
from delf_engine.task import check_task
from delf_runner_dbos.queue import APPLICATION, SCHEDULED, DbosQueue, check_queue_name
from delf_runner_dbos.settings import PLUGIN, RunnerSettings, project_id
from delf_runner_dbos.times import check_times

if TYPE_CHECKING:
    from dbos import DBOSClient, EnqueueOptions, WorkflowSchedule, WorkflowStatus

    from delf_engine.project.any_project import AnyProject

# The fields of a schedule that are stored only in the context of DBOS's schedule.
_CONTEXT_FIELDS: Final = ("name", "task", "queue", "setup", "each", "id_field", "user")
# The maximum number of firings without tasks that each schedule keeps in its history.
_MAX_IDLE_FIRINGS: Final = 20
_NO_OPTIONS: Final[Mapping[str, Any]] = {
    "config": None,
    "flags": {},
    "connections": [],
    "tool_files": [],
    "overrides": [],
}
_STATES: Final[Mapping[str, TaskState]] = {
    "ENQUEUED": TaskState.QUEUED,
    "DELAYED": TaskState.QUEUED,
    "PENDING": TaskState.RUNNING,
    "SUCCESS": TaskState.DONE,
}


class DbosSchedules:
    """A project's schedules in DBOS's database. Implements :class:`delf_cli.schedules.Schedules`.

    Several projects may share the database. DBOS's name of a schedule therefore begins with the id
    of the project.

    Args:
        queue: The DBOS queue.
        folder: The project's folder.
        former_folders: Earlier folders of the project, whose schedules belong to it, too.
    """

    def __init__(
        self, queue: DbosQueue, folder: Path, former_folders: Collection[str] = ()
    ) -> None:
        self._queue = queue
        self._folder = folder
        # The present folder comes first: new schedules get its prefix.
        self._prefixes = [f"{project_id(path)}:" for path in (folder, *former_folders)]

    async def all(self) -> Sequence[Schedule]:
        """Return the project's schedules, by name."""
        rows = await self._queue.call(lambda client: _schedules(client, self._prefixes))
        return sorted((_schedule(row) for row in rows), key=lambda schedule: schedule.name)

    async def find(self, name: str) -> Schedule:
        """Return a schedule.

        Raises:
            ConfigurationError: If no schedule has that name.
        """
        return _schedule(await self._row(name))

    async def _row(self, name: str) -> WorkflowSchedule:
        """Return DBOS's row of a schedule.

        Raises:
            ConfigurationError: If the project has no schedule with that name.
        """
        row = await self._queue.call(lambda client: self._find_row(client, name))
        if row is None:
            raise ConfigurationError(f"there is no schedule {name!r}", hint="delf schedule list")
        return row

    def _find_row(self, client: DBOSClient, name: str) -> WorkflowSchedule | None:
        rows = (client.get_schedule(prefix + name) for prefix in self._prefixes)
        return next((row for row in rows if row is not None), None)

    async def add(self, schedule: Schedule) -> None:
        """Store a new schedule.

        Raises:
            ConfigurationError: If the name is taken; or if the task, the times, the time zone, or
                ``each`` (the call that looks for new items) is invalid.
        """
        schedule = replace(schedule, cron=" ".join(schedule.cron.split()))
        name = schedule.name
        if not name or not name.isprintable() or name != name.strip():
            raise ConfigurationError(f"{name!r} cannot be the name of a schedule")
        check_task(schedule.task)
        check_queue_name(schedule.queue)
        if schedule.each is not None:
            parse_call(schedule.each)  # raises if the text is no call
        stored_name = self._prefixes[0] + name

        def create(client: DBOSClient) -> None:
            from dbos import error as dbos_error

            if self._find_row(client, name) is not None:
                raise ConfigurationError(
                    f"there is a schedule {name!r} already",
                    hint=f"delf schedule remove {shlex.quote(name)}",
                )
            # The random text distinguishes this schedule from a later one of the same name.
            context = {**self._context(schedule, stored_name), "made": secrets.token_hex(8)}
            try:
                client.create_schedule(
                    schedule_name=stored_name,
                    workflow_name=SCHEDULED,
                    schedule=schedule.cron,
                    context=context,
                    cron_timezone=schedule.zone,
                    queue_name=schedule.queue,
                )
            except dbos_error.DBOSException as error:
                raise ConfigurationError(
                    f"the schedule {schedule.cron!r} cannot be created: {error}",
                    hint='as "0 8 * * 1-5": workdays at eight',
                ) from None
            # DBOS has checked that the expression is valid, which check_times() requires. But DBOS
            # accepts an expression whose times never come: then delete the schedule again.
            try:
                check_times(schedule.cron, schedule.zone)
            except ConfigurationError:
                client.delete_schedule(stored_name)
                raise

        await self._queue.call(create)

    async def remove(self, name: str) -> None:
        """Remove a schedule and its history, but not the tasks that the schedule started."""
        stored_name = await self._stored_name(name)

        def delete(client: DBOSClient) -> None:
            client.delete_schedule(stored_name)
            # The workflow of a firing only submits tasks. The tasks have workflows of their own,
            # which are kept.
            firings = _firings_of(client, stored_name)
            client.delete_workflows([firing.workflow_id for firing in firings])

        await self._queue.call(delete)

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a schedule.

        If the schedule looks for new items, such as mails, the first firing after a pause finds all
        items that arrived since the last firing before the pause.
        """
        stored_name = await self._stored_name(name)

        def pause_or_resume(client: DBOSClient) -> None:
            if paused:
                client.pause_schedule(stored_name)
            else:
                client.resume_schedule(stored_name)

        await self._queue.call(pause_or_resume)

    async def test(self, name: str) -> str:
        """Start the schedule's task once as a test, and return the test's id.

        Calls that would change something are denied, and the schedule stays as it is.
        """
        row = await self._row(name)
        schedule = _schedule(row)
        stored_name = row["schedule_name"]
        test_id = f"{_test_prefix(stored_name)}{secrets.token_hex(8)}"
        options: EnqueueOptions = {
            "workflow_name": SCHEDULED,
            "workflow_id": test_id,
            "queue_name": schedule.queue,
        }
        context = {**self._context(schedule, stored_name), "test": True}

        def enqueue(client: DBOSClient) -> None:
            client.enqueue(options, datetime.now(UTC).isoformat(), context)

        await self._queue.call(enqueue)
        return test_id

    async def firing(self, test_id: str) -> Firing:
        """Return the state of a test run, with which a person tried out a schedule.

        Args:
            test_id: The id of the test run, which :meth:`test` returned.

        Raises:
            ConfigurationError: If there is no such test run.
        """
        rows = await self._queue.call(lambda client: _workflows(client, workflow_ids=[test_id]))
        if not rows:
            raise ConfigurationError(f"there is no test {test_id!r}")
        return _firing(rows[0])

    async def history(self, name: str, limit: int = 20) -> Sequence[Firing]:
        """Return the outcomes of the schedule's most recent firings, newest first.

        Firings by which people tested the schedule are included.
        """
        stored_name = await self._stored_name(name)

        rows = await self._queue.call(lambda client: _firings_of(client, stored_name, limit))
        firings = [_firing(row) for row in rows]
        # The planned firings come before the tests, with up to ``limit`` firings of each kind.
        return sorted(firings, key=lambda firing: firing.at, reverse=True)[:limit]

    async def aclose(self) -> None:
        """Disconnect from the database. Idempotent."""
        await self._queue.aclose()

    async def _stored_name(self, name: str) -> str:
        """Return DBOS's name of a schedule.

        Raises:
            ConfigurationError: If the project has no schedule with that name.
        """
        return (await self._row(name))["schedule_name"]

    def _context(self, schedule: Schedule, stored_name: str) -> dict[str, Any]:
        context = {name: getattr(schedule, name) for name in _CONTEXT_FIELDS}
        context |= {"cron": schedule.cron, "zone": schedule.zone, "stored_name": stored_name}
        context["setup"] = {**_NO_OPTIONS, "folder": str(self._folder), **schedule.setup}
        return context


async def delete_idle_firings(queue: DbosQueue) -> Collection[str]:
    """Delete old firings that started no task. Each schedule keeps its 20 most recent firings.

    Returns:
        The workflow id of each schedule's newest firing, which the next firing needs.
    """
    newest_ids: set[str] = set()
    for row in await queue.call(_schedules):
        find_completed = partial(_workflows, schedule_name=row["schedule_name"], status="SUCCESS")
        newest_first = await queue.call(find_completed)
        if newest_first:
            newest_ids.add(newest_first[0].workflow_id)
        old_rows = newest_first[_MAX_IDLE_FIRINGS:]
        old_ids = [row.workflow_id for row in old_rows if not _firing(row).task_ids]
        if old_ids:
            await queue.call(lambda client, old_ids=old_ids: client.delete_workflows(old_ids))
    return newest_ids


async def seen_digests(queue: DbosQueue, context: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the digests of the items that a schedule knows; None before the first firing.

    Items with other digests are new, and each of them starts a task.

    Args:
        queue: The DBOS queue.
        context: The schedule's fields from DBOS.
    """

    def newest_firing(client: DBOSClient) -> WorkflowStatus | None:
        """Return the newest firing that DBOS recorded as a success; None if there is none."""
        rows = _workflows(client, 1, schedule_name=context["stored_name"], status="SUCCESS")
        return rows[0] if rows else None

    row = await queue.call(newest_firing)
    if row is None:
        return None
    output = _output(row)
    # A removed schedule may have had the same name: "made" tells them apart.
    is_of_this_schedule = output.get("made") == context["made"]
    return output["seen"] if is_of_this_schedule else None


def open_schedules(project: AnyProject) -> DbosSchedules:
    """Return the schedules of a project.

    Other plugins look up this function in their plugin host, by the name ``open_schedules``.

    Raises:
        ConfigurationError: If DBOS's database cannot be written.
    """
    settings = settings_of(project)
    queue = DbosQueue(database_url(project, settings))
    return DbosSchedules(queue, project.root, project.agent.former_folders)


def settings_of(project: AnyProject) -> RunnerSettings:
    """Return the plugin's settings in a project."""
    options: Mapping[str, Any] = project.plugin_options.get(PLUGIN, {})
    with using_environ(project.environ):
        return RunnerSettings.for_instance("runner_dbos", dict(options))


def database_url(project: AnyProject, settings: RunnerSettings) -> str:
    """Return the URL of DBOS's database for a project."""
    return settings.url(plugin_context(project).data_dir, project.root)


def _workflows(
    client: DBOSClient, limit: int | None = None, **filters: Any
) -> Sequence[WorkflowStatus]:
    """Return the firings of schedules that match DBOS's filter arguments, newest first."""
    return client.list_workflows(
        name=SCHEDULED,
        application_name=APPLICATION,
        load_input=False,
        sort_desc=True,
        limit=limit,
        **filters,
    )


def _firings_of(
    client: DBOSClient, stored_name: str, limit: int | None = None
) -> list[WorkflowStatus]:
    """Return the firings of a schedule, also those by which people tested the schedule.

    Args:
        client: DBOS's client.
        stored_name: DBOS's name of the schedule.
        limit: The maximum number of planned firings, and likewise of tests; None for no limit.
    """
    return [
        *_workflows(client, limit, schedule_name=stored_name),
        *_workflows(client, limit, workflow_id_prefix=_test_prefix(stored_name)),
    ]


def _schedules(client: DBOSClient, prefixes: list[str] | None = None) -> Sequence[WorkflowSchedule]:
    """Return delf's schedules, without those of other programs in DBOS's database.

    Args:
        client: DBOS's client.
        prefixes: The prefixes of the projects' names in DBOS; None for all projects.
    """
    return client.list_schedules(workflow_name=SCHEDULED, schedule_name_prefix=prefixes)


def _output(row: WorkflowStatus) -> Mapping[str, Any]:
    output = row.output
    return cast("dict[str, Any]", output) if isinstance(output, dict) else {}


def _schedule(row: Any) -> Schedule:
    """Convert DBOS's row of a schedule; the row's ``context`` has the fields unknown to DBOS."""
    stored = with_user(row["context"])  # earlier versions stored the field `user` as `key`
    context = {name: stored[name] for name in _CONTEXT_FIELDS}
    return Schedule(
        cron=row["schedule"],
        zone=row["cron_timezone"],
        paused=row["status"] != "ACTIVE",
        last=_unix(row["last_fired_at"]),
        **context,
    )


def _firing(row: WorkflowStatus) -> Firing:
    output = _output(row)
    state = _STATES.get(row.status, TaskState.FAILED)
    failure = output.get("failure")
    if failure:
        state = TaskState.FAILED
    return Firing(
        at=(row.created_at or 0) / 1000,  # DBOS has the time in milliseconds
        state=state,
        task_ids=tuple(output.get("tasks", ())),
        test=row.workflow_id.startswith("test-"),
        note=failure or output.get("note"),
    )


def _test_prefix(stored_name: str) -> str:
    return f"test-{hashlib.sha256(stored_name.encode()).hexdigest()[:12]}-"


def _unix(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()
