"""An event with odd dates spoils no list."""

import datetime as dt

import pytest

from delf.notes import notes_of_call
from delf_calendar.events import event_of


@pytest.mark.parametrize(
    ("start", "found", "reported"),
    [
        ({"dateTime": "nonsense"}, None, "'nonsense'"),
        ({"date": "0000-01-02"}, None, "'0000-01-02'"),
        (
            {"dateTime": "2026-01-02T10:00:00", "timeZone": "Customized Time Zone"},
            dt.datetime(2026, 1, 2, 10),
            "without its time zone",
        ),
        ({}, None, ""),
        ({"date": "2026-01-02"}, dt.date(2026, 1, 2), ""),
    ],
)
def test_unreadable_event_date_is_reported(start, found, reported):
    with notes_of_call() as notes:
        event = event_of({"id": "e", "summary": "x", "start": start})
    assert (event["title"], event["start"]) == ("x", found)
    assert reported in " ".join(notes)
    assert bool(notes) == bool(reported)
