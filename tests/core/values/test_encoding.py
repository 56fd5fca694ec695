import collections
import dataclasses
import datetime as dt
import decimal
import enum
import io
import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time
import uuid
from typing import NamedTuple

import pydantic
import pytest

from delf.values.encoding import (
    UnsupportedValueError,
    dumps,
    estimate_size,
    from_jsonable,
    loads,
    to_jsonable,
)

ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))

EXACT = [
    None,
    True,
    0,
    -(2**80),
    0.1,
    math.inf,
    "",
    "a\u0000b é 😀 \u2028",
    "\ud800 a lone surrogate",
    [],
    [1, [2, [3]]],
    {},
    {"a": {"b": [None]}},
    {"$t": "datetime", "v": "not one"},
    {"$t": None},
    {1: "a", None: "b", (1, 2): "c", "d": 4},
    {True: 1, "True": 2},
    (),
    (1, (2, [3])),
    {1, 2, 3},
    frozenset({"a"}),
    {frozenset({1}), frozenset({2})},
    b"",
    b"\x00\xff",
    dt.datetime(2024, 2, 29, 12, 30, 1, 5),
    dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
    dt.datetime(2024, 2, 29, tzinfo=ZONE),
    dt.date(2024, 2, 29),
    dt.time(1, 2, 3, tzinfo=ZONE),
    dt.timedelta(days=-1, microseconds=3),
    decimal.Decimal("1.10"),
    decimal.Decimal("-Infinity"),
    decimal.Decimal("9.99E+6144"),
    decimal.Decimal("-1E-6144"),
    uuid.UUID(int=7),
    pathlib.Path("a/b"),
    complex(1, -2),
]


@pytest.mark.parametrize("value", EXACT, ids=range(len(EXACT)))
def test_value_round_trips_through_encoding(value):
    back = loads(dumps(value))
    assert back == value
    assert type(back) is type(value)
    again = from_jsonable(json.loads(json.dumps(to_jsonable(value))))
    assert again == value
    assert type(again) is type(value)


def test_nan_survives_encoding():
    assert math.isnan(loads(dumps(math.nan)))


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int
    when: dt.date


class Model(pydantic.BaseModel):
    x: int
    inner: dict[str, dt.date]


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Text("a"), "a"),
        (Point(1, dt.date(2024, 1, 1)), {"x": 1, "when": dt.date(2024, 1, 1)}),
        (
            Model(x=1, inner={"d": dt.date(2024, 1, 1)}),
            {"x": 1, "inner": {"d": dt.date(2024, 1, 1)}},
        ),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(int, {1: 2}), {1: 2}),
        (collections.deque([1, 2]), [1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        (range(3), [0, 1, 2]),
        (Pair(1, 2), (1, 2)),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
    ],
    ids=range(14),
)
def test_rich_values_become_plain(value, plain):
    back = loads(dumps(value))
    assert back == plain
    assert type(back) is type(plain)


