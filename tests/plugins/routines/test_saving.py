"""What of a script becomes a parameter: values by the place of their argument, words of answers."""

import pytest

from delf.events import ScriptFinished, ScriptGenerated, TaskFinished
from delf.protocols.strategy import ToolDescription
from delf.tools.signature import Parameter
from delf_routines.saving import propose

INCOME = ToolDescription(
    name="income",
    summary="Income.",
    effect="read",
    asks=False,
    make_schema=dict,
    parameters=(Parameter(name="city", type_text="str"), Parameter(name="month", type_text="str")),
    returns="int",
)


def saved(task, script):
    told = {"task_id": "t", "at": 1.0}
    events = [
        ScriptGenerated(seq=1, code=script, attempt=1, **told),
        ScriptFinished(seq=2, status="done", duration_ms=1.0, **told),
        TaskFinished(seq=3, status=True, text="", duration_ms=1.0, **told),
    ]
    return propose("income_of", task, "t", events, [INCOME], script=script).routine


TASK = "How much did Berlin pay in 2026-10?"


def test_an_argument_is_called_as_the_parameter_at_its_place():
    routine = saved(TASK, "print(await income('Berlin', '2026-10'))")
    assert set(routine.parameters) == {"city", "month"}
    assert routine.script == "print(await income(city, month))"


@pytest.mark.parametrize(
    ("answer", "made"),
    [
        ('print(f"Berlin: {x}")', 'print(f"{city}: {x}")'),
        ('print(f"{x} in Berlin, {x + 1}")', 'print(f"{x} in {city}, {x + 1}")'),
        ('print(f"{{Berlin}} {x:>{4}}")', 'print(f"{{{city}}} {x:>{4}}")'),
        ('print(f"Berliner {x}")', 'print(f"Berliner {x}")'),
        ('print("a" f"Berlin {x}")', 'print("a" f"Berlin {x}")'),
        ("print(f'''Berlin\n{x}''')", "print(f'''{city}\n{x}''')"),
    ],
)
def test_an_answer_names_what_it_was_asked_for(answer, made):
    script = f"x = await income('Berlin', '2026-10')\n{answer}"
    assert saved(TASK, script).script == f"x = await income(city, month)\n{made}"
