"""The access log: one JSON line for each request, without secrets."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

_log = logging.getLogger(__name__)

_MAX_PATH_CHARACTERS: Final = 500


def log_request(
    scope: Any,
    *,
    client: str,
    caller: str | None,
    status: int | None,
    began: float,
    request_id: str,
) -> None:
    """Write an access log entry for a request.

    Args:
        scope: The ASGI scope. The path of the URL is logged without the query.
        client: The client's address.
        caller: The name of the authenticated caller; None without authentication.
        status: The status of the response; None if the client disconnected before the response.
        began: The start of the request as :func:`time.perf_counter`.
        request_id: The id of the request.
    """
    if not _log.isEnabledFor(logging.INFO):
        return
    fields = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": client,
        "user": caller,
        "method": scope["method"],
        "path": scope["path"][:_MAX_PATH_CHARACTERS],
        "status": status,
        "ms": round((time.perf_counter() - began) * 1000, 1),
        "request_id": request_id,
    }
    _log.info("%s", json.dumps(fields), extra={"access": fields})


@contextmanager
def to_stderr(*, enabled: bool) -> Generator[None]:
    """Write the access log to stderr while the block runs."""
    if not enabled:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    previous_level = _log.level
    previous_propagate = _log.propagate
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False  # a handler of the root logger would write each entry a second time
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(previous_level)
        _log.propagate = previous_propagate
