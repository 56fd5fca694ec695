"""A chat with keep = "variables": scripts find the plain data of the last task's scripts."""

from __future__ import annotations

import pytest

from delf import Agent, Chat, ConfigurationError, tool
from delf import events as ev
from support.resuming import Bench, World

FIRST = """
import datetime as dt
rows = [{"name": "lamp", "on": dt.date(2026, 1, 2), "price": 4.5}]
total, none, text = 3, None, 'it\\'s "x"'
def helper(): return 1
print("looked")
"""
SECOND = """
print(rows[0]["on"].year, total, none, text)
try:
    helper()
except NameError:
    print("no helper")
total += 1
"""


@pytest.fixture
def agent_of(delf_host):
    made = []

    def agent_of(chat, *tools, **options):
        options = {"llm": "scripted", "sandbox": "local", "host": delf_host, **options}
        made.append(Agent(chat=chat, tools=tools, **options))
        return made[-1]

    yield agent_of
    for agent in made:
        agent.stop()


@pytest.fixture
def bench(delf_host, scripted_model):
    return Bench(delf_host, scripted_model)


@pytest.mark.parametrize("sandbox", ["local", "monty"])
def test_next_task_finds_variables_of_the_last_task(agent_of, scripted_model, sandbox):
    chat = Chat(keep="variables")
    scripted_model.writes(FIRST, SECOND, "print(total)")
    agent = agent_of(chat, sandbox=sandbox)
    words = [agent.run(task).raise_for_status().text for task in ("look", "and?", "now?")]
    assert words == ["looked", '2026 3 None it\'s "x"\nno helper', "4"]
    shown = scripted_model.requests[1].messages[-1].text
    assert "- rows: list of 1, each dict with the keys 'name', 'on', 'price'\n- total: int" in shown
    assert "helper" not in shown
    assert "Variables alive" not in scripted_model.requests[0].messages[-1].text


def test_kept_variables_belong_to_one_conversation(agent_of, scripted_model):
    look = "print('total' in globals())"
    scripted_model.writes("total = 3\nprint(total)", look, "print(total)", look)
    chat = Chat(keep="variables")
    agent = agent_of(chat)
    words = [agent.run("x", conversation_id=name).text for name in ("a", "b", "a")]
    assert words == ["3", "False", "3"]
    chat.clear("a")
    assert agent.run("x", conversation_id="a").text == "False"
    scripted_model.writes("total = 3\nprint(total)", "print(total)", look)
    assert agent.run("x", conversation_id="a").text == "3"
    chat.prune(dry_run=True)
    assert agent.run("x", conversation_id="a").text == "3"
    chat.prune()
    assert agent.run("x", conversation_id="a").text == "False"
    scripted_model.writes("total = 3\nprint(total)", look)
    plain = agent_of(Chat())
    assert [plain.run("x").text for _ in range(2)] == ["3", "False"]


def test_failed_task_keeps_earlier_variables(agent_of, scripted_model):
    scripted_model.writes("total = 3\nprint(total)", "total = 4\n1 / 0", "print(total)")
    agent = agent_of(Chat(keep="variables"), retry_count=0)
    words = [agent.run("x") for _ in range(3)]
    assert [response.text for response in words if response.status] == ["3", "3"]


def test_large_or_non_data_variable_is_left_out(agent_of, scripted_model):
    first = """
import math
large, small, endless, odd = "x" * 200_000, 1, float("nan"), [object()]
print(small)
"""
    names = "print([n for n in ('large', 'small', 'endless', 'odd') if n in globals()])"
    scripted_model.writes(first, names)
    agent = agent_of(Chat(keep="variables"))
    response = agent.run("x")
    shown = [event.message for event in response.events if isinstance(event, ev.Warned)]
    assert "too large to be kept for the next task: large" in shown
    assert agent.run("y").text == "['small']"


def test_variables_are_restored_after_the_sandbox_ends(agent_of, scripted_model):
    endless = "total = 9\nwhile True: print('x' * 1000)"
    scripted_model.writes("total = 3\nprint(total)", endless, "print(total)")
    agent = agent_of(Chat(keep="variables"), sandbox_config={"output_bytes": 10_000})
    assert agent.run("x").text == "3"
    assert agent.run("y").text.endswith("3")


async def test_resumed_task_gets_the_variables_it_started_with(bench):
    bench.model.writes("total = 3\nprint(total)", "print(total)")
    async with bench.agent(World(), chat=Chat(keep="variables")) as agent:
        await agent.arun("first")
        second = (await agent.arun("second")).raise_for_status()
    events = await bench.journal.read(second.trace.task_id)
    (given,) = [event for event in events if isinstance(event, ev.VariablesRestored)]
    assert given.variables == {"total": 3}
    for kind in (ev.ModelReplied, ev.SandboxOpened):
        end = next(n for n, event in enumerate(events, 1) if isinstance(event, kind))
        await bench.journal.ended_after(events[:end])
        async with bench.agent(World(), chat=Chat(keep="variables")) as agent:
            again = await agent.aresume(second.trace.task_id)
        assert (again.error, again.text) == (None, "3")
        now = await bench.journal.read(second.trace.task_id)
        assert sum(isinstance(event, ev.VariablesRestored) for event in now) == 1


def test_variable_from_foreign_text_keeps_its_origin(agent_of, scripted_model):
    @tool(effect="read", trust="outside")
    async def mail() -> str:
        """Read the mail."""
        return "Please pay to DE89370400440532013000 at once"

    @tool(effect="irreversible", sinks=["iban"])
    async def pay(iban: str) -> str:
        """Pay."""
        return "paid"

    asked = []

    def confirm(request):
        asked.append(request)
        return True

    scripted_model.writes(
        "iban = (await mail()).split()[3]\nprint('read')", "print(await pay(iban))"
    )
    agent = agent_of(Chat(keep="variables"), mail, pay, on_confirm=confirm)
    agent.run("Read my mail.").raise_for_status()
    agent.run("Pay it.").raise_for_status()
    origin = asked[-1].origins["iban"]
    assert origin["trust"] == "outside"
    assert origin["action"] == "this conversation's variable iban"


@pytest.mark.parametrize("keep", ["all", -1, 1.5])
def test_invalid_keep_option_is_refused(keep):
    with pytest.raises(ConfigurationError):
        Chat(keep=keep)
