"""``CodegenStrategy``: the model writes a script, which calls the tools.

A script that asks for another pass, or fails, is followed by another one. The prompt of the next
script contains the new context, or the error. The task ends with a script that succeeds, or with
the last pass.
"""

from __future__ import annotations

import contextlib
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
    ToolException,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.messages import Message, ModelTool, ToolCall, ToolResult, assistant, results
from delf.protocols.connection import ConnectionLike
from delf.protocols.sandbox import MAX_SCRIPT, Crashed, Done, Failed, LimitReached, Outcome, Rerun
from delf.protocols.strategy import ScriptResult, StrategyHost, ToolChoice
from delf.tools.find_tools import own_tools
from delf.tools.stubs import stubs_of
from delf_strategy_codegen.extract import calls_with_script, read_reply
from delf_strategy_codegen.prompt import (
    SILENT,
    changes_messages,
    crash_messages,
    no_code_messages,
    rerun_messages,
    retry_messages,
    script_rules,
    silent_messages,
    unfit_messages,
)
from delf_strategy_codegen.repair import repair_code

_MAX_READ_PASSES: Final = 8
"""The maximum number of further passes of a task that has only read."""
_HINT: Final = "delf runs show has the scripts and calls, as response.trace has in a program"
_OF_KIND: Final[dict[str, type[DelfError]]] = {
    "ToolError": ToolExecutionError,
    "ToolException": ToolException,
    "ToolArgumentError": ToolRefusedError,
    "ToolNotAllowed": ToolRefusedError,
}
"""The error of a task whose script did not catch a call's failure, by its kind."""


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
_NOT_OF_TOOLS: Final = frozenset({401, 402, 403, 408, 429})
"""The HTTP statuses of requests that would also fail without tools."""


class CodegenStrategy:
    """Scripts that the model writes. Implements :class:`delf.protocols.strategy.Strategy`.

    Args:
        code_in: How the model passes scripts: in a ``fence``, or as argument of a ``tool``; with
            ``auto`` the tool is offered after an answer without a script.
    """

    takes_changes = True

    def __init__(self, *, code_in: CodeIn = "auto") -> None:
        self._code_in: CodeIn = code_in

    def own_tools(self, choice: ToolChoice) -> Sequence[ConnectionLike]:
        """Return ``find_tools`` if the prompt omits or shortens tools."""
        return own_tools(choice)

    async def solve(self, host: StrategyHost) -> str:
        """Write and run scripts until one succeeds.

        Raises:
            SandboxExecutionError: If the last allowed script fails, too.
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
        )
        messages = host.begin(rules)
        retries = 0
        passes = _Passes(host.rerun_count)
        while True:
            written = await _write(host, messages, self._code_in)
            if written.code is None:
                return written.text
            code, calls = written.code, written.calls
            result = await host.execute(repair_code(code))
            passes.has_changed = passes.has_changed or bool(result.changes)
            if result.changes_requested:
                if result.refused is not None:
                    raise result.refused
                if not result.can_retry:
                    raise as_error(result) from result.cause
                messages += _as_written(calls, changes_messages(code, result))
                continue
            match result.outcome:
                case Done(value=value, variables=variables):
                    text = compose(host.output, value)
                    problem = host.refuse(text)
                    is_silent = result.is_silent and not (text.strip() or host.has_answered)
                    problem = SILENT if is_silent and problem is None else problem
                    if problem is None:
                        return text
                    if retries >= host.retry_count:
                        return _last_answer(result) if problem == SILENT else text
                    retries += 1
                    await host.retrying(problem)
                    feedback = unfit_messages(code, text, problem)
                    if problem == SILENT:
                        feedback = silent_messages(code, result.returned, variables)
                    messages += _as_written(calls, feedback)
                case Rerun() as outcome:
                    passes.count(outcome)
                    retries = 0
                    messages += _as_written(calls, rerun_messages(code, outcome, result.printed))
                case outcome:
                    if result.refused is not None:
                        raise result.refused
                    if retries >= host.retry_count or not result.can_retry:
                        raise as_error(result) from result.cause
                    retries += 1
                    await host.retrying(_reason(outcome))
                    messages += _as_written(calls, _what_went_wrong(code, outcome, result))


class _Written(NamedTuple):
    """The text that the model wrote.

    Args:
        code: A script; None if the answer is prose.
        text: The answer's text.
        calls: The tool calls with the script, if a tool was offered.
    """

    code: str | None
    text: str
    calls: tuple[ToolCall, ...] = ()


async def _write(host: StrategyHost, messages: tuple[Message, ...], code_in: CodeIn) -> _Written:
    """Ask the main model for a script, again after answers without one, up to the retry limit.

    If configured, or after an answer without a script, a model that supports tools gets the tool
    ``run`` for its script; if its server refuses tools, a fence is requested again. Prose is
    accepted as the answer if no tool was used: at once in a conversation, else the second time.

    Raises:
        CodeGenerationError: If no answer contains a script.
        ModelConfigurationError: If a tool is required but not supported.
        DelfError: If the model fails or the budget is exhausted.
    """
    async with host.step("generate"):
        has_called = any(
            isinstance(part, ToolCall) for answer_text in messages for part in answer_text.parts
        )
        tools = (_RUN,) if code_in == "tool" or has_called else ()
        if tools and not host.takes_tools:
            raise ModelConfigurationError(
                "code_in is 'tool', and the model cannot be given tools",
                hint='code_in = "fence", or "auto"',
            )
        tries = 1
        can_offer_tool = code_in == "auto" and not has_called
        unread: tuple[str, str] = ("", "")
        while True:
            try:
                reply = await host.ask(messages, tools=tools)
            except LLMExecutionError as error:
                if (
                    not (tools and can_offer_tool)
                    or error.status is None
                    or error.status in _NOT_OF_TOOLS
                ):
                    raise
                # The first answer came without tools, so the server refuses tools: with 400, 404,
                # 422 or 500.
                tools, can_offer_tool = (), False
                messages = (*messages[:-2], *no_code_messages(*unread))
                continue
            reading = read_reply(reply)
            if reading.code is not None:
                calls = calls_with_script(reply) if tools else ()
                return _Written(reading.code, reply.text, calls)
            answer_text = reply.text.strip()
            is_prose = bool(answer_text) and not (reading.why or reply.calls)
            may_answer_in_prose = tries > 1 or host.is_conversation
            if (
                is_prose
                and may_answer_in_prose
                and not host.used_tools
                and host.refuse(answer_text) is None
            ):
                return _Written(None, answer_text)
            if tries > host.retry_count:
                raise CodeGenerationError(
                    f"the model {reply.model!r} answered without a script {tries} times; "
                    f"{quote_answer(reply.text)}"
                )
            tries += 1
            await host.retrying(reading.why or "the answer held no script")
            if can_offer_tool and host.takes_tools:
                tools = (_RUN,)
            unread = reply.text, reading.why
            feedback = no_code_messages(*unread, in_tool=bool(tools))
            messages = (*messages, *feedback)


def _as_written(
    calls: tuple[ToolCall, ...], feedback: tuple[Message, Message]
) -> tuple[Message, ...]:
    """Return a script and its result in the model's form: a fence, or calls and results."""
    if not calls or sum(len(call.arguments) for call in calls) > 2 * MAX_SCRIPT:
        return feedback
    texts = [feedback[1].text, *["It ran as one script with the first call."] * (len(calls) - 1)]
    tool_results = [
        ToolResult(id=call.id, name=call.name, text=text)
        for call, text in zip(calls, texts, strict=True)
    ]
    return assistant("", calls), results(tool_results)


