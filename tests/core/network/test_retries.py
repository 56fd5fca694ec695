"""Tests of when a request is retried."""

import datetime as dt
from email.utils import format_datetime

import pytest

from delf.network.retries import pause, retry_after


def test_retry_after_reads_seconds_and_dates():
    assert retry_after({"retry-after": " 7 "}) == 7.0
    assert retry_after({"retry-after": "0.5"}) == 0.5
    later = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=2)
    assert 100 < (retry_after({"retry-after": format_datetime(later)}) or 0) <= 120
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0


LARGE_YEAR = "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"


@pytest.mark.parametrize(
    "message", [None, "", "soon", "-3", "nan", "inf", "1e9999", "²", "1.2.3", LARGE_YEAR]
)
def test_retry_after_without_a_time_is_ignored(message):
    assert retry_after({} if message is None else {"retry-after": message}) is None


def test_retry_delays_grow_up_to_a_limit():
    assert 0.375 <= pause(0) <= 0.625
    assert 1.5 <= pause(2) <= 2.5
    assert pause(2000) <= 40.0
    assert pause(2000, longest=8.0) <= 10.0
