"""Tests that an approval request shows what an id stands for, and who receives what."""

from __future__ import annotations

import datetime as dt
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from delf import Agent
from delf.errors import ToolRefusedError
from delf.protocols.connection import ProposedCall
from delf.protocols.facts import FactKind, facts
from delf.testing import ScriptedModel, TestHost
from delf_calendar import Calendar
from delf_docs import Docs
from delf_drive import Drive
from delf_gmail import Gmail
from delf_google.errors import GoogleError
from delf_sheets import Sheets
from support.google import GoogleServer
from support.google.fixtures import USER


async def verdict(connection: Any, action: str, **arguments: Any) -> Any:
    try:
        return await connection.check(ProposedCall(action=action, arguments=arguments))
    finally:
        await connection.aclose()


async def preview(connection: Any, action: str, **arguments: Any) -> str:
    return str((await verdict(connection, action, **arguments)).preview)


async def test_previews_show_what_a_call_changes(google: GoogleServer, connect: Any) -> None:
    raw = b"From: bob@example.com\r\nReply-To: eve@evil.example\r\nTo: ada@example.com, max@example.com\r\nSubject: Hello\r\n\r\nx"
    mail = google.gmail.deliver(USER, raw).id
    shown = await preview(connect(Gmail), "reply", message=mail, text="x", everyone=True)
    assert shown == "To: eve@evil.example\nCc: max@example.com\nIn answer to: Hello"
    assert await preview(connect(Gmail), "trash", messages=[mail]) == "bob@example.com: Hello"
    drive = connect(Drive)
    made = await drive.create("plan.txt", "x")
    assert "'plan.txt', of ada@example.com" in await preview(drive, "delete", file=made["id"])
    folder = await drive.create_folder("Public")
    shown = await preview(drive, "update", file=made["id"], folder=folder["id"])
    assert "In folder 'Public'" in shown
    docs = connect(Docs)
    document = await docs.create("Notes")
    assert "document 'Notes'" in await preview(docs, "trash", document=document["id"])
    calendar = connect(Calendar)
    start = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
    event = await calendar.create("Lunch", start, attendees=["bob@example.com"])
    shown = await preview(calendar, "delete", event=event["id"])
    assert shown.startswith("'Lunch', 2026-11-23 12:00")
    assert shown.endswith("with bob@example.com")
    rule = ["RRULE:FREQ=WEEKLY;COUNT=4"]
    series = await calendar.create("Tea", start, recurrence=rule, zone="UTC")
    assert "the whole series" in await preview(calendar, "delete", event=series["id"])


async def test_preview_is_skipped_if_nobody_is_asked(google: GoogleServer, connect: Any) -> None:
    free = connect(Drive, confirm=False)
    assert await preview(free, "delete", file="nowhere") == "None"
    assert await preview(connect(Drive), "get", file="nowhere") == "None"
    assert not google.seen
    with pytest.raises(GoogleError):
        await preview(connect(Docs), "delete", document="nowhere")


DRAFT = (
    b"To: Bob <bob@example.com>\r\nBcc: eve@far.example\r\nSubject: Offer\r\n"
    b"MIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n"
    b"--b\r\nContent-Type: text/plain\r\n\r\nSee you.\r\n"
    b"--b\r\nContent-Type: text/html\r\n\r\n<p>Pay <b>now</b></p>\r\n--b--\r\n"
)


def draft_of(google: GoogleServer, raw: bytes) -> str:
    """Make a draft that somebody else wrote."""
    box = google.gmail.box(USER)
    box.drafts["r1"] = google.gmail.deliver(USER, raw, labels=("DRAFT",)).id
    return "r1"


async def test_draft_preview_shows_every_recipient_and_part(
    google: GoogleServer, connect: Any
) -> None:
    shown = await preview(connect(Gmail), "send_draft", draft=draft_of(google, DRAFT))
    assert shown == (
        "To: Bob <bob@example.com>\nBcc: eve@far.example\nSubject: Offer\n\nSee you.\n\n"
        "In its other part:\nPay now\n\nThe source of its HTML:\n<p>Pay <b>now</b></p>"
    )


