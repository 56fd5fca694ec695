"""Services for the calls of a task: child tasks, models, a person's consent."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from delf.engine.approvals.identity import call_digest
from delf.engine.calls.call import Call
from delf.engine.models.money import Ledger
from delf.engine.output import OutputFiles
from delf.engine.task import ChildOptions, TaskRequest
from delf.engine.task_run import TaskRun
from delf.engine.toolset import BoundAction
from delf.engine.waiting import to_its_end
from delf.errors import ToolExecutionError, UnknownTaskError
from delf.events import CallPrinted, ChangeKept, ChildFinished, ChildStarted, Event
from delf.llm import LLMConfig, as_llm_config
from delf.messages import Message, ModelReply, ModelRequest
from delf.outputs import Output
from delf.protocols.approval import Approved, Edited
from delf.protocols.connection import NeedsApproval
from delf.tools.action import Action
from delf.tools.context import CallContext, ChildResult, ChildTask
from delf.tools.function import as_connections


class RunsTasks(Protocol):
    """The runtime, as child tasks need it."""

    async def run_child(self, request: TaskRequest) -> ChildResult:
        """Work a task to its end."""
        ...

    async def take_up(self, task_id: str) -> Sequence[Event]:
        """Make a task of the journal this agent's own; its events."""
        ...

    def leave(self, task_id: str) -> None:
        """Keep nothing of a task's end when it is cancelled, so that it can be resumed."""
        ...


