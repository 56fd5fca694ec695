"""Calendar's actions against a server that speaks as Calendar does."""

from __future__ import annotations

import copy
import datetime as dt
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from delf.errors import ToolRefusedError
from delf.notes import notes_of_call
from delf.protocols.connection import ProposedCall
from delf.testing import Call, ConnectionContract
from delf_calendar import Calendar
from delf_calendar.events import event_of
from delf_google.connection import SCOPE_URL_PREFIX
from delf_google.errors import GoogleError
from support.google import GoogleServer
from support.google.fixtures import USER

BERLIN = ZoneInfo("Europe/Berlin")
NOON = dt.datetime(2026, 11, 23, 12)
DAY = dt.date(2026, 11, 23)
WEEK = {"start": dt.date(2026, 11, 22), "end": dt.date(2026, 11, 30)}


class TestCalendar(ConnectionContract):
    check_refuses = False
    logs_in = False  # tests/libs/google has refused logins, of all services at once
    untested = ("update", "delete", "respond", "get")
    calls = (
        Call("list", **WEEK),
        Call("calendars"),
        Call("create", title="Lunch", start=NOON),
        Call("free_busy", **WEEK),
    )
    failing_calls = (
        Call("get", event="nowhere"),
        Call("create", title="x", start=NOON, end=NOON - dt.timedelta(hours=1)),
        Call("create", title="x", start=NOON, zone="Nowhere/City"),
        Call("list", **WEEK, calendar="nowhere"),
        Call("create", title="x", start=NOON, attendees=["bob"]),
    )

    @pytest.fixture
    def connection(self, connect: Any) -> Any:
        return connect(Calendar)


@pytest.fixture
async def calendar(connect: Any) -> Any:
    made = connect(Calendar)
    yield made
    await made.aclose()


async def test_time_without_zone_uses_the_calendar_zone(
    google: GoogleServer, calendar: Any
) -> None:
    made = await calendar.create("Lunch", NOON)
    assert made["start"] == NOON.replace(tzinfo=BERLIN)
    assert made["end"] - made["start"] == dt.timedelta(hours=1)
    tokyo = await calendar.create("Call", NOON, zone="Asia/Tokyo")
    assert tokyo["start"] == NOON.replace(tzinfo=ZoneInfo("Asia/Tokyo"))
    utc = await calendar.create(
        "Sync", NOON.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.UTC, minute=30)
    )
    assert utc["start"].utcoffset() == dt.timedelta(0)
    found = await calendar.list(NOON - dt.timedelta(minutes=1), NOON + dt.timedelta(minutes=1))
    assert [e["title"] for e in found["events"]] == ["Lunch"]
    assert [e["title"] for e in (await calendar.list(**WEEK))["events"]] == [
        "Call",
        "Lunch",
        "Sync",
    ]


async def test_create_accepts_whole_days(calendar: Any) -> None:
    made = await calendar.create("Fair", DAY, DAY + dt.timedelta(days=3))
    assert (made["all_day"], made["start"], made["end"]) == (True, DAY, DAY + dt.timedelta(days=3))
    assert (await calendar.create("Off", DAY))["end"] == DAY + dt.timedelta(days=1)
    with pytest.raises(ToolRefusedError, match="the day after the last one"):
        await calendar.create("x", DAY, DAY)
    with pytest.raises(ToolRefusedError, match="both dates"):
        await calendar.create("x", DAY, NOON)


