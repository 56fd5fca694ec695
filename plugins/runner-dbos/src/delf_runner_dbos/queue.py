"""The queue: a task is a DBOS workflow, enqueued by DBOS's client."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from delf.environment import using_environ
from delf.errors import ConfigurationError, ConnectionUnavailableError, DelfError
from delf.events import TaskQueued
from delf.protocols.context import PluginContext
from delf_runner_dbos.settings import PLUGIN, QueueSettings, RunnerSettings

if TYPE_CHECKING:
    from dbos import DBOSClient, EnqueueOptions, WorkflowStatus

T = TypeVar("T")

APPLICATION: Final = "delf"
TASK: Final = "delf.task"
SCHEDULED: Final = "delf.scheduled"
_POLLING_SECONDS: Final = 0.2
_USUAL: Final = 2**30
"""Priority 0 of delf in DBOS, whose priorities begin with 1; each has two, see `_priority`."""
_MAX_URGENT: Final = 2**29 - 1
_AT_ONCE: Final = 500
_ACTIVE: Final = ["ENQUEUED", "DELAYED", "PENDING"]
_OVER: Final = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """The input of a workflow: its task and its queue.

    Args:
        task_id: The task.
        queue: The queue.
        key: The owner of the task.
        priority: The lowest comes first.
        rests: The number of times that the task was started and enqueued again.
    """

    task_id: str
    queue: str
    key: str | None = None
    priority: int = 0
    rests: int = 0

    @classmethod
    def of(cls, task: TaskQueued) -> Self:
        """Return the ticket of a task that waits in a queue."""
        return cls(
            task_id=task.task_id,
            queue=task.queue or "",
            key=task.key,
            priority=task.priority,
        )

    @property
    def workflows(self) -> str:
        """The DBOS queue: tasks with a key use a partitioned queue."""
        return self.queue if self.key is None else keyed_queue_name(self.queue)

    def rested(self) -> Self:
        """Return the ticket for enqueuing the task again."""
        return replace(self, rests=self.rests + 1)


def keyed_queue_name(queue: str) -> str:
    """Return the name of the DBOS queue for those tasks of a queue that have a key."""
    return f"{queue}/keys"


def task_id_of(workflow_id: str) -> str:
    """Return the task id in a workflow id."""
    return workflow_id.partition(":")[0]


def is_here(setup: Mapping[str, Any], former: Collection[str]) -> bool:
    """Return True if a task belongs to this folder, to no folder, or to a former one.

    Args:
        setup: The setup of the task.
        former: The former folders of the project.
    """
    folder = str(setup.get("folder", ""))
    return folder in former or Path(folder).resolve() == Path.cwd().resolve()


class DbosQueue:
    """Implements :class:`delf.protocols.queues.TaskQueue`; runners use it, too.

    Calls run in threads. A lost connection raises at once, because the caller knows better whether
    to wait.

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
            ConfigurationError: If its priority is out of range.
            ConnectionUnavailableError: If the database does not answer.
        """
        await self._enqueue(Ticket.of(task), task.task_id, _delay(task))

    async def restore(self, task: TaskQueued) -> None:
        """Enqueue a task that has no live workflow, even if its first workflow failed."""
        await self.enqueue(task)
        # DBOS ignores a second workflow with a known id, also if the first one has failed.
        if await self.left_out([task.task_id]):
            await self.again(Ticket.of(task), _delay(task))

    async def again(self, ticket: Ticket, delay: float) -> None:
        """Enqueue a task again after some seconds, as a new workflow.

        The task is placed before tasks of the same priority that were not begun yet.
        """
        await self._enqueue(ticket, f"{ticket.task_id}:{secrets.token_hex(6)}", delay, again=True)

    async def _enqueue(
        self, ticket: Ticket, workflow_id: str, delay: float, *, again: bool = False
    ) -> None:
        """Enqueue a ticket's workflow; ``again`` prefers the workflow to those not begun."""
        options: EnqueueOptions = {
            "workflow_name": TASK,
            "workflow_id": workflow_id,
            "queue_name": ticket.workflows,
            "priority": _priority(ticket.priority, again=again),
        }
        if delay > 0:
            options["delay_seconds"] = delay
        if ticket.key is not None:
            options["queue_partition_key"] = ticket.key

        def enqueue(client: DBOSClient) -> None:
            client.enqueue(options, asdict(ticket))

        await self.call(enqueue)

    async def register(self, queue: str, settings: QueueSettings, concurrency: int) -> None:
        """Register a queue's settings with DBOS.

        Args:
            queue: The name.
            settings: The limits.
            concurrency: How many of its tasks each runner does at once.
        """
        at_once, by_key = settings.global_concurrency, settings.key_concurrency
        each = concurrency if at_once is None else min(concurrency, at_once)
        common: dict[str, Any] = {
            "global_concurrency": at_once,
            "worker_concurrency": each,
            "limiter": _limiter(settings.per_second),
            "polling_interval_sec": _POLLING_SECONDS,
        }

        def register(client: DBOSClient) -> None:
            client.register_queue(queue, **common)
            client.register_queue(
                # DBOS partitions a whole queue or none of it, so tasks with a key have a queue of
                # their own.
                keyed_queue_name(queue),
                **common,
                partition_concurrency=by_key if at_once is None else min(by_key, at_once),
                partition_limiter=_limiter(settings.key_per_second),
            )

        await self.call(register)

    async def at_work(self, queues: Collection[str]) -> Sequence[WorkflowStatus]:
        """Return the workflows of queues that some runner has begun."""
        names = [name for queue in queues for name in (queue, keyed_queue_name(queue))]
        return await self.call(
            lambda client: client.list_workflows(
                status="PENDING",
                queue_name=names,
                application_name=APPLICATION,
                load_input=False,
                load_output=False,
            )
        )

    async def hand_on(self, workflows: Mapping[str, str]) -> None:
        """Hand workflows to other runners, by DBOS's resume.

        Args:
            workflows: The queue of each workflow, by id.
        """
        for workflow_id, queue in workflows.items():
            await self.call(lambda c, w=workflow_id, q=queue: c.resume_workflow(w, queue_name=q))

    async def left_out(self, task_ids: Sequence[str]) -> Sequence[str]:
        """Return the tasks without a live workflow."""
        without_workflow: list[str] = []
        for start in range(0, len(task_ids), _AT_ONCE):
            batch = list(task_ids[start : start + _AT_ONCE])
            active = await self._active(workflow_ids=batch)
            candidates = [task_id for task_id in batch if task_id not in active]
            if candidates:
                # A task that was put back has a workflow of another id, see again().
                copies = [f"{task_id}:" for task_id in candidates]
                requeued = await self._active(workflow_id_prefix=copies)
                without_workflow += [task_id for task_id in candidates if task_id not in requeued]
        return without_workflow

    async def _active(self, **which: Any) -> set[str]:
        """Return the tasks of workflows that are not over."""
        rows = await self.call(
            lambda client: client.list_workflows(
                status=_ACTIVE, load_input=False, load_output=False, **which
            )
        )
        return {task_id_of(row.workflow_id) for row in rows}

    async def forget(self, before: float, kept: Collection[str] = ()) -> None:
        """Remove workflows that ended before a Unix time; the journal has their record.

        Args:
            before: The time.
            kept: The workflows that stay.
        """
        at = _iso(before)
        while True:
            rows = await self.call(
                lambda client: client.list_workflows(
                    status=_OVER,
                    name=[TASK, SCHEDULED],
                    application_name=APPLICATION,
                    completed_before=at,
                    limit=_AT_ONCE,
                    load_input=False,
                    load_output=False,
                )
            )
            ids = [row.workflow_id for row in rows if row.workflow_id not in kept]
            if ids:
                await self.call(lambda client, ids=ids: client.delete_workflows(ids))
            # Stop at a page of kept workflows only, which would be read again forever.
            if len(rows) < _AT_ONCE or not ids:
                return

    async def abandon(
        self,
        queues: Collection[str],
        before: float,
        is_unknown: Callable[[str], Awaitable[bool]],
    ) -> None:
        """Remove workflows whose tasks no longer exist.

        Args:
            queues: The queues to clean.
            before: The Unix time before which workflows were submitted.
            is_unknown: Returns True if the journal does not have a task.
        """
        names = [name for queue in queues for name in (queue, keyed_queue_name(queue))]
        rows = await self.call(
            lambda client: client.list_workflows(
                status=_ACTIVE,
                name=TASK,
                queue_name=names,
                application_name=APPLICATION,
                end_time=_iso(before),
                load_input=False,
                load_output=False,
            )
        )
        orphaned = [
            row.workflow_id for row in rows if await is_unknown(task_id_of(row.workflow_id))
        ]
        for start in range(0, len(orphaned), _AT_ONCE):
            batch = orphaned[start : start + _AT_ONCE]
            await self.call(lambda client, batch=batch: client.cancel_workflows(batch))
            await self.call(lambda client, batch=batch: client.delete_workflows(batch))

    async def call(self, work: Callable[[DBOSClient], T]) -> T:
        """Call a function with DBOS's client in a thread.

        Raises:
            ConnectionUnavailableError: If that fails.
        """
        return await asyncio.to_thread(self.call_here, work)

    def call_here(self, work: Callable[[DBOSClient], T]) -> T:
        """Call a function with DBOS's client in this thread.

        Raises:
            ConnectionUnavailableError: If that fails.
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
        with self._lock:
            if self._client is None:
                from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer

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


def _priority(priority: int, *, again: bool) -> int:
    """Convert a priority to DBOS's form, in which a lower number comes first.

    A task that is enqueued again comes before new tasks of the same priority.

    Raises:
        ConfigurationError: If the priority is out of range.
    """
    if abs(priority) > _MAX_URGENT:
        raise ConfigurationError(
            f"the priority {priority} is out of range",
            hint=f"from {-_MAX_URGENT} to {_MAX_URGENT}",
        )
    return _USUAL + 2 * priority - int(again)


def _iso(at: float) -> str:
    """Format a Unix time for DBOS."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at))


def _delay(task: TaskQueued) -> float:
    return 0.0 if task.not_before is None else task.not_before - time.time()


def _limiter(per_second: float | None) -> Any:
    """Return a rate limit in DBOS's form."""
    if per_second is None:
        return None
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
