"""Calls under other spellings of a tool's name, and the typed pieces of an answer."""

from __future__ import annotations

import json

import pytest

from delf import Agent, Connection, action
from delf.messages import ModelDelta


class Disk(Connection):
    """Files."""

    @action(effect="read", trust="own")
    async def list_files(self, path: str = ".") -> list[str]:
        """List files."""
        return ["a.txt"]

    @action(effect="write", trust="own")
    async def write_file(self, path: str, content: str) -> str:
        """Write a file."""
        return f"{path}: {content}"


class Shell(Connection):
    """Commands."""

    @action(effect="write", trust="own")
    async def run(self, command: str) -> str:
        """Run a command."""
        return f"ran {command}"


class Workers(Connection):
    """Workers."""

    @action(effect="read", trust="own")
    async def call(self, worker: str, task: str = "") -> str:
        """Call a worker."""
        return f"{worker} did it"


def called(name: str, **arguments: str) -> str:
    return f"<execute>[{json.dumps({'name': name, 'args': arguments})}]</execute>"


@pytest.fixture
def agent(delf_host, scripted_model):
    def make(*tools, **options):
        options = {"llm": "scripted", "host": delf_host, "strategy": "stream", **options}
        return Agent(list(tools), approval_mode="approve_all", **options)

    return make


@pytest.mark.parametrize(
    ("call", "action_name", "result"),
    [
        (called("write_file", path="a", content="b"), "disk.write_file", "a: b"),
        (called("disk_write_file", path="a", content="b"), "disk.write_file", "a: b"),
        (called("listFiles"), "disk.list_files", "a.txt"),
        (called("shell", command="ls"), "shell.run", "ran ls"),
        (called("worker_call", worker="ada"), "workers.call", "ada did it"),
    ],
)
async def test_bare_name_resolves_to_the_only_tool_of_that_name(
    agent, scripted_model, call, action_name, result
):
    scripted_model.says(call, "Done.")
    tools = (Disk(name="disk"), Shell(name="shell"), Workers(name="workers"))
    async with agent(*tools) as made:
        response = await made.arun("x")
    (made_call,) = response.trace.tool_calls
    assert (made_call.name, made_call.status) == (action_name, "ok")
    shown = scripted_model.requests[-1].messages[-1].text
    assert result in shown
    assert action_name in shown, "the model reads the tool's own name"


async def test_ambiguous_bare_name_is_refused(agent, scripted_model):
    scripted_model.says(called("list_files"), "It is not known.")
    async with agent(Disk(name="disk"), Disk(name="other")) as made:
        response = await made.arun("x")
    (refused,) = response.trace.tool_calls
    assert refused.status == "refused"
    assert "there is no tool 'list_files'" in refused.error


async def test_streamed_tokens_have_types(agent, scripted_model):
    scripted_model.says(
        f"<think>I look.</think>Let me see.\n{called('list_files')}", "There is a.txt."
    )
    async with agent(Disk(name="disk")) as made:
        seen = [item async for item in made.stream("x", granularity="token")]
    pieces = [item for item in seen if isinstance(item, ModelDelta)]
    parts: dict[str, str] = {}
    for piece in pieces:
        parts[piece.kind] = parts.get(piece.kind, "") + piece.text
    assert parts["think"] == "I look."
    assert parts["respond"] == "Let me see.\nThere is a.txt."
    assert json.loads(parts["call"]) == {"name": "disk.list_files", "args": {}}
    assert set(parts) == {"think", "respond", "call"}
    assert not any("<execute>" in piece.text for piece in pieces)
