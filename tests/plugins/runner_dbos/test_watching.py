"""New items of a watched call, and the calls that can be watched."""

from __future__ import annotations

import pytest

from delf import Agent, tool
from delf.errors import ConfigurationError, DelfError
from delf_runner_dbos.watching import compare_items, items_of, truncate_item

FIRST = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


@pytest.mark.parametrize(
    ("items", "id_field", "new"),
    [
        (FIRST, None, []),
        ([{"id": "c", "n": 3}, *FIRST], None, [{"id": "c", "n": 3}]),
        ([{"id": "a", "n": 9}, FIRST[1]], None, []),
        ([{"id": "a", "n": 9}, FIRST[1]], "n", [{"id": "a", "n": 9}]),
        ([FIRST[1]], None, []),
        ([], None, []),
        (["x", *FIRST], None, ["x"]),
        ([{"id": None, "n": 5}, *FIRST], None, [{"id": None, "n": 5}]),
        ([{"id": "c"}, {"id": "c"}, *FIRST], None, [{"id": "c"}]),
    ],
)
def test_watch_finds_new_items(items, id_field, new):
    before = compare_items(FIRST, id_field, None)
    assert before.new == []
    look = compare_items(items, id_field, before.seen)
    assert [item for _, item in look.new] == new
    assert compare_items(items, id_field, look.seen).new == []


def test_watched_item_that_comes_back_is_not_new():
    seen = compare_items([], None, compare_items(FIRST, None, None).seen).seen
    assert compare_items(FIRST, None, seen).new == []


def test_watch_warns_that_more_items_may_have_come():
    seen = compare_items(FIRST, None, None).seen
    assert "more may have come" in (compare_items([{"id": 7}, {"id": 8}], None, seen).note or "")
    assert compare_items([{"id": 7}, *FIRST], None, seen).note is None


def test_watch_returns_at_most_a_hundred_items_at_a_time():
    seen = compare_items([], None, None).seen
    items = [{"id": n} for n in range(250)]
    found = []
    for _ in range(4):
        look = compare_items(items, None, seen)
        seen = look.seen
        found.append(len(look.new))
    assert found == [100, 100, 50, 0]


def test_watch_refuses_items_without_the_id_field():
    with pytest.raises(ConfigurationError, match="no item has a field 'number'"):
        compare_items(FIRST, "number", None)


def test_item_without_the_id_field_does_not_hide_others():
    seen = compare_items(FIRST, "n", None).seen
    odd, new = {"id": "odd"}, {"id": "c", "n": 3}
    look = compare_items([new, odd, *FIRST], "n", seen)
    assert [item for _, item in look.new] == [new, odd]
    assert compare_items([new, odd, *FIRST], "n", look.seen).new == []


def test_watch_shortens_a_long_item():
    item = {"id": 1, "text": "x" * 50_000, "rows": list(range(3))}
    short = truncate_item(item)
    assert short["id"] == 1
    assert short["rows"] == [0, 1, 2]
    assert short["text"].endswith("… (50,000 characters)")
    assert len(repr(truncate_item(list(range(100_000))))) < 41_000


@tool(effect="read", confirm=False)
def orders(state: str = "new") -> list[dict]:
    """Orders."""
    return [{"id": 1, "state": state}]


@tool(effect="read", confirm=False)
def page() -> dict:
    """A page of orders."""
    return {"orders": [{"id": 2}], "next": None}


@tool(effect="read", confirm=False)
def total() -> int:
    """A number."""
    return 7


@tool(effect="read")
def private() -> list:
    """A list that a person has to allow."""
    return []


@tool(effect="write", confirm=False)
def take() -> list:
    """Take orders."""
    raise AssertionError("a change was made")


async def watched(delf_host, call):
    tools = [orders, page, total, private, take]
    options = {"strategy": "one-call", "approval_mode": "strict", "journal": "none"}
    async with Agent(tools=tools, llm="scripted", host=delf_host, **options) as agent:
        return await items_of(agent, call)


@pytest.mark.parametrize(
    ("call", "items"),
    [
        ('orders(state="paid")', [{"id": 1, "state": "paid"}]),
        ("orders()", [{"id": 1, "state": "new"}]),
        ("page()", [{"id": 2}]),
    ],
)
async def test_watch_reads_a_list_or_the_list_in_a_record(delf_host, scripted_model, call, items):
    assert await watched(delf_host, call) == items
    assert scripted_model.requests == []


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("take()", "take changes something"),
        ("gone()", "there is no tool 'gone'"),
        ("total()", "returns no list of items"),
        ("private()", "needs approval, and nobody is asked"),
        ("orders(nothing=1)", "nothing"),
        ("orders('x')", "is not a call with values"),
        ("orders(state=name)", "is not a call with values"),
        ("import os", "is not a call with values"),
        ("orders(**{'state': 'x'})", "is not a call with values"),
        ("orders(state='x', state='y')", "is not a call with values"),
        ("orders(state={[1]: 2})", "is not a call with values"),
    ],
)
async def test_watch_refuses_an_unsuitable_call(delf_host, scripted_model, call, problem):
    with pytest.raises(DelfError, match=problem):
        await watched(delf_host, call)


async def test_number_with_the_digits_of_a_secret_fails_the_watch(
    delf_host, scripted_model, monkeypatch
):
    monkeypatch.setenv("SHOP_TOKEN", "4711471147")

    @tool(effect="read", confirm=False)
    def numbers() -> list[int]:
        """Return numbers."""
        return [47114711478]

    options = {"strategy": "one-call", "approval_mode": "strict", "journal": "none"}
    async with Agent(tools=[numbers], llm="scripted", host=delf_host, **options) as agent:
        with pytest.raises(DelfError, match="a number in it has the digits of a secret"):
            await items_of(agent, "numbers()")
