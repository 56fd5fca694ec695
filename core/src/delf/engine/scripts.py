"""Runs a task's scripts in its sandbox."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import logging
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

from delf.engine.calls.children import ChildTasks
from delf.engine.calls.gate import Gate
from delf.engine.journal.recording import RecordedScript
from delf.engine.journal.replay import RecordedLimit
from delf.engine.task_run import TaskRun
from delf.engine.toolset import BoundAction, Toolset
from delf.errors import SandboxUnavailableError, TaskLeftError
from delf.events import (
    CallFinished,
    SandboxOpened,
    ScriptFinished,
    ScriptStatus,
    Step,
)
from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Crashed,
    Done,
    Failed,
    LimitReached,
    Limits,
    Outcome,
    Raised,
    Rerun,
    SandboxSession,
    ScriptStart,
    SupportsCut,
    SupportsLanguage,
    SupportsUsage,
    check_script,
)
from delf.protocols.strategy import CallGuard
from delf.values.encoding import UnsupportedValueError, check_size, kind_name

_ANY_PYTHON: Final = "Python 3.11 or newer"
_LEAST_SECONDS: Final = 0.1
"""Less than this is not worth a start, and within what the system measures."""


class ResourceBudget:
    """Counts what scripts use up, so that one which ends its sandbox gains nothing by that.

    Args:
        limits: Of the whole task.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seconds = 0.0
        self._calls = self._file_bytes = 0
        self._calls_now = self._file_bytes_now = 0

    def opened(self) -> None:
        """A session was opened; what was not over before is done again in it."""
        self._calls_now = self._file_bytes_now = 0

    def called(self) -> None:
        """A script made a call."""
        self._calls_now += 1

    def handed_over(self, size: int) -> None:
        """A script handed an output file over.

        Args:
            size: Its bytes.
        """
        self._file_bytes_now += size

    def ended(self, session: SandboxSession) -> None:
        """A session is over with all that its scripts did in it, and closed."""
        if isinstance(session, SupportsUsage):
            self._seconds += session.cpu_seconds
        self._calls += self._calls_now
        self._file_bytes += self._file_bytes_now
        self._calls_now = self._file_bytes_now = 0

    @property
    def left(self) -> Limits:
        """Return the limits of the next session."""
        most = self._limits
        return replace(
            most,
            cpu_seconds=max(0.0, most.cpu_seconds - self._seconds),
            calls=max(0, most.calls - self._calls),
            total_file_bytes=max(0, most.total_file_bytes - self._file_bytes),
        )

    @property
    def spent(self) -> LimitReached | None:
        """The reason for which no further script can run, if none can."""
        most, left = self._limits, self.left
        if self._seconds and left.cpu_seconds < _LEAST_SECONDS:
            message = f"the task used its {most.cpu_seconds:g} s of CPU time"
            return LimitReached(limit="cpu", message=message)
        if self._calls and not left.calls:
            message = f"a task can make {most.calls:,} tool calls"
            return LimitReached(limit="calls", message=message)
        return None


