"""The model: calls litellm, with retries."""

from __future__ import annotations

import asyncio
import importlib
import json
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
from delf_model_litellm.streams import StreamedError, WholeError, wants_stream
from delf_model_providers import searches
from delf_model_providers.chat import SYSTEM_ROLE
from delf_model_providers.endpoint import Endpoint, resolve
from delf_model_providers.failures import BrokenStreamError, Failure, UnreadableError, chain
from delf_model_providers.families import RESPONSES, SPOKEN
from delf_model_providers.model import EndpointModel
from delf_model_providers.pool import CONNECT_SECONDS
from delf_model_providers.signatures import token_of

logger = logging.getLogger(__name__)

_MAX_CALLS: Final = 1000
_STREAM: Final = re.compile(r"Received: .data: ")
"""litellm's error texts for an unexpected stream."""
_BY_HAND: Final = "litellm/"
"""The prefix for names that another plugin would serve."""


@dataclass
class _Call:
    """A call that streams."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    kept: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class _Collected:
    """The part of a stream received so far."""

    texts: list[str] = field(default_factory=list[str])
    calls: list[_Call] = field(default_factory=list[_Call])
    usage: Any = None
    finish_reason: str | None = None
    reply_id: str | None = None
    kept: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def any(self) -> bool:
        """True if anything was passed on to the caller."""
        return bool(self.texts or self.calls)

    def place_of(self, part: Any) -> int:
        """Return the index of the call to which a piece belongs.

        Some servers give the same number to all calls.

        Args:
            part: The piece, with the number that its server gave it.
        """
        number, last = int(part.index), len(self.calls) - 1
        if number > last:
            return number
        call = self.calls[number]
        is_whole = _is_json("".join(call.arguments))
        # A piece without an id belongs to another call if the arguments are already complete.
        is_other_call = part.id != call.id if part.id else is_whole
        if part.function.name and is_other_call:
            return last + 1
        return last if is_whole else number


class LiteLLMModel(EndpointModel):
    """A model at an endpoint, through litellm."""

    def _resolve(self, context: PluginContext, config: LLMConfig) -> Endpoint:
        inner = replace(config, model=config.model.removeprefix(_BY_HAND))
        return replace(resolve(inner, context, SPOKEN, OTHERS), model=config.model)

    def _prepare(self) -> None:
        self._clients = Clients(self._endpoint)
        self._unpriced = False

    async def warm_up(self) -> None:
        """Import litellm while other preparation runs; sends nothing and never fails."""
        if self._endpoint.missing is None:
            await library.load()
            self._clients.get()

    async def price(self) -> Price | None:
        """Return the model's price in litellm's list, None if it has none; sends no request."""
        litellm = await library.load()
        try:
            model_info: Any = litellm.get_model_info(
                model=self._endpoint.name, custom_llm_provider=_seller(self._endpoint)
            )
        except Exception:
            logger.debug("no price is known for %s", self._endpoint.model)
            return None
        return convert.price(model_info)

    async def aclose(self) -> None:
        """Close the connections. Idempotent; a later call opens new connections."""
        await self._clients.aclose()

    def _explain(self, error: BaseException, timeout: float) -> Failure:
        return explain(error, self._endpoint, timeout)

    async def _call(self, request: ModelRequest, *, stream: bool) -> Any:
        litellm = await library.load()
        endpoint = self._endpoint
        search = self._search_for(request)
        if search is not None and not _can_search(litellm, endpoint):
            raise searches.cannot(endpoint, "litellm knows no search of this provider")
        role = {**self._settings, **request.settings}.get(SYSTEM_ROLE)
        arguments: dict[str, Any] = {
            "model": _name(endpoint),
            "messages": convert.messages(request.messages, endpoint, system_role=role),
            "timeout": _limits(self._timeout(request), endpoint),
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
            **convert.settings(self._settings, request, endpoint),
            **convert.tools(request.tools, endpoint, search, must_call=request.must_call),
        }
        optional = {
            "custom_llm_provider": _prefix(endpoint),
            "api_base": endpoint.base_url,
            "api_key": endpoint.api_key,
            "api_version": endpoint.api_version,
            "extra_headers": dict(endpoint.headers) or None,
            "client": self._clients.get(),
            "stream": stream or None,
            "stream_options": {"include_usage": True} if stream else None,
        }
        arguments.update({name: value for name, value in optional.items() if value is not None})
        before = wants_stream.set(stream)
        try:
            call = litellm.acompletion(**arguments)
            return await (cancellable(call) if endpoint.dialect else call)
        finally:
            wants_stream.reset(before)

    def _is_streamed(self, error: Exception) -> bool:
        causes = list(chain(error))
        return any(isinstance(one, StreamedError) or _STREAM.search(str(one)) for one in causes)

    def _is_whole(self, error: Exception) -> bool:
        return any(isinstance(one, WholeError) for one in chain(error))

    async def _whole(self, request: ModelRequest) -> ModelReply:
        async with asyncio.timeout(self._timeout(request)):
            response = await self._call(request, stream=False)
        choice = response.choices[0] if response.choices else None
        text = getattr(getattr(choice, "message", None), "content", None) or ""
        used = getattr(response, "usage", None)
        finish = getattr(choice, "finish_reason", None)
        message: Any = getattr(choice, "message", None)
        returned: dict[str, Any] = {}
        convert.add_returned_fields(returned, convert.returned_fields(message))
        asked = [
            _Call(
                id=call.id,
                name=call.function.name or "",
                arguments=[call.function.arguments or ""],
                kept=convert.returned_fields_of_call(call),
            )
            for call in getattr(message, "tool_calls", None) or ()
        ]
        calls = _calls(asked, returned)
        name = getattr(response, "id", None)
        return await self._reply(request, text, used, finish, calls, name)

    async def _pieces(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        collected = _Collected()
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
                for piece in _take(chunk, collected):
                    yield piece
            if self._endpoint.dialect:
                _check_end(response, collected)
        finally:
            await response.aclose()
        yield await self._streamed(request, collected)

    async def _streamed(self, request: ModelRequest, collected: _Collected) -> ModelReply:
        text = "".join(collected.texts)
        calls = _calls(collected.calls, collected.kept)
        used, reason = collected.usage, collected.finish_reason
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
        fees = self._fees(request, convert.searched(used))
        cost = await self._cost(used)
        return ModelReply(
            text=text,
            model=self._endpoint.model,
            usage=convert.usage(used),
            cost_usd=None if cost is None or fees is None else cost + fees,
            fees_usd=fees,
            finish_reason=finish_reason or "stop",
            calls=calls,
            reply_id=reply_id if isinstance(reply_id, str) else None,
        )

    async def _cost(self, used: Any) -> float | None:
        """Return the cost by litellm's list, or None for an unknown model."""
        if used is None or self._unpriced or convert.usage(used) == Usage():
            return None
        litellm = await library.load()
        try:
            prompt, completion = litellm.cost_per_token(
                model=self._endpoint.name,
                custom_llm_provider=_seller(self._endpoint),
                usage_object=used,
            )
        except Exception:
            logger.debug("no price is known for %s", self._endpoint.model)
            self._unpriced = True
            return None
        return float(prompt) + float(completion)


