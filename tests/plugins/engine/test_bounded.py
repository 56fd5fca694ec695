"""Methods of plugins that hang, raise, or end their own asyncio task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from delf import Agent, Connection, action
from delf.errors import PluginError
from delf.protocols.sandbox import Available, SupportsAbandoning
from delf.specs import JournalSpec, ModelSpec, ObserverSpec, SandboxSpec, Spec, StrategySpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine import bounded, sync, toolset
from delf_engine.journal import guarded, observers
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.sandboxes import starting
from support.chains import every_text_of

SECONDS = 0.2


async def hangs() -> None:
    await asyncio.Event().wait()


async def raises() -> None:
    raise KeyError("planted")


async def quotes_its_url() -> None:
    raise ConnectionError("cannot reach redis://ann:hunter2@10.0.0.1:6379/0")


async def raises_a_group() -> None:
    raise ExceptionGroup(
        "of a task group", [KeyError("planted"), ExceptionGroup("x", [OSError("no")])]
    )


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def leaves() -> None:
    raise SystemExit(3)


FAULTS: dict[str, Callable[[], Awaitable[None]]] = {
    "hangs": hangs,
    "raises": raises,
    "quotes its url": quotes_its_url,
    "raises a group": raises_a_group,
    "cancels itself": cancels_itself,
    "leaves": leaves,
}
NAMED = {
    "actions": "the connection 'desk' {} actions()",
    "available": "the sandbox 'box' {} available()",
    "append": "the journal 'redis' {} append()",
    "solve": "the strategy 'plan'",
    "complete": "odd",
    "observe": "the observer 'watch'",
}
"""The method with a fault, and its plugin's name in the message."""


class Desk(Connection):
    """A desk."""

    def __init__(self, fault: Callable[[], Awaitable[None]]) -> None:
        super().__init__(name="desk")
        self.fault = fault

    @action(effect="read")
    async def find(self) -> int:
        """Find."""
        return 1

    async def actions(self) -> Any:
        await self.fault()
        return await super().actions()


class Faulty:
    """A sandbox, strategy, model and observer."""

    isolation = "process"

    def __init__(self, fault: Callable[[], Awaitable[None]]) -> None:
        self.fault = fault

    async def available(self) -> Available:
        await self.fault()
        return Available("x")

    async def open(self, spec: Any) -> Any:
        raise NotImplementedError

    def visible_path(self, path: str) -> str:
        return path

    async def solve(self, _: Any) -> str:
        await self.fault()
        return "1"

    async def complete(self, _: Any) -> Any:
        await self.fault()

    async def stream(self, _: Any) -> Any:
        await self.fault()
        yield

    async def observe(self, _: Any) -> None:
        await self.fault()

    async def aclose(self) -> None:
        return None


