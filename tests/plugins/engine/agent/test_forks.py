"""Tests that a fork repeats nothing of the other task up to the forked event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, ConfigurationError, UnknownTaskError, tool
from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    Cancellation,
    Event,
    ModelReplied,
    ScriptFinished,
    TaskStarted,
)
from delf.messages import ModelReply
from delf.specs import JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.journal.forks import events_of_fork
from delf_engine.journal.in_process import InProcessJournal


class Shop:
    """A shop that records what it sold."""

    def __init__(self) -> None:
        self.sold: list[str] = []
        self.asked = 0
        self.journal = InProcessJournal()
        self.model = ScriptedModel()

    def agent(self) -> Agent:
        @tool(confirm=True, effect="write")
        async def sell(thing: str) -> str:
            """Sell a thing."""
            self.sold.append(thing)
            return f"sold {thing}"

        def approve(_: Any) -> bool:
            self.asked += 1
            return True

        host = TestHost.discover(environ={})
        host.provide(self.model.spec, self.model.factory)
        spec = JournalSpec(name="kept", summary="Kept.", factory="x:y")
        host.provide(spec, lambda: self.journal)
        return Agent(
            tools=[sell],
            llm="scripted",
            host=host,
            sandbox="local",
            journal="kept",
            on_confirm=approve,
            retry_count=1,
        )

    async def events(self, task_id: str) -> list[Event]:
        return list(await self.journal.read(task_id))

    async def fork(self, events: list[Event], at: int, name: str) -> None:
        for event in events_of_fork(events, at, name):
            await self.journal.append(event)


async def first(shop: Shop) -> list[Event]:
    shop.model.writes("print(await sell('lamp'))\n1 / 0", "print(await sell('desk'))")
    async with shop.agent() as agent:
        response = await agent.arun("Sell.")
    assert response.text == "sold desk"
    return await shop.events(response.trace.task_id)


def seq_of(events: list[Event], kind: type, number: int = 0) -> int:
    return [event.seq for event in events if isinstance(event, kind)][number]


async def test_incompletely_copied_fork_is_not_resumed() -> None:
    """A resume would repeat calls whose events are missing; tested at each point of the copy."""
    shop = Shop()
    events = await first(shop)
    last = seq_of(events, ScriptFinished)
    whole = events_of_fork(events, last, "task_torn")
    for count in range(1, len(whole)):
        name = f"task_torn_{count}"
        for event in events_of_fork(events, last, name)[:count]:
            await shop.journal.append(event)
        async with shop.agent() as agent:
            response = await agent.aresume(name)
        assert "died before all events were copied" in (response.error or ""), count
        assert (await shop.events(name))[-1].status is False
    assert shop.sold == ["lamp", "desk"]


async def test_fork_asks_the_model_again_for_its_last_script() -> None:
    shop = Shop()
    events = await first(shop)
    shop.model.writes("print(await sell('chair'))")
    async with shop.agent() as agent:
        name = await agent.afork(events[0].task_id)
        response = await agent.aresume(name)
        with pytest.raises(UnknownTaskError):
            await agent.afork("task_none")
    assert (response.text, response.trace.task_id) == ("sold chair", name)
    assert name != events[0].task_id
    assert shop.sold == ["lamp", "desk", "chair"]
    assert shop.asked == 3
    names = [call.arguments["thing"] for call in response.trace.tool_calls]
    assert names == ["lamp", "chair"]
    assert any("forked from" in text for text in response.trace.warnings)
    before = await shop.events(events[0].task_id)
    assert before == events


@pytest.mark.parametrize("kind", [CallStarted, CallFinished, ScriptFinished, ModelReplied])
async def test_fork_at_any_event_repeats_no_call(kind: type) -> None:
    shop = Shop()
    events = await first(shop)
    at = seq_of(events, kind)
    await shop.fork(events, at, "task_fork")
    shop.model.writes("print('no more')")
    async with shop.agent() as agent:
        response = await agent.aresume("task_fork")
    assert response.status, response.error
    again = 1 if kind is ModelReplied else 0  # the script came, and nothing of it was done
    assert shop.sold == ["lamp", "desk", *["lamp"] * again]


def interrupted(events: list[Event], cancellation: Cancellation) -> tuple[list[Event], int]:
    """Interrupt the first call: its sandbox dies, and the restarted script makes the call again.

    Returns the events, and the number of the last event before the final end of the call.
    """
    start = next(event for event in events if isinstance(event, CallStarted))
    interruption: list[Event] = [
        CallFinished(
            task_id=start.task_id,
            seq=0,
            at=start.at,
            call_id=start.call_id,
            action=start.action,
            status="cancelled",
            duration_ms=0.0,
            cancellation=cancellation,
        )
    ]
    if cancellation == "not_started":
        interruption.append(start)
    made = [*events[: start.seq], *interruption, *events[start.seq :]]
    numbered = [replace(event, seq=number) for number, event in enumerate(made, 1)]
    return numbered, start.seq + len(interruption)


@pytest.mark.parametrize("cancellation", ["cut_off", "not_started"])
async def test_fork_keeps_the_result_of_a_call_that_survived_an_interruption(
    cancellation: Cancellation,
) -> None:
    shop = Shop()
    events, at = interrupted(await first(shop), cancellation)
    asked = shop.asked
    await shop.fork(events, at, "task_fork")
    shop.model.writes("print('no more')")
    async with shop.agent() as agent:
        response = await agent.aresume("task_fork")
    assert response.status, response.error
    assert (shop.sold, shop.asked) == (["lamp", "desk"], asked)


@pytest.mark.parametrize("cancellation", ["cut_off", "not_started"])
async def test_fork_copies_no_approval_of_an_interrupted_call(cancellation: Cancellation) -> None:
    shop = Shop()
    events, at = interrupted(await first(shop), cancellation)
    without_end = events[:at]
    made = events_of_fork(without_end, at, "task_fork")
    assert any(isinstance(event, ApprovalDecided) for event in without_end)
    assert not any(isinstance(event, (ApprovalDecided, ApprovalRequested)) for event in made)


async def test_fork_copies_no_end_of_a_call_that_starts_later() -> None:
    shop = Shop()
    events, second_start = interrupted(await first(shop), "not_started")
    made = events_of_fork(events, second_start - 1, "task_fork")
    assert [e.cancellation for e in made if isinstance(e, CallFinished)] == ["not_started"]


async def test_fork_at_the_last_event_ends_the_same_way() -> None:
    shop = Shop()
    events = await first(shop)
    await shop.fork(events, events[-1].seq, "task_fork")
    async with shop.agent() as agent:
        response = await agent.aresume("task_fork")
    assert response.text == "sold desk"
    assert shop.sold == ["lamp", "desk"]
    assert len(shop.model.requests) == 2


async def test_invalid_fork_event_is_refused() -> None:
    shop = Shop()
    events = await first(shop)
    for at in (0, events[-1].seq + 1, -1):
        with pytest.raises(UnknownTaskError, match="cannot be forked at event") as caught:
            events_of_fork(events, at, "task_fork")
        assert "has events from 1 to" in str(caught.value.hint)


def test_fork_renames_requests_and_numbers_events_without_gaps() -> None:
    from delf_devkit.testing.events import every_event

    events = list(every_event("task_whole"))
    began = next(e.seq for e in events if isinstance(e, TaskStarted))
    made = events_of_fork(events, max(began, events[-1].seq), "task_fork")
    assert [event.seq for event in made] == list(range(1, len(made) + 1))
    assert {event.task_id for event in made} == {"task_fork"}
    old = {e.request_id for e in events if hasattr(e, "request_id")}
    assert not old & {e.request_id for e in made if hasattr(e, "request_id")}


@pytest.mark.parametrize(
    ("user", "flags"), [("eve:1", {}), (None, {"approval_mode": "approve_all"})]
)
def test_fork_by_another_person_has_no_options_of_the_command(
    user: str | None, flags: dict
) -> None:
    setup = {"folder": "/shop", "flags": {"approval_mode": "approve_all"}, "overrides": []}
    start = TaskStarted(task_id="task_local", seq=1, at=1.0, task="Pay", setup=setup)
    made = events_of_fork([start], 1, "task_fork", user)
    assert isinstance(made[0], TaskStarted)
    assert made[0].setup["flags"] == flags


async def test_fork_runs_a_replacement_script() -> None:
    shop = Shop()
    events = await first(shop)
    async with shop.agent() as agent:
        name = await agent.afork(events[0].task_id, script="print(await sell('shelf'))")
        response = await agent.aresume(name)
        assert (response.text, shop.sold) == ("sold shelf", ["lamp", "desk", "shelf"])
        name = await agent.afork(events[0].task_id, 1, script="print('nothing is sold')")
        response = await agent.aresume(name)
        assert response.text == "nothing is sold"
        assert [script.strip() for script in response.trace.scripts] == ["print('nothing is sold')"]
        with pytest.raises(UnknownTaskError, match="no model wrote a script after event"):
            await agent.afork(events[0].task_id, events[-1].seq, script="print(1)")
    assert len(shop.model.requests) == 2


async def test_fork_accepts_another_model() -> None:
    shop = Shop()
    events = await first(shop)
    shop.model.writes("print(await sell('chair'))", "print('whole')")
    async with shop.agent() as agent:
        name = await agent.afork(events[0].task_id, llm="scripted:other")
        assert (await agent.aresume(name)).text == "sold chair"
        assert shop.model.configs[-1].model == "scripted:other"
        assert (await agent.arun("Sell.", llm="scripted:third")).text == "whole"
        assert shop.model.configs[-1].model == "scripted:third"
        with pytest.raises(ConfigurationError, match="no provider is known for the model"):
            await agent.arun("Sell.", llm="nonesuch")


@pytest.mark.parametrize("script", [None, "print(1)"])
async def test_refused_fork_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None
) -> None:
    shop = Shop()
    shop.model.writes("add_to_output_files('report.txt', 'x')")
    async with shop.agent() as agent:
        done = await agent.arun("Write.")
        last = done.events[-1].seq
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with pytest.raises(UnknownTaskError):
            await agent.afork(done.trace.task_id, last + (script is None), script=script)
    assert not list(tmp_path.iterdir())


async def test_fork_has_its_own_output_files() -> None:
    shop = Shop()
    write = "add_to_output_files('report.txt', {!r})\nprint(await sell('lamp'))"
    shop.model.writes(write.format("first"))
    async with shop.agent() as agent:
        first = await agent.arun("Sell.")
        path = Path(first.files["report.txt"])
        last = (await shop.events(first.trace.task_id))[-1].seq
        for at in (None, last):
            name = await agent.afork(first.trace.task_id, at)
            if at is None:
                shop.model.writes(write.format("second"))
            made = await agent.aresume(name)
            own = Path(made.files["report.txt"])
            assert own != path
            assert own.read_text() == ("second" if at is None else "first")
            assert path.read_text() == "first"
        path.unlink()
        name = await agent.afork(first.trace.task_id, last)
        made = await agent.aresume(name)
        assert Path(made.files["report.txt"]).read_text() == "first"
        assert not path.exists()


@pytest.mark.parametrize("at", [1, None])
async def test_replacement_script_needs_no_continuation_of_a_truncated_answer(
    at: int | None,
) -> None:
    shop = Shop()
    truncated = ModelReply(
        text="```python\nprint('one')\nprint('tw",
        model="scripted",
        finish_reason="length",
        cost_usd=0.0,
    )
    shop.model.says(truncated, ModelReply(text="o')\n```", model="scripted", cost_usd=0.0))
    async with shop.agent() as agent:
        done = await agent.arun("Print.")
        assert done.text == "one\ntwo"
        name = await agent.afork(done.trace.task_id, at, script="print('three')")
        response = await agent.aresume(name)
    assert response.text == "three"
    assert len(shop.model.requests) == 2