class ChildTasks:
    """The child tasks of one task, and what its calls are told of it.

    Args:
        runtime: Runs them.
        run: The parent.
    """

    def __init__(self, runtime: RunsTasks, run: TaskRun) -> None:
        self._runtime = runtime
        self._run = run
        self.held_back: dict[int, Callable[[], str]] = {}
        """The latest prints of calls, which could be the beginning of a secret."""
        self._cut_off: dict[tuple[int, str], asyncio.Future[ChildResult]] = {}
        """Children, by call and id, that go on while the script that waits for them runs again."""
        self._end: Literal["over", "left"] | None = None
        """The end of the parent, as soon as it is known."""

    @property
    def output(self) -> OutputFiles:
        """The parent's output files."""
        return self._run.output

    @property
    def depth(self) -> int:
        """The number of tasks above the parent."""
        return 0 if self._run.request.child is None else self._run.request.child.depth

    def _output_files(self) -> Mapping[str, Path]:
        return {name: Path(path) for name, path in self._run.output.files.items()}

    def _tell(self, call_id: int, text: str) -> None:
        if text:
            self._run.log.record_soon(CallPrinted, call_id=call_id, text=text)

    def said_all(self, call: Call) -> None:
        """Tell what a call said last, which could have been the beginning of a secret."""
        end = self.held_back.pop(call.number, None)
        if end is not None:
            self._tell(call.number, end())

    def begun(self, call_id: int) -> list[ChildStarted]:
        """The children that a call has begun, as the journal tells."""
        found = (event for event in self._run.log.events if isinstance(event, ChildStarted))
        return [event for event in found if event.call_id == call_id]

    def context(self, call: Call, *, again: bool = False) -> CallContext:
        """Describe for an action the task that calls it.

        Args:
            call: The call.
            again: Whether it was begun before the task was resumed.
        """
        begun = self.begun(call.number) if again else []
        context = self._run.resources.agent.context

        def delegate(child: ChildTask) -> Awaitable[ChildResult]:
            if child.tools is not None and child.worker is None:
                # What was approved for tools of the same name is not approved for these.
                child = replace(child, worker=call.bound.connection.name)
            return self._delegate(call, child, begun)

        printing = self._run.log.redactor.stream()

        def say(text: str) -> None:
            self._tell(call.number, printing.feed(text))
            self.held_back[call.number] = printing.end

        def keep(what: str, data: Mapping[str, Any]) -> Awaitable[None]:
            return self._run.log.record(ChangeKept, call_id=call.number, what=what, data=dict(data))

        return CallContext(
            task_id=self._run.log.task_id,
            task=self._run.request.task,
            call_id=call.number,
            connection=call.bound.connection.name,
            folder=context.folder,
            depth=self.depth,
            worker=self._run.request.worker,
            input_files={file.name: Path(file.path) for file in self._run.inputs},
            llm=self._run.config.main_llm,
            vision_llm=self._run.config.image_llm,
            strategy=self._run.config.strategy,
            tools={connection.name: connection for connection in self._run.agent_tools.connections},
            connect=context.connect,
            basis=call.basis,
            _say=say,
            _keep=keep,
            _loop=asyncio.get_running_loop(),
            _output_files=self._output_files,
            _add_file=self._run.output.take_from_call,
            _delegate=delegate,
            _ask=self._ask,
            _consent=functools.partial(self._consent, call),
        )

    async def _ask(
        self, messages: Sequence[Message], llm: str | LLMConfig | None, settings: Mapping[str, Any]
    ) -> ModelReply:
        """A model's answer to a call."""
        config = self._run.config.main_llm if llm is None else as_llm_config(llm)
        request = ModelRequest(messages=tuple(messages), purpose="call", settings=settings)
        return await self._run.models.ask_whole(config, request)

    async def _consent(
        self,
        call: Call,
        question: str,
        arguments: dict[str, Any],
        name: str,
        fit: Callable[[Mapping[str, Any]], dict[str, Any]],
    ) -> Mapping[str, Any] | None:
        """Return the arguments that a person agreed to; None for a no.

        What becomes of a yes is in nobody's hands any more, whatever the action says of itself.
        """
        asked = Action(
            name=name,
            permission=name,
            effect="irreversible",
            summary=question,
            parameters=(),
            returns="None",
            validate=fit,
            call=fit,
        )
        title = f"{call.bound.connection.name}.{name}"
        inner = replace(
            call,
            bound=BoundAction(call.bound.connection, asked, title, asks=True),
            arguments=arguments,
            description=None,
            digest=call_digest(title, {"question": question, "arguments": arguments}),
            alone=False,
            line=None,
        )
        verdict = NeedsApproval(reason=f"{call.bound.name} asks", preview=question)
        answer = await self._run.approvals.decide(inner, verdict)
        if isinstance(answer.decision, Edited):
            return fit(answer.decision.arguments)
        return arguments if isinstance(answer.decision, Approved) else None

    def end(self, *, left: bool) -> None:
        """The parent is over, or is ``left`` to be resumed: so are the children that it has."""
        if self._end != "left":
            self._end = "left" if left else "over"

    async def end_cut_off(self) -> None:
        """End the children that were cut off with a script, which will not come for them any more.

        They are left to be resumed where the parent is.
        """
        going_on = dict(self._cut_off)
        self._cut_off.clear()
        for (call_id, child_id), work in going_on.items():
            if self._end != "left":
                about = {"call_id": call_id, "child_id": child_id, "duration_ms": 0.0}
                error = "the script that waited for it is over"
                self._run.log.record_soon(ChildFinished, **about, status=False, error=error)
            self._cancel(child_id, work)
        if going_on:
            await to_its_end(asyncio.wait(going_on.values()))

    def _cancel(self, child_id: str, work: asyncio.Future[ChildResult]) -> None:
        if self._end == "left":
            self._runtime.leave(child_id)
        work.cancel()

    async def _delegate(
        self, call: Call, child: ChildTask, begun: list[ChildStarted]
    ) -> ChildResult:
        """Run a child task, or go on with the one that the journal has for it."""
        if self.depth >= self._run.config.max_depth:
            raise ToolExecutionError(
                f"the task is {self.depth} tasks deep, and has no child task any more",
                hint="max_depth allows more",
            )
        request = self._request(child)
        again = next((event for event in begun if event.task == child.task), None)
        if again is None:
            self._check_number()
            await self._run.log.record(
                ChildStarted,
                call_id=call.number,
                child_id=request.task_id,
                task=child.task,
                worker=child.worker,
            )
        else:
            begun.remove(again)
            if (call.number, again.child_id) in self._cut_off:
                request = replace(request, task_id=again.child_id)
            else:
                request = await self._resumed(request, again.child_id)
        started = time.perf_counter()
        ended: dict[str, Any] = {"call_id": call.number, "child_id": request.task_id}
        key = call.number, request.task_id
        work = self._cut_off.pop(key, None)
        if work is None:
            work = asyncio.ensure_future(self._runtime.run_child(request))
            work.add_done_callback(_look_at)
        try:
            async with self._run.permit.given_up():
                result = await asyncio.shield(work)
        except asyncio.CancelledError:
            if not call.given_up and self._end is None:
                # The parent's sandbox died alone: its script runs again, and comes for the child.
                self._cut_off[key] = work
                raise
            self._cancel(request.task_id, work)
            await to_its_end(asyncio.wait({work}))
            if self._end != "left":
                elapsed, error = _ms_since(started), "the task was cancelled"
                self._run.log.record_soon(
                    ChildFinished, **ended, status=False, duration_ms=elapsed, error=error
                )
            raise
        if again is None or not self._has_end(request.task_id):
            await self._run.log.record(
                ChildFinished,
                **ended,
                status=result.status,
                duration_ms=_ms_since(started),
                error=result.error,
                cost_usd=result.cost_usd,
            )
        return result

    def _check_number(self) -> None:
        """Refuse one child more than a task may have.

        Raises:
            ToolExecutionError: When there are as many.
        """
        had = sum(isinstance(event, ChildStarted) for event in self._run.log.events)
        if had >= self._run.config.max_children:
            raise ToolExecutionError(
                f"the task has had {had} child tasks, and can have no more",
                hint="max_children allows more",
            )

    def _request(self, child: ChildTask) -> TaskRequest:
        changes: dict[str, Any] = {}
        if child.llm is not None:
            changes |= {"llm": as_llm_config(child.llm), "light_llm": None, "heavy_llm": None}
        for name in ("system_prompt", "retry_count", "rerun_count", "strategy"):
            if getattr(child, name) is not None:
                changes[name] = getattr(child, name)
        ledger = self._run.models.ledger
        if child.budget_usd is not None:
            ledger = Ledger(child.budget_usd, within=ledger)
        return TaskRequest(
            task=child.task,
            listeners=self._run.request.child_listeners,
            child_listeners=self._run.request.child_listeners,
            timeout=self._run.request.timeout if child.timeout is None else child.timeout,
            attended=self._run.request.attended,
            patient=self._run.request.patient,
            settle=self._run.request.settle,
            key=self._run.request.on_behalf_of,
            child=ChildOptions(
                parent=self._run.log.task_id,
                depth=self.depth + 1,
                config=self._run.config.model_copy(update=changes),
                clock=self._run.clock,
                worker=child.worker,
                ledger=ledger,
                check=child.check,
                tools=None if child.tools is None else as_connections(child.tools),
            ),
            files=self._run.request.files if child.files is None else [str(p) for p in child.files],
            output=None if child.output is None else Output(child.output),
        )

    async def _resumed(self, request: TaskRequest, child_id: str) -> TaskRequest:
        """The request for a child that was begun before its parent was resumed."""
        try:
            past = await self._runtime.take_up(child_id)
        except UnknownTaskError:  # it was about to begin
            past = ()
        return replace(request, task_id=child_id, past=past)

    def _has_end(self, child_id: str) -> bool:
        ends = (event for event in self._run.log.events if isinstance(event, ChildFinished))
        return any(event.child_id == child_id for event in ends)


def _look_at(work: asyncio.Future[ChildResult]) -> None:
    """Take note of a failed child that nobody waits for any more: it is in its own journal."""
    if not work.cancelled():
        work.exception()


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
