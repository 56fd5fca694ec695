"""Sessions over HTTP that a server no longer knows, for example because it was restarted."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final, cast

import httpx2
import mcp_types as types
from mcp import MCPError

_SESSION_HEADER: Final = "mcp-session-id"
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
# The key in an error's data that marks a lost session; servers cannot guess the key.
_LOST_KEY: Final = f"delf/{secrets.token_hex(8)}"


def may_reject_session(response: httpx2.Response) -> bool:
    """Return True if the body of a response may say that the server does not know the session."""
    request = response.request
    is_rejection = response.status_code in (_BAD_REQUEST, _NOT_FOUND)
    return is_rejection and request.method == "POST" and _SESSION_HEADER in request.headers


def mark_lost_session(response: httpx2.Response, body: bytes) -> bytes:
    """Return the body of a response, or a marked error if the server does not know the session.

    The protocol demands the status 404 for an unknown session. Many servers use the status 400,
    with an error that names no request. In both cases, the request was not executed.

    Args:
        response: A response for which :func:`may_reject_session` is True.
        body: The body of the response.
    """
    request_id = _object_of(response.request.content).get("id")
    message = _object_of(body)
    error = message.get("error")
    error_code = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    if response.status_code == _NOT_FOUND:
        is_about_method = error_code == types.METHOD_NOT_FOUND
        is_lost = not is_about_method
    else:
        is_about_request = message.get("id") == request_id
        is_lost = error_code is not None and not is_about_request
    if request_id is None or not is_lost:
        return body
    marked_error = {
        "code": types.INVALID_REQUEST,
        "message": "the server does not know the session",
        "data": {_LOST_KEY: True},
    }
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": marked_error}).encode()


def is_session_lost(error: MCPError) -> bool:
    """Return True if an error was marked by :func:`mark_lost_session`."""
    data: Any = error.error.data
    return isinstance(data, dict) and _LOST_KEY in data


def _object_of(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty dict for any other data."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
