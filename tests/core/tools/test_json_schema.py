"""Tests that validation against an untrusted schema is fast and contacts no address."""

from __future__ import annotations

import socketserver
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from delf.environment import FileText
from delf.errors import ToolDefinitionError
from delf.tools.json_schema import Checker


@contextmanager
def quickly(seconds=2.0):
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds


def doubling(levels, word):
    """Return a schema that visits a value twice as often with each level."""
    parts = {
        f"p{n}": {word: [{"$ref": f"#/$defs/p{n + 1}"}, {"$ref": f"#/$defs/p{n + 1}"}]}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/p0", "$defs": {**parts, f"p{levels}": {"type": "integer"}}}


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"x": value}
    return value


def unevaluated(levels):
    schema = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


NODE = {
    "anyOf": [
        {"properties": {"x": {"$ref": "#/$defs/node"}}, "required": ["y"]},
        {"properties": {"x": {"$ref": "#/$defs/node"}}, "required": ["z"]},
    ]
}


@pytest.fixture
def listener():
    """Yield the address of a server, and the list of the requests that it received."""
    came = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            came.append(self.request.recv(1000))

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/schema.json", came
        server.shutdown()


@pytest.mark.parametrize("place", ["$ref", "$schema", "$dynamicRef", "$recursiveRef"])
def test_json_schema_resolves_no_remote_address(listener, place):
    address, came = listener
    with pytest.raises(ToolDefinitionError, match="x: its schema cannot be used"):
        Checker({"properties": {"a": {place: address}}, place: address}, "x")
    assert came == []


@pytest.mark.parametrize("word", ["$ref", "items", "properties", "anyOf", "not", "then"])
def test_remote_reference_is_refused_at_any_place(listener, word):
    address, came = listener
    outside = {"$ref": address}
    inside = {"properties": {"p": outside}, "anyOf": [outside], "$ref": address}.get(word, outside)
    with pytest.raises(ToolDefinitionError, match="leads out of the schema"):
        Checker({"$defs": {"a": {word: inside}}, "$ref": "#/$defs/a"}, "x")
    assert came == []


def test_schema_of_a_settings_file_is_usable():
    """Texts of ``delf.toml`` are instances of a subclass of ``str``."""

    def text(words):
        return FileText(words, Path("/p"))

    numbers = {text("type"): text("integer"), "enum": [1, 2]}
    checker = Checker({"type": text("object"), "properties": {"n": numbers}}, "x")
    assert checker.fault({"n": 1}) is None
    assert checker.fault({"n": 3}) is not None


@pytest.mark.parametrize(
    "ref", ["file:///etc/passwd", "other.json", "#anchor", "//host/x", "urn:x:y"]
)
def test_reference_out_of_the_schema_is_refused(ref):
    with pytest.raises(ToolDefinitionError, match="leads out of the schema"):
        Checker({"properties": {"a": {"$ref": ref}}}, "x")


def test_unresolvable_reference_is_reported():
    with pytest.raises(ToolDefinitionError, match=r"x: .*'#/\$defs/none' leads nowhere"):
        Checker({"properties": {"a": {"$ref": "#/$defs/none"}}}, "x")


def test_nested_schema_with_its_own_id_is_refused():
    inner = {"$id": "http://x.example/", "$ref": "#/$defs/a"}
    with pytest.raises(ToolDefinitionError, match=r"its own \$id"):
        Checker({"properties": {"a": inner}, "$defs": {"a": {}}}, "x")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling(40, "allOf"), "text"),
        (doubling(40, "anyOf"), "text"),
        (doubling(40, "oneOf"), "text"),
        (doubling(14, "oneOf"), "text"),
        ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, nested(60)),
        ({"items": {"enum": [{"a": n} for n in range(20_000)]}}, [{"a": 19_999}] * 2000),
    ],
    ids=["all", "any", "one", "few", "holds itself", "enum"],
)
def test_slow_pattern_is_refused_at_once(schema, value):
    with quickly():
        assert "too long" in str(Checker(schema, "x").fault(value))


@pytest.mark.parametrize(
    "schema",
    [
        unevaluated(30),
        {**doubling(18, "allOf"), "unevaluatedProperties": False},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [{"not": {"$ref": "#/$defs/a"}}, {}]}}},
    ],
    ids=["unevaluated", "doubling", "itself", "not itself"],
)
def test_endless_schema_is_refused_quickly(schema):
    with quickly(), pytest.raises(ToolDefinitionError):
        Checker(schema, "x")


