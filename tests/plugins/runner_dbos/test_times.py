"""The times of schedules, where calendars and clocks are unusual."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from delf.errors import ConfigurationError
from delf_runner_dbos.times import check_times, repeats_time_of_day

SPRING, AUTUMN = datetime(2026, 3, 28, 12), datetime(2026, 10, 24, 12)


@pytest.mark.parametrize(
    ("cron", "begin", "zone", "times"),
    [
        ("30 2 * * *", AUTUMN, "Europe/Berlin", ["02:30+0200"]),
        ("30 1-3 * * *", AUTUMN, "Europe/Berlin", ["01:30+0200", "02:30+0200", "03:30+0100"]),
        ("0 30 2 * * *", AUTUMN, "Europe/Berlin", ["02:30+0200"]),
        ("0 2 * * *", SPRING, "Europe/Berlin", ["03:00+0200"]),
        ("0 8 * * *", AUTUMN, "Europe/Berlin", ["08:00+0100"]),
        ("@daily", datetime(2026, 10, 31, 12), "America/Havana", ["00:00-0400"]),
        ("45 1 * * *", datetime(2026, 4, 4, 12), "Australia/Lord_Howe", ["01:45+1100"]),
    ],
)
def test_daily_schedule_fires_once_when_clocks_change(cron: Any, begin: Any, zone: Any, times: Any):
    assert times_of(cron, begin, zone) == times


@pytest.mark.parametrize("cron", ["0 * * * *", "0 */1 * * *", "0 0-23 * * *", "@hourly"])
def test_hourly_schedule_fires_in_each_hour_when_clocks_are_set_back(cron: Any):
    assert len(times_of(cron, AUTUMN, "Europe/Berlin")) == 25


def test_firing_of_a_test_or_of_a_utc_schedule_is_never_repeated():
    again = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "at": "2026-10-25T02:30:00+01:00"}
    assert repeats_time_of_day(again)
    assert not repeats_time_of_day({**again, "test": True})
    assert not repeats_time_of_day({**again, "zone": None})


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 1 1 * 2020"])
def test_cron_times_that_never_occur_are_refused(cron: Any):
    with pytest.raises(ConfigurationError, match="never come"):
        check_times(cron, "Europe/Berlin")


def test_rare_time_is_accepted():
    assert check_times("0 0 29 2 *", None) is None


def times_of(cron: str, begin: datetime, zone: str) -> list[str]:
    """Return the times at which a schedule starts its task on the day after ``begin``."""
    day = (begin + timedelta(days=1)).date()
    found: list[str] = []
    each = croniter(cron, begin.replace(tzinfo=ZoneInfo(zone)), second_at_beginning=True)
    while (at := each.get_next(datetime)).date() <= day:
        firing = {"cron": cron, "zone": zone, "at": at.isoformat()}
        if at.date() == day and not repeats_time_of_day(firing):
            found.append(at.strftime("%H:%M%z"))
    return found
