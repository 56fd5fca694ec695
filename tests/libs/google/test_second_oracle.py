"""Tests against third-party implementations of Google: their answers, and their client's calls."""

from __future__ import annotations

import base64
import datetime as dt
import email
import email.policy
import importlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from delf_calendar import Calendar
from delf_drive import Drive
from delf_gmail import Gmail
from delf_sheets import Sheets
from support.google import GoogleServer
from support.google.calls import Call
from support.google.fixtures import ALL, USER

OTHERS = {
    "gmail.users.messages.send": ("gmail", "message_send"),
    "drive.files.get": ("google_drive", "file_get"),
    "drive.files.list": ("google_drive", "file_list"),
    "drive.files.create": ("google_drive", "folder_create"),
    "drive.permissions.create": ("google_drive", "permission_create"),
    "calendar.events.insert": ("google_calendar", "event_create"),
    "calendar.events.delete": ("google_calendar", "event_delete"),
    "calendar.events.get": ("google_calendar", "event_get"),
    "calendar.events.list": ("google_calendar", "event_list"),
    "calendar.events.patch": ("google_calendar", "event_update"),
}
TEN = dt.datetime(2026, 10, 1, 10, tzinfo=dt.UTC)


def answer_of(package: str, operation: str, config: dict[str, Any]) -> Any:
    """Return the answer of the third-party mock to an operation."""
    made = importlib.import_module(f"fancy_{package}.actions.{operation}")
    service = importlib.import_module(f"fancy_{package}.service")
    runtime = importlib.import_module(f"fancy_{package}._fake")
    seed = runtime.seed_for_call(service.SERVICE, made.OPERATION, config)
    return service.descriptor().faker(
        made.OPERATION, {"config": config, "fake": runtime.FakeValues(seed)}
    )


@pytest.fixture
def others(google: GoogleServer) -> list[Call]:
    """Let the server answer as the third party does; return the calls, valid by the documents."""
    calls: list[Call] = []

    def serve(package: str, operation: str) -> Any:
        def answer(call: Call) -> Any:
            calls.append(call)
            flat = {**call.arguments, **call.body}
            for name in ("start", "end"):
                moment = flat.pop(name, {})
                flat |= {f"{name}{key[0].upper()}{key[1:]}": text for key, text in moment.items()}
            return answer_of(package, operation, flat) or None

        return answer

    google.handlers |= {method: serve(*shown) for method, shown in OTHERS.items()}
    return calls


@pytest.fixture
async def opened(connect: Any) -> AsyncIterator[Any]:
    """Return a function that makes connections to the server; close them after the test."""
    async with AsyncExitStack() as stack:

        def make(kind: Any) -> Any:
            made = connect(kind)
            stack.push_async_callback(made.aclose)
            return made

        yield make


async def test_gmail_mail_is_accepted_by_a_third_party_mock(
    opened: Any, others: list[Call]
) -> None:
    sent = await opened(Gmail).send(
        to='"Müller, Ada" <ada@example.test>', subject="Grüße", text="Hallo"
    )
    assert sent["id"] == sent["thread"]
    (call,) = others
    raw = call.media or base64.urlsafe_b64decode(call.body["raw"])
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert message["subject"] == "Grüße"
    assert [a.addr_spec for a in message["to"].addresses] == ["ada@example.test"]


async def test_drive_reads_and_shares_through_a_third_party_mock(
    opened: Any, others: list[Call]
) -> None:
    drive = opened(Drive)
    found = await drive.search(text="report")
    assert [f["name"] for f in found["files"]] == ["Q3 report", "invoice.pdf"]
    assert [f["size"] for f in found["files"]] == [None, 48213]
    file = await drive.get("1Pdf_fake_0123456789ab")
    assert (file["name"], file["size"]) == ("invoice.pdf", 48213)
    assert file["modified"] == dt.datetime(2026, 9, 25, 11, tzinfo=dt.UTC)
    shared = await drive.share("1Pdf_fake_0123456789ab", "grace@example.test", role="writer")
    assert (shared["who"], shared["role"]) == ("grace@example.test", "writer")


