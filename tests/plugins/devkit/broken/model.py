"""Models that break one thing each."""

import asyncio
import logging
import os
import socket
import time
from base64 import b64encode
from dataclasses import replace

import pytest
from planting import planting

from delf.errors import LLMExecutionError
from delf.messages import FilePart, ModelReply, Price, ToolCall, Usage
from delf.testing import ModelContract, ScriptedModel


def says(answer="Hello, grüß Gott."):
    return lambda kind: kind(default=answer)


class Suite(ModelContract):
    seconds = 0.5
    secrets = ("sk-secret",)
    kind = ScriptedModel
    failure = LLMExecutionError("no")
    slow = True
    calls = True
    echoes = True
    cuts = True
    images = True
    sends = True

    @pytest.fixture
    def model(self):
        return self.kind(default="Hello, grüß Gott.")

    @pytest.fixture
    def sent_texts(self, model):
        def texts():
            return [self.as_sent(request) for request in model.requests]

        return texts

    def as_sent(self, request):
        """Return the text of a request as a service would receive it."""
        sent = [(message.role, [*map(part, message.parts)]) for message in request.messages]
        return repr([*sent, *(tool.description for tool in request.tools)])

    @pytest.fixture
    def echo_model(self):
        return self.kind(default=lambda request: request.messages[-1].text)

    @pytest.fixture
    def cut_model(self):
        return self.kind(default=ModelReply(text="Hel", model="m", finish_reason="length"))

    @pytest.fixture
    def calling_model(self):
        call = ToolCall(id="1", name="add", arguments='{"a": 1, "b": 2}')
        return self.kind(default=ModelReply(text="", model="m", calls=(call,)))

    @pytest.fixture
    def failing_model(self):
        return self.kind(default=lambda _: self.failure)

    @pytest.fixture
    def slow_model(self):
        return self.kind(default=lambda _: asyncio.Event().wait())


def part(content):
    data = getattr(content, "data", None)
    return getattr(content, "text", content) if data is None else b64encode(data).decode()


breaks = planting(Suite)


class TestGood(Suite):
    pass


@breaks("test_methods_do_not_block_the_event_loop")
class TestHoldsTheLoop(ScriptedModel):
    async def complete(self, request):
        time.sleep(0.3)
        return await super().complete(request)


@breaks("test_model_never_shows_its_key")
class TestLogsItsKey(ScriptedModel):
    async def complete(self, request):
        logging.getLogger("vendor").info("headers %s", {"x-key": "sk-secret"})
        return await super().complete(request)


@breaks("test_model_answers_without_changing_the_request", "test_model_serves_concurrent_requests")
class TestCountsNothing(ScriptedModel):
    async def complete(self, request):
        return replace(await super().complete(request), usage=Usage())


@breaks("test_model_calls_an_offered_tool")
class TestForgetsItsCalls(ScriptedModel):
    async def complete(self, request):
        return replace(await super().complete(request), calls=())


@breaks("test_answer_text_is_kept", says="keep blanks")
class TestSqueezesAnswers(ScriptedModel):
    async def complete(self, request):
        reply = await super().complete(request)
        return replace(reply, text=" ".join(reply.text.split()))


@breaks("test_stream_calls_a_tool_again_after_a_result")
class TestForgetsItsCallsInStreams(ScriptedModel):
    async def stream(self, request):
        async for piece in super().stream(request):
            if isinstance(piece, ModelReply) or piece.call is None:
                yield piece


@breaks("test_model_price_is_valid")
class TestPaysForBeingAsked(ScriptedModel):
    async def price(self):
        return Price(input=-1.0, output=1.0, cached_input=0.0)


@breaks("test_pieces_of_a_stream_join_to_its_reply")
class TestStreamsNoWhole(ScriptedModel):
    async def stream(self, request):
        async for piece in super().stream(request):
            if not isinstance(piece, ModelReply):
                yield piece


@breaks("test_stream_can_be_closed_early")
class TestStreamsByHand(ScriptedModel):
    def stream(self, request):
        class Pieces:
            def __aiter__(self):
                return self

            async def __anext__(self):
                raise StopAsyncIteration

        return Pieces()


