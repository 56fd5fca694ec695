"""The access log: a line of JSON for each request, without any secret."""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 10_000
_LAST_SECONDS: Final = 1.0
_LONGEST: Final = 500


def note(
    scope: Any, *, client: str, key: str | None, status: int | None, began: float, name: str
) -> None:
    """Log a request that was answered.

    Args:
        scope: The request; of its address the path is told, and never the query.
        client: Where it came from.
        key: The name of the key that was shown, if a known one was.
        status: What was answered; None where the client went before.
        began: When it began, by :func:`time.perf_counter`.
        name: The id of the request.
    """
    if not _log.isEnabledFor(logging.INFO):
        return
    told = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": client,
        "key": key,
        "method": scope["method"],
        "path": scope["path"][:_LONGEST],
        "status": status,
        "ms": round((time.perf_counter() - began) * 1000, 1),
        "request_id": name,
    }
    _log.info("%s", json.dumps(told), extra={"access": told})


class _Lines(logging.Handler):
    """Hands lines to the thread that writes them; more than it can write are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: queue.Queue[str | None] = queue.Queue(_MOST_WAITING)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line, without ever waiting."""
        self.put(record.getMessage())

    def put(self, line: str | None) -> None:
        """Take a line, or the end."""
        try:
            self.waiting.put_nowait(line)
        except queue.Full:
            return

    def write(self) -> None:
        """Write to stderr what comes, to the end."""
        try:
            while (line := self.waiting.get()) is not None:
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()
        except OSError:  # nobody reads it any more
            return


@contextmanager
def to_stderr(*, enabled: bool) -> Generator[None]:
    """Write the access log to stderr meanwhile; whoever does not read it there stops nothing."""
    if not enabled:
        yield
        return
    lines = _Lines()
    writer = threading.Thread(target=lines.write, daemon=True)
    before = _log.level, _log.propagate
    _log.addHandler(lines)
    _log.setLevel(logging.INFO)
    _log.propagate = False
    writer.start()
    try:
        yield
    finally:
        _log.removeHandler(lines)
        _log.setLevel(before[0])
        _log.propagate = before[1]
        lines.put(None)
        writer.join(_LAST_SECONDS)
