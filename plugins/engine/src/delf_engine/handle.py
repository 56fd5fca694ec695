"""``TaskHandle``: the id of a submitted task, with the methods to follow the task."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from delf.events import ApprovalRequest
    from delf_engine.response import Response
    from delf_engine.views.snapshot import StreamSnapshot

    T = TypeVar("T", default=Any)
else:  # what the default is good for, only type checkers know
    from typing import TypeVar

    T = TypeVar("T")


class FollowsTasks(Protocol):
    """The methods of an agent that follow a task by its id."""

    def wait(self, task_id: str, timeout: float | None = None) -> Response[Any]:
        """Wait for a task."""
        ...

    async def await_task(self, task_id: str, timeout: float | None = None) -> Response[Any]:
        """Async version of :meth:`wait`."""
        ...

    def poll(self, task_id: str) -> StreamSnapshot:
        """Return the state of a task."""
        ...

    async def apoll(self, task_id: str) -> StreamSnapshot:
        """Async version of :meth:`poll`."""
        ...

    def cancel(self, task_id: str) -> bool:
        """Stop a task."""
        ...

    async def acancel(self, task_id: str) -> bool:
        """Async version of :meth:`cancel`."""
        ...

    def get_pending_approvals(self) -> list[ApprovalRequest]:
        """Return the pending requests for approval."""
        ...


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
        return self._agent.await_task(str(self)).__await__()

    def result(self, timeout: float | None = None) -> Response[T]:
        """Wait for the task; raise ``TimeoutError`` past ``timeout``."""
        return self._agent.wait(str(self), timeout)

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
        waiting = self._agent.get_pending_approvals()
        return [request for request in waiting if request.task_id == self]
