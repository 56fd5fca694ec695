"""Failures of the API: ``application/problem+json`` by RFC 9457."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from delf.errors import (
    AgentStateError,
    ApprovalRejectedError,
    ConfigurationError,
    ConnectionUnavailableError,
    DelfError,
    JournalFailedError,
    JournalUnavailableError,
    ToolRefusedError,
    UnknownRequestError,
    UnknownTaskError,
)

MEDIA: Final = "application/problem+json"
_STATUSES: Final[tuple[tuple[type[DelfError], int], ...]] = (
    (UnknownTaskError, 404),
    (UnknownRequestError, 409),
    (ApprovalRejectedError, 422),
    (ToolRefusedError, 422),
    (AgentStateError, 503),
    (ConfigurationError, 422),
)
_STATUS_OF_OTHER_ERRORS: Final = 409
# Errors of services of the server, such as the databases of journal and queue. Their messages may
# name the machine and the user.
SERVICE_ERRORS: Final = (
    JournalFailedError,
    JournalUnavailableError,
    ConnectionUnavailableError,
)
_INTERNAL_ERROR: Final = 500
_OPENAI_PREFIX: Final = "/v1/"
_LOG_HINT: Final = "the server's log has more under this request_id"
_log = logging.getLogger(__name__)


class ProblemError(Exception):
    """An API error response.

    Args:
        status: The HTTP status.
        message: The error message.
        hint: The suggested next step, in terms of the API.
        code: A stable error code; derived from the status when omitted.
        param: The invalid field or parameter.
        headers: Additional response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        hint: str | None = None,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.code = code or f"ERR-HTTP-{status}"
        self.param = param
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        """The HTTP reason phrase."""
        return HTTPStatus(self.status).phrase

    def body(self, request_id: str, path: str) -> bytes:
        """Encode the response body.

        For paths of OpenAI's API, the body also has the error in OpenAI's format.

        Args:
            request_id: The request's id in the logs.
            path: The path of the request.
        """
        content: dict[str, Any] = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.message,
            "code": self.code,
            "hint": self.hint,
            "param": self.param,
            "request_id": request_id,
        }
        if path.startswith(_OPENAI_PREFIX):
            is_of_server = self.status >= _INTERNAL_ERROR
            content["error"] = {
                "message": f"{self.message}; {self.hint}" if self.hint else self.message,
                "type": "server_error" if is_of_server else "invalid_request_error",
                "param": self.param,
                "code": self.code,
            }
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def problem_of(error: DelfError, request_id: str) -> ProblemError:
    """Convert an error to an API error response.

    The error's hint is left out, because it suggests commands of the command line. For an error of
    a service, such as the journal's database, the message is only logged, and the response has a
    general text.

    Args:
        error: The error.
        request_id: The request's id in the logs.
    """
    if isinstance(error, SERVICE_ERRORS):
        _log.warning("%s (%s)", error.message, request_id)
        return ProblemError(
            503, "the server cannot use a service that it needs", _LOG_HINT, code=error.code
        )
    statuses = (status for kind, status in _STATUSES if isinstance(error, kind))
    status = next(statuses, _STATUS_OF_OTHER_ERRORS)
    return ProblemError(status, error.message, code=error.code)


def shutting_down() -> ProblemError:
    """Return the error response of a server that is shutting down."""
    headers = {"retry-after": "5"}
    return ProblemError(503, "the server ends", "send the request again", headers=headers)


def internal_error() -> ProblemError:
    """Return the error response for an unexpected failure. The details are only logged."""
    return ProblemError(_INTERNAL_ERROR, "an unexpected failure", _LOG_HINT)
