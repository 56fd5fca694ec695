"""From a specification to actions: versions, references, names, types, effects, selection."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
from typing import Any

import pytest
import yaml

from delf.errors import (
    AgentConfirmationError,
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    ConnectionUnavailableError,
    ToolRefusedError,
)
from delf.tools.action import Action
from delf_openapi import APITool
from delf_openapi.failures import SpecError
from support.openapi_specs import PETS, body, one, param, spec
from support.raw_http import Reply, raw_server


async def actions_of(document: Any, **settings: Any) -> dict[str, Action]:
    tool = APITool(document, name="api", base_url="http://127.0.0.1:9", **settings)
    return {action.name: action for action in await tool.actions()}


async def test_swagger_2_nullable_lists_become_unions() -> None:
    message = {"properties": {"text": {"type": "string"}}}  # without a type
    schema = {
        "type": "object",
        "properties": {
            "latest": {"items": [{"$ref": "#/definitions/message"}, {"type": "null"}]},
            "ids": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            "items": {"type": "array", "items": [{"$ref": "#/definitions/message"}]},
            "kind": {"type": "string", "example": {"items": [1]}},
        },
    }
    document = {
        "swagger": "2.0",
        "info": {},
        "host": "h",
        "definitions": {"message": message},
        "paths": {"/x": {"get": {"operationId": "x", "responses": {"200": {"schema": schema}}}}},
    }
    given = json.dumps(document)
    assert (await actions_of(document))["x"].returns == (
        '{"latest": {"text": str} | None, "ids": list[str | int], '
        '"items": list[{"text": str}], "kind": str}'
    )
    assert json.dumps(document) == given


async def test_small_specification_becomes_actions() -> None:
    actions = await actions_of(PETS)
    assert {n: (a.effect, a.signature) for n, a in actions.items()} == {
        "list_pets": (
            "read",
            (
                '(limit: int = 20) -> list[(Pet := {"id": int, "name": str, '
                "\"kind\": Literal['cat', 'dog'], \"parent\": Pet})]"
            ),
        ),
        "create_pet": (
            "write",
            (
                "(name: str, kind: Literal['cat', 'dog'] = ..., parent: (Pet := {\"name\": str, "
                "?\"kind\": Literal['cat', 'dog'], ?\"parent\": Pet}) = ...) -> "
                '(Pet := {"id": int, "name": str, "kind": Literal[\'cat\', \'dog\'], "parent": Pet})'
            ),
        ),
        "get_pet": (
            "read",
            (
                '(petId: int) -> (Pet := {"id": int, "name": str, "kind": Literal[\'cat\', \'dog\'], '
                '"parent": Pet})'
            ),
        ),
        "delete_pet": ("irreversible", "(petId: int) -> None"),
        "get_photo": ("read", "(petId: int) -> bytes"),
    }
    assert actions["create_pet"].summary == "Add a pet"


@pytest.mark.parametrize("info", [{}, {"title": None}, {"title": "API v2"}, None])
def test_connection_of_a_nameless_specification_is_named_by_its_type(info: Any) -> None:
    assert APITool({**PETS, "info": info}).name == APITool.type_name()


@pytest.mark.parametrize("form", ["json", "yaml", "mapping", "url", "path"])
async def test_compile_accepts_paths_and_addresses(form: str, tmp_path: pathlib.Path) -> None:
    text = yaml.safe_dump(PETS) if form == "yaml" else json.dumps(PETS)
    file = tmp_path / f"pets.{form}"
    file.write_text(text)
    if form == "url":
        async with raw_server(lambda seen: Reply(200, text.encode())) as server:
            tool = APITool(f"{server.url}/v3/pets.json")
            assert len(await tool.actions()) == 5
            assert tool.name == "pets"
        return
    source: Any = {"mapping": PETS, "path": file}.get(form, str(file))
    tool = APITool(source)
    assert len(await tool.actions()) == 5
    assert tool.name == ("tests" if form == "mapping" else "pets")


async def test_yaml_1_2_scalars_are_kept(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("""
openapi: 3.0.0
info: {title: T, version: 2020-01-01}
paths:
  /x:
    get:
      operationId: on
      parameters:
      - {name: v, in: query, schema: {type: string, enum: [on, =, 2020-01-31, "no"]}}
      responses:
        200: {description: fine, content: {application/json: {schema: {type: integer}}}}
