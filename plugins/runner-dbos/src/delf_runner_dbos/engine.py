"""DBOS in a runner: its queues start workflows, each of which runs a task.

A workflow is a coroutine on DBOS's own event loop, which waits for work on the runner's loop. On
the runner's loop, DBOS would replace the default executor, and shut it down at the end.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from delf.events import with_user
from delf_runner_dbos.queue import APPLICATION, SCHEDULED, TASK, Ticket, user_queue_name
from delf_runner_dbos.sqlite import add_missing_functions, lock_claims

T = TypeVar("T")

_VERSION: Final = "1"

Work = Callable[[str, Ticket], Awaitable[str]]
"""Function that runs a task by workflow id and ticket, and returns a status word for DBOS."""

Fire = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Function that starts the tasks of a schedule and returns JSON-ready data about them.

The arguments are the workflow id and the schedule's context from DBOS.
"""


def configuration(url: str) -> DBOSConfig:
    """Configure DBOS with a unique executor, so that it recovers only this process's workflows."""
    executor_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=url,
        executor_id=executor_id,
        application_version=_VERSION,
        serializer=DBOSPortableJSONSerializer(),
        log_level="ERROR",
        scheduler_polling_interval_sec=1.0,
    )


class Workflows:
    """The DBOS instance of this process, of which there is only one.

    Args:
        url: The URL of DBOS's database.
        work: Runs a task that a queue in the database has started.
        fire: Starts the tasks of a schedule whose time has come.
    """

    def __init__(self, url: str, work: Work, fire: Fire) -> None:
        self._url = url
        self._work = work
        self._fire = fire

    async def start(self, queues: Collection[str]) -> None:
        """Start DBOS with the workflows and schedules of some queues.

        If the start fails, DBOS is shut down again before the error is raised.
        """
        lock_claims()  # replaces DBOS's method that begins a transaction in SQLite
        add_missing_functions()  # replaces DBOS's method that opens an SQLite database
        self._register(asyncio.get_running_loop())
        queue_names: list[str] = []
        for queue in queues:
            queue_names += [queue, user_queue_name(queue)]
        DBOS.listen_queues(queue_names)
        try:
            await asyncio.to_thread(DBOS.launch)
        except BaseException:
            await self.stop(0)
            raise

    def _register(self, loop: asyncio.AbstractEventLoop) -> None:
        """Register the workflows with DBOS; they run on the runner's event loop."""
        DBOS(config=configuration(self._url))

        @DBOS.workflow(name=TASK, max_recovery_attempts=None)
        async def task(ticket: dict[str, Any]) -> str:
            fields = with_user(ticket)  # earlier versions stored the field `user` as `key`
            return await _run_on(loop, self._work(str(DBOS.workflow_id), Ticket(**fields)))

        @DBOS.workflow(name=SCHEDULED, max_recovery_attempts=None)
        async def scheduled(at: datetime | str, context: Any) -> dict[str, Any]:
            context_with_time = {**with_user(context), "at": str(at)}
            return await _run_on(loop, self._fire(str(DBOS.workflow_id), context_with_time))

        _ = task, scheduled  # unused here: DBOS calls them by their registered names

    async def stop(self, seconds: float) -> None:
        """Stop DBOS, and disconnect from its database.

        Args:
            seconds: The maximum number of seconds to wait for running workflows.
        """
        await asyncio.to_thread(
            lambda: DBOS.destroy(
                destroy_registry=True, workflow_completion_timeout_sec=math.ceil(seconds)
            )
        )


async def _run_on(loop: asyncio.AbstractEventLoop, work: Awaitable[T]) -> T:
    """Run work on the agents' event loop, and wait for its result.

    The work continues if DBOS cancels this coroutine, or closes the coroutine's own event loop.
    """

    async def main() -> T:  # run_coroutine_threadsafe() takes coroutines only
        return await work

    future = asyncio.run_coroutine_threadsafe(main(), loop)
    return await asyncio.shield(asyncio.wrap_future(future))
