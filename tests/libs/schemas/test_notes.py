"""Tests of descriptions of a record's keys, in one line of the prompt."""

import pytest

from delf_schemas.actions import action_from_schema
from delf_schemas.names import shorten_description
from delf_schemas.notes import notes_of

from .documents import Document

FEE = {"type": "integer", "description": "In cents."}
NODE = {"type": "object", "properties": {"fee": FEE, "next": {"$ref": "node"}}}


def record(**properties):
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (record(fee=FEE), "fee: In cents"),
        ({"type": "array", "items": record(fee=FEE)}, "fee: In cents"),
        (record(data={"type": "array", "items": record(fee=FEE)}), "fee: In cents"),
        (record(a=record(fee=FEE), b=record(fee=FEE)), "fee: In cents"),
        (
            record(a=record(fee=FEE), b=record(fee={"description": "In euro."})),
            "a.fee: In cents; b.fee: In euro",
        ),
        (record(fee={"allOf": [{"$ref": "fee"}]}), "fee: In cents"),
        (record(fee={"$ref": "fee", "description": "In yen."}), "fee: In yen"),
        (record(fee={"anyOf": [FEE, {"type": "null"}]}), "fee: In cents"),
        ({"allOf": [record(fee=FEE), record(x={})]}, "fee: In cents"),
        ({"type": "object", "additionalProperties": record(fee=FEE)}, "fee: In cents"),
        ({"$ref": "node"}, "fee: In cents"),
        (record(user_id={"description": "The ID of the user"}), ""),
        (record(fee={**FEE, "writeOnly": True}), ""),
        (record(at={"type": "integer", "format": "unix-time"}), "at: unix-time"),
        (record(share={"type": "number", "minimum": 0, "maximum": 1}), "share: 0 to 1"),
        (record(id={"type": "string", "example": "cus_12"}), 'id: as "cus_12"'),
        (record(id={"format": ["uuid"], "example": "cus_12"}), 'id: as "cus_12"'),
        (record(id={"type": "string", "enum": ["a"], "example": "a"}), ""),
        ({"type": "string", "examples": ["2026-W27"]}, 'as "2026-W27"'),
        (record(weight={"title": "Weight in grams", "type": "integer"}), "weight: Weight in grams"),
        (record(user_id={"title": "User Id"}), ""),
        (
            record(state={"oneOf": [{"const": 1, "title": "Open"}, {"const": 2, "title": "Done"}]}),
            "state: 1: Open, 2: Done",
        ),
        (
            record(state={"enum": [1, 2], "x-enum-varnames": ["Open", "Done"]}),
            "state: 1: Open, 2: Done",
        ),
        (
            record(level={"enum": [0, 1], "description": "* `0` - low\n* `1` - high"}),
            "level: 0: low, 1: high",
        ),
        (record(state={"allOf": [{"description": "* `open` - open\n* `done` - Done"}]}), ""),
        (record(state={"description": "Of a case.\n\n* `a` - A"}), "state: Of a case"),
        (True, ""),
    ],
    ids=range(27),
)
def test_notes_describe_keys_beyond_their_names(schema, shown):
    assert notes_of(Document(fee=FEE, node=NODE), schema, "result") == shown


def test_notes_omit_read_only_keys_of_inputs():
    schema = record(fee={**FEE, "readOnly": True}, tip={"description": "In yen"})
    assert notes_of(Document(), schema, "parameter") == "tip: In yen"
    assert notes_of(Document(), schema, "result", "Newest first.") == (
        "Newest first; fee: In cents; tip: In yen"
    )


def test_notes_list_number_units_first():
    text = {"type": "string", "description": "Link to more."}
    flag = {"type": "boolean", "description": "Whether there are more."}
    schema = record(more=flag, url=text, rows={"type": "array", "items": record(fee=FEE)})
    assert notes_of(Document(), schema, "result") == (
        "fee: In cents; url: Link to more; more: Whether there are more"
    )


def test_notes_prefer_the_sentence_with_the_unit():
    fills = "This amount was agreed with the payer when the order was made, and is final. "
    unit = "It is an integer in the smallest currency unit"
    long = f"{unit} ({'such as 100 for one dollar, ' * 5}and so on)"
    schema = record(
        count={"type": "integer", "description": "How many there were."},
        code={"type": "string", "description": f"The amount. {fills * 3} {unit}."},
        fee={"type": "integer", "description": f"{fills}{fills}{long}. See the page on fees."},
        bare={"type": "integer", "description": f"What was paid. {fills}{fills}"},
    )
    assert notes_of(Document(), schema, "result") == (
        f"code: The amount. {unit}; fee: {fills}{unit}; count: How many there were; "
        f"bare: What was paid. {fills}".rstrip(". ")
    )


def test_long_first_sentence_with_a_unit_is_not_repeated():
    unit = f"The time until it ends ({'as it is now, ' * 8}so far), an integer, given in seconds"
    schema = record(left={"type": "integer", "description": f"{unit}. And more."})
    assert notes_of(Document(), schema, "result") == (
        "left: The time until it ends, an integer, given in seconds"
    )


def test_leads_keeps_the_first_sentence_of_each_paragraph():
    text = (
        "# Intro\n\nMoney is in cents. "
        + "More. " * 99
        + "\n\n```\ncurl x\n```\n\nIDs have prefixes."
    )
    assert shorten_description("Money is in cents.\n\nIDs have prefixes.", 300) == (
        "Money is in cents. IDs have prefixes."
    )
    assert shorten_description(text, 300) == "Money is in cents. IDs have prefixes."


async def nothing(_arguments):
    return None


def test_full_types_keep_the_whole_description():
    text = f"Search the register. {'Really. ' * 60}Amounts are in cents."
    properties = {"query": {"type": "string", "description": f"Words. {'So. ' * 80}Upper case."}}
    result = record(fee=FEE)
    action = action_from_schema(
        "search", nothing, record(**properties, to=record(fee=FEE)), description=text, result=result
    )
    assert action.summary.startswith("Search the register. Really.")
    assert action.notes.endswith("Really. Amounts are in cents.")
    query, to = action.full_types().parameters
    assert query.notes.endswith("So. Upper case")
    assert (to.notes, action.full_types().notes) == ("fee: In cents", "fee: In cents")
    assert {"fee: In cents", action.notes} <= set(action.texts())
