"""The user's profile: in the prompt of every strategy, learned beside tasks, reviewed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from delf import Agent
from delf.testing import Call, ConnectionContract, ScriptedModel, TestHost
from delf_devkit.testing.models import script
from delf_strategy_stream.profile import Profile

STRATEGIES = ["stream", "codegen"]


class TestProfile(ConnectionContract):
    calls = (Call("show"), Call("update", text="Likes tea."))

    @pytest.fixture
    def connection(self, tmp_path: Path) -> Profile:
        return Profile(path=str(tmp_path / "profile.md"))


class Model:
    """A model that answers tasks, and the strategy's questions to the user."""

    def __init__(self, strategy: str, learned: Any) -> None:
        self.answer = "Halb acht." if strategy == "stream" else script("print('Halb acht.')")
        self.learned: str | Callable[[], Awaitable[Any]] = learned
        self.prompts: list[str] = []
        self.asked: list[str] = []
        self.warnings: list[str] = []

    async def __call__(self, request: Any) -> Any:
        text = "\n".join(message.text for message in request.messages)
        if "Below are a description of a user" not in text:
            self.prompts.append(text)
            return self.answer
        self.asked.append(text)
        return await self.learned() if callable(self.learned) else self.learned


async def run(strategy: str, learned: Any, *tasks: str, path: Path, **settings: Any) -> Model:
    model = Model(strategy, learned)
    scripted = ScriptedModel(default=model)
    host = TestHost.discover(environ={})
    host.provide(scripted.spec, scripted.factory)
    profile = Profile(path=str(path), **{"every": 1, **settings})
    async with Agent(
        tools=[profile], llm="scripted", host=host, strategy=strategy, sandbox="local"
    ) as agent:
        for task in tasks:
            response = await agent.arun(task, 20)
            response.raise_for_status()
            assert response.text == "Halb acht."
            model.warnings = response.trace.warnings
        if not callable(learned):
            async with profile.learning:
                pass
    return model


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_profile_adds_known_facts_and_keeps_new_ones_for_review(
    strategy: str, tmp_path: Path
) -> None:
    path = tmp_path / "profile.md"
    path.write_text("Speaks German.\n")
    tasks = ("Wie spät ist es? Ich trinke nur Tee.", "Und jetzt?")
    model = await run(strategy, "Speaks German.\nDrinks tea.", *tasks, path=path, every=2)
    assert "About the user:\nSpeaks German." in model.prompts[0]
    assert len(model.asked) == 1
    assert all(task in model.asked[0] for task in tasks)
    assert path.read_text() == "Speaks German.\n"
    proposed = tmp_path / "profile.md.proposed"
    assert proposed.read_text() == "Speaks German.\nDrinks tea.\n"
    again = await run(strategy, "none", "Noch einmal.", path=path, every=5)
    assert any("profile.md.proposed" in text for text in again.warnings)
    proposed.rename(path)
    later = await run(strategy, "none", "Noch einmal.", path=path)
    assert "Drinks tea." in later.prompts[0]


async def test_tasks_are_counted_across_programs(tmp_path: Path) -> None:
    path = tmp_path / "profile.md"
    asked = [len((await run("stream", "Tea.", "x", path=path, every=3)).asked) for _ in range(4)]
    assert asked == [0, 0, 1, 0]


async def test_profile_without_review_is_updated_at_once(tmp_path: Path) -> None:
    path = tmp_path / "profile.md"
    await run("stream", "Drinks tea.", "Ich trinke Tee.", path=path, review=False)
    assert path.read_text() == "Drinks tea.\n"
    assert not (tmp_path / "profile.md.noted").exists()


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_failing_or_slow_profile_does_not_lose_the_answer(
    strategy: str, tmp_path: Path
) -> None:
    async def fail() -> str:
        raise ValueError("no model")

    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    for learned in (fail, hang):
        await run(strategy, learned, "x", "y", path=tmp_path / f"{learned.__name__}.md")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_unreadable_profile_is_reported_and_does_not_lose_the_answer(
    strategy: str, tmp_path: Path
) -> None:
    path = tmp_path / "profile.md"
    path.write_bytes(b"\xff\xfe\xff")
    model = await run(strategy, "none", "x", path=path)
    assert any("cannot be read" in text for text in model.warnings)
