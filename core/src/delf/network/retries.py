"""The times at which a request is sent again: the server's wish, or growing pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

FIRST_PAUSE: Final = 0.5


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a ``Retry-After`` header, or None without a usable header.

    Args:
        headers: Of an answer, with names in small letters or of any case.
    """
    header = headers.get("retry-after", "").strip()
    # Seconds, or a date: RFC 9110 allows both.
    if header.replace(".", "", 1).isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None


def pause(attempt: int, longest: float = 32.0) -> float:
    """Return the back-off before another attempt: longer each time, with jitter.

    Args:
        attempt: How many attempts came before, from 0.
        longest: The longest pause, before it is spread by a quarter.
    """
    spread = 0.75 + random.random() / 2  # noqa: S311 - no secret
    return min(FIRST_PAUSE * 2.0 ** min(attempt, 60), longest) * spread