""")
    (action,) = (await actions_of(str(file))).values()
    assert action.signature == "(v: Literal['on', '=', '2020-01-31', 'no'] = ...) -> int"


@pytest.mark.parametrize(
    ("document", "place", "reason"),
    [
        ({"openapi": "4.0.0", "paths": {}}, "#/openapi", "version '4.0.0'"),
        ({"info": {}}, "#/swagger", "no version"),
        ({"openapi": "3.0.0"}, "#/paths", "has no paths"),
        ({"openapi": "3.0.0", "paths": []}, "#/paths", "not a mapping"),
    ],
)
async def test_broken_specification_error_has_place_and_reason(
    document: Any, place: str, reason: str
) -> None:
    with pytest.raises(SpecError, match=reason) as caught:
        await actions_of(document)
    assert caught.value.pointer == place


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "neither JSON nor YAML|not valid JSON"),
        ("a: [1", "neither JSON nor YAML"),
        ("[]", "not a mapping"),
        ("just words", "not a mapping"),
        ("\xff\xfe", "not a mapping|neither"),
    ],
)
async def test_non_document_is_refused(text: str, reason: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(SpecError, match=reason):
        await actions_of(str(file))


async def test_missing_specification_is_reported() -> None:
    with pytest.raises(ConnectionFileNotFoundError, match=r"nowhere\.json"):
        await actions_of("nowhere.json")
    with pytest.raises(ConnectionUnavailableError, match="is not available"):
        await actions_of("http://127.0.0.1:9/x.json")
    with pytest.raises(ConnectionConfigurationError, match="invalid host or port"):
        await actions_of("http://127.0.0.1:99999/x.json")
    with pytest.raises(ConnectionConfigurationError, match="invalid host or port"):
        await actions_of("http://[::1/x.json")
    with pytest.raises(ConnectionConfigurationError, match="'spec' is missing"):
        await actions_of(None)


BROKEN = {
    "/dangling": {"get": {"operationId": "dangling", "parameters": [{"$ref": "#/nope"}]}},
    "/circle": {
        "post": {"operationId": "circle", "requestBody": {"$ref": "#/components/requestBodies/A"}}
    },
    "/listed": {"get": []},
    "/params": {"get": {"operationId": "params", "parameters": {"a": 1}}},
    "/place": {"get": {"operationId": "place", "parameters": [{"name": "a", "in": "nowhere"}]}},
    "/fine": {"get": {"operationId": "fine", "responses": {"200": {"$ref": "#/gone"}}}},
}


async def test_faulty_operation_is_omitted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    loop = {"requestBodies": {"A": {"$ref": "#/components/requestBodies/A"}}}
    tool = APITool(spec(BROKEN, components=loop), name="api")
    assert [a.name for a in await tool.actions()] == ["fine"]
    warnings = "\n".join(tool.inspect()["warnings"])
    for place in ("/dangling", "/circle", "~1listed", "/params", "/place"):
        assert place in warnings
    assert "#/nope" in warnings
    assert "leads back to itself" in warnings
    assert "left out" in caplog.text


NAMES = [
    ("repos/list-for-user", "repos_list_for_user"),
    ("listHTTPServers", "list_http_servers"),
    ("Get Things V2", "get_things_v2"),
    ("class", "class_"),
    ("_private", "private"),
    ("2fa", "call_2_fa"),
    ("größe.ändern", "grosse_andern"),
    ("getS3Object", "get_s3_object"),
    ("读取", "读取"),
    ("!!!", "get_x_by_id"),
    (None, "get_x_by_id"),
]


@pytest.mark.parametrize(("operation_id", "name"), NAMES)
async def test_action_name_comes_from_the_operation_id(operation_id: str | None, name: str) -> None:
    operation = {"operationId": operation_id} if operation_id else {}
    found = spec({"/x/{id}": {"get": {**operation, "responses": {}}}})
    (made,) = await actions_of(found)
    assert made == name
    assert made.isidentifier()


async def test_action_names_are_unique_and_stable() -> None:
    paths = {
        f"/{n}": {m: {"operationId": "do-it", "responses": {}} for m in ("get", "post")}
        for n in "ab"
    }
    names = list(await actions_of(spec(paths)))
    assert names == ["do_it", "do_it_post", "do_it_get", "do_it_2"]
    assert names == list(await actions_of(spec(paths)))


EFFECTS = [
    ("get", "read", "readThing"),
    ("head", "read", "x"),
    ("post", "write", "createThing"),
    ("put", "write", "x"),
    ("delete", "irreversible", "x"),
    ("post", "irreversible", "chat_delete"),
    ("post", "irreversible", "deleteThings"),
    ("get", "irreversible", "purge_all"),
    ("get", "write", "sendMessage"),
    ("get", "write", "users_deactivate"),
    ("head", "write", "restart"),
    ("get", "read", "getRefund"),
    ("get", "read", "download_archive"),
    ("get", "read", "list_runs_for_archive"),
]


@pytest.mark.parametrize(("method", "effect", "operation_id"), EFFECTS)
async def test_effect_is_derived_from_method_and_name(
    method: str, effect: str, operation_id: str
) -> None:
    claims = {"x-delf-effect": "read", "x-safe": True}
    operation = {"operationId": operation_id, "responses": {}, **claims}
    (action,) = (await actions_of(spec({"/x": {method: operation}}))).values()
    assert action.effect == effect


@pytest.mark.parametrize(
    ("path", "effect"),
    [
        ("/pay", "write"),
        ("/views.publish", "write"),
        ("/bot{token}/sendMessage", "write"),
        ("/orders/{number}:cancel", "write"),
        ("/orders/{pay}", "read"),
        ("/delete-{kind}", "irreversible"),
        ("/users/{id}/purge-{kind}", "irreversible"),
        ("/payments", "read"),
    ],
)
async def test_effect_of_a_get_is_derived_from_its_path(path: str, effect: str) -> None:
    names = re.findall(r"{(\w+)}", path)
    given = {"parameters": [param(name, "path", required=True) for name in names], "responses": {}}
    (action,) = (await actions_of(spec({path: {"get": given}}))).values()
    assert action.effect == effect


@pytest.mark.parametrize(
    ("name", "place"), [("X-HTTP-Method-Override", "header"), ("_method", "query")]
)
async def test_operation_with_a_parameter_for_the_method_is_irreversible(
    name: str, place: str
) -> None:
    operation = {"operationId": "getThing", "parameters": [param(name, place)], "responses": {}}
    (action,) = (await actions_of(spec({"/x": {"get": operation}}))).values()
    assert action.effect == "irreversible"


async def test_user_declares_effects_of_operations() -> None:
    paths = {
        "/search": {"post": {"operationId": "searchAll", "tags": ["find"], "responses": {}}},
        "/find": {"post": {"operationId": "findAll", "tags": ["find"], "responses": {}}},
        "/kept/{id}": {"delete": {"operationId": "dropKept", "responses": {}}},
        "/report": {"get": {"operationId": "makeReport", "responses": {}}},
    }

    async def effects(**message: str) -> dict[str, str]:
        tool = APITool(spec(paths), effects=message)
        return {action.name: action.effect for action in await tool.actions()}

    plain = {
        "search_all": "write",
        "find_all": "write",
        "drop_kept": "irreversible",
        "make_report": "read",
    }
    assert await effects() == plain
    message = {"tag:find": "read", "POST /f*": "irreversible", "GET *": "write", "dropKept": "read"}
    assert await effects(**message) == {
        "search_all": "read",
        "find_all": "irreversible",
        "drop_kept": "read",
        "make_report": "write",
    }
    assert (await effects(**{"*_all": "irreversible", "find_all": "read"}))["find_all"] == "read"
    with pytest.raises(ConnectionConfigurationError, match=r"effects of .* names 'findAl'"):
        await effects(findAl="read")


TYPES: list[tuple[Any, str, str]] = [
    ({"type": "string", "nullable": True}, "3.0.3", "str | None"),
    ({"type": ["string", "null"]}, "3.1.0", "str | None"),
    ({"type": ["string", "integer"]}, "3.1.0", "str | int"),
    ({"const": "a"}, "3.1.0", "Literal['a']"),
    ({"enum": ["a", "b", None], "nullable": True}, "3.0.3", "Literal['a', 'b'] | None"),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "3.1.0", "str | None"),
    (
        {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
        "3.0.3",
        "str | list[int]",
    ),
    ({"type": "object", "additionalProperties": {"type": "number"}}, "3.0.3", "dict[str, float]"),
    (
        {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]},
        "3.0.3",
        '{?"a": str, ?"b": Any}',
    ),
    ({"type": "string", "format": "binary"}, "3.0.3", "bytes"),
    ({"type": "string", "contentMediaType": "image/png"}, "3.1.0", "bytes"),
    ({"type": ["string", "null"], "contentMediaType": "image/png"}, "3.1.0", "bytes | None"),
    ({"properties": {"$ref": {"type": "string"}}}, "3.0.3", '{?"$ref": str}'),
    (True, "3.1.0", "Any"),
    ({}, "3.0.3", "Any"),
]


@pytest.mark.parametrize(("schema", "version", "text"), TYPES)
async def test_schema_becomes_a_type_text(schema: Any, version: str, text: str) -> None:
    items = {"type": "array", "items": schema}
    document = one({"requestBody": body(items)}, method="post", version=version)
    (action,) = (await actions_of(document)).values()
    assert action.parameters[0].type_text == f"list[{text}]"


async def test_action_signature_has_defaults_and_required_parameters_first() -> None:
    found = [
        param("b", schema={"type": "boolean", "default": False}),
        param(
            "since",
            schema={"type": "string", "format": "date-time"},
            description="Only <b>newer</b>. More.",
        ),
        param("need", required=True),
    ]
    (action,) = (await actions_of(one({"parameters": found}))).values()
    assert action.signature == "(need: str, b: bool = False, since: str = ...) -> None"
    assert action.parameters[2].doc == "date-time; Only newer."


@pytest.mark.parametrize(
    ("media", "doc"),
    [
        ("application/json", "at most 5 items; Readings, newest first."),
        ("text/csv", "text/csv; at most 5 items; Readings, newest first."),
    ],
)
async def test_description_of_whole_body_is_shown(media: str, doc: str) -> None:
    schema = {
        "type": "array",
        "maxItems": 5,
        "items": {"type": "number"},
        "description": "Readings, newest first. They may be empty.",
    }
    request_body = {"content": {media: {"schema": schema}}}
    (action,) = (await actions_of(one({"requestBody": request_body}, method="post"))).values()
    assert action.parameters[0].doc == doc


async def test_form_file_accepts_bytes_and_named_content() -> None:
    form = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "note": {"type": "string"},
        },
        "required": ["file", "note"],
    }
    body = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    document = spec({"/files": {"post": {"operationId": "upload", "requestBody": body}}})
    upload = (await actions_of(document))["upload"]
    shown = 'bytes | {"content": bytes, ?"filename": str, ?"content_type": str}'
    types = {item.name: item.type_text for item in upload.parameters}
    assert types == {"file": shown, "note": "str", "more": f"list[{shown}]"}
    given = {"content": b"a", "filename": "a.txt", "content_type": "text/plain"}
    upload.validate({"file": given, "note": "n", "more": [given, b"b"]})


async def test_path_level_parameters_can_be_overridden() -> None:
    item = {
        "parameters": [param("id", "path", {"type": "integer"}, required=True), param("q")],
        "get": {
            "operationId": "call",
            "parameters": [param("q", schema={"type": "integer"})],
            "responses": {},
        },
    }
    (action,) = (await actions_of(spec({"/x/{id}": item}))).values()
    assert [str(p) for p in action.parameters] == ["id: int", "q: int = ..."]


async def test_undeclared_path_placeholder_becomes_a_parameter() -> None:
    (action,) = (await actions_of(spec({"/x/{id}": {"get": {"responses": {}}}}))).values()
    assert [str(p) for p in action.parameters] == ["id: str"]


async def test_schema_keywords_beside_a_reference_apply_from_3_1() -> None:
    schema = {"$ref": "#/components/schemas/A", "properties": {"b": {"type": "string"}}}
    parts = {"schemas": {"A": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    for version, names in (("3.0.3", ["a"]), ("3.1.0", ["a", "b"]), ("3.2.0", ["a", "b"])):
        document = one(
            {"requestBody": body(schema)}, method="post", version=version, components=parts
        )
        (action,) = (await actions_of(document)).values()
        assert [p.name for p in action.parameters] == names


def big(count: int) -> dict[str, Any]:
    return spec(
        {
            f"/r{i}": {"get": {"operationId": f"r{i}", "tags": [f"t{i % 3}"], "responses": {}}}
            for i in range(count)
        }
    )


async def test_specification_offers_at_most_a_hundred_operations_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    document = big(150)
    assert len(await actions_of(document)) == 100
    assert "50 left out" in caplog.text
    assert len(await actions_of(document, allow=True)) == 150
    assert list(await actions_of(document, allow=["r140", "r141"])) == ["r140", "r141"]
    assert "100 of 150" in APITool(document).inspect()["description"]


@pytest.mark.parametrize(
    ("allow", "names"),
    [
        ("listPets", ["list_pets"]),
        (["get_pet", "list_pets"], ["list_pets", "get_pet"]),
        ("photos", ["get_photo"]),
        ("tag:admin", ["delete_pet"]),
        ("get_*", ["get_pet", "get_photo"]),
        ("GET *", ["list_pets", "get_pet", "get_photo"]),
        ("/pets/{petId}*", ["get_pet", "delete_pet", "get_photo"]),
        ("DELETE|POST /pets*", ["create_pet", "delete_pet"]),
    ],
)
async def test_allow_selects_operations(allow: Any, names: list[str]) -> None:
    assert list(await actions_of(PETS, allow=allow)) == names


async def test_unknown_selection_word_is_refused() -> None:
    with pytest.raises(ConnectionConfigurationError, match="did you mean 'get_pet'"):
        await actions_of(PETS, allow=["get_pets"])
    with pytest.raises(AgentConfirmationError, match="'nobody'"):
        await actions_of(PETS, confirm="nobody")


async def test_confirm_accepts_selection_words() -> None:
    tool = APITool(PETS, confirm=["photos", "DELETE *"], base_url="http://x.example")
    await tool.actions()
    assert tool.confirm == ("delete_pet", "get_photo")


def test_inspect_needs_no_credentials() -> None:
    found = APITool.inspect(PETS)
    assert (found["tool"], found["api"], found["total"]) == ("tests", "Tests", 5)
    assert found["methods"][0] == "list_pets"
    full = APITool.inspect(PETS, verbose=True)["methods"][1]
    assert (full["method"], full["path"], full["effect"]) == ("POST", "/pets", "write")
    assert full["parameters"][0] == {"name": "name", "type": "str", "required": True}
    assert APITool.inspect()["total"] == 0


async def test_external_references_need_permission(tmp_path: pathlib.Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api/pet.json").write_text(
        json.dumps(
            {
                "type": "object",
                "properties": {"name": {"$ref": "parts/name.yaml#/Name"}, "mum": {"$ref": "#"}},
            }
        )
    )
    (tmp_path / "api/parts").mkdir()
    (tmp_path / "api/parts/name.yaml").write_text("Name: {type: string, minLength: 2}\n")
    (tmp_path / "outside.json").write_text('{"type": "string"}')
    schema = {
        "type": "object",
        "properties": {"pet": {"$ref": "pet.json"}, "out": {"$ref": "../outside.json"}},
    }
    (tmp_path / "api/spec.json").write_text(
        json.dumps(one({"requestBody": body(schema)}, method="post"))
    )
    path = str(tmp_path / "api/spec.json")
    (action,) = (await actions_of(path)).values()
    types = {p.name: p.type_text for p in action.parameters}
    assert types == {"pet": '(Pet := {?"name": str, ?"mum": Pet})', "out": "Any"}
    (action,) = (await actions_of(path, refs=[str(tmp_path)])).values()
    assert action.parameters[1].type_text == "str"


async def test_references_to_other_origins_need_permission() -> None:
    async with raw_server(lambda seen: Reply(200, b'{"type": "string"}')) as other:
        document = one({"parameters": [param("q", schema={"$ref": "SCHEMA"})]})
        text = json.dumps(document).replace("SCHEMA", f"{other.url}/s.json")
        async with raw_server(lambda seen: Reply(200, text.encode())) as server:
            (action,) = (await actions_of(f"{server.url}/spec.json")).values()
            assert action.parameters[0].type_text == "Any"
            assert not other.seen
            (action,) = (await actions_of(f"{server.url}/spec.json", refs=[other.url])).values()
            assert action.parameters[0].type_text == "str"


async def test_response_shapes_are_learned_without_values(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "x.json"
    content = {"200": {"description": "ok", "content": {"application/json": {}}}}
    file.write_text(json.dumps(one({"responses": content})))
    answers = [b'{"id": 1, "name": "s3cret"}', b'{"id": 2.5, "name": null, "tags": ["private"]}']
    settings = {"cache": True, "cache_dir": str(tmp_path / "cache")}
    async with raw_server(lambda seen: Reply(200, answers[len(server.seen) - 1])) as server:
        tool = APITool(str(file), name="api", base_url=server.url, **settings)
        (action,) = await tool.actions()
        assert action.returns == "Any"
        for _ in answers:
            await action.call()
        await tool.aclose()
    (action,) = (await actions_of(str(file), **settings)).values()
    assert action.returns == '{"id": float, "name": str | None, ?"tags": list[str]}'
    kept = b"".join(f.read_bytes() for f in (tmp_path / "cache").iterdir())
    assert b"s3cret" not in kept
    assert b"private" not in kept


# -- hostile specifications --------------------------------------------------------------


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize("form", ["json", "yaml"])
async def test_deeply_nested_specification_is_refused(form: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / f"x.{form}"
    head = '{"openapi":"3.0.0","paths":' if form == "json" else "openapi: 3.0.0\npaths: "
    file.write_text(head + deep(10_000) + ("}" if form == "json" else "\n"))
    with pytest.raises(SpecError, match=r"nested too deeply|valid JSON"):
        await actions_of(str(file))


async def test_yaml_alias_bomb_is_refused(tmp_path: pathlib.Path) -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    file = tmp_path / "x.yaml"
    file.write_text("\n".join(["openapi: 3.0.0", "paths: {}", *lines]))
    with pytest.raises(SpecError, match="aliases expand"):
        await actions_of(str(file))


@pytest.mark.slow
async def test_reference_bomb_is_compiled_in_bounded_time() -> None:
    schemas: dict[str, Any] = {"S30": {"type": "object", "properties": {"x": {"type": "string"}}}}
    for i in range(30):
        ref = {"$ref": f"#/components/schemas/S{i + 1}"}
        schemas[f"S{i}"] = {
            "allOf": [ref, ref],
            "properties": {"a": ref, "b": ref},
            "anyOf": [ref, ref],
        }
    document = one(
        {"requestBody": body({"$ref": "#/components/schemas/S0"})},
        method="post",
        components={"schemas": schemas},
    )
    (action,) = (await actions_of(document)).values()
    assert len(action.signature) < 4000
    value = {"a": {"a": {"b": {"x": "1"}}}}
    name = action.parameters[0].name
    action.validate({name: value} if name == "body" else value)


async def test_hostile_names_cannot_become_code() -> None:
    evil = 'x"""\n```\nimport os\u202e\x1b[2J'
    operation = {
        "operationId": evil,
        "summary": evil,
        "parameters": [
            param(evil, description=evil, schema={"type": "string", "enum": [evil, "b"]})
        ],
        "responses": {
            "200": {
                "description": "",
                "content": {"application/json": {"schema": {"properties": {evil: {}}}}},
            }
        },
    }
    from delf.tools.stubs import render_stubs
    from delf_engine.toolset import load_toolset

    tool = APITool(
        spec({"/x": {"get": operation}}, info={"title": evil, "version": "1"}), name="api"
    )
    stubs = render_stubs(bound.describe() for bound in await load_toolset([tool]))
    assert "```" not in stubs
    assert len(stubs.splitlines()) <= 5
    assert "\x1b" not in stubs
    assert "\u202e" not in stubs
    assert stubs.count('"""') == 2