@breaks("test_model_answers_without_changing_the_request")
class TestWritesIntoTheRequest(ScriptedModel):
    async def complete(self, request):
        object.__setattr__(request, "messages", request.messages[1:])
        return await super().complete(request)


@breaks("test_close_is_idempotent_and_works_unused")
class TestClosesOnce(ScriptedModel):
    async def aclose(self):
        assert not self.closed
        self.closed += 1


@breaks("test_model_never_shows_its_key")
class TestShowsItsKey(ScriptedModel):
    def __repr__(self):
        return "Model('sk-secret')"


class TestLetsVendorErrorsThrough(Suite):
    breaks = ("test_refusal_raises_a_delf_error",)
    failure = ConnectionRefusedError("no")


@breaks("test_refusal_raises_a_delf_error")
class TestShowsItsKeyInErrors(ScriptedModel):
    async def complete(self, request):
        try:
            return await super().complete(request)
        except LLMExecutionError as error:
            raise LLMExecutionError("refused") from ValueError(f"key sk-secret: {error}")


@breaks("test_complete_can_be_cancelled")
class TestCannotBeCancelled(ScriptedModel):
    async def complete(self, request):
        work = asyncio.ensure_future(super().complete(request))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            return await super().complete(request)


class Chat(ScriptedModel):
    """A model that sends the whole conversation to its service with each request."""

    def __init__(self, **options):
        super().__init__(**options)
        self.message = []

    async def complete(self, request):
        self.message.append(request.messages[-1].text)
        reply = await super().complete(request)
        usage = Usage(input_tokens=10 * len(self.message), output_tokens=3)
        return replace(reply, usage=usage)


class TestSaysEverythingAgain(Suite):
    breaks = ("test_model_keeps_nothing_between_requests",)
    says = "messages of earlier ones are sent along"
    kind = Chat


class TestSendsWhatAnotherAsked(Suite):
    breaks = ("test_request_contains_nothing_of_another_request",)
    says = "one user's words are in another's request"

    @pytest.fixture
    def sent_texts(self, model):
        return lambda: ["".join(model.prompts)]


class TestMixesUpRequests(Suite):
    breaks = ("test_concurrent_requests_are_independent",)
    says = "not in `self`"

    class kind(ScriptedModel):
        async def complete(self, request):
            self.request = request
            await asyncio.sleep(0)
            return await super().complete(self.request)


@breaks("test_model_serves_concurrent_requests", says="mixed up")
class TestCountsTheTokensOfAnother(ScriptedModel):
    async def complete(self, request):
        self.size = len(request.messages[-1].text)
        await asyncio.sleep(0)
        reply = await super().complete(request)
        return replace(reply, usage=Usage(input_tokens=self.size, output_tokens=3))


@breaks("test_stream_can_be_cancelled_at_any_point", says="has not ended")
class TestKeepsItsLockWhenCancelled(ScriptedModel):
    def __init__(self, **options):
        super().__init__(**options)
        self.turn = asyncio.Lock()

    async def complete(self, request):
        await self.turn.acquire()
        await asyncio.sleep(0)
        reply = await super().complete(request)
        self.turn.release()
        return reply


@breaks("test_complete_can_be_cancelled", says="the next one fails")
class TestIsBrokenByACancelledRequest(ScriptedModel):
    session = True

    async def complete(self, request):
        if not self.session:
            raise LLMExecutionError("the session is closed")
        try:
            return await super().complete(request)
        except asyncio.CancelledError:
            self.session = False
            raise


class TestAsksAFastServer(Suite):
    breaks = ("test_methods_do_not_block_the_event_loop",)
    says = "it waits on the event loop"

    @pytest.fixture
    def model(self):
        server = socket.create_server(("127.0.0.1", 0))

        class Asks(ScriptedModel):
            async def complete(self, request):
                socket.create_connection(server.getsockname()).close()
                return await super().complete(request)

        yield Asks(default="Hello, grüß Gott.")
        server.close()


@breaks("test_concurrent_answers_are_independent", says="the answer of another")
class TestAnswersTheLastAsked(ScriptedModel):
    async def complete(self, request):
        self.latest = await super().complete(request)
        await asyncio.sleep(0)
        return self.latest