@pytest.mark.parametrize(
    "after", [DRAFT.replace(b"bob@example", b"eve@example"), DRAFT.replace(b"now", b"all"), DRAFT]
)
async def test_changed_draft_requires_approval_again(
    google: GoogleServer,
    connect: Any,
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    after: bytes,
) -> None:
    name, asked = draft_of(google, DRAFT), []

    def decide(request: Any) -> bool:
        asked.append(request.preview)
        if len(asked) == 1:
            box = google.gmail.box(USER)
            google.gmail.rewrite(USER, box.mails[box.drafts[name]], after)
        return len(asked) < 2

    scripted_model.writes(f"print(await gmail.send_draft({name!r}))")
    options: dict[str, Any] = {"llm": "scripted", "host": delf_host, "retry_count": 0}
    async with Agent(tools=[connect(Gmail)], on_confirm=decide, **options) as agent:
        response = await agent.arun("Send it.")
    assert not response.status
    assert len(asked) == 2
    assert "Subject: Offer" in asked[1]
    assert google.calls("gmail.users.drafts.send") == 0


async def test_reply_goes_only_to_the_shown_recipients(google: GoogleServer, connect: Any) -> None:
    """An encoded name may contain what looks like further addresses."""
    hidden = "=?utf-8?q?=22Bob=22=2C_eve=40far=2Eexample?="
    raw = f"From: {hidden} <bob@example.com>\r\nSubject: Hi\r\n\r\nx".encode()
    mail = google.gmail.deliver(USER, raw).id
    gmail = connect(Gmail)
    shown = await preview(gmail, "reply", message=mail, text="x")
    assert shown.splitlines()[0].endswith("<bob@example.com>")
    await gmail.reply(mail, "yes")
    sent = list(google.gmail.box(USER).mails.values())[-1]
    assert "<bob@example.com>" in sent.header("To")
    assert sent.header("To").count("@") - sent.header("To").count("eve@far.example") == 1
    await gmail.aclose()


async def arguments_of(connection: Any, action: str, **given: Any) -> dict[str, Any]:
    """Return a call's arguments as they are validated before a person is asked."""
    try:
        (found,) = (item for item in await connection.actions() if item.name == action)
        return found.validate(given)
    finally:
        await connection.aclose()


async def test_addresses_are_parsed_before_approval(connect: Any) -> None:
    both = "eve@evil.example, Ada Lovelace <ada@example.com>"
    shown = await arguments_of(connect(Gmail), "send", to=both, subject="x", cc=["a@b.example"])
    assert shown["to"] == ["eve@evil.example", "Ada Lovelace <ada@example.com>"]
    assert shown["cc"] == ["a@b.example"]
    tricky = 'team: "ada@example.com" <eve@evil.example>;'
    shown = await arguments_of(connect(Gmail), "draft", to=tricky)
    assert shown["to"] == ['"ada@example.com" <eve@evil.example>']
    start = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
    people = ["ada@example.com, eve@evil.example", "Bob <bob@example.com>"]
    shown = await arguments_of(
        connect(Calendar), "create", title="x", start=start, attendees=people
    )
    assert shown["attendees"] == ["ada@example.com", "eve@evil.example", "bob@example.com"]
    shown = await arguments_of(connect(Drive), "share", file="x", who="Ada <ada@example.com>")
    assert shown["who"] == "ada@example.com"
    for who in ("anyone", "domain:example.com"):
        shown = await arguments_of(connect(Drive), "share", file="x", who=who)
        assert shown["who"] == who


@pytest.mark.parametrize(
    ("kind", "action", "given"),
    [
        (Gmail, "send", {"to": "nobody", "subject": "x"}),
        (Gmail, "send", {"to": "ada@example.com\r\nBcc: eve@evil.example", "subject": "x"}),
        (Gmail, "draft", {"cc": ["ada@example.com", "@"]}),
        (Drive, "share", {"file": "x", "who": "ada@example.com, eve@evil.example"}),
        (Drive, "share", {"file": "x", "who": "everyone"}),
        (Calendar, "update", {"event": "x", "add_attendees": ["ada"]}),
    ],
)
async def test_invalid_address_is_refused_before_approval(
    connect: Any, kind: Any, action: str, given: dict[str, Any]
) -> None:
    with pytest.raises(ToolRefusedError, match=r"address|line break"):
        await arguments_of(connect(kind), action, **given)


async def test_stubs_show_addresses_as_plain_types(connect: Any) -> None:
    gmail = connect(Gmail)
    (send,) = (item for item in await gmail.actions() if item.name == "send")
    assert "to: str | list[str], subject: str" in send.signature
    await gmail.aclose()


