"""Every kind of body, as it arrives."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

import pytest
from werkzeug.formparser import MultiPartParser
from werkzeug.http import parse_options_header

from delf.errors import ToolRefusedError
from support.openapi_specs import body, one, param
from support.raw_http import RawServer, Reply, Seen

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
FILE = {"type": "string", "format": "binary"}


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def parts(seen: Seen) -> dict[str, list[tuple[str | None, str | None, bytes]]]:
    """Return the parts of a multipart body: file name, type, content."""
    kind, options = parse_options_header(seen.header("content-type"))
    assert kind == MULTIPART
    parser = MultiPartParser()
    form, files = parser.parse(io.BytesIO(seen.body), options["boundary"].encode(), len(seen.body))
    found: dict[str, list[tuple[str | None, str | None, bytes]]] = {
        k: [(None, None, v.encode()) for v in form.getlist(k)] for k in form
    }
    for name in files:
        found[name] = [(f.filename, f.content_type, f.read()) for f in files.getlist(name)]
        for file in files.getlist(name):
            file.close()
    return found


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
MOMENT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
JSON: dict[str, Any] = {
    "properties are keywords": (
        thing(a=INTEGER, b={**STRING, "nullable": True}, c=STRING),
        {"a": 1, "b": None},
        {"a": 1, "b": None},
    ),
    "dates and bytes become what JSON has": (
        thing(at={**STRING, "format": "date-time"}, data={**STRING, "format": "byte"}),
        {"at": MOMENT, "data": b"hello"},
        {"at": "2026-01-31T12:00:00+00:00", "data": "aGVsbG8="},
    ),
    "a Decimal is text where text is asked, with all its digits": (
        thing(
            price={**STRING, "format": "decimal"},
            tax={"anyOf": [{**STRING, "pattern": "^[0-9.]+$"}, {"type": "null"}]},
            weight={"type": "number"},
            share={"anyOf": [{"type": "number"}, STRING]},
            lines={"type": "array", "items": thing(net={**STRING, "format": "decimal"})},
        ),
        {
            "price": Decimal("12345678901234567.10"),
            "tax": Decimal("0.50"),
            "weight": Decimal("1.5"),
            "share": Decimal("0.25"),
            "lines": [{"net": 3}, {"net": 1e-7}],
        },
        {
            "price": "12345678901234567.10",
            "tax": "0.50",
            "weight": 1.5,
            "share": 0.25,
            "lines": [{"net": "3"}, {"net": "0.0000001"}],
        },
    ),
    "a list is one keyword": ({"type": "array", "items": INTEGER}, {"body": [1, 2]}, [1, 2]),
    "so is a text": (STRING, {"body": "text"}, "text"),
    "and a choice of objects": (
        {"oneOf": [thing(a=INTEGER), thing(b=STRING)]},
        {"body": {"b": "x"}},
        {"b": "x"},
    ),
    "and a dict": (
        {"type": "object", "additionalProperties": INTEGER},
        {"body": {"any": 1}},
        {"any": 1},
    ),
    "and what may be null": ({**thing(a={}), "nullable": True}, {"body": None}, None),
    "parts are merged": (
        {"allOf": [thing(a=INTEGER), {**thing(b=STRING), "required": ["b"]}]},
        {"a": 1, "b": "x"},
        {"a": 1, "b": "x"},
    ),
    "further properties": (
        {**thing(a=INTEGER), "additionalProperties": True},
        {"a": 1, "extra_fields": {"z": [2]}},
        {"a": 1, "z": [2]},
    ),
    "what is read-only is not asked for": (
        {**thing(id={**INTEGER, "readOnly": True}, a=STRING), "required": ["id", "a"]},
        {"a": "x"},
        {"a": "x"},
    ),
    "an empty body that is required": (thing(a={}), {}, {}),
}


@pytest.mark.parametrize("case", JSON)
async def test_json_body_is_sent(case: Any, open_api: Any, invoke: Any, server: RawServer):
    schema, given, sent = JSON[case]
    await invoke(open_api(one({"requestBody": body(schema)}, method="post")), "call", **given)
    assert json.loads(server.last.body) == sent
    assert server.last.header("content-type") == "application/json"


@pytest.mark.parametrize("media", ["application/json", "application/merge-patch+json", FORM])
@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "properties": {}}])
async def test_body_without_listed_properties_is_one_dict(
    media: Any, schema: Any, open_api: Any, invoke: Any, server: RawServer
):
    document = one({"requestBody": {"required": True, "content": {media: {"schema": schema}}}})
    tool = open_api(document)
    (action,) = await tool.actions()
    assert [str(parameter) for parameter in action.parameters] == ["body: dict"]
    await invoke(tool, "call", body={"a": "1"})
    assert server.last.body in (b'{"a":"1"}', b'{"a": "1"}', b"a=1")


@pytest.mark.parametrize(
    "field",
    [
        None,
        {**STRING, "required": True},
        {**STRING, "minLength": "1"},
        {**STRING, "description": 5},
        {**STRING, "enum": "a"},
        {**STRING, "format": None},
        {"type": "number", "minimum": "0"},
        {"type": "array", "items": [STRING]},
        {"type": "object", "required": ["a", "a"], "additionalProperties": "false"},
        {"oneOf": []},
    ],
)
async def test_invalid_keyword_leaves_the_other_rules_checked(open_api: Any, field: Any):
    schema = thing(odd=field, count=INTEGER)
    (action,) = await open_api(one({"requestBody": body(schema)}, method="post")).actions()
    action.validate({"count": 1})
    with pytest.raises(ToolRefusedError, match="argument count"):
        action.validate({"count": "x"})


async def test_value_is_checked_by_all_of_beside_one_of_and_any_of(open_api: Any):
    schema = {
        "allOf": [{"maxLength": 3}],
        "oneOf": [{"type": "string"}, INTEGER],
        "anyOf": [{"type": "string"}, {"type": "array"}],
    }
    (action,) = await open_api(one({"requestBody": body(schema)}, method="post")).actions()
    action.validate({"body": "abc"})
    for value in ("abcd", 5, []):
        with pytest.raises(ToolRefusedError, match="argument body"):
            action.validate({"body": value})


async def test_nullable_field_of_an_unknown_type_leaves_the_other_fields_checked(open_api: Any):
    schema = thing(price={"type": "money", "nullable": True}, count=INTEGER)
    (action,) = await open_api(one({"requestBody": body(schema)}, method="post")).actions()
    action.validate({"price": "5 EUR"})
    action.validate({"price": None})
    with pytest.raises(ToolRefusedError, match="argument count"):
        action.validate({"count": "x"})


@pytest.mark.parametrize(
    "declared", [["money", "null"], ["string", "string"], [], None, {"type": "string"}]
)
async def test_field_of_an_invalid_type_leaves_the_other_fields_checked(
    open_api: Any, declared: Any
):
    schema = thing(price={"type": declared}, count=INTEGER)
    (action,) = await open_api(one({"requestBody": body(schema)}, method="post")).actions()
    action.validate({"price": "5 EUR"})
    with pytest.raises(ToolRefusedError, match="argument count"):
        action.validate({"count": "x"})


async def test_closed_empty_body_adds_no_parameter(open_api: Any):
    schema = {"type": "object", "additionalProperties": False}
    (action,) = await open_api(one({"requestBody": body(schema)})).actions()
    assert action.parameters == ()


async def test_body_clashing_with_a_parameter_becomes_one_keyword(
    open_api: Any, invoke: Any, server: RawServer
):
    operation = {
        "parameters": [param("id", "path", required=True)],
        "requestBody": body(thing(id={})),
    }
    tool = open_api(one(operation, "/x/{id}", "put"))
    await invoke(tool, "call", id="1", body={"id": "2"})
    assert (server.last.path, json.loads(server.last.body)) == ("/x/1", {"id": "2"})


async def test_omitted_body_argument_sends_no_body(open_api: Any, invoke: Any, server: RawServer):
    tool = open_api(one({"requestBody": body(thing(a={}), required=False)}, method="post"))
    await invoke(tool, "call")
    assert server.last.body == b""
    assert server.last.header("content-type") is None


async def test_form_body_is_sent(open_api: Any, invoke: Any, server: RawServer):
    schema = thing(
        a={"type": "string"},
        l={"type": "array", "items": {"type": "integer"}},
        o={"type": "object"},
    )
    tool = open_api(one({"requestBody": body(schema, FORM)}, method="post"))
    await invoke(tool, "call", a="x y&z=é", l=[1, 2], o={"k": 1})
    assert server.last.header("content-type") == FORM
    assert parse_qsl(server.last.body.decode()) == [
        ("a", "x y&z=é"), ("l", "1"), ("l", "2"), ("o", '{"k":1}'),
    ]  # fmt: skip


async def test_nested_form_fields_use_brackets(open_api: Any, invoke: Any, server: RawServer):
    schema = thing(
        amount={"type": "integer"},
        card={"type": "object", "properties": {"exp": {"type": "object"}}},
        items={"type": "array", "items": {"type": "object"}},
        expand={"type": "array", "items": {"type": "string"}},
    )
    deep = {"style": "deepObject", "explode": True}
    content = body(schema, FORM, encoding={"card": deep, "items": deep, "expand": deep})
    tool = open_api(one({"requestBody": content}, method="post"))
    await invoke(
        tool,
        "call",
        amount=5,
        card={"exp": {"month": 1}},
        items=[{"price": "p", "n": True}],
        expand=["a.b"],
    )
    assert parse_qsl(server.last.body.decode()) == [
        ("amount", "5"), ("card[exp][month]", "1"), ("items[0][price]", "p"), ("items[0][n]", "true"),
        ("expand[0]", "a.b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "written"),
    [
        ({"style": "form", "explode": False}, "l=1,2"),
        ({"style": "pipeDelimited", "explode": False}, "l=1%7C2"),
        ({"style": "spaceDelimited", "explode": False}, "l=1%202"),
        ({"contentType": "application/json"}, "l=%5B1%2C2%5D"),
    ],
)
async def test_form_body_writes_lists(
    how: Any, written: Any, open_api: Any, invoke: Any, server: RawServer
):
    schema = thing(l={"type": "array", "items": {"type": "integer"}})
    tool = open_api(one({"requestBody": body(schema, FORM, encoding={"l": how})}, method="post"))
    await invoke(tool, "call", l=[1, 2])
    assert server.last.body.decode() == written


async def test_multipart_body_is_sent(open_api: Any, invoke: Any, server: RawServer):
    schema = thing(
        file=FILE,
        files={"type": "array", "items": FILE},
        note={"type": "string"},
        n={"type": "integer"},
        meta={"type": "object"},
        tags={"type": "array", "items": {"type": "string"}},
    )
    content = body(schema, MULTIPART, encoding={"file": {"contentType": "image/png, image/jpeg"}})
    tool = open_api(one({"requestBody": content}, method="post"))
    named = {"content": b"two\r\n--x", "filename": 'a"\r\nX: 1.txt', "content_type": "text/plain"}
    await invoke(
        tool,
        "call",
        file=b"\x89PNG\r\n",
        files=[b"one", named],
        note="ü",
        n=3,
        meta={"k": [1]},
        tags=["a", "b"],
    )
    found = parts(server.last)
    assert found["file"] == [("file", "image/png", b"\x89PNG\r\n")]
    assert found["files"][0] == ("files", "application/octet-stream", b"one")
    assert found["files"][1][1:] == ("text/plain", b"two\r\n--x")
    assert b"\r\nX: 1.txt" not in server.last.body, "a file's name cannot add a header"
    assert found["note"] == [(None, None, "ü".encode())]
    assert found["n"] == [(None, None, b"3")]
    assert json.loads(found["meta"][0][2]) == {"k": [1]}
    assert [v for _, _, v in found["tags"]] == [b"a", b"b"]


@pytest.mark.parametrize("media", ["application/octet-stream", "image/png", "*/*"])
async def test_bytes_body_is_sent(media: Any, open_api: Any, invoke: Any, server: RawServer):
    tool = open_api(one({"requestBody": body(FILE, media)}, method="put"))
    await invoke(tool, "call", body=b"\x00\xff")
    assert server.last.body == b"\x00\xff"
    assert server.last.header("content-type") == (
        media if "*" not in media else "application/octet-stream"
    )


@pytest.mark.parametrize("media", ["text/plain", "application/xml", "application/x-ndjson"])
async def test_text_body_is_sent(media: Any, open_api: Any, invoke: Any, server: RawServer):
    tool = open_api(one({"requestBody": body({"type": "string"}, media)}, method="post"))
    await invoke(tool, "call", body="<ä/>")
    assert (server.last.body, server.last.header("content-type")) == ("<ä/>".encode(), media)


@pytest.mark.parametrize(
    "kind", ["application/xml", "text/xml; charset=utf-8", "application/a+xml"]
)
async def test_xml_answer_is_returned_as_text(
    kind: Any, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: Reply(200, "<a>ü</a>".encode(), {"Content-Type": kind})
    content = {kind.partition(";")[0]: {"schema": {"type": "object"}}}
    tool = open_api(one({"responses": {"200": {"description": "ok", "content": content}}}))
    (action,) = await tool.actions()
    assert action.returns == "str"
    assert await invoke(tool, "call") == "<a>ü</a>"


async def test_object_for_an_xml_body_is_refused(open_api: Any, invoke: Any, server: RawServer):
    found = {"requestBody": body({"type": "object"}, "application/xml")}
    with pytest.raises(
        ToolRefusedError, match="body: must be text, because its media type is application/xml"
    ):
        await invoke(open_api(one(found, method="post")), "call", body={"a": 1})
    assert not server.seen


async def test_json_is_preferred_among_body_types(open_api: Any, invoke: Any, server: RawServer):
    kinds = (MULTIPART, FORM, "application/vnd.x+json", "application/json", "text/plain")
    content = {kind: {"schema": thing(a={})} for kind in kinds}
    tool = open_api(one({"requestBody": {"content": content, "required": True}}, method="post"))
    await invoke(tool, "call", a=1)
    assert server.last.header("content-type") == "application/json"


async def test_swagger_2_forms_and_bodies_are_sent(open_api: Any, invoke: Any, server: RawServer):
    swagger = {
        "swagger": "2.0",
        "info": {"title": "Old", "version": "1"},
        "paths": {
            "/form/{id}": {
                "parameters": [{"name": "id", "in": "path", "type": "string", "required": True}],
                "post": {
                    "operationId": "form",
                    "parameters": [
                        {
                            "name": "l",
                            "in": "formData",
                            "type": "array",
                            "items": {"type": "string"},
                        },
                        {
                            "name": "q",
                            "in": "query",
                            "type": "array",
                            "items": {"type": "string"},
                            "collectionFormat": "multi",
                        },
                        {
                            "name": "t",
                            "in": "query",
                            "type": "array",
                            "items": {"type": "string"},
                            "collectionFormat": "tsv",
                        },
                    ],
                    "responses": {"200": {"description": "ok"}},
                },
            },
            "/file": {
                "post": {
                    "operationId": "file",
                    "parameters": [
                        {"name": "f", "in": "formData", "type": "file", "required": True}
                    ],
                    "responses": {"200": {"description": "ok"}},
                }
            },
            "/json": {
                "put": {
                    "operationId": "json_",
                    "parameters": [{"$ref": "#/parameters/Thing"}],
                    "responses": {
                        "200": {"description": "ok", "schema": {"$ref": "#/definitions/Thing"}}
                    },
                }
            },
        },
        "parameters": {
            "Thing": {
                "name": "body",
                "in": "body",
                "required": True,
                "schema": {"$ref": "#/definitions/Thing"},
            }
        },
        "definitions": {"Thing": thing(a={"type": "integer"})},
    }
    tool = open_api(swagger)
    await invoke(tool, "form", id="1", l=["a", "b"], q=["x", "y"], t=["m", "n"])
    assert server.last.target == "/form/1?q=x&q=y&t=m%09n"
    assert server.last.body == b"l=a,b"
    await invoke(tool, "file", f=b"data")
    assert parts(server.last)["f"][0][2] == b"data"
    await invoke(tool, "json", a=5)
    assert server.last.body == b'{"a":5}'
    returns = {a.name: a.returns for a in await tool.actions()}
    assert returns["json"] == '{"a": int}'


async def test_merge_patch_sends_none_as_null(open_api: Any, invoke: Any, server: RawServer):
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    for media, sent in (
        ("application/merge-patch+json", b'{"a":null,"b":"x"}'),
        ("application/json", b'{"b":"x"}'),
    ):
        document = one({"requestBody": body(schema, media)}, method="patch")
        await invoke(open_api(document), "call", a=None, b="x")
        assert (server.last.body, server.last.header("content-type")) == (sent, media)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (b"x", "application/octet-stream"),
        ({"content": b"x"}, "application/octet-stream"),
        ({"content": b"x", "content_type": "image/png"}, "image/png"),
    ],
)
async def test_binary_body_is_sent_with_its_content_type(
    given: Any, kind: Any, open_api: Any, invoke: Any, server: RawServer
):
    document = one({"requestBody": body({}, "image/*")}, method="put")
    await invoke(open_api(document), "call", body=given)
    assert (server.last.body, server.last.header("content-type")) == (b"x", kind)


@pytest.mark.parametrize(
    ("media", "value"),
    [
        ("image/png", 5),
        ("image/png", {"name": "x"}),
        ("image/png", {"content": b"", "content_type": "a\r\nb"}),
        ("multipart/form-data", [1]),
    ],
)
async def test_value_that_is_not_a_file_is_refused_before_approval(
    media: Any, value: Any, open_api: Any
):
    schema = {"type": "object", "additionalProperties": True}
    (action,) = await open_api(one({"requestBody": body(schema, media)}, method="put")).actions()
    with pytest.raises(ToolRefusedError, match="argument body: must"):
        action.validate({"body": value})
