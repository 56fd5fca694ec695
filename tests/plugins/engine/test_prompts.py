"""Tests that the journal records what models were asked, compressed and without secrets."""

from __future__ import annotations

import pytest

from delf import Agent, tool
from delf.events import ModelCalled
from delf.messages import (
    FilePart,
    ToolCall,
    ToolResult,
    assistant,
    results,
    system,
    user,
)
from delf.testing import ScriptedModel, TestHost
from delf_devkit.testing.models import script
from delf_engine.views.prompts import pack, prompts_of

SECRET = "s3cret-value-of-a-key"


def make(model: ScriptedModel, *tools: object, **options: object) -> Agent:
    host = TestHost.discover(environ={"APP_KEY": SECRET})
    host.provide(model.spec, model.factory)
    return Agent(tools=[*tools], llm="scripted", host=host, sandbox="local", **options)


def test_prompts_are_shown_by_message_and_unchanged_prefix() -> None:
    model = ScriptedModel()
    model.writes("1 / 0", "print('done')")
    with make(model, retry_count=1, system_prompt="Be kind.") as agent:
        response = agent.run("Divide.")
    first, second = prompts_of(response.events)
    assert (first.number, second.number) == (1, 2)
    for prompt, request in zip((first, second), model.requests, strict=True):
        assert prompt.messages is not None
        sent = [(message.role, message.text) for message in request.messages]
        assert [(message.role, message.text) for message in prompt.messages] == sent
    assert not any(message.same for message in first.messages)
    assert [message.same for message in second.messages] == (
        [True] * len(first.messages) + [False] * (len(second.messages) - len(first.messages))
    )
    assert any("Be kind." in message.text for message in first.messages)
    assert second.answer == script("print('done')")
    calls = [event for event in response.events if isinstance(event, ModelCalled)]
    assert calls[1].same == len(first.messages)


def test_prompts_hold_no_declared_secret() -> None:
    @tool(confirm=False)
    async def look() -> str:
        """Look."""
        return "x"

    model = ScriptedModel()
    model.writes("print(1)")
    with make(
        model, look, system_prompt=f"The key is {SECRET}.", providers={"openai": SECRET}
    ) as a:
        (prompt,) = prompts_of(a.run("go").events)
    assert SECRET not in str(prompt.messages)


def test_prompts_are_not_recorded_if_disabled() -> None:
    model = ScriptedModel()
    model.writes("print(1)")
    with make(model, keep_prompts=False) as agent:
        (prompt,) = prompts_of(agent.run("go").events)
    assert (prompt.messages, prompt.answer) == (None, script("print(1)"))


def test_non_text_part_is_described_in_brackets() -> None:
    messages = (
        system("Rules."),
        user("Look", [FilePart("a.pdf", b"1234", "application/pdf")]),
        assistant("", [ToolCall(id="1", name="look", arguments='{"n": 1}')]),
        results([ToolResult(id="1", name="look", text="seen")]),
    )
    same, packed = pack(messages, messages[:1])
    event = ModelCalled(
        task_id="t", seq=1, at=1.0, model="m", purpose="generate", prompt=packed, same=0
    )
    (prompt,) = prompts_of([event])
    assert same == 1
    assert [message.text for message in prompt.messages] == [
        "Look\n[file: a.pdf, application/pdf, 4 bytes]",
        '[call of look: {"n": 1}]',
        "[result of look]\nseen",
    ]


@pytest.mark.parametrize("forgotten", [0, 1])
def test_pruned_prompt_is_reported_as_removed(forgotten: int) -> None:
    messages = (system("a"), user("b"))
    calls = [
        ModelCalled(
            task_id="t",
            seq=number + 1,
            at=1.0,
            model="m",
            purpose="generate",
            number=number + 1,
            same=same,
            prompt=None if number == forgotten else packed,
        )
        for number, (same, packed) in enumerate([pack(messages, ()), pack(messages, messages)])
    ]
    prompts = prompts_of(calls)
    assert prompts[forgotten].messages is None
    assert (prompts[1].messages is None) is True