@pytest.mark.parametrize(
    "pattern",
    ["^(a+)+$", r"^(a|aa)+\1$", r"(.*)*\1b", "^(?=(a+)+$)x", r"^(?!.*(a|aa)+\1$)", "(x+x+)+y"],
)
@pytest.mark.parametrize("text", ["a" * 50 + "!", "a" * 100_000 + "!", "x" * 5000])
def test_pattern_matching_is_fast_on_hostile_text(pattern, text):
    with quickly():
        checker = Checker({"items": {"pattern": pattern}}, "x")
        assert checker.fault([text] * 20) is not None or pattern.startswith("^(?!")


def test_slow_patterns_are_bounded_in_time():
    schema = {"items": {"allOf": [{"pattern": rf"^(a|aa)+\1b{{{n}}}$"} for n in range(1, 200)]}}
    with quickly(5):
        assert Checker(schema, "x").fault(["a" * 60 + "!"] * 500) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a{1000}){1000}", "((a{100}){100}){100}"),
        *(r"(?:(?:\b){60000}){60000}b", r"(?=a)(?:(?:\b){600}){0,600}b", r"(?:\b{9000}){9000}"),
    ],
)
def test_oversized_pattern_is_refused(pattern):
    with quickly(), pytest.raises(ToolDefinitionError):
        Checker({"pattern": pattern}, "x")


def test_oversized_schema_is_refused():
    with pytest.raises(ToolDefinitionError, match="characters"):
        Checker({"description": "x" * 2_000_000}, "x")
    with pytest.raises(ToolDefinitionError, match="parts"):
        Checker({"anyOf": [{} for _ in range(30_000)]}, "x")
    deep = {}
    for _ in range(900):
        deep = {"allOf": [deep]}
    with pytest.raises(ToolDefinitionError):
        Checker(deep, "x")


def test_check_stops_at_the_first_fault():
    checker = Checker({"items": {"type": "integer"}}, "x")
    with quickly():
        assert len(checker.faults(["text"] * 1_000_000, 5)) == 1
    found = checker.faults(["a", 1, "b"], 5)
    assert [fault.path for fault in found] == [(0,), (2,)]


def test_common_schemas_are_checked():
    tree = {"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    value = {"children": [{"children": []}] * 500}
    assert Checker(tree, "x").fault(value) is None
    assert Checker(tree, "x").fault({"children": [{"children": 5}]}).path == (
        "children", 0, "children",
    )  # fmt: skip
    rows = {"items": {"properties": {"id": {"type": "integer"}, "to": {"pattern": "^.+@.+$"}}}}
    assert Checker(rows, "x").fault([{"id": n, "to": f"a{n}@b"} for n in range(5000)]) is None
    choice = {"anyOf": [{"const": n} for n in range(300)]}
    assert Checker(choice, "x").fault(299) is None
    assert Checker({"$id": "http://x.example/s", "$ref": "#/$defs/a", "$defs": {"a": {}}}, "x")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "bank", "iban": 5}, 'iban: 5 is not of type "string"'),
        ({"kind": "cash"}, 'kind: "cash" is not one of "card"; or "cash" is not one of "bank"'),
        (7, '7 is not of type "object"'),
    ],
)
def test_alternatives_error_names_the_closest_alternative(value, message):
    def kind(word, name):
        known = {"kind": {"enum": [word]}, name: {"type": "string"}}
        return {"type": "object", "properties": known}

    schema = {"anyOf": [kind("card", "number"), kind("bank", "iban")]}
    assert str(Checker(schema, "it").fault(value)) == message


DRAFTS = [
    {},
    {"$schema": "http://json-schema.org/draft-04/schema#"},
    {"$schema": "http://json-schema.org/draft-07/schema#"},
    {"$schema": "https://json-schema.org/draft/2020-12/schema"},
]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("format_name", "right", "wrong"),
    [
        ("date", "2024-02-29", "2026-02-29"),
        ("date", "2026-10-31", "31.10.2026"),
        ("date-time", "2026-10-31T08:00:00Z", "2026-13-01T08:00:00Z"),
        ("date-time", "2026-10-31T08:00:00", "tomorrow"),  # many services expect local times
    ],
)
def test_date_has_to_be_in_the_calendar_in_every_draft(draft, format_name, right, wrong):
    part = {"type": ["string", "null"], "format": format_name}
    checker = Checker({**draft, "type": "array", "items": part}, "the tool")
    assert checker.fault([right, None]) is None
    fault = checker.fault([right, wrong])
    assert (fault.path, wrong in fault.message) == ((1,), True)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("format_name", ["email", "uri", "time", "ipv4", "hostname", "regex", "x"])
def test_other_formats_are_left_to_the_service_in_every_draft(draft, format_name):
    assert Checker({**draft, "format": format_name}, "the tool").fault("(any text") is None
