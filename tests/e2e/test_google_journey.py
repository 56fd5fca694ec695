"""An invoice by mail: to Drive, into a sheet, as a document, to a meeting; approved step by step."""

from __future__ import annotations

import email.message
import json
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from delf import Agent
from delf.testing import DelfProject, ScriptedModel
from delf_calendar import Calendar
from delf_docs import Docs
from delf_drive import Drive
from delf_gmail import Gmail
from delf_sheets import Sheets
from support import program
from support.google import GoogleServer
from support.google.fixtures import USER, connect, credentials, google

from .waiting import Run

__all__ = ["connect", "credentials", "google"]
pytestmark = pytest.mark.timeout(120)

SCRIPT = """
import datetime

found = await gmail.search("subject:invoice has:attachment")
line = found["messages"][0]
mail = await gmail.read(line["id"])
file = await gmail.attachment(line["id"], mail["attachments"][0]["name"])
await drive.create_folder("Bills/2026")
stored = await drive.create(file["name"], file["data"], folder="Bills/2026")
await sheets.append(BOOK, [{"no": 7, "day": line["date"].date(), "net": 119.0, "file": stored["link"]}])
doc = await docs.create("Invoice 7", f"# Invoice 7\\n\\n- from **{mail['sender']}**\\n- [file]({stored['link']})")
event = await calendar.create("Pay invoice 7", datetime.datetime(2026, 11, 30, 9), attendees=["bob@example.com"])
await gmail.reply(line["id"], f"Thank you, it is paid on {event['start']:%d.%m.}", attachments=["receipt.txt"])
await gmail.archive(line["id"])
rows = await sheets.read(BOOK)
print(stored["name"], rows[-1]["net"], doc["title"], event["title"])
"""
ANSWER = "invoice 7.pdf 119 Invoice 7 Pay invoice 7"
WRITES = ["drive.create_folder", "drive.create", "sheets.append", "docs.create", "calendar.create", "gmail.reply", "gmail.archive"]  # fmt: skip


@pytest.fixture
def office(google: GoogleServer) -> str:
    """An invoice has come, and there is a sheet for it: its id."""
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "bob@example.com", USER, "Invoice 7"
    message["Message-ID"] = "<7@example.com>"
    message.set_content("Please pay.")
    message.add_attachment(
        b"%PDF-7" * 100, maintype="application", subtype="pdf", filename="invoice 7.pdf"
    )
    google.gmail.deliver(USER, message.as_bytes())
    google.gmail.box("bob@example.com")
    book = google.sheets.new_book(
        google.drive.add("Bills", "application/vnd.google-apps.spreadsheet").id, {}
    )
    names = ("no", "day", "net", "file")
    book.sheets[0].cells |= {
        (0, i): {"userEnteredValue": {"stringValue": n}} for i, n in enumerate(names)
    }
    return book.id


def check(google: GoogleServer, book: str) -> None:
    """The changes that the journey leaves."""
    stored = [f for f in google.drive.files.values() if f.data["name"] == "invoice 7.pdf"]
    assert [f.content for f in stored] == [b"%PDF-7" * 100]
    assert google.sheets.books[book].sheets[0].last_row() == 1
    document = next(iter(google.docs.documents.values()))
    assert document.blocks[0].style["namedStyleType"] == "HEADING_1"
    assert [(who, what) for who, what, _ in google.calendar.mails] == [
        ("bob@example.com", "invitation")
    ]
    (reply,) = google.gmail.box("bob@example.com").mails.values()
    assert "paid on 30.11." in reply.words
    assert reply.files == ["receipt.txt"]
    assert reply.header("In-Reply-To") == "<7@example.com>"