async def test_approved_content_is_bound_to_its_version(google: GoogleServer, connect: Any) -> None:
    drive, docs = connect(Drive), connect(Docs)
    made = await drive.create("plan.txt", "x")
    before = await verdict(drive, "delete", file=made["id"])
    shared = await verdict(drive, "share", file=made["id"], who="bob@example.com")
    await drive.update(made["id"], "longer")
    assert (await verdict(drive, "delete", file=made["id"])).basis != before.basis
    again = await verdict(drive, "share", file=made["id"], who="bob@example.com")
    assert (again.basis, again.preview) == (shared.basis, shared.preview)
    assert (again.files, shared.files) == ({"plan.txt": 6}, {"plan.txt": 1})
    document = await docs.create("Notes", "one two\n\ntwo")
    given = {"document": document["id"], "find": "two", "replacement": "three"}
    before = await verdict(docs, "replace", **given)
    assert before.preview.splitlines()[1:] == ["2 times in 2 paragraphs:", "- one two", "- two"]
    added = await verdict(docs, "append", document=document["id"], markdown="x")
    await docs.append(document["id"], "two more")
    after = await verdict(docs, "replace", **given)
    assert after.digest != before.digest
    assert "3 times in 3 paragraphs:" in after.preview
    assert await verdict(docs, "append", document=document["id"], markdown="x") == added
    rewritten = await preview(docs, "rewrite", document=document["id"], markdown="one two")
    assert "-two more" in rewritten.splitlines()


async def test_sheet_preview_shows_overwritten_cells(google: GoogleServer, connect: Any) -> None:
    sheets = connect(Sheets)
    book = (await sheets.create("Budget"))["id"]
    empty = await verdict(sheets, "write", spreadsheet=book, range="B2", rows=[[1, 2]])
    assert empty.preview.startswith("spreadsheet 'Budget'")
    assert "is empty" in empty.preview
    await sheets.write(book, "A1", [["name", "sum"], ["Ada", 7]])
    full = await verdict(sheets, "write", spreadsheet=book, range="B2", rows=[[1, 2]])
    assert "holds now:\n- [7]" in full.preview
    assert full.basis != empty.basis
    assert "'Ada'" in await preview(sheets, "clear", spreadsheet=book, range="A:C")
    far = await preview(sheets, "write", spreadsheet=book, range="ZZ5000", rows=[[1]])
    assert far.startswith("spreadsheet 'Budget'"), "the sheet will grow"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (Gmail, "gmail.send(to='bob@example.com', subject='x', attachments=['report.txt'])"),
        (Gmail, "gmail.draft(to='bob@example.com', subject='x', attachments=['report.txt'])"),
        (Drive, "drive.create('report.txt', file='report.txt')"),
    ],
)
async def test_attachment_is_sent_with_the_approved_content(
    google: GoogleServer,
    connect: Any,
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    tmp_path: Path,
    kind: Any,
    code: str,
) -> None:
    report = tmp_path / "report.txt"
    report.write_text("as asked")
    reported: list[tuple[str, str | None]] = []

    def decide(request: Any) -> bool:
        reported.extend((f.text, f.note) for f in facts(request) if f.kind is FactKind.FILE)
        report.write_text("something else, and longer")
        return True

    scripted_model.writes(f"await {code}\nprint('done')")
    options: dict[str, Any] = {"llm": "scripted", "host": delf_host, "retry_count": 0}
    tools, files = [connect(kind)], [str(report)]
    async with Agent(tools=tools, files=files, on_confirm=decide, **options) as agent:
        (await agent.arun("Send it.")).raise_for_status()
    assert reported == [("report.txt", "8 bytes")]
    if kind is Drive:
        (stored,) = [f for f in google.drive.files.values() if f.data["name"] == "report.txt"]
        assert stored.content == b"as asked"
        return
    mail = list(google.gmail.box(USER).mails.values())[-1]
    (attached,) = message_from_bytes(mail.raw, policy=default).iter_attachments()
    assert attached.get_content() == "as asked"


async def test_remote_file_size_is_a_fact_of_the_request(
    google: GoogleServer, connect: Any
) -> None:
    drive = connect(Drive)
    made = await drive.create("plan.txt", "twelve bytes")
    for action, more in (("share", {"who": "bob@example.com"}), ("trash", {}), ("delete", {})):
        found = await verdict(drive, action, file=made["id"], **more)
        assert found.files == {"plan.txt": 12}, action
    docs = connect(Docs)
    document = await docs.create("Notes")
    await docs.aclose()
    found = await verdict(drive, "share", file=document["id"], who="bob@example.com")
    assert found.files == {}, "Google tells no size of its editors' documents"
