"""A conversation over a WebSocket, in a provider's dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.errors import DelfError, LLMExecutionError, OptionalDependencyError
from delf.messages import ModelDelta, ModelReply, ModelRequest
from delf.network.proxies import proxy_for
from delf_model_http.answer import Answer
from delf_model_http.events import MAX_BYTES, MAX_STREAM
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.failures import BrokenStreamError, Failure, UnreadableError
from delf_model_providers.pool import CONNECT_SECONDS

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_PING_SECONDS: Final = 20.0
_CLOSE_SECONDS: Final = 2.0


class LiveDialect(Protocol):
    """The protocol and state of one provider's session."""

    def address(self, endpoint: Endpoint, name: str) -> str:
        """Return the address for sessions of a model."""
        ...

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers that name the client."""
        ...

    def opening(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return the first messages of a connection, before the task."""
        ...

    def is_open(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event confirms a usable connection."""
        ...

    def messages_for(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return the messages that send new content and request an answer."""
        ...

    def between(self, event: Mapping[str, Any]) -> None:
        """Process an event that arrived outside of a turn."""
        ...

    def event(self, event: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
        """Process a stream event; return its deltas."""
        ...

    @property
    def must_move(self) -> bool:
        """True if the server requires the conversation to continue in another connection."""
        ...

    @property
    def can_move(self) -> bool:
        """True if another connection can continue the conversation."""
        ...


class LiveSession:
    """An open session with a model. Implements :class:`delf.protocols.model.ModelSession`.

    A connection that closed between two turns is replaced if the provider can continue the
    conversation; otherwise the next request raises. A truncated answer raises, too.

    Args:
        dialect: The protocol.
        endpoint: The endpoint.
        address: The WebSocket address.
        settings: The generation settings.
        reply: Builds the reply from an answer.
        explain: Explains a failure.
        timeout: Seconds for one answer.
    """

    def __init__(
        self,
        dialect: LiveDialect,
        endpoint: Endpoint,
        address: str,
        settings: Mapping[str, Any],
        reply: Callable[[Answer], ModelReply],
        explain: Callable[[Exception], Failure],
        timeout: float,
    ) -> None:
        self._dialect = dialect
        self._endpoint = endpoint
        self._address = address
        self._settings = settings
        self._reply = reply
        self._explain = explain
        self._timeout = timeout
        self._socket: ClientConnection | None = None
        self._is_begun = False
        self._is_over = False
        self._bytes = 0

    async def connect(self) -> None:
        """Open the connection.

        Raises:
            DelfError: If the connection fails.
        """
        connect = _connector()
        headers = {**self._dialect.headers(self._endpoint), **self._endpoint.headers}
        proxy = proxy_for(self._address)
        try:
            self._socket = await connect(
                self._address,
                additional_headers=headers,
                user_agent_header="delf",
                proxy=proxy and proxy.checked_address("python_socks", "python-socks[asyncio]"),
                max_size=MAX_BYTES,
                open_timeout=CONNECT_SECONDS,
                ping_interval=_PING_SECONDS,
                ping_timeout=_PING_SECONDS,
                close_timeout=_CLOSE_SECONDS,
            )
        except Exception as error:
            raise self._explain(error).error() from None

    async def send(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Send new messages; yield the answer in pieces, then the complete reply.

        Args:
            request: A request with only the new messages of this session.

        Raises:
            DelfError: If the session broke.
        """
        if self._is_over:
            raise LLMExecutionError("the session is closed", provider=self._endpoint.provider)
        answer = Answer()
        self._bytes = 0
        try:
            async with asyncio.timeout(self._timeout):
                await self._send_new(request)
            deadline = asyncio.get_running_loop().time() + self._timeout
            while not answer.ended:
                # A deadline for the whole answer, but only around this wait: around the yield it
                # would cancel the consumer.
                async with asyncio.timeout_at(deadline):
                    event = await self._receive()
                for piece in self._dialect.event(event, answer):
                    yield piece
            for piece in answer.complete():
                yield piece
        except DelfError:
            await self.aclose()
            raise
        except Exception as error:
            await self.aclose()
            raise self._explain(error).error() from None
        finally:
            if not answer.ended:  # the session's state is unknown
                await self.aclose()
        yield self._reply(answer)

    async def _send_new(self, request: ModelRequest) -> None:
        """Send the new messages, over another connection if the last has ended."""
        if not self._is_begun:
            await self._open(request)
        elif not await self._is_alive():
            if not self._dialect.can_move:
                raise BrokenStreamError("it ended between two turns")
            await self._leave()
            await self.connect()
            await self._open(request)
        for event in self._dialect.messages_for(request, self._settings):
            await self._write(event)

    async def _open(self, request: ModelRequest) -> None:
        for event in self._dialect.opening(request, self._settings):
            await self._write(event)
        while not self._dialect.is_open(await self._receive()):
            pass
        self._is_begun = True

    async def _is_alive(self) -> bool:
        """Process pending messages; return True if the connection is usable."""
        from websockets.exceptions import ConnectionClosed

        while True:
            try:
                # Without waiting: a pending message may announce that the server closes.
                async with asyncio.timeout(0):
                    event = await self._receive()
            except TimeoutError:
                return not self._dialect.must_move
            except ConnectionClosed:
                return False
            self._dialect.between(event)

    async def _write(self, event: Any) -> None:
        await self._open_socket.send(json.dumps(event, ensure_ascii=False))

    async def _receive(self) -> Mapping[str, Any]:
        """Return the next event; fail if the server sends too much or no JSON object."""
        data = await self._open_socket.recv()
        self._bytes += len(data)
        if self._bytes > MAX_STREAM:
            raise UnreadableError(f"it has more than {MAX_STREAM // 1_000_000} MB")
        try:
            event: Any = json.loads(data)
        except ValueError:
            raise UnreadableError("it is not JSON") from None
        if not isinstance(event, dict):
            raise UnreadableError("it is not an object")
        return event  # pyright: ignore[reportUnknownVariableType]

    @property
    def _open_socket(self) -> ClientConnection:
        if self._socket is None:
            raise BrokenStreamError("it is closed")
        return self._socket

    async def _leave(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            with suppress(OSError):
                await socket.close()

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        self._is_over = True
        await self._leave()


def _connector() -> Any:
    try:
        from websockets.asyncio.client import connect
    except ImportError:
        raise OptionalDependencyError(
            "sessions of models need websockets", package="delf-plugin-model-http[live]"
        ) from None
    return connect
