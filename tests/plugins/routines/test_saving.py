"""Parameters of a saved script: values by the place of their argument, words of answers."""

import pytest

from delf.events import ScriptFinished, ScriptGenerated, TaskFinished
from delf.protocols.strategy import ToolDescription
from delf.tools.signature import Parameter
from delf_routines.remaining import remaining_values
from delf_routines.saving import propose, scripts_of, spelled_out_dates

INCOME = ToolDescription(
    name="income",
    summary="Income.",
    effect="read",
    asks=False,
    make_schema=dict,
    parameters=(Parameter(name="city", type_text="str"), Parameter(name="month", type_text="str")),
    returns="int",
)


MESSAGE = {"task_id": "t", "at": 1.0}


def events_of(*scripts):
    for attempt, script in enumerate(scripts, 1):
        yield ScriptGenerated(seq=2 * attempt - 1, code=script, attempt=attempt, **MESSAGE)
        yield ScriptFinished(seq=2 * attempt, status="done", duration_ms=1.0, **MESSAGE)
    yield TaskFinished(seq=2 * len(scripts) + 1, status=True, text="", duration_ms=1.0, **MESSAGE)


def saved(task, script):
    return propose("income_of", task, "t", [*events_of(script)], [INCOME], script=script).routine


TASK = "How much did Berlin pay in 2026-10?"


def test_argument_values_become_parameters_by_name():
    routine = saved(TASK, "print(await income('Berlin', '2026-10'))")
    assert set(routine.parameters) == {"city", "month"}
    assert routine.script == "print(await income(city, month))"


@pytest.mark.parametrize(
    ("fixed", "script"),
    [
        ([], "print(await income(city, month), {value})"),
        (["value"], "print(await income(city, month), {'VAT'})"),
        (["city"], "print(await income('Berlin', month), {value})"),
        (["city", "value"], "print(await income('Berlin', month), {'VAT'})"),
    ],
)
def test_fixed_parameter_name_selects_its_literal(fixed, script):
    written = "print(await income('Berlin', '2026-10'), {'VAT'})"
    task = "How much VAT did Berlin pay in 2026-10?"
    events = [*events_of(written)]
    made = propose("income_of", task, "t", events, [INCOME], script=written, fixed=fixed)
    assert made.routine.script == script
    assert made.fixed_names == set(fixed)


@pytest.mark.parametrize(
    ("answer", "made"),
    [
        ('print(f"Berlin: {x}")', 'print(f"{city}: {x}")'),
        ('print(f"{x} in Berlin, {x + 1}")', 'print(f"{x} in {city}, {x + 1}")'),
        ('print(f"{{Berlin}} {x:>{4}}")', 'print(f"{{{city}}} {x:>{4}}")'),
        ('print(f"Berliner {x}")', 'print(f"Berliner {x}")'),
        ('print("a" f"Berlin {x}")', 'print("a" f"Berlin {x}")'),
        ("print(f'''Berlin\n{x}''')", "print(f'''{city}\n{x}''')"),
        ("print(f'''{x}\nä Berlin''', 'ä')", "print(f'''{x}\nä {city}''', 'ä')"),
        ("print(f'Berlin {\"Berlin\" if x else 0}')", "print(f'{city} {city if x else 0}')"),
    ],
)
def test_parameter_values_in_the_answer_are_replaced(answer, made):
    script = f"x = await income('Berlin', '2026-10')\n{answer}"
    assert saved(TASK, script).script == f"x = await income(city, month)\n{made}"


@pytest.mark.parametrize(
    ("country", "script", "made"),
    [
        ("AT", "print(f'{x} in AT, {x}')", "print(f'{x} in {city}, {x}')"),
        ("AT", "print(f'{x} in AT'.upper())", "print(f'{x} in AT'.upper())"),
        ("in", "print(f'{x} in Rome')", "print(f'{x} in Rome')"),
        ("OR", "q(f'a OR {x}')", "q(f'a OR {x}')"),
        ("OR", "print(q(f'a OR {x}'))", "print(q(f'a OR {x}'))"),
    ],
)
def test_short_values_are_replaced_in_printed_texts(country, script, made):
    routine = saved(f"How much did {country} pay?", f"x = await income({country!r})\n{script}")
    assert routine.script == f"x = await income(city)\n{made}"


