"""Drift of services: detected before anything changes, and repaired by a model if enabled."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from delf import Agent, tool
from delf.errors import ConnectionUnavailableError, TaskLimitError
from delf.events import Warned
from delf.protocols.strategy import ToolDescription
from delf.tools.signature import Parameter as Argument
from delf_routines.cases import Case
from delf_routines.drift import drift_of
from delf_routines.program import Routines
from delf_routines.routine import Limits, Parameter, Routine, UsedAction
from delf_sql.connection import SQL

SCRIPT = """\
rows = await shop.query(f"select sum(total) as s from orders where day like '{month}-%'")
await send(to="ada@example.com", text=f"{rows[0]['s']} in {month}")
print(f"{rows[0]['s']} euros")"""
REPAIRED = SCRIPT.replace("sum(total)", "sum(amount)")
SEND = UsedAction(effect="write", parameters=("to: str", "text: str"), returns="str")


def query(connection):
    """The action ``query`` of a connection, as when the routine was saved."""
    texts = tuple(map(str, connection.parameters))
    return UsedAction(
        effect="read", parameters=texts, returns=connection.returns, schema="", empty=False
    )


@pytest.fixture
def shop(tmp_path):
    """A database of orders, and a function that renames its column."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("create table orders (day text, total integer)")
        db.execute("insert into orders values ('2026-10-03', 40), ('2026-11-07', 2)")

    def rename():
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
            db.execute("alter table orders rename column total to amount")

    return rename


@pytest.fixture
async def report(store, shop, tmp_path):
    """Saves the routine; returns a function that saves it with changes."""
    connection = SQL(f"sqlite:///{tmp_path}/shop.db", name="shop")
    found = {action.name: action for action in await connection.actions()}
    month = Parameter(name="month", type="date", default="2026-10")
    made = Routine(
        name="report",
        title="Report",
        task="Report on 2026-10 to ada@example.com.",
        script=SCRIPT,
        parameters={"month": month},
        actions={"shop.query": query(found["query"]), "send": SEND},
    )

    def save(**more):
        store.keep(replace(made, **more))
        return made

    save()
    return save


@pytest.fixture
def sent():
    return []


