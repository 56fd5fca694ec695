"""The fixtures of the pytest plugin."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any, get_args

import platformdirs
import pytest

from delf import Agent, Approved, Edited, tool
from delf.errors import LLMExecutionError, PluginError
from delf.llm import LLMConfig
from delf.messages import ModelReply, ModelRequest, user
from delf.protocols.approval import ApprovalRequest
from delf.specs import ConnectionSpec, ModelSpec
from delf.testing import (
    DelfProject,
    ScriptedApprovals,
    ScriptedModel,
    ScriptedTask,
    TestHost,
    every_event,
    request_for,
    script,
)

ASK = ModelRequest(messages=(user("hello"),))


@tool(effect="write")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


# -- scripted_model ---------------------------------------------------------------------


async def test_scripted_model_gives_its_replies_in_order(scripted_model: ScriptedModel) -> None:
    whole = ModelReply(text="whole", model="m")
    scripted_model.says("one", whole, lambda request: request.messages[0].text)
    texts = [(await scripted_model.complete(ASK)).text for _ in range(3)]
    assert texts == ["one", "whole", "hello"]
    assert scripted_model.requests == [ASK, ASK, ASK]
    assert scripted_model.prompts == ["hello"] * 3


async def test_scripted_reply_may_be_an_error_or_awaitable(scripted_model: ScriptedModel) -> None:
    async def later(request: ModelRequest) -> str:
        await asyncio.sleep(0)
        return "later"

    scripted_model.says(LLMExecutionError("down"), later)
    with pytest.raises(LLMExecutionError, match="down"):
        await scripted_model.complete(ASK)
    pieces = [piece async for piece in scripted_model.stream(ASK)]
    assert [piece.text for piece in pieces] == ["la", "ter", "later"]


async def test_scripted_model_without_replies_left_raises(scripted_model: ScriptedModel) -> None:
    with pytest.raises(LLMExecutionError, match="no reply number 1"):
        await scripted_model.complete(ASK)
    scripted_model.default = "again"
    assert (await scripted_model.complete(ASK)).text == "again"


def test_scripted_agent_fixture_uses_the_scripted_model(
    scripted_model: ScriptedModel, delf_host: TestHost
) -> None:
    scripted_model.writes(
        """
        total = await add(1, b=2)
        print("it is", total)
        """
    )

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    options: Any = {"llm": "scripted:any-name", "host": delf_host, "approval_mode": "approve_all"}
    with Agent(tools=[add], **options) as agent:
        response = agent.run("Add 1 and 2.").raise_for_status()
    assert response.text == "it is 3"
    assert response.cost_usd == 0
    assert "def add(a: int, b: int)" in scripted_model.prompts[0]
    assert scripted_model.configs == [LLMConfig("scripted:any-name")]
    assert scripted_model.closed == 1


def test_scripted_model_wraps_a_script_in_a_block() -> None:
    assert script("\n    if x:\n        y\n") == "```python\nif x:\n    y\n```"


# -- scripted_approvals -----------------------------------------------------------------


@pytest.mark.parametrize("as_callback", [False, True], ids=["channel", "on_confirm"])
def test_scripted_decisions_are_used_in_order(
    scripted_model: ScriptedModel,
    scripted_approvals: ScriptedApprovals,
    delf_host: TestHost,
    as_callback: bool,
) -> None:
    scripted_model.writes(
        """
        for amount in (1, 2, 3, 4, 5):
            try:
                print(await pay(amount))
            except ApprovalRejected as error:
                print(error)
        """
    )
    scripted_approvals.says(True, "too much", Edited(arguments={"amount": 30}), False)
    options: Any = {"llm": "scripted", "host": delf_host}
    options |= {"on_confirm": scripted_approvals} if as_callback else {"approvals": ["scripted"]}
    with Agent(tools=[pay], **options) as agent:
        response = agent.run("Pay.").raise_for_status()
    assert response.text.splitlines() == [
        "paid 1",
        "pay was rejected: too much",
        "paid 30",
        "pay was rejected: rejected by the test",
        "pay was rejected: the test has no decision for this request",
    ]
    assert scripted_approvals.actions == ["pay"] * 5
    assert [request.arguments["amount"] for request in scripted_approvals.requests] == [
        1,
        2,
        3,
        4,
        5,
    ]


async def test_scripted_decision_may_be_a_function(scripted_approvals: ScriptedApprovals) -> None:
    async def think(request: ApprovalRequest) -> bool:
        return request.arguments["amount"] < 10

    scripted_approvals.says(think, lambda _: None, Approved(remember="task"))
    assert await scripted_approvals.decide(request_for(amount=1)) == Approved()
    assert await scripted_approvals.decide(request_for()) is None
    assert await scripted_approvals.decide(request_for()) == Approved(remember="task")


# -- delf_host --------------------------------------------------------------------------


def test_test_host_accepts_objects_before_and_after_use(delf_host: TestHost) -> None:
    thing = object()
    spec = ConnectionSpec(name="thing", summary="A thing.", factory="no:where")
    assert "local" in str(delf_host.report())
    delf_host.provide(spec, thing)
    assert delf_host.resolve(delf_host.spec(ConnectionSpec, "thing")) is thing
    other = object()
    delf_host.provide(spec, other)
    assert delf_host.resolve(spec) is other
    second = ConnectionSpec(name="second", summary="Another.", factory="no:where")
    delf_host.provide(second, thing)
    assert {"thing", "second"} <= {found.name for found in delf_host.specs(ConnectionSpec)}
    with pytest.raises(PluginError):
        delf_host.spec(ConnectionSpec, "third")


def test_test_hosts_share_nothing(scripted_model: ScriptedModel) -> None:
    other = TestHost.discover(environ={}, no_plugins=True)
    assert "scripted" not in {spec.name for spec in other.specs(ModelSpec)}


# -- delf_project -----------------------------------------------------------------------


def test_delf_project_runs_commands_in_this_process(
    delf_project: DelfProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (sys.argv, list(sys.path), sys.stdin)
    monkeypatch.setenv("OPENAI_API_KEY", "the-user's own")
    result = delf_project.run("--version").succeeded()
    assert result.stdout.startswith("delf ")
    assert (sys.argv, list(sys.path), sys.stdin) == before


def test_delf_project_reports_the_exit_status(delf_project: DelfProject) -> None:
    result = delf_project.run("toast")
    assert result.exit_code == 2
    assert "toast" in result.stderr
    with pytest.raises(pytest.fail.Exception, match="exit status 2"):
        result.succeeded()


@pytest.mark.parametrize("way", ["run", "spawn"])
def test_delf_project_runs_a_task_with_a_scripted_model(
    delf_project: DelfProject, way: str
) -> None:
    delf_project.write_config("[agent]\nsystem_prompt = 'Speak Latin.'")
    source = "def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
    delf_project.write("tools.py", f"from delf import tool\n\n@tool\n{source}")
    llm = delf_project.install_model("print('salve', await add(20, 22))")
    arguments = ("run", "Add.", "--llm", llm, "--tools", "tools.py", "--approve", "all")
    result = getattr(delf_project, way)(*arguments).succeeded()
    assert result.stdout.strip() == "salve 42"
    assert len(delf_project.prompts) == 1
    assert "Speak Latin." in delf_project.prompts[0]


@pytest.mark.parametrize("way", ["run", "spawn"])
def test_delf_project_installs_a_plugin_file(delf_project: DelfProject, way: str) -> None:
    hooks = """
        from delf.hookspecs import hookimpl
        from delf.specs import CommandSpec

        @hookimpl
        def delf_commands():
            yield CommandSpec(name="hi", summary="Hi.", factory="delf_hi.command:hi")
    """
    command = """
        import click, os, sys

        @click.command("hi")
        def hi():
            click.echo(f"hi {os.environ['WHO']} {sys.stdin.read()}")
    """
    files = {"delf_hi/plugin.py": hooks, "delf_hi/command.py": command, "delf_hi/__init__.py": ""}
    delf_project.install_plugin("hi", files)
    result = getattr(delf_project, way)("hi", stdin="there", WHO="you").succeeded()
    assert result.stdout == "hi you there\n"
    assert "delf_hi" not in sys.modules
    names = [row["name"] for row in delf_project.run("plugins", "--json").json]
    assert "hi" in names


# -- the plugin itself ------------------------------------------------------------------


def test_pytest_plugin_imports_delf_only_on_use() -> None:
    code = (
        "import sys, json, delf_devkit.testing.pytest_plugin; "
        "print(json.dumps([n for n in sys.modules if n.split('.')[0] in ('delf', 'pydantic')]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == []


def test_devkit_names_can_be_imported() -> None:
    import delf.testing

    assert set(delf.testing.__all__) == set(dir(delf.testing))
    for name in delf.testing.__all__:
        assert getattr(delf.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Toast'"):
        delf.testing.Toast  # noqa: B018


def test_sample_events_cover_every_kind() -> None:
    from delf import events

    made = every_event()
    assert {type(event) for event in made} == set(get_args(events.Event))
    assert [event.seq for event in made] == list(range(1, len(made) + 1))


# -- messages to a test -----------------------------------------------------------------


def test_edited_arguments_are_accepted_as_a_decision(
    scripted_model: ScriptedModel, scripted_approvals: ScriptedApprovals, delf_host: TestHost
) -> None:
    scripted_model.writes("print(await pay(20))")
    scripted_approvals.says({"amount": 5})
    with Agent(tools=[pay], llm="scripted", host=delf_host, approvals=["scripted"]) as agent:
        assert agent.run("Pay.").text == "paid 5"


def test_invalid_scripted_decision_raises_immediately(
    scripted_approvals: ScriptedApprovals,
) -> None:
    with pytest.raises(TypeError, match="7 is not a decision"):
        scripted_approvals.says(7)  # pyright: ignore[reportArgumentType]


def test_test_agents_use_a_separate_data_folder(
    delf_host: TestHost, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp()
    assert platformdirs.user_data_path("delf", appauthor=False).is_relative_to(base)


# -- the task behind a call -------------------------------------------------------------


async def test_action_gets_the_context_of_its_task() -> None:
    task = ScriptedTask(answer="four", agrees={"amount": 5})
    context = task.context("desk", task="Count the desks.")
    context.say("counting")
    context.add_output_file("desks.txt", b"three")
    child = await context.delegate("count", system_prompt="You count.")
    reply = await context.ask(ASK.messages)
    assert (context.connection, context.task) == ("desk", "Count the desks.")
    assert (child.text, child.status, reply.text) == ("four", True, "four")
    assert await context.consent("Pay?", {"amount": 20}) == {"amount": 5}
    assert [item.system_prompt for item in task.children] == ["You count."]
    assert (task.output, task.questions) == (["counting"], ["Pay?"])
    assert task.files == {"desks.txt": b"three"}


async def test_scripted_task_imitates_a_failed_child_and_a_refusal() -> None:
    task = ScriptedTask(answer=LLMExecutionError("it is down"), agrees=False)
    context = task.context()
    child = await context.delegate("count")
    assert (child.status, child.error) == (False, "it is down")
    with pytest.raises(LLMExecutionError):
        await context.ask(ASK.messages)
    assert await context.consent("Pay?", {"amount": 20}) is None
