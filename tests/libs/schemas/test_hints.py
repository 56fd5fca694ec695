"""Tests of limits in schemas, as words in the description of a parameter."""

import pytest

from delf_schemas.actions import action_from_schema
from delf_schemas.hints import hints_of

from .documents import Document

CODE = {"type": "string", "pattern": "^[A-Z]{3}$"}
NODE = {"type": "object", "properties": {"code": CODE, "next": {"$ref": "node"}}}


def record(**properties):
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (CODE, "matches ^[A-Z]{3}$"),
        ({"type": "integer", "minimum": 1, "maximum": 200}, "≥ 1, ≤ 200"),
        ({"type": "string", "format": "date-time", "minLength": 1}, "date-time"),
        ({"type": "string", "maxLength": 3}, "at most 3 long"),
        (
            {"type": "array", "maxItems": 9, "items": CODE},
            "at most 9 items; []: matches ^[A-Z]{3}$",
        ),
        (record(a=record(b=CODE)), "a.b: matches ^[A-Z]{3}$"),
        (record(a={"anyOf": [CODE, {"type": "null"}]}), "a: matches ^[A-Z]{3}$"),
        (record(a={"allOf": [{"$ref": "code"}]}), "a: matches ^[A-Z]{3}$"),
        (record(rows={"type": "array", "items": record(c=CODE)}), "rows[].c: matches ^[A-Z]{3}$"),
        ({"$ref": "node"}, "code: matches ^[A-Z]{3}$"),
        (record(a={**CODE, "readOnly": True}), ""),
        ({"type": "string", "enum": ["A"], "pattern": "^A$"}, ""),
        ({"type": "array", "minItems": 1, "maxItems": 1}, "at least 1 item, at most 1 item"),
        ({"type": "integer", "maximum": 2**63}, ""),
        ({"type": "string", "pattern": "a" * 100}, ""),
        (True, ""),
    ],
    ids=range(16),
)
def test_schema_hints_list_each_limit_after_its_field_name(schema, shown):
    assert hints_of(Document(code=CODE, node=NODE), schema, 200, 4) == shown


def test_hints_are_complete_or_omitted():
    schema = record(a=CODE, b=CODE, c={"maximum": 5})
    assert hints_of(Document(), schema, 30, 4) == "a: matches ^[A-Z]{3}$; c: ≤ 5"
    assert hints_of(Document(), schema, 200, 0) == ""


async def nothing(_arguments):
    return None


def test_docstring_style_description_is_parsed():
    description = """
        Search the register.

        Args:
            query: Words, or a phrase in quotes.
            limit: How many.

        Returns:
            Keys: title and url.
        """
    properties = {"query": {"type": "string"}, "limit": {"maximum": 9, "description": "At most."}}
    action = action_from_schema("search", nothing, record(**properties), description=description)
    assert action.summary == "Search the register."
    assert {item.name: item.doc for item in action.parameters} == {
        "query": "Words, or a phrase in quotes.",
        "limit": "≤ 9; At most.",
    }
    assert action.returns_doc == "Keys: title and url."
