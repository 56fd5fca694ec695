"""Background tasks as a program handles them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delf.agent.background import BackgroundTasks
from delf.response import Response

if TYPE_CHECKING:
    from delf.engine.views.snapshot import StreamSnapshot


class AgentTasks:
    """The part of an agent that knows the submitted tasks by their ids; from any thread."""

    _tasks: BackgroundTasks

    def poll(self, task_id: str) -> StreamSnapshot:
        """How a submitted task stands now; from any thread.

        Raises:
            UnknownTaskError: When no task has this id.
        """
        return self._tasks.get(task_id).look()

    def wait(self, task_id: str, timeout: float | None = None) -> Response:
        """Wait for a submitted task.

        Args:
            task_id: The task.
            timeout: Seconds to wait at the most; the task itself goes on after them.

        Raises:
            TimeoutError: When it is not over in time.
            UnknownTaskError: When no task has this id.
        """
        return self._tasks.wait(task_id, timeout)

    def cancel(self, task_id: str) -> bool:
        """Stop a submitted task; False when it was over already."""
        return self._tasks.cancel(task_id)
