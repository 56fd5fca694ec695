"""Tests of types in schemas, as a model is shown them."""

from typing import Any

import pytest

from delf_schemas.shapes import FULL, Shapes, merge_object

from .documents import Document


def _object(**properties: str) -> dict[str, Any]:
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": kinds}


_CHOICE = {"oneOf": [_object(a="string"), _object(b="integer")]}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        pytest.param(
            {"allOf": [_CHOICE, _object(c="boolean")]},
            '{?"a": str, ?"c": bool} | {?"b": int, ?"c": bool}',
            id="a choice first",
        ),
        pytest.param(
            {"allOf": [_object(c="boolean"), _CHOICE]},
            '{?"c": bool, ?"a": str} | {?"c": bool, ?"b": int}',
            id="a choice last",
        ),
        pytest.param(
            {**_object(c="boolean"), "required": ["c"], **_CHOICE},
            '{"c": bool, ?"a": str} | {"c": bool, ?"b": int}',
            id="a choice beside properties",
        ),
        pytest.param(
            {**_CHOICE, "allOf": [_object(c="boolean")]},
            '{?"c": bool, ?"a": str} | {?"c": bool, ?"b": int}',
            id="a choice beside parts",
        ),
        pytest.param(
            {**_object(c="boolean"), "oneOf": [{"required": ["c"]}, {"required": ["d"]}]},
            '{?"c": bool}',
            id="a choice of what is required",
        ),
    ],
)
def test_alternatives_include_their_shared_properties(schema: dict[str, Any], shown: str) -> None:
    assert Shapes(Document(), extent=FULL).text(schema, "parameter", 500) == shown


@pytest.mark.parametrize("kinds", [["object", "array"], ["array", "object"]])
def test_object_or_list_is_not_merged_as_an_object(kinds: list[str]) -> None:
    schema = {**_object(a="string"), "type": kinds, "items": {"type": "integer"}}
    assert merge_object(Document(), schema) is None
    shown = Shapes(Document(), extent=FULL).text(
        {"allOf": [schema, {"maxItems": 2}]}, "parameter", 500
    )
    assert "list[int]" in shown


def test_shortened_object_keeps_required_and_enumerated_keys_first():
    schema = _object(**{f"k{number}": "integer" for number in range(20)})
    schema["properties"]["state"] = {"enum": ["on", "off"]}
    schema["required"] = ["k19"]
    text = Shapes(Document(), extent=FULL).text(schema, "result", 1_000)
    assert text.startswith('{"k19": int, "state": Literal[\'on\', \'off\'], "k0": int, "k1": int')
    assert Shapes(Document(), extent=FULL).text(_object(b="integer", a="string"), "result", 99) == (
        '{"b": int, "a": str}'
    )


def test_nested_object_keeps_all_keys_within_the_limit():
    schema = _object(**{f"k{number}": "integer" for number in range(60)})
    deep = {**_object(x="string"), "required": ["x"]}
    schema["properties"] |= {f"d{number}": deep for number in range(30)}
    whole = {"type": "object", "properties": {"data": {"type": "array", "items": schema}}}
    assert '"k59": int' in Shapes(Document(), extent=FULL).text(whole, "result", 1_600)


@pytest.mark.parametrize(
    ("choices", "shown"),
    [
        ([{"type": ["integer", "null"]}, {"type": "null"}], "int | None"),
        ([{}, {"type": "null"}], "Any"),
    ],
)
def test_union_has_none_only_once(choices: list[dict[str, Any]], shown: str) -> None:
    assert Shapes(Document()).text({"anyOf": choices}, "result", 500) == shown


def test_work_for_a_type_with_endlessly_nested_parts_is_limited() -> None:
    class CountingDocument(Document):
        resolved_count = 0

        def resolve(self, node: Any) -> dict[str, Any]:
            self.resolved_count += 1
            return super().resolve(node)

    node = {"$ref": "Node"}
    properties = {name: {"properties": {}, "allOf": [node, node]} for name in "abcdefgh"}
    document = CountingDocument(Node={"properties": properties, "allOf": [node, node]})
    assert Shapes(document, extent=FULL).text(node, "result", 6000).startswith('{"a": {"a": {')
    assert document.resolved_count < 10_000
