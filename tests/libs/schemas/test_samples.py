"""Tests of shapes that are learned from results, without their values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delf_schemas.samples import Samples, shape_of

LITERAL_OF = "str (a Python literal, for ast.literal_eval"


class Kept:
    """A store in memory for learned shapes."""

    value: Any = None

    def read(self) -> Any:
        return self.value

    def write(self, value: Any) -> None:
        self.value = json.loads(json.dumps(value))


def type_of(*values: Any) -> str | None:
    samples = Samples(None)
    for value in values:
        samples.note("it", value)
    return samples.type_of("it")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["done"], "str"),
        ([None, "done"], "str | None"),
        (["[1, 2]"], "str (JSON: list[int])"),
        (['{"a": null}', '{"a": "x"}'], 'str (JSON: {"a": str | None})'),
        (['{"a": 1}', "nothing found"], 'str (JSON: {"a": int}, or plain text)'),
        (["nothing found", "[]", "none"], "str (JSON: list[Any], or plain text)"),
        (["{not json", "[x]"], "str"),
        ([["a dot", {"data": b"x"}]], 'list[str | {"data": bytes}]'),
        ([{"n": '{"a": 1}'}], '{"n": str}'),
        ([[{"a": 1, "b": 2}], [{"a": 3}]], 'list[{"a": int, ?"b": int}]'),
        ([[{"a": 1, "b": 2}], "none", [{"a": 3}]], 'list[{"a": int, ?"b": int}] | str'),
        ([[{"name": "x"}], [{"n": 1}]], "list[dict[str, str | int]]"),
        (
            [[{"name": "x"}], [{"n": 1}], [{"name": "y", "k": None}]],
            "list[dict[str, str | int | None]]",
        ),
        ([{"a": 1}, {}], '{?"a": int}'),
        ([{"rooms": 1.5}, [{"person": "Ann"}]], '{"rooms": float} | list[{"person": str}]'),
    ],
)
def test_type_is_inferred_from_sample_values(values: list[Any], text: str) -> None:
    assert type_of(*values) == text


async def test_learned_shapes_persist_without_values() -> None:
    kept = Kept()
    samples = Samples(kept)
    samples.note("it", '{"name": "s3cret"}')
    found = (("*", "name"), "None")
    samples.note_undeclared("it", [found])
    await samples.aclose()
    assert "s3cret" not in json.dumps(kept.value)
    later = Samples(kept)
    assert later.type_of("it") == 'str (JSON: {"name": str})'
    assert later.undeclared_types("it") == {found}


VALUES: list[Any] = [[{"a": 1}, {"a": 2, "b": [{}]}], [{"x": 1}, {"y": 2}], "[1]"]


@pytest.mark.parametrize("value", VALUES)
def test_known_response_format_is_not_reported_again(value: Any) -> None:
    samples = Samples(None)
    samples.note("it", value)
    samples.has_new_types = False
    samples.note("it", value)
    assert not samples.has_new_types


@pytest.mark.parametrize("value", [5, "x", {"shapes": 3, "found": {"it": [1, [2], [[2], 3]]}}])
def test_damaged_sample_store_counts_as_empty(value: Any) -> None:
    kept = Kept()
    kept.value = value
    assert Samples(kept).type_of("it") is None


@pytest.mark.parametrize(
    "value",
    [
        {"ada@example.org": {"n": 1}, "x": 1},
        {"example.org": {"n": 1}},
        {"ada": {"age": 1}, "bob": {"age": 2}, "cyd": {"age": 3}},
        {"7f3a9": 1, "u12345": 2},
    ],
    ids=["addresses", "hosts", "names", "ids"],
)
def test_keys_that_are_data_are_not_learned(value: Any) -> None:
    assert shape_of(value) == {"type": "object"}


def test_dict_with_very_many_keys_is_not_searched_for_names() -> None:
    class Large(dict[str, int]):
        def __iter__(self) -> Any:
            raise AssertionError("the keys are read")

    assert shape_of(Large((f"n{'x' * number}", 1) for number in range(99))) == {"type": "object"}


@pytest.mark.parametrize("literal", ["{1: 'a'}", "{None: 1, 'a': 2}", "{b'k': 1}", "{(1, 2): 3}"])
def test_literal_with_other_keys_than_texts_is_a_dict(literal: str) -> None:
    assert type_of(literal) == f"{LITERAL_OF}: dict)"
    assert type_of(f"[{literal}]") == f"{LITERAL_OF}: list[dict])"


def test_keys_that_are_field_names_are_learned() -> None:
    value = {"@odata.type": "x", "$ref": 1, "_id": True, "first-name": None, "from": {"a": 1}}
    assert list(shape_of(value)["properties"]) == list(value)


@pytest.mark.parametrize(
    ("texts", "shape"),
    [
        (['{"id": 1}'], 'str (JSON: {"id": int})'),
        (["{'id': 1, 'done': False}"], LITERAL_OF + ': {"id": int, "done": bool})'),
        (["[{'id': None}]", "[{'id': 2}]"], LITERAL_OF + ': list[{"id": int | None}])'),
        (["(1, 'a')"], LITERAL_OF + ": list[int | str])"),
        (
            ['{"id": 1}\n{"id": 2}'],
            'str (a value of JSON on each line, together: list[{"id": int}])',
        ),
        (["{'id': 1}", '{"id": 1}'], 'str (JSON, or a Python literal: {"id": int})'),
        (["{'id': 1}", "none"], LITERAL_OF + ': {"id": int}, or plain text)'),
        (["{'id': open('x')}"], "str"),
        (["[see the list]"], "str"),
        (["{[1]: 2}"], "str"),
        (["{'a': " * 2_000], "str"),
    ],
    ids=range(11),
)
def test_json_inside_text_is_described_as_json(texts: list[str], shape: str) -> None:
    assert type_of(*texts) == shape
