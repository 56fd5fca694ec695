"""Enrichment: a model improves the descriptions once for each version of a specification."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delf import Agent
from delf import events as ev
from delf.errors import LLMExecutionError
from delf.events import ModelReplied
from delf.llm import LLMConfig
from delf.messages import Message, ModelReply, ModelRequest, Usage
from delf.protocols.connection import SupportsSetup
from delf.specs import JournalSpec
from delf.testing import ScriptedModel, TestHost
from delf_engine.journal.in_process import InProcessJournal
from delf_openapi import APITool
from support.openapi_specs import PETS, spec

BETTER = {"get_pet": "Looks a pet\nup ``` by id", "other": "x", "get_photo": 5}
COST = 0.25


def reply(text: str, finish_reason: str = "stop") -> ModelReply:
    usage = Usage(input_tokens=10, output_tokens=5)
    return ModelReply(text=text, model="m", usage=usage, cost_usd=COST, finish_reason=finish_reason)


class Asked:
    """A model that is called directly, without an agent.

    Args:
        answer: Makes the reply to a question from its number, counted from 1.
    """

    def __init__(self, answer: Callable[[str, int], ModelReply]) -> None:
        self.answer = answer
        self.questions: list[str] = []
        self.models: list[str | LLMConfig | None] = []

    async def __call__(
        self, messages: Sequence[Message], llm: str | LLMConfig | None = None
    ) -> ModelReply:
        self.questions.append(messages[-1].text)
        self.models.append(llm)
        return self.answer(messages[-1].text, len(self.questions))


class Journal(InProcessJournal):
    """A journal whose events a test can read, and which can begin with another's events."""

    def __init__(self, events: Sequence[ev.Event] = ()) -> None:
        super().__init__()
        self.events: list[ev.Event] = []
        for event in events:
            asyncio.run(self.append(event))

    async def append(self, event: ev.Event) -> None:
        self.events.append(event)
        await super().append(event)


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> dict[str, Any]:
    return {"name": "api", "enrich": True, "cache_dir": str(tmp_path / "cache")}


def big(number: int) -> dict[str, Any]:
    return spec(
        {f"/r{n}": {"get": {"operationId": f"r{n}", "responses": {}}} for n in range(number)}
    )


async def summaries(tool: APITool) -> dict[str, str]:
    return {action.name: action.summary for action in await tool.actions()}


@pytest.mark.parametrize("cache", [True, False])
async def test_descriptions_are_improved_once_per_version(
    cache: bool, settings: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(PETS))
    ask = Asked(lambda question, _: reply(f"Here:\n```json\n{json.dumps(BETTER)}\n```"))
    tool = APITool(str(file), cache=cache, **settings)
    assert isinstance(tool, SupportsSetup)
    before = await summaries(tool)
    assert await tool.setup(ask)
    assert not await tool.setup(ask)
    (question,) = ask.questions
    assert "delete_pet: DELETE /pets/{petId} (petId) Remove a pet" in question
    found = await summaries(tool)
    assert found == {**before, "get_pet": f"Looks a pet up {chr(39) * 3} by id"}

    again = APITool(str(file), cache=cache, **settings)
    assert await summaries(again) == found
    assert not await again.setup(ask)
    assert len(ask.questions) == 1

    file.write_text(json.dumps({**PETS, "info": {"title": "Pets", "version": "2"}}))
    assert await APITool(str(file), cache=cache, **settings).setup(ask)
    assert len(ask.questions) == 2


async def test_setup_asks_once_about_allowed_operations(settings: Any) -> None:
    ask = Asked(lambda question, _: reply("{}"))
    await APITool(PETS, allow=["get_pet"], **settings).setup(ask)
    await APITool(PETS, allow=["get_pet", "list_pets"], **settings).setup(ask)
    assert [("get_pet:" in q, "list_pets:" in q) for q in ask.questions] == [
        (True, False),
        (False, True),
    ]


async def test_setup_sends_batches_that_fit_a_small_model(settings: Any) -> None:
    ask = Asked(lambda _, n: reply("no idea" if n == 1 else '{"r199": "The last thing"}'))
    tool = APITool(big(200), allow=True, **settings)
    assert await tool.setup(ask)
    assert len(ask.questions) == 4
    assert max(map(len, ask.questions)) < 13_000
    assert (await summaries(tool))["r199"] == "The last thing"


