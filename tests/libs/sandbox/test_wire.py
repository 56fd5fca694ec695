import contextlib
import datetime as dt
import decimal
import json
import tracemalloc
import uuid
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delf.protocols.sandbox import (
    CallRequest,
    Raised,
    Returned,
    ScriptStart,
    SessionSpec,
    ToolNames,
)
from delf.values.encoding import dumps, loads, to_jsonable_or_repr
from delf_sandbox.guest.frames import FrameReader, FrameTooLargeError, encode, frame_around
from delf_sandbox.wire import (
    WireError,
    answer_frame,
    exec_frame,
    init_frame,
    parse,
    parse_call,
    parse_outcome,
    size_in_memory,
)
from support.busy import on_busy_machines

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    text,
    st.binary(),
    st.dates(),
    st.datetimes(timezones=st.none() | st.just(dt.UTC)).map(lambda d: d.replace(fold=0)),
    st.times().map(lambda t: t.replace(fold=0)),
    st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5)).map(
        lambda d: dt.timedelta(seconds=d.total_seconds())
    ),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.complex_numbers(allow_nan=False),
)
keys = st.one_of(text, st.integers(), st.dates(), st.tuples(st.integers(), text))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=5),
        st.frozensets(st.integers() | text, max_size=5),
        st.sets(st.decimals(allow_nan=False) | st.uuids(), max_size=5),
    ),
    max_leaves=20,
)


def types_in(value):
    match value:
        case list() | tuple():
            return [type(value), *map(types_in, value)]
        case dict():
            return [[types_in(key), types_in(item)] for key, item in value.items()]
        case set() | frozenset():
            return [type(value), len(value)]
        case _:
            return type(value)


@on_busy_machines
@given(values)
def test_values_round_trip(value):
    frame = loads(encode(["return", 1, value], 2**30)[4:])
    assert frame == ["return", 1, value]
    assert types_in(frame[2]) == types_in(value)
    assert parse(dumps(["done", value, {}]))[1] == value


@on_busy_machines
@given(st.lists(values, max_size=3), st.dictionaries(text, values, max_size=3))
def test_call_frame_round_trips(args, kwargs):
    payload = dumps(["call", 7, "shop", "find", args, kwargs, False, 0])
    assert parse_call(parse(payload)) == CallRequest(
        call_id=7, connection="shop", method="find", args=args, kwargs=kwargs
    )


@on_busy_machines
@given(st.lists(st.binary(max_size=50), max_size=20), st.data())
@pytest.mark.slow
def test_frames_are_reassembled_from_any_chunks(payloads, data):
    stream = b"".join(len(p).to_bytes(4, "big") + p for p in payloads)
    reader = FrameReader(50)
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == payloads


@on_busy_machines
@given(st.binary(max_size=300))
def test_invalid_bytes_raise_only_protocol_errors(data):
    try:
        parsed = [parse(payload) for payload in FrameReader(100).feed(data)]
    except (FrameTooLargeError, WireError):
        return
    assert all(isinstance(frame, list) for frame in parsed)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text() | st.just("$t"), inner, max_size=4)
    ),
)
names = st.sampled_from(["call", "done", "failed", "limit", "rerun"])


@settings(on_busy_machines, max_examples=40)  # each is large, and takes 0.1 s to make
@given(st.builds(lambda name, rest: [name, *rest], names, st.lists(junk, max_size=7)))
@pytest.mark.slow
def test_invalid_fields_raise_only_protocol_errors(frame):
    try:
        parsed = parse(json.dumps(frame).encode())
        made = (parse_call if parsed[0] == "call" else parse_outcome)(parsed)
    except WireError:
        return
    assert made is not None


@pytest.mark.parametrize("value", [object(), lambda: 1, {"a": [object()]}, (i for i in ())])
def test_result_of_an_unknown_type_becomes_an_error(value):
    (data,) = answer_frame(3, Returned(value), 2**20)
    frame = loads(data[4:])
    assert frame[:3] == ["raise", 3, "ToolError"]
    assert "cannot be passed" in frame[3]


def test_result_that_contains_itself_becomes_an_error():
    value: list = []
    value.append(value)
    (data,) = answer_frame(3, Returned(value), 2**20)
    assert b"contains itself" in data


def test_encoded_result_is_sent_unchanged():
    value = {"a": [1, dt.date(2020, 1, 2)]}
    plain = answer_frame(3, Returned(value), 2**20)
    encoded = answer_frame(3, Returned(None, dumps(value)), 2**20)
    assert b"".join(encoded) == b"".join(plain)


@pytest.mark.parametrize(
    "answer", [Returned("x" * 5_000), Returned(None, b'"' + b"x" * 5_000 + b'"')]
)
def test_result_that_is_too_large_becomes_an_error(answer):
    (data,) = answer_frame(3, answer, 1_000)
    frame = loads(data[4:])
    assert frame[:3] == ["raise", 3, "ToolError"]
    assert "too large" in frame[3]


def test_oversized_error_is_shortened_to_answer_the_call():
    (data,) = answer_frame(3, Raised("ToolError", "x" * 5_000), 1_000)
    assert loads(data[4:])[:3] == ["raise", 3, "ToolError"]


