"""The strategy ``codegen``: steps 4 to 8, from a conversation to an answer.

generate → preview → execute, again with what was learned (7, rerun) or with what went
wrong (8, retry), until the script is done or the passes are used up.
"""

from __future__ import annotations

from typing import Final

from delf.engine.codegen.execute import describe_outcome, execute
from delf.engine.codegen.generate import generate
from delf.engine.codegen.preview import preview
from delf.engine.codegen.prompt import crash_messages, rerun_messages, retry_messages, told_call
from delf.engine.journal.recording import NEVER_MADE
from delf.engine.loop.compose import compose
from delf.engine.task import TaskRun
from delf.errors import (
    ApprovalRejectedError,
    DelfError,
    SandboxExecutionError,
    SandboxLimitError,
    ToolException,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.events import (
    CallFinished,
    CallStarted,
    RerunRequested,
    RetryScheduled,
    ScriptGenerated,
)
from delf.messages import Message
from delf.protocols.sandbox import Crashed, Done, Failed, LimitReached, Outcome, Rerun

_HINT: Final = "response.trace has the scripts and calls; retry_count allows more attempts"
_OF_KIND: Final[dict[str, type[DelfError]]] = {
    "ToolError": ToolExecutionError,
    "ToolException": ToolException,
    "ToolArgumentError": ToolRefusedError,
    "ToolNotAllowed": ToolRefusedError,
}
"""What a task fails with when its script did not catch the failure of a call."""


class CodegenStrategy:
    """Scripts that the model writes. Implements :class:`delf.protocols.strategy.Strategy`."""

    async def solve(self, host: TaskRun) -> str:
        """Write and run scripts until one is done.

        Raises:
            SandboxExecutionError: When the last allowed script failed, too.
            CodeGenerationError: When the model wrote none.
            DelfError: When the model, the budget or the sandbox gave up.
        """
        messages = await host.begin()
        answer = ""
        attempt, retries, reruns = 1, 0, 0
        while True:
            code = await generate(host, messages, attempt)
            outcome = await preview(host, code, attempt) or await execute(host, code, attempt)
            host.approvals.script_ended()
            refusal = _refusal_behind(host, outcome)
            printed = host.take_printed()
            match outcome:
                case Done(value=value):
                    return compose(answer + printed, value)
                case Rerun():
                    if reruns >= host.config.rerun_count:
                        raise _give_up(host, answer + printed, _too_many_reruns(host, outcome))
                    reruns, retries = reruns + 1, 0
                    answer += printed
                    await _record_rerun(host, outcome, reruns)
                    messages = (*messages, *rerun_messages(code, outcome, printed))
                case _ if refusal is not None:
                    raise _give_up(host, answer + printed, refusal)
                case _:
                    if retries >= host.config.retry_count:
                        raise _give_up(host, answer + printed, as_error(outcome))
                    retries += 1
                    await _record_retry(host, outcome, attempt)
                    messages = (*messages, *_what_went_wrong(host, code, attempt, outcome, printed))
            attempt += 1


def _refusal_behind(run: TaskRun, outcome: Outcome) -> DelfError | None:
    """Why no other script can help one that failed: the budget, or a call's own error.

    What the script caught is past.
    """
    refused, hopeless = list(run.asker.refused), list(run.gate.hopeless)
    run.asker.refused.clear()
    run.gate.hopeless.clear()
    if not isinstance(outcome, Failed):
        return None
    for error in reversed(refused):
        if error.message in outcome.message:
            return error
    return as_error(outcome) if any(told in outcome.message for told in hopeless) else None


def _give_up(run: TaskRun, printed: str, error: DelfError) -> DelfError:
    """The error to raise; what was printed stays with the task, as its text."""
    run.said.append(printed)
    return error


def _what_went_wrong(
    run: TaskRun, code: str, attempt: int, outcome: Outcome, printed: str
) -> tuple[Message, ...]:
    done = _changes(run, attempt)
    if isinstance(outcome, (Failed, LimitReached)):
        return retry_messages(code, outcome, printed, fresh=not run.session_alive, done=done)
    return crash_messages(code, describe_outcome(outcome)[1] or "it is gone", done)


def _changes(run: TaskRun, attempt: int) -> list[str]:
    """The calls of a script that changed something, or may have, as they are told to the model.

    The log of a resumed task also holds what the scripts after it did.
    """
    begun: dict[int, CallStarted] = {}
    ends: dict[int, CallFinished] = {}
    of_script = 0
    for event in run.log.events:
        match event:
            case ScriptGenerated():
                of_script = event.attempt
            case CallStarted() if of_script == attempt and event.effect != "read":
                begun[event.call_id] = event
                ends.pop(event.call_id, None)
            case CallFinished():
                ends[event.call_id] = event
            case _:
                pass
    told = ((call, _what_became(ends.get(number))) for number, call in begun.items())
    return [
        told_call(call.action, call.arguments) + became
        for call, became in told
        if became is not None
    ]


def _what_became(end: CallFinished | None) -> str | None:
    """What is added to a call that changed something; None for one that did not."""
    if end is not None and end.status == "ok":
        return ""
    given_up = end is None or (end.status == "cancelled" and end.raised != NEVER_MADE)
    return " (it was given up, and may be done or not)" if given_up else None


async def _record_rerun(run: TaskRun, outcome: Rerun, number: int) -> None:
    async with run.step("rerun", number):
        await run.log.record(
            RerunRequested,
            attempt=number,
            context=outcome.context,
            remaining=outcome.remaining,
            variables=outcome.variables,
        )


async def _record_retry(run: TaskRun, outcome: Outcome, attempt: int) -> None:
    async with run.step("retry", attempt):
        error = describe_outcome(outcome)[1] or "failed"
        await run.log.record(RetryScheduled, attempt=attempt, error=error)


def _too_many_reruns(run: TaskRun, outcome: Rerun) -> DelfError:
    return SandboxExecutionError(
        f"the script asked for another pass after {run.config.rerun_count} of them; "
        f"left to do: {outcome.remaining}",
        hint="raise rerun_count, or split the task",
    )


def as_error(outcome: Outcome) -> DelfError:
    """The error that a task fails with when its last script ended like this."""
    if isinstance(outcome, LimitReached):
        return SandboxLimitError(
            outcome.message,
            limit=outcome.limit,
            hint=f"sandbox_config sets the limits; this one was {outcome.limit!r}",
        )
    if isinstance(outcome, Crashed):
        return SandboxExecutionError(outcome.message, hint=_HINT)
    if isinstance(outcome, Failed):
        if outcome.kind == "ApprovalRejected":
            return ApprovalRejectedError(outcome.message)
        where = f" (line {outcome.line}: {outcome.source})" if outcome.line else ""
        said = f"the script failed: {outcome.kind}: {outcome.message}{where}"
        return _OF_KIND.get(outcome.kind, SandboxExecutionError)(said, hint=_HINT)
    return SandboxExecutionError("the script did not end as expected", hint=_HINT)
