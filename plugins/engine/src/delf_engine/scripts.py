"""Execution of a task's scripts in its sandbox."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from typing import Final, NoReturn

from delf.errors import TaskLeftError
from delf.events import (
    CallFinished,
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
    Outcome,
    Raised,
    Rerun,
    SandboxSession,
    ScriptHost,
    ScriptStart,
    SupportsLanguage,
    check_script,
)
from delf.protocols.strategy import CallGuard
from delf.values.encoding import UnsupportedValueError, check_size, kind_name
from delf_engine.calls.children import ChildTasks
from delf_engine.calls.gate import Gate
from delf_engine.closing import STOP_SECONDS
from delf_engine.journal.recording import RecordedScript
from delf_engine.own_context import awaited_in_own_context, in_own_context
from delf_engine.task_run import TaskRun
from delf_engine.task_sandbox import TaskSandbox
from delf_engine.waiting import is_cancelled

_ANY_PYTHON: Final = "Python 3.11 or newer"


_log = logging.getLogger(__name__)
# The multiple of the output limit at which delf ends a script that its sandbox has not ended.
_OUTPUT_TOLERANCE: Final = 1.25
LATE_SECONDS: Final = 10.0
"""The seconds that a script waits for unfinished calls of the previous script."""


class SandboxDied(TaskLeftError):  # noqa: N818 - not the task's fault
    """The sandbox died; the task continues in another sandbox, like a resumed task."""

    code = TaskLeftError.code


class ScriptRunner(ScriptHost):
    """Runs the scripts of one task, as the host of their sessions.

    Args:
        run: The task.
        gate: Checks and makes the calls of the task.
        children: The child tasks.
        close_in_background: Closes a sandbox in the background.
    """

    def __init__(
        self,
        run: TaskRun,
        gate: Gate,
        children: ChildTasks,
        close_in_background: Callable[[Awaitable[None]], None],
    ) -> None:
        backend = run.resources.sandbox.backend
        self._log = run.log
        self._replay = run.replay
        self._seed = run.seed
        self._gate = gate
        self._children = children
        self._approvals = run.approvals
        self._permit_to_run = run.permit
        self.sandbox = TaskSandbox(run, close_in_background)
        self._restarts_after_crashes = run.restarts
        self._is_running = False
        # A future of the latest script. Its result is the reason for which the host ends the
        # script: a failed call or a limit.
        self._stop_future: asyncio.Future[Exception | LimitReached] | None = None
        self._budget = self.sandbox.budget
        self.output = run.output
        self.libraries = run.session_spec.libraries
        """Packages that scripts may import in addition to harmless standard modules."""
        self.unsupported = run.resources.sandbox.spec.unsupported
        """The unsupported Python features of the sandbox."""
        self.language = backend.language if isinstance(backend, SupportsLanguage) else _ANY_PYTHON
        """The Python that scripts run on, such as ``Python 3.12``."""
        self.script_start = ScriptStart()
        """The recorded clock and random seed for the running script."""
        # The errors that calls of the script raised, by the sandbox's number of the call.
        self._raised: dict[int, Raised] = {}
        self._printed_characters = 0
        self.variables: Mapping[str, str] = {}
        """The types of the variables after the last script, by name."""
        self.printed_text: list[str] = []
        """The output of the running or last script."""

    def failed_call_answer(self, outcome: Outcome) -> Raised | None:
        """Return the error of the call that made a script fail; None without such a call."""
        if not isinstance(outcome, Failed) or outcome.call_id is None:
            return None
        return self._raised.get(outcome.call_id)

    @property
    def context(self) -> Context:
        """The ContextVars of the task's caller."""
        return self._log.context

    @property
    def may_go_on(self) -> bool:
        """True if the task has resources left for another script."""
        return self._budget.exhausted is None

    @property
    def calls_left(self) -> int:
        """The number of calls that the task's scripts can still make."""
        return self._budget.calls_left

    @property
    def waiting_for(self) -> str | None:
        """The thing for which the task waits, such as ``a script in the sandbox 'podman'``.

        None if no script runs and no session is being opened.
        """
        if self.sandbox.is_opening:
            return f"a session of the sandbox {self.sandbox.name!r}"
        if self._is_running:
            return f"a script in the sandbox {self.sandbox.name!r}"
        return None

    # -- scripts ------------------------------------------------------------------------

    async def run(
        self, code: str, attempt: int, guard: CallGuard | None = None, *, is_approved: bool = False
    ) -> Outcome:
        """Run a script to its end; a failed or stopped script is an outcome, not an exception.

        Args:
            code: The script.
            attempt: The script's number in the task.
            guard: The strategy's additional rules for calls.
            is_approved: Whether a person approved the whole script.

        Raises:
            SandboxUnavailableError: If no session can be opened.
            SandboxDied: If the sandbox died, and the task must continue in another one.
            ReplayMismatch: If a resumed task's script differs from the recorded one.
            UnrecordedCallError: If the end of a call could not be recorded.
        """
        async with self._log.step(Step.EXECUTE, attempt):
            started = time.perf_counter()
            outcome = await self._run_or_recall(code, attempt, guard, is_approved=is_approved)
            self._gate.end_script()
            self._log.flush_held_back_output()
            if isinstance(outcome, Done):
                self.variables = outcome.variables
            else:
                self.variables = {}
                # Wait until the script's calls end, before the model or another script continues.
                await self._gate.wait_for_calls(LATE_SECONDS)
                await self._children.end()  # cancels the child tasks of the script's calls
            # Discard the session after a crash or at a limit: how far the script got depends on the
            # machine, so a resumed task could not reproduce the session's variables.
            is_session_lost = isinstance(outcome, (Crashed, LimitReached))
            if is_session_lost:
                await self.sandbox.end_session()
            await self._record_end(outcome, attempt, started, is_session_lost=is_session_lost)
        if not isinstance(outcome, Done):
            # A call that waited for a person has released the permit to run. If the call was
            # cancelled before the task got the permit back, get it back here for the model's next
            # script.
            await self._permit_to_run.wait_until_held()
        return outcome

    async def _record_end(
        self, outcome: Outcome, attempt: int, started: float, *, is_session_lost: bool
    ) -> None:
        status, error = describe_outcome(outcome)
        await self._log.record(
            ScriptFinished,
            status=status,
            duration_ms=(time.perf_counter() - started) * 1000,
            error=error,
            line=outcome.line if isinstance(outcome, (Failed, LimitReached)) else None,
            attempt=attempt,
            limit=outcome.limit if isinstance(outcome, LimitReached) else None,
            lost=is_session_lost,
        )

    async def _run_or_recall(
        self, code: str, attempt: int, guard: CallGuard | None, *, is_approved: bool
    ) -> Outcome:
        """Run a script, unless its recorded outcome is a crash or a limit; return the outcome.

        Raises:
            SandboxDied: If the sandbox died, and the task must continue in another one.
        """
        recorded_script = self._begin(attempt, guard)
        recorded_loss = self._end_from_record(recorded_script)
        if recorded_loss is not None:
            return recorded_loss
        outcome = await self._run_if_possible(code, is_approved=is_approved)
        if isinstance(outcome, Crashed) and not outcome.by_script:
            await self._gate.wait_for_calls(LATE_SECONDS)
            # Several restarts in a row are only allowed if the task makes calls in between.
            may_restart = self._restarts_after_crashes.count_death(self._count_successful_calls())
            if may_restart:
                # A strategy may catch the error below and make a call, which would be recorded
                # without the restarted task knowing of it.
                self._gate.close()
                raise SandboxDied(f"{outcome.message}; the script is run once more")
        status, error = describe_outcome(outcome)
        self._replay.end_script(status, error or "")  # no effect in a new task
        return outcome

    async def _run_if_possible(self, code: str, *, is_approved: bool) -> Outcome:
        """Run a script, unless a limit is exhausted or the session with its variables is lost."""
        if self.sandbox.has_died:
            return Crashed(message="the sandbox died between two scripts")
        exhausted_limit = self._budget.exhausted
        if exhausted_limit is not None:
            return exhausted_limit
        return await self._run_once(code, is_approved=is_approved)

    def _end_from_record(self, script: RecordedScript | None) -> Outcome | None:
        """End a script without running it, if its record says that its sandbox was lost.

        Returns:
            The recorded outcome; None for a script that has to run.
        """
        if script is None or script.finished is None:
            return None
        end = script.finished
        if end.status not in ("crashed", "limit"):
            return None
        # The recorded output belongs to the answer, and the script does not print it again.
        self.printed_text += script.printed
        # The script does not run, so its recorded calls are missing. The replay accepts missing
        # calls only of a crashed script. So pass "crashed" for a script at a limit, too.
        self._replay.end_script("crashed", "")
        return _recorded_loss(end)

    def _begin(self, attempt: int, guard: CallGuard | None) -> RecordedScript | None:
        """Start a script, and return its record in the journal; None if it is not recorded.

        Args:
            attempt: The script's number in the task.
            guard: The strategy's additional rules for calls.
        """
        self._gate.begin_script(guard)
        self._approvals.begin_script(attempt)
        recorded_script = self._replay.begin_script(attempt)
        # Each script has its own seed, so that its random numbers do not depend on how many numbers
        # earlier scripts drew.
        self.script_start = ScriptStart(seed=f"{self._seed}/{attempt}")
        if recorded_script is not None:
            # The script gets the recorded times of day, and its concurrent calls (turns) end in the
            # recorded order.
            self.script_start = replace(
                self.script_start,
                clock=tuple(recorded_script.clock),
                turns=tuple(recorded_script.turns),
            )
        self.printed_text.clear()
        self._raised.clear()
        return recorded_script

    def _count_successful_calls(self) -> int:
        events = self._log.events
        return sum(isinstance(event, CallFinished) and event.status == "ok" for event in events)

    async def _run_once(self, code: str, *, is_approved: bool) -> Outcome:
        """Run a script in a session; fail if an output file cannot be written."""
        if (too_long := check_script(code)) is not None:
            return too_long
        session = await self.sandbox.session()
        if not is_approved:
            # This script may redefine a function that a later script calls. So people cannot
            # approve later scripts of this session by their text.
            self.sandbox.note_unapproved()
        self._printed_characters = 0
        outcome = self._within_limits(await self._run_in(session, code))
        # A script does not wait for its output files: wait here before it counts as successful.
        problems = await self.output.failures()
        if problems and isinstance(outcome, (Done, Rerun)):
            message = "; ".join(problems)
            return Failed(kind="OutputFileError", message=message, variables=outcome.variables)
        return outcome

    async def _run_in(self, session: SandboxSession, code: str) -> Outcome:
        """Run a script in a session until it ends, or until a limit or a failed call stops it."""
        stop_future = self._stop_future = asyncio.get_running_loop().create_future()
        # Run the script in a separate asyncio task, so that a call of the script can stop the
        # script.
        execution = asyncio.ensure_future(session.execute(code, self))
        self._is_running = True
        try:
            await asyncio.wait({execution, stop_future}, return_when=asyncio.FIRST_COMPLETED)
            if not stop_future.done():
                return await execution
            reason = stop_future.result()
            if isinstance(reason, LimitReached):
                return reason
            raise reason
        finally:
            self._is_running = False
            if not execution.done():
                execution.cancel()
                await asyncio.wait({execution}, timeout=STOP_SECONDS)

    def _within_limits(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a script, limited in size.

        A value that is too large to transfer is replaced by a text with its type. A script that
        exceeded the limit of calls gets the corresponding outcome.
        """
        if isinstance(outcome, LimitReached) and self._budget.calls_left < 0:
            # The call limit was exceeded, so delf stopped answering. The limit that the sandbox
            # reports is only a consequence.
            return self._budget.too_many_calls
        if not isinstance(outcome, Done):
            return outcome
        try:
            check_size(outcome.value, self.sandbox.limits.frame_bytes)
        except UnsupportedValueError as error:
            return replace(outcome, value=f"<{kind_name(outcome.value)}: {error}>")
        return outcome

    # -- ScriptHost ---------------------------------------------------------------------

    @awaited_in_own_context
    async def call(self, request: CallRequest) -> CallAnswer:
        """Check and make a call of the script."""
        self._budget.count(calls=1)
        try:
            if self._budget.calls_left < 0:
                # The calls within the limit end first: the stop kills the sandbox, which would lose
                # their results.
                await self._gate.until_idle()
                await self._stop_in_call(self._budget.too_many_calls)  # never returns
            check_size([request.args, request.kwargs], self.sandbox.limits.frame_bytes)
            answer = await self._gate.call(request)
            if isinstance(answer, Raised):
                # Kept until the script ends, because a failed script reports only the number of the
                # call that raised.
                self._raised[request.call_id] = answer
            return answer
        except UnsupportedValueError as error:
            return Raised("ToolArgumentError", f"the arguments cannot be passed: {error}")
        except TaskLeftError as error:
            await self._stop_in_call(error)  # never returns
        except Exception as error:
            self._log.redactor.log_failure(_log, "a tool call failed outside of its tool", error)
            return Raised("ToolError", "the call failed inside delf; see the log")

    async def _stop_in_call(self, reason: Exception | LimitReached) -> NoReturn:
        """Stop the script during a call, which gets no answer; always raise CancelledError."""
        self._request_stop(reason)
        if is_cancelled():
            # The sandbox has cancelled this call already, while the error was on its way here. The
            # sandbox will not cancel the call again, so the wait below would never end.
            raise asyncio.CancelledError
        # Wait until the death of the sandbox cancels this call.
        await asyncio.get_running_loop().create_future()
        raise asyncio.CancelledError  # the future above has no result, so this is never reached

    def _request_stop(self, reason: Exception | LimitReached) -> None:
        """Make :meth:`_run_in` stop the running script for a reason; no-op if it has ended."""
        if self._stop_future is not None and not self._stop_future.done():
            self._stop_future.set_result(reason)

    @in_own_context
    def printed(self, text: str) -> None:
        """Record printed text; abort the script if it exceeds the output limit."""
        # The limit is named after bytes, but it counts characters, as the sandboxes do.
        max_characters = self.sandbox.limits.output_bytes
        self._printed_characters += len(text)
        # The sandbox itself ends a script at the limit. Because of the tolerance, delf ends a
        # script only if the sandbox has not.
        if self._printed_characters > max_characters * _OUTPUT_TOLERANCE:
            message = f"the script printed more than {max_characters:,} characters"
            self._request_stop(LimitReached(limit="output", message=message))
            return
        self.printed_text.append(text)
        self._log.buffer_output(text)

    @in_own_context
    def clock_read(self, readings: Sequence[int]) -> None:
        """Record clock reads of the script."""
        self._log.buffer_clock_reads(readings)

    @in_own_context
    def turns_taken(self, turns: Sequence[int]) -> None:
        """Record the event loop turns in which the script received answers to calls."""
        self._log.buffer_loop_turns(turns)

    @in_own_context
    def abandon(self, call_id: int) -> None:
        """Record that the script stopped waiting for a call."""
        self._gate.abandon(call_id)

    @in_own_context
    def wrote_file(self, name: str, data: bytes) -> None:
        """Store a file that the script wrote."""
        self._budget.count(max_files=1, total_file_bytes=len(data))
        self.output.start_writing(name, data)

    @in_own_context
    def wrote_rows(self, name: str, data: bytes) -> None:
        """Store a file of rows that the script wrote."""
        self._budget.count(max_files=1, total_file_bytes=len(data))
        self.output.start_writing(name, data, is_rows=True)


def _recorded_loss(recorded_end: ScriptFinished) -> Crashed | LimitReached:
    """Return the outcome of a script whose sandbox died, from its recorded end."""
    message = recorded_end.error or "the sandbox is gone"
    if recorded_end.status == "limit":
        return LimitReached(
            limit=recorded_end.limit or "recorded", message=message, line=recorded_end.line
        )
    return Crashed(message=message)


def describe_outcome(outcome: Outcome) -> tuple[ScriptStatus, str | None]:
    """Return the status of an ended script, and its error message if it failed."""
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
