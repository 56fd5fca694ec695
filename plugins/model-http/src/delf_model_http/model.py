"""``HttpModel``: one model at one endpoint, over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from delf.environment import SourcedText, source_of
from delf.errors import ModelConfigurationError
from delf.llm import EXTRA, SERVER_SIDE_TOOLS, LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest, Price, Usage
from delf.network.bodies import BodyError, pieces
from delf.protocols.context import PluginContext
from delf_model_http import catalog
from delf_model_http.answer import Answer, ReportedError
from delf_model_http.anthropic import Messages
from delf_model_http.dialect import Dialect, RequestParts, with_extra
from delf_model_http.events import MAX_BYTES, MAX_STREAM, EventReader
from delf_model_http.gemini_live import GeminiLive
from delf_model_http.google import GenerateContent
from delf_model_http.live import LiveDialect, LiveSession
from delf_model_http.openai import ChatCompletions, refuses_tools
from delf_model_http.providers import SUPPORTED_PROVIDERS
from delf_model_http.realtime import Realtime
from delf_model_http.responses import Responses
from delf_model_providers.endpoint import Endpoint, resolve
from delf_model_providers.failures import (
    BrokenStreamError,
    Failure,
    UnreadableError,
    by_status,
    message_in,
    shortened,
)
from delf_model_providers.http import explain, parsed, read, refused, unreadable_body_error
from delf_model_providers.model import EndpointModel
from delf_model_providers.pool import Pool

if TYPE_CHECKING:
    import httpx

_DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": ChatCompletions(),
    "openai-responses": Responses(),
    "anthropic": Messages(),
    "google": GenerateContent(),
}
_LIVE_DIALECTS: Final[Mapping[str, Callable[[str], LiveDialect]]] = {
    "openai": lambda _: Realtime(),
    "google": GeminiLive,
}
# Matches the names of models that only answer in sessions.
_SESSION_ONLY_NAME: Final = re.compile(r"realtime|-live|native-audio")

# The names of delf's own settings, which are not sent to providers.
_DELF_SETTINGS: Final = frozenset({"timeout", "live_model", EXTRA, SERVER_SIDE_TOOLS})

_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "delf"}
_DONE: Final = "[DONE]"
# The characters of blanks and of a byte order mark, which may precede a body.
_BLANKS: Final = b"\xef\xbb\xbf \t\r\n"
# The possible starts of a body that is a stream of events.
_STREAM_STARTS: Final = (b"data:", b"event:")
# The field names with which a line of server-sent events may start.
_EVENT_FIELDS: Final = (b"data", b"event", b"id", b"retry", b":")
_MAX_SHOWN_CHARS: Final = 200
# The maximum seconds to wait for token counts after the model has finished.
_SECONDS_FOR_USAGE: Final = 5.0

# The maximum seconds to wait for the end of a body after its last event.
_SECONDS_FOR_REST: Final = 0.1


class HttpModel(EndpointModel):
    """A model that is called over HTTP in the dialect of its endpoint."""

    def _resolve(self, context: PluginContext, config: LLMConfig) -> Endpoint:
        endpoint = resolve(config, context, SUPPORTED_PROVIDERS)
        if endpoint.dialect is None:
            raise ModelConfigurationError(
                f"{config.model!r}: model-http does not support {endpoint.provider}",
                hint="delf plugins install model-litellm; or give the base_url of its "
                "OpenAI-compatible API, and the name without its prefix",
            )
        return endpoint

    def _prepare(self) -> None:
        """Choose the dialects and headers for the endpoint, and make the pool of connections."""
        dialect = self._endpoint.dialect or ""
        self._dialect = _DIALECTS[dialect]
        self._tools_dialect = self._dialect
        # Some models refuse tools in chat completions, but take tools in the Responses API.
        if refuses_tools(self._endpoint):
            self._tools_dialect = _DIALECTS["openai-responses"]
        self._facts = catalog.facts(self._endpoint.provider, self._endpoint.name)
        headers = {**_HEADERS, **self._dialect.headers(self._endpoint), **self._endpoint.headers}
        self._headers = {name.lower(): value for name, value in headers.items()}
        address = self._dialect.address(self._endpoint, stream=False)
        self._pool = Pool(is_encrypted=urlsplit(address).scheme == "https")

    def _dialect_of(self, request: ModelRequest | None) -> Dialect:
        """Return the dialect for a request; for tools, some models need another dialect."""
        if request is not None and request.tools:
            return self._tools_dialect
        return self._dialect

    @property
    def _session_model(self) -> str | None:
        """The name of the model for live sessions; None without such a model.

        This is the endpoint's model if that model answers only in live sessions, else the setting
        ``live_model``.
        """
        if self._endpoint.dialect not in _LIVE_DIALECTS:
            return None
        if _SESSION_ONLY_NAME.search(self._endpoint.name):
            # If the name is a URL, check_address() needs the place in which the model was set.
            return SourcedText(self._endpoint.name, source_of(self._endpoint.model))
        live_model = self._settings.get("live_model")
        return None if live_model is None else cast("str", live_model)

    async def connect(self) -> LiveSession | None:
        """Open a session with the model.

        Returns:
            None if the model has no sessions, or if the requests shall use the provider's web
            search, which sessions do not support.

        Raises:
            DelfError: If the session cannot be opened.
        """
        name_or_address = self._session_model
        uses_web_search = self._search is not None
        if name_or_address is None or uses_web_search:
            return None
        self._endpoint.require_key()
        timeout = self._timeout()
        make_dialect = _LIVE_DIALECTS[self._endpoint.dialect or ""]
        if name_or_address.startswith(("ws://", "wss://")):
            address = name_or_address
            self._endpoint.check_address(address)
            name = parse_qs(urlsplit(address).query).get("model", [""])[0]
            dialect = make_dialect(name)
        else:
            name = name_or_address
            dialect = make_dialect(name)
            address = dialect.address(self._endpoint, name)
        settings = _without_own_settings(self._settings)
        facts = catalog.facts(self._endpoint.provider, name)
        session = LiveSession(
            dialect,
            self._endpoint,
            address,
            settings,
            lambda answer: self._reply(answer, facts),
            lambda error: self._explain(error, timeout),
            timeout,
        )
        await session.connect()
        return session

    async def warm_up(self) -> None:
        """Import httpx in advance; send nothing."""
        if self._endpoint.missing_variable is None:
            await self._pool.get()

    @property
    def _needs_session(self) -> bool:
        """True if the model answers only in sessions, so that each request opens a session."""
        return self._session_model == self._endpoint.name

    async def _pieces_in_session(
        self, request: ModelRequest
    ) -> AsyncGenerator[ModelDelta | ModelReply]:
        session = await self.connect()
        if session is None:
            raise BrokenStreamError("there is no session")
        try:
            async with aclosing(session.send(request)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            await session.aclose()

    async def _complete_in_session(self, request: ModelRequest) -> ModelReply:
        async with aclosing(self._pieces_in_session(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    return piece
        raise BrokenStreamError("the answer has no end")

    async def price(self) -> Price | None:
        """Return the model's price from the catalogue; None if the price is unknown."""
        return self._facts.price

    async def aclose(self) -> None:
        """Close the connections. Idempotent; a later request opens new connections."""
        await self._pool.aclose()

    async def _complete_once(self, request: ModelRequest) -> ModelReply:
        """Send a request once, and return the complete reply.

        A model that answers only in sessions gets a session for this request. The body of the
        response may be a stream of events, although no stream was requested.
        """
        if self._needs_session:
            return await self._complete_in_session(request)
        async with (
            asyncio.timeout(self._timeout(request)),
            self._send(request, stream=False) as response,
        ):
            body = await read(response, MAX_BYTES)
        if body.lstrip(_BLANKS).startswith(_STREAM_STARTS):
            return self._reply(self._parse_event_stream(body, request), request=request)
        answer = self._dialect_of(request).parse(parsed(body))
        answer.use_reasoning_if_empty()
        return self._reply(answer, request=request)

    def _parse_event_stream(self, body: bytes, request: ModelRequest) -> Answer:
        """Parse a complete body that is an unrequested event stream."""
        answer = Answer()
        reader = EventReader()
        for data in (*reader.feed(body), *reader.end()):
            if data.strip() == _DONE:
                answer.has_model_finished = True
            elif data.strip():
                self._dialect_of(request).event(parsed(data), answer)
        _check_end(answer)
        answer.emit_complete_calls()
        answer.use_reasoning_if_empty()
        return answer

    def _stream_once(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        if self._needs_session:
            return self._pieces_in_session(request)
        return self._streamed(request)

    async def _streamed(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Request a streamed answer; yield its pieces, then the complete reply.

        The server may send the whole answer at once, although a stream was requested.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout(request)
        async with aclosing(self._chunks(request)) as chunks:
            start = await _start_of_body(chunks, deadline)
            if _is_event_stream(start):
                answer = Answer()
                events = _events(start, chunks, deadline, answer)
                async with aclosing(self._pieces_of(events, answer, request)) as pieces:
                    async for piece in pieces:
                        yield piece
            else:
                body = await _rest_of_body(start, chunks, deadline)
                answer = self._dialect_of(request).parse(parsed(body))
                if answer.text:
                    yield ModelDelta(answer.text)
                for piece in answer.emit_complete_calls():
                    yield piece
        # Some models write the script into their reasoning, and no text after it.
        for piece in answer.use_reasoning_if_empty():
            yield piece
        yield self._reply(answer, request=request)

    async def _pieces_of(
        self, events: AsyncGenerator[str], answer: Answer, request: ModelRequest
    ) -> AsyncGenerator[ModelDelta]:
        """Add the events of a stream to an answer, and yield the pieces of the answer."""
        last_event = ""
        async with aclosing(events):
            async for data in events:
                if not data.strip():
                    continue
                if data.strip() == _DONE:
                    answer.has_model_finished = answer.is_stream_over = True
                else:
                    last_event = data
                    for piece in self._dialect_of(request).event(parsed(data), answer):
                        yield piece
                if answer.has_model_finished:  # only token counts may follow
                    for piece in answer.emit_complete_calls():
                        yield piece
        _check_end(answer)
        if answer.has_received_nothing and last_event:
            raise UnreadableError(f"it says nothing: {last_event[:_MAX_SHOWN_CHARS]!r}")

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[bytes]:
        async with self._send(request, stream=True) as response:
            try:
                async for chunk in pieces(response, MAX_STREAM):
                    yield chunk
            except BodyError as error:
                raise unreadable_body_error(error) from None

    def _send(
        self, request: ModelRequest, *, stream: bool
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """Return a context manager that sends a request and yields the response, still unread."""
        endpoint = self._endpoint
        dialect = self._dialect_of(request)
        settings = {**self._settings, **request.settings}
        parts = RequestParts(
            request=request,
            settings=_without_own_settings(settings),
            endpoint=endpoint,
            facts=self._facts,
            stream=stream,
            search=self._search_for(request),
        )
        address = dialect.address(endpoint, stream=stream)
        body = with_extra(dialect.body(parts), settings.get(EXTRA) or {})
        return self._pool.posted(address, self._headers, body)

    def _reply(
        self,
        answer: Answer,
        facts: catalog.Facts | None = None,
        request: ModelRequest | None = None,
    ) -> ModelReply:
        """Return the reply for a complete answer.

        Args:
            answer: The answer.
            facts: The facts about the model that answered; None for the configured model.
            request: The request; None in a live session, which has no fees.
        """
        facts = facts or self._facts
        reason = answer.finish_reason or "stop"
        # The fees of web searches, and the cost of tokens; None if the price is unknown.
        fees = 0.0 if request is None else self._fees(request, answer.searches)
        cost = facts.cost(answer.tokens)
        total_cost = None if cost is None or fees is None else cost + fees
        return ModelReply(
            text=answer.text,
            model=self._endpoint.model,
            usage=answer.tokens.usage if answer.tokens else Usage(),
            cost_usd=total_cost,
            fees_usd=fees,
            finish_reason=self._dialect_of(request).finish_reasons.get(reason, reason),
            calls=answer.calls,
            reply_id=answer.reply_id,
            # For an error about a truncated answer: delf's own limit, if the user set no limit.
            max_tokens=None if "max_tokens" in self._settings else self._dialect.max_tokens(facts),
        )

    def _explain(self, error: BaseException, timeout: float) -> Failure:
        endpoint = self._endpoint
        if isinstance(error, ReportedError):
            message = shortened(message_in(error.body) or str(error.body), endpoint.secrets)
            return by_status(error.status, message, endpoint)
        if type(error).__name__ == "InvalidStatus":  # from websockets, an optional package
            refusal: Any = getattr(error, "response", None)
            text = bytes(refusal.body or b"").decode("utf-8", "replace")
            return refused(refusal.status_code, text, endpoint)
        return explain(error, endpoint, timeout)


def _without_own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the provider gets: no settings of delf's own, no None."""
    given = {name: value for name, value in settings.items() if value is not None}
    return {name: value for name, value in given.items() if name not in _DELF_SETTINGS}


def _is_event_stream(begin: bytes) -> bool:
    """Return True if the start of a body may be a stream of server-sent events."""
    line = begin.lstrip(_BLANKS)
    # The start of the body may end within the name of a field.
    return any(line.startswith(field) or field.startswith(line) for field in _EVENT_FIELDS)


async def _start_of_body(chunks: AsyncGenerator[bytes], deadline: float) -> bytes:
    """Return the first chunks of a body, up to the first chunk that is not blank."""
    start = bytearray()
    async with asyncio.timeout_at(deadline):
        async for chunk in chunks:
            start += chunk
            if chunk.strip():
                break
    return bytes(start)


async def _rest_of_body(start: bytes, chunks: AsyncGenerator[bytes], deadline: float) -> bytes:
    """Return a whole body: ``start``, and the chunks that are still to be received."""
    body = bytearray(start)
    async with asyncio.timeout_at(deadline):
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BYTES:
                raise UnreadableError(f"it has more than {MAX_BYTES // 1_000_000} MB")
    return bytes(body)


async def _events(
    start: bytes, chunks: AsyncGenerator[bytes], deadline: float, answer: Answer
) -> AsyncGenerator[str]:
    """Yield the data of each event of a stream.

    Args:
        start: The start of the body.
        chunks: The rest of the body.
        deadline: The time at which the request fails, on the event loop's clock.
        answer: The answer, to which the caller adds each event. Once the model has finished, the
            wait for further events is short.
    """
    reader = EventReader()
    for data in reader.feed(start):
        yield data
    while True:
        try:
            async with asyncio.timeout_at(_next_limit(deadline, answer)):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            break
        except Exception:  # a timeout, or the connection is lost
            if answer.has_model_finished:
                return
            raise
        for data in reader.feed(chunk):
            yield data
    for data in reader.end():
        yield data


def _next_limit(deadline: float, answer: Answer) -> float:
    """Return the time until which to wait for the next chunk of a stream."""
    if not answer.has_model_finished:
        return deadline
    # Token counts may still follow. Once the stream is over, only the end of the body is awaited,
    # so that the connection can be used again.
    seconds = _SECONDS_FOR_REST if answer.is_stream_over else _SECONDS_FOR_USAGE
    return min(deadline, asyncio.get_running_loop().time() + seconds)


def _check_end(answer: Answer) -> None:
    """Raise if a stream ended before the model had finished its answer."""
    if not answer.has_model_finished:
        error_type = UnreadableError if answer.has_no_text_or_call else BrokenStreamError
        raise error_type("the answer has no end")