@pytest.mark.parametrize(
    "ref",
    ["file:///etc/passwd", "/etc/passwd", "../../../../etc/passwd", "http://169.254.169.254/x"],
)
async def test_forbidden_references_are_refused(ref: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(
        json.dumps(spec({"/x": {"get": {"operationId": "call", "parameters": [{"$ref": ref}]}}}))
    )
    tool = APITool(str(file), name="api")
    assert await tool.actions() == ()
    assert (
        "leaves the folder or origin" in tool.inspect()["warnings"][0]
        or "private" in tool.inspect()["warnings"][0]
    )


@pytest.mark.timeout(20)
async def test_reference_to_a_very_long_path_is_refused(tmp_path: pathlib.Path) -> None:
    ref = f"{'a/' * 60_000}x.json#/a"
    file = tmp_path / "x.json"
    file.write_text(
        json.dumps(spec({"/x": {"get": {"operationId": "call", "parameters": [{"$ref": ref}]}}}))
    )
    tool = APITool(str(file), name="api")
    assert await tool.actions() == ()
    assert "longer than 4096 characters" in tool.inspect()["warnings"][0]


async def test_oversized_specification_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "x.json"
    with file.open("wb") as out:
        out.truncate(200_000_000)
    with pytest.raises(SpecError, match="too large"):
        await actions_of(str(file))


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "^(a?){60}a{60}$",
        "(.*)(.*)(.*)(.*)x",
        r"^(a*)\1*\1*b$",
        "^(?=(a+)+$)a",
        "^" + "a{0,19}" * 60 + "$",
        "^.{1,9000}$",
        "[[a]]",
        "(?:(?:(?:){60000}){60000}){60000}b",
    ],
    ids=lambda pattern: pattern[:20],
)
async def test_catastrophic_pattern_is_checked_in_time(
    pattern: str,
) -> None:
    found = param("q", schema={"type": "string", "pattern": pattern})
    (action,) = (await actions_of(one({"parameters": [found]}))).values()
    given = {"q": "a" * 390_000 + "!"}
    taken = None
    with contextlib.suppress(ToolRefusedError):
        taken = action.validate(given)  # or the test's time runs out
    assert taken in (None, given)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^(red|green|blue)(-(dark|light))?$", "red-dark", "red-"),
        ("/^x$/", "x", "y"),
        ("^.{2,4}$", "abc", "a"),
        ("^[A-Z]{3}$", "EUR", "EUR\n"),
    ],
)
async def test_pattern_of_a_parameter_is_enforced(pattern: str, good: str, bad: str) -> None:
    found = param("q", schema={"type": "string", "pattern": pattern})
    (action,) = (await actions_of(one({"parameters": [found]}))).values()
    assert action.validate({"q": good}) == {"q": good}
    with pytest.raises(ToolRefusedError, match="does not match"):
        action.validate({"q": bad})


