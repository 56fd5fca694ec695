"""What is away is told once, with a count once it is back."""

from __future__ import annotations

import logging

import pytest

from delf.outages import Outage


def test_it_warns_once_and_tells_of_the_number_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    outage = Outage(logging.getLogger("delf.test"), "nothing is seen")

    def attempt(works: bool) -> None:
        with outage.noted(OSError):
            if not works:
                raise OSError("gone")

    for works in (True, False, False, False, True, True, False):
        attempt(works)
    assert outage.failures == 1
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warned == [
        "nothing is seen (failure 1): gone",
        "nothing is seen: works again after 3 failures in 0 s",
        "nothing is seen (failure 1): gone",
    ]
    assert sum(r.levelno == logging.DEBUG for r in caplog.records) == 2


def test_other_failures_go_through() -> None:
    outage = Outage(logging.getLogger("delf.test"), "nothing is seen")
    with pytest.raises(KeyError), outage.noted(OSError):
        raise KeyError("x")
    assert outage.failures == 0
