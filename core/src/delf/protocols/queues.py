"""A queue: where tasks wait for runners."""

from __future__ import annotations

from typing import Protocol

from delf.events import TaskQueued


class TaskQueue(Protocol):
    """The queue of ``agent.submit(task, queue=…)``.

    A plugin exports ``task_queue(options, environ, folder)``, which makes one from the options of
    all plugins, the environment and the project's folder. Nothing is opened before the first task.
    """

    async def enqueue(self, task: TaskQueued) -> None:
        """Let a runner do a task, which the journal gets next.

        The same task twice is one task. A runner waits for the journal to have it, and gives
        a task up that never comes there.

        Raises:
            DelfError: When the queue cannot be reached; then it does not have the task.
        """
        ...

    async def aclose(self) -> None:
        """Free what is held. Safe to call twice."""
        ...