@pytest.mark.parametrize("kind", ["string", ["string", "null"]])
@pytest.mark.parametrize(
    ("format_name", "good", "bad"),
    [
        ("date", "2024-02-29", "2026-13-01"),
        ("date", "2026-10-31", "2025-02-29"),
        ("date", "2026-10-31", "20261031"),
        ("date-time", "2026-10-31T08:00:00", "2026-13-01T08:00:00Z"),
        ("date-time", "2026-10-31t08:00:60.1234567z", "2026-10-31T25:00:00Z"),
        ("date-time", "2026-10-31 08:00:00+01:00", "tomorrow"),
    ],
)
async def test_date_of_a_parameter_has_to_be_in_the_calendar(
    kind: Any, format_name: str, good: str, bad: str
) -> None:
    found = param("q", schema={"type": kind, "format": format_name})
    (action,) = (await actions_of(one({"parameters": [found]}))).values()
    assert action.validate({"q": good}) == {"q": good}
    words = f"q: '{bad}' is not a {format_name}, as 2026-10-31"
    with pytest.raises(ToolRefusedError, match=re.escape(words)):
        action.validate({"q": bad})


FASTAPI = {
    "openapi": "3.1.0",
    "info": {"title": "Runs", "version": "1"},
    "paths": {
        f"/{path}": {
            method: {
                "operationId": operation,
                "parameters": [
                    {"name": "X-Version", "in": "header", "schema": {"type": "string"}},
                    *(
                        {"name": name, "in": "path", "required": True, "schema": {}}
                        for name in re.findall(r"\{(\w+)\}", path)
                    ),
                ],
                "responses": {"200": {"description": "", "content": {}}},
            }
        }
        for path, method, operation in (
            ("runs/filter", "post", "read_runs_runs_filter_post"),
            ("runs/{id}", "get", "read_run_runs__id__get"),
            ("pools/{pool}/queues", "post", "create_queue_pools__pool__queues_post"),
            ("queues", "post", "create_queue_queues_post"),
            ("health", "get", "health_health_get"),
            ("version", "get", "_version_get"),
        )
    },
}


