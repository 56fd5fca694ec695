"""The access log: a line of JSON for each request, without any secret."""

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

_LONGEST: Final = 500


def note(
    scope: Any, *, client: str, key: str | None, status: int | None, began: float, name: str
) -> None:
    """Log a request that was answered.

    Args:
        scope: The request; only the path of its address is logged, never the query.
        client: Where it came from.
        key: The name of the key that was shown, if a known one was.
        status: The status of the answer; None if the client left before.
        began: When it began, by :func:`time.perf_counter`.
        name: The id of the request.
    """
    if not _log.isEnabledFor(logging.INFO):
        return
    fields = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": client,
        "key": key,
        "method": scope["method"],
        "path": scope["path"][:_LONGEST],
        "status": status,
        "ms": round((time.perf_counter() - began) * 1000, 1),
        "request_id": name,
    }
    _log.info("%s", json.dumps(fields), extra={"access": fields})


@contextmanager
def to_stderr(*, enabled: bool) -> Generator[None]:
    """Write the access log to stderr meanwhile."""
    if not enabled:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    before = _log.level, _log.propagate
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(before[0])
        _log.propagate = before[1]
