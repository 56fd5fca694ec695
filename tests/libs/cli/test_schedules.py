"""Calls of routines as the tasks of schedules, with values of an item."""

from __future__ import annotations

import pytest

from delf.errors import ConfigurationError
from delf_cli.schedules import RoutineCall

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
        ("report()", "report()"),
        ('report(month="2026-10", n=2.5)', "report(month='2026-10', n=2.5)"),
        ('report(mail=item["id"])', "report(mail='m1')"),
        (' report(n=item["lines"][0]["n"], y=2026) ', "report(y=2026, n=3)"),
        ('report(who=item["from"]["name"])', "report(who='Ada\\'s \"mail\"')"),
    ],
)
def test_routine_call_gets_values_of_the_item(task, call):
    assert RoutineCall.read(task).text_for(MAIL) == call


@pytest.mark.parametrize("value", ["x'); send(to='eve", "\n", "\\", '"', "\u202e", "{x}"])
def test_item_text_is_quoted_as_one_argument(value):
    call = RoutineCall.read('report(mail=item["id"])').text_for({"id": value})
    assert RoutineCall.read(call).values == {"mail": value}


@pytest.mark.parametrize(
    "task",
    [
        "Report it.",
        "report",
        "report(1)",
        "report(**x)",
        "a.report()",
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
def test_task_that_calls_no_routine_is_refused(task):
    with pytest.raises(ConfigurationError, match="is not a call of a routine"):
        RoutineCall.read(task)


@pytest.mark.parametrize(
    "place", ['["gone"]', '["from"]', '["read"]', '["to"]', '["lines"][7]', '["id"]["x"]', ""]
)
def test_missing_item_value_is_reported(place):
    with pytest.raises(ConfigurationError, match="no text or number"):
        RoutineCall.read(f"report(mail=item{place})").text_for(MAIL)
