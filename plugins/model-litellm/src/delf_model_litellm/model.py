"""The model: calls litellm, with retries."""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delf.llm import LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest, Price, ToolCall, Usage
from delf.protocols.context import PluginContext
from delf_model_litellm import convert, library
from delf_model_litellm.clients import Clients, cancellable
from delf_model_litellm.failures import explain
from delf_model_litellm.providers import OTHERS
from delf_model_litellm.streams import NotStreamedError, StreamedError, wants_stream
from delf_model_providers import searches
from delf_model_providers.chat import SYSTEM_ROLE, is_json
from delf_model_providers.endpoint import Endpoint, resolve
from delf_model_providers.failures import BrokenStreamError, Failure, UnreadableError, chain
from delf_model_providers.families import RESPONSES, SUPPORTED_PROVIDERS
from delf_model_providers.model import EndpointModel
from delf_model_providers.pool import CONNECT_SECONDS
from delf_model_providers.signatures import token_of

logger = logging.getLogger(__name__)

_MAX_CALLS: Final = 1000
# Matches litellm's error message for a stream that was not requested.
_UNEXPECTED_STREAM: Final = re.compile(r"Received: .data: ")
# The prefix of model names that selects this plugin instead of another.
_LITELLM_PREFIX: Final = "litellm/"


