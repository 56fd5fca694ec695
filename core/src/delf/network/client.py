"""An HTTP client for services, with size and time limits and retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from delf.network.bodies import ACCEPTED, BodyTruncatedError, read_body
from delf.network.proxies import async_transport
from delf.network.retries import pause
from delf.network.tls import default_context
from delf.records import dataclass

if TYPE_CHECKING:
    import httpx

A = TypeVar("A")

# True during a request of delf. httpx's log messages about such a request are dropped, because they
# contain its URL, and the query of a URL may contain credentials.
_is_own_request: ContextVar[bool] = ContextVar("delf_network_request", default=False)
_httpx_log: Final = logging.getLogger("httpx")


def _is_logged(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _is_own_request.get()


class Reply(NamedTuple):
    """A complete HTTP response."""

    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes


class HttpClient:
    """A pool of HTTP connections to a service, for use in one event loop.

    Redirects are not followed and cookies are not kept. Proxies are read from the environment.

    Args:
        timeout: Seconds for one exchange, counted from sending the request.
        max_concurrent: The maximum number of concurrent exchanges; further exchanges wait for
            another exchange to end.
        user_agent: The ``User-Agent`` header.
    """

    def __init__(self, timeout: float, max_concurrent: int, user_agent: str = "delf") -> None:
        self._timeout = timeout
        self._max_concurrent = max_concurrent
        self._user_agent = user_agent
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._semaphore = asyncio.Semaphore(max_concurrent)

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | Sequence[tuple[bytes, bytes]],
        content: bytes | None,
        max_bytes: int,
        params: Sequence[tuple[str, str]] | None = None,
        more_seconds: float = 0.0,
    ) -> Reply:
        """Send a request once and read the whole response.

        Args:
            method: The HTTP method.
            url: The address.
            headers: Headers in addition to the client's own.
            content: The request body.
            max_bytes: The maximum number of bytes of the response body, as received and
                decompressed.
            params: Parameters to add to the query.
            more_seconds: Seconds to add to the timeout, such as for a large body.

        Raises:
            httpx.TransportError: If no whole response arrives in time.
            httpx.InvalidURL: If the address is invalid.
            BodyError: If the body is too large or cannot be decompressed.
        """
        import httpx

        token = _is_own_request.set(True)  # hides httpx's log message with the address
        try:
            client, semaphore = self._open()
            sent_headers: Any = headers if isinstance(headers, Mapping) else list(headers)
            query: Any = None if params is None else list(params)
            exchange = client.stream(
                method, url, params=query, headers=sent_headers, content=content
            )
            # The timeout starts after the wait for the semaphore, as the request is not sent
            # before.
            limit = self._timeout + more_seconds
            async with semaphore, asyncio.timeout(limit), exchange as response:
                body = await read_body(response, max_bytes)
                return Reply(response.status_code, response.reason_phrase, response.headers, body)
        except TimeoutError:
            raise httpx.ReadTimeout("the whole exchange took too long") from None
        except BodyTruncatedError as error:
            raise httpx.RemoteProtocolError(str(error)) from None
        finally:
            _is_own_request.reset(token)

    async def aclose(self) -> None:
        """Close all connections. A later request opens new connections.

        Connections of another event loop are abandoned, because only that loop could close them.
        """
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def _open(self) -> tuple[httpx.AsyncClient, asyncio.Semaphore]:
        """Return the client and the semaphore of the running event loop."""
        import httpx

        loop = asyncio.get_running_loop()
        # Connections belong to the event loop that opened them.
        if self._client is None or self._client.is_closed or self._loop is not loop:
            self._client = httpx.AsyncClient(
                transport=async_transport(httpx, verify=default_context()),
                timeout=self._timeout,
                headers={"User-Agent": self._user_agent, "Accept-Encoding": ACCEPTED},
            )
            # No cookies: a session that one task began must not be used by another.
            self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
            _httpx_log.addFilter(_is_logged)  # adding it twice changes nothing
            self._loop = loop
            self._semaphore = asyncio.Semaphore(self._max_concurrent)
        return self._client, self._semaphore


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of a request that is attempted several times.

    Args:
        attempts: The number of finished attempts.
        failures: The number of finished attempts that used up a retry.
        may_have_taken_effect: Whether the service may have executed the request although no attempt
            succeeded.
        waited: The total seconds of pauses that used up no retry, such as for a quota.
    """

    attempts: int = 0
    failures: int = 0
    may_have_taken_effect: bool = False
    waited: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The decision to send a request again after a response with an error.

    Args:
        seconds: The pause before the next attempt.
        is_failure: Whether the attempt uses up a retry.
        may_have_taken_effect: Whether the service may have executed the request.
    """

    seconds: float
    is_failure: bool = True
    may_have_taken_effect: bool = False


class NoAnswerError(Exception):
    """A request got no response, and no retry is left or safe.

    Args:
        error: The last failure.
        may_have_taken_effect: Whether the service may have executed the request.
    """

    def __init__(self, error: Exception, *, may_have_taken_effect: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.may_have_taken_effect = may_have_taken_effect

    def reason(self, seconds: float) -> str:
        """Describe the failure for an error message.

        Args:
            seconds: The timeout of the exchange.
        """
        import httpx

        if isinstance(self.error, httpx.TimeoutException):
            return f"no answer within {seconds:g} s"
        return str(self.error)[:200] or type(self.error).__name__


class Attempts(Generic[A]):
    """Sends a request and retries where a retry is safe and may help.

    Args:
        retries: The maximum number of retries.
        is_repeatable: Whether the request is idempotent.
        retry_rule: Returns the :class:`Retry` to make after a response, or None to accept the
            response. A response with an error is accepted, for example, if the server asks for a
            longer pause than the rule allows.
        sleep: Awaitable sleep between attempts.
    """

    def __init__(
        self,
        retries: int,
        *,
        is_repeatable: bool,
        retry_rule: Callable[[A, Progress], Retry | None],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._retries = retries
        self._is_repeatable = is_repeatable
        self._retry_rule = retry_rule
        self._sleep = sleep
        self.progress = Progress()

    async def answer(self, send: Callable[[], Awaitable[A]]) -> A:
        """Send the request until a response is accepted or no retry is left.

        If no connection could be made, a retry is always safe. If the response was lost, the
        request is retried only if it is repeatable.

        Args:
            send: Sends the request once.

        Returns:
            The response to the last attempt, which may be an error if no retry is left.

        Raises:
            NoAnswerError: If the last attempt got no response.
        """
        import httpx

        while True:
            try:
                answer = await send()
            except httpx.TransportError as error:
                retry = self._retry_without_response(error)
            else:
                retry = self._retry_rule(answer, self.progress)
                if retry is None or not self._may_retry(retry):
                    return answer
            self._count(retry)
            await self._sleep(retry.seconds)

    def _retry_without_response(self, error: httpx.TransportError) -> Retry:
        """Return the retry to make after an attempt that got no response.

        Raises:
            NoAnswerError: If no retry is left, or if a retry is not safe.
        """
        import httpx

        # Without a connection nothing was sent; after any other failure the request may have
        # arrived.
        is_sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        retry = Retry(seconds=pause(self.progress.attempts), may_have_taken_effect=is_sent)
        is_safe = self._is_repeatable or not is_sent
        if is_safe and self._may_retry(retry):
            return retry
        raise NoAnswerError(
            error, may_have_taken_effect=is_sent or self.progress.may_have_taken_effect
        ) from None

    def _may_retry(self, retry: Retry) -> bool:
        """Return False if a retry would exceed the maximum number of retries."""
        return not retry.is_failure or self.progress.failures < self._retries

    def _count(self, retry: Retry) -> None:
        """Count the finished attempt in the progress, before its retry."""
        progress = self.progress
        progress.attempts += 1
        progress.may_have_taken_effect |= retry.may_have_taken_effect
        if retry.is_failure:
            progress.failures += 1
        else:  # the server only asked for a pause
            progress.waited += retry.seconds
