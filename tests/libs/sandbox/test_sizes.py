"""Tests that values from and to a guest have one size limit in every backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from delf import Agent, tool
from delf.events import CallStarted, ScriptFinished
from delf.protocols.sandbox import (
    MAX_MESSAGE,
    MAX_SCRIPT,
    Available,
    CallRequest,
    Crashed,
    Done,
    Failed,
    LimitReached,
    Raised,
    Rerun,
    SessionSpec,
)
from delf.specs import SandboxSpec, StrategySpec
from delf.testing import ScriptedModel, TestHost
from delf.values.encoding import (
    MAX_DEPTH,
    MAX_VALUES,
    TooLargeError,
    UnsupportedValueError,
    check_size,
)
from delf_engine.response import Response

HUGE = "x" * 5_000_000
WITHIN = 0.1


def shared(make: Callable[[Any], Any], levels: int = 40) -> Any:
    """Return nested values that share their parts: 2^40 values, if written out."""
    value: Any = make(0)
    for _ in range(levels):
        value = make(value)
    return value


def deep(levels: int, value: Any = 0) -> Any:
    for _ in range(levels):
        value = [value]
    return value


SHARED = deep(20)


class Node:
    """A record of somebody's own."""

    __dataclass_fields__ = {"left": None, "right": None}

    def __init__(self, inner: Any) -> None:
        self.left = self.right = inner


def cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


# -- values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (shared(lambda v: [v, v]), TooLargeError),
        (shared(lambda v: (v, v)), TooLargeError),
        (shared(lambda v: {"a": v, "b": v}), TooLargeError),
        (shared(lambda v: {"a": [v], "b": (v,)}), TooLargeError),
        (shared(Node), TooLargeError),
        (shared(lambda v: [v] * 1000, 4), TooLargeError),
        (shared(lambda v: [v, v, "x" * 1000], 20), TooLargeError),
        ([0] * (MAX_VALUES + 1), TooLargeError),
        (range(10**12), TooLargeError),
        ("x" * 2_000_000, TooLargeError),
        (deep(MAX_DEPTH + 1), UnsupportedValueError),
        (deep(1_000_000), UnsupportedValueError),
        (cycle(), UnsupportedValueError),
        ([SHARED, deep(MAX_DEPTH - 10, SHARED)], UnsupportedValueError),
    ],
    ids=[
        *(
            "lists",
            "tuples",
            "dicts",
            "mixed",
            "records",
            "wide",
            "letters",
            "long",
            "range",
            "text",
        ),
        *("deep", "very deep", "cycle", "deep at its second place"),
    ],
)
def test_oversized_value_is_refused_at_once(value: Any, error: type) -> None:
    start = time.process_time()
    with pytest.raises(error):
        check_size(value, 1_000_000)
    assert time.process_time() - start < WITHIN


@pytest.mark.parametrize(
    "value",
    [
        deep(MAX_DEPTH),
        shared(lambda v: [v, v], 15),
        [{"a": 1, "b": "text", "c": None}] * 10_000,
        {"x": (1, 2.5, b"bytes", {"s"})},
    ],
    ids=["deep", "shared", "rows", "mixed"],
)
def test_value_of_usual_size_is_accepted(value: Any) -> None:
    assert check_size(value, 1_000_000) is None


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), "x"], ids=["bytes", "bytearray", "text"])
def test_byte_of_a_single_value_does_not_count_as_a_value(value: Any) -> None:
    size = 1_000
    assert check_size(value * size, size, most_values=size // 2) is None
    with pytest.raises(TooLargeError):
        check_size(value * (size + 1), size)


class LazyTable(Mapping[int, list[int]]):
    """A mapping that makes each value anew, so that a value may get the id of an earlier one."""

    def __getitem__(self, key: int) -> list[int]:
        return [0] * (20 if key < 3 else 100_000)

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))

    def __len__(self) -> int:
        return 10


def test_values_that_are_made_on_access_count_separately() -> None:
    with pytest.raises(TooLargeError):
        check_size(LazyTable(), 1_000_000, most_values=300_000)


# -- what every backend tells ---------------------------------------------------------------


def test_sandbox_texts_are_cut_in_every_outcome() -> None:
    names = {f"{HUGE[:1000]}{n}": HUGE for n in range(500)}
    failed = Failed(kind=HUGE, message=HUGE, source=HUGE, variables=names)
    limit = LimitReached(limit=HUGE, message=HUGE, source=HUGE, variables=names)
    rerun = Rerun(context=HUGE, remaining=HUGE, carry=(HUGE,) * 500, variables=names)
    call = CallRequest(call_id=1, connection=HUGE, method=HUGE, args=(), kwargs={})
    for shown in (failed, limit, rerun, Crashed(message=HUGE), Done(variables=names), call):
        assert len(repr(shown)) < 150_000
    assert len(failed.message) == MAX_MESSAGE
    assert failed.message.endswith("…")


def test_sandbox_texts_with_lone_surrogates_can_be_encoded() -> None:
    failed = Failed(kind="\ud800", message="a\udfff", variables={"\ud83d": "\ude00"})
    assert repr(failed).encode()


