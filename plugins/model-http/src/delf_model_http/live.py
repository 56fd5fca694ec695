"""A conversation over a WebSocket, in a provider's dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
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
    """Translates one live session between delf's requests and a provider's wire protocol.

    An object serves a single session, because the object keeps the session's state.
    """

    def address(self, endpoint: Endpoint, name: str) -> str:
        """Return the WebSocket URL for sessions with a model."""
        ...

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers with the key."""
        ...

    def opening(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return the messages that set up a connection."""
        ...

    def is_open(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event confirms that the session is established."""
        ...

    def client_events(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return the messages that send a request's content and ask for an answer."""
        ...

    def read_session_event(self, event: Mapping[str, Any]) -> None:
        """Process what an event says about the session; such events may come at any time."""
        ...

    def event(self, event: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
        """Add an event to an answer; return the deltas to emit."""
        ...

    @property
    def must_reconnect(self) -> bool:
        """True if the server will close the connection."""
        ...

    @property
    def can_reconnect(self) -> bool:
        """True if another connection can continue the session."""
        ...


class LiveSession:
    """A session with a model over a WebSocket.

    Implements :class:`delf.protocols.model.ModelSession`. If the connection closes between two
    answers, another connection continues the session, if the provider supports that. Otherwise the
    next request raises. A truncated answer raises, too.

    Args:
        dialect: The protocol of the session.
        endpoint: The endpoint.
        address: The WebSocket URL.
        settings: The generation settings.
        to_reply: Converts a complete answer to a reply.
        to_failure: Converts an exception to a failure.
        timeout: The timeout of one answer in seconds.
    """

    def __init__(
        self,
        dialect: LiveDialect,
        endpoint: Endpoint,
        address: str,
        settings: Mapping[str, Any],
        to_reply: Callable[[Answer], ModelReply],
        to_failure: Callable[[Exception], Failure],
        timeout: float,
    ) -> None:
        self._dialect = dialect
        self._endpoint = endpoint
        self._address = address
        self._settings = settings
        self._to_reply = to_reply
        self._to_failure = to_failure
        self._timeout = timeout
        self._socket: ClientConnection | None = None
        self._is_set_up = False
        self._is_over = False
        self._received_bytes = 0

    async def connect(self) -> None:
        """Open the connection.

        Raises:
            DelfError: If the connection fails.
        """
        connect = _connector()
        headers = {**self._dialect.headers(self._endpoint), **self._endpoint.headers}
        proxy = proxy_for(self._address)
        try:
            proxy_address: str | None = None
            if proxy is not None:
                proxy_address = proxy.checked_address(
                    socks_module="python_socks", package="python-socks[asyncio]"
                )
            self._socket = await connect(
                self._address,
                additional_headers=headers,
                user_agent_header="delf",
                proxy=proxy_address,
                max_size=MAX_BYTES,
                open_timeout=CONNECT_SECONDS,
                ping_interval=_PING_SECONDS,
                ping_timeout=_PING_SECONDS,
                close_timeout=_CLOSE_SECONDS,
            )
        except Exception as error:
            raise self._to_failure(error).error() from None

    async def send(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Send new messages; yield the answer in pieces, then the complete reply.

        Args:
            request: A request with only the messages that are new in this session.

        Raises:
            DelfError: If the connection or the model fails.
        """
        if self._is_over:
            raise LLMExecutionError("the session is closed", provider=self._endpoint.provider)
        answer = Answer()
        try:
            async with aclosing(self._answer_pieces(request, answer)) as pieces:
                async for piece in pieces:
                    yield piece
        except Exception as error:
            # Close even if the answer is complete: the server's conversation has a turn that delf
            # could not use, so later turns would not fit.
            await self.aclose()
            if isinstance(error, DelfError):
                raise
            raise self._to_failure(error).error() from None
        finally:
            # If the consumer stops early or is cancelled, the session's state is unknown.
            if not answer.has_model_finished:
                await self.aclose()
        yield self._to_reply(answer)

    async def _answer_pieces(
        self, request: ModelRequest, answer: Answer
    ) -> AsyncGenerator[ModelDelta]:
        """Send new messages, add the response's events to ``answer``, and yield new pieces."""
        self._received_bytes = 0
        async with asyncio.timeout(self._timeout):
            await self._send_new(request)
        deadline = asyncio.get_running_loop().time() + self._timeout
        while not answer.has_model_finished:
            # No timeout around the yield below: it would cancel the code that consumes the pieces.
            async with asyncio.timeout_at(deadline):
                event = await self._receive()
            for piece in self._dialect.event(event, answer):
                yield piece
        for piece in answer.emit_complete_calls():
            yield piece

    async def _send_new(self, request: ModelRequest) -> None:
        """Send the new messages; first replace the connection if it is closed.

        Raises:
            BrokenStreamError: If the provider allows no second connection for a session.
        """
        if not self._is_set_up:
            await self._open(request)
        elif not await self._is_alive():
            if not self._dialect.can_reconnect:
                raise BrokenStreamError("the session ended between two turns")
            await self._close_socket()
            await self.connect()
            await self._open(request)
        for event in self._dialect.client_events(request, self._settings):
            await self._write(event)

    async def _open(self, request: ModelRequest) -> None:
        for event in self._dialect.opening(request, self._settings):
            await self._write(event)
        while not self._dialect.is_open(await self._receive()):
            pass
        self._is_set_up = True

    async def _is_alive(self) -> bool:
        """Process the events that have arrived; return True if the connection remains usable."""
        from websockets.exceptions import ConnectionClosed

        while True:
            try:
                # Read only messages that have arrived: one may announce that the server closes the
                # connection.
                async with asyncio.timeout(0):
                    event = await self._receive()
            except TimeoutError:
                return not self._dialect.must_reconnect
            except ConnectionClosed:
                return False
            self._dialect.read_session_event(event)

    async def _write(self, event: Any) -> None:
        text = json.dumps(event, ensure_ascii=False)
        # Lone surrogates cannot be sent.
        await self._open_socket.send(text.encode("utf-8", "replace").decode())

    async def _receive(self) -> Mapping[str, Any]:
        """Return the next event; raise if it is not a JSON object, or if the answer is too long."""
        data = await self._open_socket.recv()
        self._received_bytes += len(data)
        if self._received_bytes > MAX_STREAM:
            raise UnreadableError(f"it has more than {MAX_STREAM // 1_000_000} MB")
        try:
            event: Any = json.loads(data)
        except (ValueError, RecursionError):
            raise UnreadableError("it is not JSON") from None
        if not isinstance(event, dict):
            raise UnreadableError("it is not an object")
        return event  # pyright: ignore[reportUnknownVariableType]

    @property
    def _open_socket(self) -> ClientConnection:
        if self._socket is None:
            raise BrokenStreamError("it is closed")
        return self._socket

    async def _close_socket(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            with suppress(OSError):
                await socket.close()

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        self._is_over = True
        await self._close_socket()


def _connector() -> Any:
    try:
        from websockets.asyncio.client import connect
    except ImportError:
        raise OptionalDependencyError(
            "sessions of models need websockets", package="delf-plugin-model-http[live]"
        ) from None
    return connect