def _calls(calls: Sequence[_Call], returned: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls; the first one carries the fields that go back in its message."""
    return tuple(
        ToolCall(
            id=convert.id_of(call.id),
            name=call.name,
            arguments="".join(call.arguments),
            token=token_of({} if place else returned, call.kept),
        )
        for place, call in enumerate(calls)
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _prefix(endpoint: Endpoint) -> str | None:
    """Return litellm's name of a provider; None to let litellm decide."""
    prefixes = {"google": "gemini", RESPONSES: "openai"}
    return None if endpoint.dialect is None else prefixes.get(endpoint.dialect, endpoint.dialect)


def _seller(endpoint: Endpoint) -> str | None:
    """Return litellm's name of the provider whose prices apply."""
    is_borrowed = endpoint.dialect is not None and endpoint.dialect != endpoint.provider
    return endpoint.provider if is_borrowed else _prefix(endpoint)


def _name(endpoint: Endpoint) -> str:
    """Return the model's name, prefixed with ``responses/`` for OpenAI's Responses API."""
    return f"responses/{endpoint.name}" if endpoint.dialect == RESPONSES else endpoint.name


def _can_search(litellm: Any, endpoint: Endpoint) -> bool:
    """Return True if litellm passes on the request for a search."""
    if endpoint.dialect is not None:
        return True
    params: Any = litellm.get_supported_openai_params(model=endpoint.name)
    return "web_search_options" in (params or ())


def _limits(seconds: float, endpoint: Endpoint) -> Any:
    """Return a timeout in litellm's form, with a separate connect timeout if supported."""
    if endpoint.dialect != "openai":
        return seconds
    httpx: Any = importlib.import_module("httpx")
    return httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


def _check_end(response: Any, collected: _Collected) -> None:
    """Raise if a stream was truncated, because half a script must not run."""
    tail: Any = importlib.import_module("delf_model_litellm.tail")
    if not tail.ended(response):
        raise (BrokenStreamError if collected.any else UnreadableError)("no end of the stream")


def _take(chunk: Any, collected: _Collected) -> list[ModelDelta]:
    """Store a chunk's content; return its deltas."""
    if (used := getattr(chunk, "usage", None)) is not None:
        collected.usage = used
    collected.reply_id = getattr(chunk, "id", None) or collected.reply_id
    if not chunk.choices:
        return []
    choice = chunk.choices[0]
    collected.finish_reason = choice.finish_reason or collected.finish_reason
    convert.add_returned_fields(collected.kept, convert.returned_fields(choice.delta))
    pieces: list[ModelDelta] = []
    if text := getattr(choice.delta, "content", None) or "":
        collected.texts.append(text)
        pieces.append(ModelDelta(text))
    for part in getattr(choice.delta, "tool_calls", None) or ():
        number = collected.place_of(part)
        if number >= _MAX_CALLS:
            raise UnreadableError(f"more than {_MAX_CALLS} calls")
        while len(collected.calls) <= number:
            collected.calls.append(_Call())
        call = collected.calls[number]
        call.kept |= convert.returned_fields_of_call(part)
        call.id, call.name = part.id or call.id, part.function.name or call.name
        if part.function.arguments:
            call.arguments.append(part.function.arguments)
            pieces.append(ModelDelta(part.function.arguments, call=number))
    return pieces
