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
    """The inputs from which a dialect makes the body of a request.

    Args:
        request: The messages and tools.
        settings: The generation settings, without delf's own settings such as ``timeout``.
        endpoint: The provider and the model.
        facts: The catalogue's facts about the model.
        stream: Whether to stream the answer.
        search: The provider's web search tool; None if the request may not search.
    """

    request: ModelRequest
    settings: Mapping[str, Any]
    endpoint: Endpoint
    facts: Facts
    stream: bool
    search: Tool | None = None


def system_texts(request: ModelRequest) -> list[str]:
    """Return the texts of a request's system messages, without empty texts."""
    texts = [message.text for message in request.messages if message.role == "system"]
    return [text for text in texts if text]


def with_extra(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge extra fields into a request body; nested objects are merged, other values replaced."""
    merged = dict(body)
    for name, value in extra.items():
        current_value = merged.get(name)
        if isinstance(current_value, dict) and isinstance(value, Mapping):
            merged[name] = with_extra(fields(current_value), fields(value))
        else:
            merged[name] = value
    return merged


class Dialect(Protocol):
    """The protocol of an API: writes requests, and parses answers.

    Attributes:
        finish_reasons: A mapping from the API's finish reasons to delf's.
    """

    finish_reasons: ClassVar[Mapping[str, str]]

    def address(self, endpoint: Endpoint, *, stream: bool) -> str:
        """Return the URL for requests."""
        ...

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers with the key, and other headers that the API requires."""
        ...

    def body(self, parts: RequestParts) -> dict[str, Any]:
        """Return the JSON body of a request."""
        ...

    def max_tokens(self, facts: Facts) -> int | None:
        """Return the maximum of output tokens; None if the API does not require a maximum.

        Args:
            facts: The catalogue's facts about the model.
        """
        ...

    def parse(self, data: Any) -> Answer:
        """Parse a complete answer that was not streamed.

        Raises:
            ReportedError: If the answer reports a failure.
            UnreadableError: If the answer does not follow the protocol.
        """
        ...

    def event(self, data: Any, answer: Answer) -> list[ModelDelta]:
        """Add a streamed event to an answer; return the deltas to emit.

        Raises:
            ReportedError: If the event reports a failure.
            UnreadableError: If the event does not follow the protocol.
        """
        ...
