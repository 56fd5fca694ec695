"""Every method that delf uses: described by the document, driven by the vendor's client, by delf."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from delf.protocols.connection import ProposedCall
from delf_calendar import Calendar
from delf_docs import Docs
from delf_drive import Drive
from delf_gmail import Gmail
from delf_sheets import Sheets
from libs.google import test_vendor_client
from support.google import GoogleServer
from support.google.discovery import apis
from support.google.fixtures import USER
from support.google.vendor import Vendor

NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)


async def drive_gmail(gmail: Any, google: GoogleServer) -> None:
    google.gmail.box("bob@example.com")
    raw = test_vendor_client.mail(
        "Hello", to=f"{USER}, bob@example.com", Message_ID="<1@example.com>"
    )
    key = google.gmail.deliver(USER, raw).id
    await gmail.search("subject:hello")
    mail = await gmail.read(key)
    await gmail.thread(mail["thread"])
    await gmail.attachment(key, "a.pdf")
    await gmail.labels()
    await gmail.send("bob@example.com", "x", "x")
    await gmail.reply(key, "x", everyone=True)
    draft = (await gmail.draft("x", to="bob@example.com", subject="x"))["id"]
    await gmail.check(ProposedCall(action="send_draft", arguments={"draft": draft}))
    await gmail.send_draft(draft)
    await gmail.label(key, add="Bills")
    await gmail.archive(key)
    await gmail.trash(key)
    await gmail.untrash(key)


async def drive_drive(drive: Any, google: GoogleServer) -> None:
    google.drive.drives["0Ateam"] = "Team"
    await drive.create_folder("Shared drives/Team/Plans")
    made = await drive.create("a.txt", "x")
    await drive.search(name="a")
    await drive.get("a.txt")
    await drive.download(made["id"])
    await drive.text((await drive.create("Notes", "x", type="document"))["id"])
    await drive.rows((await drive.create("Bills", "a\n1\n", type="spreadsheet"))["id"])
    await drive.copy(made["id"], name="b.txt")
    await drive.update(made["id"], content="y", name="c.txt")
    await drive.share(made["id"], "bob@example.com")
    await drive.list_permissions(made["id"])
    await drive.unshare(made["id"], "bob@example.com")
    await drive.trash(made["id"])
    await drive.restore(made["id"])
    await drive.delete(made["id"])


async def drive_sheets(sheets: Any, google: GoogleServer) -> None:
    key = (await sheets.create("Bills"))["id"]
    await sheets.info(key)
    await sheets.write(key, "A1", [{"a": 1, "b": 2}])
    await sheets.append(key, [{"a": 3}])
    await sheets.read(key)
    await sheets.clear(key, "A2")
    await sheets.add_sheet(key, "More")
    await sheets.format(key, "A1", bold=True)
    await sheets.chart(key, "A1:B3")
    await sheets.batch(key, [{"do": "add_sheet", "title": "Even more"}])


async def drive_docs(docs: Any, google: GoogleServer) -> None:
    key = (await docs.create("Notes", "# One\n\ntext"))["id"]
    await docs.read(key)
    await docs.append(key, "x")
    await docs.insert(key, "One", "x")
    await docs.replace(key, "x", "y")
    await docs.format(key, "y", bold=True)
    await docs.rewrite(key, "z")
    await docs.trash(key)
    await docs.delete(key)


async def drive_calendar(calendar: Any, google: GoogleServer) -> None:
    made = await calendar.create("Lunch", NOON, attendees=[USER])
    await calendar.calendars()
    await calendar.list(NOON, NOON + dt.timedelta(days=1))
    await calendar.get(made["id"])
    await calendar.free_busy(NOON, NOON + dt.timedelta(days=1))
    await calendar.update(made["id"], title="Dinner")
    await calendar.respond(made["id"], "accepted")
    await calendar.delete(made["id"])


SERVICES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "gmail": (Gmail, drive_gmail),
    "drive": (Drive, drive_drive),
    "sheets": (Sheets, drive_sheets),
    "docs": (Docs, drive_docs),
    "calendar": (Calendar, drive_calendar),
}


@pytest.mark.parametrize("service", SERVICES)
async def test_every_method_is_proven_and_used(
    service: str, google: GoogleServer, connect: Any, vendor: Vendor
) -> None:
    kind, drive = SERVICES[service]
    connection = connect(kind)
    called: set[str] = set()
    for action in await connection.actions():
        method = getattr(connection, action.name)

        async def counted(
            *args: Any, _name: str = action.name, _method: Any = method, **more: Any
        ) -> Any:
            called.add(_name)
            return await _method(*args, **more)

        setattr(connection, action.name, counted)
    getattr(test_vendor_client, f"test_{service}")(google, vendor)
    proven = {
        item.method for item in google.seen if item.agent == "vendor" and 200 <= item.status < 300
    }
    google.seen.clear()
    await drive(connection, google)
    await connection.aclose()
    used = {item.method for item in google.seen if item.agent == "delf"} - {"token", "batch"}
    assert {item.status // 100 for item in google.seen} <= {2, 3}
    assert used <= proven, "delf uses what the vendor's client did not drive"
    documented = {method.id for api in apis() for method in api.methods}
    served = {name for name in google.handlers if name.startswith(f"{service}.")}
    assert served <= documented
    assert served == {name for name in used | proven if name.startswith(f"{service}.")}
    assert called == {action.name for action in await connection.actions()}
    print(f"\n{service}: {len(used)} methods of {len(called)} actions")
