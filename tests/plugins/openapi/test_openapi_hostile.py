"""Hostile specifications and arguments cannot hang, crash or flood the host."""

from __future__ import annotations

import decimal
import pathlib
from typing import Any

import pytest

from delf.errors import ToolRefusedError
from delf.tools.action import Action
from delf_openapi import APITool
from delf_openapi.failures import SpecError
from support.openapi_specs import body, one, param, spec

HUGE = "x" * 200_000


async def the_action(document: Any, **settings: Any) -> Action:
    (action,) = await APITool(document, name="api", **settings).actions()
    return action


async def of_schema(schema: Any, version: str = "3.0.3") -> Action:
    return await the_action(one({"parameters": [param("q", schema=schema)]}, version=version))


# -- patterns -----------------------------------------------------------------------------


# -- schemas ------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
async def test_mutually_recursive_schemas_are_bounded_in_time(word: str) -> None:
    refs = [{"$ref": f"#/components/schemas/S{n}"} for n in range(14)]
    schemas = {f"S{n}": {word: [r for r in refs if r != refs[n]]} for n in range(14)}
    document = one({"parameters": [param("q", schema=refs[0])]}, components={"schemas": schemas})
    action = await the_action(document)
    assert action.validate({"q": "x"}) == {"q": "x"}


async def test_long_parameter_names_are_shortened_and_unique() -> None:
    action = await the_action(one({"parameters": [param(HUGE), param(HUGE + "y")]}))
    names = [parameter.name for parameter in action.parameters]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 64


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": [f"{n}{HUGE}" for n in range(3)]}, "no"),
        ({"enum": [{"a": HUGE}]}, "no"),
        ({"const": HUGE}, "no"),
        ({"type": "object", "additionalProperties": False, "properties": {HUGE: {}}}, {"no": 1}),
        ({"type": "object", "additionalProperties": False}, {HUGE: 1}),
    ],
    ids=["enum", "objects", "const", "properties", "given"],
)
async def test_refusal_text_is_short_for_any_schema(schema: Any, value: Any) -> None:
    action = await of_schema(schema)
    with pytest.raises(ToolRefusedError) as caught:
        action.validate({"q": value})
    assert len(str(caught.value)) < 2500


async def test_long_descriptions_leave_a_large_schema_checked() -> None:
    part = {"type": "integer", "title": "t" * 100, "description": "d" * 1000}
    schema = {"type": "object", "properties": {f"f{n}": part for n in range(1000)}}
    action = await of_schema(schema)
    with pytest.raises(ToolRefusedError, match="not of type"):
        action.validate({"q": {"f0": "x"}})


async def test_too_large_schema_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    properties = {f"field_{n}": {"type": "integer", "minimum": 0} for n in range(25_000)}
    action = await of_schema({"type": "object", "properties": properties})
    for _ in range(2):
        action.validate({"q": {"field_0": "x"}})
    (message,) = [record.getMessage() for record in caplog.records]
    assert "sent unchecked" in message
    assert "1,000,000" in message


async def test_very_long_blank_description_is_handled_quickly() -> None:
    action = await the_action(one({"summary": "< " + " " * 3_000_000 + "!"}))
    assert len(action.summary) < 130


