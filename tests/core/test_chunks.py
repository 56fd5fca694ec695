"""Large values are encoded in chunks, which together are what they are encoded to at once."""

import asyncio
import dataclasses
import datetime as dt
import decimal
import random

import pytest

from delf.chunks import dump_chunks, in_turns, is_large
from delf.values import UnsupportedValueError, dumps

SLICE = 180_000


@dataclasses.dataclass
class Row:
    number: int
    name: str


LARGE = {
    "text": "y" * 2_000_000,
    "text with escapes": 'ü"\\\n\ud800' * 300_000,
    "bytes": b"\0\xff1" * 700_001,
    "numbers": list(range(100_000)),
    "rows": [{"id": i, "name": f"row {i}", "price": i * 1.5} for i in range(20_000)],
    "records": [Row(i, "n") for i in range(20_000)],
    "tuple": tuple((i, "x") for i in range(10_000)),
    "dict": {f"key {i}": [i, None, True] for i in range(20_000)},
    "keys that are no texts": {i: i for i in range(20_000)},
    "what looks like a tag": {"$t": "datetime", "v": ["x"] * 20_000},
    "large in small in large": [1, {"a": "x" * 1_000_000, "b": [b"y" * 1_000_000] * 3}, 2] * 2,
    "set": set(range(20_000)),
    "set of texts": frozenset(f"text {n}" for n in range(100_000)),
    "set of several kinds": {*range(10_000), *map(str, range(10_000))},
    "sets in a list": [{"b", "a", n, 0.5, frozenset({n, "c"})} for n in range(5_000)],
    "mixed": [[], {}, (), "", b"", None, dt.date(2020, 1, 2), decimal.Decimal(1)] * 5_000,
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_the_chunks_are_together_what_it_is_encoded_to_at_once(value):
    assert is_large(value) or isinstance(value, (set, frozenset))
    assert (b"".join(dump_chunks(value)) == dumps(value)) is True


@pytest.mark.slow
def test_the_same_for_values_of_any_shape():
    chance = random.Random(7)

    def make(levels):
        kind = chance.randrange(12)
        if not levels or kind < 5:
            leaves = [
                1,
                2.5,
                None,
                "x" * chance.randrange(900_000),
                b"q" * chance.randrange(900_000),
            ]
            return chance.choice([*leaves, {1: 2}, {"$t": "x"}, dt.datetime(2020, 1, 2)])
        count = chance.choice([0, 1, 3, 10])
        if kind < 8:
            return [make(levels - 1) for _ in range(count)]
        if kind < 9:
            return tuple(make(levels - 1) for _ in range(count))
        return {f"k{i}": make(levels - 1) for i in range(count)}

    cut = 0
    for _ in range(60):
        value = make(4)
        chunks = list(dump_chunks(value))
        assert (b"".join(chunks) == dumps(value)) is True
        cut += len(chunks) > 1
    assert cut > 10


@pytest.mark.parametrize("value", [5, "text", [1, 2], {"a": [1] * 100}, b"", None, Row(1, "a")])
def test_a_small_value_is_one_chunk(value):
    assert not is_large(value)
    assert list(dump_chunks(value)) == [dumps(value)]


def test_no_chunk_of_a_large_value_is_large():
    assert max(map(len, dump_chunks(LARGE["rows"]))) < 300_000
    assert max(map(len, dump_chunks(LARGE["text"]))) <= SLICE


@pytest.mark.parametrize("wrap", [list, lambda items: {"a": items}, tuple])
def test_what_cannot_be_passed_is_an_error_when_its_turn_comes(wrap):
    value = wrap(["x" * 1_000_000, object()])
    with pytest.raises(UnsupportedValueError, match="type object"):
        list(dump_chunks(value))


def test_a_value_that_contains_itself_is_an_error():
    value = ["x" * 1_000_000]
    value += [value, value]
    with pytest.raises(UnsupportedValueError, match="contains itself"):
        list(dump_chunks(value))


def test_a_value_nested_too_deeply_is_an_error():
    value = "x" * 1_000_000
    for _ in range(100_000):
        value = [value]
    with pytest.raises(UnsupportedValueError, match="nested too deeply"):
        list(dump_chunks(value))


def test_what_lies_across_a_cut_is_seen_in_one_piece():
    secret = "a-secret-of-20-chars"
    text = "y" * (SLICE - 10) + secret + "y" * SLICE
    seen = []

    def encode(part):
        seen.append(part)
        return dumps(part)

    assert b"".join(dump_chunks([text], encode)) == dumps([text])
    assert not any(secret in part for part in seen if isinstance(part, str))
    assert b"".join(dump_chunks([text], encode, len(secret))) == dumps([text])
    assert any(secret in part for part in seen if isinstance(part, str))


# -- turns --------------------------------------------------------------------------------


def work(steps=50):
    """Takes some milliseconds, in steps."""
    for number in range(steps):
        sum(range(20_000))
        yield number


async def test_others_have_their_turns_meanwhile():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    assert await in_turns(work()) == list(range(50))
    assert turns > 1
    running.cancel()


async def test_a_cancellation_stops_the_work():
    done = []
    task = asyncio.create_task(in_turns(map(done.append, work(10_000))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(done) < 10_000


async def test_a_cancellation_that_waits_is_not_lost_where_the_work_fails():
    def failing():
        yield from work(200)
        raise ValueError("too large")

    async def whole():
        with pytest.raises(ValueError, match="too large"):
            await in_turns(failing(), to_its_end=True)
        await asyncio.sleep(0)

    task = asyncio.create_task(whole())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_others_have_their_turns_after_it_was_cancelled_too():
    turns = []
    task = asyncio.create_task(in_turns(work(300), to_its_end=True))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    while not task.done():
        turns.append(1)
        await asyncio.sleep(0)
    assert len(turns) > 3
    assert task.cancelling() == 2


async def test_or_waits_until_it_is_done():
    reached = []

    async def whole():
        reached.append(await in_turns(work(200), to_its_end=True))
        await asyncio.sleep(0)
        reached.append("further")

    task = asyncio.create_task(whole())
    await asyncio.sleep(0)
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task
    assert reached == [list(range(200))]
    assert task.cancelling() == 1
