"""HTTP transport: retries, redirects, tokens, and limits of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from delf.errors import ConnectionUnavailableError, OutcomeUnknownError, ToolExecutionError
from delf.network.addresses import is_private
from delf.network.bodies import BodyEncodingError, BodyTooLargeError
from delf.network.client import Attempts, HttpClient, NoAnswerError, Progress, Retry
from delf.network.retries import pause, retry_after
from delf.network.urls import join_url
from delf_openapi.answers import CHECK_HINT, Answer, scrub
from delf_openapi.requests import Request
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import origin_of
from delf_openapi.tokens import Tokens

_TEMPORARY_STATUSES: Final = frozenset({429, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 5
# The maximum number of concurrent requests: httpx's default number of connections.
_MAX_CONNECTIONS: Final = 100
_MIN_SECRET: Final = 8


def _unread_answer_error(request: Request, text: str) -> ToolExecutionError:
    """Return the error for a request that the service received, with an unreadable response."""
    if request.is_repeatable:
        return ToolExecutionError(text)
    return OutcomeUnknownError(f"{text}. The {request.method} may have been done", hint=CHECK_HINT)


def _redirect_error(message: _Message, request: Request, text: str) -> ToolExecutionError:
    """Return the error for a message without a usable answer.

    If the message is a GET to which the service redirected a write, the write may have been done.
    """
    if message.replaces_write:
        return _unread_answer_error(request, text)
    return ToolExecutionError(text)


@dataclass(frozen=True, slots=True)
class _Message:
    """A request without its URL, as it is sent before or after a redirect.

    Args:
        method: The method.
        query: The query.
        headers: The headers.
        content: The content; None without content.
        replaces_write: Whether the message is a GET to which the service redirected a write. The
            service has then received the write.
    """

    method: str
    query: str
    headers: Mapping[str, str]
    content: bytes | None
    replaces_write: bool = False

    def after_redirect(self, status: int) -> _Message:
        """Return the message to send to the new URL after a redirect.

        After status 303, and for a POST after 301 or 302, the message has no content and the method
        GET; but a HEAD stays a HEAD. In all other cases, the message stays the same.
        """
        is_post_moved = status in (301, 302) and self.method == "POST"
        if status != 303 and not is_post_moved:
            return self
        method = "HEAD" if self.method == "HEAD" else "GET"
        headers = {name: text for name, text in self.headers.items() if name != "Content-Type"}
        replaces_write = self.replaces_write or method != self.method
        return replace(
            self, method=method, headers=headers, content=None, replaces_write=replaces_write
        )

    def without_call_data(self) -> _Message:
        """Return the message for another origin: without credentials, arguments and content."""
        headers = {name: text for name, text in self.headers.items() if name == "Accept"}
        return replace(self, query="", headers=headers, content=None)


def _with_query(url: str, query: str) -> str:
    """Add a query to a URL, unless the URL has the whole query already, as after a redirect."""
    present = urlsplit(url).query.split("&")
    missing = [parameter for parameter in query.split("&") if parameter not in ("", *present)]
    if not missing:
        return url
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}{query}"


class Transport:
    """Sends the HTTP requests of one API.

    Args:
        name: The connection's name, for messages.
        settings: The settings with timeout, retries, limits and OAuth2 credentials.
        hide_in_messages: Receives each obtained OAuth2 token, to redact the token in messages.
    """

    def __init__(
        self,
        name: str,
        settings: OpenAPISettings,
        hide_in_messages: Callable[[str], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._client = HttpClient(settings.timeout, _MAX_CONNECTIONS)
        self._checked_hosts: set[str] = set()
        self._tokens = Tokens(name, settings, self._send_with_retries, hide_in_messages)

    async def send(self, request: Request) -> Answer:
        """Send a request and read the response, which may have any status.

        Raises:
            ConnectionUnavailableError: If the server cannot be reached, or does not answer in time.
            OutcomeUnknownError: If the request may have been executed, but no response was read.
            ToolExecutionError: If the response is too large or redirects to a forbidden address.
        """
        # A specification from a server (``spec_host``) must not direct requests to a private
        # network. The user's own settings may.
        has_remote_spec = request.spec_host is not None
        if has_remote_spec and not self._settings.base_url:
            await self._check_public(request.url, request, "the API")
        if request.token_url is None:
            return _redact_credentials(await self._send_with_retries(request), request)
        if has_remote_spec and self._settings.token_url is None:
            await self._check_public(request.token_url, request, "the token server")
        token = await self._tokens.get(request.token_url)
        _use_token(request, token)
        answer = await self._send_with_retries(request)
        # A request refused with 401 has done nothing, so it may be sent again. But a redirect may
        # have replaced a write by a GET: then the server has received the write already.
        may_send_again = request.is_repeatable or not answer.replaces_write
        if answer.status == 401 and may_send_again:
            # The token was revoked early.
            _use_token(request, await self._tokens.get(request.token_url, instead_of=token))
            answer = await self._send_with_retries(request)
        return _redact_credentials(answer, request)

    async def aclose(self) -> None:
        """Close all connections. The next call opens new connections."""
        await self._client.aclose()

    async def _check_public(self, url: str, request: Request, server: str) -> None:
        """Raise if a specification from a public address directs a request to a private network.

        Args:
            url: The URL that is requested.
            request: The request that needs the URL.
            server: The server of the URL in words, for the message.

        Raises:
            ToolExecutionError: If the URL is in a private network.
        """
        host = urlsplit(url).hostname or ""
        spec_host = request.spec_host or ""
        if host == spec_host or host in self._checked_hosts:
            return
        is_host_private = await asyncio.to_thread(is_private, host)
        if is_host_private and not await asyncio.to_thread(is_private, spec_host):
            setting = "base_url" if url == request.url else "token_url"
            raise ToolExecutionError(
                f"{request.label}: the specification says that {server} is at {host}, a private "
                "address",
                hint=f"if the address is right, set {setting} to it",
            )
        self._checked_hosts.add(host)

    # -- attempts -----------------------------------------------------------------------

    async def _send_with_retries(self, request: Request) -> Answer:
        attempts = Attempts[Answer](
            self._settings.retries,
            is_repeatable=request.is_repeatable,
            retry_rule=lambda answer, progress: self._retry_for(answer, request, progress),
        )
        try:
            return await attempts.answer(lambda: self._follow(request))
        except NoAnswerError as error:
            raise self._no_answer_error(request, error) from None

    def _retry_for(self, answer: Answer, request: Request, progress: Progress) -> Retry | None:
        """Return the delay before repeating a request; None if ``answer`` is to be accepted."""
        if answer.status not in _TEMPORARY_STATUSES or not request.is_repeatable:
            return None
        seconds = retry_after(answer.headers)
        if seconds is None:
            return Retry(seconds=pause(progress.attempts))
        if seconds <= self._settings.max_wait:
            return Retry(seconds=seconds)
        return None

    def _no_answer_error(
        self, request: Request, error: NoAnswerError
    ) -> ConnectionUnavailableError | OutcomeUnknownError:
        host = urlsplit(request.url).netloc
        reason = scrub(error.reason(self._settings.timeout), request)
        text = f"{request.label}: {host} cannot be reached: {reason}"
        if error.may_have_taken_effect and not request.is_repeatable:
            return OutcomeUnknownError(f"{text}, so it may have been done", hint=CHECK_HINT)
        return ConnectionUnavailableError(text)

    # -- redirects ----------------------------------------------------------------------

    async def _follow(self, request: Request) -> Answer:
        """Send a request and follow redirects.

        After a redirect that makes a GET of a write, the write counts as received. If no answer can
        be read then, the outcome of the write is unknown, and the write is not repeated.

        Raises:
            NoAnswerError: If a received write gets no answer.
            httpx.TransportError: If any other request gets no answer.
            OutcomeUnknownError: If the answer to a received write cannot be read.
            ToolExecutionError: If the answer to any other request cannot be read.
        """
        import httpx

        headers = {**request.headers, **request.secret_headers}
        message = _Message(request.method, request.query, headers, request.content)
        try:
            url = _with_query(request.url, request.query)
            for _ in range(_MAX_REDIRECTS + 1):
                answer = await self._once(message, url, request)
                if answer.status not in _REDIRECTS:
                    return answer
                message = message.after_redirect(answer.status)
                location = answer.headers.get("location", "")
                url, message = await _redirected(url, location, message, request)
        except httpx.TransportError as error:
            if request.is_repeatable or not message.replaces_write:
                raise
            raise NoAnswerError(error, may_have_taken_effect=True) from None
        except OutcomeUnknownError:  # it already says what is unknown
            raise
        except ToolExecutionError as error:
            raise _redirect_error(message, request, error.message) from None
        raise _redirect_error(message, request, f"{request.label}: over {_MAX_REDIRECTS} redirects")

    # -- one exchange -------------------------------------------------------------------

    async def _once(self, message: _Message, url: str, request: Request) -> Answer:
        """Send one HTTP request; return the response, which may have any status.

        Args:
            message: The message to send.
            url: The URL, with the query.
            request: The request of the call, which may have been redirected.

        Raises:
            ToolExecutionError: If the response is too large or unreadable, or if the request cannot
                be sent as HTTP.
        """
        import httpx

        label = request.label
        limit = self._settings.max_response_bytes
        pairs = [(k.encode("latin-1", "replace"), v.encode()) for k, v in message.headers.items()]
        try:
            return Answer(
                *await self._client.exchange(
                    message.method, url, headers=pairs, content=message.content, max_bytes=limit
                ),
                replaces_write=message.replaces_write,
            )
        except BodyTooLargeError:
            raise _unread_answer_error(
                request, f"{label}: the answer is larger than {limit:,} bytes; ask for less"
            ) from None
        except BodyEncodingError as error:
            raise _unread_answer_error(request, f"{label}: the answer: {error}") from None
        except httpx.LocalProtocolError:  # the message may contain a header's value
            raise ToolExecutionError(f"{label}: it cannot be sent as HTTP") from None
        except httpx.RemoteProtocolError as error:
            # httpx parses the Location header also if it does not follow redirects.
            if "location header" not in str(error):
                raise
            raise ToolExecutionError(f"{label}: it redirects to no valid address") from None
        except httpx.InvalidURL:
            raise ToolExecutionError(f"{label}: its address is not valid") from None


async def _redirected(
    url: str, location: str, message: _Message, request: Request
) -> tuple[str, _Message]:
    """Return the URL of a redirect and the message for it.

    Credentials are sent to the request's own origin only.

    Args:
        url: The URL that was redirected.
        location: The Location header; empty without one.
        message: The message.
        request: The request of the call.
    """
    if not location:
        raise ToolExecutionError(f"{request.label}: it redirects to no address")
    original_origin = origin_of(request.url)
    new_url = _redirect_url(url, location, request.label)
    if origin_of(new_url) != original_origin:
        await check_redirect(new_url, original_origin, message.method, request.label)
        message = message.without_call_data()
    # A redirect within the API may drop the query, which can hold the key: add it again.
    return _with_query(new_url, message.query), message


async def check_redirect(url: str, original_origin: str, method: str, label: str) -> None:
    """Raise if a redirect to another origin is unsafe.

    A redirect to another origin is unsafe

    - if the request writes,
    - if the redirect leads from ``https`` to ``http``,
    - if the redirect leads from a public to a private address, or
    - if its target is no web address.
    """
    host = urlsplit(url).hostname or ""
    where = f"{label}: it redirects to {urlsplit(url).scheme}://{host}"
    if urlsplit(url).scheme not in ("http", "https") or not host:
        raise ToolExecutionError(f"{where}, which is not a web address")
    if method not in ("GET", "HEAD"):
        raise ToolExecutionError(
            f"{where}, and only a request that reads may follow to another server"
        )
    if original_origin.startswith("https://") and not url.startswith("https://"):
        raise ToolExecutionError(f"{where}, from a secure to an insecure address")
    original_host = urlsplit(original_origin).hostname or ""
    is_target_private = await asyncio.to_thread(is_private, host)
    if is_target_private and not await asyncio.to_thread(is_private, original_host):
        raise ToolExecutionError(f"{where}, a private address")


def _use_token(request: Request, token: str) -> None:
    """Add an OAuth2 token to a request's secret headers, which are redacted in messages."""
    request.secret_headers = {**request.secret_headers, "Authorization": f"Bearer {token}"}


def _redact_credentials(answer: Answer, request: Request) -> Answer:
    """Redact a request's credentials in the body of its response, and return the response."""
    credentials = request.secret_headers.get("Authorization", "").partition(" ")[2].encode()
    if len(credentials) >= _MIN_SECRET and credentials in answer.content:
        answer.content = answer.content.replace(credentials, b"[redacted]")
    return answer


def _redirect_url(url: str, location: str, label: str) -> str:
    """Return the absolute URL of a redirect without credentials.

    Args:
        url: The URL of the request.
        location: The Location header.
        label: The request, for messages.

    Raises:
        ToolExecutionError: If the redirect has no valid address.
    """
    new_url = join_url(url, location)
    if new_url is None:
        raise ToolExecutionError(f"{label}: it redirects to no valid address")
    parts = urlsplit(new_url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, fragment="").geturl()
