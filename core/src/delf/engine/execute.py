"""Step 6, execute: the script runs in the sandbox."""

from __future__ import annotations

import time

from delf.engine.task import TaskRun
from delf.events import ScriptFinished, ScriptStatus
from delf.protocols.sandbox import Crashed, Done, Failed, LimitReached, Outcome, Rerun


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
        status, error = describe_outcome(outcome)
        await run.log.record(
            ScriptFinished,
            status=status,
            duration_ms=(time.perf_counter() - started) * 1000,
            error=error,
            line=outcome.line if isinstance(outcome, (Failed, LimitReached)) else None,
            attempt=attempt,
        )
    return outcome


async def _run_or_recall(run: TaskRun, code: str, attempt: int) -> Outcome:
    """Run a script; one whose sandbox died is not run again, for its variables died, too."""
    past = run.begin_script(attempt)
    done = None if past is None else past.finished
    if done is not None and done.status == "crashed":
        return Crashed(message=done.error or "the sandbox is gone")
    outcome = await run.execute(code)
    if run.replay is not None:
        status, error = describe_outcome(outcome)
        run.replay.end_script(status, error or "")
    return outcome


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
