"""Types of schemas: what a model is shown of a value."""

from typing import Any

import pytest

from delf_schemas.shapes import FULL, Shapes


class Plain:
    """A document without references."""

    def absolute(self, ref: str) -> str:
        return ref

    def resolve(self, node: Any) -> dict[str, Any]:
        return node


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
def test_choice_of_objects_has_the_properties_that_all_share(
    schema: dict[str, Any], shown: str
) -> None:
    assert Shapes(Plain(), extent=FULL).text(schema, "in", 500) == shown