async def test_fastapi_suffixes_are_removed_from_names() -> None:
    assert set(await actions_of(FASTAPI)) == {
        "read_runs",
        "read_run",
        # Two that would have one name keep their own.
        "create_queue_pools_pool_queues_post",
        "create_queue_queues_post",
        "health",
        "version_get",
    }
    tool = APITool(FASTAPI, base_url="http://127.0.0.1:9", allow=["read_run_runs__id__get"])
    assert [action.name for action in await tool.actions()] == ["read_run"]


async def test_optional_headers_of_most_operations_are_hidden() -> None:
    actions = await actions_of(FASTAPI)
    assert actions["read_run"].signature.startswith("(id: Any)")
    assert actions["read_run"].validate({"id": "5", "x_version": "2"})


async def test_full_types_show_what_shorter_types_omit() -> None:
    part = {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(40)}}
    shape = {"type": "object", "properties": {f"k{n}": part for n in range(3)}}
    values = [f"VALUE_{n}" for n in range(40)]
    spec = {
        "openapi": "3.1.0",
        "info": {"title": "Wide", "version": "1"},
        "paths": {
            "/a": {
                "post": {
                    "operationId": "send",
                    "requestBody": {
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "object",
                                    "properties": {"deep": shape, "kind": {"enum": values}},
                                }
                            }
                        }
                    },
                    "responses": {
                        "200": {
                            "description": "",
                            "content": {"application/json": {"schema": shape}},
                        }
                    },
                }
            }
        },
    }
    action = (await actions_of(spec))["send"]
    assert "p39" not in action.signature
    assert action.full_types is not None
    full = action.full_types()
    deep, kind = full.parameters
    assert deep.type_text.count('"p39": int') == full.returns.count('"p39": int') == 3
    assert "'VALUE_39'" in kind.type_text


