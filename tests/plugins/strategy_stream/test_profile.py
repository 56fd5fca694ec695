"""The user's profile: told to the model, proposed by it, reviewed by a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delf import Agent, Edited
from delf.testing import Call, ConnectionContract, ScriptedModel, TestHost
from delf_strategy_stream.profile import Profile
from delf_strategy_stream.strategy import StreamStrategy


class TestProfile(ConnectionContract):
    calls = (Call("show"), Call("update", text="Likes tea."))

    @pytest.fixture
    def connection(self, tmp_path: Path) -> Profile:
        return Profile(path=str(tmp_path / "profile.md"))


async def run(path: Path, decide: Any, *answers: str) -> ScriptedModel:
    model = ScriptedModel()
    model.says(*answers)
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    async with Agent(
        tools=[Profile(path=str(path))],
        llm="scripted",
        host=host,
        strategy=StreamStrategy(granularity="whole"),
        on_confirm=decide,
    ) as agent:
        response = await agent.arun("Wie spät ist es? Ich trinke nur Tee.", 20)
        response.raise_for_status()
    return model


async def test_what_a_task_tells_is_proposed_and_reviewed(tmp_path: Path) -> None:
    path, asked = tmp_path / "profile.md", []

    def decide(request: Any) -> Any:
        asked.append((request.action, request.arguments["text"]))
        return Edited(arguments={"text": "Speaks German."})

    await run(path, decide, "Halb acht.", "Speaks German.\nDrinks tea.")
    assert asked == [("profile.update", "Speaks German.\nDrinks tea.")]
    assert path.read_text() == "Speaks German.\n"
    model = await run(path, decide, "Halb acht.", "none")
    assert "About the user:\nSpeaks German." in model.prompts[0]
    assert len(asked) == 1


async def test_what_is_rejected_is_not_kept(tmp_path: Path) -> None:
    await run(tmp_path / "profile.md", lambda request: False, "Halb acht.", "Drinks tea.")
    assert not (tmp_path / "profile.md").exists()


async def test_a_question_that_fails_costs_no_answer(tmp_path: Path) -> None:
    model = await run(tmp_path / "profile.md", lambda request: True, "Halb acht.")
    assert len(model.requests) == 2  # the second one found no reply


async def test_what_is_known_comes_behind_the_tools(tmp_path: Path) -> None:
    path = tmp_path / "profile.md"
    path.write_text("Drinks tea.")
    model = await run(path, lambda request: True, "Halb acht.", "none")
    rules = model.requests[0].messages[0].text
    assert rules.index("Tools:") < rules.index("About the user:\nDrinks tea.")
