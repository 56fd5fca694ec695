"""Errors of Google services."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from delf.errors import ConnectionUnavailableError, OutcomeUnknownError, ToolExecutionError

LOGIN: Final = "delf google login"
GET_CREDENTIALS: Final = (
    "make one at https://console.cloud.google.com/apis/credentials (OAuth client ID, Desktop app) "
    "and download it as JSON; or give the path where it is"
)
_MISSING_SCOPE_REASONS: Final = {"insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}
_RATE_LIMIT_REASONS: Final = {
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "RATE_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
}
_QUOTA_REASONS: Final = {
    "dailyLimitExceeded",
    "quotaExceeded",
    "storageQuotaExceeded",
    "sharingRateLimitExceeded",
    "limitExceeded",
}
_API_DISABLED_REASONS: Final = {"accessNotConfigured", "SERVICE_DISABLED"}
_MAX_MESSAGE_LENGTH: Final = 400
_MAX_REASON_LENGTH: Final = 100


class GoogleError(ToolExecutionError):
    """A service refused a request.

    Args:
        message: The request, and the service's message.
        status: The HTTP status.
        reason: Google's reason code, such as ``notFound``.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class QuotaError(GoogleError):
    """A quota is used up, or the rate limit lasted longer than delf waits."""


class LostAnswerError(GoogleError, OutcomeUnknownError):
    """The response to a change was lost, so the change may or may not have been made.

    If a retry was refused, ``status`` and ``reason`` are those of the retry. Otherwise, ``status``
    is 0 and ``reason`` is empty.
    """

    @property
    def is_retry_refused(self) -> bool:
        """True if the service answered a retry with an error."""
        return self.status != 0


class LoginError(ConnectionUnavailableError):
    """Google does not accept the login, or no login is stored."""


class MissingScopeError(LoginError):
    """The login is valid, but without a required scope.

    Args:
        message: A description of the refused request.
        scopes: The required scopes.
    """

    def __init__(self, message: str, *, scopes: Sequence[str], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.scopes = tuple(scopes)


class Problem:
    """The body of an error response, in either of Google's two formats.

    Args:
        status: The HTTP status.
        content: The response body.
    """

    def __init__(self, status: int, content: bytes) -> None:
        self.status = status
        error = _error_of(content)
        message = str(error.get("message") or f"HTTP {status}")
        self.message = " ".join(message.split())[:_MAX_MESSAGE_LENGTH]
        reason_codes = _reasons(error)
        self.reason = reason_codes[0] if reason_codes else ""
        self.reasons = frozenset(reason_codes)

    @property
    def is_rate_limited(self) -> bool:
        """True if the request exceeded a rate limit, so that waiting helps."""
        if self.status == 429:
            return True
        # With the status 403, only the reason distinguishes a rate limit from a missing right.
        return self.status == 403 and bool(self.reasons & _RATE_LIMIT_REASONS)

    @property
    def is_scope_missing(self) -> bool:
        """True if the token does not have an OAuth scope that the request needs."""
        return self.status == 403 and bool(self.reasons & _MISSING_SCOPE_REASONS)

    def _may_be_hidden_file(self, scopes: Sequence[str]) -> bool:
        """Return True if the file may exist although the ``drive.file`` scope hides it.

        That scope shows only the files that this OAuth client created.
        """
        scope_names = {scope.rpartition("/")[2] for scope in scopes}
        if "drive.file" not in scope_names or "drive" in scope_names:
            return False
        if "appNotAuthorizedToFile" in self.reasons:
            return True
        can_read_all_files = "drive.readonly" in scope_names
        return self.status == 404 and not can_read_all_files

    def error(self, subject: str, scopes: Sequence[str]) -> Exception:
        """Return the exception to raise for this error response.

        Args:
            subject: A description of the request, for error messages.
            scopes: The required scopes.
        """
        message = f"{subject}: {self.message}"
        reason = self.reason
        if self.status == 401:
            return LoginError(
                f"{subject}: Google does not accept the login: {self.message}", hint=f"run {LOGIN}"
            )
        if self.is_scope_missing:
            return MissingScopeError(
                f"{subject}: a right is missing in the login; it needs {' '.join(scopes)}",
                scopes=scopes,
                hint=f"run {LOGIN}, and agree to all rights",
            )
        if self.reasons & _API_DISABLED_REASONS:
            return GoogleError(
                message,
                status=self.status,
                reason=reason,
                hint="switch the API on for the project of the credentials, in Google's console",
            )
        if self._may_be_hidden_file(scopes):
            return GoogleError(
                message,
                status=self.status,
                reason=reason,
                hint="the login sees only files that delf created; to see the whole drive, add "
                f"'update' to the setting 'allow', and run {LOGIN}",
            )
        if self.is_rate_limited or self.reasons & _QUOTA_REASONS:
            return QuotaError(
                f"{subject}: the quota is used up ({reason or 'HTTP 429'}): {self.message}",
                status=self.status,
                reason=reason,
                hint="try again later, with fewer requests",
            )
        return GoogleError(message, status=self.status, reason=reason)


def _error_of(content: bytes) -> Mapping[str, Any]:
    """Return the error object in the body of a response.

    Some services put the body's object into a list, or give a text as the error. For a body without
    an error object, the result has only the key ``message``.
    """
    try:
        body: Any = json.loads(content)
    except (ValueError, RecursionError):
        return {"message": content[:_MAX_MESSAGE_LENGTH].decode("utf-8", "replace").strip()}
    if isinstance(body, list) and body:
        body = cast("list[Any]", body)[0]
    error: Any = None
    if isinstance(body, dict):
        error = cast("dict[str, Any]", body).get("error")
    if isinstance(error, dict):
        return cast("dict[str, Any]", error)
    return {"message": error if isinstance(error, str) else None}


def _reasons(error: Mapping[str, Any]) -> list[str]:
    """Return the reason codes of a Google API error, the most specific first.

    Old APIs have them in ``errors``, newer APIs in ``details``.
    """
    reasons: list[Any] = []
    for key in ("errors", "details"):
        items: Any = error.get(key)
        if not isinstance(items, list):
            continue
        for item in cast("list[Any]", items):
            if not isinstance(item, dict):
                continue
            fields = cast("dict[str, Any]", item)
            reasons.append(fields.get("reason"))
    reasons.append(error.get("status"))
    return [" ".join(str(reason).split())[:_MAX_REASON_LENGTH] for reason in reasons if reason]
