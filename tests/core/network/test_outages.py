"""Tests that an outage is logged once, and its end once with a count of the failures."""

from __future__ import annotations

import logging

import pytest

from delf.network.outages import Outage


def test_outage_warns_once_and_counts_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    outage = Outage(logging.getLogger("delf.test"), "nothing is seen", None)

    def attempt(works: bool) -> None:
        with outage.track(OSError):
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


def test_outage_does_not_suppress_other_errors() -> None:
    outage = Outage(logging.getLogger("delf.test"), "nothing is seen")
    with pytest.raises(KeyError), outage.track(OSError):
        raise KeyError("x")
    assert outage.failures == 0


def test_outage_shared_by_two_parts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("delf.test")
    notes, search = (
        Outage(log, what, "the database of two parts") for what in ("no notes", "no search")
    )
    other = Outage(log, "no mail", "the mail server")
    for _ in range(3):
        notes.record_failure(OSError("refused"))
        search.record_failure(OSError("it starts"))
    other.record_failure(OSError("refused"))
    search.record_success()
    notes.record_success()
    other.record_success()
    search.record_failure(OSError("gone again"))
    assert [record.getMessage() for record in caplog.records] == [
        "no notes (failure 1): refused",
        "no mail (failure 1): refused",
        "no notes: works again after 6 failures in 0 s",
        "no mail: works again after 1 failures in 0 s",
        "no search (failure 1): gone again",
    ]


def test_outage_of_another_part_has_its_own_failures_at_debug_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("delf.test")
    notes, search = (Outage(log, what, "a shared disk") for what in ("no notes", "no search"))
    notes.record_failure(OSError("refused"))
    caplog.set_level(logging.DEBUG)
    for _ in range(2):
        search.record_failure(OSError("refused"))
    search.record_success()
    last = caplog.records[-1]
    assert last.getMessage() == "no search: works again after 2 failures in 0 s"
    assert last.levelno == logging.DEBUG


def test_outage_is_logged_again_after_its_reporter_is_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("delf.test")
    Outage(log, "no notes", "a database").record_failure(OSError("refused"))
    search = Outage(log, "no search", "a database")
    search.record_failure(OSError("refused"))
    assert [record.getMessage() for record in caplog.records] == [
        "no notes (failure 1): refused",
        "no search (failure 1): refused",
    ]