@breaks("test_concurrent_answers_are_independent", says="its reply is")
class TestKeepsPiecesOfEarlierStreams(ScriptedModel):
    streams = 0

    async def stream(self, request):
        self.streams += 1
        *pieces, reply = [piece async for piece in super().stream(request)]
        for piece in pieces:
            yield piece
        yield replace(reply, text="before" * (self.streams > 1) + reply.text)


@breaks("test_truncated_answer_is_marked", says="half a script")
class TestTakesACutAnswerForWhole(ScriptedModel):
    async def complete(self, request):
        return replace(await super().complete(request), finish_reason="stop")


class TestSendsNoSystemMessage(Suite):
    breaks = ("test_request_contains_every_message",)
    says = "of the role 'system'"

    def as_sent(self, request):
        left = tuple(one for one in request.messages if one.role != "system")
        return super().as_sent(replace(request, messages=left))


class TestDropsImages(Suite):
    breaks = ("test_image_is_sent_or_refused",)
    says = "a picture that it never saw"

    def as_sent(self, request):
        return repr([message.text for message in request.messages])


class TestAnswersAboutImagesThatItRefuses(Suite):
    breaks = ("test_image_is_sent_or_refused",)
    says = "set images = True"
    images = False


@breaks("test_cost_follows_the_price", says="for a million tokens")
class TestCostsAHundredTimesAsMuch(ScriptedModel):
    async def price(self):
        return Price(input=1.0, output=2.0, cached_input=0.5)

    async def complete(self, request):
        reply = await super().complete(request)
        usage = reply.usage
        cost = (usage.input_tokens + 2 * usage.output_tokens) / 1_000_000
        return replace(reply, cost_usd=100 * cost)


class TestSendsAllAsTheUsersWords(Suite):
    breaks = ("test_request_keeps_message_roles",)
    says = "as if the user had written"

    def as_sent(self, request):
        return repr([[*map(part, message.parts)] for message in request.messages])


class TestDropsResultsOfTools(Suite):
    breaks = ("test_request_contains_tool_results",)
    says = "the model would guess it"

    def as_sent(self, request):
        return repr([(message.role, message.text) for message in request.messages])


@breaks("test_models_do_not_share_a_key", says="share a client or an answer")
class TestSharesItsClient(ScriptedModel):
    first = None

    async def complete(self, request):
        type(self).first = self.first or self
        return await ScriptedModel.complete(self.first, request)


@breaks("test_use_leaves_the_process_unchanged", says="the variable MADE_API_KEY")
class TestPutsItsKeyIntoTheEnvironment(ScriptedModel):
    async def complete(self, request):
        os.environ["MADE_API_KEY"] = "sk-secret"
        return await super().complete(request)


@breaks("test_stream_counts_the_same_input", says="count each piece once")
class TestCountsAStreamTwice(ScriptedModel):
    async def stream(self, request):
        async for piece in super().stream(request):
            whole = isinstance(piece, ModelReply)
            yield replace(piece, usage=piece.usage + piece.usage) if whole else piece


@breaks("test_cost_follows_the_price", says="the suite cannot check this cost")
class TestCostsWithoutAPrice(ScriptedModel):
    async def complete(self, request):
        return replace(await super().complete(request), cost_usd=2.5)


class TestSqueezesBlanks(Suite):
    breaks = ("test_request_contains_every_message_unchanged",)
    says = "lose their indentation"

    def as_sent(self, request):
        return " ".join(super().as_sent(request).split())


class TestSendsTheFirstSystemMessage(Suite):
    breaks = ("test_every_system_message_is_sent_or_refused",)
    says = "without a part of its instructions"

    def as_sent(self, request):
        first, *rest = request.messages
        left = (first, *(message for message in rest if message.role != "system"))
        return super().as_sent(replace(request, messages=left))


class TestLeavesFilesOut(Suite):
    breaks = ("test_file_is_sent_or_refused",)
    says = "what it never read"

    def as_sent(self, request):
        left = [
            replace(m, parts=tuple(p for p in m.parts if not isinstance(p, FilePart)))
            for m in request.messages
        ]
        return super().as_sent(replace(request, messages=tuple(left)))