class Hostile:
    """A third-party backend without any limits.

    Args:
        act: What a script does in it.
    """

    isolation = "process"
    alive = True

    def __init__(self, act: Callable[..., Any]) -> None:
        self._act = act
        self.answers: list[Any] = []

    async def available(self) -> Available:
        return Available()

    async def open(self, spec: SessionSpec) -> Hostile:
        return self

    async def execute(self, code: str, host: Any) -> Any:
        return await self._act(self, host)

    def visible_path(self, path: str) -> str:
        return path

    async def aclose(self) -> None:
        pass


@tool(effect="read")
def look(value: object = None) -> str:
    """Look."""
    return "seen"


async def run_in(act: Callable[..., Any]) -> tuple[Response, Hostile]:
    backend = Hostile(act)
    host, model = TestHost.discover(environ={}), ScriptedModel(default="```python\nx = 1\n```")
    host.provide(model.spec, model.factory)
    spec = SandboxSpec(name="hostile", summary=".", factory="x:y", isolation="process")
    host.provide(spec, lambda: backend)
    limits = {"output_bytes": 1_000_000}
    async with Agent(
        tools=[look], llm="scripted", host=host, sandbox="hostile", sandbox_config=limits
    ) as agent:
        return await agent.arun("Do it."), backend


async def prints(session: Hostile, host: Any) -> Any:
    for _ in range(200):
        host.printed("x" * 100_000)
        await asyncio.sleep(0)
    return Done()


async def returns(session: Hostile, host: Any) -> Any:
    return Done(value=shared(lambda v: [v, v]))


async def raises(session: Hostile, host: Any) -> Any:
    return Failed(kind=HUGE, message=HUGE, source=HUGE)


async def calls(session: Hostile, host: Any) -> Any:
    for args, kwargs in (
        ((shared(lambda v: [v, v]),), {}),
        ((), {"value": deep(100_000)}),
        ((cycle(),), {}),
    ):
        request = CallRequest(
            call_id=len(session.answers), connection="look", method="", args=args, kwargs=kwargs
        )
        start = time.process_time()
        session.answers.append(await host.call(request))
        assert time.process_time() - start < WITHIN
    return Done(value="over")


@pytest.mark.parametrize("act", [prints, returns, raises, calls])
async def test_misbehaving_backend_cannot_flood_a_task(act: Callable[..., Any]) -> None:
    response, backend = await run_in(act)
    assert len(repr(response.events)) < 5_000_000
    if act is prints:
        finished = next(event for event in response.events if isinstance(event, ScriptFinished))
        assert (finished.status, finished.limit) == ("limit", "output")
    if act is calls:
        assert [type(answer) for answer in backend.answers] == [Raised] * 3
        assert not any(isinstance(event, CallStarted) for event in response.events)


# -- scripts -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["local", "monty"])
@pytest.mark.parametrize(
    "code",
    [
        "x=1\n" * 1_000_000,
        "x=1;" * 500_000,
        "x=[" + "1," * 2_000_000 + "]",
        "f'" + "{1}" * 200_000 + "'",
        "x=" + "-" * 200_000 + "1",
        "#" * (MAX_SCRIPT + 1),
    ],
    ids=["lines", "statements", "list", "fields", "deep", "comment"],
)
async def test_oversized_script_is_not_parsed(sandbox: str, code: str) -> None:
    host, model = TestHost.discover(environ={}), ScriptedModel()
    host.provide(model.spec, model.factory)
    model.says(f"```python\n{code}\n```", "```python\n'short'\n```")
    async with Agent(tools=[look], llm="scripted", host=host, sandbox=sandbox) as agent:
        response = await agent.arun("Do it.")
    assert response.text == "short"
    assert "more than 131,072 letters are not run" in model.prompts[1]
    assert len(model.prompts[1]) < 10_000


@pytest.mark.parametrize("sandbox", ["local", "monty"])
async def test_oversized_script_of_a_strategy_is_refused(sandbox: str) -> None:
    host, model = TestHost.discover(environ={}), ScriptedModel()
    host.provide(model.spec, model.factory)
    outcomes: list[Any] = []

    class OfItsOwn:
        async def solve(self, host: Any) -> Any:
            for code in ("x=1\n" * 1_000_000, "1 + 1"):
                start = time.process_time()
                outcomes.append((await host.execute(code)).outcome)
                assert time.process_time() - start < 3 * WITHIN or outcomes[1:]
            return "over"

    host.provide(StrategySpec(name="own", summary=".", factory="x:y"), OfItsOwn)
    async with Agent(llm="scripted", host=host, sandbox=sandbox, strategy="own") as agent:
        await agent.arun("Do it.")
    assert [type(outcome) for outcome in outcomes] == [LimitReached, Done]
    assert outcomes[0].limit == "script"


@pytest.mark.parametrize("sandbox", ["local", "monty"])
@pytest.mark.parametrize(
    "make", ["[a, a]", "(a, a)", "{'x': a, 'y': a}"], ids=["list", "tuple", "dict"]
)
async def test_oversized_shared_arguments_are_refused_at_once(sandbox: str, make: str) -> None:
    host, model = TestHost.discover(environ={}), ScriptedModel()
    host.provide(model.spec, model.factory)
    model.writes(f"""
import time
a = 0
for _ in range(40):
    a = {make}
start = time.process_time()
try:
    await look(a)
except ToolArgumentError as error:
    print(time.process_time() - start < {5 * WITHIN}, error)
""")
    async with Agent(tools=[look], llm="scripted", host=host, sandbox=sandbox) as agent:
        response = await agent.arun("Do it.")
    assert response.text.startswith("True")
    assert "more than 5,000,000 values" in response.text
