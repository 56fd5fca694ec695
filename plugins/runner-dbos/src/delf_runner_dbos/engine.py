"""DBOS, as a worker uses it: queues whose workflows each do one task of delf's journal.

DBOS decides which worker begins a task, how many at once and how fast, and fires schedules. What
was done, and who may go on with a task, the journal knows: a workflow that is begun twice finds
there what is done, or that somebody else does it.

Its blocking functions are used, in threads: its asynchronous ones would put an executor of DBOS's
in the place of the event loop's own, and shut it down at the end.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetEnqueueOptions, SetWorkflowID

_log = logging.getLogger(__name__)

APPLICATION: Final = "delf"
TASK: Final = "delf.task"
SCHEDULED: Final = "delf.scheduled"
_VERSION: Final = "1"
_POLL_SECONDS: Final = 0.2

Work = Callable[[str], Awaitable[str]]
"""Does the task of an id; what became of it in a word."""

Fire = Callable[[Any], Awaitable[str]]
"""Hands in the task of a schedule, by what the schedule says; the task's id."""


def configuration(url: str) -> DBOSConfig:
    """What DBOS is told: a name of its own for this process, so that it recovers no other's."""
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=url,
        executor_id=name,
        application_version=_VERSION,
        serializer=DBOSPortableJSONSerializer(),
        log_level="ERROR",
        scheduler_polling_interval_sec=1.0,
    )


class Workflows:
    """DBOS in this process, of which there is one.

    Args:
        url: Where it keeps its workflows.
        queues: The queues from which this process takes tasks.
        work: Does a task.
        fire: Hands in a task.
    """

    def __init__(self, url: str, queues: Sequence[str], work: Work, fire: Fire) -> None:
        self._queues = tuple(queues)
        self._url = url
        loop = asyncio.get_running_loop()
        DBOS(config=configuration(url))

        @DBOS.workflow(name=TASK)
        async def task(task_id: str) -> str:
            return await _on(loop, work(task_id))

        @DBOS.workflow(name=SCHEDULED)
        async def scheduled(at: datetime, context: Any) -> str:
            _ = at
            return await _on(loop, fire(context))

        self._task = task
        self._scheduled = scheduled

    async def is_reachable(self) -> bool:
        """Whether its database answers; its tables are there then."""
        try:
            await asyncio.to_thread(lambda: DBOS.migrate(system_database_url=self._url))
        except Exception as error:  # the drivers of databases differ
            _log.warning("the database of the queues does not answer: %s", _first_line(error))
            return False
        return True

    async def start(
        self, *, concurrency: int, at_once: int | None, per_second: float | None
    ) -> None:
        """Begin to take tasks.

        Args:
            concurrency: How many this process does at once.
            at_once: How many all processes together do at once, of a queue.
            per_second: How many begin in a second, of a queue.
        """
        DBOS.listen_queues(self._queues)
        await asyncio.to_thread(DBOS.launch)
        limiter: Any = None if per_second is None else {"limit": 1, "period": 1 / per_second}
        for queue in self._queues:
            register = functools.partial(
                DBOS.register_queue,
                queue,
                worker_concurrency=concurrency,
                global_concurrency=at_once,
                limiter=limiter,
                polling_interval_sec=_POLL_SECONDS,
                on_conflict="always_update",
            )
            await asyncio.to_thread(register)

    async def enqueue(self, key: str, queue: str, task_id: str, delay: float = 0.0) -> None:
        """Have a task done by one of the workers; the same key again changes nothing.

        Args:
            key: The workflow's name.
            queue: The queue.
            task_id: The task.
            delay: Seconds to wait.
        """

        def enqueue() -> None:
            with SetWorkflowID(key), SetEnqueueOptions(delay_seconds=delay or None):
                DBOS.enqueue_workflow(queue, self._task, task_id)

        await asyncio.to_thread(enqueue)

    async def tries(self, prefix: str) -> list[tuple[str, str, str | None]]:
        """The workflows whose names begin so: name, status, and what work on its task returned."""
        found = await asyncio.to_thread(
            lambda: DBOS.list_workflows(workflow_id_prefix=prefix, load_input=False)
        )
        return [(item.workflow_id, item.status, item.output) for item in found]

    async def again(self, key: str, queue: str) -> None:
        """Have a workflow begun once more: whoever had it is gone."""
        await asyncio.to_thread(lambda: DBOS.resume_workflow(key, queue_name=queue))

    async def stop(self, seconds: float) -> None:
        """Take no more tasks, and wait so long for those that were begun."""
        await asyncio.to_thread(
            lambda: DBOS.destroy(
                destroy_registry=True, workflow_completion_timeout_sec=max(0, round(seconds))
            )
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


async def _on(loop: asyncio.AbstractEventLoop, work: Awaitable[str]) -> str:
    """Work on the loop on which agents live, from DBOS's own; whose end does not cancel it."""

    async def main() -> str:
        return await work

    return await asyncio.shield(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(main(), loop)))
