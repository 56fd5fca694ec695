"""Sends requests: retries, redirects, tokens, and limits on what comes back."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urljoin, urlsplit

from delf.errors import ConnectionUnavailableError, ToolExecutionError
from delf_openapi.answers import Answer, scrub
from delf_openapi.requests import Request
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import is_private, loads, origin_of

if TYPE_CHECKING:
    import httpx

_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "QUERY"})
_PASSING: Final = frozenset({429, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 5
_FIRST_WAIT: Final = 0.5
_TOKEN_MARGIN: Final = 30.0


# httpx logs every address, and with it the credentials in queries.
_ours: ContextVar[bool] = ContextVar("delf_openapi_request", default=False)
_httpx_log: Final = logging.getLogger("httpx")


def _not_ours(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _ours.get()


class Transport:
    """The HTTP side of one API.

    Args:
        name: The connection's name, for messages.
        settings: Time, retries, limits and OAuth2 credentials.
        sleep: Waits between attempts.
    """

    def __init__(
        self,
        name: str,
        settings: OpenAPISettings,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._settings = settings
        self._sleep = sleep
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tokens: dict[str, tuple[str, float]] = {}

    async def send(self, request: Request) -> Answer:
        """Send a request and read its answer, whatever its status.

        Raises:
            ConnectionUnavailableError: When nothing answers, or not in time.
            ToolExecutionError: When the answer is too large, or leads where it must not.
        """
        if request.oauth is None:
            return await self._attempts(request)
        answer = await self._attempts(await self._with_token(request))
        if answer.status == 401:
            self._tokens.pop(request.oauth, None)
            answer = await self._attempts(await self._with_token(request))
        return answer

    async def aclose(self) -> None:
        """Close all connections. The next call opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    # -- attempts -----------------------------------------------------------------------

    async def _attempts(self, request: Request) -> Answer:
        import httpx

        retries = self._settings.retries
        for attempt in range(retries + 1):
            last = attempt == retries
            try:
                answer = await self._follow(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if last:  # nothing was sent, so any method may be tried again
                    raise self._unreachable(request, error) from None
                await self._sleep(self._pause(attempt))
            except httpx.TransportError as error:
                if last or request.method not in _IDEMPOTENT:
                    raise self._unreachable(request, error) from None
                await self._sleep(self._pause(attempt))
            else:
                wait = self._wait_for(answer, attempt)
                if last or wait is None or request.method not in _IDEMPOTENT:
                    return answer
                await self._sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    def _pause(self, attempt: int) -> float:
        # Not for secrets: clients that failed together should not come back together.
        return _FIRST_WAIT * 2**attempt * (0.75 + random.random() / 2)  # noqa: S311

    def _wait_for(self, answer: Answer, attempt: int) -> float | None:
        """How long to wait before the next attempt; None when there is to be none."""
        if answer.status not in _PASSING:
            return None
        told = _retry_after(answer.headers)
        if told is None:
            return self._pause(attempt)
        return told if told <= self._settings.max_wait else None

    def _unreachable(self, request: Request, error: Exception) -> ConnectionUnavailableError:
        import httpx

        host = urlsplit(request.url).netloc
        seconds = self._settings.timeout
        if isinstance(error, httpx.TimeoutException):
            reason = f"{host} did not answer within {seconds:g} s"
        else:
            reason = f"{host} cannot be reached: {scrub(str(error), request)[:200]}"
        return ConnectionUnavailableError(f"{request.label}: {reason}")

    # -- redirects ----------------------------------------------------------------------

    async def _follow(self, request: Request) -> Answer:
        """One attempt, with its redirects. Credentials stay with the origin they are for."""
        home = origin_of(request.url)
        method, content = request.method, request.content
        url = request.url
        headers = dict(request.headers)
        for hop in range(_MAX_REDIRECTS + 1):
            at_home = origin_of(url) == home
            query = request.query if at_home and (hop == 0 or request.query not in url) else ""
            target = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
            sent = {**headers, **request.secret} if at_home else headers
            answer = await self._once(method, target, sent, content, request.label)
            place = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not place:
                return answer
            url = urljoin(url, place).partition("#")[0]
            if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
                method = "HEAD" if method == "HEAD" else "GET"
                content = None
                headers.pop("Content-Type", None)
            await self._check_redirect(url, home, method, request.label)
        raise ToolExecutionError(f"{request.label}: over {_MAX_REDIRECTS} redirects")

    async def _check_redirect(self, url: str, home: str, method: str, label: str) -> None:
        if origin_of(url) == home:
            return
        host = urlsplit(url).hostname or ""
        where = f"{label}: it redirects to {urlsplit(url).scheme}://{host}"
        if urlsplit(url).scheme not in ("http", "https") or not host:
            raise ToolExecutionError(f"{where}, which is no web address")
        if method not in ("GET", "HEAD"):
            raise ToolExecutionError(f"{where}, and only reading follows to another server")
        if home.startswith("https://") and not url.startswith("https://"):
            raise ToolExecutionError(f"{where}, from a secure to an insecure address")
        if await asyncio.to_thread(is_private, host) and not await asyncio.to_thread(
            is_private, urlsplit(home).hostname or ""
        ):
            raise ToolExecutionError(f"{where}, a private address")

    # -- one exchange -------------------------------------------------------------------

    async def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None,
        label: str,
    ) -> Answer:
        limit = self._settings.max_response_bytes
        pairs = [(k.encode("latin-1", "replace"), v.encode()) for k, v in headers.items()]
        client = self._open()
        _ours.set(True)
        exchange = client.stream(method, url, headers=pairs, content=content)
        try:
            async with asyncio.timeout(self._settings.timeout), exchange as response:
                parts: list[bytes] = []
                size = 0
                async for part in response.aiter_bytes():
                    size += len(part)
                    if size > limit:
                        raise ToolExecutionError(
                            f"{label}: the answer is larger than {limit:,} bytes; ask for less"
                        )
                    parts.append(part)
                head = response.status_code, response.reason_phrase, response.headers
                return Answer(*head, b"".join(parts))
        except TimeoutError:
            import httpx

            raise httpx.ReadTimeout("the whole exchange took too long") from None

    def _open(self) -> httpx.AsyncClient:
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._client.is_closed or self._loop is not loop:
            self._client = httpx.AsyncClient(
                timeout=self._settings.timeout, headers={"User-Agent": "delf"}
            )
            _httpx_log.addFilter(_not_ours)  # adding it twice changes nothing
            # Cookies that a service sets are not carried from call to call.
            self._client.cookies.jar.set_policy(_no_cookies())
            self._loop = loop
        return self._client

    # -- OAuth2 client credentials ------------------------------------------------------

    async def _with_token(self, request: Request) -> Request:
        import dataclasses

        token = await self._token(cast("str", request.oauth))
        secret = {**request.secret, "Authorization": f"Bearer {token}"}
        return dataclasses.replace(request, secret=secret, oauth=None)

    async def _token(self, url: str) -> str:
        known = self._tokens.get(url)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        import base64
        from urllib.parse import quote_plus, urlencode

        settings = self._settings
        secret = settings.client_secret.get_secret_value() if settings.client_secret else ""
        pair = f"{quote_plus(settings.client_id or '')}:{quote_plus(secret)}"
        form = {"grant_type": "client_credentials"}
        if settings.scopes:
            form["scope"] = " ".join(settings.scopes)
        if urlsplit(url).scheme != "https" and not is_private(urlsplit(url).hostname or ""):
            raise ToolExecutionError(f"{self._name}: the token's address is not secure (http)")
        request = Request(
            label="the OAuth2 token",
            method="POST",
            url=url,
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
            content=urlencode(form).encode(),
            secret={"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"},
            query="",
        )
        answer = await self._attempts(request)
        try:
            body: Any = loads(answer.content)
            token, seconds = str(body["access_token"]), float(body.get("expires_in") or 300)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ToolExecutionError(
                f"{self._name}: no OAuth2 token was given: status {answer.status}",
                hint="check client_id, client_secret and scopes",
            ) from None
        self._tokens[url] = token, time.monotonic() + max(0.0, seconds - _TOKEN_MARGIN)
        return token


def _no_cookies() -> Any:
    from http.cookiejar import DefaultCookiePolicy

    return DefaultCookiePolicy(allowed_domains=[])


def _retry_after(headers: Mapping[str, str]) -> float | None:
    told = headers.get("retry-after", "").strip()
    if not told:
        return None
    try:
        return max(0.0, float(told))
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(told)
    except (ValueError, TypeError):
        return None
    return max(0.0, moment.timestamp() - time.time())
