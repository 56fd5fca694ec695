"""Tests of actions from JSON schemas: their stubs, their arguments, and what is sent."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from decimal import Decimal

import pytest

from delf.errors import ToolDefinitionError, ToolRefusedError
from delf.testing import Call, ConnectionContract
from delf.tools.connection import Connection
from delf.tools.ranking import named_by
from delf.tools.type_texts import shorten
from delf_schemas.actions import action_from_schema

TICKET = {
    "type": "object",
    "properties": {
        "priority": {"enum": ["low", "high"], "default": "low"},
        "title": {"type": "string", "minLength": 1, "description": "A short title. Be brief."},
        "due-date": {"type": "string", "format": "date"},
        "class": {"type": "integer"},
        "owner": {"$ref": "#/$defs/person"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["title"],
    "$defs": {
        "person": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/person"}},
            "required": ["name"],
        }
    },
}


class Sender:
    def __init__(self, result=None):
        self.sent = []
        self.result = result

    async def __call__(self, arguments):
        self.sent.append(arguments)
        return self.result


def make(schema=TICKET, name="createTicket", **options):
    sender = Sender()
    return action_from_schema(name, sender, schema, **options), sender


async def call(action, **arguments):
    return await action.call(**action.validate(arguments))


# -- how it is shown ------------------------------------------------------------------------


def test_stub_shows_parameters_and_result():
    result = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    action, _ = make(description="Open a ticket.\n\nAnd much more.", result=result, effect="write")
    assert action.name == "create_ticket"
    assert action.summary == "Open a ticket. And much more."
    assert action.effect == "write"
    assert action.signature == (
        "(title: str, priority: Literal['low', 'high'] = 'low', due_date: str = ..., "
        'class_: int = ..., owner: (Person := {"name": str, ?"boss": Person}) = ..., '
        'note: str | None = ...) -> {"id": int}'
    )
    assert action.parameters[0].doc == "A short title. Be brief."


def test_action_schema_declares_its_dialect():
    dialect = "https://json-schema.org/draft/2020-12/schema"
    action, _ = make({"$schema": dialect, "type": "object", "properties": {}})
    assert action.schema()["$schema"] == dialect


def test_action_schema_uses_script_parameter_names():
    action, _ = make()
    schema = json.loads(json.dumps(action.schema()))
    assert set(schema["properties"]) == {p.name for p in action.parameters}
    assert schema["required"] == ["title"]
    assert schema["properties"]["owner"] == {"$ref": "#/$defs/person"}
    assert "person" in schema["$defs"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("search", "search"),
        ("files/read-all", "files_read_all"),
        ("import", "import_"),
        ("3d", "call_3_d"),
        ("日本", "日本"),
    ],
)
def test_tool_names_become_python_identifiers(name, shown):
    assert make(name=name)[0].name == shown


def test_object_schema_without_properties_takes_no_argument():
    action, _ = make({"type": "object"})
    assert action.signature == "() -> Any"


async def test_alternative_schema_becomes_one_argument():
    schema = {"oneOf": [{"type": "object", "required": ["a"]}, {"type": "string"}]}
    action, sender = make(schema)
    assert [p.name for p in action.parameters] == ["arguments"]
    await call(action, arguments="x")
    with pytest.raises(ToolRefusedError):
        action.validate({"arguments": 5})
    assert sender.sent == ["x"]


# -- what it takes --------------------------------------------------------------------------


async def test_arguments_are_sent_under_their_schema_names():
    action, sender = make()
    await call(action, title="Lamp", due_date=dt.date(2026, 1, 31), class_=3)
    assert sender.sent == [{"title": "Lamp", "due-date": "2026-01-31", "class": 3}]


async def test_script_values_are_sent_as_plain_json():
    schema = {"type": "object", "properties": {"v": {}}}
    action, sender = make(schema)
    ident = uuid.uuid4()
    for value in (Decimal("1.5"), Decimal(7), (1, 2), b"\xff\xfe\xfd", ident, {"a": {1}}):
        await call(action, v=value)
    sent = [item["v"] for item in sender.sent]
    assert sent == [1.5, 7, [1, 2], "//79", str(ident), {"a": [1]}]


async def test_none_is_omitted_for_a_non_nullable_argument():
    action, sender = make()
    await call(action, title="Lamp", owner=None, note=None)
    assert sender.sent == [{"title": "Lamp", "note": None}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "title"),
        ({"title": ""}, "title: .* shorter than 1"),
        ({"title": 5}, "title: 5 is not of type"),
        ({"title": None}, "title: null is not of type"),
        (
            {"title": "a", "priority": "hihg"},
            "priority: 'hihg' is not one of 'low', 'high'; did you mean 'high'",
        ),
        ({"title": "a", "class_": "x"}, 'class_: "x" is not of type'),
        ({"title": "a", "owner": {"boss": 1}}, "owner"),
        ({"title": "a", "titel": "b"}, "no argument 'titel'; did you mean 'title'"),
        ({"title": float("nan")}, "nan is not a number"),
        ({"title": object()}, "a value of the type object cannot be sent"),
    ],
)
def test_invalid_argument_is_refused(given, says):
    action, _ = make()
    with pytest.raises(ToolRefusedError, match=says) as caught:
        action.validate(given)
    assert "Expected create_ticket(title: str" in caught.value.message


async def test_additional_properties_are_accepted_where_allowed():
    schema = {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}
    action, sender = make(schema)
    await call(action, anything=1)
    with pytest.raises(ToolRefusedError):
        action.validate({"anything": "x"})
    assert sender.sent == [{"anything": 1}]


def test_catastrophic_pattern_is_refused_in_time():
    schema = {"type": "object", "properties": {"v": {"type": "string", "pattern": "^(a+)+$"}}}
    action, _ = make(schema)
    with pytest.raises(ToolRefusedError):
        action.validate({"v": "a" * 5000 + "!"})


# -- schemas that cannot be used ------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "strin"}, "its schema cannot be used"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}, "cannot be used"),
        ({"$ref": "http://127.0.0.1:1/x.json"}, "cannot be used"),
        ({"$ref": "file:///etc/passwd"}, "cannot be used"),
    ],
)
def test_invalid_schema_is_refused(schema, says):
    with pytest.raises(ToolDefinitionError, match=says):
        make(schema)


def test_unknown_effect_is_refused():
    with pytest.raises(ToolDefinitionError, match="unknown effect 'writes'"):
        make(effect="writes")


# -- as a connection ------------------------------------------------------------------------


class Desk(Connection):
    """A desk whose actions come from schemas."""

    async def actions(self):
        result = {"type": "object", "properties": {"id": {"type": "integer"}}}
        send = Sender({"id": 7})
        options = {"description": "Open a ticket.", "result": result, "effect": "write"}
        return [action_from_schema("createTicket", send, TICKET, **options)]


class TestDesk(ConnectionContract):
    calls = (Call("create_ticket", title="Lamp", owner={"name": "Ann"}),)

    @pytest.fixture
    def connection(self):
        return Desk()


async def test_decimal_is_sent_as_text_or_number_by_schema():
    money = {"type": "string", "format": "decimal"}
    schema = {
        "type": "object",
        "properties": {
            "price": {"$ref": "#/$defs/money"},
            "prices": {"type": "object", "additionalProperties": {"$ref": "#/$defs/money"}},
            "weight": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "note": {"type": "string"},
        },
        "$defs": {"money": money},
    }
    action, sender = make(schema)
    prices = {"a": 2, "b": Decimal("3.10")}
    await call(action, price=Decimal("1.50"), prices=prices, weight=Decimal("0.5"))
    assert sender.sent == [{"price": "1.50", "prices": {"a": "2", "b": "3.10"}, "weight": 0.5}]
    assert prices == {"a": 2, "b": Decimal("3.10")}
    with pytest.raises(ToolRefusedError, match="note"):
        await call(action, note=1.5)


async def test_member_of_int_enum_is_sent_as_decimal_text():
    class Coin(enum.IntEnum):
        EURO = 2

    money = {"type": "string", "format": "decimal"}
    action, sender = make({"type": "object", "properties": {"price": money}})
    await call(action, price=Coin.EURO)
    assert sender.sent == [{"price": "2"}]


def test_long_enumeration_shows_values_named_in_the_task():
    zones = [f"Area/City {number:03}" for number in range(600)] + ["Europe/Berlin"]
    zone = {"type": "string", "enum": zones}
    deep = {"type": "object", "properties": {"deep": {"type": "string"}}}
    both = {"type": "object", "properties": {"zone": zone, "more": deep}}
    action, _ = make({"type": "object", "properties": {"zone": zone, "outer": both}})
    first, outer = (parameter.type_text for parameter in action.full_types().parameters)
    assert first.endswith("'Europe/Berlin']")
    shown = shorten(first, 400, named_by("a meeting at noon, Europe/Berlin"))
    assert shown.endswith("'Area/City 011', 'Europe/Berlin', ...]")
    assert '?"deep": str' in outer, "a long enumeration takes no depth from the rest"