async def test_calendar_changes_events_of_a_third_party_mock(
    opened: Any, others: list[Call]
) -> None:
    calendar = opened(Calendar)
    listed = await calendar.list(dt.date(2026, 9, 1), dt.date(2026, 10, 1))
    assert [e["title"] for e in listed["events"]] == ["Design review"]
    event = await calendar.get("evt_fake_0123456789ab")
    answers = {p["email"]: p["response"] for p in event["attendees"]}
    assert answers == {"ada@example.test": "accepted", "grace@example.test": "needsAction"}
    made = await calendar.create("Lunch", start=TEN, end=TEN + dt.timedelta(hours=1))
    assert made["title"] == "Lunch"
    changed = await calendar.update("evt_fake_0123456789ab", title="Dinner")
    assert changed["title"] == "Dinner"
    await calendar.delete("evt_fake_0123456789ab")
    patch = next(call for call in others if call.method == "calendar.events.patch")
    assert patch.headers["If-Match"] == '"3456789012345678"'


async def test_sheets_reads_a_grid_of_a_third_party_mock(opened: Any, google: GoogleServer) -> None:
    shown = answer_of("google_sheets", "values_get", {})
    grid = [
        {
            "values": [
                {"effectiveValue": {"stringValue": t}, "userEnteredValue": {"stringValue": t}}
                for t in row
            ]
        }
        for row in shown["values"]
    ]
    sheet = {
        "properties": {
            "sheetId": 0,
            "title": "Sheet1",
            "gridProperties": {"rowCount": 2, "columnCount": 3},
        },
        "data": [{"rowData": grid}],
    }
    google.handlers["sheets.spreadsheets.get"] = lambda call: {
        "spreadsheetId": call["spreadsheetId"],
        "properties": {"title": "Book"},
        "sheets": [sheet],
    }
    rows = await opened(Sheets).read("1Sheet_fake_0123456789ab")
    assert rows == [{"Name": "Ada Lovelace", "Email": "ada@example.test", "Status": "Active"}]


@pytest.fixture
def client(google: GoogleServer) -> Any:
    """Return a function that sends delf's test server an operation as third parties describe it."""
    token = google.logins.token_for(USER, ALL)

    def send(package: str, operation: str, **config: Any) -> Any:
        shown = importlib.import_module(f"fancy_{package}.actions.{operation}")
        fields = shown.body(config)
        reads = shown.METHOD in ("GET", "DELETE")
        answer = httpx.request(
            shown.METHOD,
            google.url + (shown.path(config) if hasattr(shown, "path") else shown.PATH),
            params={
                **(shown.query(config) if hasattr(shown, "query") else {}),
                **(fields if reads else {}),
            },
            json=None if reads else fields,
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code < 400, answer.text
        return answer.json() if answer.content else None

    return send


def test_test_server_accepts_requests_of_the_vendor_library(
    google: GoogleServer, client: Any
) -> None:
    sent = client("gmail", "message_send", userId="me", to=USER, subject="Hi", body="Grüße")
    assert "SENT" in sent["labelIds"]
    folder = client("google_drive", "folder_create", name="Bills")
    assert client("google_drive", "file_get", fileId=folder["id"])["name"] == "Bills"
    listed = client("google_drive", "file_list", q="name = 'Bills'", pageSize=5)
    assert [f["id"] for f in listed["files"]] == [folder["id"]]
    who = {"type": "user", "role": "reader", "emailAddress": "bob@example.com"}
    shared = client("google_drive", "permission_create", fileId=folder["id"], **who)
    assert shared["role"] == "reader"
    shown = {"calendarId": "primary", "summary": "Lunch"}
    hours = {"startDateTime": "2026-10-01T12:00:00Z", "endDateTime": "2026-10-01T13:00:00Z"}
    event = client("google_calendar", "event_create", **shown, **hours)
    key = {"calendarId": "primary", "eventId": event["id"]}
    assert client("google_calendar", "event_update", **key, summary="Dinner")["id"] == event["id"]
    (found,) = client("google_calendar", "event_list", calendarId="primary")["items"]
    assert found["summary"] == client("google_calendar", "event_get", **key)["summary"] == "Dinner"
    client("google_calendar", "event_delete", **key)
