"""Tests of ``@tool`` in a real sandbox: a script's arguments, the tool's values, and the result."""

import asyncio
import dataclasses
import datetime as dt
import enum
import functools
import logging
import pathlib
import traceback
import typing
import uuid
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pydantic
import pytest
from pydantic import Field

from delf import Agent, Connection, ToolDefinitionError, ToolException, action, tool
from delf.errors import ToolExecutionError
from delf.events import CallFinished
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from support.until import until


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Page(TypedDict):
    rows: list[Row]
    color: Color


class Person(pydantic.BaseModel):
    name: str
    born: dt.date | None = None
    colors: list[Color] = []


class Renamed(pydantic.BaseModel):
    from_: str = Field(alias="from")


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass(frozen=True)
class Shape:
    points: tuple[Point, ...]
    color: Color = Color.RED
    owner: Person | None = None


class Span(NamedTuple):
    low: int
    high: int


ANN = Person(name="Ann", born=dt.date(1990, 1, 2), colors=[Color.BLUE])
UID = uuid.UUID(int=5)
WHEN = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)

# what the parameter is, what the script writes, what the tool gets
ARGUMENTS = {
    "int from a text": (int, "'3'", 3),
    "bytes": (bytes, "b'\\x00'", b"\x00"),
    "decimal": (Decimal, "'1.10'", Decimal("1.10")),
    "datetime from a text": (dt.datetime, "'2026-01-02T03:04:00Z'", WHEN),
    "path": (pathlib.Path, "'a/b'", pathlib.Path("a/b")),
    "enum": (Color, "'blue'", Color.BLUE),
    "literal": (Literal["a", 3], "3", 3),
    "optional, None": (int | None, "None", None),
    "a union of records": (Point | Person, "{'name': 'Ann'}", Person(name="Ann")),
    "a tuple from a list": (tuple[int, ...], "[1, 2]", (1, 2)),
    "named tuple": (Span, "[1, 2]", Span(1, 2)),
    "named tuple from a record": (Span, "{'low': 1, 'high': 2}", Span(1, 2)),
    "a named tuple of the script": (
        tuple[int, int],
        "__import__('collections').namedtuple('P', 'x y')(1, 2)",
        (1, 2),
    ),
    "a member of an enum by its value": (Literal[Color.RED], "'red'", Color.RED),
    "set": (set[int], "{1, 2}", {1, 2}),
    "typed dict of typed dicts": (
        Page,
        "{'rows': [{'id': 1, 'note': 'n'}], 'color': 'red'}",
        {"rows": [{"id": 1, "note": "n"}], "color": Color.RED},
    ),
    "dataclass of many": (
        Shape,
        "{'points': [{'x': 1}, {'x': 2, 'y': 3}], 'color': 'blue', 'owner': {'name': 'Ann'}}",
        Shape((Point(1), Point(2, 3)), Color.BLUE, Person(name="Ann")),
    ),
    "a dataclass of the script": (
        Point,
        "(lambda c: c(1, 2))(__import__('dataclasses').make_dataclass('P', ['x', 'y']))",
        Point(1, 2),
    ),
    "a model with other names": (Renamed, "{'from': 'x'}", Renamed(**{"from": "x"})),
}

# what the tool returns, what the script sees
RESULTS = {
    "none": (None, "None"),
    "enum": (Color.BLUE, "'blue'"),
    "an enum of numbers": (Level.HIGH, "2"),
    "dataclass": (Point(1, 2), "{'x': 1, 'y': 2}"),
    "model": (
        ANN,
        "{'name': 'Ann', 'born': datetime.date(1990, 1, 2), 'colors': ['blue']}",
    ),
    "nested": (
        {"a": [Shape((Point(1),), owner=Person(name="B"))]},
        (
            "{'a': [{'points': ({'x': 1, 'y': 0},), 'color': 'red', "
            "'owner': {'name': 'B', 'born': None, 'colors': []}}]}"
        ),
    ),
    "keys that are enums": ({Color.RED: 1}, "{'red': 1}"),
    "keys that are numbers": ({1: "a"}, "{1: 'a'}"),
    "named tuple": ([Span(1, 2)], "[{'low': 1, 'high': 2}]"),
    "set": ({1}, "{1}"),
    "decimal": (Decimal("1.10"), "Decimal('1.10')"),
    "bytes": (b"\x00", "b'\\x00'"),
    "times": ([WHEN.date(), dt.timedelta(1)], "[datetime.date(2026, 1, 2), datetime.timedelta(days=1)]"),
    "uuid": (UID, f"UUID('{UID}')"),
    "text that looks like a tag": ({"$t": "date", "v": "x"}, "{'$t': 'date', 'v': 'x'}"),
}  # fmt: skip