ENUM = {"type": "integer", "enum": [1, 2], "description": "* `1` - Low\n* `2` - Urgent"}


@pytest.mark.parametrize(
    ("schema", "doc"),
    [
        ({"allOf": [{"type": "string", "description": "Whose it is."}]}, "Whose it is."),
        ({"allOf": [{"type": "string"}], "description": "Outer."}, "Outer."),
        ({"anyOf": [{"type": "string", "description": "A mail."}, {"type": "null"}]}, "A mail."),
        ({"allOf": [ENUM]}, "1: Low, 2: Urgent"),
        ({"enum": ["a"], "description": "Whose.\n\n* `a` - A\n* `b` - Bob"}, "Whose.; b: Bob"),
        (
            {"enum": ["a", "b"], "x-enum-descriptions": ["Ann", "Bob"], "description": "Who."},
            "Who.; a: Ann, b: Bob",
        ),
        ({"enum": [1, 2], "x-enumDescriptions": {"1": "Low", "2": "High"}}, "1: Low, 2: High"),
        (
            {"oneOf": [{"const": 1, "title": "Low"}, {"const": 2, "title": "High"}]},
            "1: Low, 2: High",
        ),
    ],
)
async def test_value_descriptions_are_shown_everywhere(schema: Any, doc: str) -> None:
    document = one({"parameters": [param("value", schema=schema)]})
    (parameter,) = (await actions_of(document))["call"].parameters
    assert parameter.doc.endswith(doc)


