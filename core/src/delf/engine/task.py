"""``TaskRun``: one task in hand, with all that its steps need."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from delf.config.schema import AgentConfig
from delf.engine.approvals.policy import TaskApprovals
from delf.engine.calls.gate import Gate
from delf.engine.codegen.prompt import TaskContext, first_messages
from delf.engine.codegen.stubs import render_stubs
from delf.engine.journal.log import TaskLog
from delf.engine.journal.recording import PastScript
from delf.engine.journal.replay import Replay
from delf.engine.loop.conversation import Conversation
from delf.engine.loop.memory import AgentMemory
from delf.engine.loop.prefilters import Prefilters
from delf.engine.models.client import Asker
from delf.engine.output import OutputFiles
from delf.engine.sandboxes import ChosenSandbox
from delf.engine.toolset import Toolset
from delf.errors import DelfError, UnrecordedCallError
from delf.events import SandboxOpened, Step, StepFinished, StepStarted
from delf.messages import Message, ModelReply, ModelRequest
from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Crashed,
    Done,
    Failed,
    Outcome,
    Raised,
    Rerun,
    SandboxSession,
    ScriptStart,
    SessionSpec,
    SupportsCut,
)

_log = logging.getLogger(__name__)
_CUT_SECONDS: Final = 1.0
"""How long a script may take to end that is to have reached a limit; then its sandbox is gone."""


@dataclass(kw_only=True)
class TaskRun:
    """A task in hand. Implements :class:`delf.protocols.sandbox.ScriptHost`.

    Args:
        task: What the user asked.
        config: The agent's configuration.
        log: The task's log.
        tools: What scripts may call, and what of it the model is shown.
        gate: The way that every call takes.
        approvals: Who decides, where a person is asked.
        asker: Asks models.
        sandbox: Where scripts run.
        session_spec: What its session is opened with.
        output: Takes output files.
        in_background: Lets something end after the task.
        prepare_tools: Gets connections ready, in an agent's first task.
        prefilters: Choose the tools that are shown.
        memory: Facts from before, if there is a store.
        conversation: What it continues, if anything.
        context: What goes ahead of the task in the prompt.
        seed: What scripts draw chance from.
        setup: What the caller needs to set up the same agent again.
        attended: Whether whoever ordered it waits for it.
        parent: The task of which it is a child.
        replay: The journal of a task that is resumed; empty for a new one.
        session_scripts: The scripts that ran in the open session, by their attempts.
    """

    task: str
    config: AgentConfig
    log: TaskLog
    tools: Toolset
    gate: Gate
    approvals: TaskApprovals
    asker: Asker
    sandbox: ChosenSandbox
    session_spec: SessionSpec
    output: OutputFiles
    in_background: Callable[[Coroutine[Any, Any, None]], None]
    prepare_tools: Callable[[TaskRun], Awaitable[None]]
    prefilters: Prefilters
    memory: AgentMemory | None = None
    conversation: Conversation | None = None
    context: TaskContext = field(default_factory=TaskContext)
    seed: str = ""
    setup: Mapping[str, Any] = field(default_factory=dict[str, Any])
    attended: bool = True
    parent: str | None = None
    replay: Replay = field(default_factory=Replay)
    script_start: ScriptStart = field(default_factory=ScriptStart)
    session_scripts: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    said: list[str] = field(default_factory=list[str])
    _attempt: int = 1
    _session: asyncio.Task[SandboxSession] | None = None
    _announced: SandboxSession | None = None
    _lost: asyncio.Future[UnrecordedCallError] | None = None

    @asynccontextmanager
    async def step(self, name: Step, attempt: int = 1) -> AsyncGenerator[None]:
        """Record a step's beginning and end."""
        started = time.perf_counter()
        await self.log.record(StepStarted, step=name, attempt=attempt)
        yield
        elapsed = (time.perf_counter() - started) * 1000
        await self.log.record(StepFinished, step=name, attempt=attempt, duration_ms=elapsed)

    def use_tools(self, tools: Toolset) -> None:
        """Give the task other tools, before its sandbox is opened."""
        self.tools = tools
        self.gate.use(tools)
        self.session_spec = replace(self.session_spec, tools=tools.names_for_sandbox())

    # -- StrategyHost -------------------------------------------------------------------

    async def begin(self) -> tuple[Message, ...]:
        """The conversation's start: rules and tools, then context and task."""
        stubs = render_stubs(self.tools.shown)
        return first_messages(self.task, self.context, stubs, self.session_spec.libraries)

    async def ask(self, messages: Sequence[Message]) -> ModelReply:
        """Ask the main model."""
        request = ModelRequest(messages=tuple(messages))
        return await self.asker.ask(self.config.main_llm, request)

    # -- the sandbox --------------------------------------------------------------------

    def open_session(self) -> asyncio.Task[SandboxSession]:
        """Begin to open a session, while something else goes on; the same until it is closed."""
        if self._session is None:
            opening = self.sandbox.backend.open(self.session_spec)
            self._session = asyncio.create_task(opening)
        return self._session

    def begin_script(self, attempt: int) -> PastScript | None:
        """A script is about to run.

        Args:
            attempt: Its number in the task.

        Returns:
            What the journal of a resumed task tells of it.
        """
        self._attempt = attempt
        self.gate.begin_script()
        self.approvals.begin_script(attempt)
        past = self.replay.begin_script(attempt)
        clock = () if past is None else tuple(past.clock)
        self.script_start = ScriptStart(seed=f"{self.seed}/{attempt}", clock=clock)
        return past

    async def execute(self, code: str) -> Outcome:
        """Run a script in the task's session, in a new one if that is gone.

        Raises:
            SandboxUnavailableError: When no session can be had.
            ReplayMismatch: When a resumed task's script is not the recorded one.
            UnrecordedCallError: When the end of a call could not be recorded.
        """
        if self._session is not None and self._session.done() and not self.session_alive:
            await self.close_session()
        session = await self.open_session()
        if session is not self._announced:
            self._announced = session
            self.session_scripts.clear()
            spec = self.sandbox.spec
            await self.log.record(SandboxOpened, backend=spec.name, isolation=spec.isolation)
        self.session_scripts.append((self._attempt, code))
        try:
            outcome = await self._run_script(session, code)
        except BaseException:
            self.log.end_prints()
            raise
        self.log.end_prints(is_over=not isinstance(outcome, Crashed))
        problems = await self.output.settle()
        if problems and isinstance(outcome, (Done, Rerun)):
            message = "; ".join(problems)
            return Failed(kind="OutputFileError", message=message, variables=outcome.variables)
        return outcome

    async def _run_script(self, session: SandboxSession, code: str) -> Outcome:
        lost = self._lost = asyncio.get_running_loop().create_future()
        stopped = self.replay.watch() if self.replay.active else lost
        running = asyncio.ensure_future(session.execute(code, self))
        try:
            await asyncio.wait({running, stopped, lost}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                raise lost.result()
            if not stopped.done():
                return await running
            why = stopped.result()
            if isinstance(why, DelfError):
                raise why
            if isinstance(session, SupportsCut) and not self.replay.loses_sandbox:
                session.cut(why.limit, why.message)
                await asyncio.wait({running}, timeout=_CUT_SECONDS)
            return await running if running.done() else why
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    @property
    def session_alive(self) -> bool:
        """Whether variables of earlier scripts are still there."""
        session = self._session
        if session is None or not session.done() or session.cancelled():
            return False
        return session.exception() is None and session.result().alive

    async def close_session(self) -> None:
        """Kill the sandbox, whatever runs in it, and wait until it is gone."""
        opening, self._session = self._session, None
        if opening is not None:
            await self._close(opening)

    def retire_session(self) -> None:
        """Kill the sandbox without waiting until it is gone."""
        opening, self._session = self._session, None
        if opening is not None:
            self.in_background(self._close(opening))

    async def _close(self, opening: asyncio.Task[SandboxSession]) -> None:
        if not opening.done():
            opening.cancel()
        await asyncio.wait({opening})
        if opening.cancelled() or opening.exception() is not None:
            return
        try:
            await opening.result().aclose()
        except Exception as error:  # the task ends as it did, whatever is left of its sandbox
            message = f"the sandbox of task {self.log.task_id} could not be closed"
            self.log.redactor.log_failure(_log, message, error)

    # -- ScriptHost ---------------------------------------------------------------------

    async def call(self, request: CallRequest) -> CallAnswer:
        """A call of the script takes the gate."""
        try:
            return await self.gate.call(request)
        except UnrecordedCallError as error:
            return await self._stop(error)
        except Exception as error:
            self.log.redactor.log_failure(_log, "a tool call failed outside of its tool", error)
            return Raised("ToolError", "the call failed inside delf; see the log")

    async def _stop(self, error: UnrecordedCallError) -> NoReturn:
        """End the task; the script that waits for an answer gets none, so that it does nothing."""
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(error)
        own = asyncio.current_task()
        if own is not None and own.cancelling():
            raise asyncio.CancelledError from error
        await asyncio.get_running_loop().create_future()  # until its sandbox is gone
        raise error

    def printed(self, text: str) -> None:
        """The script printed."""
        self.said.append(text)
        self.log.say(text)

    def clock_read(self, readings: Sequence[int]) -> None:
        """The script looked at the clock."""
        self.log.clock_read(readings)

    def gave_up(self, call_id: int) -> None:
        """The script does not wait for a call any more."""
        self.gate.gave_up(call_id)

    def wrote_file(self, name: str, data: bytes) -> None:
        """The script handed a file over."""
        self.output.take(name, data)

    def wrote_rows(self, name: str, data: bytes) -> None:
        """The script handed over the rows of a file that is made here."""
        self.output.take(name, data, is_rows=True)

    def take_printed(self) -> str:
        """What was printed since this was last taken, without secrets."""
        text = "".join(self.said)
        self.said.clear()
        return self.log.redactor.text(text)
