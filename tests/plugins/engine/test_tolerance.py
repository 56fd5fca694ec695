"""Tests that arguments with only one possible meaning are accepted, and all others refused."""

import datetime as dt
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from delf.errors import ToolRefusedError
from delf.tools.action import action_from_function
from delf_engine.tolerance import validate_arguments, with_spelling_of_parameters
from delf_schemas.actions import action_from_schema


class Event(BaseModel):
    title: str
    people: list[str] = []
    kind: Literal["call", "Meeting"] = "call"


async def call(
    to: list[str],
    day: dt.date | None = None,
    state: Literal["open", "paid", "Paid"] = "open",
    ids: list[int] | None = None,
    note: str | list[str] = "",
    event: Event | None = None,
) -> None:
    """Take many things."""


async def send(_arguments: Any) -> None:
    """Receive the arguments of a JSON schema."""


async def make(event: Event) -> None:
    """Take one record."""


def taken(function: Any, **given: Any) -> dict[str, Any]:
    return validate_arguments(action_from_function(function), given)[1]


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"to": "a@b.c"}, "to", ["a@b.c"]),
        ({"to": '["a", "b"]'}, "to", ["a", "b"]),
        ({"to": ["a"], "state": "OPEN"}, "state", "open"),
        ({"to": ["a"], "state": " open "}, "state", "open"),
        ({"to": ["a"], "day": dt.datetime(2026, 1, 2, 9, 30)}, "day", dt.date(2026, 1, 2)),
        ({"to": ["a"], "day": "2026-01-02T09:30:00"}, "day", dt.date(2026, 1, 2)),
        ({"to": {"TO": ["a"], "state": "paid"}}, "state", "paid"),
        (
            {"to": ["a"], "event": {"Title": "t", "people": "p"}},
            "event",
            Event(title="t", people=["p"]),
        ),
    ],
)
def test_lenient_argument_is_accepted(given, name, value):
    assert taken(call, **given)[name] == value


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"to": "a@b.c, d@e.f"}, "to"),
        ({"to": "a;b"}, "to"),
        ({"to": ["a"], "state": "PAID"}, "state"),  # two are like it
        ({"to": ["a"], "state": "opened"}, "state"),
        ({"to": ["a"], "ids": "$58"}, "ids"),
        ({"to": ["a"], "ids": "5"}, "ids"),
        ({"to": {"recipient": "a"}}, "to"),
        ({"to": ["a"], "day": "tomorrow"}, "day"),
    ],
)
def test_ambiguous_argument_is_refused(given, named):
    with pytest.raises(ToolRefusedError, match=f"argument '{named}"):
        taken(call, **given)


@pytest.mark.parametrize(
    ("schema", "given", "accepted"),
    [
        ({"type": ["string", "null"]}, "a", "a"),
        ({"type": ["array", "null"], "items": {"type": "string"}}, "a", ["a"]),
        ({"type": ["string", "null"], "enum": ["A", None]}, "a", "A"),
        ({"type": ["object", "null"], "properties": {"b": {"const": "C"}}}, {"b": "c"}, {"b": "C"}),
        ({"anyOf": [{"const": "A"}, {"const": "A"}]}, "a", "A"),
        ({"$ref": "#/properties/list/anyOf/0"}, "A", "a"),
        ({"$ref": "#/$defs/a~1b"}, "A", "a"),
        (True, "a", "a"),
        ({"anyOf": [True, {"type": "integer"}]}, "a", "a"),
        ({"type": "array", "items": True}, ["a"], ["a"]),
    ],
)
def test_argument_of_a_json_schema_is_converted(schema, given, accepted):
    """The conversion knows type lists, boolean schemas, and references into lists."""
    properties = {
        "x": schema,
        "list": {"anyOf": [{"enum": ["a"]}, {"type": "null"}]},
        "count": {"type": ["integer", "null"]},
        "switch": {"enum": ["on", "off"]},
    }
    definitions = {"a/b": {"enum": ["a"]}}
    action = action_from_schema("f", send, {"properties": properties, "$defs": definitions})
    # The other spelling of ``switch`` makes a conversion of all arguments necessary.
    assert validate_arguments(action, {"x": given, "switch": "ON"})[1]["x"] == accepted
    with pytest.raises(ToolRefusedError, match="count"):
        validate_arguments(action, {"x": given, "count": "many"})


def test_valid_arguments_are_not_converted():
    assert taken(call, to=["a, b"], note="Open")["note"] == "Open"


def test_fields_of_a_single_record_parameter_are_accepted():
    assert taken(make, title="t", kind="MEETING") == {"event": Event(title="t", kind="Meeting")}
    with pytest.raises(ToolRefusedError):
        taken(make, title="t", place="here")


def test_parameter_names_in_other_spellings_are_accepted():
    assert with_spelling_of_parameters({"customerId": 1, "Day": 2}, ["customer_id", "day"]) == {
        "customer_id": 1,
        "day": 2,
    }
    assert with_spelling_of_parameters({"customerId": 1, "customer_id": 2}, ["customer_id"]) == {
        "customerId": 1,
        "customer_id": 2,
    }
    assert with_spelling_of_parameters({"aB": 1}, ["a_b", "ab"]) == {"aB": 1}
