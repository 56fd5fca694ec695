"""Step 6, execute: the script runs in the sandbox."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from delf.engine.task import TaskRun
from delf.errors import SandboxUnavailableError
from delf.events import CallFinished, ScriptFinished, ScriptStatus, Warned
from delf.protocols.sandbox import Crashed, Done, Failed, LimitReached, Outcome, Rerun

_MORE_LIVES: Final = 5
"""How often a script is run once more whose sandbox died, and that got no further: it may be the
reason itself."""
_SETTLE_SECONDS: Final = 10.0
"""How long the next script, or the same one once more, waits for calls of the last to end."""


async def execute(run: TaskRun, code: str, attempt: int) -> Outcome:
    """Run a script to its end, whatever that is.

    Args:
        run: The task.
        code: The script.
        attempt: The pass through the loop, from 1.
    """
    async with run.step("execute", attempt):
        started = time.perf_counter()
        outcome = await _run_or_recall(run, code, attempt)
        if not isinstance(outcome, Done):  # before another script, or another answer of a model
            await run.gate.settle(_SETTLE_SECONDS)
        status, error = describe_outcome(outcome)
        await run.log.record(
            ScriptFinished,
            status=status,
            duration_ms=(time.perf_counter() - started) * 1000,
            error=error,
            line=outcome.line if isinstance(outcome, (Failed, LimitReached)) else None,
            attempt=attempt,
            limit=outcome.limit if isinstance(outcome, LimitReached) else None,
            lost=not run.session_alive,
        )
    if not isinstance(outcome, Done):
        await run.approvals.place_regained()
    return outcome


async def _run_or_recall(run: TaskRun, code: str, attempt: int) -> Outcome:
    """Run a script; one whose sandbox died is run once more, from the journal."""
    past = run.begin_script(attempt)
    done = None if past is None else past.finished
    if done is not None and done.status == "crashed":
        if done.lost:  # with what earlier scripts left in it
            await run.close_session()
        return Crashed(message=done.error or "the sandbox is gone")
    outcome = await run.execute(code)
    scripts = tuple(run.session_scripts)
    lives = _MORE_LIVES
    while isinstance(outcome, Crashed) and lives > 0:
        await run.gate.settle(_SETTLE_SECONDS)
        made = _calls_made(run)
        await run.log.record(Warned, message=f"{outcome.message}; the script is run once more")
        outcome = await _relive(run, scripts)
        lives = _MORE_LIVES if _calls_made(run) > made else lives - 1
    outcome = _as_recorded(outcome, done)
    run.replay.end_script(*_end_of(outcome))
    return outcome


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


def _calls_made(run: TaskRun) -> int:
    return sum(isinstance(event, CallFinished) and event.status == "ok" for event in run.log.events)


async def _relive(run: TaskRun, scripts: Sequence[tuple[int, str]]) -> Outcome:
    """Run the scripts of a session that was lost in a new one.

    What they called before is not called again: the answers come from the journal.

    Args:
        run: The task.
        scripts: The scripts by their attempts, the one that was interrupted last.

    Raises:
        ReplayMismatch: When they do not take the same course.
    """
    outcome: Outcome = Crashed(message="there is no script to run")
    run.replay.relive(run.log.events)
    for attempt, code in scripts:
        run.replay.end_script(*_end_of(outcome))
        run.take_printed()
        past = run.begin_script(attempt)
        try:
            outcome = await run.execute(code)
            outcome = _as_recorded(outcome, None if past is None else past.finished)
        except SandboxUnavailableError as error:
            outcome = Crashed(message=error.message)
        if isinstance(outcome, Crashed):
            break
    return outcome


def _end_of(outcome: Outcome) -> tuple[ScriptStatus, str]:
    status, error = describe_outcome(outcome)
    return status, error or ""


def describe_outcome(outcome: Outcome) -> tuple[ScriptStatus, str | None]:
    """How a script ended: the status, and for people what went wrong."""
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
