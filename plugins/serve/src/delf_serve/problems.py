"""Failures as the API tells them: a status, a code, a message and a hint, always as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from delf.errors import (
    AgentStateError,
    ApprovalRejectedError,
    ConfigurationError,
    DelfError,
    JournalUnavailableError,
    ToolRefusedError,
    UnknownRequestError,
    UnknownTaskError,
)

_STATUSES: Final[tuple[tuple[type[DelfError], int], ...]] = (
    (UnknownTaskError, 404),
    (UnknownRequestError, 409),
    (ApprovalRejectedError, 422),
    (ToolRefusedError, 422),
    (JournalUnavailableError, 503),
    (AgentStateError, 503),
    (ConfigurationError, 422),
)
_INSIDE: Final = 500


class ProblemError(Exception):
    """A request is refused.

    Args:
        status: The HTTP status.
        message: What was wrong with it.
        hint: What to do about it.
        code: Names the kind of failure for ever; made of the status when omitted.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        hint: str | None = None,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.code = code or f"ERR-HTTP-{status}"
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        """The answer's JSON."""
        content: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def problem_of(error: DelfError) -> ProblemError:
    """A failure of delf as an answer."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 409)
    return ProblemError(status, error.message, error.hint, code=error.code)


def inside() -> ProblemError:
    """A failure that nobody foresaw; what it was is in the log alone."""
    return ProblemError(_INSIDE, "an unexpected failure", "the server's log has the traceback")
