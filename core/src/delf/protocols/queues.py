"""A queue: where tasks wait for runners."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from delf.events import TaskQueued
from delf.protocols.services import Service


class TaskQueue(Protocol):
    """The queue of ``agent.submit(task, queue=…)``.

    Nothing is opened before the first task.
    """

    async def enqueue(self, task: TaskQueued) -> None:
        """Enqueue a task for a runner; the caller appends it to the journal next.

        Idempotent for the same task. A runner waits for the journal to have the task, and abandons
        a task that never appears.

        Raises:
            DelfError: If the queue cannot be reached; the task is then not enqueued.
        """
        ...

    async def aclose(self) -> None:
        """Release all resources. Idempotent."""
        ...


class MakesQueue(Protocol):
    """The factory of a project's queue, exported by a plugin as ``task_queue``."""

    def __call__(
        self,
        options: Mapping[str, Mapping[str, Any]],
        environ: Mapping[str, str],
        folder: Path,
        /,
    ) -> TaskQueue:
        """Make the queue.

        Args:
            options: Options by plugin name.
            environ: The variables in which settings are looked up.
            folder: The project's folder.
        """
        ...


TASK_QUEUE: Final = Service("task_queue", MakesQueue, "tasks that are left to runners")
