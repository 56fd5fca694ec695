"""DBOS, as a runner uses it: each task that is begun is a workflow, and schedules fire.

Which task is begun, and by whom, the journal says: it also knows who may go on with one. DBOS
would look at its queues at intervals only, and longer ones while runners contend.

Its blocking functions are used, in threads: its asynchronous ones would put an executor of DBOS's
in the place of the event loop's own, and shut it down at the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID

_log = logging.getLogger(__name__)

APPLICATION: Final = "delf"
TASK: Final = "delf.task"
SCHEDULED: Final = "delf.scheduled"
_VERSION: Final = "1"
_LAST_SECONDS: Final = 2
"""How long the outcomes of tasks that are over may take to be written down."""

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
        work: Does a task.
        fire: Hands in a task.
    """

    def __init__(self, url: str, work: Work, fire: Fire) -> None:
        self._url = url
        self._launched = False
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

    async def start(self) -> None:
        """Get ready for tasks; schedules fire from now on."""
        DBOS.listen_queues([])
        await asyncio.to_thread(DBOS.launch)
        self._launched = True

    async def begin(self, task_id: str) -> None:
        """Begin the work on a task; it is under way when this returns."""

        def begin() -> None:
            with SetWorkflowID(f"{task_id}:{secrets.token_hex(4)}"):
                DBOS.start_workflow(self._task, task_id)

        await asyncio.to_thread(begin)

    async def stop(self) -> None:
        """Let go of the database; nothing is begun any more."""
        await asyncio.to_thread(
            lambda: DBOS.destroy(
                destroy_registry=True,
                workflow_completion_timeout_sec=_LAST_SECONDS if self._launched else 0,
            )
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


async def _on(loop: asyncio.AbstractEventLoop, work: Awaitable[str]) -> str:
    """Work on the loop on which agents live, from DBOS's own; whose end does not cancel it."""

    async def main() -> str:
        return await work

    return await asyncio.shield(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(main(), loop)))