@pytest.mark.parametrize(
    ("task", "script", "names"),
    [
        ("Of AT?", "x = await income('AT')\nprint('in AT:', x)", ["city"]),
        ("Of AT?", "x = await income('AT')\nprint('at:', x, f'{x} in AT')", []),
        ("Of AT?", "x = await income('AT')\nt = f'AT: {x}'", ["city"]),
        ("Of AT?", "x = await income('AT')\nprint('in ' f'AT {x}')", ["city"]),
        ("Of AT?", "x = await income('AT')\nprint(x['AT'])", ["city"]),
        ("Of AT?", "'From AT.'\nprint(await income('AT'))", []),
        ("Of Rome?", "x = await income('Rome')\nprint('In ROME:', x, 'Romeo')", ["city"]),
        (
            "Of Rome in 2026-10?",
            "x = await income('Rome', '2026-10')\nprint('October 2026', x)",
            ["month"],
        ),
        ("The top 3.", "print(x[:3], x[3], f'{x:3}')", ["number"]),
    ],
)
def test_values_that_remain_in_the_script_are_named(task, script, names):
    routine = saved(task, script)
    warnings = remaining_values(routine)
    assert [w.partition(" of ")[2].partition(",")[0] for w in warnings] == names
    assert all(w.endswith(routine.script.splitlines()[-1]) for w in warnings)


def test_text_that_only_looks_like_a_date_is_no_date():
    routine = saved("What is 2025-13-01?", "print(q('2025-13-01'), q('a 2025-13-01'))")
    assert routine.script == "print(q(value), q('a 2025-13-01'))"
    assert routine.parameters["value"].type == "text"


@pytest.mark.parametrize("city", ["Rome", "Berlin", "Copenhagen"])
def test_parameter_values_in_nested_f_strings_are_replaced(city):
    script = f"""x = await income('{city}', '2026-10')
print(f"{city}: {{f'{city} {{x}}'}} in {city}", f"in {city}")"""
    made = """x = await income(city, month)
print(f"{city}: {f'{city} {x}'} in {city}", f"in {city}")"""
    assert saved(f"How much did {city} pay in 2026-10?", script).script == made


@pytest.mark.parametrize(
    ("task", "script", "made"),
    [
        ("The top 3 of 2026-10.", "print(x[:3], x[3])", "print(x[:number], x[3])"),
        ("Those above 20.", "q('total > 20 and id < 120')", 'q(f"total > {n_2} and id < 120")'),
        (
            "Those above 20.",
            "print(f'{x:20} above 20, 20%')",
            "print(f'{x:20} above {n_2}, 20%')",
        ),
        ("Those above 20.", "print(f\"{q('total > 20')}\")", "print(f\"{q('total > 20')}\")"),
        ("Pay of October 2026.", "q('2026-10-01')", "q('2026-10-01')"),
        ("Pay of October 2026.", "q(month='2026-10')", "q(month=month)"),
        ("Mail the orders of 2026-10.", "q('Orders of 2026-10')", 'q(f"Orders of {month}")'),
        ("Mail 'Orders of 2026-10'.", "q('Orders of 2026-10')", "q(value)"),
        ("Pay of 2026-10.", "date(2026, 10, 1)", "date(2026, 10, 1)"),
        ("Pay of Rome.", "y = 1\rq('Rome')", "q(value)"),
        ("Pay of Rome.", "y = 1\r\nq('Rome')", "q(value)"),
    ],
)
def test_parameter_values_inside_texts_and_slices_are_found(task, script, made):
    assert saved(task, f"n = 20\n{script}").script.splitlines()[-1] == made


@pytest.mark.parametrize(
    "literal",
    [f"{10**400}", f"{10**5000:#x}", f"'id {10**400}'", f"'id 1{'0' * 5000}'"],
    ids=["decimal", "hex", "text", "text of thousands of digits"],
)
def test_too_large_number_stays_a_literal(literal):
    task = f"What is {10**400}?"
    assert saved(task, f"x = {literal}").script == f"x = {literal}"
    assert scripts_of([*events_of("y = 1", f"x = {literal}")]).last_suffices


@pytest.mark.parametrize(
    ("words", "dates"),
    [
        ("in October 2026", {"2026-10"}),
        ("on 3 Oct. 2026 and May 4th, 2027", {"2026-10-03", "2027-05-04"}),
        ("it may 2026 be", {"2026-05"}),
        ("marching 2026", set()),
    ],
)
def test_dates_in_words_are_recognised(words, dates):
    assert spelled_out_dates(words) == dates


def test_integer_and_equal_float_become_parameters_of_their_own_types():
    routine = saved("Pay 5.0 for 5 orders.", "pay(amount=5.0)\nprint(orders[:5])")
    assert routine.script == "pay(amount=amount)\nprint(orders[:number])"
    defaults = [(item.type, item.default) for item in routine.parameters.values()]
    assert [(kind, repr(value)) for kind, value in defaults] == [
        ("number", "5.0"),
        ("integer", "5"),
    ]
