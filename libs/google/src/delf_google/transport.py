"""Sends requests to one Google service: tokens, retries, limits, pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

from delf.errors import ConnectionUnavailableError
from delf.network.bodies import BodyEncodingError, BodyTooLargeError
from delf.network.client import Attempts, HttpClient, NoAnswerError, Progress, Retry
from delf.network.retries import FIRST_PAUSE, pause, retry_after
from delf_google.credentials import Tokens
from delf_google.errors import GoogleError, LostAnswerError, Problem
from delf_google.requests import Answer, Request
from delf_google.settings import GoogleSettings

_log = logging.getLogger(__name__)
RETRIES: Final = 5
"""The maximum number of retries of a request that fails temporarily."""
# The maximum seconds that a request waits for rate limits, which mostly count per minute.
_MAX_QUOTA_SECONDS: Final = 70.0
# The assumed upload speed in bytes per second, for timeouts.
_UPLOAD_BYTES_PER_SECOND: Final = 100_000
_MAX_CONNECTIONS: Final = 16
_WARN_SECONDS: Final = 5.0
_SERVER_ERRORS: Final = frozenset({500, 502, 503, 504})
_NOT_FOUND_STATUSES: Final = frozenset({404, 410})
# The maximum number of consecutive pages without an item. A search in large data may return a few.
_MAX_EMPTY_PAGES: Final = 100


class _Sender:
    """Sends one request with an access token, and replaces a refused token once.

    Args:
        request: The request.
        tokens: The source of access tokens.
        exchange: Sends a request with a token, once.
    """

    def __init__(
        self,
        request: Request,
        tokens: Tokens,
        exchange: Callable[[Request, str], Awaitable[Answer]],
    ) -> None:
        self._request = request
        self._tokens = tokens
        self._exchange = exchange
        self._refused_token: str | None = None

    async def send(self) -> Answer:
        """Send the request."""
        token = await self._tokens.get(self._refused_token)
        answer = await self._exchange(self._request, token)
        if answer.status == 401 and self._refused_token is None:
            # A token may be revoked early. Send the request again with a new token, whose refusal
            # is final.
            self._refused_token = token
            return await self.send()
        return answer


class Transport:
    """The HTTP client of one connection: sends requests with access tokens and retries.

    Args:
        name: The connection's name, for messages.
        default_base_url: The service's base URL, unless the settings have another ``base_url``.
        settings: The settings of the connection.
        tokens: The source of access tokens.
        scopes: The OAuth scopes that the connection needs, for error messages.
        sleep: Sleeps between attempts.
    """

    def __init__(
        self,
        name: str,
        default_base_url: str,
        settings: GoogleSettings,
        tokens: Tokens,
        scopes: tuple[str, ...],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.settings = settings
        self.sleep = sleep
        base_url = settings.base_url or default_base_url
        self._root = f"{base_url.rstrip('/')}/"
        self._tokens = tokens
        self._scopes = scopes
        self.headers: dict[str, str] = {}
        """Headers that are sent with every request."""
        self._client = HttpClient(settings.timeout, _MAX_CONNECTIONS, "delf (gzip)")

    async def json(self, request: Request) -> dict[str, Any]:
        """Send a request, and return the response body as a JSON object.

        Raises:
            GoogleError: If the service refuses the request.
            LoginError: If there is no valid login.
            ConnectionUnavailableError: If the service does not respond.
        """
        answer = await self.send(request)
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise GoogleError(f"{self._label(request)}: the answer is not JSON") from None

    async def pages(
        self,
        request: Request,
        items_field: str,
        on_page: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of a paginated response; fetch each page when its first item is needed.

        Args:
            request: The request for the first page.
            items_field: The name of the field with a page's items.
            on_page: Called with each page as JSON data before its items are yielded.

        Raises:
            GoogleError: If the service refuses a request, gives a page that is not valid, or gives
                too many pages without items.
        """
        token: str | None = None
        seen_tokens: set[str] = set()
        empty_page_count = 0
        while empty_page_count <= _MAX_EMPTY_PAGES:
            query = {**request.query, "pageToken": token}
            page = await self.json(replace(request, query=query))
            if on_page is not None:
                on_page(page)
            items = self._items_of(page, items_field, request)
            for item in items:
                yield item
            empty_page_count = 0 if items else empty_page_count + 1
            token = str(page.get("nextPageToken") or "")
            # A service that repeats a token would otherwise be asked forever.
            if not token or token in seen_tokens:
                return
            seen_tokens.add(token)
        raise GoogleError(
            f"{self._label(request)}: more than {_MAX_EMPTY_PAGES} pages in a row are empty",
            hint="ask for something narrower",
        )

    def _items_of(
        self, page: Mapping[str, Any], items_field: str, request: Request
    ) -> list[dict[str, Any]]:
        """Return the items of a page."""
        items: Any = page.get(items_field) or []
        if isinstance(items, list):
            objects = cast("list[Any]", items)
            if all(isinstance(item, dict) for item in objects):
                return objects
        raise GoogleError(f"{self._label(request)}: the answer has no list of {items_field}")

    async def send(self, request: Request) -> Answer:
        """Send a request; retry temporary failures if a second execution is safe.

        Raises:
            GoogleError: If the service refuses the request.
            LostAnswerError: If the request may have taken effect and must not be repeated.
            LoginError: If there is no valid login.
            ConnectionUnavailableError: If the service does not respond.
        """
        answer = await self.send_unchecked(request)
        if answer.status >= 300:  # a redirect fails, too: a gateway may redirect to its login
            raise self.failure(answer, request)
        return answer

    async def send_unchecked(self, request: Request) -> Answer:
        """Send a request like :meth:`send`, but also return responses with an error status."""
        attempts = Attempts[Answer](
            RETRIES,
            is_repeatable=not request.send_once,
            retry_rule=lambda answer, progress: self._retry_for(answer, request, progress),
            sleep=self.sleep,
        )
        sender = _Sender(request, self._tokens, self._exchange)
        try:
            answer = await attempts.answer(sender.send)
        except NoAnswerError as error:
            raise self._no_answer_error(request, error) from None
        progress = attempts.progress
        is_already_deleted = request.method == "DELETE" and answer.status in _NOT_FOUND_STATUSES
        if is_already_deleted and progress.may_have_taken_effect:
            # An earlier attempt, whose response was lost, has deleted the resource.
            return Answer(204, answer.headers, b"")
        return replace(
            answer, may_have_taken_effect=progress.may_have_taken_effect, waited=progress.waited
        )

    def failure(self, answer: Answer, request: Request) -> Exception:
        """Return the exception for an error response.

        The exception is a :class:`LostAnswerError` if the request may have changed something.
        """
        problem = Problem(answer.status, answer.content)
        if request.is_change and answer.may_have_taken_effect:
            # An earlier attempt got no response, but may have made the change. The message of this
            # response may then be a result of the change: "already exists", for example.
            return self._lost_answer_error(request, problem.message, problem)
        if request.is_change and answer.status in _SERVER_ERRORS:
            # A message such as "Backend Error" shows no more than the status.
            return self._lost_answer_error(request, f"HTTP {answer.status}", problem)
        waited = f" (after waiting for {answer.waited:.0f} s)" if answer.waited else ""
        return problem.error(f"{self._label(request)}{waited}", self._scopes)

    def _retry_for(self, answer: Answer, request: Request, progress: Progress) -> Retry | None:
        """Return the delay before a retry; None to accept the response."""
        if answer.status < 400:
            return None
        if Problem(answer.status, answer.content).is_rate_limited:
            # Retry despite ``send_once``, because a rate-limited request has changed nothing.
            return self._retry_after_rate_limit(answer, progress)
        if answer.status not in _SERVER_ERRORS or request.send_once:
            return None
        seconds = retry_after(answer.headers)
        wait = pause(progress.attempts) if seconds is None else seconds
        if wait > _MAX_QUOTA_SECONDS:
            return None
        return Retry(seconds=wait, may_have_taken_effect=True)

    def _retry_after_rate_limit(self, answer: Answer, progress: Progress) -> Retry | None:
        """Return the delay before a retry of a rate-limited request; None to give up.

        All retries together wait for up to :data:`_MAX_QUOTA_SECONDS`.
        """
        remaining_seconds = _MAX_QUOTA_SECONDS - progress.waited
        if remaining_seconds < FIRST_PAUSE:
            return None
        # Google may ask for no particular delay, or for a delay of 0 seconds again and again.
        least_wait = min(pause(progress.attempts), remaining_seconds)
        wait = max(least_wait, retry_after(answer.headers) or 0.0)
        if wait > remaining_seconds:
            return None
        if wait > _WARN_SECONDS:
            _log.warning("%s: a quota of Google is used up; waiting for %.0f s", self.name, wait)
        return Retry(seconds=wait, is_failure=False)  # does not use up one of the retries

    def may_send_token_to(self, url: str) -> bool:
        """Return True if the access token may be sent to a URL that the service gave.

        This holds for a path, for a URL with the scheme and host of the service's base URL, and for
        HTTPS to Google's API servers.

        Args:
            url: The URL, or a path below the service's base URL.
        """
        try:
            target, root = urlsplit(url), urlsplit(self._root)
        except ValueError:
            return False
        is_path = "://" not in url  # "//host/x" is a path, too: it is appended to the base URL
        has_base_url = (target.scheme, target.netloc) == (root.scheme, root.netloc)
        if is_path or has_base_url:
            return True
        is_of_google = (target.hostname or "").endswith(".googleapis.com")
        has_login = "@" in target.netloc
        return target.scheme == "https" and is_of_google and not has_login

    async def aclose(self) -> None:
        """Close all HTTP connections; the next request opens new ones."""
        await self._client.aclose()

    # -- one exchange -------------------------------------------------------------------

    async def _exchange(self, request: Request, token: str) -> Answer:
        """Send a request once.

        Raises:
            GoogleError: If the response is too large or cannot be decoded, or the URL is invalid.
        """
        import httpx

        content, headers = request.payload()
        headers |= {**self.headers, "Authorization": f"Bearer {token}"}
        if self._tokens.project:
            headers["X-Goog-User-Project"] = self._tokens.project
        url = request.url if "://" in request.url else self._root + request.url
        max_bytes = request.max_bytes or self.settings.max_bytes
        try:
            reply = await self._client.exchange(
                request.method,
                url,
                params=request.pairs or None,
                content=content,
                headers=headers,
                max_bytes=max_bytes,
                more_seconds=len(content or b"") / _UPLOAD_BYTES_PER_SECOND,
            )
        except BodyTooLargeError:
            raise GoogleError(
                f"{self._label(request)}: the answer is larger than {max_bytes:,} bytes",
                hint="ask for less, or set max_bytes",
            ) from None
        except BodyEncodingError as error:
            raise GoogleError(f"{self._label(request)}: the answer: {error}") from None
        except httpx.InvalidURL:
            raise GoogleError(f"{self._label(request)}: its address is not valid") from None
        return Answer(reply.status, reply.headers, reply.content)

    def _label(self, request: Request) -> str:
        return f"{self.name}: {request.what}"

    def _lost_answer_error(
        self, request: Request, reason: str, problem: Problem | None = None
    ) -> LostAnswerError:
        return LostAnswerError(
            f"{self._label(request)}: the answer was lost ({reason}), so the request may have been "
            "executed; check before you repeat it",
            status=0 if problem is None else problem.status,
            reason="" if problem is None else problem.reason,
        )

    def _no_answer_error(self, request: Request, error: NoAnswerError) -> Exception:
        host = urlsplit(request.url if "://" in request.url else self._root).netloc
        reason = error.reason(self.settings.timeout)
        if error.may_have_taken_effect and request.is_change:
            return self._lost_answer_error(request, reason)
        text = f"{self._label(request)}: {host} cannot be reached: {reason}"
        return ConnectionUnavailableError(text)
