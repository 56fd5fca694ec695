"""A queue: where tasks wait for runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from delf.events import TaskQueued
from delf.protocols.services import Service


class TaskQueue(Protocol):
    """The queue of ``agent.submit(task, queue=…)``, which a plugin with runners implements.

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


QueueFactory = Callable[[Mapping[str, Mapping[str, Any]], Mapping[str, str], Path], TaskQueue]
"""A function that makes a project's queue.

The arguments are the options of each plugin by the plugin's name, the environment variables, and
the project's folder.
"""

TASK_QUEUE: Final[Service[QueueFactory]] = Service(
    "task_queue", None, "tasks that are left to runners"
)
