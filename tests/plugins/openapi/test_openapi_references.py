"""References: to other documents, by way of redirects, and where nothing can be found."""

from __future__ import annotations

import json
import pathlib
from typing import Any, cast

import pytest

from delf.environment import SourcedText
from delf.errors import ConnectionUnavailableError, ToolRefusedError
from delf.tools.action import Action
from delf_openapi import APITool
from delf_openapi.failures import SpecError
from support.openapi_specs import body, one, param, spec
from support.raw_http import Reply, Seen, raw_server

GET: dict[str, Any] = {"get": {"operationId": "fine", "responses": {}}}


async def loaded(document: Any, **settings: Any) -> tuple[dict[str, Action], list[str]]:
    """Return the actions of a specification, and the warnings about it."""
    tool = APITool(document, name="api", **settings)
    actions = {action.name: action for action in await tool.actions()}
    return actions, tool.inspect()["warnings"]


def with_sourced_texts(node: Any) -> Any:
    """Return a specification with the kind of texts that delf.toml gives to a connection."""
    if isinstance(node, dict):
        mapping = cast("dict[str, Any]", node)
        return {key: with_sourced_texts(value) for key, value in mapping.items()}
    if isinstance(node, list):
        return [with_sourced_texts(item) for item in cast("list[Any]", node)]
    return SourcedText(node) if isinstance(node, str) else node


async def test_references_of_a_specification_in_a_settings_file_are_followed() -> None:
    thing = {"type": "object", "properties": {"size": {"$ref": "#/components/schemas/Size"}}}
    operation = {
        "parameters": [{"$ref": "#/components/parameters/Limit"}],
        "requestBody": body({"$ref": "#/components/schemas/Thing"}),
    }
    document = one(operation, method="post") | {
        "components": {
            "parameters": {"Limit": param("limit", schema={"type": "integer"})},
            "schemas": {"Thing": thing, "Size": {"type": "integer"}},
        }
    }
    actions, warnings = await loaded(with_sourced_texts(document))
    types = {each.name: each.type_text for each in actions["call"].parameters}
    assert (types, warnings) == ({"limit": "int", "size": "int"}, [])


@pytest.mark.parametrize("as_url", [False, True])
async def test_references_to_an_allowed_folder_are_followed(
    as_url: bool, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "shared parts"
    folder.mkdir()
    (folder / "size.json").write_text('{"type": "integer"}')
    (tmp_path / "api").mkdir()
    document = one({"parameters": [param("size", schema={"$ref": "../shared%20parts/size.json"})]})
    (tmp_path / "api/spec.json").write_text(json.dumps(document))
    actions, _ = await loaded(
        tmp_path / "api/spec.json", refs=[folder.as_uri() if as_url else str(folder)]
    )
    assert actions["call"].parameters[0].type_text == "int"


# -- redirects ----------------------------------------------------------------------------


async def test_reference_is_not_followed_to_another_origin() -> None:
    async with raw_server(lambda seen: Reply(200, b'{"type": "integer"}')) as other:
        document = one({"parameters": [param("q", schema={"$ref": "s.json"})]})

        def answer(seen: Seen) -> Reply:
            if seen.path == "/spec.json":
                return Reply(200, json.dumps(document).encode())
            return Reply(302, b"", {"Location": f"{other.url}/s.json"})

        async with raw_server(answer) as server:
            actions, _ = await loaded(f"{server.url}/spec.json")
        assert actions["call"].parameters[0].type_text == "Any"
        assert not other.seen


async def test_specification_redirect_stays_within_its_origin() -> None:
    async with raw_server(lambda seen: Reply(200, json.dumps(one({})).encode())) as other:

        def answer(seen: Seen) -> Reply:
            places = {"/old": "/new", "/away": f"{other.url}/x", "/round": "/round"}
            if seen.path in places:
                return Reply(301, b"", {"Location": places[seen.path]})
            return Reply(200, json.dumps(one({})).encode())

        async with raw_server(answer) as server:
            actions, _ = await loaded(f"{server.url}/old")
            assert list(actions) == ["call"]
            with pytest.raises(ConnectionUnavailableError, match="moved to another origin"):
                await loaded(f"{server.url}/away")
            with pytest.raises(ConnectionUnavailableError, match="redirects forever"):
                await loaded(f"{server.url}/round")
        assert not other.seen


# -- documents in several files -----------------------------------------------------------

ROOT = """\
openapi: 3.0.3
info: {title: T, version: '1'}
paths:
  /pets: {$ref: 'paths/pets.yaml'}
components:
  schemas: {$ref: 'parts/schemas.yaml'}
"""
PATHS = """\
get:
  operationId: list
  parameters:
    - &limit {name: limit, in: query, schema: {$ref: '../root.yaml#/components/schemas/Limit'}}
  responses: {'200': {description: ok, content: {application/json: {schema: &pet
    {$ref: '../parts/schemas.yaml#/Pet'}}}}}
put:
  operationId: change
  parameters: [*limit]
  responses: {'200': {description: ok, content: {application/json: {schema: *pet}}}}
"""
SCHEMAS = "Limit: {type: integer}\nPet: {type: object, properties: {mum: {$ref: '#/Pet'}}}\n"


@pytest.mark.parametrize("cache", [False, True])
async def test_multi_file_specification_with_aliases_is_read(
    cache: bool, tmp_path: pathlib.Path
) -> None:
    for name, text in (("root", ROOT), ("paths/pets", PATHS), ("parts/schemas", SCHEMAS)):
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    for _ in range(2):  # with the cache the second time is from it
        settings = {"cache": cache, "cache_dir": str(tmp_path / "cache")}
        actions, warnings = await loaded(str(tmp_path / "root.yaml"), **settings)
        assert warnings == []
        assert {a.signature for a in actions.values()} == {
            '(limit: int = ...) -> (Pet := {"mum": Pet})'
        }
        with pytest.raises(ToolRefusedError, match="integer"):
            actions["change"].validate({"limit": "x"})


async def test_missing_section_is_reported() -> None:
    with pytest.raises(SpecError, match=r"leads nowhere \(at #/components/schemas\)"):
        await loaded(spec({"/a": GET}, components={"schemas": {"$ref": "#/nowhere"}}))


# -- beside a reference -------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
async def test_keys_beside_a_parameter_reference_are_ignored(version: str) -> None:
    raw = {"$ref": "#/components/parameters/Limit", "required": True, "x-note": 1}
    parts = {"parameters": {"Limit": param("limit", schema={"type": "integer"})}}
    actions, warnings = await loaded(
        spec({"/x": {"get": {"operationId": "call", "parameters": [raw]}}}, version)
        | {"components": parts}
    )
    assert (actions["call"].signature, warnings) == ("(limit: int = ...) -> Any", [])


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
async def test_keys_beside_a_path_reference_are_applied(version: str) -> None:
    shared = {"get": {"operationId": "call"}, "parameters": [param("a")]}
    item = {"$ref": "#/x-items/shared", "parameters": [param("b")], "put": {"operationId": "own"}}
    document = spec({"/x": item}, version) | {"x-items": {"shared": shared}}
    actions, _ = await loaded(document)
    names = {name: [p.name for p in action.parameters] for name, action in actions.items()}
    assert names == {"call": ["a", "b"], "own": ["a", "b"]}


# -- what cannot be followed --------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ("http://[bad", "is not an address"),
        ("#/x-list/" + "9" * 5000, "leads nowhere"),
        ("#/x-list/٣", "leads nowhere"),
        ("#/nowhere", "leads nowhere"),
    ],
)
async def test_path_with_an_unresolvable_reference_is_omitted(ref: str, reason: str) -> None:
    document = spec({"/bad": {"$ref": ref}, "/fine": GET}) | {"x-list": [GET]}
    actions, warnings = await loaded(document)
    assert list(actions) == ["fine"]
    assert warnings[0].startswith("#/paths/~1bad: $ref ")
    assert reason in warnings[0]