@dataclass
class _Call:
    """A tool call received so far."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    returned_fields: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_complete(self) -> bool:
        """True if the arguments are valid JSON, so that no more pieces can follow."""
        return is_json("".join(self.arguments))


@dataclass
class _StreamContent:
    """The content of a stream received so far."""

    texts: list[str] = field(default_factory=list[str])
    calls: list[_Call] = field(default_factory=list[_Call])
    usage: Any = None
    finish_reason: str | None = None
    reply_id: str | None = None
    returned_fields: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def has_content(self) -> bool:
        """True if text or a call was received."""
        return bool(self.texts or self.calls)

    def index_of(self, part: Any) -> int:
        """Return the index of the call to which a piece belongs.

        Servers should number the calls 0, 1, 2 and so on, but some give all calls the number 0.

        Args:
            part: The piece of a call, with the server's number of the call.
        """
        number = int(part.index)
        if number >= len(self.calls):
            return number
        known_call = self.calls[number]
        # Servers may repeat the name and id of a call in each of its pieces. So a name begins a new
        # call only if the id differs or, without an id, if the known call is complete.
        is_other_call = known_call.is_complete
        if part.id:
            is_other_call = part.id != known_call.id
        if part.function.name and is_other_call:
            return len(self.calls)
        # A complete call gets no more pieces, so this piece belongs to the latest call.
        return len(self.calls) - 1 if known_call.is_complete else number


class LiteLLMModel(EndpointModel):
    """A model that is called through litellm."""

    def _resolve(self, context: PluginContext, config: LLMConfig) -> Endpoint:
        # In litellm, the model has no prefix: the prefix only selects this plugin. Reports and
        # prices show the name that the user gave.
        name_in_litellm = config.model.removeprefix(_LITELLM_PREFIX)
        endpoint = resolve(
            replace(config, model=name_in_litellm), context, SUPPORTED_PROVIDERS, OTHERS
        )
        return replace(endpoint, model=config.model)

    def _prepare(self) -> None:
        self._clients = Clients(self._endpoint)
        self._has_no_price = False  # True once _cost() has found no price in litellm's list

    async def warm_up(self) -> None:
        """Import litellm in advance; send nothing."""
        if self._endpoint.missing_variable is None:
            await library.load()
            self._clients.get()

    async def price(self) -> Price | None:
        """Return the model's price from litellm's list; None if the price is unknown."""
        litellm = await library.load()
        try:
            model_info: Any = litellm.get_model_info(
                model=self._endpoint.name, custom_llm_provider=_price_provider(self._endpoint)
            )
        except Exception:
            logger.debug("no price is known for %s", self._endpoint.model)
            return None
        return convert.price(model_info)

    async def aclose(self) -> None:
        """Close the connections. Idempotent; a later request opens new connections."""
        await self._clients.aclose()

    def _explain(self, error: BaseException, timeout: float) -> Failure:
        return explain(error, self._endpoint, timeout)

    async def _call(self, request: ModelRequest, *, stream: bool) -> Any:
        """Send a request once; return litellm's response, or its stream of chunks."""
        litellm = await library.load()
        client = self._clients.get()  # None if litellm has to use a client of its own
        arguments = self._arguments(litellm, request, client, stream=stream)
        # check_response() raises if the server streams unasked, or does not stream when asked to.
        token = wants_stream.set(stream)
        try:
            call = litellm.acompletion(**arguments)
            if client is None:  # litellm's own client has no hook for cancellable()
                return await call
            return await cancellable(call)
        finally:
            wants_stream.reset(token)

    def _arguments(
        self, litellm: Any, request: ModelRequest, client: Any, *, stream: bool
    ) -> dict[str, Any]:
        """Return the arguments of litellm's function for a request."""
        endpoint = self._endpoint
        search = self._search_for(request)
        if search is not None and not _can_search(litellm, endpoint):
            raise searches.unsupported_search(endpoint, "litellm knows no search of this provider")
        all_settings = {**self._settings, **request.settings}
        role = all_settings.get(SYSTEM_ROLE)
        optional = {
            "custom_llm_provider": _litellm_provider(endpoint),
            "api_base": endpoint.base_url,
            "api_key": endpoint.api_key,
            "api_version": endpoint.api_version,
            "extra_headers": dict(endpoint.headers) or None,
            "client": client,
            "stream": stream or None,
            "stream_options": {"include_usage": True} if stream else None,
        }
        return {
            "model": _litellm_name(endpoint),
            "messages": convert.messages(request.messages, endpoint, system_role=role),
            "timeout": _litellm_timeout(self._timeout(request), endpoint),
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
            **convert.settings(self._settings, request, endpoint),
            **convert.tools(request.tools, endpoint, search, must_call=request.must_call),
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _is_unexpected_stream(self, error: Exception) -> bool:
        """Return True if an error means that the server sent an unrequested stream."""
        for cause in chain(error):
            # litellm has no error class for a stream that it cannot parse, only a message.
            if isinstance(cause, StreamedError) or _UNEXPECTED_STREAM.search(str(cause)):
                return True
        return False

    def _is_missing_stream(self, error: Exception) -> bool:
        # check_response() raises the error for a complete reply in place of the requested stream.
        return any(isinstance(one, NotStreamedError) for one in chain(error))

    async def _complete_once(self, request: ModelRequest) -> ModelReply:
        """Make one call to the model, without streaming."""
        async with asyncio.timeout(self._timeout(request)):
            response = await self._call(request, stream=False)
        # If ``choice`` is None, each getattr() below returns its default.
        choice = response.choices[0] if response.choices else None
        message: Any = getattr(choice, "message", None)
        text = getattr(message, "content", None) or ""
        usage = getattr(response, "usage", None)
        finish_reason = getattr(choice, "finish_reason", None)
        # The fields that later requests must send back, such as the model's thinking.
        message_fields: dict[str, Any] = {}
        convert.add_returned_fields(message_fields, convert.returned_fields(message))
        received_calls = [
            _Call(
                id=call.id,
                name=call.function.name or "",
                arguments=[call.function.arguments or ""],
                returned_fields=convert.returned_fields_of_call(call),
            )
            for call in getattr(message, "tool_calls", None) or ()
        ]
        calls = _tool_calls(received_calls, message_fields)
        reply_id = getattr(response, "id", None)
        return await self._reply(request, text, usage, finish_reason, calls, reply_id)

    async def _stream_once(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        collected = _StreamContent()
        deadline = asyncio.get_running_loop().time() + self._timeout(request)
        async with asyncio.timeout_at(deadline):
            response = await self._call(request, stream=True)
        try:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        chunk = await anext(response)
                except StopAsyncIteration:
                    break
                for piece in _add_chunk(chunk, collected):
                    yield piece
            # In an unknown protocol, even a complete stream may lack a finish reason.
            has_known_protocol = self._endpoint.dialect is not None
            if has_known_protocol:
                _check_end(response, collected)
        finally:
            await response.aclose()
        yield await self._streamed(request, collected)

    async def _streamed(self, request: ModelRequest, collected: _StreamContent) -> ModelReply:
        text = "".join(collected.texts)
        calls = _tool_calls(collected.calls, collected.returned_fields)
        used = collected.usage
        reason = collected.finish_reason
        return await self._reply(request, text, used, reason, calls, collected.reply_id)

    async def _reply(
        self,
        request: ModelRequest,
        text: str,
        used: Any,
        finish_reason: str | None,
        calls: tuple[ToolCall, ...],
        reply_id: Any,
    ) -> ModelReply:
        """Make the reply from the parts of litellm's response, and compute its cost."""
        fees = self._fees(request, convert.search_count(used))
        cost = await self._cost(used)
        total_cost = None if cost is None or fees is None else cost + fees
        return ModelReply(
            text=text,
            model=self._endpoint.model,
            usage=convert.usage(used),
            cost_usd=total_cost,
            fees_usd=fees,
            finish_reason=finish_reason or "stop",
            calls=calls,
            reply_id=reply_id if isinstance(reply_id, str) else None,
        )

    async def _cost(self, used: Any) -> float | None:
        """Return the cost of tokens in USD from litellm's list; None if the price is unknown."""
        if used is None or self._has_no_price or convert.usage(used) == Usage():
            return None
        litellm = await library.load()
        try:
            prompt, completion = litellm.cost_per_token(
                model=self._endpoint.name,
                custom_llm_provider=_price_provider(self._endpoint),
                usage_object=used,
            )
        except Exception:
            logger.debug("no price is known for %s", self._endpoint.model)
            self._has_no_price = True
            return None
        return float(prompt) + float(completion)


def _tool_calls(calls: Sequence[_Call], message_fields: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Convert the tool calls received from the provider to ``ToolCall`` objects.

    The ``token`` of a ``ToolCall`` holds the call's fields that the next request must return to the
    provider. The token of the first ``ToolCall`` also holds ``message_fields``.

    Args:
        calls: The received calls.
        message_fields: The fields of the whole message that the next request must return.
    """
    return tuple(
        ToolCall(
            id=convert.id_of(call.id),
            name=call.name,
            arguments="".join(call.arguments),
            token=token_of(message_fields if index == 0 else {}, call.returned_fields),
        )
        for index, call in enumerate(calls)
    )


def _litellm_provider(endpoint: Endpoint) -> str | None:
    """Return litellm's name for the protocol of the endpoint; None to let litellm decide."""
    prefixes = {"google": "gemini", RESPONSES: "openai"}
    if endpoint.dialect is None:
        return None
    return prefixes.get(endpoint.dialect, endpoint.dialect)


def _price_provider(endpoint: Endpoint) -> str | None:
    """Return litellm's name for the provider that sets the prices; None to let litellm decide."""
    if endpoint.dialect is None:  # the model's name includes the provider, as in litellm's list
        return None
    if endpoint.dialect == endpoint.provider:  # a provider with a protocol of its own
        return _litellm_provider(endpoint)
    # A provider such as Groq, which has the protocol of OpenAI but prices of its own. These are in
    # litellm's list under the provider's name.
    return endpoint.provider


def _litellm_name(endpoint: Endpoint) -> str:
    """Return the model's name, prefixed with ``responses/`` for OpenAI's Responses API."""
    if endpoint.dialect == RESPONSES:
        return f"responses/{endpoint.name}"
    return endpoint.name


def _can_search(litellm: Any, endpoint: Endpoint) -> bool:
    """Return True if litellm can ask this model's provider to search the web."""
    has_known_protocol = endpoint.dialect is not None
    if has_known_protocol:  # delf itself adds the search to the request
        return True
    params: Any = litellm.get_supported_openai_params(model=endpoint.name)
    return "web_search_options" in (params or ())


def _litellm_timeout(seconds: float, endpoint: Endpoint) -> Any:
    """Return a timeout for litellm, with a separate timeout for connecting where supported."""
    if endpoint.dialect != "openai":
        return seconds
    httpx: Any = importlib.import_module("httpx")
    return httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


def _check_end(response: Any, collected: _StreamContent) -> None:
    """Raise if a stream was truncated, because a truncated script must not run."""
    body_module: Any = importlib.import_module("delf_model_litellm.response_body")
    if not body_module.is_complete(response):
        error_type = BrokenStreamError if collected.has_content else UnreadableError
        raise error_type("the stream ended early")


def _add_chunk(chunk: Any, collected: _StreamContent) -> list[ModelDelta]:
    """Add a chunk to the content of a stream; return the deltas to emit."""
    if (used := getattr(chunk, "usage", None)) is not None:
        collected.usage = used
    collected.reply_id = getattr(chunk, "id", None) or collected.reply_id
    if not chunk.choices:
        return []
    choice = chunk.choices[0]
    collected.finish_reason = choice.finish_reason or collected.finish_reason
    convert.add_returned_fields(collected.returned_fields, convert.returned_fields(choice.delta))
    pieces: list[ModelDelta] = []
    if text := getattr(choice.delta, "content", None) or "":
        collected.texts.append(text)
        pieces.append(ModelDelta(text))
    for part in getattr(choice.delta, "tool_calls", None) or ():
        pieces += _add_call_piece(part, collected)
    return pieces


def _add_call_piece(part: Any, collected: _StreamContent) -> list[ModelDelta]:
    """Add a piece of a call to the content of a stream; return the deltas to emit."""
    index = collected.index_of(part)
    if index >= _MAX_CALLS:
        raise UnreadableError(f"more than {_MAX_CALLS} calls")
    while len(collected.calls) <= index:  # a server may leave out numbers
        collected.calls.append(_Call())
    call = collected.calls[index]
    call.returned_fields |= convert.returned_fields_of_call(part)
    call.id = part.id or call.id
    call.name = part.function.name or call.name
    if not part.function.arguments:
        return []
    call.arguments.append(part.function.arguments)
    return [ModelDelta(part.function.arguments, call=index)]
