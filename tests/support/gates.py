"""A gate with everything behind it, for tests of the way that calls take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from delf.events import Event
from delf.protocols.sandbox import CallAnswer, CallRequest, Limits
from delf.types import ApprovalMode
from delf_engine.approvals.channels import CallbackChannel, NamedChannel
from delf_engine.approvals.pending import PendingRequests
from delf_engine.approvals.policy import TaskApprovals
from delf_engine.approvals.shared import Approvals
from delf_engine.calls.gate import Gate
from delf_engine.calls.threads import ToolThreads
from delf_engine.config import AgentConfig
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.journal.log import TaskLog
from delf_engine.journal.replay import Replay
from delf_engine.redact import Redactor
from delf_engine.task import TaskRequest
from delf_engine.toolset import Toolset, load_toolset
from delf_engine.views.trace import Trace
from delf_engine.waiting import Permit, TaskClock


class NoContexts:
    """The contexts of a task whose actions want none."""

    async def wait_for_output_files(self) -> None:
        """Return at once, because no files are written."""

    async def freeze(self, call: Any) -> None:
        """Read no files of a call."""

    async def end_call(self, call: Any, *, is_cut_off: bool) -> None:
        """Forget nothing."""

    def has_started_children(self, call: Any) -> bool:
        """Know of no child task of a call."""
        return False

    def of(self, call: Any, *, is_repeated: bool = False) -> Any:
        """Have no context."""
        return None


@dataclass
class GateBench:
    """A gate, what was recorded, and who was asked."""

    tools: Toolset
    gate: Gate
    log: TaskLog
    approvals: TaskApprovals
    journal: Any
    asked: list[Any] = field(default_factory=list[Any])

    async def call(self, name: str, *args: Any, **kwargs: Any) -> CallAnswer:
        """Make a call as a script does."""
        connection, _, method = name.partition(".")
        request = CallRequest(
            call_id=1, connection=connection, method=method, args=list(args), kwargs=kwargs
        )
        return await self.gate.call(request)

    @property
    def events(self) -> list[Event]:
        """The recorded events."""
        return self.log.events

    @property
    def kinds(self) -> list[str]:
        """The names of what was recorded."""
        return [type(event).__name__ for event in self.log.events]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and outcome of every call in the trace."""
        return [(call.name, call.status) for call in Trace(self.log.events).tool_calls]


async def gate_bench(
    *connections: Any,
    decide: Callable[[Any], Any] | None = None,
    channels: Sequence[NamedChannel] | None = None,
    mode: ApprovalMode = "interactive",
    timeout: float = 5.0,
    max_result_bytes: int = 100_000,
    shared: Approvals | None = None,
    journal: Any = None,
    task_id: str = "task_1",
    user: str | None = None,
    project: str = "/home/ada/shop",
    secrets: Sequence[str] = (),
    replay: Replay | None = None,
    contexts: Any = None,
) -> GateBench:
    """A gate before some connections.

    Args:
        connections: The tools.
        decide: Answers requests; nobody does when omitted.
        channels: Who is asked, in place of ``decide``.
        mode: The mode of approval.
        timeout: Seconds until a request expires.
        max_result_bytes: The largest result.
        shared: Approvals of an agent with several tasks.
        journal: That of several tasks.
        task_id: The task.
        user: The user for whom it runs.
        project: Its folder.
        secrets: What must not get to the journal and to scripts.
        replay: What the journal of a resumed task holds.
        contexts: Tell actions of the task.
    """
    tools = await load_toolset(connections)
    redactor = Redactor(secrets)
    journal = InProcessJournal() if journal is None else journal
    log = TaskLog(task_id, journal, [], redactor)
    asked: list[Any] = []

    async def noting(request: Any) -> Any:
        asked.append(request)
        answer = decide(request) if decide is not None else None
        return await answer if asyncio.iscoroutine(answer) else answer

    if channels is None:
        channels = [NamedChannel("test", CallbackChannel(noting))]
    approvals = shared or Approvals(
        config=AgentConfig(approval_mode=mode, approval_timeout=timeout),
        channels=tuple(channels),
        pending_requests=PendingRequests(),
        journal=journal,
        project=project,
    )
    request = TaskRequest(task="a task", timeout=60, task_id=task_id, user=user)
    permit = Permit(asyncio.Semaphore(10))
    of_task = TaskApprovals(approvals, request, log, permit, TaskClock(60))
    run: Any = SimpleNamespace(
        tools=tools,
        approvals=of_task,
        permit=permit,
        log=log,
        replay=Replay() if replay is None else replay,
        resources=SimpleNamespace(limits=Limits(frame_bytes=max_result_bytes + 1024)),
    )
    around: Any = NoContexts() if contexts is None else contexts
    gate = Gate(run, around, ToolThreads(4, 1))
    return GateBench(tools, gate, log, of_task, journal, asked)
