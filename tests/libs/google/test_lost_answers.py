"""Tests that a change with a lost answer is done once, and not reported as a success if unknown."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from delf.errors import DelfError
from delf_calendar import Calendar
from delf_docs import Docs
from delf_drive import Drive
from delf_gmail import Gmail
from delf_google.errors import GoogleError, LostAnswerError
from delf_sheets import Sheets
from support.google import GoogleServer, google_server
from support.google.fixtures import ALL, USER

NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
BOB = "bob@example.com"
README = Path(__file__).parents[3] / "libs" / "google" / "README.md"
KINDS = {"gmail": Gmail, "drive": Drive, "docs": Docs, "sheets": Sheets, "calendar": Calendar}
MAIL = b"From: bob@example.com\r\nTo: ada@example.com\r\nSubject: Hi\r\n\r\nx"

Act = Callable[[Any], Awaitable[Any]]


async def mail_world(gmail: Any, google: GoogleServer) -> str:
    google.gmail.box(BOB)
    return google.gmail.deliver(USER, MAIL, when=1_760_000_000).id


async def drive_world(drive: Any, google: GoogleServer) -> str:
    await drive.create_folder("Old")
    return (await drive.create("a.txt", "one"))["id"]


async def docs_world(docs: Any, google: GoogleServer) -> str:
    return (await docs.create("Notes", "# One\n\n7 and 7"))["id"]


async def sheets_world(sheets: Any, google: GoogleServer) -> str:
    book = (await sheets.create("Bills"))["id"]
    await sheets.write(book, "A1", [{"a": 1, "b": 2}])
    return book


async def calendar_world(calendar: Any, google: GoogleServer) -> str:
    return (await calendar.create("Lunch", NOON, attendees=[USER, BOB]))["id"]


WORLDS = {
    "gmail": mail_world, "drive": drive_world, "docs": docs_world,
    "sheets": sheets_world, "calendar": calendar_world,
}  # fmt: skip

# What is done with what the world above made: `key`.
CHANGES: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "gmail.send": lambda c, key: c.send(BOB, "One", "text"),
    "gmail.reply": lambda c, key: c.reply(key, "text"),
    "gmail.draft": lambda c, key: c.draft("text", to=BOB, subject="x"),
    "gmail.label": lambda c, key: c.label(key, add="Bills"),
    "gmail.archive": lambda c, key: c.archive(key),
    "gmail.trash": lambda c, key: c.trash(key),
    "drive.create": lambda c, key: c.create("b.txt", "two"),
    "drive.create_folder": lambda c, key: c.create_folder("New/Inner"),
    "drive.copy": lambda c, key: c.copy(key, name="c.txt"),
    "drive.update content": lambda c, key: c.update(key, content="three"),
    "drive.update folder": lambda c, key: c.update(key, name="d.txt", folder="Old"),
    "drive.trash": lambda c, key: c.trash(key),
    "drive.delete": lambda c, key: c.delete(key),
    "drive.share": lambda c, key: c.share(key, BOB),
    "docs.create": lambda c, key: c.create("More", "# Two"),
    "docs.append": lambda c, key: c.append(key, "end"),
    "docs.replace": lambda c, key: c.replace(key, "7", "77"),
    "docs.rewrite": lambda c, key: c.rewrite(key, "all new"),
    "docs.format": lambda c, key: c.format(key, "7", bold=True),
    "docs.trash": lambda c, key: c.trash(key),
    "docs.delete": lambda c, key: c.delete(key),
    "sheets.write": lambda c, key: c.write(key, "B1", [[5, 6]]),
    "sheets.write growing": lambda c, key: c.write(key, "Z1000", [[1, 2], [3, 4]]),
    "sheets.append": lambda c, key: c.append(key, [{"a": 3}]),
    "sheets.clear": lambda c, key: c.clear(key, "A1:B9"),
    "sheets.create": lambda c, key: c.create("More"),
    "sheets.add_sheet": lambda c, key: c.add_sheet(key, "Q3"),
    "sheets.format": lambda c, key: c.format(key, "A1:B1", bold=True, freeze_rows=1),
    "sheets.chart": lambda c, key: c.chart(key, "A1:B2"),
    "sheets.batch": lambda c, key: c.batch(
        key,
        [{"do": "add_sheet", "title": "Q3"}, {"do": "append", "rows": [[1]]}],
    ),
    "calendar.create": lambda c, key: c.create("Tea", NOON, attendees=[BOB]),
    "calendar.update": lambda c, key: c.update(
        key, title="Dinner", add_attendees=["eve@x.example"]
    ),
    "calendar.respond": lambda c, key: c.respond(key, "accepted"),
    "calendar.delete": lambda c, key: c.delete(key),
}


async def send_draft(gmail: Any, key: str) -> Any:
    (draft,) = (await gmail.draft("text", to=BOB, subject="x"),)
    return await gmail.send_draft(draft["id"])


async def unshare(drive: Any, key: str) -> Any:
    await drive.share(key, BOB, notify=False)
    return await drive.unshare(key, BOB)


CHANGES |= {"gmail.send_draft": send_draft, "drive.unshare": unshare}


def picture(google: GoogleServer) -> dict[str, Any]:
    """Return the state of all services, without values that differ at each run."""
    boxes = {
        user: sorted((mail.header("Subject"), sorted(mail.labels)) for mail in box.mails.values())
        for user, box in google.gmail.boxes.items()
    }
    labels = [sorted(box.labels.values()) for box in google.gmail.boxes.values()]
    names = {key: file.data["name"] for key, file in google.drive.files.items()}
    files = sorted(
        (
            file.data["name"], [names.get(key, key) for key in file.data.get("parents", ())],
            file.content, file.data["trashed"], len(file.permissions),
        )
        for file in google.drive.files.values()
    )  # fmt: skip
    documents = sorted(
        (
            google.docs.text(key),
            str(list(document.blocks)),
        )
        for key, document in google.docs.documents.items()
    )
    books = sorted(
        (
            book.properties["title"],
            [
                (
                    s.properties["title"],
                    s.size,
                    len(s.charts),
                    str(sorted(s.cells.items())),
                )
                for s in book.sheets
            ],
        )
        for book in google.sheets.books.values()
    )
    events = sorted(
        (
            event["summary"],
            event["status"],
            str([(p["email"], p["responseStatus"]) for p in event.get("attendees", ())]),
        )
        for calendar in google.calendar.calendars.values()
        for event in calendar.events.values()
    )
    return {
        "boxes": boxes, "labels": labels, "files": files, "documents": documents, "books": books,
        "events": events, "told": [sorted(google.calendar.mails), sorted(google.drive.mails)],
    }  # fmt: skip


async def played(
    connect: Any, change: str, spoil: Callable[[GoogleServer], None]
) -> tuple[dict[str, Any], dict[str, Any], Exception | None, int]:
    """Return the state before and after a change, its error, and the number of requests."""
    service = change.partition(".")[0]
    with google_server() as google:
        options = {"base_url": google.url, "token": google.logins.token_for(USER, ALL)}
        connection = connect(KINDS[service], **options)
        key = await WORLDS[service](connection, google)
        before, count, error = picture(google), len(google.begun), None
        spoil(google)
        try:
            await CHANGES[change](connection, key)
        except DelfError as caught:
            error = caught
        await connection.aclose()
        google.released.set()
        return before, picture(google), error, len(google.begun) - count


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
async def test_change_with_a_lost_answer_is_done_once_or_reported(
    connect: Any, change: str
) -> None:
    before, wanted, error, count = await played(connect, change, lambda google: None)
    assert error is None
    for number in range(count):
        for lose in (GoogleServer.lose, GoogleServer.drop):

            def spoil(google: GoogleServer, number: int = number, lose: Any = lose) -> None:
                lose(google, "*", 1)
                google.faults[-1].after = number

            _, after, error, _ = await played(connect, change, spoil)
            if error is None:
                assert after == wanted, "it is no success, or it was done twice"
                continue
            assert isinstance(error, LostAnswerError), f"request {number + 1} of {count}"
            for part, found in after.items():
                done = found in (before[part], wanted[part]) or _is_between(change)
                assert done, f"{part}: neither as before nor as wanted"


def _is_between(change: str) -> bool:
    """Return True for a change of several steps, which may stop between two; each is done once."""
    return change in ("drive.create_folder", "drive.unshare", "docs.create", "gmail.send_draft")


async def test_refused_repetition_after_a_lost_answer_is_reported_as_unknown(connect: Any) -> None:
    """The service refuses to repeat what was done; to report a failure would be wrong."""

    def spoil(google: GoogleServer) -> None:
        google.lose("docs.documents.batchUpdate")

    _, after, error, _ = await played(connect, "docs.replace", spoil)
    assert isinstance(error, LostAnswerError)
    assert error.status == 400
    assert "may have been executed" in error.message
    assert "77 and 77" in str(after["documents"])


async def test_repeatedly_failing_change_is_reported_as_unknown(connect: Any) -> None:
    def spoil(google: GoogleServer) -> None:
        google.fail("calendar.events.patch", 503, times=100)

    *_, error, _ = await played(connect, "calendar.update", spoil)
    assert isinstance(error, LostAnswerError)
    *_, error, _ = await played(
        connect, "calendar.update", lambda google: google.fail("calendar.events.patch", 403)
    )
    assert isinstance(error, GoogleError)
    assert not isinstance(error, LostAnswerError)


async def test_readme_table_lists_every_change_with_a_lost_answer() -> None:
    table = README.read_text(encoding="utf-8")
    for service, kind in KINDS.items():
        actions = [a for a in kind.inspect(verbose=True)["methods"] if a["effect"] != "read"]
        for action in actions:
            name = f"{service}.{action['name']}"
            assert any(known.split()[0] == name for known in CHANGES), name
            assert re.search(rf"^\|.*`{re.escape(name)}`", table, re.MULTILINE), name
