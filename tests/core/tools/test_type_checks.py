"""Values against types in stub notation."""

import pytest

from delf.tools.hints import type_text
from delf.tools.type_checks import misfit

RECORD = '{"rowcount": int, "rows": list[dict[str, Any]], ?"note": str | None}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Any", None),
        ("None", None),
        ("int | None", None),
        ("str (a date)", "2026-01-01"),
        ("float", 3),
        ("datetime", "2026-01-01T00:00"),
        ("Row", {"a": 1}),
        ("list[int]", []),
        ("list", [1, "a"]),
        ("tuple[int, str]", [1, "a"]),
        ("dict", {"a": 1}),
        ("dict[str, list[int]]", {"a": [1]}),
        ('Literal["a|b", "c, d", 3]', "c, d"),
        ('Literal["a", 3]', 3),
        ('Literal["a", ...]', "z"),
        ('{"a": int, ...}', {"a": 1, "b": 2}),
        ("{...}", {}),
        (RECORD, {"rowcount": 1, "rows": [{"a": None}]}),
        (RECORD, {"rowcount": 1, "rows": [], "note": None, "more": 1}),
        (f"list[{RECORD}] | None", [{"rowcount": 1, "rows": []}]),
        ("int", object()),  # no value of JSON
        *(("", 1), ("][", 1), ('"', 1), ("x[", 1), ("Any | ", 1)),
    ],
)
def test_value_fits_or_may_fit(text, value):
    assert misfit(value, text) is None


@pytest.mark.parametrize(
    ("text", "value", "says"),
    [
        ("int", None, "it is null, not int"),
        ("datetime", None, "it is null, not datetime"),
        ("int | str", None, "it is null, not int | str"),
        ("int", True, "it is bool, not int"),
        ("int", "1", "it is str, not int"),
        ("None", "done", "it is str, not None"),
        ("list[int]", {}, "it is dict, not list[int]"),
        ("list[int]", [1, "a"], "it[1] is str, not int"),
        ("dict[str, int]", {"a": []}, "it['a'] is list, not int"),
        ('Literal["a", 3]', "3", "it is str, not Literal"),
        (RECORD, None, "it is null, not {"),
        (RECORD, {"rows": []}, "it has no key 'rowcount'"),
        (RECORD, {"rowcount": 1, "rows": [1]}, "it['rows'][0] is int, not dict[str, Any]"),
        (f"{RECORD} | None", {"rowcount": "1"}, "it['rowcount'] is str, not int"),
        ('{"a": {"b": int}}', {"a": {"b": None}}, "it['a']['b'] is null, not int"),
    ],
)
def test_misfit_says_where_and_what(text, value, says):
    problem = misfit(value, text)
    assert problem is not None
    assert says in problem


def test_deep_types_end():
    text = "list[" * 100 + "int" + "]" * 100
    value: list = []
    for _ in range(100):
        value = [value]
    assert misfit(value, text) is None


def test_types_of_hints_can_be_checked():
    assert misfit([{"a": 1.5}], type_text(list[dict[str, float]])) is None
    assert misfit(["a"], type_text(list[dict[str, float]])) is not None