@pytest.mark.parametrize("path", ["/a%20b/{id}", "/a%2Fb/{id}", "/a~b/{id}", "/a~1b/{id}"])
async def test_path_with_json_pointer_characters_is_compiled(path: str) -> None:
    actions, warnings = await loaded(one({}, path))
    assert (actions["call"].signature, warnings) == ("(id: str) -> None", [])


@pytest.mark.parametrize(
    "broken",
    [
        {"get": {"parameters": [{"$ref": "#/no"}]}},
        {"get": {"parameters": [{"in": "body"}], "consumes": 5}},
        {"get": {"parameters": [{"in": "formData", "type": "string", "required": True}]}},
        {"get": {"parameters": [{"in": "formData", "type": "string"}]}},
        {"get": {}, "parameters": [{"$ref": "#/no"}]},
        {"get": {}, "parameters": {"page": {"in": "query"}}},
    ],
)
async def test_broken_swagger_2_operation_is_omitted(broken: Any) -> None:
    paths = {"/bad": broken, "/fine": GET}
    actions, warnings = await loaded({"swagger": "2.0", "info": {}, "host": "h", "paths": paths})
    assert list(actions) == ["fine"]
    assert "GET /bad is left out: " in warnings[0]


async def test_swagger_2_media_types_may_be_a_single_text() -> None:
    body = {"in": "body", "name": "body", "schema": {"type": "object"}}
    returned = {"200": {"description": "", "schema": {"type": "integer"}}}
    call = {
        "operationId": "call",
        "consumes": "application/json",
        "produces": "application/json",
        "parameters": [body],
        "responses": returned,
    }
    document = {"swagger": "2.0", "info": {}, "host": "h", "paths": {"/x": {"post": call}}}
    actions, warnings = await loaded(document)
    assert (actions["call"].signature, warnings) == ("(body: dict = ...) -> int", [])


async def test_invalid_paths_of_a_document_cause_warnings() -> None:
    document = spec({"pets": GET, "x-note": {}, "/fine": GET, "/line\nbreak": 5})
    actions, warnings = await loaded(document)
    assert list(actions) == ["fine"]
    assert warnings == [
        "#/paths/pets: a path must begin with a slash",
        "#/paths/~1line break: a int stands where a mapping must be",
    ]


async def test_operation_behind_a_reference_becomes_an_action() -> None:
    document = spec({"/pets": {"get": {"$ref": "#/x-operations/list"}, "put": {"$ref": "#/no"}}})
    document["x-operations"] = {"list": {**GET["get"], "operationId": "listPets"}}
    actions, warnings = await loaded(document, base_url="http://127.0.0.1:9")
    assert list(actions) == ["list_pets"]
    assert any("/paths/~1pets/put" in warning for warning in warnings)
