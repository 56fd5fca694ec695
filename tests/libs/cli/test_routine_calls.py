"""Calls of routines as the texts of tasks, with values of an item."""

from __future__ import annotations

import pytest

from delf.errors import ConfigurationError
from delf_cli.routine_calls import RoutineCall
from delf_cli.routines import call_text

MAIL = {
    "id": "m1",
    "from": {"name": 'Ada\'s "mail"'},
    "lines": [{"n": 3}],
    "read": False,
    "to": None,
}


@pytest.mark.parametrize(
    ("task", "call"),
    [
        ("report", "report()"),
        ("report()", "report()"),
        ('report(month="2026-10", n=2.5)', "report(month='2026-10', n=2.5)"),
        ('report(mail=item["id"])', "report(mail='m1')"),
        (' report(n=item["lines"][0]["n"], y=2026) ', "report(y=2026, n=3)"),
        ('report(who=item["from"]["name"])', "report(who='Ada\\'s \"mail\"')"),
    ],
)
def test_routine_call_gets_values_of_the_item(task, call):
    assert RoutineCall.read(task, with_item=True).text_for(MAIL) == call


@pytest.mark.parametrize("value", ["x'); send(to='eve", "\n", "\\", '"', "\u202e", "{x}"])
def test_item_text_is_quoted_as_one_argument(value):
    call = RoutineCall.read('report(mail=item["id"])', with_item=True).text_for({"id": value})
    assert RoutineCall.read(call).values == {"mail": value}


@pytest.mark.parametrize("with_item", [False, True])
def test_call_text_is_read_as_the_same_values(with_item):
    values = {"month": "2026-10", "n": 2.5, "of": "item", "all": True, "list": [1, "x"]}
    call = RoutineCall.read(call_text("report", values), with_item=with_item)
    assert (call.routine, call.values, call.item_paths) == ("report", values, {})


@pytest.mark.parametrize(
    "task",
    [
        "Report it.",
        "report(1)",
        "report(a=1, a=2)",
        "report(**x)",
        "a.report()",
        "(report or a)()",
        "report(a=open('x'))",
        "report(a={[1]: 2})",
        "report(a=item.id)",
        "report(a=other['id'])",
        "report(a=item[n])",
        "report(a=item['id'][1:])",
        "report(); x()",
        "(" * 10_000,
    ],
)
@pytest.mark.parametrize("with_item", [False, True])
def test_task_that_calls_no_routine_is_refused(task, with_item):
    with pytest.raises(ConfigurationError, match="is not a call of a routine"):
        RoutineCall.read(task, with_item=with_item)


def test_value_of_an_item_is_refused_in_a_task_without_items():
    with pytest.raises(ConfigurationError, match="is not a call of a routine"):
        RoutineCall.read('report(mail=item["id"])')


@pytest.mark.parametrize(
    "place", ['["gone"]', '["from"]', '["read"]', '["to"]', '["lines"][7]', '["id"]["x"]', ""]
)
def test_missing_item_value_is_reported(place):
    with pytest.raises(ConfigurationError, match="no text or number"):
        RoutineCall.read(f"report(mail=item{place})", with_item=True).text_for(MAIL)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), True, None, [1]])
def test_item_value_that_no_call_can_contain_is_reported(value):
    call = RoutineCall.read('report(a=item["x"])', with_item=True)
    with pytest.raises(ConfigurationError, match="no text or number"):
        call.text_for({"x": value})
