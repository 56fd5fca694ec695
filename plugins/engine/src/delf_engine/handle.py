"""``TaskHandle``: the id of a submitted task, with the methods to follow the task."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Self

from delf.events import StoppedBy
from delf_engine.background import response_at_end
from delf_engine.elsewhere import snapshot_of
from delf_engine.waiting import Permit

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from delf.events import ApprovalRequest
    from delf_engine.approvals.pending import PendingRequests
    from delf_engine.background import BackgroundTask, BackgroundTasks
    from delf_engine.response import Response
    from delf_engine.sync import RuntimeLoop
    from delf_engine.views.snapshot import StreamSnapshot

    T = TypeVar("T", default=Any)
else:  # only type checkers need the default
    from typing import TypeVar

    T = TypeVar("T")


class FollowsTasks:
    """The part of an agent that follows submitted tasks by their ids."""

    agent_id: str
    """The agent's id, which the journal records when the agent stops a task."""
    _runtime_loop: RuntimeLoop
    _tasks: BackgroundTasks
    _pending_requests: PendingRequests

    def poll(self, task_id: str) -> StreamSnapshot:
        """Return the state of a task, even of another process.

        A task of this process is read from memory, any other task from the journal.

        Raises:
            UnknownTaskError: If no such task is known.
            AgentStateError: If called from the event loop that the agent works on.
        """
        # Before the look-up, so that the error does not depend on who runs the task.
        self._runtime_loop.check_outside_loop("poll", "apoll")
        if (task := self._tasks.find(task_id)) is not None:
            return task.snapshot()
        return self._runtime_loop.call(
            lambda r: snapshot_of(r.journal, str(task_id)), "poll", "apoll"
        )

    async def apoll(self, task_id: str) -> StreamSnapshot:
        """Async version of :meth:`poll`."""
        if (task := self._tasks.find(task_id)) is not None:
            return task.snapshot()
        return await self._runtime_loop.call_async(lambda r: snapshot_of(r.journal, str(task_id)))

    def wait(self, task_id: str, timeout: float | None = None) -> Response:
        """Wait for a task of any process; raise ``TimeoutError`` past ``timeout``.

        Raises:
            AgentStateError: If called from the event loop that the agent works on.
        """
        self._runtime_loop.check_outside_loop("wait", "await_task")
        task = self._tasks.find(task_id)
        if task is not None and not self._must_release_permit(task):
            # Do not use the runtime, which may be stopped by now. The task itself has the response.
            return task.wait(timeout)
        return self._runtime_loop.call(
            lambda r: response_at_end(r, str(task_id), timeout, task), "wait", "await_task"
        )

    async def await_task(self, task_id: str, timeout: float | None = None) -> Response:
        """Async version of :meth:`wait`. Cancelling the wait does not stop the task."""
        task = self._tasks.find(task_id)
        if task is not None and not self._must_release_permit(task):
            return await task.await_end(timeout)
        return await self._runtime_loop.call_async(
            lambda r: response_at_end(r, str(task_id), timeout, task)
        )

    @staticmethod
    def _must_release_permit(task: BackgroundTask) -> bool:
        """Return True if a tool of another task waits for this task, which has not ended.

        The waiting task then releases its permit to run. Otherwise, with ``max_tasks=1``, the
        awaited task could not start before the waiting task ends.
        """
        return Permit.of_task.get() is not None and not task.outcome.done()

    def cancel(self, task_id: str) -> bool:
        """Stop a submitted task of any process; return False if the task was over.

        Raises:
            UnknownTaskError: If no such task is known.
            AgentStateError: If called from the event loop that the agent works on.
        """
        # Before the look-up, so that the error does not depend on who runs the task.
        self._runtime_loop.check_outside_loop("cancel", "acancel")
        if (task := self._tasks.find(task_id)) is not None:
            return task.cancel()
        stopper = StoppedBy(self.agent_id)
        return self._runtime_loop.call(
            lambda r: r.stop_anywhere(str(task_id), stopper), "cancel", "acancel"
        )

    async def acancel(self, task_id: str, *, by: str = "", via: str = "") -> bool:
        """Async version of :meth:`cancel`; the journal records the person and the channel.

        Args:
            task_id: The task.
            by: The person who cancels the task; this program when omitted.
            via: The channel or address of the person.
        """
        # Without a person to record, a submitted task of this process is simply cancelled.
        if not by and (task := self._tasks.find(task_id)) is not None:
            return task.cancel()
        stopped_by = StoppedBy(by or self.agent_id, via)
        return await self._runtime_loop.call_async(
            lambda r: r.stop_anywhere(str(task_id), stopped_by)
        )

    def get_pending_approvals(self) -> list[ApprovalRequest]:
        """Return the pending requests and questions, oldest first; thread-safe.

        If no channel reaches a person, a request stays pending until the program answers it. This
        applies to submitted tasks, and to all tasks with ``wait_approvals=True``; in other tasks
        such a request is rejected.
        """
        return self._pending_requests.list()


class TaskHandle(str, Generic[T]):
    """A submitted task: the task's id as a ``str``, and methods to follow the task.

    ``await handle`` waits for the response; cancelling the wait does not stop the task. The handle
    is equal to the id, so that a program can keep the id and pass either to the agent's methods.
    """

    __slots__ = ("_agent",)

    _agent: FollowsTasks

    def __new__(cls, task_id: str, agent: FollowsTasks) -> Self:
        """Make a handle.

        Args:
            task_id: The task's id.
            agent: The agent that follows the task.
        """
        handle = super().__new__(cls, task_id)
        handle._agent = agent
        return handle

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle and copy the handle as its id, because an agent belongs to one process."""
        return str, (str(self),)

    def __await__(self) -> Generator[Any, None, Response[T]]:
        task_id = str(self)  # the text of a handle is the id of its task
        return self._agent.await_task(task_id).__await__()

    def result(self, timeout: float | None = None) -> Response[T]:
        """Wait for the task; raise ``TimeoutError`` past ``timeout``."""
        task_id = str(self)
        return self._agent.wait(task_id, timeout)

    def snapshot(self) -> StreamSnapshot:
        """Return the state of the task, as :meth:`Agent.poll` does."""
        return self._agent.poll(str(self))

    async def asnapshot(self) -> StreamSnapshot:
        """Async version of :meth:`snapshot`."""
        return await self._agent.apoll(str(self))

    def cancel(self) -> bool:
        """Stop the task; return False if the task was over."""
        return self._agent.cancel(str(self))

    async def acancel(self) -> bool:
        """Async version of :meth:`cancel`."""
        return await self._agent.acancel(str(self))

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """The pending requests for approval of the task, oldest first."""
        task_id = str(self)  # the text of a handle is the id of its task
        waiting = self._agent.get_pending_approvals()
        return [request for request in waiting if request.task_id == task_id]
