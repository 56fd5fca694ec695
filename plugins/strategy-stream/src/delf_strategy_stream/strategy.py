"""``StreamStrategy``: the model thinks, calls tools, and reads results, until it answers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from delf.answers import join_continuation, quote_answer
from delf.errors import (
    CodeGenerationError,
    LLMExecutionError,
    ModelConfigurationError,
    describe_exception,
)
from delf.messages import Message, ModelReply, user
from delf.protocols.connection import ConnectionLike
from delf.protocols.strategy import OnDelta, StrategyHost, ToolChoice
from delf.tools.find_tools import find_tools_if_needed
from delf_strategy_stream.context import Turn, assemble, compact, tokens_of
from delf_strategy_stream.events import InventedResults, Result, UnparsableCall
from delf_strategy_stream.notation import SUSPICIOUS, FunctionCalls, Markers
from delf_strategy_stream.sessions import SessionTurns
from delf_strategy_stream.settings import StreamSettings
from delf_strategy_stream.turns import TurnRunner
from delf_strategy_stream.values import shortened_json

Notifications = Callable[[], Awaitable[Sequence[str]]]
"""Returns additional messages for the model.

Called before the first turn, and after each turn in which the model made calls.
"""

# The name in the environment variables ``DELF_STRATEGY_STREAM_…`` for the settings.
_ENVIRONMENT_NAME: Final = "strategy_stream"
_NOTIFICATION_SECONDS: Final = 10.0
# The number of tokens of the conversation above which the oldest turns are shortened.
#
# Models support 128,000 tokens or more.
_CONTEXT_TOKENS: Final = 100_000
_MAX_RESULT_CHARS: Final = 20_000


class StreamStrategy:
    """A strategy in which the model streams thoughts and tool calls, and gets the results back.

    Implements :class:`delf.protocols.strategy.Strategy`.

    Args:
        notifications: Returns additional messages for the model between turns.
        settings: The fields of :class:`delf_strategy_stream.settings.StreamSettings`; omitted
            fields come from the environment variables ``DELF_STRATEGY_STREAM_…``.

    Raises:
        ConnectionConfigurationError: If a setting is invalid.
    """

    calls_only = True
    takes_changes = True

    def __init__(
        self,
        *,
        notifications: Notifications | None = None,
        **settings: Any,
    ) -> None:
        self._settings = StreamSettings.for_instance(_ENVIRONMENT_NAME, settings)
        self._notifications = notifications

    def own_tools(self, choice: ToolChoice) -> Sequence[ConnectionLike]:
        """Return ``find_tools`` if the prompt omits tools."""
        return find_tools_if_needed(choice)

    async def solve(self, host: StrategyHost) -> str:
        """Make the model's tool calls until the model answers without a call.

        Raises:
            CodeGenerationError: If the model does not answer within ``max_turns``, or the answer is
                empty.
            LLMExecutionError: If the model's answers are truncated again and again.
            ModelConfigurationError: If function calls are required but not supported.
            DelfError: If a model call fails or the budget is exceeded.
        """
        # The mode "replay" sends the whole conversation in each request. The mode "resume" requires
        # a session of the model, which remembers the conversation; "auto" uses one if possible.
        mode = self._settings.mode
        session = SessionTurns(
            host, self._settings.session_seconds, requires_session=mode == "resume"
        )
        try:
            used_session = None if mode == "replay" else session
            task = _Task(host, self._settings, used_session, self._notifications)
            return await task.solve()
        finally:
            await session.aclose()


class _RefusedAnswer(NamedTuple):
    """An answer of the model that cannot be the task's result, with the reason."""

    reason: str


