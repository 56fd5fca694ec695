"""The loop, step by step.

1 recall → 2 select → 3 context → 4 generate → 5 preview → 6 execute → 7 rerun → 8 retry →
9 compose → 10 learn. Steps 4 to 8 are the strategy's; each step is skipped when it has nothing to
do. An agent's first task sets connections up before step 2.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from delf.engine.clock import TaskClock
from delf.engine.endings import to_its_end
from delf.engine.loop.context import load_context
from delf.engine.loop.conversation import keep_turn
from delf.engine.loop.learn import learn
from delf.engine.loop.recall import recall
from delf.engine.loop.select import select
from delf.engine.task import TaskRun
from delf.errors import DelfError, ReplayMismatch, TaskTimeoutError, UnrecordedCallError
from delf.events import ChildFinished, ModelReplied, TaskFinished, TaskResumed, TaskStarted, Warned
from delf.protocols.strategy import Strategy

_log = logging.getLogger(__name__)
_GRACE_SECONDS = 1.0
_SHARE = 0.25
"""How much of a task's time its memory and its prefilter may take, each."""
_NO_END = (ReplayMismatch, UnrecordedCallError)
"""What stops a task that is not over: it can be resumed where the journal fits and is written."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """How a task ended.

    Args:
        text: The answer.
        error: Why there is none.
        duration_ms: From acceptance to the end.
    """

    text: str
    error: DelfError | None
    duration_ms: float

    @property
    def is_over(self) -> bool:
        """Whether the task came to its end; else it can be resumed."""
        return not isinstance(self.error, _NO_END)


async def run_task(run: TaskRun, strategy: Strategy, clock: TaskClock, origin: str) -> TaskResult:
    """Work a task to its end within a time.

    Whatever happens, the gate is closed and the sandbox is gone afterwards.

    Args:
        run: The task.
        strategy: How it becomes tool calls.
        clock: Its time.
        origin: The agent's id.

    Raises:
        asyncio.CancelledError: When it was cancelled, once its end is in the journal: that it
            was cancelled, or the outcome that it had when it was ending already.
    """
    started = time.perf_counter()
    work: asyncio.Future[str] | None = None
    try:
        await _begin(run, origin)
        work = asyncio.ensure_future(_work(run, strategy, clock.seconds * _SHARE))
        work.add_done_callback(_look_at)
        await clock.wait(work)
        text, error = await _settle(run, work, clock.seconds)
        if error is None:
            await learn(run, text)
    except asyncio.CancelledError:
        await to_its_end(_cancel(run, work, started))
        raise
    return await to_its_end(
        _finish(run, text, error, started), failed=lambda error: _lost_end(run, error)
    )


async def _begin(run: TaskRun, origin: str) -> None:
    """Record that work on a task begins."""
    if run.replay:
        await run.log.record(TaskResumed, origin=origin)
    else:
        continued = None if run.conversation is None else run.conversation.conversation_id
        await run.log.record(
            TaskStarted,
            task=run.task,
            origin=origin,
            seed=run.seed,
            setup=run.setup,
            conversation=continued,
            attended=run.attended,
            parent=run.parent,
        )
    if run.sandbox.warning:
        await run.log.record(Warned, message=run.sandbox.warning)


async def _cancel(run: TaskRun, work: asyncio.Future[str] | None, started: float) -> None:
    """End a task that was cancelled, at whatever point; that is raised, whatever fails here."""
    try:
        run.gate.close()
        if work is not None:
            await _abandon(run, work)
        await _finish(run, "", DelfError("the task was cancelled"), started)
    except Exception as error:
        _lost_end(run, error)


def _lost_end(run: TaskRun, error: BaseException) -> None:
    message = f"task {run.log.task_id} was cancelled, and its end could not be recorded"
    run.log.redactor.log_failure(_log, message, error)


def _look_at(work: asyncio.Future[str]) -> None:
    """However a task's work failed after it was given up, that is no news."""
    if not work.cancelled():
        work.exception()


async def _work(run: TaskRun, strategy: Strategy, share: float) -> str:
    if not run.replay:
        run.asker.ledger.check()
    await recall(run, share)
    await run.prepare_tools(run)
    await select(run, share)
    run.open_session()
    await load_context(run)
    return await strategy.solve(run)


async def _settle(
    run: TaskRun, work: asyncio.Future[str], timeout: float
) -> tuple[str, DelfError | None]:
    """The answer, or the error in its place."""
    run.gate.close()
    if not work.done():
        unfinished = run.replay.unfinished()
        await _abandon(run, work)
        return run.take_printed(), unfinished or TaskTimeoutError(
            f"Timeout: the task did not end within {timeout:g} s"
        )
    run.retire_session()
    error = work.exception()
    if error is None:
        return work.result(), None
    if not isinstance(error, DelfError):
        message = f"task {run.log.task_id} failed inside delf"
        run.log.redactor.log_failure(_log, message, error)
        inside = DelfError(
            f"an unexpected {type(error).__name__} inside delf or a plugin: {error}",
            hint="the log has the traceback; please report it",
        )
        inside.__cause__ = error
        error = inside
    return run.take_printed(), error


async def _abandon(run: TaskRun, work: asyncio.Future[str]) -> None:
    """Stop a task that still runs: no call starts, the sandbox dies, the rest is cancelled."""
    run.gate.close()
    work.cancel()
    await run.close_session()
    await asyncio.wait({work}, timeout=_GRACE_SECONDS)


async def _finish(run: TaskRun, text: str, error: DelfError | None, started: float) -> TaskResult:
    try:
        await run.gate.settle(_GRACE_SECONDS)
    except UnrecordedCallError as lost:
        error = lost
    await run.output.settle(_GRACE_SECONDS)
    run.log.end_prints()
    duration_ms = (time.perf_counter() - started) * 1000
    text = run.log.redactor.text(text)
    if error is not None:
        error.__cause__ = error.__cause__ or run.gate.failure_behind(error)
        run.log.redactor.error(error)
    if isinstance(error, _NO_END):
        await _leave(run, error)
        return TaskResult(text=text, error=error, duration_ms=duration_ms)
    await keep_turn(run, text, error)
    paid = [e for e in run.log.events if isinstance(e, (ModelReplied, ChildFinished))]
    costs = [e.cost_usd for e in paid if isinstance(e, ChildFinished) or e.purpose != "setup"]
    await run.log.record(
        TaskFinished,
        status=error is None,
        text=text,
        duration_ms=duration_ms,
        error=None if error is None else error.message,
        code=None if error is None else error.code,
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        files=dict(run.output.files),
    )
    return TaskResult(text=text, error=error, duration_ms=duration_ms)


async def _leave(run: TaskRun, error: DelfError) -> None:
    """Leave a task without an end in the journal, and say there why, if it can be written."""
    why = "not resumed" if isinstance(error, ReplayMismatch) else "stopped"
    try:
        try:
            await run.log.record(Warned, message=f"{why}: {error.message}")
        finally:
            await run.log.end()
    except Exception as failure:
        message = f"task {run.log.task_id} stopped, and its journal cannot be written"
        run.log.redactor.log_failure(_log, message, failure)