def taking(kind: Any, got: list[Any]) -> Any:
    def take(value):
        """Take a value."""
        got.append(value)

    take.__annotations__ = {"value": kind, "return": None}
    return tool(confirm=False)(take)


@pytest.fixture
def run(delf_host, scripted_model):
    """Runs a script with some tools."""

    def run(script, *tools, **options):
        scripted_model.writes(script)
        given = {"llm": "scripted", "sandbox": "local", "host": delf_host, "retry_count": 0}
        with Agent(tools=tools, **{**given, **options}) as agent:
            return agent.run("x")

    return run


def test_arguments_arrive_in_declared_types(run):
    """A single script checks all types, because a sandbox for each would be slow."""
    got: dict[str, list[Any]] = {name: [] for name in ARGUMENTS}
    names = {name: f"take_{index}" for index, name in enumerate(ARGUMENTS)}
    tools, lines = [], []
    for name, (kind, written, _) in ARGUMENTS.items():
        made = taking(kind, got[name])
        tools.append(tool(name=names[name], confirm=False)(made.function))
        lines.append(f"await {names[name]}({written})")
        lines.append(f"await {names[name]}(value={written})")
    response = run("\n".join(lines), *tools, allowed_libs=[])
    assert response.error is None
    expected = {name: [value] * 2 for name, (_, _, value) in ARGUMENTS.items()}
    assert got == expected
    kinds = {name: [type(value) for value in values] for name, values in got.items()}
    assert kinds == {name: [type(value) for value in values] for name, values in expected.items()}


def test_results_are_plain_data_in_the_script(run):
    @tool(confirm=False)
    def give(name: str) -> Any:
        """Give a value."""
        return RESULTS[name][0]

    response = run(f"for name in {list(RESULTS)}: print(repr(await give(name)))", give)
    assert response.error is None
    assert response.text.splitlines() == [shown for _, shown in RESULTS.values()]


@pytest.mark.parametrize(
    ("kind", "written", "message"),
    [
        (int, "'x'", "argument 'value': Input should be a valid integer"),
        (Color, "'green'", "Input should be 'red' or 'blue'"),
        (Row, "{}", "argument 'value.id': Field required"),
        (Person, "{'name': 1}", "argument 'value.name': Input should be a valid string"),
        (Literal["a"], "'b'", "Input should be 'a'"),
        (list[int], "[1, 'x']", "argument 'value.1': Input should be a valid integer"),
        (Annotated[int, Field(ge=1)], "0", "greater than or equal to 1"),
        (int, "1, 2", "takes at most 1 arguments, 2 were given"),
        (int, "", "missing argument 'value'"),
        (int, "1, valeu=2", "unknown argument 'valeu'"),
    ],
)
def test_invalid_argument_never_reaches_the_tool(run, kind, written, message):
    got: list[Any] = []
    response = run(f"await take({written})", taking(kind, got))
    assert message in response.error
    assert "take(value: " in response.error
    assert got == []


def test_missing_arguments_use_the_function_defaults(run):
    got = []

    @tool(confirm=False)
    def take(a: int, b: Color = Color.BLUE, c: list[int] | None = None, *, d: int = 4) -> None:
        """Take."""
        got.append((a, b, c, d))

    assert run("await take(1)\nawait take(1, d=5)\nawait take(a=1, c=[2])", take).error is None
    assert got == [(1, Color.BLUE, None, 4), (1, Color.BLUE, None, 5), (1, Color.BLUE, [2], 4)]