async def test_binary_fields_of_json_are_text() -> None:
    schema = {"type": "object", "properties": {"data": {"type": "string", "format": "binary"}}}
    operation = {
        "requestBody": body(schema),
        "responses": {
            "200": {"description": "", "content": {"application/json": {"schema": schema}}}
        },
    }
    (action,) = (await actions_of(one(operation, method="post"))).values()
    assert action.signature == '(data: bytes = ...) -> {"data": str}'


async def test_invalid_key_error_lists_the_allowed_keys() -> None:
    inner = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"state": {"enum": [f"s{n}" for n in range(20)]}, "name": {}},
    }
    schema = {"type": "object", "properties": {"filter": {"anyOf": [inner, {"type": "null"}]}}}
    action = (await actions_of(one({"requestBody": body(schema)}, method="post")))["call"]
    with pytest.raises(
        ToolRefusedError, match=r"no key 'stat'; known keys: state, name; did you mean 'state'"
    ):
        action.validate({"filter": {"stat": "s1"}})
    with pytest.raises(ToolRefusedError, match=r"'x' is not one of 's0', 's1'.*'s19'"):
        action.validate({"filter": {"state": "x"}})


@pytest.mark.parametrize(
    ("description", "notes"),
    [
        ("List user. Sorted by name.", "Sorted by name."),
        ("List user, sorted by name.", "sorted by name."),
        ("List users of a team.", "List users of a team."),
        ("List user-defined fields.", "List user-defined fields."),
        ("List user's teams.", "List user's teams."),
        ("List user — sorted by name.", "sorted by name."),
        ("List user。Sorted by name.", "Sorted by name."),
    ],
)
async def test_description_is_not_cut_within_a_word(description: str, notes: str) -> None:
    operation = {
        "operationId": "list",
        "summary": "List user",
        "description": description,
        "responses": {"200": {"description": "OK"}},
    }
    document = {
        "openapi": "3.0.3",
        "info": {"title": "Users", "version": "1"},
        "paths": {"/users": {"get": operation}},
    }
    (action,) = (await actions_of(document)).values()
    assert (action.summary, action.notes) == ("List user", notes)


