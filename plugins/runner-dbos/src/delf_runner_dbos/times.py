"""Times of schedules: cron expressions that match no time, and clocks that are set back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from delf.errors import ConfigurationError

_EVERY_HOUR: Final = "@hourly"


def check_times(cron: str, zone: str | None) -> None:
    """Check that a valid cron expression has a time in the future.

    Args:
        cron: The expression.
        zone: The time zone; UTC when None.

    Raises:
        ConfigurationError: If the expression matches no time, such as ``0 0 30 2 *``.
    """
    from croniter import CroniterBadDateError, croniter

    now = datetime.now(UTC if zone is None else ZoneInfo(zone))
    try:
        croniter(cron, now, second_at_beginning=True).get_next(datetime)
    except CroniterBadDateError:
        raise ConfigurationError(
            f"the times {cron!r} never come", hint="look at the days of its months, and its years"
        ) from None


def repeats_time_of_day(firing: Mapping[str, Any]) -> bool:
    """Return True if a firing repeats an earlier one because clocks were set back.

    For example, after clocks were set back at 3:00, a daily schedule at 2:30 fires again. The
    result is False for an hourly schedule, which should fire in the repeated hour, too.

    Args:
        firing: The schedule's fields from DBOS, and ``at``, the time of the firing with its offset.
    """
    cron = firing.get("cron")
    zone = firing.get("zone")
    at = firing.get("at")
    if not cron or not zone or not at or firing.get("test"):
        return False
    # ``fold`` is 1 for the second of two equal times of day.
    is_second_time = datetime.fromisoformat(at).astimezone(ZoneInfo(zone)).fold == 1
    return is_second_time and not _is_hourly(cron)


def _is_hourly(cron: str) -> bool:
    """Return True if the hours of a cron expression are ``*``, ``*/2`` or similar, or ``0-23``."""
    fields = cron.split()
    if len(fields) == 1:  # a name such as "@daily"
        return fields[0] == _EVERY_HOUR
    if len(fields) == 5:
        _minutes, hours, *_ = fields
    else:  # six and seven fields begin with the seconds
        _seconds, _minutes, hours, *_ = fields
    return hours.startswith(("*", "0-23"))
