"""HTTP transport: retries, redirects, tokens, and limits of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from delf.errors import ConnectionUnavailableError, OutcomeUnknownError, ToolExecutionError
from delf.network.bodies import BodyEncodingError, BodyTooLargeError
from delf.network.client import Attempts, HttpClient, NoAnswerError, Progress, Retry
from delf.network.retries import pause, retry_after
from delf_openapi.answers import LOOK, Answer, scrub
from delf_openapi.requests import IDEMPOTENT, Request
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import is_private, origin_of
from delf_openapi.tokens import Tokens

_PASSING: Final = frozenset({429, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 5
# As many as httpx keeps open.
_AT_ONCE: Final = 100
_MIN_SECRET: Final = 8


def _unread_answer_error(method: str, text: str) -> ToolExecutionError:
    """Return the error for an unreadable answer to a request that may have taken effect."""
    if method in IDEMPOTENT:
        return ToolExecutionError(text)
    return OutcomeUnknownError(f"{text}. The {method} may have been done", hint=LOOK)


class Transport:
    """The HTTP side of one API.

    Args:
        name: The connection's name, for messages.
        settings: Time, retries, limits and OAuth2 credentials.
        keep_secret: Called with each obtained token.
    """

    def __init__(
        self,
        name: str,
        settings: OpenAPISettings,
        keep_secret: Callable[[str], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._client = HttpClient(settings.timeout, _AT_ONCE)
        self._homes: set[str] = set()
        self._tokens = Tokens(name, settings, self._attempts, keep_secret)

    async def send(self, request: Request) -> Answer:
        """Send a request and read the answer, whatever its status.

        Raises:
            ConnectionUnavailableError: If the server does not answer in time.
            OutcomeUnknownError: If the request may have taken effect.
            ToolExecutionError: If the answer is too large or redirects to a forbidden address.
        """
        if request.spec_host is not None and not self._settings.base_url:
            await self._check_home(request.url, request, "the API is")
        if request.oauth is None:
            return _scrubbed(await self._attempts(request), request)
        if request.spec_host is not None and self._settings.token_url is None:
            await self._check_home(request.oauth, request, "tokens are")
        token = await self._tokens.get(request.oauth)
        _use_token(request, token)
        answer = await self._attempts(request)
        if answer.status == 401:  # the token was revoked early
            _use_token(request, await self._tokens.get(request.oauth, instead_of=token))
            answer = await self._attempts(request)
        return _scrubbed(answer, request)

    async def aclose(self) -> None:
        """Close all connections. The next call opens new connections."""
        await self._client.aclose()

    async def _check_home(self, url: str, request: Request, what: str) -> None:
        """Refuse an address in a private network if the specification is public."""
        host, named_by = urlsplit(url).hostname or "", request.spec_host or ""
        if host == named_by or host in self._homes:
            return
        # A specification from elsewhere must not send requests into the network of this machine.
        if await asyncio.to_thread(is_private, host) and not await asyncio.to_thread(
            is_private, named_by
        ):
            setting = "base_url" if url == request.url else "token_url"
            raise ToolExecutionError(
                f"{request.label}: the specification says that {what} at {host}, a private address",
                hint=f"give {setting}, if that is right",
            )
        self._homes.add(host)

    # -- attempts -----------------------------------------------------------------------

    async def _attempts(self, request: Request) -> Answer:
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
        """Decide whether to repeat a request; return None to accept its answer."""
        if answer.status not in _PASSING or not request.is_repeatable:
            return None
        message = retry_after(answer.headers)
        if message is None:
            return Retry(seconds=pause(progress.attempts))
        return Retry(seconds=message) if message <= self._settings.max_wait else None

    def _no_answer_error(
        self, request: Request, error: NoAnswerError
    ) -> ConnectionUnavailableError | OutcomeUnknownError:
        host = urlsplit(request.url).netloc
        reason = scrub(error.reason(self._settings.timeout), request)
        text = f"{request.label}: {host} cannot be reached: {reason}"
        if error.in_doubt and not request.is_repeatable:
            return OutcomeUnknownError(f"{text}, so it may have been done", hint=LOOK)
        return ConnectionUnavailableError(text)

    # -- redirects ----------------------------------------------------------------------

    async def _follow(self, request: Request) -> Answer:
        """Make one attempt, following redirects; credentials are sent to their own origin only."""
        home = origin_of(request.url)
        method, content = request.method, request.content
        url = request.url
        headers = {**request.headers, **request.secret}
        query = request.query
        for hop in range(_MAX_REDIRECTS + 1):
            # A redirect within the API may drop the query, which can hold the key.
            again = query and (hop == 0 or query not in url)
            target = f"{url}{'&' if '?' in url else '?'}{query}" if again else url
            answer = await self._once(method, target, headers, content, request.label)
            place = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not place:
                return answer
            url = _redirected(url, place, request.label)
            if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
                method = "HEAD" if method == "HEAD" else "GET"
                content = None
                headers.pop("Content-Type", None)
            if origin_of(url) != home:
                await check_redirect(url, home, method, request.label)
                # After leaving its origin, a request carries no call data, even on its way back.
                headers = {k: v for k, v in headers.items() if k == "Accept"}
                content = None
                query = ""
        raise ToolExecutionError(f"{request.label}: over {_MAX_REDIRECTS} redirects")

    # -- one exchange -------------------------------------------------------------------

    async def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None,
        label: str,
    ) -> Answer:
        """Send a request once; return the answer, whatever its status."""
        limit = self._settings.max_response_bytes
        pairs = [(k.encode("latin-1", "replace"), v.encode()) for k, v in headers.items()]
        import httpx

        try:
            return Answer(
                *await self._client.exchange(
                    method, url, headers=pairs, content=content, max_bytes=limit
                )
            )
        except BodyTooLargeError:
            raise _unread_answer_error(
                method, f"{label}: the answer is larger than {limit:,} bytes; ask for less"
            ) from None
        except BodyEncodingError as error:
            raise _unread_answer_error(method, f"{label}: the answer: {error}") from None
        except httpx.LocalProtocolError:  # the message may contain a header's value
            raise ToolExecutionError(f"{label}: it cannot be sent as HTTP") from None
        except httpx.RemoteProtocolError as error:
            if "location header" not in str(error):
                raise
            raise ToolExecutionError(f"{label}: it redirects to no valid address") from None
        except httpx.InvalidURL:
            raise ToolExecutionError(f"{label}: its address is not valid") from None


async def check_redirect(url: str, home: str, method: str, label: str) -> None:
    """Refuse a redirect to another origin for requests that write, or to a less secure scheme."""
    host = urlsplit(url).hostname or ""
    where = f"{label}: it redirects to {urlsplit(url).scheme}://{host}"
    if urlsplit(url).scheme not in ("http", "https") or not host:
        raise ToolExecutionError(f"{where}, which is not a web address")
    if method not in ("GET", "HEAD"):
        raise ToolExecutionError(f"{where}, and only reading follows to another server")
    if home.startswith("https://") and not url.startswith("https://"):
        raise ToolExecutionError(f"{where}, from a secure to an insecure address")
    if await asyncio.to_thread(is_private, host) and not await asyncio.to_thread(
        is_private, urlsplit(home).hostname or ""
    ):
        raise ToolExecutionError(f"{where}, a private address")


def _use_token(request: Request, token: str) -> None:
    """Add a token to a request and to the secrets removed from messages."""
    request.secret = {**request.secret, "Authorization": f"Bearer {token}"}


def _scrubbed(answer: Answer, request: Request) -> Answer:
    """Redact values derived from a request's credentials in an answer."""
    credentials = request.secret.get("Authorization", "").partition(" ")[2].encode()
    if len(credentials) >= _MIN_SECRET and credentials in answer.content:
        answer.content = answer.content.replace(credentials, b"[redacted]")
    return answer


def _redirected(url: str, place: str, label: str) -> str:
    """Return an answer's redirect target without credentials."""
    try:
        parts = urlsplit(urljoin(url, place))
        _ = parts.port
    except ValueError:
        raise ToolExecutionError(f"{label}: it redirects to no valid address") from None
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, fragment="").geturl()