async def test_weekly_series_keeps_its_local_hour(calendar: Any) -> None:
    start = dt.datetime(2026, 10, 19, 9, tzinfo=BERLIN)
    made = await calendar.create("Weekly", start, recurrence=["RRULE:FREQ=WEEKLY;COUNT=3"])
    found = (await calendar.list(dt.date(2026, 10, 1), dt.date(2026, 12, 1)))["events"]
    assert [(e["start"].hour, e["start"].utcoffset().seconds // 3600) for e in found] == [
        (9, 2),
        (9, 1),
        (9, 1),
    ]
    assert {e["series"] for e in found} == {made["id"]}
    with pytest.raises(ToolRefusedError, match="not a recurrence"):
        await calendar.create("x", NOON, recurrence=["every week"])


async def test_series_repeats_in_the_named_zone(calendar: Any) -> None:
    rule = ["RRULE:FREQ=WEEKLY;COUNT=3"]
    for tz in (dt.UTC, dt.timezone(dt.timedelta(hours=-5)), ZoneInfo("America/New_York")):
        start = dt.datetime(2026, 10, 19, 9, tzinfo=BERLIN).astimezone(tz)
        made = await calendar.create("Weekly", start, recurrence=rule, zone="Europe/Berlin")
        assert (made["zone"], made["start"]) == ("Europe/Berlin", start)
        found = (await calendar.list(dt.date(2026, 10, 1), dt.date(2026, 12, 1)))["events"]
        assert [event["start"].astimezone(BERLIN).hour for event in found] == [9, 9, 9]
        moved = await calendar.update(
            made["id"], start=start + dt.timedelta(hours=1), zone="Europe/Berlin"
        )
        assert moved["zone"] == "Europe/Berlin"
        await calendar.delete(made["id"])


SPRING = dt.datetime(2026, 3, 16, 9, tzinfo=BERLIN)
"""Two weeks before clocks are put forward."""
ALL_SPRING = (dt.date(2026, 3, 1), dt.date(2026, 5, 1))
WEEKLY = "RRULE:FREQ=WEEKLY;COUNT=4"


async def _hours(calendar: Any) -> list[str]:
    found = (await calendar.list(*ALL_SPRING))["events"]
    return [f"{event['start'].astimezone(BERLIN):%m-%d %H}" for event in found]


@pytest.mark.parametrize(
    "line",
    [
        "EXDATE:20260330T090000",
        "EXDATE:20260330",
        "EXDATE:20260330T070000Z",
        "EXDATE;TZID=Europe/Berlin:20260330T090000",
        "EXDATE;TZID=America/New_York:20260330T030000",
    ],
)
@pytest.mark.parametrize("tz", [BERLIN, dt.UTC])
async def test_exception_date_uses_the_zone_of_the_series(
    calendar: Any, line: str, tz: dt.tzinfo
) -> None:
    start = SPRING.astimezone(tz)
    made = await calendar.create("Weekly", start, recurrence=[WEEKLY, line], zone="Europe/Berlin")
    assert await _hours(calendar) == ["03-16 09", "03-23 09", "04-06 09"]
    await calendar.update(made["id"], recurrence=[WEEKLY, "RDATE:20260401T120000"])
    assert await _hours(calendar) == ["03-16 09", "03-23 09", "03-30 09", "04-01 12", "04-06 09"]


@pytest.mark.parametrize(
    "dates", ["20260330, 20260406", "20260330,20260406T070000Z", "20260330T070000Z,20260406"]
)
async def test_each_exception_date_is_completed_by_itself(calendar: Any, dates: str) -> None:
    lines = [WEEKLY, f"EXDATE:{dates}"]
    await calendar.create("Weekly", SPRING, recurrence=lines, zone="Europe/Berlin")
    assert await _hours(calendar) == ["03-16 09", "03-23 09"]


async def test_exception_dates_of_an_all_day_series_are_left_out(calendar: Any) -> None:
    first = SPRING.date()
    lines = [WEEKLY, "EXDATE:20260330,20260406T000000"]
    await calendar.create("Fair", first, recurrence=lines, zone="Europe/Berlin")
    found = (await calendar.list(*ALL_SPRING))["events"]
    assert [event["start"] for event in found] == [first, first + dt.timedelta(days=7)]


@pytest.mark.parametrize(
    "change",
    [
        {"start": (SPRING + dt.timedelta(hours=1)).astimezone(dt.UTC)},
        {"start": (SPRING + dt.timedelta(hours=1)).astimezone(dt.timezone(dt.timedelta(hours=1)))},
        {"start": dt.datetime(2026, 3, 16, 10)},
        {"start": dt.datetime(2026, 3, 16, 10), "zone": "Europe/Berlin"},
    ],
    ids=["UTC", "an offset", "the wall", "a zone"],
)
async def test_moved_series_keeps_its_zone(calendar: Any, change: Any) -> None:
    made = await calendar.create("Weekly", SPRING, recurrence=[WEEKLY], zone="Europe/Berlin")
    moved = await calendar.update(made["id"], **change)
    assert moved["zone"] == "Europe/Berlin"
    assert await _hours(calendar) == ["03-16 10", "03-23 10", "03-30 10", "04-06 10"]


async def test_local_end_is_in_the_zone_of_the_new_start(calendar: Any) -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    made = await calendar.create("Call", NOON, zone="Europe/Berlin")
    moved = await calendar.update(
        made["id"], start=NOON.replace(tzinfo=tokyo), end=NOON + dt.timedelta(hours=2)
    )
    assert moved["zone"] == "Asia/Tokyo"
    assert moved["end"] == (NOON + dt.timedelta(hours=2)).replace(tzinfo=tokyo)


async def test_changed_zone_changes_the_hours_of_a_series(calendar: Any) -> None:
    made = await calendar.create("Weekly", SPRING.astimezone(dt.UTC), recurrence=[WEEKLY])
    assert await _hours(calendar) == ["03-16 09", "03-23 09", "03-30 10", "04-06 10"]
    await calendar.update(made["id"], zone="Europe/Berlin")
    assert await _hours(calendar) == ["03-16 09", "03-23 09", "03-30 09", "04-06 09"]


async def test_moving_one_event_leaves_the_series(calendar: Any) -> None:
    await calendar.create("Weekly", SPRING, recurrence=[WEEKLY], meet=True)
    third = (await calendar.list(*ALL_SPRING))["events"][2]
    moved = await calendar.update(third["id"], start=third["start"] + dt.timedelta(hours=3))
    assert (moved["zone"], moved["meet"]) == ("Europe/Berlin", third["meet"])
    assert await _hours(calendar) == ["03-16 09", "03-23 09", "03-30 12", "04-06 09"]


async def test_event_turned_into_a_series_uses_the_calendar_zone(
    google: GoogleServer, calendar: Any
) -> None:
    made = await calendar.create("Once", SPRING)
    stored = google.calendar.calendar("primary", USER).events[made["id"]]
    for side in ("start", "end"):
        del stored[side]["timeZone"]
    await calendar.update(made["id"], recurrence=[WEEKLY])
    assert await _hours(calendar) == ["03-16 09", "03-23 09", "03-30 09", "04-06 09"]


def test_all_day_event_without_an_end_lasts_one_day() -> None:
    event = event_of({"id": "1", "start": {"date": "2026-03-16"}})
    assert event["end"] == dt.date(2026, 3, 17)


async def test_conference_survives_changes_and_a_pending_conference_is_reported(
    google: GoogleServer, calendar: Any
) -> None:
    made = await calendar.create("Call", SPRING, meet=True)
    assert made["meet"]
    for change in ({"title": "Talk"}, {"start": SPRING + dt.timedelta(days=1)}):
        assert (await calendar.update(made["id"], **change))["meet"] == made["meet"]
    google.calendar.conferences_pend = True
    with notes_of_call() as notes:
        assert (await calendar.create("Later", SPRING, meet=True))["meet"] is None
    assert "'Later' has no conference link yet" in " ".join(notes)


async def test_hidden_attendees_survive_an_update(google: GoogleServer, calendar: Any) -> None:
    made = await calendar.create("Party", SPRING, attendees=[USER, "ann@example.com"])
    stored = google.calendar.calendar("primary", USER).events[made["id"]]
    stored["guestsHidden"] = True
    with notes_of_call() as notes:
        answered = await calendar.respond(made["id"], "accepted")
    assert answered["my_response"] == "accepted"
    assert "not all attendees of 'Party' are shown" in " ".join(notes)
    with pytest.raises(ToolRefusedError, match="would lose some"):
        await calendar.update(made["id"], add_attendees=["bob@example.com"])
    stored = google.calendar.calendar("primary", USER).events[made["id"]]
    assert [person["email"] for person in stored["attendees"]] == ["ann@example.com", USER]


def test_meeting_link_is_found_in_conference_data() -> None:
    points = [
        {"entryPointType": "phone", "uri": "tel:+49"},
        {"entryPointType": "video", "uri": "https://zoom.example/j/1"},
    ]
    for resource, meet in (
        ({"conferenceData": {"entryPoints": points}}, "https://zoom.example/j/1"),
        ({"conferenceData": {"entryPoints": points[:1]}}, "tel:+49"),
        (
            {"conferenceData": {"entryPoints": points}, "hangoutLink": "https://meet.example/x"},
            "https://meet.example/x",
        ),
        ({"conferenceData": {"createRequest": {"status": {"statusCode": "pending"}}}}, None),
        ({}, None),
    ):
        assert event_of({"id": "1", **resource})["meet"] == meet


async def test_create_sends_invitations(google: GoogleServer, calendar: Any) -> None:
    made = await calendar.create(
        "Review", NOON, attendees=["bob@example.com", "eve@example.com"], meet=True, reminders=[10],
        description="Plans", location="Room 1",
    )  # fmt: skip
    assert made["meet"].startswith("https://meet.google.com/")
    assert [p["response"] for p in made["attendees"]] == ["needsAction"] * 2
    assert [(who, what) for who, what, _ in google.calendar.mails] == [
        ("bob@example.com", "invitation"), ("eve@example.com", "invitation"),
    ]  # fmt: skip
    google.calendar.mails.clear()
    changed = await calendar.update(
        made["id"], add_attendees=["max@example.com"], remove_attendees=["EVE@example.com"]
    )
    assert [p["email"] for p in changed["attendees"]] == ["bob@example.com", "max@example.com"]
    assert len(google.calendar.mails) == 2
    google.calendar.mails.clear()
    await calendar.update(made["id"], title="Review 2", notify=False)
    assert google.calendar.mails == []
    await calendar.delete(made["id"])
    assert {what for _, what, _ in google.calendar.mails} == {"cancellation"}
    with pytest.raises(ToolRefusedError, match="is not invited"):
        await calendar.update(made["id"], remove_attendees=["nobody@example.com"])


async def test_update_moves_an_event(calendar: Any) -> None:
    made = await calendar.create("Call", NOON, NOON + dt.timedelta(minutes=30))
    later = await calendar.update(made["id"], start=NOON + dt.timedelta(hours=2))
    assert later["start"] == (NOON + dt.timedelta(hours=2)).replace(tzinfo=BERLIN)
    assert later["end"] - later["start"] == dt.timedelta(minutes=30)
    longer = await calendar.update(made["id"], end=NOON + dt.timedelta(hours=4))
    assert longer["end"] - longer["start"] == dt.timedelta(hours=2)
    whole = await calendar.update(made["id"], start=DAY, end=DAY + dt.timedelta(days=1))
    assert (whole["all_day"], whole["start"]) == (True, DAY)
    back = await calendar.update(made["id"], start=NOON, end=NOON + dt.timedelta(hours=1))
    assert (back["all_day"], back["start"]) == (False, NOON.replace(tzinfo=BERLIN))
    with pytest.raises(ToolRefusedError, match="give the fields to change"):
        await calendar.update(made["id"])


async def test_respond_sets_the_users_own_response(google: GoogleServer, calendar: Any) -> None:
    made = await calendar.create("Team", NOON, attendees=[USER, "bob@example.com"])
    assert made["my_response"] == "needsAction"
    answered = await calendar.respond(made["id"], "tentative", comment="maybe late")
    assert answered["my_response"] == "tentative"
    assert {p["email"] for p in answered["attendees"]} == {USER, "bob@example.com"}
    alone = await calendar.create("Alone", NOON)
    with pytest.raises(ToolRefusedError, match="is not invited to 'Alone'"):
        await calendar.respond(alone["id"], "accepted")


async def test_free_busy_lists_busy_times(google: GoogleServer, calendar: Any) -> None:
    await calendar.create("A", NOON)
    await calendar.create("B", NOON + dt.timedelta(minutes=30))
    google.calendar.calendar("bob@example.com")
    busy = await calendar.free_busy(**WEEK, calendars=["primary", "bob@example.com"])
    (span,) = busy["primary"]
    assert (span["start"], span["end"]) == (
        NOON.replace(tzinfo=BERLIN), NOON.replace(tzinfo=BERLIN, hour=13, minute=30),
    )  # fmt: skip
    assert busy["bob@example.com"] == []
    with pytest.raises(
        ToolRefusedError, match=r"no busy times are known for: nobody@elsewhere.example"
    ):
        await calendar.free_busy(**WEEK, calendars=["nobody@elsewhere.example"])


async def test_list_begins_in_any_year(calendar: Any) -> None:
    made = await calendar.create("A", NOON)
    for year in (1, 999, 1850):  # when clocks followed the sun: in Berlin, at +00:53:28
        found = await calendar.list(dt.date(year, 1, 1), DAY + dt.timedelta(days=1))
        assert [event["id"] for event in found["events"]] == [made["id"]]


async def test_empty_time_range_is_refused(calendar: Any) -> None:
    for query in (calendar.list, calendar.free_busy):
        for start, end in ((DAY, DAY), (NOON, DAY), (NOON, NOON)):
            with pytest.raises(ToolRefusedError, match="the day after the last one"):
                await query(start, end)


async def test_event_with_a_lost_answer_is_created_once(
    google: GoogleServer, calendar: Any
) -> None:
    google.lose("calendar.events.insert")
    made = await calendar.create("Once", NOON, attendees=["bob@example.com"])
    assert made["title"] == "Once"
    assert len(google.calendar.calendar(USER).events) == 1
    assert len(google.calendar.mails) == 1
    google.lose("calendar.events.delete")
    await calendar.delete(made["id"])  # gone is gone


async def test_list_limit_is_reported_in_a_notice(calendar: Any) -> None:
    await calendar.create("Daily", NOON, recurrence=["RRULE:FREQ=DAILY;COUNT=30"])
    found = await calendar.list(dt.date(2026, 11, 1), dt.date(2027, 1, 31), limit=20)
    assert (len(found["events"]), "there are more" in found["notice"]) == (20, True)
    assert (await calendar.list(dt.date(2026, 11, 1), dt.date(2027, 1, 31), limit=30))[
        "notice"
    ] is None


async def test_shared_calendar_is_listed_and_refuses_writes(
    google: GoogleServer, calendar: Any
) -> None:
    google.calendar.calendar("bob@example.com")
    assert [(c["id"], c["primary"]) for c in sorted(await calendar.calendars(), key=str)] == [
        (USER, True),
        ("bob@example.com", False),
    ]
    with pytest.raises(GoogleError, match="writer access"):
        await calendar.create("x", NOON, calendar="bob@example.com")


def test_calendar_permissions_and_scopes_match_the_actions() -> None:
    methods = {
        m["name"]: (m.get("permission", m["name"]), m["effect"])
        for m in Calendar.inspect(verbose=True)["methods"]
    }
    assert {unit for unit, _ in methods.values()} == {
        "reading",
        "create",
        "update",
        "delete",
        "respond",
    }
    assert {methods[name][1] for name in ("create", "update", "delete", "respond")} == {
        "irreversible"
    }
    assert Calendar(allow=["list"]).needed_scopes() == (SCOPE_URL_PREFIX + "calendar.readonly",)
    assert Calendar().needed_scopes() == (
        SCOPE_URL_PREFIX + "calendar.events",
        SCOPE_URL_PREFIX + "calendar.readonly",
    )


async def test_concurrent_response_survives_an_update(google: GoogleServer, calendar: Any) -> None:
    made = await calendar.create("Review", NOON, attendees=["bob@example.com"])
    get, accepted = google.handlers["calendar.events.get"], False

    def accept_meanwhile(call: Any) -> Any:
        nonlocal accepted
        found = copy.deepcopy(get(call))
        if not accepted:
            accepted = True
            kept = google.calendar.calendar(USER).events[made["id"]]
            kept["attendees"][0]["responseStatus"] = "accepted"
            kept["etag"] = '"99"'
        return found

    google.handlers["calendar.events.get"] = accept_meanwhile
    changed = await calendar.update(made["id"], add_attendees=["eve@example.com"])
    assert [(p["email"], p["response"]) for p in changed["attendees"]] == [
        ("bob@example.com", "accepted"),
        ("eve@example.com", "needsAction"),
    ]


async def test_event_changed_after_approval_is_not_updated(calendar: Any) -> None:
    made = await calendar.create("Review", NOON, attendees=[USER])
    shown = await calendar.check(
        ProposedCall(action="respond", arguments={"event": made["id"], "answer": "accepted"})
    )
    context = SimpleNamespace(basis=shown.basis)
    await calendar.update(made["id"], title="Another")
    with pytest.raises(ToolRefusedError, match="changed the event since a person saw it"):
        await calendar.respond(made["id"], "accepted", context=context)


async def test_cancelled_occurrence_is_omitted_from_the_list(
    google: GoogleServer, calendar: Any
) -> None:
    await calendar.create("Daily", NOON, recurrence=["RRULE:FREQ=DAILY;COUNT=3"])
    second = (await calendar.list(**WEEK))["events"][1]
    await calendar.delete(second["id"])
    gone = await calendar.get(second["id"])
    assert (gone["status"], gone["start"]) == ("cancelled", second["start"])
    del google.calendar.calendar(USER).events[second["id"]]["originalStartTime"]["dateTime"]
    assert (await calendar.get(second["id"]))["start"] is None
    with pytest.raises(ToolRefusedError, match="is cancelled and has no time"):
        await calendar.update(second["id"], start=NOON)


BACK = dt.datetime(2026, 10, 25, 2, 30)
"""An hour that comes twice in Berlin."""


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("zone", [BERLIN, None])
async def test_repeated_clock_hour_follows_fold(calendar: Any, fold: int, zone: Any) -> None:
    start = BACK.replace(fold=fold, tzinfo=zone)
    made = await calendar.create("Night", start)
    utc = dt.datetime(2026, 10, 25, fold, 30, tzinfo=dt.UTC)
    assert made["start"] == utc
    assert made["end"] == utc + dt.timedelta(hours=1)
    moved = await calendar.update(made["id"], start=BACK.replace(day=24))
    assert moved["end"] - moved["start"] == dt.timedelta(hours=1)
    back = await calendar.update(made["id"], start=start)
    assert (back["start"], back["end"]) == (utc, utc + dt.timedelta(hours=1))


async def test_skipped_clock_hour_is_refused(calendar: Any) -> None:
    with pytest.raises(ToolRefusedError, match="no 02:30 on 2026-03-29 in Europe/Berlin"):
        await calendar.create("Night", dt.datetime(2026, 3, 29, 2, 30))
    before = dt.datetime(2026, 3, 29, 1, 30)
    made = await calendar.create("Night", before)
    assert made["end"] - made["start"] == dt.timedelta(hours=1)
