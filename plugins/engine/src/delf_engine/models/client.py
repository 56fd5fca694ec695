"""``ModelClient``: asks models for a task, and counts and records every call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import field, replace
from functools import partial
from typing import Final

from delf.answers import (
    continuation_request,
    join_continuation,
    truncation_error,
    without_reasoning,
)
from delf.errors import BudgetExceededError, DelfError, LLMExecutionError
from delf.events import SAFE, ModelCalled, ModelFailed, ModelReplied, Warned
from delf.llm import LLMConfig
from delf.messages import (
    ModelDelta,
    ModelReply,
    ModelRequest,
    Price,
    Usage,
    assistant,
    system,
    user,
)
from delf.plugins.shapes import require_type
from delf.protocols.model import (
    Model,
    ModelSession,
    SupportsPrice,
)
from delf.protocols.strategy import OnDelta
from delf.records import dataclass
from delf_engine.journal.log import TaskLog
from delf_engine.journal.replay import Replay
from delf_engine.models.bounds import EndlessAnswerError, bounded, check_length
from delf_engine.models.drafts import Draft
from delf_engine.models.estimates import complete_usage
from delf_engine.models.money import Ledger
from delf_engine.models.pool import ModelPool
from delf_engine.redact import Redactor
from delf_engine.views.prompts import pack

# The maximum size of a prompt that is compressed on the event loop instead of in a thread.
_MAX_INLINE_BYTES: Final = 64 * 1024
# Event fields that need no redaction; the messages of a prompt are redacted before.
_SAFE_PROMPT: Final = SAFE | {"prompt"}
# The maximum number of continuations of an answer that reached its token limit.
_MAX_CONTINUATIONS: Final = 3
# The model, the address and the key to which a provider's limits apply.
_Account = tuple[str, str | None, str | None]
# The seconds for which a model's fallbacks are asked first after the model was unavailable.
_FALLBACK_SECONDS: Final = 60.0
# HTTP statuses which say that the model is unavailable to this key, at least for now.
_UNAVAILABLE: Final = frozenset({401, 402, 403, 404, 405, 407, 408, 409, 425, 429})
# The maximum number of continuations of an answer that broke off before its token limit.
_MAX_BREAKS: Final = 1


@dataclass(slots=True, kw_only=True)
class ModelClient:
    """Asks models on behalf of one task.

    Args:
        pool: The models.
        ledger: Counts tokens and money, and holds the budget.
        log: The log that records calls.
        system_prompt: The user's instructions, added to every call.
        stream: Take answers in pieces.
        on_delta: Receives pieces of the answers.
        redactor: Redacts requests.
        replay: The replay of a resumed task.
        keep_prompts: Whether the journal keeps prompts.
    """

    pool: ModelPool
    ledger: Ledger
    log: TaskLog
    system_prompt: str | None = None
    stream: bool = False
    on_delta: Callable[[ModelDelta], None] | None = None
    redactor: Redactor = field(default_factory=Redactor)
    replay: Replay = field(default_factory=Replay)
    keep_prompts: bool = False
    # Until these times, on the clock of ``time.monotonic()``, fallbacks are asked first.
    _unavailable_until: dict[_Account, float] = field(
        default_factory=dict[_Account, float], init=False
    )
    unexpected_failure: tuple[Exception, str] | None = field(default=None, init=False)
    """The latest model failure that is not a ``DelfError``, with the model's name."""

    async def ask(
        self,
        config: LLMConfig,
        request: ModelRequest,
        attempt: int = 1,
        *,
        on_delta: OnDelta | None = None,
        session: ModelSession | None = None,
        continues: bool = False,
        draft: Draft | None = None,
    ) -> ModelReply:
        """Ask a model once; the model's plugin itself retries failed requests.

        Reasoning is removed from the reply. If the answer is truncated,
        :attr:`~delf.messages.ModelReply.broken_by` of the reply has the reason. If the model is
        unavailable, its fallbacks are asked, unless the model has already sent a part of an answer.

        Args:
            config: The model.
            request: The request; with a session, only the new messages.
            attempt: The number of the strategy's attempt at a usable answer, from 1; recorded in
                the journal.
            on_delta: Receives the answer's pieces; a recorded answer comes as one piece.
            session: An open session to use instead of a separate request.
            continues: Whether the session already has the user's instructions.
            draft: Collects the answer's pieces. An answer that breaks off after its first piece is
                then returned with the ``finish_reason`` ``cut`` instead of raising.

        Raises:
            BudgetExceededError: If the call could exceed the budget; nothing is spent.
            DelfError: If the call failed after retries.
        """
        # A session's history is known only to its own model, so a fallback could not continue it.
        if session is not None:
            models = [self.pool.resolve_provider(config)]
        else:
            models = self._in_order_of_availability(config)
        streaming = _Streaming(on_delta=on_delta, session=session, continues=continues, draft=draft)
        reply, _ = await self._ask_in_order(models, request, attempt, streaming)
        return reply

    async def _ask_in_order(
        self,
        models: Iterable[LLMConfig],
        request: ModelRequest,
        attempt: int,
        streaming: _Streaming,
    ) -> tuple[ModelReply, LLMConfig | None]:
        """Ask the models in order until one is available.

        Returns:
            The answer and its model; in a resumed task, the recorded answer and None.
        """
        recorded_reply = self.replay.next_reply(request.purpose)
        if recorded_reply is not None:
            if streaming.on_delta is not None:
                _send_recorded(recorded_reply, streaming.on_delta)
            return without_reasoning(recorded_reply), None
        # A continued session got the user's instructions with its first request.
        request = self._prepare(request, instruct=not streaming.continues)
        remaining = deque(models)
        while True:
            current = remaining.popleft()
            price = await self._price(current)
            estimate = partial(self.ledger.estimate, current, request, price)
            try:
                async with self.ledger.reserved(estimate):
                    reply = await self._ask(current, request, attempt, streaming)
                    return without_reasoning(reply), current
            except LLMExecutionError as error:
                if not remaining or not _can_another_model_answer(error):
                    raise
                await self._fall_back(current, remaining[0], error)

    def _in_order_of_availability(self, config: LLMConfig) -> list[LLMConfig]:
        """Return a model and its fallbacks; models that were unavailable a moment ago come last."""
        now = time.monotonic()
        models = [replace(config, fallbacks=()), *config.fallbacks]
        models = [self.pool.resolve_provider(model) for model in models]

        def was_unavailable(model: LLMConfig) -> bool:
            return now < self._unavailable_until.get(_account_of(model), 0.0)

        return sorted(models, key=was_unavailable)  # False (available) comes before True

    async def _fall_back(
        self, failed_model: LLMConfig, next_model: LLMConfig, error: LLMExecutionError
    ) -> None:
        """Warn that the next model is asked, and for a while ask the failed model last of all."""
        # A prompt that is too long says nothing about the next, shorter prompt.
        if not error.too_long:
            self._unavailable_until[_account_of(failed_model)] = (
                time.monotonic() + _FALLBACK_SECONDS
            )
        next_name = next_model.model
        if next_name == failed_model.model:
            next_name = f"{next_name} with another key"
        message = f"{failed_model.model} is not available, so {next_name} is asked: {error.message}"
        await self.log.record(Warned, message=message)

    async def ask_whole(
        self, config: LLMConfig, request: ModelRequest, attempt: int = 1
    ) -> ModelReply:
        """Ask for a complete answer; a truncated answer is continued with further requests.

        If the request's settings limit the tokens, the answer may be truncated at this limit.

        Raises:
            BudgetExceededError: If a request could exceed the budget; the request is not sent.
            LLMExecutionError: If the answer stays incomplete; the message has an excerpt.
            DelfError: If the call failed after retries.
        """
        answer = _WholeAnswer(original_request=request, request=request)
        while True:
            writer = answer.writer  # the only model that can continue the answer so far, if any
            models = [writer] if writer else self._in_order_of_availability(config)
            try:
                reply, model = await self._ask_in_order(
                    models, answer.request, attempt, _Streaming()
                )
            except LLMExecutionError as error:
                # Without a writer, all models were asked, and the error is that of the last one.
                if writer is None or not answer.requests_left:
                    raise
                if not await self._fall_back_from(writer, config, error):
                    raise
                # Another model would not continue the text in the same way.
                answer.restart_with_other_model()
                continue
            complete_reply = answer.add(reply, model)
            if complete_reply is not None:
                return complete_reply

    async def _fall_back_from(
        self, writer: LLMConfig, config: LLMConfig, error: LLMExecutionError
    ) -> bool:
        """Fall back to another model if the writer of a partial answer is unavailable.

        Returns:
            False if the error is not about availability, or if there is no other model.
        """
        models = self._in_order_of_availability(config)
        other_models = [other for other in models if other != writer]
        if not other_models or not _can_another_model_answer(error):
            return False
        await self._fall_back(writer, other_models[0], error)
        return True

    def _prepare(self, request: ModelRequest, *, instruct: bool) -> ModelRequest:
        """Redact a request, and add the user's instructions if ``instruct`` is True."""
        messages = request.messages
        if self.system_prompt and instruct:
            instructions = system(self.system_prompt)
            if messages[0].role == "system":
                messages = (messages[0], instructions, *messages[1:])
            else:
                messages = (instructions, *messages)
        return replace(request, messages=self.redactor.redact_value(messages))

    async def _price(self, config: LLMConfig) -> Price | None:
        """Return a model's price; None if the price is unknown, or if no budget needs it."""
        if not self.ledger.is_limited:
            return None
        price = self.pool.find_own_price(config.model)
        source = self.pool.price_source(config)
        if price is None and source is not None:
            price = await self._published_price(source, config)
        return price

    async def _cost(
        self, config: LLMConfig, reply: ModelReply, counted_usage: Usage
    ) -> float | None:
        """Compute the cost of a reply in USD; None if the cost is unknown.

        The first of these applies:

        - the user's own price for the model, if any
        - the provider's published price, if any, when the server did not count all tokens
        - the cost that the reply states

        A price covers only tokens, so the reply's fees, such as for searches, are added; if the
        fees are unknown, the cost is unknown, too.

        Args:
            config: The model.
            reply: The reply.
            counted_usage: The tokens of the reply, estimated where the server did not count them.
        """
        price = self.pool.find_own_price(reply.model)
        # A server that counted no tokens cannot state a cost, or states 0.
        server_counted_all_tokens = counted_usage == reply.usage
        if price is None and not server_counted_all_tokens:
            source = self.pool.price_source(config)
            price = None if source is None else await source.price()
        if price is None:
            return reply.cost_usd
        if reply.fees_usd is None:
            return None
        return price.cost(counted_usage) + reply.fees_usd

    async def _published_price(self, source: SupportsPrice, config: LLMConfig) -> Price | None:
        """Return the provider's price for a model; None if the price is unknown.

        Raises:
            BudgetExceededError: If a budget is exhausted, or if the price is unknown and a budget
                does not allow models without a price.
        """
        # Check the budget first: finding the price may take a request to the provider, which is
        # useless if no budget is left.
        self.ledger.check()
        price = await source.price()
        if price is None:
            self.ledger.refuse_unpriced(config.model)
        return price

    async def _ask(
        self, config: LLMConfig, request: ModelRequest, attempt: int, streaming: _Streaming
    ) -> ModelReply:
        """Make one model call; record the request, the answer or failure, and the cost."""
        number = self.log.new_model_call_number()
        await self._record_request(config, request, attempt, number)
        # Start the clock after the journal's write, which must not count as the model's time.
        started = time.perf_counter()
        received_pieces: list[str] = []
        draft = streaming.draft
        try:
            reply = await self._answer(config, request, streaming, received_pieces)
        except DelfError as error:
            self.pool.add_load_failures_to(error)
            duration = _ms_since(started)
            if draft is not None:
                # A script from the draft may have made calls already. A resume needs the text that
                # started them.
                await draft.record()
            await self._record_failure(config, request, number, error, duration)
            cut_reply = _cut_reply(config, error, received_pieces, draft)
            if cut_reply is None:
                raise
            return cut_reply
        except Exception as error:
            name = self.pool.name_of(config)
            self.unexpected_failure = error, name
            error.add_note(name)  # the traceback does not name the model
            raise
        reply = self.redactor.redact_value(reply)
        cost = await self._add_cost(config, request, reply)
        if draft is not None:
            draft.discard()
        await self.log.record(
            ModelReplied,
            model=config.model,
            purpose=request.purpose,
            text=reply.text,
            usage=reply.usage,
            cost_usd=cost,
            duration_ms=_ms_since(started),
            calls=reply.calls,
            finish_reason=reply.finish_reason,
            number=number,
            reply_id=reply.reply_id,
        )
        return replace(reply, cost_usd=cost)

    async def _record_failure(
        self,
        config: LLMConfig,
        request: ModelRequest,
        number: int,
        error: DelfError,
        duration_ms: float,
    ) -> None:
        await self.log.record(
            ModelFailed,
            model=config.model,
            purpose=request.purpose,
            error=error.message,
            duration_ms=duration_ms,
            number=number,
        )

    async def _add_cost(
        self, config: LLMConfig, request: ModelRequest, reply: ModelReply
    ) -> float | None:
        """Add a reply's tokens and cost to the ledger, and return the cost; None if unknown."""
        cost = await self._cost(config, reply, complete_usage(request, reply))
        self.ledger.learn_cost(config, request, cost)
        # The estimated tokens are used only for the cost. Reports show the tokens that the server
        # counted.
        self.ledger.add(reply.usage, cost, self.log.task_id)
        return cost

    async def _record_request(
        self, config: LLMConfig, request: ModelRequest, attempt: int, number: int
    ) -> None:
        """Record the start of a model call, with the request's messages if prompts are kept."""
        shared_count = 0
        prompt = None
        if self.keep_prompts:
            # Only new messages are stored: else each turn would store the conversation again.
            before = self.log.last_prompts.get(request.purpose, ())
            self.log.last_prompts[request.purpose] = request.messages
            size = sum(len(message.text) for message in request.messages)
            if size <= _MAX_INLINE_BYTES:
                shared_count, prompt = pack(request.messages, before)
            else:
                shared_count, prompt = await asyncio.to_thread(pack, request.messages, before)
        await self.log.record(
            ModelCalled,
            unredacted_fields=_SAFE_PROMPT,
            model=config.model,
            purpose=request.purpose,
            attempt=attempt,
            number=number,
            same=shared_count,
            prompt=prompt,
            tools=tuple(tool.name for tool in request.tools),
            server_side=config.server_side_tools_for(request.purpose),
        )

    async def _answer(
        self,
        config: LLMConfig,
        request: ModelRequest,
        streaming: _Streaming,
        received_pieces: list[str],
    ) -> ModelReply:
        """Get the model's answer, passing its pieces on.

        Args:
            config: The model.
            request: The request.
            streaming: The session to use, and the receivers of the pieces.
            received_pieces: A list to which the answer's text, without tool calls, is appended.
        """
        # Answers to the model calls that a script makes are not shown to people.
        is_watched = self.stream and request.purpose != "call"
        if streaming.session is not None:
            pieces = streaming.session.send(request)
        else:
            model = self.pool.get(config)
            if streaming.on_delta is None and not is_watched:
                return await _complete(model, request, config)
            pieces = model.stream(request)
        receivers = _Receivers(
            strategy=streaming.on_delta,
            draft=streaming.draft,
            people=self.on_delta if is_watched else None,
            received_pieces=received_pieces,
        )
        final: ModelReply | None = None
        async with aclosing(bounded(pieces, config)) as stream:
            async for piece in stream:
                if not isinstance(piece, ModelDelta):
                    require_type(piece, ModelReply, f"the stream of the model {config.model!r}")
                    final = piece
                else:
                    receivers.dispatch(self.redactor.redact_value(piece))
        if final is None:
            raise DelfError("the model's stream ended without its answer")
        return final


