"""``EndpointModel``: the shared part of the models, whatever sends a request."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from delf.llm import DEFAULT_TIMEOUT, SERVER_SIDE_TOOL_PURPOSES, LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest
from delf.protocols.context import PluginContext
from delf_model_providers import searches
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.failures import Failure, UnreadableError
from delf_model_providers.retry import Attempts, RetryPolicy
from delf_model_providers.signatures import keep_own_signatures, label_signature, label_signatures

# HTTP statuses with which servers refuse a kind of request permanently.
_REFUSALS: Final = frozenset({400, 405, 415, 422, 501})


class EndpointModel(ABC):
    """A model at one endpoint, with retries.

    Args:
        context: The configured keys and the environment variables.
        config: The model's name, address and settings.
        retry: The retry policy.
        sleep: Waits for a number of seconds.

    Raises:
        ModelConfigurationError: If no provider is known for the name, or the address is invalid.
    """

    def __init__(
        self,
        context: PluginContext,
        config: LLMConfig,
        *,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._endpoint = self._resolve(context, config)
        self._settings = dict(config.settings)
        self._search = searches.tool_of(config.settings, self._endpoint)
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        # One of these becomes True once the server has refused complete replies, or streams.
        self._always_streams = False
        self._never_streams = False
        self._prepare()  # creates what the subclass needs to send requests

    def __repr__(self) -> str:
        kind = type(self).__name__
        at = self._endpoint
        return f"{kind}({at.model!r}, provider={at.provider!r})"

    def _search_for(self, request: ModelRequest) -> searches.Tool | None:
        """Return the provider's web search tool if the request's purpose permits searches."""
        if request.purpose in SERVER_SIDE_TOOL_PURPOSES:
            return self._search
        return None

    def _fees(self, request: ModelRequest, search_count: int) -> float | None:
        """Return the price of a reply's web searches in USD; None if the price is unknown."""
        if self._search_for(request) is None:
            return 0.0
        return searches.fees(self._endpoint, search_count)

    @property
    def _full_name(self) -> str:
        """The provider and name of this model, with which its signed tool calls are labelled."""
        return f"{self._endpoint.provider} {self._endpoint.name}"

    @property
    def takes_tools(self) -> bool:
        """True, because all providers support tools, although some servers refuse them."""
        return True

    @property
    def address(self) -> str | None:
        """The configured address; None for the provider's default."""
        return self._endpoint.base_url if self._endpoint.custom else None

    async def check(self) -> None:
        """Check that the required key is configured, without a request.

        Raises:
            EnvironmentKeyError: If the key is missing.
        """
        self._endpoint.require_key()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Request the complete reply.

        Args:
            request: The request.

        Raises:
            EnvironmentKeyError: If the key is missing.
            ModelConfigurationError: If no provider is known for the name.
            LLMExecutionError: If the call failed after retries.
        """
        self._endpoint.require_key()
        # A provider's signature of a tool call is valid only for the model that made the call.
        prepared_request = keep_own_signatures(request, self._full_name)
        reply = await self._attempts(prepared_request).complete(
            lambda: self._complete_in_any_mode(prepared_request)
        )
        return label_signatures(reply, self._full_name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the answer in pieces as they arrive, then the complete reply with its usage.

        A call that fails before its first piece is retried, as in :meth:`complete`. A later failure
        is an error, because emitted pieces cannot be taken back.

        Args:
            request: The request.

        Raises:
            EnvironmentKeyError: If the key is missing.
            ModelConfigurationError: If no provider is known for the name.
            LLMExecutionError: If the call failed after retries.
        """
        self._endpoint.require_key()
        prepared_request = keep_own_signatures(request, self._full_name)
        attempts = self._attempts(prepared_request)
        async with aclosing(
            attempts.stream(lambda: self._stream_in_any_mode(prepared_request))
        ) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    yield label_signatures(piece, self._full_name)
                elif piece.whole is not None:
                    # The last piece of a tool call has the whole call, with the provider's
                    # signature, if any.
                    whole_call = label_signature(piece.whole, self._full_name)
                    yield replace(piece, whole=whole_call)
                else:
                    yield piece

    async def _complete_in_any_mode(self, request: ModelRequest) -> ModelReply:
        """Return the complete reply; stream internally if the server supports only streaming."""
        if not self._always_streams:
            try:
                return await self._complete_once(request)
            except Exception as error:
                is_refused = self._is_mode_refused(error, request)
                must_stream = is_refused or self._is_unexpected_stream(error)
                if not must_stream:
                    raise
                # The server only streams, so the reply is requested as a stream below.
            self._always_streams = True
        async with aclosing(self._stream_once(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    return piece
        raise UnreadableError("the stream has no end")

    async def _stream_in_any_mode(
        self, request: ModelRequest
    ) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the reply in pieces, or in one piece without streaming, then the whole reply."""
        if not self._never_streams:
            has_started = False
            try:
                async with aclosing(self._stream_once(request)) as pieces:
                    async for piece in pieces:
                        has_started = True
                        yield piece
                return
            except Exception as error:
                if has_started:
                    raise
                is_refused = self._is_mode_refused(error, request)
                cannot_stream = is_refused or self._is_missing_stream(error)
                if not cannot_stream:
                    raise
                # The server does not stream, so the reply is requested as a whole below.
            self._never_streams = True  # saves later requests the refusal
        reply = await self._complete_once(request)
        if reply.text:
            yield ModelDelta(reply.text)
        for index, call in enumerate(reply.calls):
            yield ModelDelta(call.arguments, call=index)
        yield reply

    def _is_mode_refused(self, error: Exception, request: ModelRequest) -> bool:
        """Return True if a server refuses to stream a reply, or to send it without streaming."""
        failure = self._explain(error, self._timeout(request))
        message = failure.message
        # Each message contains these names, and the names themselves may contain "stream".
        for name in (self._endpoint.label, self._endpoint.model, self._endpoint.name):
            message = message.replace(name, "")
        return failure.status in _REFUSALS and "stream" in message.lower()

    def _is_unexpected_stream(self, error: Exception) -> bool:
        """Return True if an error means that the server streamed a reply unasked."""
        return False

    def _is_missing_stream(self, error: Exception) -> bool:
        """Return True if an error means that the server did not stream a reply as asked."""
        return False

    def _timeout(self, request: ModelRequest | None = None) -> float:
        """Return the timeout of a request in seconds; the model's default without a request."""
        timeout = request.settings.get("timeout") if request is not None else None
        return float(timeout or self._settings.get("timeout") or DEFAULT_TIMEOUT)

    def _attempts(self, request: ModelRequest) -> Attempts:
        timeout = self._timeout(request)
        return Attempts(
            explain=lambda error: self._explain(error, timeout),
            policy=self._retry,
            sleep=self._sleep,
        )

    @abstractmethod
    def _resolve(self, context: PluginContext, config: LLMConfig) -> Endpoint:
        """Return the endpoint of the configured model."""

    @abstractmethod
    def _prepare(self) -> None:
        """Create the objects that send requests to the endpoint; send nothing yet."""

    @abstractmethod
    async def _complete_once(self, request: ModelRequest) -> ModelReply:
        """Request a complete reply, without retries."""

    @abstractmethod
    def _stream_once(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Request a streamed reply without retries; yield its pieces, then the complete reply."""

    @abstractmethod
    def _explain(self, error: BaseException, timeout: float) -> Failure:
        """Convert an exception of a request to a failure; ``timeout`` is in seconds."""