class Shade(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize("key", [Text("red"), Shade.RED], ids=["subclass", "enumeration"])
def test_string_subclass_keys_become_plain_text(key):
    assert to_jsonable({key: 1}) == {"red": 1}
    assert type(next(iter(to_jsonable({key: 1})))) is str


def test_named_tuples_become_records_on_request():
    value = [Pair(1, Pair(2, 3)), {Pair(1, 2): 3}]
    assert loads(dumps(value)) == [(1, (2, 3)), {(1, 2): 3}]
    assert loads(dumps(value, named=True)) == [{"a": 1, "b": {"a": 2, "b": 3}}, {(1, 2): 3}]
    assert loads(dumps(value)) == [(1, (2, 3)), {(1, 2): 3}]


@pytest.mark.parametrize(
    "value",
    [object(), lambda: 1, len, Point, json, (x for x in ()), 10**5000, {10**5000, "a"}],
    ids=lambda value: type(value).__name__,
)
def test_non_data_value_is_refused(value):
    for wrapped in (value, [value], {"a": {"b": value}}, {1: value}):
        with pytest.raises(UnsupportedValueError):
            dumps(wrapped)


@dataclasses.dataclass(frozen=True)
class Key:
    x: int


def test_set_of_records_becomes_a_list():
    assert loads(dumps({Key(1)})) == [{"x": 1}]
    assert loads(dumps({(1, Key(1))})) == [(1, {"x": 1})]
    assert loads(dumps({"a": [1]}.items())) == [("a", [1])]
    assert loads(dumps({frozenset({Key(1)})})) == [[{"x": 1}]]


SETS = """
import datetime as dt
from delf.values.encoding import dumps
words = [f"word {n}" for n in range(40)]
print(*map(dumps, [
    set(words),
    frozenset(words),
    {1, True, 2.5, None, "a", b"b", dt.date(2024, 1, 2), *words},
    {(n, word) for n, word in enumerate(words)},
    {(n, frozenset(words[n:]), (frozenset(words),)) for n in range(5)},
    {frozenset(words[n:]) for n in range(9)} | {frozenset({frozenset(words)})},
]))
"""


def test_encoded_set_is_the_same_in_every_process():
    """Hashes of texts differ between processes, and a call is known by its encoded arguments."""
    written = [
        subprocess.run(
            [sys.executable, "-c", SETS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    ]
    assert written[0].startswith(b"b'")
    assert written[0] == written[1] == written[2]


def test_equal_sets_are_encoded_equally():
    assert [*{8, 0}] != [*{0, 8}]
    assert dumps({8, 0}) == dumps({0, 8})
    assert dumps({(8,), 0.5, 8, 0}) == dumps({0, 8, 0.5, (8,)})


def test_record_as_a_key_is_refused():
    for key in (Key(1), (1, Key(1))):
        with pytest.raises(UnsupportedValueError, match="keys of type"):
            dumps({key: 1})


def test_refusal_names_the_type():
    with pytest.raises(UnsupportedValueError, match="type function cannot be passed"):
        dumps(lambda: 1)
    with pytest.raises(UnsupportedValueError, match=r"open file .*; pass what its read\(\) gives"):
        dumps({"file": io.BytesIO(b"x")})


def test_cyclic_or_deep_value_is_refused():
    loop: list = []
    loop.append(loop)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(UnsupportedValueError, match="nested too deeply"):
            dumps(value)
        with pytest.raises(UnsupportedValueError, match="nested too deeply"):
            to_jsonable(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        "[" * 200_000,
        "1" * 5000,
        '{"$t": "nope", "v": 1}',
        '{"$t": 3, "v": 1}',
        '{"$t": ["tuple"], "v": []}',
        '{"$t": "tuple"}',
        '{"$t": "tuple", "v": 3}',
        '{"$t": "set", "v": [[]]}',
        '{"$t": "uuid", "v": 3}',
        '{"$t": "uuid", "v": "x"}',
        '{"$t": "uuid", "v": null}',
        '{"$t": "decimal", "v": "x"}',
        '{"$t": "decimal", "v": {}}',
        '{"$t": "bytes", "v": "é"}',
        '{"$t": "bytes", "v": 3}',
        '{"$t": "datetime", "v": 3}',
        '{"$t": "date", "v": "2024-13-01"}',
        '{"$t": "timedelta", "v": 1e300}',
        '{"$t": "timedelta", "v": "x"}',
        '{"$t": "path", "v": 3}',
        '{"$t": "complex", "v": "ab"}',
        '{"$t": "complex", "v": null}',
        '{"$t": "dict", "v": [[1]]}',
        '{"$t": "dict", "v": [[[], 1]]}',
        '{"$t": "dict", "v": {"ab": 1}, "$x": 1}',
    ],
    ids=lambda text: text[:40],
)
def test_hostile_bytes_raise_only_value_error(text):
    try:
        value = loads(text.encode())
    except ValueError:
        return
    assert value == {"a": "b"}


@pytest.mark.parametrize("text", ["1E6145", "-1E100000000", "1E-6145", "0E+999999999", "9" * 6_146])
def test_huge_decimal_is_refused_in_both_directions(text):
    """Converting such a decimal to ``int``, as for an argument of that type, would take minutes."""
    with pytest.raises(ValueError, match="malformed decimal"):
        loads(json.dumps({"$t": "decimal", "v": text}).encode())
    with pytest.raises(UnsupportedValueError, match="beyond 1E±6144"):
        dumps(decimal.Decimal(text))


def test_refusal_of_decimal_with_too_many_digits_names_their_number():
    with pytest.raises(UnsupportedValueError, match="a Decimal of more than 10,000 characters"):
        dumps(decimal.Decimal(f"0.{'1' * 10_000}"))


@pytest.mark.parametrize(
    "parts",
    [5, 1.5, "1." + "0" * 10_000, {"$t": "tuple", "v": [0, {"$t": "tuple", "v": [1]}, 99_999_999]}],
    ids=["int", "float", "long", "parts"],
)
def test_decimal_tag_without_short_text_is_refused(parts):
    with pytest.raises(ValueError, match="malformed decimal"):
        from_jsonable({"$t": "decimal", "v": parts})


def test_non_utf8_bytes_are_refused():
    with pytest.raises(ValueError, match="codec can't decode"):
        loads(b"\xff\xfe")


def test_random_documents_raise_only_value_error():
    dice = random.Random(7)
    tags = [
        "tuple",
        "datetime",
        "date",
        "time",
        "timedelta",
        "decimal",
        "bytes",
        "set",
        "frozenset",
    ]
    tags += ["uuid", "path", "complex", "dict", "other", 3, None, []]

    def make(depth):
        kind = dice.randrange(8 if depth else 5)
        if kind == 0:
            return dice.choice([None, True, -1, 1.5, 10**30, 1e308])
        if kind <= 4:
            return dice.choice(["", "x", "2024-01-01", "1.5", "\x00", "é", "00" * 16])
        if kind == 5:
            return [make(depth - 1) for _ in range(dice.randrange(3))]
        if kind == 6:
            return {dice.choice("ab"): make(depth - 1)}
        return {"$t": dice.choice(tags), "v": make(depth - 1)}

    outcomes = collections.Counter()
    for _ in range(5000):
        document = make(4)
        for decode in (lambda d: loads(json.dumps(d).encode()), from_jsonable):
            try:
                decode(document)
            except ValueError:
                outcomes["refused"] += 1
            else:
                outcomes["read"] += 1
    assert outcomes["read"] > 1000 < outcomes["refused"]


@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
def test_colliding_keys_are_refused(tag):
    """Building a set of n keys with one hash takes n² steps, and a frame can contain many sets."""
    keys = [number * (2**61 - 1) for number in range(41)]
    items = [[key, 0] for key in keys] if tag == "dict" else keys
    with pytest.raises(ValueError, match="malformed"):
        from_jsonable({"$t": tag, "v": items})


@pytest.mark.parametrize("tag", ["set", "frozenset"])
@pytest.mark.slow
def test_set_with_slow_ordering_is_refused_at_once(tag):
    """The process can do nothing else meanwhile, and a guest chooses the set's content."""
    inner = [{"$t": "frozenset", "v": [n]} for n in range(100_000)]
    began = time.process_time()
    with pytest.raises(ValueError, match="malformed"):
        loads(json.dumps({"$t": tag, "v": inner}).encode())
    kind = {"set": set, "frozenset": frozenset}[tag]
    with pytest.raises(UnsupportedValueError, match="pass it as a list"):
        dumps(kind((n, str(n)) for n in range(100_000)))
    assert time.process_time() - began < 3


@pytest.mark.slow
def test_large_sets_and_dicts_are_accepted():
    value = {
        "s": set(range(500_000)),
        "p": {(n, -n) for n in range(20_000)},
        "d": {(n, -n): n for n in range(5_000)},
    }
    assert loads(dumps(value)) == value


def test_accidental_hash_collisions_are_accepted():
    """-1 and -2 have the same hash, so many points around them collide, but few with each other."""
    cells = set(itertools.product(range(-30, 30), repeat=2))
    corners = dict.fromkeys(itertools.product(range(-2, 2), repeat=4), 0)
    assert len(cells) - len({hash(cell) for cell in cells}) > 100
    assert loads(dumps([cells, corners])) == [cells, corners]


def test_powers_of_two_are_accepted_despite_equal_hashes():
    powers = {2**k for k in range(1_001)}
    assert loads(dumps(powers)) == powers
    assert loads(dumps(dict.fromkeys(powers, 1))) == dict.fromkeys(powers, 1)


class Endless:
    """A collection that claims one member, and yields members endlessly."""

    def __len__(self):
        return 1

    def __iter__(self):
        return itertools.repeat(1)

    def __contains__(self, item):
        return item == 1


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        (None, 32),
        (7, 32),
        ("y" * 100, 132),
        (b"x" * 100, 132),
        ([1, 2, 3], 4 * 32),
        ({"ab": [1, "cde"]}, 5 * 32 + 5),
        ({1, 2}, 3 * 32),
        (Point(1, 2), 3 * 32),
        (Endless(), 2 * 32),
        ([[[]]], 3 * 32),
    ],
)
def test_weight_estimates_the_size_of_a_value(value, bytes_):
    assert estimate_size(value, 10_000) == bytes_


def test_weight_counts_shared_values_at_each_place():
    row = ["x" * 1000] * 10
    assert estimate_size([row] * 10, 1_000_000) > 100_000


def test_weight_stops_counting_above_the_limit():
    itself = [1]
    itself.append(itself)
    assert 10_000 < estimate_size(itself, 10_000) < 11_000
    assert estimate_size(range(10**12), 10_000) > 10_000
    assert estimate_size([range(10**12)] * 3, 10_000) > 10_000


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: {"at": [v]}, lambda v: {v: 1}], ids=["bare", "inside", "key"]
)
def test_encoding_keeps_the_fold_of_a_time(wrap, fold: int) -> None:
    """Times that occur twice, such as 02:30 when clocks are put back: ``==`` sees no difference."""
    twice = (dt.datetime(2026, 10, 25, 2, 30, fold=fold), dt.time(2, 30, fold=fold))
    for value in twice:
        back = loads(dumps(wrap(value)))
        assert (back, repr(back)) == (wrap(value), repr(wrap(value)))


def test_duration_beyond_float_precision_is_encoded_exactly() -> None:
    for value in (dt.timedelta(days=999_999, microseconds=1), dt.timedelta.max, dt.timedelta.min):
        assert loads(dumps(value)) == value
