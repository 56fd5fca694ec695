"""Answers over HTTP: limits of bodies, and the meaning of failures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delf.network.bodies import (
    BodyEncodingError,
    BodyError,
    BodyTooLargeError,
    BodyTruncatedError,
    pieces,
)
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.failures import (
    BrokenStreamError,
    Failure,
    UnreadableError,
    by_status,
    chain,
    class_names_of,
    failure_without_response,
    message_in,
    retry_after,
    shortened,
    unreadable,
)

if TYPE_CHECKING:
    import httpx

_MAX_SHOWN_CHARS: Final = 200
_TITLE: Final = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)


class RefusedError(Exception):
    """A response has a status other than 200.

    Args:
        status: The HTTP status.
        headers: The response headers.
        body: The part of the body that was read.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.text = body.decode("utf-8", errors="replace")


async def read(response: httpx.Response, max_bytes: int, *, truncate: bool = False) -> bytes:
    """Read the body of a response.

    Args:
        response: The response.
        max_bytes: The maximum number of bytes of the body.
        truncate: Whether to return the readable start of the body instead of raising.

    Raises:
        BrokenStreamError: If the compressed body is incomplete, and ``truncate`` is False.
        UnreadableError: If the body is too long or cannot be decompressed, and ``truncate`` is
            False.
    """
    body = bytearray()
    try:
        async for part in pieces(response, max_bytes):
            body += part
    except BodyTooLargeError:
        if not truncate:
            raise UnreadableError(f"it has more than {max_bytes // 1_000_000} MB") from None
    except BodyEncodingError as error:
        if not truncate:
            raise unreadable_body_error(error) from None
    return bytes(body)


def unreadable_body_error(error: BodyError) -> BrokenStreamError | UnreadableError:
    """Return the exception for an unreadable body; a truncated body means a lost connection."""
    error_type = BrokenStreamError if isinstance(error, BodyTruncatedError) else UnreadableError
    return error_type(str(error))


def parsed(body: bytes | str) -> Any:
    """Parse the JSON of a response body or of a server-sent event.

    Raises:
        UnreadableError: If the text is not JSON.
    """
    try:
        text = body.decode("utf-8") if isinstance(body, bytes) else body
    except UnicodeDecodeError:
        raise UnreadableError("it is not UTF-8") from None
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        if text.lstrip().startswith("<"):
            raise UnreadableError("it is a web page") from None
        shown_text = " ".join(text.split())
        if len(shown_text) > _MAX_SHOWN_CHARS:
            shown_text = f"{shown_text[:_MAX_SHOWN_CHARS]}…"
        raise UnreadableError(f"it is not JSON: {shown_text!r}") from None


def explain(error: BaseException, endpoint: Endpoint, timeout: float) -> Failure:
    """Make a failure for an exception of a request.

    Args:
        error: The exception.
        endpoint: The endpoint.
        timeout: The timeout of the request in seconds.
    """
    if isinstance(error, RefusedError):
        wait = retry_after(error.headers, error.text)
        return refused(error.status, error.text, endpoint, wait)
    if isinstance(error, UnreadableError):
        return unreadable(endpoint, str(error))
    message = shortened(str(error) or type(error).__name__, endpoint.secrets)
    failure = failure_without_response(class_names_of(chain(error)), message, endpoint, timeout)
    return replace(failure, note=f"{type(error).__name__} was raised")


def refused(status: int, text: str, endpoint: Endpoint, wait: float | None = None) -> Failure:
    """Make a failure for a response with a status other than 200.

    Args:
        status: The HTTP status.
        text: The response body.
        endpoint: The endpoint.
        wait: The seconds that the provider asks to wait.
    """
    return by_status(status, shortened(_provider_message(text), endpoint.secrets), endpoint, wait)


def _provider_message(text: str) -> str:
    """Return the error message in a response body; the title if the body is a web page."""
    try:
        provider_text = message_in(json.loads(text))
    except (ValueError, RecursionError):
        provider_text = None
    if provider_text:
        return provider_text
    if text.lstrip().startswith("<"):
        title = _TITLE.search(text)
        if title:
            return f"a web page, {title.group(1).strip()!r}"
        return "a web page"
    return text.strip() or "(nothing)"