async def test_prompt_includes_units_and_conventions() -> None:
    fee = {"type": "integer", "description": "The fee. In cents."}
    document: dict[str, Any] = {
        "openapi": "3.0.3",
        "info": {"title": "Parcels", "version": "1", "description": "Weights are in **grams**."},
        "paths": {
            "/parcels": {
                "post": {
                    "operationId": "send",
                    "summary": "Send a parcel",
                    "description": "Send a parcel. Parcels over 30 kg are refused.",
                    "parameters": [
                        {
                            "name": "since",
                            "in": "query",
                            "description": "Only parcels since then. Unix seconds.",
                            "schema": {"type": "string"},
                        }
                    ],
                    "requestBody": {
                        "description": "Sent once a day.",
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "object",
                                    "properties": {
                                        "to": {"type": "object", "properties": {"fee": fee}}
                                    },
                                }
                            }
                        },
                    },
                    "responses": {
                        "200": {
                            "description": "OK",
                            "content": {
                                "application/json": {
                                    "schema": {"type": "object", "properties": {"fee": fee}}
                                }
                            },
                        }
                    },
                }
            }
        },
    }
    tool = APITool(document, name="api", base_url="http://127.0.0.1:9")
    (action,) = await tool.actions()
    assert action.full_types is not None
    full = action.full_types()
    assert action.summary == "Send a parcel"
    assert action.notes == "Parcels over 30 kg are refused. Sent once a day."
    assert full.notes == "fee: The fee. In cents"
    notes = {item.name: (item.doc, item.notes) for item in full.parameters}
    assert notes["since"] == ("Only parcels since then.", "Unix seconds")
    assert notes["to"] == ("", "fee: The fee. In cents")
    assert await tool.context("any") == "Weights are in **grams**."
