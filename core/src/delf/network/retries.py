"""Delays between attempts of a request: ``Retry-After`` or exponential back-off."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

FIRST_PAUSE: Final = 0.5


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait according to a ``Retry-After`` header.

    None if the header is missing or invalid.

    Args:
        headers: The response headers, with lower-case or case-insensitive names.
    """
    header = headers.get("retry-after", "").strip()
    # RFC 9110 allows seconds or a date. Some servers send a fraction, such as 1.5.
    if header.replace(".", "", 1).isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):  # OverflowError if a number in the date is too large
        return None


def pause(attempt: int, longest: float = 32.0) -> float:
    """Return the seconds to wait before the next attempt: exponential back-off with jitter.

    Args:
        attempt: The number of previous attempts.
        longest: The maximum in seconds; jitter of up to 25 % is added or subtracted afterwards.
    """
    jitter = 0.75 + random.random() / 2  # noqa: S311 - no secret
    doublings = min(attempt, 60)  # a power of more than 1023 would be too large for a float
    return min(FIRST_PAUSE * 2.0**doublings, longest) * jitter
