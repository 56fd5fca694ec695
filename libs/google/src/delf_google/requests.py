"""A request to a Google service and its answer, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

from delf.errors import ToolRefusedError
from delf_google.errors import GoogleError

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request to a Google service.

    Args:
        what: The purpose of the request for error messages, such as ``read a message``.
        method: The HTTP method.
        url: The URL, or a path below the service's base URL.
        query: Query parameters. A list gives one parameter per item; None is omitted.
        body: The JSON body, if any.
        content: The raw body, if there is no JSON body.
        headers: Additional headers.
        send_once: Whether the request must not be retried after a lost response, because the
            service would perform it twice.
        read_only: Whether the request changes nothing, although its method is not GET.
        max_bytes: The maximum size of the response in bytes; None for the connection's limit.
    """

    what: str
    method: Method
    url: str
    _: KW_ONLY
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    send_once: bool = False
    read_only: bool = False
    max_bytes: int | None = None

    @property
    def is_change(self) -> bool:
        """True if the request may change data of the service."""
        return self.method != "GET" and not self.read_only

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The query parameters as (name, text) pairs."""
        pairs: list[tuple[str, str]] = []
        for name, value in self.query.items():
            is_list = isinstance(value, (list, tuple))
            values = cast("Sequence[Any]", value) if is_list else (value,)
            pairs += [(name, _text(item)) for item in values if item is not None]
        for _, text in pairs:
            utf8(text, self.what)  # raises an error for an unpaired surrogate
        return pairs

    def payload(self) -> tuple[bytes | None, dict[str, str]]:
        """Return the encoded body and all headers of the request.

        Raises:
            ToolRefusedError: If a text cannot be encoded as UTF-8.
        """
        headers = dict(self.headers)
        if self.body is None:
            return self.content, headers
        headers["Content-Type"] = "application/json"
        return utf8(json.dumps(self.body, ensure_ascii=False), self.what), headers


class _Fields(dict[str, Any]):
    """A JSON object of Google."""

    def __missing__(self, key: str) -> Any:
        raise GoogleError(f"an object in Google's answer has no field {key!r}")


@dataclass(frozen=True, slots=True)
class Answer:
    """The HTTP response to a request.

    Args:
        status: The HTTP status.
        headers: The headers.
        content: The response body.
        may_have_taken_effect: Whether an earlier attempt, whose response was lost, may have taken
            effect.
        waited: The seconds for which the request waited for rate limits.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    may_have_taken_effect: bool = False
    waited: float = 0.0

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty body is an empty object.

        In the returned object, and in the objects inside it, reading a missing field raises a
        :class:`GoogleError`.

        Raises:
            ValueError: If the body is not a JSON object.
        """
        data: Any = json.loads(self.content.strip() or b"{}", object_hook=_Fields)
        if not isinstance(data, dict):
            raise ValueError("no JSON object")  # noqa: TRY004 - a value, for the caller's except
        return data  # pyright: ignore[reportUnknownVariableType]


def utf8(text: str, what: str) -> bytes:
    """Encode a text that a script gave.

    Args:
        text: The text.
        what: The purpose of the text, for the error message.

    Raises:
        ToolRefusedError: If the text contains half of a character, a lone surrogate.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolRefusedError(f"{what}: a text contains half of a character") from None


def segment(text: str) -> str:
    """Percent-encode a text, such as an id, as one segment of a URL path.

    Raises:
        ToolRefusedError: If the text is empty, ``.`` or ``..``, or contains an unpaired surrogate.
    """
    # HTTP clients remove these segments from a path. The request would then be about something
    # larger, such as a whole calendar.
    if text in ("", ".", ".."):
        raise ToolRefusedError(f"{text!r} is not the id of anything")
    return quote(utf8(text, "an id"), safe="")


def _text(value: Any) -> str:
    """Return the text of a query parameter: ``true`` for True, as in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)
