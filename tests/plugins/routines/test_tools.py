"""Routines as tools of scripts, of programs and of the command line: no model, the same gate."""

import pytest

from delf import Agent, tool
from delf.errors import ConfigurationError
from delf_routines.connection import RoutineTools
from delf_routines.program import Routines
from delf_routines.routine import Parameter, Routine, UsedAction

SCRIPT = """\
found = await orders(month=month)
await send(to="ada@example.com", text=f"{found} in {month}")
print(f"{found} orders")
"""
SEND = UsedAction(effect="write", parameters=("to: str", "text: str"), returns="str")
ORDERS = UsedAction(effect="read", parameters=("month: str",), returns="int")


def routine(script=SCRIPT, **more):
    month = Parameter(name="month", type="date", default="2026-10")
    return Routine(
        name="report",
        title="How many orders were there in a month?",
        task="How many orders were there in 2026-10?",
        script=script,
        parameters={"month": month},
        actions={"orders": ORDERS, "send": SEND},
        **more,
    )


@pytest.fixture
def saved(store):
    store.keep(routine())
    return store


@pytest.fixture
def sent():
    return []


@pytest.fixture
def agent(saved, sent, scripted_model, delf_host, scripted_approvals):
    @tool(effect="read", confirm=False)
    def orders(month: str) -> int:
        """Orders of a month."""
        return {"2026-10": 4, "2026-11": 7}[month]

    @tool(effect="write")
    def send(to: str, text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    def make(*more, **options):
        given = {"llm": "scripted", "host": delf_host, "approvals": ["scripted"], **options}
        return Agent(tools=[orders, send, *more], **given)

    return make


def test_program_calls_a_routine_with_parameters(agent, sent, scripted_model, scripted_approvals):
    scripted_approvals.says(True, True)
    with agent() as made:
        response = Routines(made).find("report")(month="2026-11")
        assert response.raise_for_status().text == "7 orders"
        assert response.cost_usd == 0
        assert Routines(made).find("report")().raise_for_status().text == "4 orders"
        with pytest.raises(ConfigurationError, match="it takes a date"):
            Routines(made).find("report")(month="soon")
        with pytest.raises(ConfigurationError, match="there is no routine 'rapport'"):
            Routines(made).find("rapport")
    assert sent == ["7 in 2026-11", "4 in 2026-10"]
    assert not scripted_model.requests


async def test_async_program_runs_a_routine_and_then_a_task(
    agent, scripted_model, scripted_approvals
):
    scripted_approvals.says(True)
    scripted_model.writes("print(await orders('2026-10'))")
    async with agent() as made:
        assert (await Routines(made).find("report").arun()).raise_for_status().text == "4 orders"
        assert (await made.arun("How many?")).raise_for_status().text == "4"
    assert len(scripted_model.requests) == 1


def test_routine_finds_tools_hidden_by_the_prefilter(agent, scripted_model, scripted_approvals):
    def more(number):
        @tool(name=f"zoo_{number}", effect="read")
        def look() -> str:
            """Look into a cage."""
            return ""

        return look

    scripted_approvals.says(True)
    with agent(*(more(number) for number in range(30)), prefilter_mode="search") as made:
        assert Routines(made).find("report")().raise_for_status().text == "4 orders"
    assert not scripted_model.requests


def test_script_calls_a_routine_as_a_tool_with_approvals(
    agent, sent, scripted_model, scripted_approvals
):
    scripted_model.writes("print(await routines.report(month='2026-11'))")
    scripted_approvals.says(True)
    with agent(RoutineTools()) as made:
        response = made.run("Report on November.")
    assert response.raise_for_status().text == "7 orders"
    assert "report(month: str = '2026-10') -> str" in scripted_model.prompts[0]
    assert [request.action for request in scripted_approvals.requests] == ["send"]
    assert sent == ["7 in 2026-11"]
    assert len(scripted_model.requests) == 1


def test_refused_routine_raises_without_effect(agent, sent, scripted_model, scripted_approvals):
    scripted_model.writes(
        """
        for month in ("soon", "2026-11"):
            try:
                print(await routines.report(month=month))
            except Exception as error:
                print(f"{type(error).__name__}: {error}")
        """
    )
    scripted_approvals.says("not now")
    with agent(RoutineTools()) as made:
        text = made.run("Report.").raise_for_status().text
    assert "it takes a date" in text
    assert "the routine report failed" in text
    assert sent == []


async def test_routine_tools_have_combined_effects_and_are_reloaded(saved, monkeypatch):
    connection = RoutineTools()
    (action,) = await connection.actions()
    assert (action.name, action.effect, action.resumes) == ("report", "write", True)
    assert action.schema()["properties"]["month"]["default"] == "2026-10"
    assert not connection.is_stale()
    saved.keep(routine("print('another')"))
    assert connection.is_stale()
    monkeypatch.delenv("DELF_TRUST")
    (saved.folder / "evil.py").write_text(routine().text())
    stranger = RoutineTools()
    assert "evil" not in {action.name for action in await stranger.actions()}
    assert any("routines.evil cannot be called" in notice for notice in stranger.notices())


async def test_mcp_client_calls_a_routine_as_a_tool(agent, sent, scripted_approvals):
    from mcp import Client
    from mcp_types import ElicitResult

    from delf_mcp.serving import Served

    async def agrees(context, params):
        return ElicitResult(action="accept", content={"approve": True})

    served = Served(lambda **more: agent(RoutineTools(), **{**more, "approvals": []}))
    async with Client(served.server(), elicitation_callback=agrees) as client:
        tools = {item.name: item for item in (await client.list_tools()).tools}
        assert tools["routines_report"].input_schema["properties"]["month"]["type"] == "string"
        result = await client.call_tool("routines_report", {"month": "2026-11"})
    await served.aclose()
    assert "7 orders" in str(result.content)
    assert sent == ["7 in 2026-11"]


FOREIGN = """\
found = await orders(month=month)
await send(to="ada@example.com", text="Hi")
await send(to=str(found), text="Hi")
"""


def test_routine_requires_approval_for_foreign_values_but_not_for_constants(
    agent, saved, scripted_model, scripted_approvals
):
    saved.keep(routine(FOREIGN))
    scripted_model.writes("print(await routines.report(month='2026-11'))")
    scripted_approvals.says(True, True)
    with agent(RoutineTools(), flows="guard") as made:
        made.run("Report on November.").raise_for_status()
    flows = {request.arguments["to"]: request.flow for request in scripted_approvals.requests}
    assert flows == {
        "ada@example.com": None,
        "7": "to: computed by the script; not found in the task or in a result",
    }


async def test_mcp_client_is_shown_the_origin_of_a_deciding_value(agent, saved, sent):
    from mcp import Client
    from mcp_types import ElicitResult

    from delf_mcp.serving import Served

    asked = []

    async def agrees(context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    saved.keep(routine(FOREIGN))
    options = {"flows": "guard", "approvals": []}
    served = Served(lambda **more: agent(RoutineTools(), **{**more, **options}))
    async with Client(served.server(), elicitation_callback=agrees) as client:
        await client.call_tool("routines_report", {"month": "2026-11"})
    await served.aclose()
    assert ["computed by the script" in text for text in asked] == [False, False, True]
    assert "a stranger may have chosen month" in asked[0]