@dataclass(frozen=True, slots=True, kw_only=True)
class _Streaming:
    """The options of a request whose answer a strategy reads piece by piece.

    The fields are parameters of :meth:`ModelClient.ask`.
    """

    on_delta: OnDelta | None = None
    session: ModelSession | None = None
    continues: bool = False
    draft: Draft | None = None


@dataclass(slots=True, kw_only=True)
class _Receivers:
    """The receivers of an answer's pieces.

    Args:
        strategy: The strategy's listener. Returns the pieces to show to people, or None to show
            them the text of the answer.
        draft: Collects the pieces that the strategy gets.
        people: Shows a piece to the people who watch; None if nobody does.
        received_pieces: Collects the answer's text, without the arguments of calls.
    """

    strategy: OnDelta | None
    draft: Draft | None
    people: Callable[[ModelDelta], None] | None
    received_pieces: list[str]

    def dispatch(self, delta: ModelDelta) -> None:
        """Pass a piece of the answer to all receivers."""
        chosen_deltas: Iterable[ModelDelta] | None = None
        # The arguments of a call arrive in pieces; the last piece has the whole call, too.
        completes_call = delta.whole is not None
        if self.strategy is not None and (delta.text or completes_call):
            # Added first, because the strategy may make a call at once, and the call journals the
            # draft before it starts.
            if self.draft is not None:
                self.draft.add(delta)
            chosen_deltas = self.strategy(delta)
        is_answer_text = bool(delta.text) and delta.call is None
        if is_answer_text:
            self.received_pieces.append(delta.text)
        if self.people is None:
            return
        if chosen_deltas is None:  # the strategy has not chosen: show the answer's text
            chosen_deltas = [delta] if is_answer_text else []
        for chosen_delta in chosen_deltas:
            self.people(chosen_delta)


