"""Sessions over HTTP that a server no longer knows, for example because it was restarted."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final, Literal, TypeAlias, cast

import httpx2
import mcp_types as types
from mcp import MCPError

_SESSION_HEADER: Final = "mcp-session-id"
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
# The codes with which servers reject a session; the protocol defines none. A tuple, because a
# server's code may be of a type that cannot be hashed.
_SESSION_CODES: Final = (-32000, -32001, types.INVALID_REQUEST)
_SESSION_WORD: Final = "session"
# The key in an error's data that marks a rejected session; servers cannot guess the key.
_REJECTION_KEY: Final = f"delf/{secrets.token_hex(8)}"

Rejection: TypeAlias = Literal["certain", "possible"]
"""A rejection of a session; only after a certain one, the request was surely not executed."""


def may_reject_session(response: httpx2.Response) -> bool:
    """Return True if the body of a response may say that the server does not know the session."""
    request = response.request
    is_rejection = response.status_code in (_BAD_REQUEST, _NOT_FOUND)
    return is_rejection and request.method == "POST" and _SESSION_HEADER in request.headers


def mark_rejected_session(response: httpx2.Response, body: bytes) -> bytes:
    """Return the body of a response; if the response rejects the session, return an error instead.

    The returned error names the request, and has a mark that :func:`rejection_in` finds. The
    server's own body may have neither: for an unknown session, the protocol demands the status 404
    without defining a body, and many servers use the status 400, with an error that names no
    request.

    Args:
        response: A response for which :func:`may_reject_session` is True.
        body: The body of the response.
    """
    request_id = _object_of(response.request.content).get("id")
    rejection = _rejection_of(response.status_code, body, request_id)
    if request_id is None or rejection is None:
        return body
    server_message = _text_of(_error_of(_object_of(body)))
    default_message = f"the server answered with the status {response.status_code}"
    marked_error = {
        "code": types.INVALID_REQUEST,
        "message": server_message or default_message,
        "data": {_REJECTION_KEY: rejection},
    }
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": marked_error}).encode()


def rejection_in(error: MCPError) -> Rejection | None:
    """Return the rejection that :func:`mark_rejected_session` put into an error; else None."""
    data: Any = error.error.data
    return cast("dict[str, Any]", data).get(_REJECTION_KEY) if isinstance(data, dict) else None


def _rejection_of(status: int, body: bytes, request_id: Any) -> Rejection | None:
    """Return how surely a response rejects the request's session; None for any other response.

    If the rejection is ``certain``, the server has not executed the request.

    Args:
        status: The status of the response.
        body: The body of the response.
        request_id: The id of the request.
    """
    message = _object_of(body)
    error = _error_of(message)
    names_request = "id" in message and str(message["id"]) == str(request_id)
    if names_request or error.get("code") == types.METHOD_NOT_FOUND:
        return None  # the server has answered the request itself
    has_session_code = error.get("code") in _SESSION_CODES
    says_session = _SESSION_WORD in _text_of(error).lower()  # such as "Session not found"
    is_bare_not_found = status == _NOT_FOUND and not body.strip()
    if is_bare_not_found or (has_session_code and says_session):
        return "certain"
    if status == _NOT_FOUND or has_session_code:
        return "possible"
    return None


def _error_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return the error object of a message; an empty dict if the message has none."""
    error = message.get("error")
    return cast("dict[str, Any]", error) if isinstance(error, dict) else {}


def _text_of(error: dict[str, Any]) -> str:
    """Return the message of an error object; an empty text if the message is not a text."""
    text = error.get("message")
    return text.strip() if isinstance(text, str) else ""


def _object_of(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty dict for any other data."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
