"""Tests of plugins whose code hangs or fails when the agent stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from delf import Agent, tool
from delf.specs import ApprovalSpec, JournalSpec, MemorySpec, ObserverSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine import closing, runtime
from delf_engine.closing import all_ended, close_all
from delf_engine.journal.in_process import InProcessJournal


async def hangs() -> None:
    await asyncio.Event().wait()


async def ignores_cancellation() -> None:
    for _ in range(2):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def fails() -> None:
    raise RuntimeError("Event loop is closed")


async def raises_many() -> None:
    raise ExceptionGroup("several", [ValueError("one"), ValueError("two")])


ENDS: Mapping[str, tuple[Callable[[], Any], str]] = {
    "hangs": (hangs, "did not answer aclose() within 0.3 s"),
    "ignores its cancellation": (ignores_cancellation, "did not answer aclose() within 0.3 s"),
    "fails": (fails, "failed in aclose(): RuntimeError: Event loop is closed"),
}


class Part:
    """A plugin's object of any kind, of which the stop uses only ``aclose``."""

    name = "desk"
    end: Callable[[], Any] = staticmethod(hangs)

    async def aclose(self) -> None:
        await type(self).end()

    async def decide(self, _request: Any) -> None:
        return None

    async def observe(self, _event: Any) -> None:
        return None

    async def search(self, *_: Any, **__: Any) -> list[Any]:
        return []

    async def tools(self) -> list[Any]:
        return []

    save = all = delete = clear = search


class StuckJournal(InProcessJournal):
    end: Callable[[], Any] = staticmethod(hangs)

    async def aclose(self) -> None:
        await type(self).end()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "STOP_SECONDS", 0.3)
    monkeypatch.setattr(runtime, "STOP_SECONDS", 0.3)


def agent_with(kind: str, part: Any, host: TestHost) -> Agent:
    spec: dict[str, Any] = {"name": "desk", "summary": "x", "factory": "x:x"}
    options: dict[str, Any] = {}
    match kind:
        case "journal":
            host.provide(JournalSpec(**spec), lambda **_: part)
            options["journal"] = "desk"
        case "approval channel":
            host.provide(ApprovalSpec(**spec), lambda **_: part)
            options["approvals"] = ["desk"]
        case "observer":
            host.provide(ObserverSpec(**spec), lambda **_: part)
        case _:
            host.provide(MemorySpec(**spec), lambda **_: part)
            options["memory"] = "desk"
    return Agent(llm="scripted", host=host, **options)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("kind", ["journal", "approval channel", "observer", "memory store"])
async def test_stop_names_the_part_that_hangs_on_closing(
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    how: str,
) -> None:
    end, problem = ENDS[how]
    part = StuckJournal() if kind == "journal" else Part()
    type(part).end = staticmethod(end)
    agent = agent_with(kind, part, delf_host)
    await agent.astart()
    if kind == "memory store":  # a task opens the store
        scripted_model.default = "```python\nprint(1)\n```"
        assert (await agent.arun("x")).text == "1"
    await agent.astop()
    lines = (r.getMessage() for r in caplog.records if "while stopping" in r.getMessage())
    (line,) = (line for line in lines if kind in line)
    if (kind, how) == ("journal", "fails"):  # its own errors are named in any method
        assert "the journal 'desk' failed in aclose(): RuntimeError: Event loop" in line
    else:
        assert type(part).__name__ in line
        assert problem in line


async def test_stop_names_the_line_of_an_uncancellable_call(
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    @tool(confirm=False)
    async def stubborn() -> None:
        """Go on."""
        begun.set()
        await ignores_cancellation()

    scripted_model.writes("await stubborn()")
    agent = Agent([stubborn], llm="scripted", host=delf_host)
    await agent.asubmit("x")
    await begun.wait()
    await agent.astop()
    (line,) = (r.getMessage() for r in caplog.records if "did not end within" in r.getMessage())
    assert line == "while stopping: the call stubborn did not end within 0.3 s"


async def test_every_closing_failure_is_reported() -> None:
    class Broken(Part):
        end = staticmethod(fails)

    with pytest.raises(ExceptionGroup) as raised:
        await all_ended([close_all({"a": Broken(), "b": Broken(), "c": object()}), raises_many()])
    assert len(raised.value.exceptions) == 4


@pytest.mark.usefixtures("scripted_model")
async def test_journal_is_open_until_channels_are_closed(delf_host: TestHost) -> None:
    was_open: list[bool] = []

    class Watched(InProcessJournal):
        is_open = True

        async def aclose(self) -> None:
            self.is_open = False
            await super().aclose()

    class Reader(Part):
        async def aclose(self) -> None:
            await asyncio.sleep(0)  # another object that is closed at the same time gets its turn
            was_open.append(journal.is_open)

    journal = Watched()
    spec: dict[str, Any] = {"name": "desk", "summary": "x", "factory": "x:x"}
    delf_host.provide(JournalSpec(**spec), lambda **_: journal)
    delf_host.provide(ApprovalSpec(**spec), lambda **_: Reader())
    agent = Agent(llm="scripted", host=delf_host, approvals=["desk"], journal="desk")
    await agent.astart()
    await agent.astop()
    assert was_open == [True]
    assert not journal.is_open
