"""Faults of a specification, and of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delf.errors import ConnectionConfigurationError, OutcomeUnknownError, ToolExecutionError


class SpecError(ConnectionConfigurationError):
    """A specification cannot be used.

    Args:
        reason: The fault of the specification.
        pointer: The JSON pointer to the fault, with the document's address if it is not the main
            document.
        hint: Advice for the user.
    """

    def __init__(self, reason: str, *, pointer: str = "", hint: str | None = None) -> None:
        super().__init__(f"{reason} (at {pointer})" if pointer else reason, hint=hint)
        self.reason = reason
        self.pointer = pointer


class APIError(ToolExecutionError):
    """An API answered a call with an error.

    Args:
        message: The call, the status, and the body's message, truncated.
        status: The HTTP status.
        headers: The response headers.
        hint: Advice for the user.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, can_retry=status not in (401, 403))
        self.status = status
        self.headers = dict(headers or {})


class GatewayError(APIError, OutcomeUnknownError):
    """A gateway or a redirect lost the API's response to a write, whose outcome is unknown."""


def pointer_of(tokens: Sequence[str]) -> str:
    """Encode the tokens of a JSON pointer as a URI fragment, as ``#/paths/~1pets``."""
    steps = (t.replace("~", "~0").replace("/", "~1").replace("%", "%25") for t in tokens)
    return "#" + "".join(f"/{step}" for step in steps)