@pytest.mark.parametrize("name", ["\ud800", "long" * 40 + "\ud800"], ids=["short", "long"])
@pytest.mark.parametrize("place", ["query", "path", "body"])
async def test_invalid_names_drop_only_their_operation(name: str, place: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    bad: dict[str, Any] = {"operationId": "bad", "responses": {}}
    if place == "body":
        bad["requestBody"] = body(schema, "application/x-www-form-urlencoded")
    else:
        bad["parameters"] = [param(name, place, required=True)]
    fine: dict[str, Any] = {"operationId": "fine", "responses": {}}
    document = spec({f"/x/{{{name}}}": {"post": bad}, "/fine": {"get": fine}})
    tool = APITool(document, name="api")
    assert [action.name for action in await tool.actions()] == ["fine"]
    assert "POST /x/" in tool.inspect()["warnings"][0]


@pytest.mark.parametrize("invalid", [[5], ["application/json"], 5, "x", None, True])
async def test_operation_with_an_invalid_response_is_kept(invalid: Any) -> None:
    media = {"description": "ok", "content": {"application/json": invalid}}
    for response in (invalid, {"description": "ok", "content": invalid}, media):
        action = await the_action(one({"responses": {"200": response}}))
        assert action.returns == action.full_types().returns
        assert action.returns in ("Any", "None")


@pytest.mark.parametrize("invalid", [[], ["x"], 5, "x", True, False])
@pytest.mark.parametrize("member", ["operation", "parameters", "requestBody"])
async def test_invalid_member_drops_its_operation_with_a_warning(member: str, invalid: Any) -> None:
    bad: Any = {"operationId": "bad", member: [invalid] if member == "parameters" else invalid}
    fine: dict[str, Any] = {"operationId": "fine", "responses": {}}
    tool = APITool(spec({"/x": {"post": invalid if member == "operation" else bad, "get": fine}}))
    assert [action.name for action in await tool.actions()] == ["fine"]
    assert len(tool.inspect()["warnings"]) == 1


# -- YAML ---------------------------------------------------------------------------------

YAML = """\
openapi: 3.0.3
info: {title: T, version: '1'}
paths:
  /x:
    get: {operationId: call, parameters: [{name: q, in: query, schema: %s}], responses: {}}
"""


async def test_yaml_merge_key_bomb_is_refused(tmp_path: pathlib.Path) -> None:
    lines = ["x0: &x0 {k0: 1}"]
    lines += [f"x{n}: &x{n} {{<<: *x{n - 1}, k{n}: 1}}" for n in range(1, 1100)]
    file = tmp_path / "api.yaml"
    file.write_text(YAML % "{}" + "\n".join(lines))
    with pytest.raises(SpecError, match="merges too many values"):
        await the_action(str(file))


@pytest.mark.parametrize("more", ["'1'", "&a '1', *a"], ids=["plain", "shared"])
async def test_yaml_numbers_follow_version_1_2(more: str, tmp_path: pathlib.Path) -> None:
    """Documents with and without aliases are read by different parsers, with the same result."""
    file = tmp_path / "api.yaml"
    file.write_text(YAML % f"{{enum: [08, 010, 12:30, 0x1F, 1e3, .5, yes, 2026-01-01, {more}]}}")
    action = await the_action(str(file))
    shown = "Literal[8, 10, '12:30', 31, 1000.0, 0.5, 'yes', '2026-01-01', '1'"
    assert action.parameters[0].type_text.startswith(shown)


async def test_ordinary_merge_keys_are_applied(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text("x: &x {type: integer, maximum: 9}\n" + YAML % "{<<: *x, minimum: 2}")
    action = await the_action(str(file))
    for value in (1, 10):
        with pytest.raises(ToolRefusedError):
            action.validate({"q": value})


# -- arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (decimal.Decimal("Infinity"), "is not a number that can be sent"),
        (decimal.Decimal("sNaN"), "is not a number that can be sent"),
        (decimal.Decimal("1e999999"), "has over 1000 digits"),
        (10**5000, "has over 1000 digits"),
        (-(10**5000), "has over 1000 digits"),
        (float("nan"), "is not a number that can be sent"),
        (decimal.Decimal("1" * 400 + ".5"), "has more digits than a number with a fraction"),
    ],
    ids=["infinite", "signalling", "decimal", "integer", "negative", "nan", "fraction"],
)
async def test_unsendable_number_is_refused(value: Any, reason: str) -> None:
    action = await of_schema({"type": "number"})
    with pytest.raises(ToolRefusedError, match=reason):
        action.validate({"q": value})


@pytest.mark.parametrize(
    ("value", "sent"),
    [(10**900, 10**900), (decimal.Decimal("12.5"), 12.5), (decimal.Decimal("1e3"), 1000)],
    ids=["large", "fraction", "whole"],
)
async def test_sendable_numbers_are_accepted(value: Any, sent: Any) -> None:
    action = await of_schema({"type": "number"})
    assert action.validate({"q": value}) == {"q": sent}


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, [{None: 1, "None": 2}]])
async def test_keys_that_become_equal_are_refused(value: Any) -> None:
    action = await of_schema({})
    with pytest.raises(ToolRefusedError, match="two keys with the same text"):
        action.validate({"q": value})


@pytest.mark.parametrize("value", ["a\ud800", {"a\udfff": 1}, ["\ud83d"]])
@pytest.mark.parametrize("place", ["query", "path", "header", "cookie", "body"])
async def test_lone_surrogate_is_refused(value: Any, place: str) -> None:
    if place == "body":
        document = one({"requestBody": body({})}, method="post")
    else:
        document = one({"parameters": [param("body", place, {}, required=True)]}, "/x/{body}")
    actions = await APITool(document, name="api").actions()
    with pytest.raises(ToolRefusedError, match="half a character"):
        actions[0].validate({"body": value})


# -- messages that a model can act on -----------------------------------------------------


async def test_missing_arguments_are_reported_together() -> None:
    schema = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    numbers = {"type": "array", "items": {"type": "integer"}}
    action = await the_action(
        one(
            {
                "parameters": [param("ids", schema=numbers, required=True)],
                "requestBody": body(schema),
            },
            method="post",
        )
    )
    with pytest.raises(ToolRefusedError) as caught:
        action.validate({"ids": [1, "x"], "nam": "Rex"})
    assert str(caught.value.message) == (
        'api.call: argument ids.1: "x" is not of type "integer"; '
        "unknown argument 'nam'; did you mean 'name'?; missing argument 'name'. "
        "Expected api.call(ids: list[int], name: str)"
    )


async def test_numeric_status_keys_are_accepted(tmp_path: pathlib.Path) -> None:
    document = one({"responses": {200: {"description": "ok"}, "default": {"description": "no"}}})
    action = await the_action(document, enrich=True, cache_dir=str(tmp_path))
    assert action.signature == "() -> None"