def test_every_google_write_requires_approval(
    google: GoogleServer,
    connect: Any,
    office: str,
    scripted_model: ScriptedModel,
    delf_host: Any,
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    scripted_model.writes(SCRIPT.replace("BOOK", repr(office)))
    tools = [connect(kind) for kind in (Gmail, Drive, Sheets, Docs, Calendar)]
    receipt = tmp_path / "receipt.txt"
    receipt.write_text("paid")

    def approve(request: Any) -> bool:
        asked.append(request.action)
        return True

    with Agent(
        tools=tools, llm="scripted", host=delf_host, on_confirm=approve, sandbox="local",
        retry_count=0, files=[str(receipt)],
    ) as agent:  # fmt: skip
        response = agent.run("File the invoice.")
    response.raise_for_status()
    assert response.text.strip() == ANSWER
    assert asked == WRITES
    check(google, office)


LOOK = """
mails = (await gmail.search("invoice has:attachment"))["messages"]
mail = await gmail.read(mails[0]["id"]) if mails else None
books = (await drive.search(name="Bills", kind="spreadsheet"))["files"]
head = await sheets.read(books[0]["id"], header=False) if books else None
rerun({"mail": mail, "books": books, "first rows": head and head[:3]}, "row, document, meeting")
"""
ACT = """
import datetime
file = mail["attachments"][0]["name"]
await sheets.append(books[0]["id"], [{"no": 7, "day": mail["date"].date(), "net": 119, "file": file}])
doc = await docs.create("Invoice 7", f"# Invoice 7\\n\\n- From {mail['sender']}\\n- File {file}")
event = await calendar.create("Invoice 7", datetime.datetime(2026, 11, 30, 9), attendees=["bob@example.com"])
print(f"{doc['title']}: {event['start']:%d.%m.%Y %H:%M}")
"""


def test_first_script_reads_and_second_script_acts(
    google: GoogleServer, connect: Any, office: str, scripted_model: ScriptedModel, delf_host: Any
) -> None:
    scripted_model.writes(LOOK, ACT)
    tools = [connect(kind) for kind in (Gmail, Drive, Sheets, Docs, Calendar)]
    with Agent(
        tools=tools, llm="scripted", host=delf_host, on_confirm=lambda _: True, sandbox="local"
    ) as agent:
        response = agent.run("File the invoice in the sheet Bills, and meet bob about it.")
    assert response.raise_for_status().text.strip() == "Invoice 7: 30.11.2026 09:00"
    assert google.sheets.books[office].sheets[0].last_row() == 1
    look = scripted_model.requests[1].messages[-1].text
    assert "['no', 'day', 'net', 'file']" in look
    for name in ("gmail.search", "gmail.read", "calendar.create", "sheets.append"):
        connection, _, action = name.partition(".")
        own = (
            scripted_model.prompts[0].partition(f"class {connection}:")[2].partition("\nclass ")[0]
        )
        assert f"async def {action}(" in own


@pytest.fixture
def project(
    google: GoogleServer, delf_project: DelfProject, credentials: str, office: str
) -> DelfProject:
    names = ("gmail", "drive", "sheets", "docs", "calendar")
    sections = "".join(
        f'[connections.{name}]\noauth_credentials = "{credentials}"\nbase_url = "{google.url}"\n'
        for name in names
    )
    delf_project.write_config(
        f'[agent]\njournal = "sql"\nretry_count = 0\nsandbox = "local"\n{sections}'
    )
    delf_project.write("receipt.txt", "paid")
    delf_project.environ |= {
        "DELF_JOURNAL_SQL_URL": str(delf_project.root / "runs.db"),
        "XDG_STATE_HOME": str(delf_project.root / "state"),
    }
    return delf_project


FLAGS = ("-c", "gmail", "-c", "drive", "-c", "sheets", "-c", "docs", "-c", "calendar")


def test_google_task_runs_on_the_command_line(
    google: GoogleServer, project: DelfProject, office: str
) -> None:
    llm = project.install_model(SCRIPT.replace("BOOK", repr(office)))
    done = project.run(
        "run", "File it.", *FLAGS, "--llm", llm, "--file", "receipt.txt", "--approve", "all"
    )
    assert ANSWER in done.succeeded().stdout
    check(google, office)
    journal = b"".join(path.read_bytes() for path in project.root.glob("runs.db*"))
    secrets = [*google.logins.tokens, *google.logins.grants]
    assert not [secret for secret in secrets if secret.encode() in journal]
    assert not [secret for secret in secrets if any(secret in prompt for prompt in project.prompts)]


def test_google_write_needs_approval(
    google: GoogleServer, project: DelfProject, office: str
) -> None:
    llm = project.install_model(SCRIPT.replace("BOOK", repr(office)))
    done = project.run(
        "run", "File it.", *FLAGS, "--llm", llm, "--file", "receipt.txt", "--approve", "none"
    )
    assert done.exit_code == 1
    assert {
        item.method for item in google.seen if not item.method.startswith(("gmail", "token"))
    } == set()


def killed(project: DelfProject, google: GoogleServer, script: str, method: str, calls: int) -> str:
    """Run a script, kill its process when a method was called so often; the task's id."""
    llm = project.install_model(script)
    command = project.command("run", "Do it.", *FLAGS, "--llm", llm, "--approve", "all")
    process = program.start(
        command, cwd=project.root, env=project.environment({}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        ended = threading.Event()
        deadline = time.monotonic() + 60
        while google.started(method) < calls:
            assert process.poll() is None, process.stdout.read().decode()
            assert time.monotonic() < deadline
            ended.wait(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (task,) = json.loads(project.run("runs", "list", "--json").succeeded().stdout)
    assert task["state"] == "interrupted"
    return str(task["task_id"])


def made_again(project: DelfProject, task: str) -> tuple[int, str, str]:
    """Resume a task, and say that its interrupted call is to be made again: a person is asked."""
    process = program.start(
        project.command("resume", task, "--approve", "all", "--wait-approvals"),
        cwd=project.root, env=project.environment({}), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        run = Run(process)
        project.run("approvals", "approve", run.request()).succeeded()
        return run.end()
    finally:
        process.kill()
        process.communicate()


def test_upload_killed_midway_creates_one_file(google: GoogleServer, project: DelfProject) -> None:
    script = 'made = await drive.create("big.bin", b"x" * (4 * 1024 * 1024))\nprint(made["size"])'
    google.hang("drive.files.create", after=1)  # the upload is opened, its content not taken
    task = killed(project, google, script, "drive.files.create", 2)
    status, out, err = made_again(project, task)
    assert (status, out) == (0, "4194304\n"), err
    stored = [f for f in google.drive.files.values() if f.data["name"] == "big.bin"]
    assert [f.content for f in stored] == [b"x" * 4 * 1024 * 1024]


def test_mail_of_a_killed_process_is_not_sent_again_without_asking(
    google: GoogleServer, project: DelfProject
) -> None:
    script = 'sent = await gmail.send("bob@example.com", "Once", "Once.")\nprint("sent")'
    google.hang(
        "gmail.users.messages.send", after=1, done=True
    )  # the mail is sent, and its answer is lost
    task = killed(project, google, script, "gmail.users.messages.send", 2)
    inbox = google.gmail.box("bob@example.com").mails
    assert len(inbox) == 1
    refused = project.run("resume", task, "--approve", "none")
    assert refused.exit_code == 1
    assert len(inbox) == 1
