"""Tools as Python stubs."""

import ast
import re
from dataclasses import replace
from typing import Literal

import pytest
import pytest_asyncio
from typing_extensions import TypedDict

from delf import Connection, action
from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.protocols.strategy import ToolChoice
from delf.tools.action import Action, action_from_function
from delf.tools.catalogs import best_first
from delf.tools.find_tools import find_tools_if_needed
from delf.tools.function import tool
from delf.tools.signature import FullTypes
from delf.tools.stubs import render_stubs, select_fitting, stubs_of
from delf.tools.type_texts import shorten, with_types
from delf_engine.toolset import load_toolset
from support.shop import Shop, add


async def stubs(connections):
    return render_stubs(bound.describe() for bound in await load_toolset(connections))


async def test_stubs_are_compact_and_parse():
    text = await stubs([Shop(), add])
    assert text == (
        'async def add(a: int, b: int = 1) -> int:  """Add two numbers. [asks]"""\n'
        'class shop:  # A shop with "quotes" and\n'
        "    async def find(status: str, limit: int = 10) -> list[dict]:\n"
        '        """Find orders.\n'
        '        status: open or closed."""\n'
        '    async def close(number: int) -> None:  """Close an order. [asks]"""'
    )
    assert ast.parse(text)


async def test_stubs_survive_quotes_and_long_words_in_descriptions():
    @tool(description='say """hi""" and\n\n' + "x" * 1_000)
    def odd(a: int) -> None:
        """Odd."""

    assert ast.parse(await stubs([odd]))


@tool(effect="read", confirm=False)
def shifts(person: str, week: str = "") -> list[dict[str, int]]:
    """Shifts of a person.

    Hours over 8 count double.

    Args:
        person: The login name.
        week: The week, as 2026-W27.

    Returns:
        Hours by day.

    Warning:
        Times are UTC.
    """
    return []


async def test_stub_shows_the_whole_docstring_within_budget():
    assert await stubs([shifts]) == (
        "async def shifts(person: str, week: str = '') -> list[dict[str, int]]:\n"
        '    """Shifts of a person. Hours over 8 count double. Warning: Times are UTC.\n'
        "    person: The login name.\n"
        "    week: The week, as 2026-W27.\n"
        '    returns: Hours by day."""'
    )


async def test_stubs_keep_notes_of_the_best_actions_first():
    def described(number):
        name = "pay_bill" if number == 0 else f"other_{number}"
        notes = "Amounts are in cents." if number == 0 else "Something else."
        return replace(one, name=name, summary="Pay a bill." if number == 0 else "X.", notes=notes)

    one = (await load_toolset([shifts])).shown[0].describe()
    tools = [described(number) for number in range(200)]
    entries = [CatalogEntry(name=t.name, summary=t.summary, parameters=()) for t in tools]
    choice = ToolChoice(
        shown=tools, left_out=0, catalog=Catalog(entries), describe=None, budget=5_000
    )
    kept = select_fitting(choice, [tool.name for tool in tools], "pay the bill")
    shown = [tool for tool in tools if tool.name in kept]
    text = stubs_of(replace(choice, shown=shown, left_out=200 - len(kept)), "pay the bill")
    assert "Amounts are in cents." in text
    assert len(text) <= 5_000


@pytest.mark.parametrize("budget", [5_000, 1_500, 1_000, 400])
async def test_notes_are_shortened_before_types_are(budget):
    notes = " ".join(f"This is word{number}." for number in range(500))
    described = (await load_toolset([shifts])).shown[0].describe()
    tools = [replace(described, name=f"shifts{number}", notes=notes) for number in range(2)]
    choice = ToolChoice(shown=tools, left_out=0, catalog=None, describe=None, budget=budget)
    text = stubs_of(choice, "task")
    assert len(text) <= budget
    assert text.count("person: str, week: str = ''") == text.count("list[dict[str, int]]") == 2
    assert text.count("…") == 2
    assert ("word2" in text) == (budget > 400)
    assert all(word.endswith((".", '."""')) for word in text.split() if "word" in word)


