"""Texts of counts, amounts and times, the same in every command."""

from __future__ import annotations

import time
from datetime import datetime


def format_count(number: int, noun: str) -> str:
    """Format a number with a noun: ``1 call``, ``2 calls``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_usd(cost: float | None, digits: int = 4) -> str:
    """Format an amount in US dollars; ``unknown`` for None.

    Args:
        cost: The amount.
        digits: The number of decimals. More than 4 are useful for a single call of a model, which
            may cost less than $0.0001.
    """
    return "unknown" if cost is None else f"${cost:.{digits}f}"


def format_duration(milliseconds: float | None) -> str:
    """Format a duration in a suitable unit, such as ``2 min 05 s``; ``-`` for None."""
    if milliseconds is None:
        return "-"
    # Rounded before the unit is chosen, so that no duration is shown as 1000 ms or 60.0 s.
    seconds = milliseconds / 1000
    if round(milliseconds) < 1000:
        return f"{milliseconds:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s"


def format_age(at: float) -> str:
    """Format the age of a Unix time, such as ``5 min ago``; after two days, format the date."""
    seconds = max(0, round(time.time() - at))
    for unit, unit_seconds, max_count in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48)):
        if seconds < unit_seconds * max_count:
            return f"{seconds // unit_seconds} {unit} ago"
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")