_log = logging.getLogger(__name__)
_CUT_SECONDS: Final = 1.0
"""The seconds until a script that reached a limit has to end; then its sandbox is gone."""
_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between attempts to have another sandbox, where none is available for the moment."""
_KEPT_FAILURES: Final = 200
"""Of how many failed calls of a script it is known what their tools raised."""
_SLACK: Final = 1.25
"""A sandbox enforces limits on output itself; here a script ends a little above."""
_LATE_SECONDS: Final = 10.0
"""The seconds that the next script waits for calls of the last one to end."""


class SandboxDied(TaskLeftError):  # noqa: N818 - not the task's fault
    """A sandbox is gone, and its task goes on in another as a resumed one does."""

    code = TaskLeftError.code


class ScriptRunner:
    """Runs the scripts of one task. Implements :class:`delf.protocols.sandbox.ScriptHost`.

    Args:
        run: The task.
        gate: The way that every call takes.
        children: The child tasks of its calls.
        in_background: Lets something end after the task.
    """

    def __init__(
        self,
        run: TaskRun,
        gate: Gate,
        children: ChildTasks,
        in_background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        spec, sandbox = run.session_spec, run.resources.sandbox
        self._log = run.log
        self._replay = run.replay
        self._seed = run.seed
        self._gate = gate
        self._children = children
        self._approvals = run.approvals
        self._sandbox = sandbox
        self._spec = spec
        self._in_background = in_background
        self._opening: asyncio.Task[SandboxSession] | None = None
        self._announced: SandboxSession | None = None
        self._lives = run.lives
        self._is_used = False
        self._stopped: asyncio.Future[Exception] | None = None
        self._budget = ResourceBudget(spec.limits)
        self.output = run.output
        self.libraries = spec.libraries
        """The packages that scripts may import beside harmless standard modules."""
        self.lacks = sandbox.spec.lacks
        """The parts of Python that the sandbox lacks."""
        self.script_start = ScriptStart()
        """Clock and chance of the script that runs; read by the session."""
        self._raised: OrderedDict[int, Raised] = OrderedDict()
        self._printed = 0
        self.printed_text: list[str] = []
        """The prints of the script that runs, or ran last."""

    @property
    def language(self) -> str:
        """The Python that scripts run on."""
        backend = self._sandbox.backend
        return backend.language if isinstance(backend, SupportsLanguage) else _ANY_PYTHON

    # -- the session --------------------------------------------------------------------

    def use(self, tools: Toolset) -> None:
        """Let scripts find other tools, from the next session on."""
        self._spec = replace(self._spec, tools=tools.names_for_sandbox())

    def open(self) -> asyncio.Task[SandboxSession]:
        """Begin to open a session, while something else goes on; the same until it is closed."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._sandbox.backend.open(self._spec))
        return self._opening

    @property
    def alive(self) -> bool:
        """True if variables of earlier scripts are still there."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled():
            return False
        return opening.exception() is None and opening.result().alive

    def raised_behind(self, outcome: Outcome) -> Raised | None:
        """The answer to a call with whose failure a script failed, if it did."""
        if not isinstance(outcome, Failed) or outcome.call_id is None:
            return None
        return self._raised.get(outcome.call_id)

    @property
    def may_go_on(self) -> bool:
        """True if the task's limits leave something for another script."""
        return self._budget.spent is None

    async def close(self) -> None:
        """Kill the sandbox, whatever runs in it, and wait until it is gone."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await self._close(opening)

    def retire(self) -> None:
        """Kill the sandbox without waiting until it is gone."""
        opening, self._opening = self._opening, None
        if opening is not None:
            self._in_background(self._close(opening))

    async def end(self, seconds: float) -> None:
        """Kill the sandbox; wait a little until it is gone, and no longer.

        Args:
            seconds: How long to wait: what removes it may not answer.
        """
        opening, self._opening = self._opening, None
        if opening is None:
            return
        gone = asyncio.Event()

        async def close() -> None:
            try:
                await self._close(opening)
            finally:
                gone.set()

        self._in_background(close())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), seconds)

    async def _close(self, opening: asyncio.Task[SandboxSession]) -> None:
        if not opening.done():
            opening.cancel()
        await asyncio.wait({opening})
        if opening.cancelled() or opening.exception() is not None:
            return
        try:
            await opening.result().aclose()
        except Exception as error:  # the task ends as it did, whatever is left of its sandbox
            message = f"the sandbox of task {self._log.task_id} could not be closed"
            self._log.redactor.log_failure(_log, message, error)

    async def _session(self) -> SandboxSession:
        """The open session, or another where that is gone."""
        if self._opening is not None and self._opening.done() and not self.alive:
            await self.close()
        try:
            session = await self.open()
        except SandboxUnavailableError:  # what sessions are forked from may just have died
            session = await self._open_again()
        if session is not self._announced:
            self._announced = session
            self._budget.opened()
            name, isolation = self._sandbox.spec.name, self._sandbox.isolation
            await self._log.record(SandboxOpened, backend=name, isolation=isolation)
        return session

    async def _open_again(self) -> SandboxSession:
        """Open a session; after a death what starts sandboxes may be restarted just now."""
        for pause in _PAUSES if self._lives.used else ():
            await self.close()
            try:
                return await self.open()
            except SandboxUnavailableError:
                await asyncio.sleep(pause)
        await self.close()
        return await self.open()

    # -- scripts ------------------------------------------------------------------------

    async def run(self, code: str, attempt: int, guard: CallGuard | None = None) -> Outcome:
        """Run a script to its end, whatever that is.

        Args:
            code: The script.
            attempt: Its number in the task.
            guard: Its strategy's rules for its calls.

        Raises:
            SandboxUnavailableError: When no session is available.
            SandboxDied: When the session is gone, and the task goes on in another.
            ReplayMismatch: When a resumed task's script is not the recorded one.
            UnrecordedCallError: When the end of a call could not be recorded.
        """
        async with self._log.step(Step.EXECUTE, attempt):
            started = time.perf_counter()
            outcome = await self._run_or_recall(code, attempt, guard)
            self._log.end_prints()
            self._lives.renew()
            if not isinstance(outcome, Done):  # before another script, or an answer of a model
                await self._gate.wait_for_calls(_LATE_SECONDS)
                await self._children.end()
            status, error = describe_outcome(outcome)
            # One that died after its script had ended is rebuilt before the next.
            lost = not self.alive and isinstance(outcome, (Crashed, LimitReached))
            if lost:
                await self._end_session()
            await self._log.record(
                ScriptFinished,
                status=status,
                duration_ms=(time.perf_counter() - started) * 1000,
                error=error,
                line=outcome.line if isinstance(outcome, (Failed, LimitReached)) else None,
                attempt=attempt,
                limit=outcome.limit if isinstance(outcome, LimitReached) else None,
                lost=lost,
            )
        if not isinstance(outcome, Done):
            await self._approvals.permit.regained()
        return outcome

    async def _end_session(self) -> None:
        """A script ended its sandbox: what that took is missing in the next."""
        session = self._announced
        await self.close()
        if session is not None:
            self._budget.ended(session)
            self._spec = replace(self._spec, limits=self._budget.left)
            self._announced = None
        self._is_used = False

    async def _run_or_recall(self, code: str, attempt: int, guard: CallGuard | None) -> Outcome:
        """Run a script, unless its end is recorded and cannot come again."""
        past = self._begin(attempt, guard)
        done = None if past is None else past.finished
        if done is not None and done.status == "crashed":
            if done.lost:  # with what earlier scripts left in it
                await self.close()
                self._is_used = False
            self._replay.end_script("crashed", "")
            return Crashed(message=done.error or "the sandbox is gone")
        if self._is_used and not self.alive:  # with the variables that the script was promised
            outcome: Outcome = Crashed(message="the sandbox died between two scripts")
        elif (spent := self._budget.spent) is not None:
            outcome = spent
        else:
            outcome = await self._run_once(code)
            self._is_used = True
        if isinstance(outcome, Crashed) and not outcome.by_script:
            await self._gate.wait_for_calls(_LATE_SECONDS)
            if self._lives.take(self._calls_made()):
                self._gate.close()
                raise SandboxDied(f"{outcome.message}; the script is run once more")
        outcome = _as_recorded(outcome, done)
        if self._replay.recorded:
            self._replay.end_script(*_end_of(outcome))
        return outcome

    def _begin(self, attempt: int, guard: CallGuard | None) -> RecordedScript | None:
        """A script is about to run; what the journal of a resumed task tells of it."""
        self._gate.begin_script(guard)
        self._approvals.begin_script(attempt)
        past = self._replay.begin_script(attempt) if self._replay.recorded else None
        clock, turns = ((), ()) if past is None else (tuple(past.clock), tuple(past.turns))
        seed = f"{self._seed}/{attempt}"
        self.script_start = ScriptStart(seed=seed, clock=clock, turns=turns)
        self.printed_text.clear()
        self._raised.clear()
        return past

    def _calls_made(self) -> int:
        events = self._log.events
        return sum(isinstance(event, CallFinished) and event.status == "ok" for event in events)

    async def _run_once(self, code: str) -> Outcome:
        if (too_long := check_script(code)) is not None:
            return too_long
        session = await self._session()
        self._printed = 0
        outcome = self._within_limits(await self._run_in(session, code))
        problems = await self.output.all_written()
        if problems and isinstance(outcome, (Done, Rerun)):
            message = "; ".join(problems)
            return Failed(kind="OutputFileError", message=message, variables=outcome.variables)
        return outcome

    async def _run_in(self, session: SandboxSession, code: str) -> Outcome:
        stopped = self._stopped = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(session.execute(code, self))
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                return await running
            why = stopped.result()
            if not isinstance(why, RecordedLimit):
                raise why
            if isinstance(session, SupportsCut) and not self._replay.loses_sandbox:
                session.cut(why.limit.limit, why.limit.message)
                await asyncio.wait({running}, timeout=_CUT_SECONDS)
            return await running if running.done() else why.limit
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    def _within_limits(self, outcome: Outcome) -> Outcome:
        """The outcome; a value that is too large for a message is told by its type."""
        if not isinstance(outcome, Done):
            return outcome
        try:
            check_size(outcome.value, self._spec.limits.frame_bytes)
        except UnsupportedValueError as error:
            return replace(outcome, value=f"<{kind_name(outcome.value)}: {error}>")
        return outcome

    # -- ScriptHost ---------------------------------------------------------------------

    async def call(self, request: CallRequest) -> CallAnswer:
        """A call of the script takes the gate."""
        self._budget.called()
        try:
            check_size([request.args, request.kwargs], self._spec.limits.frame_bytes)
            answer = await self._gate.call(request)
            if isinstance(answer, Raised):
                self._raised[request.call_id] = answer
                if len(self._raised) > _KEPT_FAILURES:
                    self._raised.popitem(last=False)
            return answer
        except UnsupportedValueError as error:
            return Raised("ToolArgumentError", f"the arguments cannot be passed: {error}")
        except (TaskLeftError, RecordedLimit) as error:
            return await self._stop(error)
        except Exception as error:
            self._log.redactor.log_failure(_log, "a tool call failed outside of its tool", error)
            return Raised("ToolError", "the call failed inside delf; see the log")

    async def _stop(self, why: Exception) -> NoReturn:
        """End the script. It gets no answer to its call, so that it does nothing any more."""
        self._end(why)
        own = asyncio.current_task()
        if own is not None and own.cancelling():
            raise asyncio.CancelledError from why
        await asyncio.get_running_loop().create_future()  # until its sandbox is gone
        raise why

    def _end(self, why: Exception) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(why)

    def printed(self, text: str) -> None:
        """The script printed. What its sandbox should have held back ends it."""
        most = self._spec.limits.output_bytes
        self._printed += len(text)
        if self._printed > most * _SLACK:
            message = f"the script printed more than {most:,} characters"
            self._end(RecordedLimit(LimitReached(limit="output", message=message)))
            return
        self.printed_text.append(text)
        self._log.say(text)

    def clock_read(self, readings: Sequence[int]) -> None:
        """The script looked at the clock."""
        self._log.clock_read(readings)

    def turns_taken(self, turns: Sequence[int]) -> None:
        """The script got answers."""
        self._log.turns_taken(turns)

    def gave_up(self, call_id: int) -> None:
        """The script does not wait for a call any more."""
        self._gate.gave_up(call_id)

    def wrote_file(self, name: str, data: bytes) -> None:
        """The script handed a file over."""
        self._budget.handed_over(len(data))
        self.output.take(name, data)

    def wrote_rows(self, name: str, data: bytes) -> None:
        """The script handed over the rows of a file that is made here."""
        self._budget.handed_over(len(data))
        self.output.take(name, data, is_rows=True)


def _as_recorded(outcome: Outcome, done: ScriptFinished | None) -> Outcome:
    """The end of a script that reached a limit, and this time came further without a call."""
    if done is None or done.status != "limit" or isinstance(outcome, (LimitReached, Crashed)):
        return outcome
    return LimitReached(
        limit=done.limit or "recorded",
        message=done.error or "a limit",
        line=done.line,
        variables=outcome.variables,
    )


def _end_of(outcome: Outcome) -> tuple[ScriptStatus, str]:
    status, error = describe_outcome(outcome)
    return status, error or ""


def describe_outcome(outcome: Outcome) -> tuple[ScriptStatus, str | None]:
    """Describe the end of a script: its status, and its error for people."""
    match outcome:
        case Done():
            return "done", None
        case Rerun():
            return "rerun", None
        case Failed(kind=kind, message=message):
            return "failed", f"{kind}: {message}"
        case LimitReached(message=message):
            return "limit", message
        case Crashed(message=message):
            return "crashed", message


def named_actions(code: str, tools: Toolset) -> tuple[BoundAction, ...]:
    """The actions in a script that a person will be asked about, before it runs.

    For people to look at. What is enforced, is enforced at each call: by the action that is
    really called, whatever the script calls it.

    Args:
        code: The script; one that does not parse names nothing.
        tools: What it may call.
    """
    asking = [bound for bound in tools if bound.asks]
    if not asking or check_script(code) is not None:
        return ()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
    except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return tuple(bound for bound in asking if bound.name in names)
