"""The queue: a task is a DBOS workflow, enqueued by DBOS's client."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from delf.environment import using_environ
from delf.errors import ConfigurationError, ConnectionUnavailableError, DelfError
from delf.events import PROJECT_FOLDER, TaskQueued
from delf.protocols.context import PluginContext
from delf.trust.folders import project_folder
from delf_runner_dbos.settings import PLUGIN, QueueSettings, RunnerSettings

if TYPE_CHECKING:
    from dbos import DBOSClient, EnqueueOptions, WorkflowStatus

T = TypeVar("T")

APPLICATION: Final = "delf"
TASK: Final = "delf.task"
SCHEDULED: Final = "delf.scheduled"
_POLLING_SECONDS: Final = 0.2
# The DBOS priority of a task with priority 0. DBOS accepts no priority below 1.
_DEFAULT_DBOS_PRIORITY: Final = 2**30
_MAX_PRIORITY: Final = 2**29 - 1
BATCH_SIZE: Final = 500
"""The number of workflows that are read or changed in one call."""
_ACTIVE_STATUSES: Final = ["ENQUEUED", "DELAYED", "PENDING"]
_ENDED_STATUSES: Final = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """The input of a workflow: which task to run, and from which queue.

    Args:
        task_id: The id of the task.
        queue: The name of the queue.
        user: The user of the task; None for the local user.
        priority: The task's priority. Lower numbers run first.
        requeues: How often the task was put back into the queue since it last made progress.
    """

    task_id: str
    queue: str
    user: str | None = None
    priority: int = 0
    requeues: int = 0

    @classmethod
    def of(cls, task: TaskQueued) -> Self:
        """Return the ticket of a queued task."""
        return cls(
            task_id=task.task_id,
            queue=task.queue or "",
            user=task.user,
            priority=task.priority,
        )

    @property
    def dbos_queue_name(self) -> str:
        """The name of the task's DBOS queue.

        Each queue of delf has two DBOS queues: one for tasks without a user, and a partitioned one
        for tasks with a user.
        """
        return self.queue if self.user is None else user_queue_name(self.queue)

    def with_another_requeue(self) -> Self:
        """Return this ticket with the count of requeues increased by one."""
        return replace(self, requeues=self.requeues + 1)


def check_queue_name(queue: str) -> None:
    """Check the name that a person gives to a queue.

    Raises:
        ConfigurationError: If the name is empty, or contains a slash: only a name that
            :func:`user_queue_name` makes contains a slash.
    """
    if "/" in queue or not queue.strip():
        raise ConfigurationError(f"{queue!r} cannot be the name of a queue")


def user_queue_name(queue: str) -> str:
    """Return the name of the DBOS queue for the tasks of a queue that have a user.

    DBOS limits the number of running tasks of each user, such as ``customer-7``, only in a queue in
    which all tasks have a user.
    """
    return f"{queue}/keys"  # the suffix of earlier versions, whose tasks may still be queued


def task_id_of(workflow_id: str) -> str:
    """Extract the task id from a workflow id."""
    return workflow_id.partition(":")[0]


def folder_of(setup: Mapping[str, Any]) -> str:
    """Return the folder in which a task was submitted; an empty text if the task has no folder.

    For the task of a command, this is the command's folder; for the task of a program, the folder
    of the program's project.
    """
    folder = setup.get("folder", setup.get(PROJECT_FOLDER))  # a program may store any type
    return folder if isinstance(folder, str) else ""


def belongs_to_project(setup: Mapping[str, Any], former_folders: Collection[str]) -> bool:
    """Return True if a task was submitted in the project's current folder or in a former one.

    A task that was submitted without a folder, or by a program of the project, also belongs to the
    project.

    Args:
        setup: The setup of the task.
        former_folders: Earlier paths of the project's folder. Its present path is the current
            folder.
    """
    folder = folder_of(setup)
    if not folder or folder in former_folders:
        return True
    own_folders = [Path.cwd().resolve()]
    if "folder" not in setup:  # a program submitted the task, and recorded the project's root
        own_folders.append(project_folder(Path.cwd()))
    return Path(folder).resolve() in own_folders


class DbosQueue:
    """The DBOS queue of tasks. Implements :class:`delf.protocols.queues.TaskQueue`.

    Calls run in threads. If the database does not answer, the call raises an error without a
    retry; callers decide whether to wait.

    Args:
        url: The database of DBOS, opened on first use.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._client: DBOSClient | None = None

    async def enqueue(self, task: TaskQueued) -> None:
        """Enqueue a task; idempotent.

        Raises:
            ConfigurationError: If the task's priority or the name of its queue is invalid.
            ConnectionUnavailableError: If the database does not answer.
        """
        ticket = Ticket.of(task)
        check_queue_name(ticket.queue)
        await self._enqueue(ticket, task.task_id, _delay(task))

    async def restore(self, task: TaskQueued) -> None:
        """Enqueue a task unless a workflow of the task is already queued or running."""
        await self.enqueue(task)
        # DBOS ignores a workflow with a known id, even if the first workflow with this id failed.
        # In this case, enqueue a workflow with another id.
        if await self.without_workflow([task.task_id]):
            await self.requeue(Ticket.of(task), _delay(task))

    async def requeue(self, ticket: Ticket, delay: float) -> None:
        """Put a task back into its queue, as a new workflow that starts after a delay in seconds.

        The task starts before new tasks of the same priority.
        """
        workflow_id = f"{ticket.task_id}:{secrets.token_hex(6)}"
        await self._enqueue(ticket, workflow_id, delay, is_requeued=True)

    async def _enqueue(
        self, ticket: Ticket, workflow_id: str, delay: float, *, is_requeued: bool = False
    ) -> None:
        """Enqueue a workflow for a ticket.

        Args:
            ticket: The ticket.
            workflow_id: The id of the new workflow.
            delay: The delay in seconds before the workflow may start.
            is_requeued: Whether the task was started before. Such a task precedes new tasks of its
                priority.
        """
        options: EnqueueOptions = {
            "workflow_name": TASK,
            "workflow_id": workflow_id,
            "queue_name": ticket.dbos_queue_name,
            "priority": _priority(ticket.priority, is_requeued=is_requeued),
        }
        if delay > 0:
            options["delay_seconds"] = delay
        if ticket.user is not None:
            options["queue_partition_key"] = ticket.user

        def enqueue(client: DBOSClient) -> None:
            client.enqueue(options, asdict(ticket))

        await self.call(enqueue)

    async def register(self, queue: str, settings: QueueSettings, concurrency: int) -> None:
        """Register a queue's settings with DBOS.

        Args:
            queue: The name of the queue.
            settings: The limits of the queue.
            concurrency: The maximum number of the queue's tasks that one runner runs at once.
        """
        total_limit = settings.global_concurrency
        runner_limit = concurrency
        user_limit = settings.user_concurrency
        if total_limit is not None:
            runner_limit = min(runner_limit, total_limit)
            user_limit = min(user_limit, total_limit)
        common: dict[str, Any] = {
            "global_concurrency": total_limit,
            "worker_concurrency": runner_limit,
            "limiter": _rate_limit(settings.per_second),
            "polling_interval_sec": _POLLING_SECONDS,
        }

        def register_both(client: DBOSClient) -> None:
            client.register_queue(queue, **common)
            client.register_queue(
                # DBOS partitions a whole queue or none of it, so tasks with a user have a queue of
                # their own.
                user_queue_name(queue),
                **common,
                partition_concurrency=user_limit,
                partition_limiter=_rate_limit(settings.user_per_second),
            )

        await self.call(register_both)

    async def running_workflows(self, queues: Collection[str]) -> Sequence[WorkflowStatus]:
        """Return the running workflows of some queues, including those of other runners."""
        # Tasks with a user are in a second DBOS queue.
        names = [name for queue in queues for name in (queue, user_queue_name(queue))]
        return await self.call(
            lambda client: client.list_workflows(
                status="PENDING",
                queue_name=names,
                application_name=APPLICATION,
                load_input=False,
                load_output=False,
            )
        )

    async def release(self, workflows: Mapping[str, str]) -> None:
        """Release running workflows, so that another runner can start them.

        DBOS's name for this operation is "resume".

        Args:
            workflows: A mapping from workflow id to the name of the workflow's DBOS queue.
        """

        def resume(client: DBOSClient) -> None:
            for workflow_id, queue in workflows.items():
                client.resume_workflow(workflow_id, queue_name=queue)

        await self.call(resume)

    async def without_workflow(self, task_ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of those tasks that have no queued or running workflow."""
        missing: list[str] = []
        for start in range(0, len(task_ids), BATCH_SIZE):
            batch = list(task_ids[start : start + BATCH_SIZE])
            active = await self._tasks_with_workflow(workflow_ids=batch)
            candidates = [task_id for task_id in batch if task_id not in active]
            if candidates:
                # A task that was put back has a workflow of another id, see requeue().
                requeued_prefixes = [f"{task_id}:" for task_id in candidates]
                requeued = await self._tasks_with_workflow(workflow_id_prefix=requeued_prefixes)
                missing += [task_id for task_id in candidates if task_id not in requeued]
        return missing

    async def _tasks_with_workflow(self, **filters: Any) -> set[str]:
        """Return the task ids of queued and running workflows that match DBOS's filter."""
        rows = await self.call(
            lambda client: client.list_workflows(
                status=_ACTIVE_STATUSES, load_input=False, load_output=False, **filters
            )
        )
        return {task_id_of(row.workflow_id) for row in rows}

    async def delete_old_workflows(self, before: float, excluded_ids: Collection[str] = ()) -> None:
        """Delete workflows that ended before a Unix time. The journal still has their tasks.

        Args:
            before: The Unix time.
            excluded_ids: The ids of workflows that are not deleted.
        """
        completed_before = _iso(before)
        # More than the number of excluded ids, so that each full page has workflows to delete.
        page_size = BATCH_SIZE + len(excluded_ids)
        while True:
            rows = await self.call(
                lambda client: client.list_workflows(
                    status=_ENDED_STATUSES,
                    name=[TASK, SCHEDULED],
                    application_name=APPLICATION,
                    completed_before=completed_before,
                    limit=page_size,
                    load_input=False,
                    load_output=False,
                )
            )
            ids = [row.workflow_id for row in rows if row.workflow_id not in excluded_ids]
            if ids:
                await self.call(lambda client, ids=ids: client.delete_workflows(ids))
            if len(rows) < page_size:
                return

    async def call(self, work: Callable[[DBOSClient], T]) -> T:
        """Call a function with DBOS's client in a thread.

        Raises:
            ConnectionUnavailableError: If the database does not answer.
        """
        return await asyncio.to_thread(self.call_in_this_thread, work)

    def call_in_this_thread(self, work: Callable[[DBOSClient], T]) -> T:
        """Call a function with DBOS's client in the current thread.

        Raises:
            ConnectionUnavailableError: If the database does not answer.
        """
        try:
            return work(self._connected())
        except DelfError:
            raise
        except Exception as error:  # each driver has its own exceptions
            message = str(error).strip().partition("\n")[0]
            raise ConnectionUnavailableError(
                f"the queue's database failed: {message}",
                hint="database under [plugins.runner-dbos] in delf.toml says where it is",
            ) from None  # SQLAlchemy's details may contain the task's text

    def _connected(self) -> DBOSClient:
        """Return DBOS's client; the first call connects, and creates the tables if needed."""
        with self._lock:
            if self._client is None:
                from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer

                from delf_runner_dbos.sqlite import add_missing_functions

                add_missing_functions()
                logging.getLogger("dbos").setLevel(logging.ERROR)
                DBOS.migrate(self._url)
                self._client = DBOSClient(
                    system_database_url=self._url,
                    serializer=DBOSPortableJSONSerializer(),
                    application_name=APPLICATION,
                    retry_connection_errors=False,
                )
            return self._client

    async def aclose(self) -> None:
        """Disconnect from the database. Idempotent."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.destroy)


def _priority(priority: int, *, is_requeued: bool) -> int:
    """Convert a priority to DBOS's form, in which a lower number comes first.

    A task that is enqueued again comes before new tasks of the same priority.

    Raises:
        ConfigurationError: If the priority is out of range.
    """
    if abs(priority) > _MAX_PRIORITY:
        raise ConfigurationError(
            f"the priority {priority} is out of range",
            hint=f"from {-_MAX_PRIORITY} to {_MAX_PRIORITY}",
        )
    # Doubled, so that a requeued task fits between two priorities.
    return _DEFAULT_DBOS_PRIORITY + 2 * priority - int(is_requeued)


def _iso(at: float) -> str:
    """Format a Unix time in UTC as ISO 8601, as DBOS expects."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at))


def _delay(task: TaskQueued) -> float:
    return 0.0 if task.not_before is None else task.not_before - time.time()


def _rate_limit(per_second: float | None) -> Any:
    """Convert a number of tasks per second to DBOS's rate limit; None for no limit."""
    if per_second is None:
        return None
    # DBOS counts whole tasks: 0.5 tasks per second are 1 task in 2 seconds.
    count = max(1, int(per_second))
    return {"limit": count, "period": count / per_second}


def task_queue(
    options: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str], folder: Path
) -> DbosQueue:
    """Make the queue of a project.

    Args:
        options: Options by plugin name, from ``[plugins.NAME]``.
        environ: The environment variables with settings.
        folder: The project's folder.
    """
    with using_environ(environ):
        settings = RunnerSettings.for_instance("runner_dbos", dict(options.get(PLUGIN, {})))
    return DbosQueue(settings.url(PluginContext().data_dir, folder))
