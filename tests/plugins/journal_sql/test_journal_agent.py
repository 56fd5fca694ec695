"""The journal under a working agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from delf import Agent, tool


@tool(confirm=False)
async def wait(seconds: float) -> float:
    """Wait."""
    await asyncio.sleep(seconds)
    return seconds


@pytest.fixture
def make_agent(delf_host, scripted_model, monkeypatch, sqlite_place):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", sqlite_place)

    def make(*tools, **options):
        given = {"llm": "scripted", "sandbox": "local", "host": delf_host, "journal": "sql"}
        return Agent(tools=[wait, *tools], **given, **options)

    return make


@pytest.mark.slow
async def test_task_stopped_during_calls_leaves_no_gap(
    make_agent, scripted_model, sqlite_place, open_journal
):
    code = "import asyncio\nawait asyncio.gather(*(wait(i / 150) for i in range(300)))"
    scripted_model.writes(code)
    events = []
    async with make_agent(timeout=1.0) as agent:
        response = await agent.arun("wait", listeners=[events.append])
    assert "Timeout" in (response.error or "")
    journal = open_journal(sqlite_place)
    kept = await journal.read(events[0].task_id)
    assert list(kept) == events
    assert [event.seq for event in kept] == list(range(1, len(kept) + 1))
    assert (await journal.task(events[0].task_id)).state == "failed"


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_journal_lost_during_a_task_fails_the_task(
    how, make_agent, scripted_model, sqlite_place
):
    path = Path(sqlite_place.removeprefix("sqlite:///"))

    @tool(confirm=False)
    async def lose() -> None:
        """Lose the journal."""
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
        if how == "replaced":
            path.write_bytes(b"")

    scripted_model.writes("await lose()\nprint('done')")
    async with make_agent(lose) as agent:
        response = await agent.arun("lose")
    assert not response.status
    assert f"{path} was deleted or replaced while it was in use" in str(response.error)
