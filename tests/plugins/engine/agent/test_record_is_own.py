"""Tests that later changes of objects do not change what was recorded."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from delf import Agent, Edited, tool
from delf import events as ev
from delf.specs import JournalSpec, ObserverSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.journal.in_process import InProcessJournal

ROWS = [{"to": "ada", "amounts": [1, 2]}]


@dataclass
class Order:
    """Return the order."""

    to: str
    amounts: list[int]


class Bench:
    """An agent whose tools, listeners and observers change every object that they receive."""

    def __init__(self, host: TestHost, model: ScriptedModel) -> None:
        self.host, self.model = host, model
        self.journal = InProcessJournal()
        self.observed: list[ev.Event] = []
        self.received: list[ev.Event] = []
        host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: self.journal)
        for name, observer in (("vandal", self._vandal()), ("witness", self._witness())):
            spec = ObserverSpec(name=name, factory="x:y", summary="x")
            host.provide(spec, lambda observer=observer: observer)

    def _vandal(self) -> Any:
        class Vandal:
            async def observe(self, event: ev.Event) -> None:
                spoil(event)

            async def aclose(self) -> None:
                return None

        return Vandal()

    def _witness(self) -> Any:
        observed = self.observed

        class Witness:
            async def observe(self, event: ev.Event) -> None:
                observed.append(event)

            async def aclose(self) -> None:
                return None

        return Witness()

    def agent(self, *tools: Any, **options: Any) -> Agent:
        return Agent(
            tools=list(tools), llm="scripted", sandbox="local", host=self.host, journal="test",
            observers=["vandal", "witness"], **options,
        )  # fmt: skip

    async def run(self, agent: Agent) -> Any:
        async with agent:
            response = await agent.arun("Do it.", listeners=[spoil, self.received.append])
        response.raise_for_status()
        return response

    async def message(self, response: Any, kind: type[Any], name: str) -> list[Any]:
        """Return a field of all events of a kind, as each of their receivers got it."""
        task_id = response.trace.task_id
        kept = await self.journal.read(task_id)
        found = [
            [getattr(event, name) for event in events if isinstance(event, kind)]
            for events in (kept, self.observed, self.received)
        ]
        assert found[0] == found[1] == found[2]
        return found[0]


def spoil(event: Any) -> None:
    """Change every mutable part of an event."""
    for name in ("arguments", "result", "value", "setup", "files", "defaults", "origins"):
        value = getattr(event, name, None)
        for change in (
            lambda value=value: value.clear(),
            lambda value=value: value[0].clear(),
            lambda value=value: next(iter(value.values())).clear(),
            lambda value=value: value.update(spoilt=True),
            lambda value=value: value.append("spoilt"),
        ):
            try:
                change()
            except (TypeError, AttributeError, KeyError, IndexError, StopIteration):
                continue


@pytest.fixture
def bench(delf_host: TestHost, scripted_model: ScriptedModel) -> Bench:
    return Bench(delf_host, scripted_model)


async def test_arguments_mutated_by_a_tool_are_recorded_as_approved(bench: Bench) -> None:
    """Change lists, dicts and objects, also nested ones."""

    @tool(effect="write", confirm=True)
    async def pay(rows: list[dict[str, Any]], order: Order, more: dict[str, list[int]]) -> str:
        """Pay."""
        rows[0]["to"] = "mallory"
        rows[0]["amounts"].append(9)
        rows.append({"to": "eve"})
        order.to = "mallory"
        order.amounts.clear()
        more["a"].append(1)
        return "paid"

    call = f"pay({ROWS!r}, order={{'to': 'ben', 'amounts': [3]}}, more={{'a': [0]}})"
    bench.model.writes(f"print({call})")
    asked: list[Any] = []

    def on_confirm(request: Any) -> bool:
        asked.append(copy.deepcopy(request.arguments))
        request.arguments["rows"].clear()
        return True

    response = await bench.run(bench.agent(pay, on_confirm=on_confirm))
    wanted = {"rows": ROWS, "order": {"to": "ben", "amounts": [3]}, "more": {"a": [0]}}
    (begun,) = await bench.message(response, ev.CallStarted, "arguments")
    assert begun == wanted
    assert response.trace.tool_calls[0].arguments == wanted
    assert asked[0]["rows"] == ROWS


async def test_result_mutated_later_is_recorded_as_returned(bench: Bench) -> None:
    kept: list[int] = [1]
    orders = [Order("ada", [1])]

    @tool(effect="read", confirm=False)
    async def numbers() -> list[int]:
        """All numbers so far."""
        kept.append(len(kept) + 1)
        return kept

    @tool(effect="read", confirm=False)
    def ordered() -> list[Order]:
        """All orders."""
        orders[0].amounts.append(0)
        return orders

    bench.model.writes(
        "a, x = numbers(), ordered()\nb, y = numbers(), ordered()\nprint(a, b, x, y)"
    )
    response = await bench.run(bench.agent(numbers, ordered))
    one, two = ([{"to": "ada", "amounts": [1, *[0] * n]}] for n in (1, 2))
    assert await bench.message(response, ev.CallFinished, "result") == [[1, 2], one, [1, 2, 3], two]
    assert [call.result for call in response.trace.tool_calls] == [[1, 2], one, [1, 2, 3], two]
    assert response.text == f"[1, 2] [1, 2, 3] {one} {two}"


async def test_large_values_are_recorded_as_returned(bench: Bench) -> None:
    """Large values are copied in a thread."""
    kept = [{"n": n} for n in range(20_000)]

    @tool(effect="write", confirm=False)
    async def take(rows: list[dict[str, int]]) -> list[dict[str, int]]:
        """Take rows."""
        rows.clear()
        asyncio.get_running_loop().call_soon(kept.clear)
        return list(kept)

    bench.model.writes("rows = [{'n': n} for n in range(20_000)]\nprint(len(take(rows)))")
    response = await bench.run(bench.agent(take))
    (begun,) = await bench.message(response, ev.CallStarted, "arguments")
    (ended,) = await bench.message(response, ev.CallFinished, "result")
    assert [len(begun["rows"]), len(ended), response.text] == [20_000, 20_000, "20000"]


async def test_edited_arguments_are_recorded(bench: Bench) -> None:
    mine = {"rows": [{"to": "ben", "amounts": [5]}]}
    done: list[Any] = []

    @tool(effect="write", confirm=True)
    async def pay(rows: list[dict[str, Any]]) -> str:
        """Pay."""
        mine["rows"][0]["to"] = "mallory"
        done.append(copy.deepcopy(rows))
        rows.clear()
        return "paid"

    bench.model.writes(f"print(pay({ROWS!r}))")

    def on_confirm(request: Any) -> Any:
        return Edited(arguments=mine)

    response = await bench.run(bench.agent(pay, on_confirm=on_confirm))
    wanted = {"rows": [{"to": "ben", "amounts": [5]}]}
    assert done == [wanted["rows"]]
    assert await bench.message(response, ev.CallStarted, "arguments") == [wanted]
    assert await bench.message(response, ev.ApprovalDecided, "arguments") == [wanted]


async def test_answer_mutated_by_a_program_is_recorded_as_given(bench: Bench) -> None:
    bench.model.writes("answer([{'n': 1}])")
    agent = bench.agent()
    async with agent:
        response = await agent.arun(
            "Numbers.", output=list[dict[str, int]], listeners=[spoil, bench.received.append]
        )
        response.raise_for_status()
    response.value[0]["n"] = 2
    response.value.append({})
    assert await bench.message(response, ev.TaskFinished, "value") == [[{"n": 1}]]


def test_frozen_values_are_equal_and_copies_are_mutable() -> None:
    data = {"rows": [{"n": 1}, ({"m": [2]},)], "names": {"a", "b"}, 3: b"x", "none": None}
    event = ev.decode(
        ev.encode(
            ev.CallFinished(
                task_id="t", seq=1, at=1.0, call_id=1, action="x", status="ok", duration_ms=1.0,
                result=data,
            )
        )
    )  # fmt: skip
    assert event.result == data
    assert ev.decode(ev.encode(event)) == event
    assert json.loads(json.dumps(event.result["rows"])) == [{"n": 1}, [{"m": [2]}]]
    with pytest.raises(TypeError, match=r"part of an event.*copy\.deepcopy"):
        event.result["rows"].append(1)
    with pytest.raises(TypeError):
        event.result["names"].add("c")
    for copied in (copy.deepcopy(event.result), pickle.loads(pickle.dumps(event.result))):
        assert type(copied) is dict
        copied["rows"][1][0]["m"].append(3)
        copied["names"].add("c")
    assert event.result == data