def test_async_tools_overlap_and_plain_tools_run_in_threads(run):
    here = []

    @tool(confirm=False)
    async def wait(n: int) -> int:
        """Wait."""
        here.append(n)
        await until(lambda: len(here) >= 3)
        return n

    @tool(confirm=False)
    def add(a: int) -> int:
        """Add."""
        return a + 1

    script = "print(await asyncio.gather(wait(1), wait(2), wait(3), add(4)))"
    assert run(script, wait, add).text == "[1, 2, 3, 5]"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("handle", "answer"),
    [
        (True, "ToolException no such order"),
        ("text", "got no such order"),
        ("try another", "got try another"),
        ("", "got "),
        (lambda error: f"<{error.message}>", "got <no such order>"),
        (lambda error: 1 / 0, "ToolError no such order (handle_error failed: division by zero)"),
        (False, "ToolException no such order"),
        (None, "ToolException no such order"),
    ],
    ids=["true", "its text", "text", "empty", "callable", "a callable that fails", "false", "none"],
)
def test_handle_error_returns_a_tool_exception_as_text(run, handle, answer, is_async):
    def find(order: str) -> str:
        """Find an order."""
        raise ToolException("no such order")

    async def afind(order: str) -> str:
        """Find an order."""
        raise ToolException("no such order")

    made = tool(name="find", confirm=False, handle_error=handle)(afind if is_async else find)
    script = """
try:
    print("got", await find("7"))
except ToolError as error:
    print(type(error).__name__, error)
"""
    response = run(script, made)
    assert response.text.rstrip() == answer.rstrip()
    (call,) = response.trace.tool_calls
    assert (call.status, call.success) == ("error", False)
    assert call.error.startswith("no such order")


@pytest.mark.parametrize("handle", ["text", "reported"])
def test_handle_error_ignores_unexpected_exceptions(run, handle):
    @tool(confirm=False, handle_error=handle)
    def find(order: str) -> str:
        """Find an order."""
        raise KeyError(order)

    response = run("await find('7')", find)
    assert "KeyError: '7'" in response.error


# -- names ----------------------------------------------------------------------------------


class TestNames:
    def test_tool_name_and_description_can_be_set(self, run, scripted_model):
        @tool(name="look_up", description="Finds it.", confirm=False)
        def search(query: str) -> str:
            """Not this.

            Args:
                query: Words.
            """
            return query.upper()

        assert run("print(await look_up('x'))", search).text == "X"
        assert "async def look_up(query: str) -> str:" in scripted_model.prompts[0]
        assert "Finds it." in scripted_model.prompts[0]
        assert "Not this" not in scripted_model.prompts[0]
        assert "query: Words." in scripted_model.prompts[0]


# -- at decoration --------------------------------------------------------------------------


def bare(x, y: int = 1, z=2):
    """No hints."""


def calls_back(x: int, then: list[typing.Callable[[int], int]]) -> None:
    """Takes a function."""


def foreign(x: asyncio.Event) -> None:
    """Take a type that no script can make."""


def misfit(x: int = "many") -> None:  # type: ignore[assignment]
    """Have a default of another type than its hint."""


def field(x: int = Field(3, ge=1)) -> int:
    """Have a Field for a default, as functions of FastAPI."""
    return x


class Desk:
    """A class whose methods may be tools, each with an object."""

    def look(self, x: int) -> int:
        """Look."""
        return x


def yields(x: int) -> Any:
    """Yield values as a generator."""
    yield x


async def ayields(x: int) -> Any:
    """Yield values as an async generator."""
    yield x


def iterates(x: int) -> Iterator[int]:
    """Return an iterator."""
    return iter(range(x))


class Yielding(Connection):
    """Have an action that yields."""

    @action(effect="read")
    async def rows(self) -> Any:
        """Yield rows."""
        yield 1


class CallingBack(Connection):
    """Have an action that takes a function."""

    @action(effect="read")
    async def find(self, then: Callable[[int], int]) -> int:
        """Find something."""
        return then(1)


async def later(error: Exception) -> str:
    return ""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool(calls_back), "takes a function as 'then'"),
        (lambda: tool(foreign), "a script cannot pass <class 'asyncio.locks.Event'>"),
        (lambda: tool(misfit), "the default of 'x', 'many', does not fit its type"),
        (lambda: tool(field), "the default of 'x' is a Field, which only a model replaces"),
        (lambda: tool(Desk.look), "look is a method without its object"),
        (lambda: tool(yields), "yields returns its result in pieces, and a script needs a"),
        (lambda: tool(ayields), "ayields returns its result in pieces"),
        (lambda: tool(iterates), "iterates returns its result in pieces"),
        (Yielding, "Yielding.rows returns its result in pieces"),
        (CallingBack, "CallingBack.find takes a function as 'then'"),
        (lambda: tool(handle_error=later)(bare), "handle_error of bare is async"),
    ],
    ids=range(11),
)
def test_uncallable_tool_is_refused_at_definition(make, message):
    with pytest.raises(ToolDefinitionError, match=message) as caught:
        make()
    assert caught.value.code == "ERR-TOOL-002"


def test_method_of_an_object_is_a_tool():
    assert repr(tool(Desk().look)) == "<tool look(x: int) -> int>"