class _Task:
    """The state of a task that this strategy works on."""

    def __init__(
        self,
        host: StrategyHost,
        settings: StreamSettings,
        session: SessionTurns | None,
        notifications: Notifications | None,
    ) -> None:
        self._host = host
        self._settings = settings
        self._session = session
        self._notifications = notifications
        self._tools = {tool.name: tool for tool in host.tools}
        self._notation: Markers | FunctionCalls = Markers()
        if settings.notation == "tools":
            if not host.takes_tools:
                raise ModelConfigurationError(
                    "notation is 'tools', and the model cannot be given tools",
                    hint='notation = "markers"',
                )
            self._notation = FunctionCalls(list(self._tools.values()))
        self._earlier_turns: tuple[Turn, ...] = ()
        # The number of consecutive answers that neither make a call nor are a valid final answer.
        self._failures = 0
        # The text of an answer that the model's limit on tokens cut off, and that the next answer
        # continues.
        self._cut_off_answer = ""

    async def solve(self) -> str:
        """Ask the model in turns until it answers; return the text of the answer.

        A turn without a final answer is added to the conversation, and the model is asked again: it
        gets the results of its calls, a request to continue a text that was cut off, or the reason
        why its answer was refused.
        """
        host = self._host
        beginning = await self._beginning()
        new_messages = beginning  # the messages since the model's last answer
        for _ in range(self._settings.max_turns):
            async with host.step("turn"):
                turn = await self._run_turn(beginning, new_messages)
            if host.has_answered:
                return turn.text.strip()
            match self._complete_answer(turn):
                case str(answer):
                    return answer
                case _RefusedAnswer(reason):  # the next request contains the notices
                    turn = replace(turn, notices=(reason,))
                case None:  # the turn has calls, or a text to continue
                    pass
            await self._count_failures(turn)
            new_messages = await self._add_turn(turn)
        raise CodeGenerationError(
            f"the model did not answer within {self._settings.max_turns} turns",
            hint="max_turns of the strategy allows more",
        )

    async def _beginning(self) -> tuple[Message, ...]:
        """Return the messages before the model's first turn: the rules, notices and the task."""
        further_rules = SUSPICIOUS if self._settings.untrusted else ""
        rules = self._notation.rules(list(self._tools.values()), further_rules)
        beginning = self._host.begin(rules)
        notices = await self._notices()
        if not notices:
            return beginning
        *messages_before_task, task_message = beginning
        notice_messages = [user(f"Notice: {text}") for text in notices]
        return (*messages_before_task, *notice_messages, task_message)

    def _complete_answer(self, turn: Turn) -> str | _RefusedAnswer | None:
        """Complete the task's answer with the text of a turn without calls.

        A text that was cut off is kept, and the next turn continues the text.

        Returns:
            The answer, its refusal, or None if the turn completes no answer.
        """
        is_answer = turn.text.strip() and not turn.calls and not turn.problems
        if not is_answer:
            self._cut_off_answer = ""
            return None
        if turn.is_cut:
            self._keep_cut_off_text(turn.text)
            return None
        joined_text = join_continuation(self._cut_off_answer, turn.text)
        # Even a refused answer is complete, so the next answer continues nothing.
        self._cut_off_answer = ""
        if joined_text is None:
            return _RefusedAnswer(_UNCLEAR_CONTINUATION_MESSAGE)
        answer = joined_text.strip()
        refusal = self._host.refuse_mismatch(answer)
        return answer if refusal is None else _RefusedAnswer(refusal)

    async def _add_turn(self, turn: Turn) -> tuple[Message, ...]:
        """Add a turn to the conversation; return the messages that a session gets next."""
        messages: tuple[Message, ...] = ()
        has_content = turn.text.strip() or turn.thoughts.strip() or turn.calls
        if has_content:
            self._earlier_turns = (*self._earlier_turns, turn)
            await self._compact()
            messages = self._notation.messages_after(turn)
        # There is no message after an empty turn or mere thoughts, but a session needs one.
        return messages or (user(_EMPTY_ANSWER_MESSAGE),)

    def _keep_cut_off_text(self, text: str) -> None:
        """Keep a truncated answer, which the next turn has to continue.

        If an earlier answer was truncated, too, both are joined. If it is unclear where the earlier
        answer is continued, only the new answer is kept.
        """
        joined_text = join_continuation(self._cut_off_answer, text)
        self._cut_off_answer = joined_text or text

    async def _run_turn(
        self, beginning: Sequence[Message], new_messages: Sequence[Message]
    ) -> Turn:
        """Ask the model once, and make the calls of its answer.

        Args:
            beginning: The messages before the model's first turn.
            new_messages: The messages since the model's last answer. Only these messages are sent
                in a session, which is a conversation that the model's server stores.
        """
        runner = TurnRunner(self._host, self._tools, self._notation.reader())
        conversation = assemble(beginning, self._earlier_turns, self._notation)
        turn = await runner.run(functools.partial(self._ask, conversation, new_messages))
        # A text beside calls is a remark, which is shown at once and stays before the answer.
        if turn.text.strip() and turn.calls:
            self._host.say(turn.text.strip() + "\n\n")
        results = tuple(map(self._shorten_and_mark_untrusted, turn.results))
        notices = await self._notices() if turn.calls else ()
        return replace(turn, results=results, notices=notices)

    async def _ask(
        self, conversation: Sequence[Message], new_messages: Sequence[Message], on_delta: OnDelta
    ) -> ModelReply:
        """Send the whole conversation to the model; in a session, send only the new messages."""
        tools = self._notation.model_tools
        if self._session is None:
            return await self._host.ask(conversation, tools=tools, on_delta=on_delta)
        return await self._session.send(new_messages, conversation, tools=tools, on_delta=on_delta)

    def _shorten_and_mark_untrusted(self, result: Result) -> Result:
        """Shorten a result for the model, and mark untrusted data."""
        # Refusals are delf's own text; results and errors come from the tool.
        is_from_tool = result.status in ("ok", "error")
        is_untrusted = is_from_tool and any(
            fnmatchcase(result.name, pattern) for pattern in self._settings.untrusted
        )
        value = shortened_json(result.value, _MAX_RESULT_CHARS)
        return replace(result, value=value, is_untrusted=is_untrusted)

    async def _notices(self) -> tuple[str, ...]:
        """Return a tuple with one text of all new notifications; an empty tuple without any."""
        if self._notifications is None:
            return ()
        source = self._notifications

        async def fetch_notifications() -> str:
            try:
                async with asyncio.timeout(_NOTIFICATION_SECONDS):
                    return "\n".join(await source())
            # The function that fetches notifications belongs to the program that embeds delf, and
            # may raise anything.
            except (Exception, asyncio.CancelledError) as error:
                if _is_cancellation_of_this_task(error):
                    raise
                failure = describe_exception(error)
                await self._host.warn(f"the source of notifications failed: {failure}")
                return ""

        # The journal records the text, so that a resumed task gets the same text without a fetch.
        text = await self._host.note("notification", fetch_notifications)
        return (text,) if text else ()

    async def _compact(self) -> None:
        """Shorten old turns if the conversation is too long, and record this in the journal."""
        before = tokens_of(self._earlier_turns, self._notation)
        if before <= _CONTEXT_TOKENS:
            return
        shorter = compact(self._earlier_turns, _CONTEXT_TOKENS, self._notation)
        after = tokens_of(shorter, self._notation)
        if after < before:
            self._earlier_turns = shorter
            message = f"about {before:,} tokens of earlier turns are {after:,} now"
            # note() calls the function only if the journal does not have this record yet.
            await self._host.note("compaction", functools.partial(_as_coroutine, message))

    async def _count_failures(self, turn: Turn) -> None:
        """Count consecutive answers of the model that neither hold a call nor end the task.

        Raise an error if there are more such answers than the retry limit allows.

        Raises:
            CodeGenerationError: If the limit is exceeded.
            LLMExecutionError: If the limit is exceeded and the last answer was truncated.
        """
        if turn.calls:
            self._failures = 0
            return
        self._failures += 1
        reason = _reason_of_failure(turn)
        # The first answer and each allowed retry may fail.
        allowed_failures = 1 + self._host.retry_count
        if self._failures > allowed_failures:
            error_type = LLMExecutionError if turn.is_cut else CodeGenerationError
            excerpt = quote_answer(turn.text or turn.thoughts)
            raise error_type(
                f"{self._failures} answers of the model were of no use; the last: {reason}; "
                f"{excerpt}"
            )
        await self._host.retrying(reason)


def _reason_of_failure(turn: Turn) -> str:
    """Return why a turn without calls brings the task no further."""
    if turn.is_cut:
        return "the answer broke off"
    if turn.notices:
        return turn.notices[0]
    if not turn.problems:
        return "the answer held neither text nor a call"
    match turn.problems[0]:
        case UnparsableCall(why=why):
            return f"a call could not be read: {why}"
        case InventedResults():
            return "it invented results"


def _is_cancellation_of_this_task(error: BaseException) -> bool:
    """Return True if an error cancels the current asyncio task, and not only an awaited task."""
    task = asyncio.current_task()
    is_cancelling = task is not None and task.cancelling() > 0
    return isinstance(error, asyncio.CancelledError) and is_cancelling


async def _as_coroutine(text: str) -> str:
    return text


_UNCLEAR_CONTINUATION_MESSAGE: Final = (
    "It is unclear where this text continues the answer that broke off: write the whole answer."
)
_EMPTY_ANSWER_MESSAGE: Final = "There was nothing in that answer. Call tools, or answer the task."