@pytest.fixture
def run(store, tmp_path, sent, scripted_model, scripted_approvals, delf_host):
    """Runs the routine with the same or another ``send``; returns the response and warnings."""

    @tool(effect="write", confirm=False)
    def send(to: str, text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    async def do(*tools, output=None, **inputs):
        shop = SQL(f"sqlite:///{tmp_path}/shop.db", name="shop", confirm=False)
        given = {"llm": "scripted", "host": delf_host, "approvals": ["scripted"], "retry_count": 3}
        given["output"] = output
        async with Agent(tools=[shop, *(tools or (send,))], **given) as agent:
            response = await Routines(agent).find("report").arun(**inputs)
            shown = [e.message for e in response.events if isinstance(e, Warned)]
        return response, " ".join(shown)

    do.send = send
    return do


async def test_renamed_column_is_reported_before_any_change(
    report, run, shop, sent, scripted_model
):
    shop()
    response, _ = await run()
    assert not response.status
    assert "no such column: total" in response.error
    assert sent == []
    assert not scripted_model.requests


async def test_repaired_script_finishes_the_task_and_is_proposed(
    report, run, shop, sent, scripted_model, store
):
    report(on_failure="repair")
    shop()
    scripted_model.writes(REPAIRED)
    response, shown = await run(month="2026-11")
    assert response.raise_for_status().text == "2 euros"
    assert sent == ["2 in 2026-11"]
    assert "delf routines diff report" in shown
    (prompt,) = scripted_model.prompts
    assert "no such column: total" in prompt
    assert "month = '2026-11'" in prompt
    assert SCRIPT in prompt
    assert store.find("report").script == SCRIPT
    proposed, case = store.proposed("report")
    assert proposed.script == REPAIRED
    assert proposed.parameters == store.find("report").parameters
    recorded = Case.of_bytes(case, "case")
    assert [call.action for call in recorded.calls] == ["shop.query", "send"]
    assert (recorded.inputs, recorded.answer) == ({"month": "2026-11"}, "2 euros")


async def test_repair_may_take_several_complete_scripts(report, run, shop, scripted_model, store):
    report(on_failure="repair")
    shop()
    scripted_model.writes(
        "print('half of it')",
        "month = '2026-10'\n" + REPAIRED,
        SCRIPT.replace("sum(total)", "sum(price)"),
        REPAIRED,
    )
    response, _ = await run()
    assert response.raise_for_status().text == "40 euros"
    prompts = scripted_model.prompts
    assert "does not use month" in prompts[1]
    assert "do not assign it" in prompts[2]
    assert "no such column: price" in prompts[3]
    assert store.proposed("report")[0].script == REPAIRED


async def test_routine_reports_failure_if_an_action_changed_and_no_model_repairs_it(
    report, run, shop, sent, scripted_model, store
):
    report(on_failure="repair")
    shop()
    response, shown = await run()
    assert "no such column: total" in response.error
    assert "the routine could not be repaired" in shown
    assert store.proposed("report") is None
    assert sent == []


def other_send(sent, **how):
    """Return another tool ``send``, with a further argument or another effect."""

    @tool(name="send", confirm=False, **{"effect": "write", **how})
    def send(to: str, text: str, cc: str) -> str:
        """Send."""
        sent.append(f"{text} cc {cc}")
        return "sent"

    return send


async def test_new_required_argument_is_reported_or_repaired_before_any_change(
    report, run, sent, scripted_model, scripted_approvals, store
):
    new = other_send(sent)
    response, _ = await run(new)
    assert "send: it has a new required parameter cc: str" in response.error
    report(on_failure="repair")
    scripted_model.writes(SCRIPT.replace("text=f", "cc='', text=f"))
    response, _ = await run(new)
    assert response.raise_for_status().text == "40 euros"
    assert "new required parameter cc" in scripted_model.prompts[0]
    assert sent == ["40 in 2026-10 cc "]
    assert store.proposed("report")[0].actions["send"].parameters[-1] == "cc: str"


async def test_repair_using_another_action_asks_a_person(
    report, run, sent, scripted_model, scripted_approvals, store
):
    report(on_failure="repair")

    @tool(effect="write", confirm=False)
    def deliver(to: str, text: str) -> str:
        """Send, by another name."""
        sent.append(text)
        return "sent"

    repaired = SCRIPT.replace("send(", "deliver(")
    scripted_model.writes(repaired)
    scripted_approvals.says(False)
    response, _ = await run(deliver)
    assert not response.status
    assert sent == []
    assert store.proposed("report") is None
    (asked,) = scripted_approvals.requests
    assert asked.reason == "the header of the routine report does not name deliver"

    scripted_model.writes(repaired)
    scripted_approvals.says(True)
    response, _ = await run(deliver)
    assert response.raise_for_status().text == "40 euros"
    assert sent == ["40 in 2026-10"]
    assert set(store.proposed("report")[0].actions) == {"shop.query", "deliver"}


async def test_increased_effect_is_refused_or_asks_in_a_repair(
    report, run, sent, scripted_model, scripted_approvals
):
    @tool(effect="irreversible", confirm=False)
    def send(to: str, text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    response, _ = await run(send)
    assert "its effect was write, and is irreversible" in response.error
    report(on_failure="repair")
    scripted_model.writes(SCRIPT)
    scripted_approvals.says(False)
    response, _ = await run(send)
    assert not response.status
    (asked,) = scripted_approvals.requests
    assert "its effect was write when the routine was saved" in asked.reason
    assert sent == []


async def test_expired_login_is_reported_without_asking_a_model(
    report, run, sent, scripted_model, store
):
    script = "print(await look())\nawait send('a', month)"
    look = UsedAction(effect="read", parameters=(), returns="str")
    report(script=script, actions={"look": look, "send": SEND}, on_failure="repair")

    @tool(name="look", effect="read", confirm=False)
    def look() -> str:
        """Look."""
        raise ConnectionUnavailableError("the login of the shop has expired")

    response, _ = await run(look, run.send)
    assert "the login of the shop has expired" in response.error
    assert sent == []
    assert not scripted_model.requests


async def test_changes_need_approval_after_an_empty_result(report, run, sent, scripted_approvals):
    scripted_approvals.says(False)
    response, _ = await run(month="2026-12")
    assert not response.status
    (asked,) = scripted_approvals.requests
    assert asked.reason == "shop.query returned nothing for the first time"
    assert sent == []
    scripted_approvals.says(True)
    response, shown = await run(month="2026-12")
    assert response.status
    assert "shop.query gave nothing, and gave something when report was saved" in shown


async def test_empty_result_before_no_change_is_only_reported(report, run, scripted_approvals):
    report(
        script="""rows = await shop.query(f"select * from orders where day like '{month}-%'")
for row in rows:
    await send(to="a", text=row["day"])
print(len(rows))"""
    )
    response, shown = await run(month="2026-12")
    assert response.raise_for_status().text == "0"
    assert "shop.query gave nothing" in shown
    assert not scripted_approvals.requests


async def test_repair_repeats_no_earlier_change(report, run, shop, sent, scripted_model, store):
    first = 'await send(to="a", text="begun")\n'
    report(script=first + SCRIPT, on_failure="repair")
    shop()
    scripted_model.writes(first + REPAIRED)
    response, shown = await run()
    assert response.raise_for_status().text == "40 euros"
    assert sent == ["begun", "40 in 2026-10"]
    assert "calls from before the repair that were not repeated: 1" in shown
    _, case = store.proposed("report")
    assert len(Case.of_bytes(case, "case").calls) == 3


async def test_repair_after_a_refused_answer_repeats_no_change(
    report, run, shop, sent, scripted_model
):
    report(on_failure="repair")
    shop()
    scripted_model.writes(REPAIRED, REPAIRED.replace(" euros", ""))
    response, _ = await run(output=int)
    assert response.raise_for_status().value == 40
    assert sent == ["40 in 2026-10"]


async def test_repair_with_other_values_of_a_change_asks(
    report, run, shop, sent, scripted_model, scripted_approvals
):
    report(script='await send(to="a", text="begun")\n' + SCRIPT, on_failure="repair")
    shop()
    scripted_model.writes('await send(to="b", text="begun")\n' + REPAIRED)
    scripted_approvals.says(False)
    response, _ = await run()
    assert not response.status
    assert sent == ["begun"]
    (asked,) = scripted_approvals.requests
    assert "was called with other values before the routine failed" in asked.reason


async def test_header_limits_and_approvals_apply(report, run, sent, scripted_approvals):
    loop = "for i in range(3):\n    await send(to='a', text=str(i))\nprint(month)"
    report(script=loop, limits=Limits(changes=2))
    response, _ = await run()
    assert "the routine report changes at most 2 things" in response.error
    assert sent == ["0", "1"]
    report(script=loop, limits=Limits(calls=1))
    response, _ = await run()
    assert "makes at most 1 calls" in response.error
    report(script=SCRIPT, confirm=("send",))
    scripted_approvals.says(False)
    response, _ = await run()
    assert not response.status
    (asked,) = scripted_approvals.requests
    assert asked.reason == "the routine report asks before it"


async def test_routine_certain_to_exceed_a_limit_of_its_task_fails_with_this_limit(
    report, run, sent
):
    report(script="for i in range(200_000):\n    await send(to='a', text=str(i))")
    response, _ = await run()
    with pytest.raises(TaskLimitError, match="at least 200,000 calls"):
        response.raise_for_status()
    assert sent == []


async def test_changed_answer_shape_is_reported(report, run):
    report(answer="object of euros")
    response, shown = await run()
    assert response.status
    assert "the answer is text, and was object of euros" in shown


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        ("list[int] | dict[str, int]", "dict[str, int]", False),
        ("dict[str, list[int]] | list[str]", "list[int]", False),
        ("list[list[int]]", "list[str]", False),
        ("list[{'a': {'b': list[int]}}]", "{'a': int}", True),
        ("list[int] | dict[str, int]", "str", True),
        ("Literal['[old', 'new']", "Literal['old', 'new']", False),
    ],
)
def test_change_of_a_result_matters_only_without_a_common_type(before, after, matters):
    used = UsedAction(effect="read", returns=before)
    routine = Routine(name="r", title="R", task="r", script="find()", actions={"find": used})
    found = ToolDescription(
        name="find", summary="Find.", effect="read", asks=False, make_schema=dict, returns=after
    )
    (drift,) = drift_of(routine, [found])
    assert drift.matters is matters


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        ("Literal['a=b']", "Literal['a=c']", True),
        ("Literal['a=b']", "Literal['a=b'] = 'a=b'", False),
        ("int = 5", "int = 6", False),
        (None, "Literal['a=b']", True),
        (None, "Literal['a=b'] = 'a=b'", False),
    ],
)
def test_change_of_a_parameter_is_compared_without_its_default(before, after, matters):
    parameters = () if before is None else (f"mode: {before}",)
    used = UsedAction(effect="read", parameters=parameters)
    routine = Routine(name="r", title="R", task="r", script="find()", actions={"find": used})
    kind, _, default = after.partition(" = ")
    parameter = Argument(name="mode", type_text=kind, default_text=default or None)
    found = ToolDescription(
        name="find",
        summary="Find.",
        effect="read",
        asks=False,
        make_schema=dict,
        parameters=(parameter,),
    )
    (drift,) = drift_of(routine, [found])
    assert drift.matters is matters


@pytest.mark.parametrize(
    "binding",
    ["import calendar as month", "def month(): pass", "match 3:\n    case month: pass"],
    ids=["import", "function", "pattern"],
)
async def test_repair_must_not_bind_a_parameter_in_any_way(
    report, run, shop, scripted_model, binding
):
    report(on_failure="repair")
    shop()
    scripted_model.writes(f"{binding}\n{REPAIRED}", REPAIRED)
    response, _ = await run()
    assert response.raise_for_status().text == "40 euros"
    assert "do not assign it" in scripted_model.prompts[1]
