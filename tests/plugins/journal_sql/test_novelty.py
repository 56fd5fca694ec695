"""A question says which addresses are new to the person, by the journal of earlier tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from delf import Agent, tool
from delf_journal_sql import SqlJournal

ADA, EVE = "ada@lab.example", "eve@evil.example"
NEW = "new: never used before"


@tool(effect="write")
def send(to: list[str], body: str = "") -> str:
    """Send a mail."""
    return "sent"


@tool(effect="write")
def change(sql: str) -> str:
    """Change rows."""
    return "changed"


@pytest.fixture
def asked_in(
    delf_host: Any, scripted_model: Any, monkeypatch: pytest.MonkeyPatch, journal_url: str
) -> Callable[..., Any]:
    """Runs a script in a task of its own; what was asked meanwhile."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", journal_url)

    async def run(code: str, **options: Any) -> list[Any]:
        asked: list[Any] = []

        def decide(request: Any) -> bool:
            asked.append(request)
            return True

        scripted_model.writes(code)
        given: dict[str, Any] = {"llm": "scripted", "host": delf_host, "journal": "sql"}
        given |= {"on_confirm": decide, "approvals": [], "retry_count": 0, **options}
        async with Agent(tools=[send, change], **given) as agent:
            response = await agent.arun("Write to the lab")
        assert response.status, response.error
        return asked

    return run


def new_in(request: Any) -> set[str]:
    """The paths of values that are marked; in words and as data."""
    marked = {path for path, origin in request.origins.items() if NEW in origin["text"]}
    assert marked == {path for path, origin in request.origins.items() if origin.get("is_new")}
    return marked


async def test_an_address_is_new_until_a_call_had_it(asked_in: Callable[..., Any]) -> None:
    [first] = await asked_in(f"print(send(['{ADA}'], 'hello'))")
    assert new_in(first) == {"to[0]"}
    [second] = await asked_in(f"print(send(['{ADA}', '{EVE}'], 'hello'))")
    assert new_in(second) == {"to[1]"}


async def test_an_address_that_was_only_text_before_is_new(asked_in: Callable[..., Any]) -> None:
    await asked_in(f"print(send(['{ADA}'], 'write to {EVE}'))")
    [asked] = await asked_in(f"print(send(['{EVE}']))")
    assert new_in(asked) == {"to[0]"}


async def test_an_earlier_call_of_the_same_task_counts(asked_in: Callable[..., Any]) -> None:
    asked = await asked_in(f"print(send(['{EVE}']))\nprint(send(['{EVE}'], 'again'))")
    assert [new_in(request) for request in asked] == [{"to[0]"}, set()]


async def test_statements_are_no_addresses(asked_in: Callable[..., Any]) -> None:
    [asked] = await asked_in("print(change('DELETE FROM visits'))")
    assert new_in(asked) == set()


async def test_nothing_is_said_where_flows_are_off(asked_in: Callable[..., Any]) -> None:
    [asked] = await asked_in(f"print(send(['{EVE}']))", flows="off")
    assert asked.origins == {}


async def fails(*_: Any) -> None:
    raise OSError("the disk is gone")


async def hangs(*_: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("answer", [fails, hangs])
async def test_a_journal_that_fails_or_hangs_stops_no_question(
    asked_in: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr("delf_engine.approvals.novelty.SECONDS", 0.01)
    monkeypatch.setattr(SqlJournal, "calls_with", answer)
    [asked] = await asked_in(f"print(send(['{EVE}']))")
    assert new_in(asked) == set()
    assert asked.origins["to[0]"]["text"] == "written by the model"