def agent_with(method: str, fault: Callable[[], Awaitable[None]], host: TestHost) -> Agent:
    class Redis(InProcessJournal):
        async def append(self, event: Any) -> None:
            await fault()
            await super().append(event)

    spec: dict[str, Any] = {"summary": "x", "factory": "x:x"}
    options: dict[str, Any] = {"llm": "scripted", "sandbox": "local", "timeout": 1.0}
    match method:
        case "actions":
            options["tools"] = [Desk(fault)]
        case "available":
            host.provide(
                SandboxSpec(name="box", isolation="process", **spec), lambda **_: Faulty(fault)
            )
            options["sandbox"] = "box"
        case "append":
            host.provide(JournalSpec(name="redis", **spec), lambda **_: Redis())
            options["journal"] = "redis"
        case "solve":
            host.provide(StrategySpec(name="plan", **spec), lambda **_: Faulty(fault))
            options["strategy"] = "plan"
        case "complete":
            spec["serves"] = ("odd",)
            host.provide(ModelSpec(name="odd", **spec), lambda config: Faulty(fault))
            options["llm"] = "odd"
        case _:
            host.provide(ObserverSpec(name="watch", **spec), lambda **_: Faulty(fault))
    return Agent(host=host, **options)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SLOW_SECONDS", SECONDS / 2)
    monkeypatch.setattr(toolset, "START_SECONDS", SECONDS)
    monkeypatch.setattr(starting, "START_SECONDS", SECONDS)
    monkeypatch.setattr(guarded, "ANSWER_SECONDS", SECONDS)
    monkeypatch.setattr(observers, "CLOSE_SECONDS", SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", NAMED)
def test_faulty_method_ends_in_time_and_names_its_plugin(
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    caplog: pytest.LogCaptureFixture,
    method: str,
    fault: str,
) -> None:
    scripted_model.default = "```python\nprint(1)\n```"
    caplog.set_level(logging.DEBUG)
    agent = agent_with(method, FAULTS[fault], delf_host)
    try:
        response = agent.run("x")
        failed = response.exception
        message = f"{response.text} {response.error} {failed and failed.hint}"
        assert "hunter2" not in repr(response.events)
    except Exception as error:
        failed = error
        message = str(error)
    agent.stop()
    message += caplog.text
    if fault == "raises a group" and method != "observe":  # its log has the traceback
        assert "KeyError: 'planted'; OSError: no" in message
    assert "hunter2" not in message
    assert failed is None or "hunter2" not in every_text_of(failed)
    if method in ("actions", "available", "append"):
        verb = "did not answer" if fault == "hangs" else "failed in"
        assert NAMED[method].format(verb) in message.replace("does not work here: ", "")
    elif fault == "hangs" or method == "observe":
        assert NAMED[method] in message
    else:
        assert "Faulty." in message or NAMED[method] in message


def test_function_that_blocks_the_loop_is_named(
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import threading

    free = threading.Event()

    async def blocks() -> None:
        free.wait(50)

    monkeypatch.setattr(sync, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(sync, "STOP_SECONDS", 0.1)
    agent = agent_with("solve", blocks, delf_host)
    handle = agent.submit("x")
    agent.stop()
    free.set()
    assert "the agent's event loop does not answer, blocked by" in caplog.text
    assert "blocks() (" in caplog.text
    assert handle
    assert scripted_model.prompts == []


def test_sandbox_of_a_closed_loop_is_abandoned_without_an_await(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    ends: list[str] = []

    class Local(Faulty):
        async def aclose(self) -> None:
            ends.append("aclose")

        def abandon(self) -> None:
            ends.append("abandon")

    assert isinstance(Local(hangs), SupportsAbandoning)

    async def nothing() -> None:
        return None

    delf_host.provide(
        SandboxSpec(name="box", isolation="process", summary="x", factory="x:x"),
        lambda **_: Local(nothing),
    )
    agent = Agent(llm="scripted", host=delf_host, sandbox="box")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(agent.astart())
    loop.close()
    agent.stop()
    assert ends == ["abandon"]


FACTORIES: dict[str, tuple[Spec, dict[str, str]]] = {
    "journal": (JournalSpec(name="odd", summary="x", factory="x:x"), {"journal": "odd"}),
    "sandbox": (
        SandboxSpec(name="odd", summary="x", factory="x:x", isolation="vm"),
        {"sandbox": "odd"},
    ),
    "strategy": (StrategySpec(name="odd", summary="x", factory="x:x"), {"strategy": "odd"}),
    "model": (ModelSpec(name="odd", summary="x", factory="x:x", serves=("odd",)), {"llm": "odd"}),
}


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.usefixtures("scripted_model")
def test_failing_factory_is_named_without_its_password(delf_host: TestHost, kind: str) -> None:
    def refuses(**_: Any) -> Any:
        raise ConnectionError("cannot reach redis://ann:hunter2@10.0.0.1:6379/0")

    spec, options = FACTORIES[kind]
    delf_host.provide(spec, refuses)
    with pytest.raises(PluginError, match=f"the {kind} 'odd' of .* cannot be made") as raised:
        Agent(host=delf_host, **{"llm": "scripted", **options}).run("x").raise_for_status()
    assert "redis://ann:***@10.0.0.1" in every_text_of(raised.value)
    assert "hunter2" not in every_text_of(raised.value)


@pytest.mark.usefixtures("scripted_model")
def test_url_in_place_of_a_name_does_not_show_its_password(delf_host: TestHost) -> None:
    for option in ("journal", "memory", "sandbox", "strategy"):
        agent = Agent(
            llm="scripted", host=delf_host, **{option: "postgres://ann:hun/ter2@10.0.0.1/db"}
        )
        with pytest.raises(PluginError) as raised:
            agent.run("x").raise_for_status()
        assert "ter2" not in every_text_of(raised.value)