@dataclass(slots=True, kw_only=True)
class _WholeAnswer:
    """An answer that is put together from the replies to several requests.

    Args:
        original_request: The request for the whole answer.
        request: The next request: for the whole answer, or for the rest.
        text: The text that the next reply continues; empty if the whole answer is requested.
        model: The model of the last reply; None if the reply was replayed from the journal.
        requests_left: The maximum number of requests after the next one.
    """

    original_request: ModelRequest
    request: ModelRequest
    text: str = ""
    model: LLMConfig | None = None
    requests_left: int = _MAX_CONTINUATIONS

    @property
    def writer(self) -> LLMConfig | None:
        """The model that wrote the text so far, because only this model can continue the text.

        None if there is no text yet, so that any model may write the answer.
        """
        return self.model if self.text else None

    def restart_with_other_model(self) -> None:
        """Request the whole answer again, because the writer of the text is unavailable."""
        self.request = self.original_request
        self.text = ""
        self.model = None
        self.requests_left -= 1

    def add(self, reply: ModelReply, model: LLMConfig | None) -> ModelReply | None:
        """Add a reply of a model; return the complete answer, or None to send the next request.

        Raises:
            LLMExecutionError: If the answer stays incomplete; the message has an excerpt.
        """
        # The answer so far; None if it is not clear where the reply continues the earlier text.
        joined_text = join_continuation(self.text, reply.text)
        answer = self._complete_answer(reply, joined_text)
        if answer is not None:
            return answer
        self.requests_left = _limit_requests(self.requests_left, reply)
        if not self.requests_left:
            raise truncation_error(replace(reply, text=self.text + reply.text))
        self.requests_left -= 1
        self.model = model
        is_connection_broken = reply.broken_by == "break"
        if not is_connection_broken:  # after a broken connection, the same request is sent again
            self._continue_or_restart(reply, joined_text)
        return None

    def _complete_answer(self, reply: ModelReply, joined_text: str | None) -> ModelReply | None:
        """Return the reply with the whole answer; None if a further request has to complete it.

        An answer that was truncated at the ``max_tokens`` of the original request counts as whole.

        Args:
            reply: The last reply.
            joined_text: The answer so far; None if it is not clear where the reply continues the
                earlier text.
        """
        if reply.broken_by == "length" and "max_tokens" in self.original_request.settings:
            return reply  # truncated as requested
        if reply.broken_by is not None:
            return None
        if joined_text is not None:
            return replace(reply, text=joined_text)
        # Complete calls are useful without the text of the earlier replies.
        return reply if reply.calls else None

    def _continue_or_restart(self, reply: ModelReply, joined_text: str | None) -> None:
        """Request the rest after a truncated reply, or the whole answer again.

        Args:
            reply: The truncated reply.
            joined_text: The answer so far; None if it is not clear where the reply continues the
                earlier text.
        """
        is_call_truncated = bool(reply.calls)  # a truncated reply ends in its last call, if any
        has_text = joined_text is not None and joined_text.strip() != ""
        can_continue = has_text and not is_call_truncated
        # A model that has to restart also sees the incomplete answer.
        text = joined_text or self.text
        self.request = _continuation_of(
            self.original_request, reply, text, must_restart=not can_continue
        )
        self.text = text if can_continue else ""


