"""Duties of every model."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

import pytest

from delf.errors import DelfError
from delf.messages import (
    FilePart,
    ImagePart,
    ModelDelta,
    ModelReply,
    ModelRequest,
    ModelTool,
    Price,
    ToolCall,
    ToolResult,
    assistant,
    results,
    system,
    user,
)
from delf.protocols.model import Model, SupportsPrice, SupportsTools
from delf_devkit.testing.contracts.base import (
    LOOP_ITERATIONS,
    Contract,
    cancel_after_iterations,
    chained_exceptions,
    fail_without,
    needs,
)
from delf_devkit.testing.contracts.leaks import Secrets, captured_logs

_CONCURRENT = 4
_MESSAGES = 40
_ROUNDED = 0.05
_MARK = "marmalade-7741"
_PIXEL = b"\x89PNG\r\n\x1a\nmarmalade-7741"
_IMAGE = ImagePart(_PIXEL, "image/png")
_OTHER = ImagePart(_PIXEL + b"-other", "image/png")
_SEEN = (user("What is it?", [_IMAGE]), assistant("A jam."), user("Are you sure?"))
_WITH_IMAGES = {
    "in the last message": ModelRequest(messages=(user("What is it?", [_IMAGE]),)),
    "in one message": ModelRequest(messages=(user("What are they?", [_IMAGE, _OTHER]),)),
    "in an earlier message": ModelRequest(messages=_SEEN),
}
_ADD = ModelTool(
    name="add",
    description="Adds two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
_SUM = ModelRequest(messages=(user("What is 1 + 2?"),), tools=(_ADD,), must_call=True)


class ModelContract(Contract):
    """Tests for a model; needs a fixture ``model`` that answers any number of requests.

    Each of these flags needs a fixture:

    - ``fails``: ``failing_model``, whose service refuses permanently, for example because of its
      key.
    - ``slow``: ``slow_model``, whose answers take a second or more.
    - ``sends``: ``sent_texts``, a function that returns the text of each request sent so far.
    - ``calls``: ``calling_model``, which answers each request with one call of the tool ``add``.
    - ``echoes``: ``echo_model``, whose service answers with the words of the last message.
    - ``cuts``: ``cut_model``, whose service stops at the token limit.

    Set ``counts_tokens = False`` if the service does not report the tokens of its answers.
    ``secrets`` are the keys of ``model`` and ``failing_model``, which must never be shown. With
    ``images = True`` the model sends images, which ``sent_texts`` shows in base64; otherwise the
    model must refuse a request with an image. ``cost`` is the cost of an answer of ``model`` in
    USD, worked out by hand; set it if the model itself reports costs and has no ``price``.
    """

    fails: ClassVar[bool] = True
    slow: ClassVar[bool] = False
    counts_tokens: ClassVar[bool] = True
    calls: ClassVar[bool] = False
    sends: ClassVar[bool] = True
    echoes: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    images: ClassVar[bool] = False
    cost: ClassVar[float | None] = None

    @pytest.fixture
    def model(self) -> Model:
        """The model under test."""
        fail_without(self, "a fixture `model`")

    @pytest.fixture
    def failing_model(self) -> Model:
        """A model like the one under test, whose service refuses requests."""
        fail_without(self, "a fixture `failing_model`, or fails = False")

    @pytest.fixture
    def slow_model(self) -> Model:
        """A model like the one under test, whose service is slow."""
        fail_without(self, "a fixture `slow_model`, or slow = False")

    @pytest.fixture
    def sent_texts(self) -> Callable[[], Sequence[str]]:
        """A function that returns the text of each request sent so far."""
        fail_without(self, "a fixture `sent_texts`, or sends = False")

    @pytest.fixture
    def calling_model(self) -> Model:
        """A model like the one under test, which answers with a call."""
        fail_without(self, "a fixture `calling_model`, or calls = False")

    @pytest.fixture
    def echo_model(self) -> Model:
        """A model like the one under test, which repeats the last message."""
        fail_without(self, "a fixture `echo_model`, or echoes = False")

    @pytest.fixture
    def cut_model(self) -> Model:
        """A model like the one under test, whose answers are cut at the token limit."""
        fail_without(self, "a fixture `cut_model`, or cuts = False")

    @pytest.fixture
    def question(self) -> ModelRequest:
        """A request with a short question."""
        return ModelRequest(messages=(system("Be brief."), user("Say hello, grüß Gott 🦊.")))

    async def test_model_answers_without_changing_the_request(
        self, model: Any, question: ModelRequest
    ) -> None:
        before = asdict(question)
        self._check_reply(await model.complete(question))
        assert asdict(question) == before

    async def test_pieces_of_a_stream_join_to_its_reply(
        self, model: Any, question: ModelRequest
    ) -> None:
        *deltas, reply = await _collect(model.stream(question))
        assert all(isinstance(piece, ModelDelta) for piece in deltas)
        assert isinstance(reply, ModelReply), "a stream ends with the whole reply"
        self._check_reply(reply)
        texts = (piece.text for piece in deltas if piece.call is None)
        assert "".join(texts) == reply.text

    async def test_stream_counts_the_same_input(self, model: Any, question: ModelRequest) -> None:
        *_, reply = await _collect(model.stream(question))
        complete_reply = await model.complete(question)
        counts = [each.usage.input_tokens for each in (complete_reply, reply)]
        assert counts[0] == counts[1], (
            f"the same request has {counts[0]} tokens, and {counts[1]} as a stream: count each "
            "piece once; a budget would be used up too early or too late"
        )

    async def test_stream_can_be_closed_early(self, model: Any, question: ModelRequest) -> None:
        stream = model.stream(question)
        await anext(stream)
        await stream.aclose()
        self._check_reply(await model.complete(question))

    async def test_model_keeps_nothing_between_requests(
        self, model: Any, question: ModelRequest
    ) -> None:
        """Check that a model keeps nothing between requests, because many users share it."""
        await model.complete(_request_about(_MARK))
        replies = [await model.complete(question) for _ in range(2)]
        assert _MARK not in replies[-1].text, "an answer holds what another request asked"
        # The service counts all sent tokens: more tokens mean that earlier messages were sent.
        counts = [reply.usage.input_tokens for reply in replies]
        assert counts[0] == counts[1], (
            f"the same request has {counts[0]}, then {counts[1]} tokens: messages of earlier ones "
            "are sent along; one user's data would be in another's prompt"
        )

    @needs("sends")
    async def test_request_contains_nothing_of_another_request(
        self, model: Any, question: ModelRequest, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        await model.complete(_request_about(_MARK))
        assert _MARK in sent_texts()[-1], "`sent_texts` does not give what the service was sent"
        await model.complete(question)
        assert _MARK not in sent_texts()[-1], "one user's words are in another's request"

    @needs("sends")
    async def test_concurrent_requests_are_independent(
        self, model: Any, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        marks = [f"{_MARK}-{number}-x" for number in range(_CONCURRENT)]

        def marks_in(text: str) -> list[str]:
            return [mark for mark in marks if mark in text]

        await asyncio.gather(*(model.complete(_request_about(mark)) for mark in marks))
        streams = (_collect(model.stream(_request_about(mark))) for mark in marks)
        await asyncio.gather(*streams)
        marks_by_request = sorted(marks_in(text) for text in sent_texts())
        # Each mark was alone in two requests, one by complete() and one by stream().
        assert marks_by_request == sorted([mark] for mark in [*marks, *marks]), (
            "requests that overlap are mixed up: keep a request in variables, not in `self`"
        )

    @needs("sends")
    async def test_request_contains_every_message(
        self, model: Any, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        words = [f"{_MARK}-{number}-x" for number in range(_MESSAGES)]
        turns = [
            assistant(word) if number % 2 else user(word) for number, word in enumerate(words[1:])
        ]
        messages = (system(words[0]), *turns)
        before = len(sent_texts())
        await model.complete(ModelRequest(messages=messages))
        assert len(sent_texts()) > before, (
            "nothing was sent: `sent_texts` has a text for each request"
        )
        missing_words = [word for word in words if word not in sent_texts()[-1]]
        assert not missing_words, (
            f"of {_MESSAGES} messages {len(missing_words)} did not arrive, first that of the role "
            f"{messages[words.index(missing_words[0])].role!r}: the model works without its "
            "instructions"
        )
        places = [sent_texts()[-1].index(word) for word in words[1:]]
        assert places == sorted(places), (
            "the messages of user and assistant arrive in another order than they were given"
        )

    @needs("sends")
    async def test_request_contains_every_message_unchanged(
        self, model: Any, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        again = f"{_MARK}-again"
        spaced = f"    if {_MARK}:    pass  "
        end = f"{_MARK}-end-x"
        messages = (system("Be brief."), user(again), assistant("Yes."), user(again))
        await model.complete(ModelRequest(messages=messages))
        assert sent_texts()[-1].count(again) >= 2, (
            "of two equal messages one did not arrive: the model sees another conversation"
        )
        await model.complete(_request_about(spaced))
        assert spaced in sent_texts()[-1], (
            "the blanks of a message are not as they were: scripts in it lose their indentation"
        )
        try:
            await model.complete(_request_about(f"{'word ' * 10_000} {end}"))
        except DelfError:
            return  # the model refuses the message as too long
        assert end in sent_texts()[-1], (
            "a message of 50,000 characters was cut: the model would answer without the rest; "
            "send it whole, or raise LLMExecutionError"
        )

    @needs("sends")
    async def test_every_system_message_is_sent_or_refused(
        self, model: Any, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        words = [f"{_MARK}-{number}-x" for number in range(2)]
        messages = (*map(system, words), user("Say hello."))
        try:
            await model.complete(ModelRequest(messages=messages))
        except DelfError:
            return
        assert all(word in sent_texts()[-1] for word in words), (
            "of two system messages one did not arrive: the model works without a part of its "
            "instructions; send both, joined if need be"
        )

    @needs("sends")
    async def test_request_keeps_message_roles(
        self, model: Any, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        beginning = (system("Be brief."), user("one"))
        texts: list[str] = []
        for second in (assistant("two"), user("two")):
            await model.complete(ModelRequest(messages=(*beginning, second, user("three"))))
            texts.append(sent_texts()[-1])
        assert texts[0] != texts[1], (
            "the role of a message is lost: an answer of the model is sent as if the user had "
            "written the answer"
        )

    @needs("sends", "calls")
    async def test_request_contains_tool_results(
        self, model: Any, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        assistant_message = assistant(
            "", [ToolCall(id="c1", name="add", arguments='{"a": 1, "b": 2}')]
        )
        result = results([ToolResult(id="c1", name="add", text=_MARK)])
        messages = (system("Be brief."), user("Add."), assistant_message, result)
        await model.complete(ModelRequest(messages=messages, tools=(_ADD,)))
        assert _MARK in sent_texts()[-1], (
            "the result of a tool did not arrive: the model would guess it"
        )
        assert _ADD.description in sent_texts()[-1], "the description of a tool did not arrive"

    async def test_image_is_sent_or_refused(
        self, model: Any, request: pytest.FixtureRequest
    ) -> None:
        for place, question in _WITH_IMAGES.items():
            if not self.images:  # the model does not support images
                await self._fail_unless_refused(model, question, f"an image {place}")
                continue
            await model.complete(question)
            if not self.sends:  # the suite has no fixture `sent_texts`
                continue
            sent_texts = request.getfixturevalue("sent_texts")
            pictures = {b64encode(part.data).decode() for part in _images_of(question)}
            missing_pictures = [picture for picture in pictures if picture not in sent_texts()[-1]]
            assert not missing_pictures, (
                f"of {len(pictures)} images {place} {len(missing_pictures)} did not arrive: the "
                "model answers about a picture that it never saw"
            )

    async def _fail_unless_refused(self, model: Any, asked: ModelRequest, what: str) -> None:
        """Fail unless the model refuses a request.

        Args:
            model: The model.
            asked: The request.
            what: The part of the request that the model cannot send, for the message.
        """
        try:
            await model.complete(asked)
        except DelfError as error:
            assert error.message.strip()  # noqa: PT017
            return
        pytest.fail(
            f"a request with {what} was answered, although {what} was not sent: raise "
            f"LLMExecutionError, or send {what} (for images, set images = True)"
        )

    @needs("sends")
    async def test_file_is_sent_or_refused(
        self, model: Any, sent_texts: Callable[[], Sequence[str]]
    ) -> None:
        words = f"{_MARK}-in-a-file"
        file = FilePart(name="notes.txt", data=words.encode(), media_type="text/plain")
        try:
            await model.complete(ModelRequest(messages=(user("Sum it up.", [file]),)))
        except DelfError as error:
            assert error.message.strip()  # noqa: PT017
            return
        forms = (words, b64encode(words.encode()).decode(), words.encode().hex())
        assert any(form in sent_texts()[-1] for form in forms), (
            "a request with a file was answered, and the file was not sent: the model answers "
            "about what it never read; raise LLMExecutionError, or send it"
        )

    @needs("echoes")
    async def test_answer_text_is_kept(self, echo_model: Any) -> None:
        odd = "Grüße 🦊 łódź:    x  =  1"
        reply = await echo_model.complete(_request_about(odd))
        assert odd in reply.text, (
            f"the service answers with {odd!r}, and the model gives {reply.text!r}: decode UTF-8 "
            "as a whole, and keep blanks, which scripts in an answer need"
        )

    @needs("echoes")
    async def test_concurrent_answers_are_independent(self, echo_model: Any) -> None:
        marks = [f"{_MARK}-{number}-x" for number in range(_CONCURRENT)]
        whole = await asyncio.gather(*(echo_model.complete(_request_about(mark)) for mark in marks))
        streams = await asyncio.gather(
            *(_collect(echo_model.stream(_request_about(mark))) for mark in marks)
        )
        streamed_replies = [stream[-1] for stream in streams]  # the whole reply follows the pieces
        for replies in (whole, streamed_replies):
            for mark, reply in zip(marks, replies, strict=True):
                assert mark in reply.text, (
                    f"the request about {mark} was answered {reply.text!r}: one user gets the "
                    "answer of another; keep an answer in variables, not in `self`"
                )
        for *pieces, reply in streams:
            text = "".join(piece.text for piece in pieces if piece.call is None)
            assert text == reply.text, (
                f"a stream sent {text!r}, and its reply is {reply.text!r}: keep the pieces in "
                "variables, not in `self`"
            )

    @needs("cuts")
    async def test_truncated_answer_is_marked(self, cut_model: Any, question: ModelRequest) -> None:
        streamed = (await _collect(cut_model.stream(question)))[-1]
        for reply in (await cut_model.complete(question), streamed):
            assert reply.broken_by is not None, (
                f"a truncated answer has the finish_reason {reply.finish_reason!r}: set 'length', "
                "or half a script is run as if it were complete"
            )

    async def test_cost_follows_the_price(self, model: Any, question: ModelRequest) -> None:
        any_model: Any = model
        price = await any_model.price() if isinstance(model, SupportsPrice) else None
        streamed = (await _collect(any_model.stream(question)))[-1]
        complete_reply = await any_model.complete(question)
        assert (complete_reply.cost_usd is None) == (streamed.cost_usd is None), (
            f"an answer costs {complete_reply.cost_usd} USD, and {streamed.cost_usd} as a stream: "
            "a budget would count one kind alone"
        )
        if price is not None and min(price.input, price.output) < 0:
            return  # test_model_price_is_valid reports a negative price
        for reply in (complete_reply, streamed):
            if reply.cost_usd:
                self._check_cost(reply, reply.cost_usd, price)
            elif reply.cost_usd == 0:
                _check_free_reply(reply, price)

    def _check_cost(self, reply: ModelReply, cost: float, price: Price | None) -> None:
        """Check the cost of a reply that is not free."""
        if price is None:
            expected_cost = self.cost
        else:
            expected_cost = price.cost(reply.usage) + (reply.fees_usd or 0)
        assert expected_cost is not None, (
            f"an answer costs {cost} USD, and the suite cannot check this cost: give "
            "the model a `price`, or set `cost` to the expected cost"
        )
        assert abs(cost - expected_cost) <= max(expected_cost * _ROUNDED, 1e-9), (
            f"an answer of {reply.usage.text} costs {cost} USD, and by its price "
            f"{expected_cost:g}: prices are in USD for a million tokens, and cached tokens "
            "have a price of their own"
        )

    async def test_stream_can_be_cancelled_at_any_point(
        self, model: Any, question: ModelRequest
    ) -> None:
        for iterations in LOOP_ITERATIONS:
            await cancel_after_iterations(lambda: model.complete(question), iterations)
            await cancel_after_iterations(lambda: _collect(model.stream(question)), iterations)
        self._check_reply(await model.complete(question))

    async def test_model_serves_concurrent_requests(
        self, model: Any, question: ModelRequest
    ) -> None:
        replies = await asyncio.gather(*(model.complete(question) for _ in range(_CONCURRENT)))
        for reply in replies:
            self._check_reply(reply)
        requests = [_request_about("word " * (20 * number + 1)) for number in range(_CONCURRENT)]
        alone = [await model.complete(request) for request in requests]
        together = await asyncio.gather(*(model.complete(request) for request in requests))
        tokens_alone = [reply.usage.input_tokens for reply in alone]
        tokens_together = [reply.usage.input_tokens for reply in together]
        assert tokens_alone == tokens_together, (
            f"four requests have {tokens_alone} tokens alone and {tokens_together} at one time: "
            "they are mixed up; keep a request in variables, not in `self`"
        )

    async def test_methods_do_not_block_the_event_loop(
        self, model: Any, question: ModelRequest
    ) -> None:
        await self.check_loop_stays_free(lambda: model.complete(question))

    async def test_close_is_idempotent_and_works_unused(self, model: Any) -> None:
        for _ in range(2):
            await model.aclose()

    async def test_model_price_is_valid(self, model: Any) -> None:
        """Check that the model's price, if known, is not negative."""
        if not isinstance(model, SupportsPrice):
            return
        price = await model.price()
        assert price is None or min(price.input, price.cached_input, price.output) >= 0

    async def test_model_never_shows_its_key(self, model: Any, question: ModelRequest) -> None:
        with captured_logs() as lines:
            reply = await model.complete(question)
            await model.aclose()
        for text in (f"{model!r} {model!s}", repr(reply), *lines):
            Secrets(self.secrets).check(text, "a key is in a repr or an answer, or it is logged")

    @needs("fails")
    async def test_models_do_not_share_a_key(
        self, model: Any, failing_model: Any, question: ModelRequest
    ) -> None:
        await model.complete(question)
        try:
            await failing_model.complete(question)
        except DelfError:
            pass
        else:
            pytest.fail(
                "a model with an invalid key returns an answer, once another model was asked: the "
                "two models share a client or an answer; keep both in `self`"
            )
        self._check_reply(await model.complete(question))

    async def test_use_leaves_the_process_unchanged(self, model: Any) -> None:
        async def use() -> None:
            await model.complete(_request_about(_MARK))
            await _collect(model.stream(_request_about(_MARK)))

        # No class and no module may contain these texts after the use.
        words_of_prompt_and_keys = (_MARK, *self.secrets)
        await self.check_nothing_remains(model, use, forbidden_texts=words_of_prompt_and_keys)

    @needs("fails")
    async def test_refusal_raises_a_delf_error(
        self, failing_model: Any, question: ModelRequest
    ) -> None:
        with pytest.raises(DelfError) as complete_error:
            await failing_model.complete(question)
        with pytest.raises(DelfError) as stream_error:
            await _collect(failing_model.stream(question))
        await failing_model.aclose()
        for caught in (complete_error, stream_error):
            for error in chained_exceptions(caught.value):
                shown = f"{error!s} {error!r} {getattr(error, 'hint', '')}"
                Secrets(self.secrets).check(shown, "a key is shown")
        assert complete_error.value.message.strip()

    @needs("slow")
    async def test_complete_can_be_cancelled(self, slow_model: Any, question: ModelRequest) -> None:
        work = asyncio.ensure_future(slow_model.complete(question))
        await asyncio.wait({work}, timeout=0.1)
        assert not work.done(), "slow_model answered at once"
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        again = asyncio.ensure_future(slow_model.complete(question))
        await asyncio.wait({again}, timeout=0.1)
        error = again.exception() if again.done() else None
        again.cancel()
        await asyncio.wait({again})
        assert error is None, f"after a request that was cancelled, the next one fails: {error!r}"

    @needs("calls")
    async def test_model_calls_an_offered_tool(self, calling_model: Any) -> None:
        assert _takes_tools(calling_model), "its property takes_tools says no"
        [call] = (await calling_model.complete(_SUM)).calls
        assert call.name == "add"
        assert call.id
        assert isinstance(json.loads(call.arguments), dict)

    @needs("calls")
    async def test_stream_calls_a_tool_again_after_a_result(self, calling_model: Any) -> None:
        reply = await calling_model.complete(_SUM)
        [call] = reply.calls
        tool_results = results([ToolResult(id=call.id, name=call.name, text="3")])
        messages = (*_SUM.messages, assistant(reply.text, reply.calls), tool_results)
        # ``must_call`` of the request is still true.
        *deltas, streamed = await _collect(calling_model.stream(replace(_SUM, messages=messages)))
        pieces = [piece.text for piece in deltas if piece.call == 0]  # of the reply's first call
        assert "".join(pieces) == streamed.calls[0].arguments
        assert streamed.calls[0].name == "add"

    def _check_reply(self, reply: Any) -> None:
        """Fail unless a reply is complete and its usage plausible."""
        assert isinstance(reply, ModelReply)
        assert isinstance(reply.text, str)
        assert reply.text.strip(), "the answer is empty"
        assert reply.model.strip()
        assert reply.cost_usd is None or reply.cost_usd >= 0
        usage = reply.usage
        assert 0 <= usage.cached_tokens <= usage.input_tokens
        assert usage.output_tokens >= 0
        if self.counts_tokens:
            assert usage.input_tokens > 0
            assert usage.output_tokens > 0


def _check_free_reply(reply: ModelReply, price: Price | None) -> None:
    """Fail if a reply costs nothing although its tokens have a cost by the model's price."""
    expected_cost = 0.0 if price is None else price.cost(reply.usage)
    assert not expected_cost, (
        f"an answer of {reply.usage.text} costs nothing, and by its price {expected_cost:g} USD: "
        "a budget would never be used up; return None if the cost is unknown"
    )


def _request_about(word: str) -> ModelRequest:
    return ModelRequest(messages=(system("Be brief."), user(f"What is a {word}?")))


def _images_of(request: ModelRequest) -> list[ImagePart]:
    parts = [part for message in request.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ImagePart)]


def _takes_tools(model: Model) -> bool:
    return isinstance(model, SupportsTools) and model.takes_tools


async def _collect(stream: Any) -> list[Any]:
    return [piece async for piece in stream]
