"""One call of a method, as services see it, and what they may answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Call:
    """A call that was checked against its document."""

    method: str
    user: str
    arguments: dict[str, Any]
    body: dict[str, Any] = field(default_factory=dict)
    media: bytes | None = None
    media_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    scopes: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.arguments.get(name, default)


@dataclass
class Media:
    """Content instead of JSON."""

    content: bytes
    type: str = "application/octet-stream"


class ApiError(Exception):
    """A refusal in the vendor's shape."""

    def __init__(
        self,
        status: int,
        message: str,
        reason: str = "",
        *,
        headers: dict[str, str] | None = None,
        details: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason or {400: "invalid", 401: "authError", 404: "notFound"}.get(
            status, "backendError"
        )
        self.headers = headers or {}
        self.details = details

    def body(self) -> dict[str, Any]:
        names = {
            400: "INVALID_ARGUMENT",
            401: "UNAUTHENTICATED",
            403: "PERMISSION_DENIED",
            404: "NOT_FOUND",
            409: "ALREADY_EXISTS",
            429: "RESOURCE_EXHAUSTED",
            500: "INTERNAL",
            501: "UNIMPLEMENTED",
            503: "UNAVAILABLE",
        }
        error: dict[str, Any] = {
            "code": self.status,
            "message": self.message,
            "errors": [{"message": self.message, "domain": "global", "reason": self.reason}],
        }
        if self.status in names:
            error["status"] = names[self.status]
        if self.details:
            error["details"] = self.details
        return {"error": error}


def serves(*methods: str) -> Callable[[F], F]:
    """Mark a service's method as the answer to methods of its API."""

    def mark(function: F) -> F:
        function.__serves__ = methods
        return function

    return mark


def handlers(service: Any) -> dict[str, Callable[[Call], Any]]:
    found: dict[str, Callable[[Call], Any]] = {}
    for name in dir(type(service)):
        for method in getattr(getattr(type(service), name), "__serves__", ()):
            found[method] = getattr(service, name)
    return found


def answers_of_requests(service: Any, draft: Any, requests: list[dict[str, Any]]) -> list[Any]:
    """Make the changes of a batch in a draft, each by the service's ``_do_KIND``; their answers."""
    replies: list[Any] = []
    for index, request in enumerate(requests):
        if len(request) != 1:
            text = f"Invalid requests[{index}]: Must specify exactly one request."
            raise ApiError(400, text, "badRequest")
        ((kind, body),) = request.items()
        work = getattr(service, f"_do_{kind}", None)
        if work is None:
            raise ApiError(501, f"requests[{index}].{kind} is not part of this server")
        try:
            replies.append(work(draft, body) or {})
        except ApiError as error:
            text = f"Invalid requests[{index}].{kind}: {error.message}"
            raise ApiError(error.status, text, error.reason) from None
    return replies


def page(
    items: list[Any], call: Call, size: int, most: int, key: str = "maxResults"
) -> tuple[list[Any], dict[str, str]]:
    """The items of one page, and the token of the next."""
    token = call.get("pageToken")
    if token is not None and not token.startswith("p"):
        raise ApiError(400, "Invalid pageToken", "invalid")
    start = int(token[1:]) if token else 0
    count = min(call.get(key) or size, most)
    rest = {"nextPageToken": f"p{start + count}"} if start + count < len(items) else {}
    return items[start : start + count], rest


class Ids:
    """Ids that are short to read and never the same."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):06d}"
