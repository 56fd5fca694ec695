"""Fetching of pages: address checks, redirects, limits and rate."""

from __future__ import annotations

import asyncio
from email.message import Message
from fnmatch import fnmatchcase
from typing import Final

import httpcore
import httpx

from delf.errors import ToolExecutionError, ToolRefusedError
from delf.network.bodies import ACCEPTED, BodyEncodingError, BodyTooLargeError, read_body
from delf.network.proxies import proxy_for
from delf.network.tls import default_context
from delf_web.addresses import Guard, Resolve, system_resolve
from delf_web.document import Document
from delf_web.manners import Pace
from delf_web.reading import DocumentParser
from delf_web.settings import WebSettings
from delf_web.transport import PinnedTransport

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 5
_MAX_URL_LENGTH: Final = 4000
_MAX_CONTENT_TYPE_LENGTH: Final = 400
_FIRST_ERROR_STATUS: Final = 400
_ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,application/pdf,*/*;q=0.5"


class Fetcher:
    """Downloads documents within one event loop.

    Args:
        settings: The allowed hosts, the limits and the request rate.
        resolve: Resolves a host name.
    """

    def __init__(self, settings: WebSettings, resolve: Resolve = system_resolve) -> None:
        self._settings = settings
        self._transport = PinnedTransport(
            Guard(settings.private, resolve), settings.timeout, default_context()
        )
        self._headers = {
            "User-Agent": settings.user_agent,
            "Accept": _ACCEPT,
            "Accept-Encoding": ACCEPTED,
        }
        self.parser = DocumentParser(settings.read_timeout, settings.max_bytes)
        self._pace = Pace(settings.rate)

    async def get(self, url: str, *, named_by: str | None = None) -> Document:
        """Download the document at a URL.

        Args:
            url: The URL.
            named_by: The URL of the page that links to this URL; None if a script gave the URL. A
                link must stay on the page's host, or lead to a host that needs no approval.

        Raises:
            ToolRefusedError: If the address is not allowed.
            ToolExecutionError: If the request fails or the document is too large.
        """
        requested_url = checked_url(url, self._settings).copy_with(fragment=None)
        if named_by is not None:
            page_url = httpx.URL(named_by)
            self._require_approved_host(requested_url, page_url, source=f"{named_by} names")
        return await self._follow(requested_url)

    async def aclose(self) -> None:
        """Close all connections."""
        await self.parser.aclose()
        await self._transport.aclose()

    async def _follow(self, approved_url: httpx.URL) -> Document:
        """Download a document, following redirects."""
        url = approved_url
        for _ in range(_MAX_REDIRECTS + 1):
            response, content = await self._exchange(url)
            location = response.headers.get("location")
            if response.status_code in _REDIRECTS and location:
                url = self._checked_redirect(url, location, approved_url)
                continue
            if response.status_code >= _FIRST_ERROR_STATUS:
                raise ToolExecutionError(
                    f"{url} answered {response.status_code} {response.reason_phrase}".rstrip()
                )
            content_type = Message()  # parses the header's parameters
            media_type = response.headers.get("content-type") or "text/html"
            content_type["Content-Type"] = media_type[:_MAX_CONTENT_TYPE_LENGTH]
            return Document(
                url=str(url),
                kind=content_type.get_content_type(),
                charset=content_type.get_content_charset(),
                content=content,
            )
        raise ToolExecutionError(f"{approved_url}: over {_MAX_REDIRECTS} redirects")

    def _checked_redirect(
        self, url: httpx.URL, location: str, approved_url: httpx.URL
    ) -> httpx.URL:
        try:
            target = url.join(location).copy_with(fragment=None)
        except (httpx.InvalidURL, ValueError):
            raise ToolExecutionError(f"{url} redirects to no valid address") from None
        # A stranger chose the target of the redirect, so it is checked like the requested URL.
        checked_target = checked_url(str(target), self._settings)
        self._require_approved_host(checked_target, approved_url, source=f"{url} redirects to")
        return checked_target

    def _require_approved_host(
        self, url: httpx.URL, approved_url: httpx.URL, *, source: str
    ) -> None:
        """Raise ToolRefusedError if a URL's host needs an approval and is not the approved host.

        Args:
            url: The requested URL.
            approved_url: The URL that was approved.
            source: The origin of the URL for the error message, such as ``PAGE redirects to``.
        """
        settings = self._settings
        if (
            settings.other_hosts == "ask"
            and url.host != approved_url.host
            and not is_in_settings(url.host, settings)
        ):
            raise ToolRefusedError(
                f"{source} the host {url.host}, which nobody was asked about; "
                f"ask for {url} by itself"
            )

    async def _exchange(self, url: httpx.URL) -> tuple[httpx.Response, bytes]:
        """Send one GET request; return the response, of any status, and its body."""
        # Wait before the timeout begins, because the server does not cause this wait.
        await self._pace.turn(url.netloc.decode())
        try:
            async with asyncio.timeout(self._settings.timeout):
                try:
                    response = await self._transport.get(url, self._headers)
                except ToolExecutionError as error:
                    raise _unreachable_error(url, error.message) from error
                try:
                    return response, await self._read(url, response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpcore.TimeoutException):
            message = f"{url} did not answer within {self._settings.timeout:g} s"
            raise _unreachable_error(url, message) from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise _unreachable_error(url, f"{url} cannot be reached: {error}"[:300]) from None

    async def _read(self, url: httpx.URL, response: httpx.Response) -> bytes:
        limit = self._settings.max_bytes
        try:
            return await read_body(response, limit)
        except BodyTooLargeError:
            raise ToolExecutionError(
                f"{url} is larger than {limit:,} bytes",
                hint="max_bytes in the connection's settings",
            ) from None
        except BodyEncodingError as error:
            raise ToolExecutionError(f"{url}: {error}") from None


def _unreachable_error(url: httpx.URL, message: str) -> ToolExecutionError:
    """Create the error for a server that cannot be reached.

    If the environment sets a proxy, a hint says that pages are fetched without it.
    """
    proxy = proxy_for(str(url))
    if proxy is None:
        return ToolExecutionError(message)
    return ToolExecutionError(
        message,
        hint=f"{proxy} is not used: the IP addresses of pages are checked, but a proxy would look "
        "up the addresses itself",
    )


def checked_url(text: str, settings: WebSettings) -> httpx.URL:
    """Parse a URL and check its scheme, host pattern and port, without resolving the host.

    Args:
        text: The URL.
        settings: The settings with the allowed hosts and ports.

    Raises:
        ToolRefusedError: If the address is not allowed.
    """
    if len(text) > _MAX_URL_LENGTH:
        raise ToolRefusedError(f"an address of {len(text)} characters is too long")
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError):
        raise ToolRefusedError(f"{text!r:.200} is not an address") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolRefusedError(f"{text!r:.200} is not an address of a page: http:// or https://")
    if url.userinfo:
        raise ToolRefusedError(f"an address with a login is refused; its host is {url.host}")
    port = url.port or (443 if url.scheme == "https" else 80)
    if settings.ports and port not in settings.ports:
        raise ToolRefusedError(
            f"port {port} of {url.host} is not allowed; allowed are "
            + ", ".join(map(str, settings.ports)),
            hint="ports in the connection's settings",
        )
    if settings.other_hosts == "refuse" and not is_in_settings(url.host, settings):
        raise ToolRefusedError(
            f"the host {url.host} is not allowed; "
            f"allowed are {', '.join(settings.hosts) or 'none'}",
            hint="hosts in the connection's settings",
        )
    return url


def is_in_settings(host: str, settings: WebSettings) -> bool:
    """Return True if a pattern of allowed hosts matches a host."""
    name = host.lower().rstrip(".")
    return any(fnmatchcase(name, pattern.lower()) for pattern in settings.hosts)
