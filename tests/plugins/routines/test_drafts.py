"""A task of several scripts is written as one, and proved; a program saves its own tasks."""

import pytest

from delf import Agent, tool
from delf.errors import ConfigurationError
from delf.messages import ModelReply, Usage
from delf_devkit.testing.models import script
from delf_routines.program import Routines

FIRST = "found = await orders(month='2026-10')\nrerun('four orders', 'send them')"
SECOND = "await send(to='ada@example.com', text=f'{found}')\nprint(f'{found} sent')"
ONE = (
    "found = await orders(month='2026-10')\n"
    "await send(to='ada@example.com', text=f'{found}')\nprint(f'{found} sent')"
)
TASK = "Send the number of orders in 2026-10 to ada@example.com."


@pytest.fixture
def sent():
    return []


@pytest.fixture
def agent(store, sent, scripted_model, delf_host):
    @tool(effect="read", confirm=False)
    def orders(month: str) -> int:
        """Orders of a month."""
        return {"2026-10": 4, "2026-11": 7}[month]

    @tool(effect="write", confirm=False)
    def send(to: str, text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    with Agent(tools=[orders, send], llm="scripted", host=delf_host, journal="none") as made:
        yield made


def test_program_saves_and_runs_a_routine(agent, scripted_model, sent):
    scripted_model.writes(ONE)
    response = agent.run(TASK).raise_for_status()
    routine = Routines(agent).save(response.trace.task_id, "report")
    assert set(routine.routine.parameters) == {"month", "to"}
    assert routine(month="2026-11", to="eve@example.com").raise_for_status().text == "7 sent"
    assert Routines(agent).find("report")().text == "4 sent"
    assert sent == ["4", "7", "4"]
    assert len(scripted_model.requests) == 1


async def test_routine_draft_is_saved_only_after_its_review(agent, scripted_model, store):
    scripted_model.writes(ONE, ONE.replace("sent'", "were sent'"))
    for name in ("4 sent", "4 were sent"):
        response = await agent.arun(TASK)
        assert response.text == name
        made = await Routines(agent).adraft(response.trace.task_id, "report", fixed=["to"])
        assert "[parameters.to]" not in made.change
        assert not made.differences
        if name == "4 sent":
            assert made.change.startswith("# /// routine")
            assert store.names() == []
            made.keep()
    assert "+print(f'{found} were sent')" in made.change
    assert "were" not in store.find("report").script


async def test_draft_refuses_to_fix_a_parameter_that_is_not_proposed(agent, scripted_model):
    scripted_model.writes(ONE)
    response = await agent.arun(TASK)
    with pytest.raises(ConfigurationError, match="'tos' is proposed; did you mean 'to'") as caught:
        await Routines(agent).adraft(response.trace.task_id, "report", fixed=["tos", "month"])
    assert caught.value.hint == "proposed are: to, month"


@pytest.mark.parametrize(
    ("fixed", "parameters"),
    [(["to"], {"to_2"}), (["to_2"], {"to"}), (["to", "to_2"], set[str]())],
)
async def test_fixed_parameter_leaves_the_names_of_the_others(
    agent, scripted_model, fixed, parameters
):
    scripted_model.writes(
        "await send(to='ada@example.com', text='x')\n"
        "await send(to='eve@example.com', text='x')\nprint('sent')"
    )
    response = await agent.arun("Greet ada@example.com and eve@example.com")
    made = await Routines(agent).adraft(response.trace.task_id, "report", fixed=fixed)
    assert set(made.routine.parameters) == parameters


async def test_script_with_an_invisible_character_is_not_saved(agent, scripted_model, store):
    scripted_model.writes(ONE, ONE.replace("sent'", "s\u200bent'"))
    for _ in range(2):
        response = await agent.arun(TASK)
        made = await Routines(agent).adraft(response.trace.task_id, "report")
        if not store.names():
            saved = made.keep().routine
    with pytest.raises(ConfigurationError, match="invisible character U\\+200B"):
        made.keep()
    assert store.find("report") == saved


def test_scripts_of_a_task_become_one_routine(agent, scripted_model, sent):
    scripted_model.writes(FIRST, SECOND)
    response = agent.run(TASK).raise_for_status()
    scripted_model.writes(
        ONE.replace("'ada@", "'eve@"),  # another call
        ONE.replace("await send", "# await send"),  # one too few
        ONE.replace(" sent'", " done'"),  # another answer
        ONE,
    )
    routine = Routines(agent).save(response.trace.task_id, "report")
    prompts = scripted_model.prompts[2:]
    assert FIRST in prompts[0]
    assert "it asked for another script, as it learned: four orders" in prompts[0]
    assert "- orders({'month': '2026-10'}) gave 4" in prompts[0]
    assert "which was not recorded" in prompts[1]
    assert "it does not call send" in prompts[2]
    assert "it answers '4 done' in place of '4 sent'" in prompts[3]
    assert sent == ["4"]
    assert routine(month="2026-11").raise_for_status().text == "7 sent"


def test_merged_script_gets_the_recorded_answer_to_its_question(scripted_model, delf_host, store):
    @tool(effect="read", confirm=False)
    def orders(month: str) -> int:
        """Orders of a month."""
        return 4

    question = "month = await ask('Which month?')\n"
    last = "print(await orders(month=month), 'orders')"
    options = {"llm": "scripted", "host": delf_host, "journal": "none"}
    with Agent(tools=[orders], on_ask=lambda _: "2026-10", **options) as agent:
        scripted_model.writes(
            f"{question}rerun(month, 'go on')", last.replace("=month", "='2026-10'")
        )
        response = agent.run("Count what was sold").raise_for_status()
        scripted_model.writes(question + last)
        routine = Routines(agent).save(response.trace.task_id, "report").routine
    assert routine.script == question + last


def test_merging_of_scripts_is_charged_to_the_budget_of_the_agent(agent, scripted_model, store):
    def paid(code: str) -> ModelReply:
        return ModelReply(text=script(code), model="scripted", usage=Usage(), cost_usd=0.5)

    scripted_model.says(paid(FIRST), paid(SECOND))
    response = agent.run(TASK).raise_for_status()
    agent.reset_budget(limit=0.6)
    scripted_model.says(paid(ONE.replace("await send", "# await send")), paid(ONE))
    with pytest.raises(ConfigurationError, match=r"budget of \$0\.6"):
        Routines(agent).save(response.trace.task_id, "report")
    assert agent.total_cost_usd == 0.5
    assert store.names() == []


def test_unjoinable_scripts_make_no_routine(agent, scripted_model, store):
    scripted_model.writes(FIRST, SECOND)
    response = agent.run(TASK).raise_for_status()
    with pytest.raises(ConfigurationError, match="took 2 scripts, and they could not be written"):
        Routines(agent).save(response.trace.task_id, "report")
    assert store.names() == []


def test_failed_scripts_without_changes_are_omitted(agent, scripted_model):
    scripted_model.writes("await orders(month='2026-10')\nx = y", ONE)
    response = agent.run(TASK).raise_for_status()
    routine = Routines(agent).save(response.trace.task_id, "report")
    assert routine().text == "4 sent"
    assert len(scripted_model.requests) == 2


def test_rejected_script_is_not_saved_as_the_routine(
    store, scripted_model, scripted_approvals, delf_host
):
    @tool(effect="write")
    def send(to: str) -> str:
        """Send."""
        return "sent"

    rejected, approved = (f"print(await send(to='{name}@example.com'))" for name in ("eve", "ada"))
    scripted_model.writes(rejected, approved)
    scripted_approvals.says("send it to ada", True)
    options = {"llm": "scripted", "host": delf_host, "journal": "none"}
    with Agent(tools=[send], **options, approvals=["scripted"], confirm_mode="plan") as agent:
        response = agent.run("Send it to ada@example.com.").raise_for_status()
        Routines(agent).save(response.trace.task_id, "report")
    assert store.find("report").script == "print(await send(to=to))"
