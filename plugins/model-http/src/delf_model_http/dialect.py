"""Shared parts of the protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from delf.messages import ModelDelta, ModelRequest
from delf.records import dataclass
from delf_model_http.answer import Answer, fields
from delf_model_http.catalog import Facts
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.searches import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """Everything that a request's body is made from.

    Args:
        request: The messages and tools.
        settings: The given settings, without ``timeout``.
        endpoint: The provider and the model.
        facts: Known facts of the model.
        stream: Whether to stream the answer.
        search: The provider's own search, if the request uses it.
    """

    request: ModelRequest
    settings: Mapping[str, Any]
    endpoint: Endpoint
    facts: Facts
    stream: bool
    search: Tool | None = None


def with_extra(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request body with further fields: objects are merged, other values replaced."""
    merged = dict(body)
    for name, value in extra.items():
        there = merged.get(name)
        is_both = isinstance(there, dict) and isinstance(value, Mapping)
        merged[name] = with_extra(fields(there), fields(value)) if is_both else value
    return merged


class Dialect(Protocol):
    """A protocol: how a request is written, and how its answer is read.

    Attributes:
        finished: The protocol's finish reasons, mapped to delf's words.
    """

    finished: ClassVar[Mapping[str, str]]

    def address(self, endpoint: Endpoint, *, stream: bool) -> str:
        """Return the address for requests."""
        ...

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers that name the client."""
        ...

    def body(self, parts: RequestParts) -> dict[str, Any]:
        """Return the body of a request."""
        ...

    def longest(self, facts: Facts) -> int | None:
        """Return the required token limit of an answer, if the dialect needs one.

        Args:
            facts: The known facts about the model.
        """
        ...

    def parse(self, data: Any) -> Answer:
        """Parse a complete answer.

        Raises:
            ReportedError: If the answer reports a failure.
            UnreadableError: If the content is not an answer.
        """
        ...

    def event(self, data: Any, answer: Answer) -> list[ModelDelta]:
        """Process a stream event; return its deltas.

        Raises:
            ReportedError: If the event reports a failure.
            UnreadableError: If the content is not an event.
        """
        ...
