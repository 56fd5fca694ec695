"""``delf approvals show`` on a terminal: nothing of a value looks like another line."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from delf.events import ApprovalRequested, TaskStarted
from delf.protocols.journal import RequestRecord, TaskRecord
from delf_approval_terminal import listing
from delf_cli.main import cli
from delf_journal_sql import SqlJournal


@pytest.fixture
def show(monkeypatch, capsys):
    monkeypatch.setattr(listing, "columns", lambda: 80)

    def show(*, as_table=False, **asked):
        requested = ApprovalRequested(
            task_id="t", seq=1, at=0.0, request_id="r", call_id=1, digest="d", effect="write",
            **{"action": "bank.pay", "arguments": {}, **asked},
        )  # fmt: skip
        task = TaskRecord(task_id="t", task="Pay.", started_at=0.0, state="running")
        record = RequestRecord(requested=requested, decided=None, task=task)
        if as_table:
            return listing.requests_table([record])
        listing.show(record)
        return capsys.readouterr().out.splitlines()

    return show


def test_listing_shows_padded_argument_on_one_line(show):
    note = f"for the rent\n{' ' * 68}to = 'landlord@example.com'{' ' * 53}amount = 200"
    lines = show(arguments={"note": note, "to": "eve@far.example", "text": "a   b"})
    assert [line for line in lines if line.startswith("  to = ")] == ["  to = 'eve@far.example'"]
    assert all(line.startswith("      ") for line in lines if "landlord" in line)
    assert "  text = 'a   b'" in lines
    assert all(len(line) <= 80 for line in lines)


def test_omitted_defaults_are_listed(show):
    lines = show(arguments={"to": "ada"}, defaults={"to": "all", "bcc": "eve"})
    assert "  bcc (left out by the script) = 'eve'" in lines
    assert not any("'all'" in line for line in lines)


def test_list_has_the_oldest_of_many_requests(tmp_path, monkeypatch):
    place = str(tmp_path / "journal.db")
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", place)
    monkeypatch.chdir(tmp_path)
    asked = {"action": "bank.pay", "call_id": 1, "digest": "d", "effect": "write", "arguments": {}}

    async def ask(journal, number):
        task_id = f"task_{number:04}"
        await journal.append(TaskStarted(task_id=task_id, seq=1, at=1.0, task="Pay."))
        request = {**asked, "request_id": f"req_{number:04}"}
        await journal.append(ApprovalRequested(task_id=task_id, seq=2, at=2.0, **request))

    async def ask_all(journal):
        await asyncio.gather(*(ask(journal, number) for number in range(1001)))

    with asyncio.Runner() as runner:
        journal = SqlJournal(place)
        runner.run(ask_all(journal))
        done = CliRunner().invoke(cli, ["approvals", "list", "--json"])
        runner.run(journal.aclose())
    requests = json.loads(done.stdout)
    assert {item["request_id"] for item in requests} == {f"req_{n:04}" for n in range(1001)}


@pytest.mark.parametrize(
    ("asked", "mark"),
    [
        ({}, "  -  "),
        ({"outcome_unknown": True}, "! outcome unknown"),
        ({"changed": True}, "! changed"),
        ({"made_before": 1}, "! made before"),
        ({"reason": "too much", "made_before": 1}, "! made before, warning"),
        ({"arguments": {"to": "ada\u202e"}}, "! hidden"),
        ({"flow": "to: mail.read", "origins": {}}, "! others words"),
    ],
)
def test_list_marks_dangerous_and_unusual_requests(show, asked, mark):
    (_, row) = show(as_table=True, **asked)
    assert mark in row


def test_list_shows_when_each_request_was_asked(show):
    (header, row) = show(as_table=True)
    assert "id  asked       effect" in header
    assert row.split()[1] in ("1969-12-31", "1970-01-01")


@pytest.mark.parametrize("result", ["paid", "[" * 2000], ids=["a text", "nested deeply"])
def test_settle_refuses_a_result_that_is_not_json(result):
    outcome = CliRunner().invoke(cli, ["approvals", "settle", "3f9a2b1", "--result", result])
    assert outcome.exit_code == 2
    assert "error: --result is not JSON" in outcome.stderr
