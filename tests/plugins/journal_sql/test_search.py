"""Tasks are found by what happened in them, and counted by day, person, tool and model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from delf.errors import DelfError, UnknownTaskError
from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    Event,
    ModelReplied,
    ScriptGenerated,
    TaskFinished,
    TaskQueued,
    TaskStarted,
)
from delf.messages import Usage
from delf.protocols.journal import fields_of_setup, filterable_fields
from delf.protocols.search import TaskFilter
from delf.types import TaskState
from delf_journal_sql import SqlJournal

NOON = datetime(2026, 10, 31, 12, tzinfo=UTC).timestamp()


class Written:
    """Writes the events of tasks, one second apart."""

    def __init__(self, journal: SqlJournal) -> None:
        self.journal = journal

    async def task(
        self, name: str, task: str = "", at: float = NOON, person: str = "", **started: Any
    ) -> Callable[..., Any]:
        """Begin a task; return a function that appends another event of it."""
        count = 0

        async def add(kind: Callable[..., Event], **fields: Any) -> None:
            nonlocal count
            count += 1
            await self.journal.append(kind(task_id=name, seq=count, at=at + count - 1, **fields))

        setup = {"serve": {"user": person}} if person else {}
        await add(TaskStarted, task=task, setup=setup, **started)
        return add


@pytest.fixture
def journal(journal_url: str, open_journal: Callable[..., SqlJournal]) -> SqlJournal:
    return open_journal(journal_url)


@pytest.fixture
def written(journal: SqlJournal) -> Written:
    return Written(journal)


def called(action: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    return {
        "call_id": number,
        "action": action,
        "arguments": arguments,
        "effect": "write",
        "digest": f"d{number}",
    }


def replied(model: str, cost: float | None, read: int = 100, wrote: int = 10) -> dict[str, Any]:
    usage = Usage(input_tokens=read, output_tokens=wrote)
    times = {"duration_ms": 5.0, "cost_usd": cost}
    return {"model": model, "purpose": "generate", "text": "", "usage": usage, **times}


async def found(journal: SqlJournal, text: str | None = None, **wanted: Any) -> list[str]:
    assert await journal.index(60) == 0
    result = await journal.search(TaskFilter(text=text, **wanted))
    assert result.behind == 0
    return [one.task.task_id for one in result.tasks]


async def test_task_of_a_schedule_is_found_and_counted_under_the_schedules_person(
    journal, written
) -> None:
    await written.task("task_page", person="ada")
    await written.task("task_schedule", user="ada:4f1c")
    await written.task("task_local")
    assert {*await found(journal, person="ada")} == {"task_page", "task_schedule"}
    by_person = await journal.figures("person", TaskFilter())
    assert {one.group: one.tasks for one in by_person} == {"ada": 2, "": 1}


async def test_task_is_found_by_its_words_script_calls_answer_and_errors(
    journal: SqlJournal, written: Written
) -> None:
    add = await written.task("task_a", "Pay the invoice of Müller & Söhne")
    await add(ScriptGenerated, code="total_due = await bank.balance()", attempt=1)
    await add(CallStarted, **called("bank.transfer", to="DE89 3704 0044", tags=[{"why": "rent"}]))
    failed = {"status": "error", "duration_ms": 1.0, "error": "the account is frozen"}
    await add(CallFinished, call_id=1, action="bank.transfer", **failed)
    await add(TaskFinished, status=True, text="Nothing was paid.", duration_ms=9.0)
    await written.task("task_b", "Something else")
    for words, place in (
        ("muller", "task"),
        ("INVOICE söhne", "task"),
        ("total_due", "script"),
        ("due", "script"),
        ("DE89", "call"),
        ("why rent", "call"),
        ("frozen", "error"),
        ("nothing paid", "answer"),
        ('"was paid"', "answer"),
        ("invo", "task"),
    ):
        await journal.index(60)
        result = await journal.search(TaskFilter(text=words))
        assert [(one.task.task_id, one.place) for one in result.tasks] == [("task_a", place)], words


@pytest.mark.parametrize(
    "words",
    ['"paid was"', "invo pay", "oice", "invoice frozen", "&", '""', "' OR 1=1 --", "zebra*", "(("],
)
async def test_search_for_other_words_finds_nothing(
    journal: SqlJournal, written: Written, words: str
) -> None:
    add = await written.task("task_a", "Pay the invoice")
    await add(TaskFinished, status=False, text="was paid", error="frozen", duration_ms=9.0)
    assert await found(journal, words) == []


async def test_search_finds_text_in_writing_systems_without_spaces(
    journal: SqlJournal, written: Written
) -> None:
    await written.task("task_zh", "支付三月的发票")
    await written.task("task_ja", "請求書を支払う")
    await written.task("task_ko", "청구서를 지불하세요")
    await written.task("task_th", "ชำระใบแจ้งหนี้")
    assert await found(journal, "发票") == ["task_zh"]
    assert await found(journal, "支払") == ["task_ja"]
    assert await found(journal, "청구서") == ["task_ko"]
    assert await found(journal, "ใบแจ้งหนี้") == ["task_th"]


async def test_excerpt_marks_the_found_words(journal: SqlJournal, written: Written) -> None:
    add = await written.task("task_a", "Anything")
    code = "\n".join(f"line_{n} = {n}" for n in range(200)) + "\nneedle = 1\n" + "# tail\n" * 100
    await add(ScriptGenerated, code=code, attempt=1)
    await journal.index(60)
    (one,) = (await journal.search(TaskFilter(text="needle"))).tasks
    assert one.place == "script"
    assert one.event == 2
    assert "line_199 = 199 needle = 1 # tail" in one.excerpt
    assert len(one.excerpt) < 200


async def test_large_value_is_indexed_from_its_beginning(
    journal_url: str, open_journal: Callable[..., SqlJournal]
) -> None:
    journal = open_journal(journal_url, blob_bytes=2_000)
    add = await Written(journal).task("task_a", "Anything")
    await add(ScriptGenerated, code="needle = 1\n" + "x = 2\n" * 5_000 + "haystack", attempt=1)
    assert await found(journal, "needle") == ["task_a"]
    assert await found(journal, "haystack") == []


async def test_search_filters_are_combined(journal: SqlJournal, written: Written) -> None:
    for number, (person, action, model, cost) in enumerate(
        [
            ("ada", "shop.orders", "gpt", 0.5),
            ("ada", "mail.send", "gpt", 0.01),
            ("bob", "shop.orders", "claude", 0.02),
        ]
    ):
        name, at = f"task_{number}", NOON + number * 60
        add = await written.task(name, "count the orders", at, person)
        await add(ModelReplied, **replied(model, cost))
        await add(CallStarted, **called(action))
        await add(
            TaskFinished, status=number != 2, text="", duration_ms=9.0, error=None, cost_usd=cost
        )
    assert await found(journal) == ["task_2", "task_1", "task_0"]
    assert await found(journal, person="ada") == ["task_1", "task_0"]
    assert await found(journal, connection="shop") == ["task_2", "task_0"]
    assert await found(journal, action="mail.send") == ["task_1"]
    assert await found(journal, model="claude") == ["task_2"]
    assert await found(journal, least_cost=0.02) == ["task_2", "task_0"]
    assert await found(journal, state="failed") == ["task_2"]
    assert await found(journal, state="running") == []
    assert await found(journal, since=NOON + 60) == ["task_2", "task_1"]
    assert await found(journal, until=NOON + 60) == ["task_0"]
    assert await found(journal, "orders", person="ada", connection="shop") == ["task_0"]


@pytest.mark.parametrize("name", filterable_fields())
async def test_every_filterable_field_of_a_record_filters_tasks(
    journal: SqlJournal, name: str
) -> None:
    keys = fields_of_setup().get(name, ())
    for task_id, value in (("task_a", "ours"), ("task_b", "theirs"), ("task_c", None)):
        given = {"setup": dict.fromkeys(keys, value)} if keys else {name: value}
        await journal.append(TaskQueued(task_id=task_id, seq=1, at=NOON, task="count", **given))
    assert await found(journal, fields={name: "ours"}) == ["task_a"]
    (figures,) = await journal.figures("day", TaskFilter(fields={name: "ours"}))
    assert figures.tasks == 1


async def test_older_matches_are_returned_page_by_page(
    journal: SqlJournal, written: Written
) -> None:
    for number in range(5):
        await written.task(f"task_{number}", "the same words", NOON)  # in one moment
    await journal.index(60)
    seen: list[str] = []
    before = None
    while True:
        part = await journal.search(TaskFilter(text="same"), limit=2, before=before)
        seen += [one.task.task_id for one in part.tasks]
        if not part.more:
            break
        before = seen[-1]
    assert seen == [f"task_{number}" for number in (4, 3, 2, 1, 0)]
    with pytest.raises(UnknownTaskError):
        await journal.search(TaskFilter(), before="task_none")


async def test_search_reports_unindexed_tasks(journal: SqlJournal, written: Written) -> None:
    await written.task("task_a", "first words")
    result = await journal.search(TaskFilter(text="first"))
    assert (result.tasks, result.behind) == ((), 1)
    await journal.index(60)
    await written.task("task_b", "second words")
    assert (await journal.search(TaskFilter(text="second"))).behind == 1
    assert await found(journal, "second") == ["task_b"]


async def test_removed_task_is_removed_from_the_index(
    journal: SqlJournal, written: Written
) -> None:
    add = await written.task("task_a", "a zebracrossing")
    await add(TaskFinished, status=True, text="", duration_ms=9.0)
    assert await found(journal, "zebracrossing") == ["task_a"]
    assert (await journal.remove(["task_a"])).tasks == ("task_a",)
    assert await found(journal, "zebracrossing") == []
    assert await journal.figures("day", TaskFilter()) == []


async def test_figures_count_tasks_calls_questions_tokens_and_cost(
    journal: SqlJournal, written: Written
) -> None:
    add = await written.task("task_a", "one", NOON, "ada")
    await add(ModelReplied, **replied("gpt", 0.25))
    await add(ModelReplied, **replied("gpt", None, 50, 5))
    await add(CallStarted, **called("shop.orders"))
    await add(CallFinished, call_id=1, action="shop.orders", status="ok", duration_ms=1.0)
    asked = {"request_id": "req_1", "action": "mail.send", "effect": "write"}
    await add(ApprovalRequested, arguments={}, digest="d", **asked)
    await add(ApprovalDecided, request_id="req_1", decision="approved", by="bob")
    await add(CallStarted, **called("mail.send", 2))
    await add(
        CallFinished, call_id=2, action="mail.send", status="error", duration_ms=1.0, error="no"
    )
    await add(TaskFinished, status=False, text="", error="no", duration_ms=9.0, cost_usd=0.25)
    add = await written.task("task_b", "two", NOON + 86_400, "bob")
    await add(ModelReplied, **replied("claude", 0.5, 10, 1))
    await add(TaskFinished, status=True, text="", duration_ms=9.0, cost_usd=0.5)
    await journal.index(60)

    first, second = await journal.figures("day", TaskFilter())
    assert (first.group, first.tasks, first.failed) == ("2026-10-31", 1, 1)
    assert (first.calls, first.failed_calls, first.questions) == (2, 1, 1)
    assert first.waited_seconds == pytest.approx(1.0, abs=0.01)
    assert (first.input_tokens, first.output_tokens) == (150, 15)
    assert (first.cost_usd, first.unpriced) == (0.25, 1)
    assert (second.group, second.tasks, second.cost_usd) == ("2026-11-01", 1, 0.5)

    by_person = {one.group: one for one in await journal.figures("person", TaskFilter())}
    assert {name: one.cost_usd for name, one in by_person.items()} == {"ada": 0.25, "bob": 0.5}
    by_model = {one.group: one for one in await journal.figures("model", TaskFilter())}
    assert {name: (m.calls, m.cost_usd) for name, m in by_model.items()} == {
        "gpt": (2, 0.25),
        "claude": (1, 0.5),
    }
    by_tool = {one.group: one for one in await journal.figures("connection", TaskFilter())}
    assert {name: (t.tasks, t.calls, t.questions) for name, t in by_tool.items()} == {
        "shop": (1, 1, 0),
        "mail": (1, 1, 1),
    }
    by_action = await journal.figures("action", TaskFilter(person="ada"))
    assert [one.group for one in by_action] == ["mail.send", "shop.orders"]
    (only,) = await journal.figures("day", TaskFilter(text="two"))
    assert only.group == "2026-11-01"
    assert await journal.figures("day", TaskFilter(text="&")) == []


async def test_figures_by_day_use_the_given_zone(journal: SqlJournal, written: Written) -> None:
    late = datetime(2026, 10, 31, 23, 30, tzinfo=UTC).timestamp()
    await written.task("task_a", "late", late)
    await journal.index(60)
    for zone, day in (
        ("UTC", "2026-10-31"),
        ("Europe/Berlin", "2026-11-01"),
        ("Asia/Kathmandu", "2026-11-01"),
        ("America/Los_Angeles", "2026-10-31"),
    ):
        assert [one.group for one in await journal.figures("day", TaskFilter(), zone)] == [day]
    with pytest.raises(DelfError, match="no time zone"):
        await journal.figures("day", TaskFilter(), "Mars/Olympus")


async def test_figures_add_child_calls_and_cost_to_the_parent_task(
    journal: SqlJournal, written: Written
) -> None:
    parent = await written.task("task_a", "whole")
    child = await written.task("task_a.1", "part", parent="task_a", worker="helper")
    await child(ModelReplied, **replied("gpt", 0.25))
    await child(TaskFinished, status=False, text="", error="no", duration_ms=9.0, cost_usd=0.25)
    await parent(TaskFinished, status=True, text="", duration_ms=9.0, cost_usd=0.25)
    await journal.index(60)
    (day,) = await journal.figures("day", TaskFilter())
    assert (day.tasks, day.failed, day.cost_usd) == (1, 0, 0.25)


async def test_waiting_time_for_a_request_ends_with_its_task(
    journal: SqlJournal, written: Written
) -> None:
    add = await written.task("task_a", "one")
    asked = {"request_id": "req_1", "action": "mail.send", "effect": "write"}
    await add(ApprovalRequested, arguments={}, digest="d", **asked)
    await add(TaskFinished, status=False, text="", error="no", duration_ms=9.0)
    await journal.index(60)
    (day,) = await journal.figures("day", TaskFilter())
    assert day.waited_seconds == pytest.approx(1.0, abs=0.01)


async def test_waiting_time_for_a_request_ends_with_its_process(
    journal: SqlJournal, journal_url: str, open_journal: Callable[..., SqlJournal]
) -> None:
    ending = open_journal(journal_url)
    asked = {"request_id": "req_1", "action": "mail.send", "effect": "write"}
    for name, other in (("task_a", journal), ("task_b", ending)):
        add = await Written(other).task(name, "one", time.time() - 100)
        await add(ApprovalRequested, arguments={}, digest="d", **asked)
    await ending.aclose()
    await journal.index(60)
    by_task = [
        await journal.figures("action", TaskFilter(state=state))
        for state in (TaskState.RUNNING, TaskState.INTERRUPTED)
    ]
    waited = [figures[0].waited_seconds for figures in by_task]
    assert waited == [pytest.approx(99.0, abs=20), pytest.approx(0.0, abs=0.01)]


async def test_search_index_of_another_version_is_rebuilt(
    sqlite_place: str, open_journal: Callable[..., SqlJournal]
) -> None:
    import sqlite3

    journal = open_journal(sqlite_place)
    await Written(journal).task("task_a", "words")
    assert await found(journal, "words") == ["task_a"]
    with closing(sqlite3.connect(sqlite_place)) as raw, raw:
        raw.execute("UPDATE delf_index SET version = 0")
        raw.execute("DELETE FROM delf_index_words")
    assert await found(journal, "words") == ["task_a"]