def test_untyped_parameter_accepts_anything():
    assert repr(tool(bare)) == "<tool bare(x: Any, y: int = 1, z: Any = 2) -> Any>"


def test_unusual_defaults_are_accepted():
    @tool
    def fine(a: int = None, b: float = 1, c: Color = Color.RED, d: Any = object()) -> None:  # type: ignore[assignment]  # noqa: B008, RUF013
        """Fine."""

    assert fine.action.signature.startswith("(a: int = None, b: float = 1, c: ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "default" not in fine.action.schema()["properties"]["d"]


def test_tool_traceback_is_kept_as_cause_and_in_the_debug_log(
    delf_host: TestHost, scripted_model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(confirm=False)
    def divide(a: int) -> float:
        """Divide."""
        return a / 0

    caplog.set_level(logging.DEBUG, "delf_engine.calls")
    scripted_model.writes("await divide(1)")
    agent = Agent(tools=[divide], llm="scripted", host=delf_host, sandbox="local", retry_count=0)
    with agent:
        cause = agent.run("x").exception.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert traceback.extract_tb(cause.__traceback__)[-1].line == "return a / 0"
    (record,) = [item for item in caplog.records if item.message == "divide failed"]
    assert record.exc_info[1] is cause


def test_partials_methods_and_unusual_results_are_supported(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    class Shop:
        def find(self, name: str) -> Any:
            """Find a shop."""
            return self

        def __repr__(self) -> str:
            return "<the shop>"

    def add(a: int, b: int, *, c: int = 0) -> int:
        """Add numbers."""
        return a + b + c

    find = tool(confirm=False)(Shop().find)
    partial = tool(name="plus", confirm=False)(functools.partial(add, 1, c=5))
    assert str(partial.action.signature) == "(b: int) -> int"
    scripted_model.writes("print(await find('x'), await plus(2))")
    with Agent(tools=[find, partial], llm="scripted", host=delf_host, sandbox="local") as agent:
        response = agent.run("x")
    assert response.text == "<the shop> 8"
    assert [call.status for call in response.trace.tool_calls] == ["ok", "ok"]
    assert response.trace.warnings == ["find: passed as text: Shop"]


class Shop(Connection):
    """A shop."""

    @action(effect="write")
    async def refund(self, amount: int) -> str:
        """Refund."""
        raise ToolException("limit exceeded: at most 100")


@tool(confirm=False)
def refund(amount: int) -> str:
    """Refund."""
    raise ToolException("limit exceeded: at most 100")


@pytest.mark.parametrize(
    ("tool_", "name"), [(refund, "refund"), (Shop(confirm=False), "shop.refund")]
)
def test_refusal_is_not_reported_as_success(run, tool_, name):
    response = run(f"await {name}(500)\nprint('Refunded $500.')", tool_)
    assert response.text == f"{name} was refused: limit exceeded: at most 100"
    assert not response.changes
    assert response.trace.warnings == [f"{response.text}; the rest of the script was not done"]


def test_only_tool_exceptions_end_the_task_with_a_message(run):
    own = "try: await refund(500)\nexcept ToolError: pass\nraise ToolException('my own words')"
    other = "try: await refund(500)\nexcept ToolError: pass\nawait refund('five')"
    for code in (own, other):
        response = run(code, refund)
        assert not response.status
        assert "was refused: limit" not in response.text


async def test_plain_function_may_return_a_generator(make_agent, scripted_model):
    @tool(confirm=False)
    def lazily() -> object:
        """Give one after another."""
        return (n for n in range(3))

    scripted_model.writes("print(lazily())")
    async with make_agent(lazily) as agent:
        response = await agent.arun("Give them.")
    assert response.error is None
    assert "lazily: passed as text: generator" in response.trace.warnings


class Gone(ToolExecutionError):
    status = 404


class Response:
    status_code = 503


class Unavailable(Exception):
    response = Response()


class Odd(Exception):
    status = "lost"


@pytest.mark.parametrize(("error", "status"), [(Gone, 404), (Unavailable, 503), (Odd, None)])
def test_error_carries_the_http_status(make_agent, scripted_model, error, status):
    @tool(confirm=False)
    def fetch() -> str:
        """Fetch it."""
        raise error("no")

    code = "try:\n    await fetch()\nexcept ToolError as error:\n    print(error.status)"
    scripted_model.writes(code)
    response = make_agent(fetch).run("Go.").raise_for_status()
    assert response.text == str(status)
    (finished,) = [event for event in response.events if isinstance(event, CallFinished)]
    assert finished.http_status == status
