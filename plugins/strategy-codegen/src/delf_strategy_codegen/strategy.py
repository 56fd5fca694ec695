"""``CodegenStrategy``: the model writes a script, which calls the tools.

A script that asks for another pass, or fails, is followed by another one. The prompt of the next
script contains the new context, or the error. The task ends with a script that succeeds, or with
the last pass.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from delf.answers import quote_answer
from delf.errors import (
    ApprovalRejectedError,
    CodeGenerationError,
    DelfError,
    LLMExecutionError,
    ModelConfigurationError,
    SandboxExecutionError,
    SandboxLimitError,
    TaskLimitError,
    ToolException,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.messages import (
    Message,
    ModelReply,
    ModelTool,
    ToolCall,
    ToolResult,
    assistant,
    results,
)
from delf.protocols.connection import ConnectionLike
from delf.protocols.sandbox import MAX_SCRIPT, Crashed, Done, Failed, LimitReached, Outcome, Rerun
from delf.protocols.strategy import ScriptResult, StrategyHost, ToolChoice
from delf.tools.find_tools import find_tools_if_needed
from delf.tools.stubs import stubs_of
from delf_strategy_codegen.choice import Reading
from delf_strategy_codegen.extract import calls_with_script, read_reply
from delf_strategy_codegen.prompt import (
    SILENT,
    crash_messages,
    refused_answer_messages,
    requested_changes_messages,
    rerun_messages,
    retry_messages,
    script_rules,
    silent_messages,
    unusable_answer_messages,
)
from delf_strategy_codegen.repair import repair_code

# The number of reruns allowed before a task's first write call, unless the host allows more.
_MAX_RERUNS_BEFORE_CHANGE: Final = 8
_HINT: Final = "the task's trace has its scripts and calls"
# A mapping from the exception that ended a script to the error of the task.
_ERROR_BY_KIND: Final[dict[str, type[DelfError]]] = {
    "ToolError": ToolExecutionError,
    "ToolException": ToolException,
    "ToolArgumentError": ToolRefusedError,
    "ToolNotAllowed": ToolRefusedError,
    "TaskLimitError": TaskLimitError,
}


_RUN: Final = ModelTool(
    name="run",
    description="Runs a Python script that does the task.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The whole script."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)


CodeIn = Literal["auto", "fence", "tool"]
# The HTTP statuses of failures that do not mean that a server refuses tools.
_NOT_ABOUT_TOOLS: Final = frozenset({401, 402, 403, 408, 429})


class CodegenStrategy:
    """A strategy in which the model writes scripts that call the tools.

    Implements :class:`delf.protocols.strategy.Strategy`.

    Args:
        code_in: The form of scripts: a fenced code block (``fence``), or the argument of a tool
            call (``tool``). With ``auto``, the model is asked for a fenced code block, and gets
            the tool after an answer without a script.
    """

    takes_changes = True

    def __init__(self, *, code_in: CodeIn = "auto") -> None:
        self._code_in: CodeIn = code_in

    def own_tools(self, choice: ToolChoice) -> Sequence[ConnectionLike]:
        """Return ``find_tools`` if the prompt omits or shortens tools."""
        return find_tools_if_needed(choice)

    async def solve(self, host: StrategyHost) -> str:
        """Ask for scripts and run them until a script succeeds.

        Raises:
            SandboxExecutionError: If the last script that the retry limit allows fails.
            CodeGenerationError: If the model writes no script.
            DelfError: If the model, budget or sandbox fails.
        """
        in_tool = self._code_in == "tool"
        stubs = stubs_of(host.choice, host.task)
        rules = script_rules(
            stubs,
            host.libraries,
            language=host.language,
            unsupported=host.unsupported,
            in_tool=in_tool,
            can_rerun=host.rerun_count > 0,
        )
        messages = host.begin(rules)
        progress = _Progress(host)
        while True:
            written = await _write(host, messages, self._code_in)
            if written.code is None:
                return written.text
            result = await host.execute(repair_code(written.code))
            answer_or_feedback = await progress.after(written.code, result)
            if isinstance(answer_or_feedback, str):
                return answer_or_feedback
            messages += _as_sent_by_model(written.calls, answer_or_feedback)


_Feedback = tuple[Message, Message]
"""The message with a script, and the message with the feedback to the script."""


class _Progress:
    """Decides after each script of a task whether the task needs another script.

    Args:
        host: The host of the task.
    """

    def __init__(self, host: StrategyHost) -> None:
        self._host = host
        self._reruns = _RerunCounter(host.rerun_count)
        self._retries = 0  # since the last rerun

    async def after(self, code: str, result: ScriptResult) -> str | _Feedback:
        """Return the answer of the task, or the feedback if the model has to write another script.

        Args:
            code: The script.
            result: The script's result.

        Raises:
            DelfError: If no other script may run or could succeed.
        """
        if result.changes:
            self._reruns.has_changed = True
        # People asked for another script, whatever the outcome. This is no retry of a failure, so
        # nothing limits how often people can ask.
        if result.changes_requested:
            _raise_if_permanent(result)
            return requested_changes_messages(code, result)
        match result.outcome:
            case Done() as outcome:
                return await self._after_end(code, result, outcome)
            case Rerun() as outcome:
                is_last = self._reruns.count(outcome)
                self._retries = 0  # the script did not fail, so a next failure is a first one
                return rerun_messages(code, outcome, result.printed, is_last=is_last)
            case outcome:
                _raise_if_permanent(result)
                if not self._may_retry:
                    raise as_error(result) from result.cause
                await self._count_retry(_reason(outcome))
                return _messages_after_failure(code, outcome, result)

    async def _after_end(self, code: str, result: ScriptResult, outcome: Done) -> str | _Feedback:
        """Return the answer of a script that ran to its end.

        Return feedback if the answer is missing or is refused, and a retry is left.
        """
        host = self._host
        text = compose(host.output, outcome.value)
        has_answer = bool(text.strip()) or host.has_answered
        refusal = host.refuse_mismatch(text)
        if refusal is not None:
            if not self._may_retry:
                return text  # even a refused answer is better than none
            await self._count_retry(refusal)
            return refused_answer_messages(code, text, refusal)
        if result.is_silent and not has_answer:
            if not self._may_retry:
                return _last_answer(result)
            await self._count_retry(SILENT)
            return silent_messages(code, result.returned, outcome.variables)
        return text

    @property
    def _may_retry(self) -> bool:
        return self._retries < self._host.retry_count

    async def _count_retry(self, reason: str) -> None:
        self._retries += 1
        await self._host.retrying(reason)


def _raise_if_permanent(result: ScriptResult) -> None:
    """Raise the error of a task if no other script could succeed."""
    if result.refused is not None:  # the budget is exhausted
        raise result.refused
    if not result.can_retry:
        raise as_error(result) from result.cause


class _FinalReply(NamedTuple):
    """The model's complete answer to a request for a script.

    Args:
        code: The script; None if the answer is prose for the user.
        text: The answer's text.
        calls: The tool calls whose argument is the script; empty if no tool was offered.
    """

    code: str | None
    text: str
    calls: tuple[ToolCall, ...] = ()


async def _write(host: StrategyHost, messages: tuple[Message, ...], code_in: CodeIn) -> _FinalReply:
    """Ask the main model for a script, and ask again up to the retry limit.

    The model is asked for a call of the tool ``run`` or for a fenced code block: see
    :class:`_ToolOffer`.

    A reply without a script may become the task's answer: see :func:`_is_final_prose`.

    Raises:
        CodeGenerationError: If no answer contains a script.
        ModelConfigurationError: If a tool is required but not supported.
        DelfError: If the model fails or the budget is exhausted.
    """
    async with host.step("generate"):
        offer = _ToolOffer(host, messages, code_in)
        unusable_answers: list[_UnusableAnswer] = []
        while True:
            feedback = _feedback_to(unusable_answers, in_tool=bool(offer.tools))
            try:
                reply = await host.ask((*messages, *feedback), tools=offer.tools)
            except LLMExecutionError as error:
                if not offer.withdraw_tool_after(error):
                    raise
                continue
            reading = read_reply(reply)
            if reading.code is not None:
                # Messages with a call require the tool in later requests, see _ToolOffer. So keep
                # the call only if the tool was offered.
                calls = calls_with_script(reply) if offer.tools else ()
                return _FinalReply(reading.code, reply.text, calls)
            if _is_final_prose(host, reply, reading, is_first_reply=not unusable_answers):
                return _FinalReply(None, reply.text.strip())
            unusable_answers.append(_UnusableAnswer(reply.text, reading.why))
            if len(unusable_answers) > host.retry_count:
                raise CodeGenerationError(
                    f"the model {reply.model!r} answered without a script "
                    f"{len(unusable_answers)} times; {quote_answer(reply.text)}"
                )
            await host.retrying(reading.why or "the answer held no script")
            offer.add_tool_if_allowed()


class _ToolOffer:
    """Decides whether the model is offered the tool ``run`` for its script.

    The tool is required if ``code_in`` is "tool", or if the messages contain a tool call. With
    ``code_in`` "auto", a tool that is not required is added after a reply without a script, and
    withdrawn if the server refuses tools.

    Args:
        host: The services of the task.
        messages: The messages of the request.
        code_in: The form in which the model writes scripts.

    Raises:
        ModelConfigurationError: If the tool is required but not supported.
    """

    def __init__(self, host: StrategyHost, messages: tuple[Message, ...], code_in: CodeIn) -> None:
        self._host = host
        self._is_required = code_in == "tool" or _contain_tool_call(messages)
        if self._is_required and not host.takes_tools:
            raise ModelConfigurationError(
                "code_in is 'tool', and the model cannot be given tools",
                hint='code_in = "fence", or "auto"',
            )
        self._may_be_added = code_in == "auto" and not self._is_required
        self.tools = (_RUN,) if self._is_required else ()

    def add_tool_if_allowed(self) -> None:
        """Offer the tool from now on if ``code_in`` allows this and the server takes tools."""
        if self._may_be_added and self._host.takes_tools:
            self.tools = (_RUN,)

    def withdraw_tool_after(self, error: LLMExecutionError) -> bool:
        """Withdraw the tool if it was added and an error may mean that the server refuses tools.

        Returns:
            Whether the tool was withdrawn.
        """
        was_added = bool(self.tools) and not self._is_required
        if not was_added or not _may_be_about_tools(error):
            return False
        # The model answered until the tool was added, so the server refuses tools.
        self.tools = ()
        self._may_be_added = False
        return True


class _UnusableAnswer(NamedTuple):
    """An answer without a script, and the problem; the problem may be empty."""

    text: str
    problem: str


def _feedback_to(answers: Sequence[_UnusableAnswer], *, in_tool: bool) -> list[Message]:
    """Return the feedback to answers without a script.

    Args:
        answers: The answers, in order.
        in_tool: Whether the model is asked for a tool call with the script.
    """
    feedback: list[Message] = []
    for answer in answers:
        feedback += unusable_answer_messages(answer.text, answer.problem, in_tool=in_tool)
    return feedback


def _is_final_prose(
    host: StrategyHost, reply: ModelReply, reading: Reading, *, is_first_reply: bool
) -> bool:
    """Return True if the text of a reply without a script is the task's answer.

    A task that has used a tool needs a script for its answer. Any other task may be answered in
    prose: in a conversation at once, otherwise only after the model was asked again for a script.
    """
    answer = reply.text.strip()
    has_attempted_script = bool(reading.why) or bool(reply.calls)
    if not answer or has_attempted_script or host.used_tools:
        return False
    if is_first_reply and not host.is_conversation:
        return False
    return host.refuse_mismatch(answer) is None


def _contain_tool_call(messages: tuple[Message, ...]) -> bool:
    parts = itertools.chain.from_iterable(message.parts for message in messages)
    return any(isinstance(part, ToolCall) for part in parts)


def _may_be_about_tools(error: LLMExecutionError) -> bool:
    """Return whether an error may mean that the server refuses tools."""
    return error.status is not None and error.status not in _NOT_ABOUT_TOOLS


def _as_sent_by_model(
    calls: tuple[ToolCall, ...], script_and_feedback: tuple[Message, Message]
) -> tuple[Message, ...]:
    """Return the messages with a script and with its feedback in the form that the model used.

    If the model sent the script in tool calls, the script stays in these calls, and the feedback
    becomes their results. If the model sent the script as text, or in very long calls, return
    ``script_and_feedback`` unchanged.

    Args:
        calls: The tool calls; empty if the script was in the text.
        script_and_feedback: The message with the script in a fence, and the message with the
            feedback.
    """
    has_long_calls = sum(len(call.arguments) for call in calls) > 2 * MAX_SCRIPT
    if not calls or has_long_calls:
        return script_and_feedback
    _, feedback = script_and_feedback
    first_call, *further_calls = calls
    tool_results = [ToolResult(id=first_call.id, name=first_call.name, text=feedback.text)]
    for call in further_calls:
        text = "It ran as one script with the first call."
        tool_results.append(ToolResult(id=call.id, name=call.name, text=text))
    return assistant("", calls), results(tool_results)


def compose(output: str, value: Any) -> str:
    """Return the text of the answer: the output of the scripts, or without output the value.

    Args:
        output: Everything that the scripts printed.
        value: The value that the last script returned, or the value of its last expression.
    """
    text = output.strip("\n")
    if text.strip() or value is None:
        return text
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list, tuple)):
        with contextlib.suppress(TypeError, ValueError):  # the keys may be invalid in JSON
            return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return str(cast("object", value))


def _messages_after_failure(
    code: str, outcome: Outcome, result: ScriptResult
) -> tuple[Message, Message]:
    """Return the message with the script, and the feedback on its failure or crash."""
    if isinstance(outcome, (Failed, LimitReached)):
        return retry_messages(
            code,
            outcome,
            result.printed,
            variables_alive=result.variables_alive,
            changes=result.changes,
        )
    return crash_messages(code, _reason(outcome), result.changes)


def _reason(outcome: Outcome) -> str:
    match outcome:
        case Failed(kind=kind, message=message):
            return f"{kind}: {message}"
        case LimitReached(message=message) | Crashed(message=message):
            return message
        case _:
            return "failed"


class _RerunCounter:
    """Counts the calls of ``rerun``, with which a script asks the model for a further script.

    Before the first write call, more reruns are allowed, because reading again is harmless.

    Args:
        max_reruns_after_change: The maximum number of reruns after a write call; 0 also forbids
            reruns before a write call. Other values allow at least ``_MAX_RERUNS_BEFORE_CHANGE``
            reruns before a write call.
    """

    def __init__(self, max_reruns_after_change: int) -> None:
        self.has_changed = False
        """True after a write call, even if its outcome is unknown."""
        self._max_reruns_after_change = max_reruns_after_change
        if max_reruns_after_change == 0:
            self._max_reruns_before_change = 0
        else:
            self._max_reruns_before_change = max(_MAX_RERUNS_BEFORE_CHANGE, max_reruns_after_change)
        self._reruns_before_change = 0
        self._reruns_after_change = 0

    def count(self, outcome: Rerun) -> bool:
        """Count a script's call of ``rerun``, and return True if this was the last one allowed.

        Raises:
            SandboxExecutionError: If no reruns are left.
        """
        if self.has_changed:
            used = self._reruns_after_change
            limit = self._max_reruns_after_change
            self._reruns_after_change += 1
        else:
            used = self._reruns_before_change
            limit = self._max_reruns_before_change
            self._reruns_before_change += 1
        if used >= limit:
            raise SandboxExecutionError(
                f"the script asked for another pass after {used} of them; "
                f"left to do: {outcome.remaining}",
                hint="raise rerun_count, or split the task",
            )
        return used + 1 == limit


def _last_answer(result: ScriptResult) -> str:
    """Return the answer to the user after a last script that printed nothing.

    The answer says that nothing was found, and lists the empty results of the script's calls.

    Raises:
        SandboxExecutionError: If the script made no call, or a call returned a result that is not
            empty. The script should then have printed an answer.
    """
    has_only_empty_results = result.found_nothing
    if not has_only_empty_results:
        raise SandboxExecutionError(f"there is no answer: {SILENT}", hint=_HINT)
    listed = "\n".join(f"- {line}" for line in result.returned)
    return f"Nothing was found:\n{listed}"


def as_error(result: ScriptResult) -> DelfError:
    """Return the error of a task whose last script had this result."""
    outcome = result.outcome
    # A person asked for changes of the script, but the model has no attempt left to make them.
    if result.changes_requested and isinstance(outcome, (Done, Rerun)):
        wanted = "; ".join(result.changes_requested)
        message = f"no other script may run, and changes were requested: {wanted}"
        return ApprovalRejectedError(message)
    if isinstance(outcome, LimitReached):
        return SandboxLimitError(
            outcome.message,
            limit=outcome.limit,
            hint=f"sandbox_config sets the limits; this one was {outcome.limit!r}",
        )
    if isinstance(outcome, Crashed):
        return SandboxExecutionError(outcome.message, hint=_HINT)
    if isinstance(outcome, Failed):
        if result.rejected:
            return ApprovalRejectedError(outcome.message)
        where = f" (line {outcome.line}: {outcome.source})" if outcome.line else ""
        message = f"the script failed: {outcome.kind}: {outcome.message}{where}"
        error_type = _ERROR_BY_KIND.get(outcome.kind, SandboxExecutionError)
        return error_type(message, hint=_HINT)
    return SandboxExecutionError("the script did not end as expected", hint=_HINT)