class Huge(Connection):
    """A service with hundreds of actions."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    async def actions(self) -> list[Action]:
        async def get(key: str, deep: bool = False) -> dict:
            """Get one of the many things."""
            return {}

        made = (
            action_from_function(get, name=f"get_{n}", effect="write") for n in range(self.count)
        )
        return list(made)


async def choice_of(connections, budget=21_000):
    return (await load_toolset(connections)).choice(budget)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "least"), [(200, 20_000), (1_000, 20_000), (5_000, 18_000)])
async def test_stubs_of_many_tools_fill_the_budget(count, least):
    tools = await load_toolset([Huge(count)])
    everything = tools.choice(10_000 if count == 200 else 21_000)
    names = best_first(everything.catalog, "get thing 7")
    shown = tools.showing(select_fitting(everything, names, "get thing 7"))
    text = stubs_of(shown.choice(everything.budget), "get thing 7")
    assert min(least, everything.budget * 0.85) < len(text) <= everything.budget
    assert "async def get_7(key: str, deep: bool = False) -> dict:" in text
    ast.parse(text.partition("# More tools")[0])


class Seasoned(TypedDict):
    salt: float
    pepper: float


Part = TypedDict("Part", {f"part_{n}": Seasoned for n in range(30)} | {"vinegar": Seasoned})


class Recipe(TypedDict, total=False):
    name: str
    first: Part
    dressing: Part


Spice = Literal["anise", "basil", "cumin", "dill", "fennel", "ginger", "mace", "nutmeg", "sumac"]


class Kitchen(Connection):
    """A kitchen."""

    @action(effect="write")
    async def cook(self, recipe: Recipe, spice: Spice = "anise") -> Recipe:
        """Cook."""

    @action(effect="read")
    async def look(self, name: str) -> Recipe:
        """Look a recipe up."""


async def test_stub_keeps_keys_that_the_task_names():
    choice = await choice_of([Kitchen()], 1_500)
    without = stubs_of(choice, "Cook something").partition("async def cook")[2]
    assert '"vinegar"' not in without
    assert '?"dressing": dict' in without
    task = "Cook with more of the vinegar, and sumac"
    named = stubs_of(choice, task).partition("async def cook")[2]
    assert named.count('"vinegar": {"salt": float, "pepper": float}') == 2
    assert '"part_0": dict' not in named
    assert "'sumac'" in named


Values = Literal[tuple(f"value_{number}" for number in range(40))]
Body = TypedDict("Body", {"title": str, **{f"key_{number}": Seasoned for number in range(20)}})


def crud(resource):
    """Make the actions of a resource, with the names of a service whose bodies are wrapped."""

    async def list_them(fields: list[Values] | None = None) -> list[Recipe]:
        """List."""
        return []

    async def change(
        gid: str, fields: list[Values] | None = None, data: Body | None = None
    ) -> Recipe:
        """Change."""
        return {}

    return [
        action_from_function(list_them, name=f"list_{resource}s", effect="read"),
        action_from_function(change, name=f"create_{resource}", effect="write"),
        action_from_function(change, name=f"update_{resource}", effect="write"),
        action_from_function(change, name=f"add_follower_for_{resource}", effect="write"),
    ]


class Office(Connection):
    """An office with many resources."""

    async def actions(self) -> list[Action]:
        names = (
            f"thing_{chr(97 + number)}{chr(97 + other)}"
            for number in range(6)
            for other in range(5)
        )
        return [item for name in (*names, "task", "project") for item in crud(name)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office():
    """Made once: that takes a second."""
    return await load_toolset([Office()])


def shown_for(task, tools, budget=21_000):
    everything = tools.choice(budget)
    shown = tools.showing(select_fitting(everything, best_first(everything.catalog, task), task))
    return stubs_of(shown.choice(budget), task)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "action"),
    [
        ("Mark the task 'Pay invoice' of project 7 as completed", "update_task"),
        ("Reschedule task 7", "update_task"),
        ("Add a project 'Lamps'", "create_project"),
        ("List the tasks and rename the project of each", "update_project"),
    ],
)
def test_named_change_action_is_shown_with_all_keys(task, action, office):
    text = shown_for(task, office)
    stub = text.partition(f"async def {action}(")[2].partition("async def")[0]
    assert len(text) <= 21_000
    assert '"title": str' in stub
    assert '"key_19": ' in stub


@pytest.mark.slow
def test_stub_keeps_record_keys_in_a_small_budget(office):
    text = shown_for("Mark the task 'Pay invoice' as completed", office, 6_000)
    stub = text.partition("async def update_task(")[2].partition("async def")[0]
    assert '"key_19"' in stub
    assert "'value_39'" not in stub


async def test_record_type_shared_by_tools_is_defined_once():
    text = stubs_of(await choice_of([Kitchen()]), "Cook something")
    (name,) = re.findall(r"^    (\w+) = \{", text, re.MULTILINE)
    assert text.count(f") -> {name}:") == 2
    ast.parse(text.replace('?"', '"'))


async def test_record_whose_short_type_omits_its_keys_is_defined_once():
    record = "{" + ", ".join(f'"key_{number}": int' for number in range(20)) + "}"
    one = (await load_toolset([shifts])).shown[0].describe()
    tools = [
        replace(
            one,
            name=name,
            returns="dict",
            full_types=lambda returns=returns: FullTypes(
                parameters=one.parameters, returns=returns
            ),
        )
        for name, returns in (("get_shift", record), ("list_shifts", f"list[{record}]"))
    ]
    text = render_stubs(tools)
    assert text.count('"key_19": int') == 1
    assert ") -> Shift:" in text
    assert ") -> list[Shift]:" in text


RECORD = "{" + ", ".join(f'"key_{number}": int' for number in range(20)) + "}"
PAGE = f'{{"count": int, "results": list[{RECORD}]}}'


@pytest.mark.parametrize(
    ("types", "return_type"),
    [
        ({"list_shifts": PAGE, "get_shift": RECORD}, '{"count": int, "results": list[Shift]}'),
        ({"get_shift": f"{RECORD} | None", "find_shifts": PAGE}, "Shift | None"),
        ({"list_shifts": PAGE, "search_shifts": PAGE, "get_shift": RECORD}, "Shift2"),
    ],
)
async def test_record_within_a_result_of_another_tool_is_defined_once(types, return_type):
    one = (await load_toolset([shifts])).shown[0].describe()
    notes = "key_1: the first"
    tools = [
        replace(
            one,
            name=name,
            returns="dict",
            full_types=lambda returns=returns: FullTypes(
                parameters=one.parameters, returns=returns, notes=notes
            ),
        )
        for name, returns in types.items()
    ]
    text = render_stubs(tools)
    definition = f"Shift = {RECORD}  # {notes}"
    assert text.count(RECORD) == text.count(definition) == 1
    assert text.index(definition) < text.index("def ")
    assert f"-> {return_type}:" in text


async def test_description_that_stubs_of_a_connection_share_is_written_once():
    one = (await load_toolset([shifts])).shown[0].describe()
    tools = [
        replace(one, name=f"{connection}.{method}", connection=connection)
        for connection in ("ward", "shop")
        for method in ("shifts", "nights")
    ]
    text = render_stubs(tools)
    assert text.count("person: The login name.") == 2
    assert all(
        text.count(f"async def {method}(person: str") == 2 for method in ("shifts", "nights")
    )


async def test_find_tools_exists_only_if_tools_are_hidden():
    tools = await load_toolset([read(1), read(2)])
    assert find_tools_if_needed(tools.choice()) == ()
    (find,) = find_tools_if_needed(tools.showing(frozenset({"read_1"})).choice())
    (found,) = await find.actions()
    assert "1 more tools" in found.summary
    assert "def read_2(" in await found.call(words="read 2")


@pytest.mark.parametrize(
    "words", ["cook", "kitchen.cook", "cook, kitchen.look", "`kitchen.cook()`"]
)
async def test_find_tools_returns_a_named_tool_in_full(words):
    choice = await choice_of([Kitchen(), *map(read, range(30))], 1_500)
    (find,) = find_tools_if_needed(choice)
    (action,) = await find.actions()
    found = await action.call(words=words)
    assert '?"dressing": {' in found
    assert found.count('"vinegar"') >= 2
    assert "def read_" not in found


def read(number):
    @tool(name=f"read_{number}", effect="read", confirm=False)
    async def made(key: str, deep: bool = False) -> dict:
        """Read one of the many things that there are."""

    return made


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("list[str]", 5, "list[str]"),
        ('{"a": {"b": {"c": int}}}', 20, '{"a": {"b": dict}}'),
        ('{"a": {"b": {"c": int}}}', 5, '{"a": dict}'),
        (
            'list[{"a": dict[str, {"b": int}], ?"c]{": str}] | None',
            42,
            'list[{"a": dict[str, dict], ?"c]{": str}] | None',
        ),
        (
            '{"data": list[{"a": {"b": int}, "c": int, "d": int, "e": int}], "n": int}',
            60,
            '{"data": list[{"a": dict, "c": int, "d": int, "e": int}], "n": int}',
        ),
        ("Literal['a.b', 'a.c', 'd', 'e']", 5, "Literal['d', 'e', ...]"),
        ('{"a": {"deep": int, "b": int}}', 5, '{"a": {"deep": int, ...}}'),
        ("Literal['a', 'b', 'c', 'd', 'deep']", 5, "Literal['a', 'b', 'deep', ...]"),
        ('{"a": int', 5, '{"a": int'),
    ],
)
def test_long_type_text_is_cut_at_inner_levels(text, limit, short):
    assert shorten(text, limit, lambda name: name == "deep", 60, 2) == short


def test_shorten_drops_keys_only_over_the_limit():
    text = "{" + ", ".join(f'"key_{n}": {{"x": int}}' for n in range(20)) + "}"
    assert shorten(text, 10, lambda name: False).count("key_") == 20
    cut = shorten(text, 10, lambda name: name == "key_19", 5)
    assert cut.endswith('"key_4": dict, "key_19": {"x": int}, ...}')


@pytest.mark.parametrize(
    ("text", "place", "after"),
    [
        ('{"a": {"b": str}}', ("a", "b"), '{"a": {"b": str | None}}'),
        ('{"a": list[{"b": int}] | str}', ("a", "*", "b"), '{"a": list[{"b": int | None}] | str}'),
        ("list[list[str]]", ("*", "*"), "list[list[str | None]]"),
        ("(P := {\"boss\": P, \"k\": Literal['x']})", ("k",), "(P := {\"boss\": P, \"k\": Literal['x'] | None})"),
        ("dict", (), "dict | None"),
        ("str | None", (), "str | None"),
        ("Any", (), "Any"),
        ('{"a": str, ...}', ("z",), '{"a": str, ...}'),
        ("{broken", ("a",), "{broken"),
    ],
)  # fmt: skip
def test_learned_null_makes_a_type_optional(text, place, after):
    assert with_types(text, [(place, "None")]) == after


@pytest.mark.parametrize(
    ("text", "kind", "after"),
    [
        ("datetime", "str", "datetime | str"),
        ("Literal['a', 'b']", "str", "Literal['a', 'b'] | str"),
        ("int | None", "str", "int | None | str"),
        ("int", "float", "int | float"),
        ("float", "int", "float"),
        ("str | None", "str", "str | None"),
        ('{"a": int}', "dict", '{"a": int}'),
        ("list[int]", "list", "list[int]"),
        ("str", "list", "str | list"),
        ("Any", "str", "Any"),
        ("str", 'str (JSON: {"a": int})', 'str (JSON: {"a": int})'),
    ],
)
def test_new_value_type_in_a_result_extends_the_declared_type(text, kind, after):
    assert with_types(f'{{"x": list[{text}]}}', [(("x", "*"), kind)]) == f'{{"x": list[{after}]}}'
