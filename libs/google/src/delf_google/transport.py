"""Sends requests to one Google service: tokens, retries, limits, pages."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from delf.errors import ConnectionUnavailableError
from delf.network.bodies import ACCEPTED, BodyEncodingError, BodyTooLargeError, read_body
from delf.network.proxies import async_transport
from delf.network.retries import FIRST_PAUSE, pause, retry_after
from delf.network.tls import trusted
from delf_google.credentials import Tokens
from delf_google.errors import GoogleError, LostAnswerError, Problem
from delf_google.requests import Answer, Request
from delf_google.settings import GoogleSettings

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger(__name__)
RETRIES: Final = 5
"""The times that a request that failed in passing is sent again."""
_LONGEST_WAIT: Final = 70.0
"""Seconds that a call waits in all for a quota: most quotas are of a minute."""
_SLOWEST: Final = 100_000
"""Bytes a second that an upload is given time for."""
_AT_ONCE: Final = 16
_WORTH_TELLING: Final = 5.0
_PASSING: Final = frozenset({500, 502, 503, 504})
_GONE: Final = frozenset({404, 410})

# httpx logs every address; that of an upload lets anybody go on with it.
_ours: ContextVar[bool] = ContextVar("delf_google_request", default=False)


def _not_ours(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _ours.get()


class Transport:
    """The HTTP side of one connection.

    Args:
        name: The connection's name, for messages.
        root: The service's address, with ``/`` at its end.
        settings: Limits.
        tokens: Access tokens.
        scopes: What a login must be given for, for messages.
        sleep: Waits between attempts.
    """

    def __init__(
        self,
        name: str,
        root: str,
        settings: GoogleSettings,
        tokens: Tokens,
        scopes: tuple[str, ...],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.settings = settings
        self.sleep = sleep
        self._root = f"{(settings.base_url or root).rstrip('/')}/"
        self._tokens = tokens
        self._scopes = scopes
        self.headers: dict[str, str] = {}
        """Sent with every request."""
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def json(self, request: Request) -> dict[str, Any]:
        """Send a request; its answer is a JSON object.

        Raises:
            GoogleError: When the service refuses it.
            LoginError: When there is no good login.
            ConnectionUnavailableError: When nothing answers.
        """
        answer = await self.send(request)
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise GoogleError(f"{self._label(request)}: the answer is not JSON") from None

    async def pages(
        self,
        request: Request,
        items: str,
        look: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """The items of all pages, one after the other; a page is had when it is needed.

        Args:
            request: The first page's.
            items: The field that holds them.
            look: Gets each page, for what else it says.
        """
        token: str | None = None
        while True:
            query = {**request.query, "pageToken": token}
            page = await self.json(replace(request, query=query))
            if look is not None:
                look(page)
            for item in cast("list[dict[str, Any]]", page.get(items) or []):
                yield item
            following = page.get("nextPageToken")
            if not following or following == token:
                return
            token = str(following)

    async def send(self, request: Request) -> Answer:
        """Send a request, again where that is safe and may help.

        Raises:
            GoogleError: When the service refuses it.
            LostAnswerError: When it may have been done, and is not to be done twice.
            LoginError: When there is no good login.
            ConnectionUnavailableError: When nothing answers.
        """
        answer = await self.attempts(request)
        if answer.status >= 400:
            raise self.failure(answer, request)
        return answer

    async def attempts(self, request: Request) -> Answer:
        """The same; an answer that refuses is returned, too."""
        import httpx

        doubt, refused_token, failures, waited = False, None, 0, 0.0
        for attempt in itertools.count():
            last = failures >= RETRIES
            token = await self._tokens.get(refused_token)
            try:
                answer = await self._once(request, token)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if last:  # nothing was sent, so any request may be sent again
                    raise self._unreachable(request, error, doubt=doubt) from None
                failures += 1
                await self.sleep(pause(attempt))
                continue
            except httpx.TransportError as error:
                if request.once:
                    raise self._lost(request, _reason(error, self.settings.timeout)) from None
                if last:
                    raise self._unreachable(request, error, doubt=True) from None
                doubt = True
                failures += 1
                await self.sleep(pause(attempt))
                continue
            if answer.status == 401 and refused_token is None:
                refused_token = token
                continue
            if doubt and request.method == "DELETE" and answer.status in _GONE:
                return Answer(204, answer.headers, b"")  # the lost answer was a yes
            wait = self._wait_before_again(answer, request, attempt, waited)
            is_passing = answer.status in _PASSING
            if wait is None or (is_passing and last):
                return replace(answer, in_doubt=doubt, waited=waited)
            doubt = doubt or is_passing
            failures += is_passing
            waited += 0 if is_passing else wait
            await self.sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    def failure(self, answer: Answer, request: Request) -> Exception:
        """The error for an answer that refuses.

        What a service says after an answer that was lost tells nothing of the attempt before:
        it may refuse because that was done.
        """
        problem = Problem(answer.status, answer.content)
        if request.changes and (answer.in_doubt or answer.status in _PASSING):
            said = problem.message if answer.in_doubt else f"HTTP {answer.status}"
            return self._lost(request, said, problem)
        waited = f" (after waiting for {answer.waited:.0f} s)" if answer.waited else ""
        return problem.error(f"{self._label(request)}{waited}", self._scopes)

    def _wait_before_again(
        self, answer: Answer, request: Request, attempt: int, waited: float
    ) -> float | None:
        """Return the seconds until the next attempt; None when there is to be none.

        Most quotas are of a minute: whoever came too fast is let in again after it.

        Args:
            answer: What came.
            request: What was asked.
            attempt: How many came before.
            waited: Seconds that were waited for a quota by now.
        """
        if answer.status < 400:
            return None
        rate = Problem(answer.status, answer.content).is_rate
        # What was refused for its rate was not done; what failed inside may have been.
        if not rate and (answer.status not in _PASSING or request.once):
            return None
        told = retry_after(answer.headers)
        if not rate:
            wait = pause(attempt) if told is None else told
            return wait if wait <= _LONGEST_WAIT else None
        left = _LONGEST_WAIT - waited
        wait = min(pause(attempt), max(left, 0.0)) if told is None else told
        if wait > left or left < FIRST_PAUSE:
            return None
        if wait > _WORTH_TELLING:
            _log.warning("%s: a quota of Google is used up; waiting for %.0f s", self.name, wait)
        return wait

    async def aclose(self) -> None:
        """Close all connections. The next request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    # -- one exchange -------------------------------------------------------------------

    async def _once(self, request: Request, token: str) -> Answer:
        import httpx

        content, headers = request.payload()
        headers |= {**self.headers, "Authorization": f"Bearer {token}"}
        if self._tokens.project:
            headers["X-Goog-User-Project"] = self._tokens.project
        most = request.most or self.settings.max_bytes
        mark = _ours.set(True)
        try:
            client, turn = self._open()
            exchange = client.stream(
                request.method,
                request.url if "://" in request.url else self._root + request.url,
                params=cast("Any", request.pairs) or None,
                content=content,
                headers=headers,
            )
            # Whoever waits for a turn was not sent yet, and has not used up any time.
            limit = self.settings.timeout + len(content or b"") / _SLOWEST
            async with turn, asyncio.timeout(limit), exchange as response:
                content = await read_body(response, most)
                return Answer(response.status_code, response.headers, content)
        except BodyTooLargeError:
            raise GoogleError(
                f"{self._label(request)}: the answer is larger than {most:,} bytes",
                hint="ask for less, or set max_bytes",
            ) from None
        except BodyEncodingError as error:
            raise GoogleError(f"{self._label(request)}: the answer: {error}") from None
        except TimeoutError:
            raise httpx.ReadTimeout("the whole exchange took too long") from None
        except httpx.InvalidURL:
            raise GoogleError(f"{self._label(request)}: its address is not valid") from None
        finally:
            _ours.reset(mark)

    def _open(self) -> tuple[httpx.AsyncClient, asyncio.Semaphore]:
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._client.is_closed or self._loop is not loop:
            self._client = httpx.AsyncClient(
                transport=async_transport(httpx, verify=trusted()),
                timeout=self.settings.timeout,
                headers={"User-Agent": "delf (gzip)", "Accept-Encoding": ACCEPTED},
            )
            logging.getLogger("httpx").addFilter(_not_ours)  # twice changes nothing
            self._loop = loop
            self._turn = asyncio.Semaphore(_AT_ONCE)
        return self._client, self._turn

    def _label(self, request: Request) -> str:
        return f"{self.name}: {request.what}"

    def _lost(
        self, request: Request, reason: str, problem: Problem | None = None
    ) -> LostAnswerError:
        return LostAnswerError(
            f"{self._label(request)}: the answer was lost ({reason}), so it may have been done; "
            "check before you repeat it",
            status=0 if problem is None else problem.status,
            reason="" if problem is None else problem.reason,
        )

    def _unreachable(self, request: Request, error: Exception, *, doubt: bool) -> Exception:
        host = urlsplit(request.url if "://" in request.url else self._root).netloc
        reason = _reason(error, self.settings.timeout)
        if doubt and request.changes:
            return self._lost(request, reason)
        return ConnectionUnavailableError(f"{self._label(request)}: {host}: {reason}")


def _reason(error: Exception, seconds: float) -> str:
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {seconds:g} s"
    return str(error)[:200] or type(error).__name__