def _account_of(model: LLMConfig) -> _Account:
    return model.model, model.base_url, model.api_key


def _can_another_model_answer(error: LLMExecutionError) -> bool:
    status = error.status
    # Without a status, the server did not answer. Another model may also accept a longer prompt.
    if status is None or error.too_long:
        return True
    return status >= 500 or status in _UNAVAILABLE


async def _complete(model: Model, request: ModelRequest, config: LLMConfig) -> ModelReply:
    """Get the model's answer in one piece."""
    reply = await model.complete(request)
    require_type(reply, ModelReply, f"the model {config.model!r}")
    length_of_calls = sum(len(call.arguments) for call in reply.calls)
    check_length(len(reply.text) + length_of_calls, config)
    return reply


def _limit_requests(requests_left: int, reply: ModelReply) -> int:
    """Return how many further requests may continue a truncated reply.

    The number depends on the cause: a refused answer is not continued.
    """
    match reply.broken_by:
        case "filter" | "refusal":
            return 0
        case "break":
            # The connection broke during the reply; repeated breaks mean an outage.
            return min(requests_left, _MAX_BREAKS)
        case _:
            return requests_left


def _continuation_of(
    request: ModelRequest, reply: ModelReply, text: str, *, must_restart: bool
) -> ModelRequest:
    """Build the request that lets the model continue an answer which reached its token limit.

    Args:
        request: The original request.
        reply: The truncated reply.
        text: The text of the answer so far.
        must_restart: Whether the model has to write the answer again from its start, usually
            because the reply was truncated inside a tool call.
    """
    messages = list(request.messages)
    if text.strip():
        messages.append(assistant(text))
    messages.append(user(continuation_request(must_restart=must_restart)))
    settings = dict(request.settings)
    if reply.max_tokens is not None:
        settings["max_tokens"] = 2 * reply.max_tokens
    return replace(request, messages=tuple(messages), settings=settings)


def _cut_reply(
    config: LLMConfig, error: DelfError, received_pieces: Sequence[str], draft: Draft | None
) -> ModelReply | None:
    """Return the received part of an answer that broke off; None if the answer has to fail."""
    if draft is not None and not draft.is_empty:
        # A script from the draft may have made calls already, so even an answer that exceeded a
        # limit must not fail.
        return draft.reply
    exceeds_limit = isinstance(error, BudgetExceededError | EndlessAnswerError)
    if not received_pieces or exceeds_limit:
        return None
    return ModelReply(text="".join(received_pieces), model=config.model, finish_reason="cut")


def _send_recorded(reply: ModelReply, on_delta: OnDelta) -> None:
    """Pass a recorded answer to a listener: the whole text as one piece, and each call as one."""
    if reply.text:
        on_delta(ModelDelta(reply.text))
    for number, call in enumerate(reply.calls):
        on_delta(ModelDelta(call.arguments, call=number, whole=call))


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
