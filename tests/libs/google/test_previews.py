"""A person who is asked sees what an id stands for, and who would get what."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from delf.protocols.connection import ProposedCall
from delf_calendar import Calendar
from delf_docs import Docs
from delf_drive import Drive
from delf_gmail import Gmail
from delf_google.errors import GoogleError
from support.google import GoogleServer
from support.google.fixtures import USER


async def preview(connection: Any, action: str, **arguments: Any) -> str:
    try:
        verdict = await connection.check(ProposedCall(action=action, arguments=arguments))
    finally:
        await connection.aclose()
    return str(verdict.preview)


async def test_previews(google: GoogleServer, connect: Any) -> None:
    raw = b"From: bob@example.com\r\nReply-To: eve@evil.example\r\nTo: ada@example.com, max@example.com\r\nSubject: Hello\r\n\r\nx"
    mail = google.gmail.deliver(USER, raw).id
    shown = await preview(connect(Gmail), "reply", message=mail, text="x", everyone=True)
    assert shown == "To: eve@evil.example\nCc: max@example.com\nIn answer to: Hello"
    assert await preview(connect(Gmail), "trash", messages=[mail]) == "bob@example.com: Hello"
    drive = connect(Drive)
    made = await drive.create("plan.txt", "x")
    assert "'plan.txt', of ada@example.com" in await preview(drive, "delete", file=made["id"])
    docs = connect(Docs)
    document = await docs.create("Notes")
    assert "document 'Notes'" in await preview(docs, "trash", document=document["id"])
    calendar = connect(Calendar)
    start = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
    event = await calendar.create("Lunch", start, attendees=["bob@example.com"])
    shown = await preview(calendar, "delete", event=event["id"])
    assert shown.startswith("'Lunch', 2026-11-23 12:00")
    assert shown.endswith("with bob@example.com")


async def test_nothing_is_looked_up_where_nobody_is_asked(
    google: GoogleServer, connect: Any
) -> None:
    free = connect(Drive, confirm=False)
    assert await preview(free, "delete", file="nowhere") == "None"
    assert await preview(connect(Drive), "get", file="nowhere") == "None"
    assert not google.seen
    with pytest.raises(GoogleError):
        await preview(connect(Docs), "delete", document="nowhere")