def test_frame_size_limit_is_exact():
    assert len(encode(["print", "x" * 10], 22)) == 26
    with pytest.raises(FrameTooLargeError, match="22 bytes, and at most 21"):
        encode(["print", "x" * 10], 21)
    with pytest.raises(FrameTooLargeError):
        frame_around(b'["return",1,', b'"xxxxxxxxx"', 20)


def test_init_and_exec_frames_have_the_documented_form():
    spec = SessionSpec(
        tools=(ToolNames(name="a", methods=("x",)), ToolNames(name="f")), modules=("re",)
    )
    kind, content = loads(init_frame(spec, "/s", ["/data"], {"a.csv": "/data/a.csv"})[4:])
    assert kind == "init"
    assert content["tools"] == [["a", ["x"], []], ["f", [], []]]
    assert content["scratch"] == "/s"
    assert content["readable"] == ["/data"]
    assert content["links"] == {"a.csv": "/data/a.csv"}
    assert content["limits"]["frame_bytes"] == spec.limits.frame_bytes
    assert loads(exec_frame(2, "print(1)", 100)[4:]) == ["exec", 2, "print(1)", None]
    start = ScriptStart(seed="s", clock=(7,), turns=(1, 0))
    assert loads(exec_frame(2, "1", 100, start)[4:]) == ["exec", 2, "1", ["s", [7], [1, 0]]]


def test_special_values_are_decoded_as_plain_types():
    sent = [PurePath("a/b"), uuid.UUID(int=1), decimal.Decimal("1.10"), range(3), bytearray(b"x")]
    assert [str(loads(dumps(sent))[0]), *loads(dumps(sent))[1:]] == [
        "a/b",
        *sent[1:3],
        [0, 1, 2],
        b"x",
    ]


def test_frame_with_too_many_values_is_refused_before_parsing():
    payload = b"[" + b"[]," * 5_000_001 + b"0]"
    with pytest.raises(WireError, match="5,000,000 values"):
        parse(payload)


# -- what costs the host more than the sandbox ----------------------------------------------

MANY = {
    "lists in lists": (b"%b", b"[" * 300 + b"]" * 300, 10_000),
    "dicts in dicts": (b"%b", b'{"a":' * 300 + b"1" + b"}" * 300, 4_000),
    "small dicts": (b"%b", b'{"a":0}', 900_000),
    "small lists": (b"%b", b"[]", 2_000_000),
    "keys": (b"{%b}", b'"1234567":0', 2_600_000),
}


@pytest.mark.parametrize(("around", "value", "times"), MANY.values(), ids=list(MANY))
@pytest.mark.slow
def test_nested_frame_with_too_many_values_is_refused_before_parsing(around, value, times):
    values = around % b",".join([value] * times)
    with pytest.raises(WireError, match="more than 5,000,000 values"):
        parse(b'["done",[%b],{}]' % values)


def test_lone_surrogates_are_replaced_when_encoding():
    sent = encode(["done", ["a\ud800b", "\\ud800", "\U0001f600 \ud7ff"], {}], 2**20)
    assert parse(sent[4:]) == ["done", ["a\ufffdb", "\\ud800", "\U0001f600 \ud7ff"], {}]


GROWING = {
    "empty dicts": [{}] * 20_000,
    "small dicts": [{"a": 1}] * 20_000,
    "records": [{"id": n, "name": "some name", "price": n / 7} for n in range(5_000)],
    "empty lists": [[]] * 20_000,
    "rows": [[n, "some name", n / 7] for n in range(5_000)],
    "numbers": [n + 1_000 for n in range(50_000)],
    "short texts": ["ab"] * 50_000,
    "wide texts": ["\ud55c"] * 50_000,
    "dates": [dt.date(2026, 3, 1)] * 20_000,
    "sets": [{1}] * 20_000,
}


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.slow
def test_frame_memory_is_estimated(name):
    payload = dumps(["call", 1, "keep", "", [GROWING[name]], {}, False, 0])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        frame = parse(payload)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 3 < size_in_memory(payload) < taken * 5, len(frame)


@pytest.mark.parametrize("text", ["1,2,{},[]\\n" * 100_000, "It was, as they say, late. " * 100])
def test_estimated_memory_of_text_equals_its_wire_size(text):
    payload = dumps(["call", 1, "keep", "", [text], {}, False, 0])
    assert len(payload) <= size_in_memory(payload) < 4 * len(payload)


def test_json_punctuation_in_a_string_is_kept_as_text():
    text = 'a,"b":[{\\,\\"' * 500_000
    assert parse(dumps(["done", [text, "\\", text], {}]))[1] == [text, "\\", text]


def test_deeply_nested_values_can_be_recorded():
    for depth in range(50, 1_200, 50):
        with contextlib.suppress(WireError):
            deep = parse(b'["done",%b1%b,{}]' % (b'{"a":' * depth, b"}" * depth))[1]
            assert to_jsonable_or_repr({"b": deep})


@pytest.mark.parametrize("text", ["1,2,3,4\n" * 7_000, "[1,2],{}" * 100, '{"a":1}' * 7_000])
def test_json_punctuation_in_a_string_is_not_counted_as_values(text):
    payload = dumps(["call", 1, "echo", "", [text], {}, False, 0])
    assert size_in_memory(payload) < 2 * len(payload)
