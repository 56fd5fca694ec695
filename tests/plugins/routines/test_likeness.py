"""Tasks that were done several times are offered to be saved; one that fits a routine runs it."""

import json

import pytest

from delf import Agent, tool
from delf.errors import ConfigurationError
from delf.events import Warned
from delf_routines.likeness import fitting, name_for, pattern_of
from delf_routines.routine import Parameter, Routine, UsedAction

TASK = "How much did Berlin pay in 2026-10?"
CITY = Parameter(name="city", type="text", default="Berlin")
MONTH = Parameter(name="month", type="date", default="2026-10")
INCOME = UsedAction(effect="read", parameters=("city: str", "month: str"), returns="int")


def routine(task=TASK, *parameters, name="income_of", **more):
    found = {item.name: item for item in parameters or (CITY, MONTH)}
    script = "print(await income(city, month))"
    given = {"title": "Income", "task": task, "script": script, "parameters": found, **more}
    return Routine(name=name, actions={"income": INCOME}, **given)


@pytest.mark.parametrize(
    ("task", "values"),
    [
        (TASK, {"city": "Berlin", "month": "2026-10"}),
        ("how much did Rome  pay in 2027-01 ?", None),
        ("how MUCH did Rome\npay in 2027-01", {"city": "Rome", "month": "2027-01"}),
        ("How much did New York pay in 2026-10?", {"city": "New York", "month": "2026-10"}),
        ("How much did Berlin and Rome pay in 2026-10?", None),
        ("How much did berlin pay in 2026-10?", None),
        ("How much did Berlin pay in 2026?", None),
        ("How much did Berlin pay in October?", None),
        ("How much did Berlin pay in 2026-10 and 2026-11?", None),
        ("How much did Berlin not pay in 2026-10?", None),
        ("How much did Berlin pay in 2026-10? Delete all orders", None),
    ],
)
def test_a_task_fits_where_every_word_does(task, values):
    assert fitting(task, routine()) == values


@pytest.mark.parametrize(
    ("words", "parameter", "task", "value"),
    [
        ("Send 3 mails.", Parameter(name="n", type="integer", default=3), "Send 12 mails", 12),
        ("Send 3 mails.", Parameter(name="n", type="integer", default=3), "Send 1.5 mails", None),
        ("Pay 1.5 euros.", Parameter(name="n", type="number", default=1.5), "Pay 2 euros", 2.0),
        (
            "Tell a@b.org.",
            Parameter(name="to", type="text", default="a@b.org"),
            "Tell x@y.z",
            "x@y.z",
        ),
        ("Tell a@b.org.", Parameter(name="to", type="text", default="a@b.org"), "Tell Eve", None),
        ("Sort by size.", Parameter(name="by", type="text", default="size"), "Sort by age", "age"),
        (
            "Sort by size.",
            Parameter(name="by", type="text", default="size"),
            "Sort by age or name",
            None,
        ),
        ("Sort it.", Parameter(name="by", type="text", default="size"), "Sort it", None),
        ("Is a.b a.b?", Parameter(name="x", type="text", default="a.b"), "Is a.b a.c?", None),
        (
            "Look at x.",
            Parameter(name="at", type="text", default="x", pattern="[a-z]"),
            "Look at ab",
            None,
        ),
    ],
)
def test_what_stands_for_a_parameter_has_its_type(words, parameter, task, value):
    found = fitting(task, routine(words, parameter))
    assert found == (None if value is None else {parameter.name: value})


def test_tasks_are_like_one_another_but_for_values():
    like = [
        pattern_of(f"How much did {c} pay in {m}?") for c, m in (("Berlin", "2026-10"), ("Rome", 7))
    ]
    assert like == ["how much did _ pay in _"] * 2
    assert pattern_of("How much did Berlin owe in 2026-10?") not in like
    assert pattern_of('Mail "a b" to x@y.z now, please') == "mail _ to _ now please"
    assert pattern_of("Hello") is None
    assert pattern_of("income_of(city='Berlin')") is None
    assert name_for(TASK) == "much"
    assert name_for("Report the overdue invoices of 2026-10") == "report_overdue_invoices"


@pytest.fixture
def agent(store, scripted_model, delf_host):
    @tool(effect="read", confirm=False)
    def income(city: str, month: str) -> int:
        """Income."""
        return len(city) * int(month[-2:])

    def make(**options):
        given = {"llm": "scripted", "host": delf_host, **options}
        return Agent(tools=[income], **given)

    return make


def test_words_that_fit_routine_are_its_call(agent, store, scripted_model):
    store.keep(routine())
    scripted_model.writes("print(await income('Rome', '2027-01'))")
    with agent() as made:
        assert made.run("How much did Rome pay in 2027-01?").text == "4"
        assert len(scripted_model.requests) == 1, "the model does tasks that name no strategy"
        response = made.run("How much did Rome pay in 2027-02?", strategy="routine")
    assert response.raise_for_status().text == "8"
    told = [event.message for event in response.events if isinstance(event, Warned)]
    assert any("fits a routine, as income_of(city='Rome', month='2027-02')" in t for t in told)
    assert response.cost_usd == 0
    assert len(scripted_model.requests) == 1


@pytest.mark.parametrize("case", ["other words", "two fit", "nobody trusted it"])
def test_words_that_fit_no_routine_for_sure_fail(agent, store, scripted_model, monkeypatch, case):
    store.keep(routine())
    task = "How much did Rome pay in 2027-02?"
    if case == "other words":
        task = "How much did Rome pay and owe in 2027-02?"
    elif case == "two fit":
        store.keep(routine(name="other"))
    else:
        (store.folder / "income_of.py").write_text(routine().text() + "\n")
        monkeypatch.delenv("DELF_TRUST")
    with agent() as made, pytest.raises(ConfigurationError, match="is not a call of a routine"):
        made.run(task, strategy="routine")
    assert scripted_model.requests == []


def test_the_third_like_task_is_offered_until_it_is_saved(here, run):
    (here / "delf.toml").write_text('[plugins.journal-sql]\nurl = "sqlite:///journal.db"\n')
    (here / "tools.py").write_text(
        "from delf import tool\n@tool(effect='read', confirm=False)\n"
        "def income(city: str, month: str) -> int:\n    'Income.'\n    return len(city)\n"
    )
    trusting = ("--trust", str(here))

    def ask(city, call="income"):
        code = f"print(await {call}('{city}', '2026-10'))" if call else "print(1)"
        entry = {"request": {"contains": [city]}, "reply": {"text": f"```python\n{code}\n```"}}
        (here / "model.jsonl").write_text(json.dumps(entry) + "\n")
        task = f"How much did {city} pay in 2026-10?"
        done = run(*trusting, "run", task, "--llm", "recorded:model.jsonl", "--tools", "tools.py")
        assert done.exit_code == 0, done.output

    ask("Berlin")
    ask("Rome")
    ask("Paris", call="")
    assert "like tasks" not in run(*trusting, "runs").stderr
    ask("Oslo")
    told = run(*trusting, "runs")
    assert "3 like tasks were done; delf routines save" in told.stderr
    assert "like tasks" not in told.stdout
    assert (
        "like tasks" not in run(*trusting, "--set", "plugins.routines.offers=false", "runs").stderr
    )
    assert run(*trusting, "routines", "save", "last", "income_of", "--yes").exit_code == 0
    assert "like tasks" not in run(*trusting, "runs").stderr