async def test_descriptions_before_a_failure_are_kept(settings: Any) -> None:
    def answer(question: str, number: int) -> ModelReply:
        if "r199:" in question:
            raise LLMExecutionError("the model is down")
        return reply('{"r0": "First"}')

    tool = APITool(big(200), allow=True, **settings)
    with pytest.raises(LLMExecutionError):
        await tool.setup(Asked(answer))
    assert (await summaries(tool))["r0"] == "First"
    ask = Asked(lambda question, _: reply("{}"))
    await APITool(big(200), allow=True, **settings).setup(ask)
    assert "r199:" in ask.questions[-1]
    assert not any("r0:" in question for question in ask.questions)


@pytest.mark.parametrize("llm", ["cheap", LLMConfig("cheap", base_url="http://127.0.0.1:9/v1")])
async def test_setup_uses_the_model_of_the_connection(llm: Any, settings: Any) -> None:
    ask = Asked(lambda question, _: reply("{}"))
    await APITool(PETS, llm=llm, **settings).setup(ask)
    assert ask.models == [llm]


def test_setup_cost_is_reported_separately(
    settings: Any, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    def answer(request: ModelRequest) -> ModelReply:
        return reply(json.dumps({"get_pet": "Looks a pet up."}))

    options: dict[str, Any] = {"llm": "scripted", "host": delf_host, "sandbox": "local"}
    scripted_model.says(answer, reply("```python\nprint(1)\n```"))
    with Agent(tools=[APITool(PETS, **settings)], **options) as agent:
        response = agent.run("Look.")
        assert agent.total_cost_usd == 2 * COST
    assert response.status
    enrichment = response.trace.api_enrichment
    assert enrichment is not None
    assert (response.cost_usd, enrichment.cost_usd) == (COST, COST)
    assert "Looks a pet up." in scripted_model.prompts[-1]

    scripted_model.says(reply("```python\nprint(2)\n```"))
    with Agent(tools=[APITool(PETS, **settings)], **options) as agent:
        response = agent.run("Look again.")
    enrichment = response.trace.api_enrichment
    assert enrichment is not None
    assert enrichment.cached
    assert "Looks a pet up." in scripted_model.prompts[-1]


def test_failing_setup_model_does_not_stop_a_task(
    settings: Any, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    scripted_model.says(LLMExecutionError("down")).writes("print(1)")
    tools = [APITool(PETS, base_url="https://api.invalid", **settings)]
    with Agent(tools=tools, llm="scripted", host=delf_host, sandbox="local") as agent:
        response = agent.run("Look.")
    assert (response.text, len(response.trace.warnings)) == ("1", 1)


@pytest.mark.parametrize("after", ["ModelReplied", "ModelCalled"])
def test_setup_after_a_crash_repeats_no_paid_call(
    after: str, settings: Any, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    """Results saved before a crash are not asked for again, and are counted once.

    ``after`` is the last event of the set-up in the journal.
    """
    journals = [Journal()]
    delf_host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: journals[-1])
    options: dict[str, Any] = {"host": delf_host, "sandbox": "local", "journal": "test"}
    described = reply(json.dumps({"get_pet": "Looks a pet up."}))
    scripted_model.says(described, reply("```python\nprint(1)\n```"))
    with Agent(tools=[APITool(PETS, **settings)], llm="scripted", **options) as agent:
        task_id = agent.run("Look.").trace.task_id
    events = journals[-1].events
    place = next(n for n, event in enumerate(events) if type(event).__name__ == after)
    journals.append(Journal(events[: place + 1]))

    scripted_model.says(reply("```python\nprint(2)\n```"))
    asked = len(scripted_model.requests)
    with Agent(tools=[APITool(PETS, **settings)], llm="scripted", **options) as agent:
        response = agent.resume(task_id)
    assert response.text == "2"
    purposes = [request.purpose for request in scripted_model.requests[asked:]]
    assert purposes == ["generate"]
    assert "Looks a pet up." in scripted_model.prompts[-1]
    replies = [e for e in journals[-1].events if isinstance(e, ModelReplied)]
    setups = [e for e in replies if e.purpose == "setup"]
    assert len(setups) == (after != "ModelCalled")
    enrichment = response.trace.api_enrichment
    assert enrichment is not None
    assert (enrichment.calls, response.cost_usd) == (len(setups), COST)
    assert enrichment.cost_usd == COST * len(setups)