def compose(output: str, value: Any) -> str:
    """Return the answer's text: the output, otherwise the script's value.

    Args:
        output: Everything that the scripts printed.
        value: The value that the last script returned or had as last expression.
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


def _what_went_wrong(code: str, outcome: Outcome, result: ScriptResult) -> tuple[Message, Message]:
    if isinstance(outcome, (Failed, LimitReached)):
        fresh, printed = not result.variables_alive, result.printed
        return retry_messages(code, outcome, printed, fresh=fresh, done=result.changes)
    return crash_messages(code, _reason(outcome), result.changes)


def _reason(outcome: Outcome) -> str:
    match outcome:
        case Failed(kind=kind, message=message):
            return f"{kind}: {message}"
        case LimitReached(message=message) | Crashed(message=message):
            return message
        case _:
            return "failed"


class _Passes:
    """Counts the further passes that scripts request.

    A task without changes gets more passes, because another read is cheap and harmless.

    Args:
        most: The maximum number of passes of a task that has changed something; 0 forbids all
            passes.
    """

    def __init__(self, most: int) -> None:
        self.has_changed = False
        """True if a script has changed something, or may have."""
        self._most = most
        self._read_passes = 0
        self._used = 0

    def count(self, outcome: Rerun) -> None:
        """Count a pass.

        Raises:
            SandboxExecutionError: If no passes are left.
        """
        # Passes before the first change only read, and have their own limit.
        if self.has_changed:
            used, limit = self._used, self._most
            self._used += 1
        else:
            used = self._read_passes
            limit = max(_MAX_READ_PASSES, self._most) if self._most else 0
            self._read_passes += 1
        if used >= limit:
            raise SandboxExecutionError(
                f"the script asked for another pass after {used} of them; "
                f"left to do: {outcome.remaining}",
                hint="raise rerun_count, or split the task",
            )


def _last_answer(result: ScriptResult) -> str:
    """Return the answer of a silent last script.

    Raises:
        SandboxExecutionError: If the script failed; a search without results is an answer.
    """
    if not result.found_nothing:
        raise SandboxExecutionError(f"there is no answer: {SILENT}", hint=_HINT)
    listed = "\n".join(f"- {line}" for line in result.returned)
    return f"Nothing was found:\n{listed}"


def as_error(result: ScriptResult) -> DelfError:
    """Return the error that a task fails with when its last script ended like this."""
    outcome = result.outcome
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
        return _OF_KIND.get(outcome.kind, SandboxExecutionError)(message, hint=_HINT)
    return SandboxExecutionError("the script did not end as expected", hint=_HINT)
