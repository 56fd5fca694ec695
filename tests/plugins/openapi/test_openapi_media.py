"""XML, and the choice where several media types are declared."""

from __future__ import annotations

from typing import Any

import pytest

from delf.errors import ToolRefusedError
from support.openapi_specs import body, one
from support.raw_http import RawServer, Reply

HEAD = b"<?xml version='1.0' encoding='utf-8'?>\n"
PET: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "xml": {"name": "pet"},
    "properties": {
        "id": {"type": "integer", "xml": {"attribute": True}},
        "name": {"type": "string"},
        "tags": {
            "type": "array",
            "items": {"type": "string", "xml": {"name": "tag"}},
            "xml": {"wrapped": True},
        },
        "photos": {"type": "array", "items": {"type": "string"}},
        "owner": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "xml": {"name": "person", "prefix": "o", "namespace": "urn:own"},
        },
    },
}


@pytest.fixture
def open_xml(open_api):
    def make(schema: Any = PET, media: str = "application/xml", **more: Any) -> Any:
        return open_api(one({"requestBody": body(schema, media)}, method="post", **more))

    return make


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"name": "Rex"}, b"<pet><name>Rex</name></pet>"),
        ({"id": 7, "name": "a<b & 'c'"}, b"<pet id=\"7\"><name>a&lt;b &amp; 'c'</name></pet>"),
        (
            {"name": "R", "tags": ["a", "b"], "photos": ["1"]},
            b"<pet><name>R</name><tags><tag>a</tag><tag>b</tag></tags><photos>1</photos></pet>",
        ),
        (
            {"name": "Rex", "owner": {"name": "Ada"}},
            b'<pet><name>Rex</name><o:person xmlns:o="urn:own"><name>Ada</name></o:person></pet>',
        ),
        ({"name": "Zoë", "free": None}, "<pet><name>Zoë</name><free /></pet>".encode()),
    ],
)
async def test_xml_is_made_of_an_object(value, written, open_xml, invoke, server: RawServer):
    await invoke(open_xml(), "call", body=value)
    assert server.last.body == HEAD + written
    assert server.last.header("content-type") == "application/xml"


@pytest.mark.parametrize("given", ["<pet><name>Rex</name></pet>", b"<pet/>"])
async def test_xml_that_a_script_wrote_is_sent_as_it_is(given, open_xml, invoke, server):
    await invoke(open_xml(media="text/xml"), "call", body=given)
    assert server.last.body == (given if isinstance(given, bytes) else given.encode())
    assert server.last.header("content-type") == "text/xml"


async def test_a_root_is_called_as_its_schema(open_xml, invoke, server: RawServer):
    schemas = {"Order": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    tool = open_xml({"$ref": "#/components/schemas/Order"}, components={"schemas": schemas})
    await invoke(tool, "call", body={"n": 1})
    assert server.last.body == HEAD + b"<Order><n>1</n></Order>"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "needs 'name'"),
        ({"name": 5}, "must be text"),
        ({"name": "a\x00b"}, "XML does not allow"),
        ({"name": "x", "bad name": 1}, "cannot be a name"),
        ({"name": "x", "a><evil": 1}, "cannot be a name"),
        ({"name": "x", "id": "seven"}, "whole number"),
    ],
)
async def test_what_cannot_be_xml_is_refused(value, reason, open_xml, invoke, server: RawServer):
    with pytest.raises(ToolRefusedError, match=reason):
        await invoke(open_xml(), "call", body=value)
    assert not server.seen


async def test_its_type_says_both(open_xml):
    (action,) = await open_xml().actions()
    assert action.parameters[0].type_text.endswith("} | str")
    (action,) = await open_xml({}).actions()
    assert action.parameters[0].type_text == "str"


@pytest.mark.parametrize(
    "kind", ["application/xml", "text/xml; charset=utf-8", "application/a+xml"]
)
async def test_an_answer_in_xml_is_text(kind, open_api, invoke, server: RawServer):
    server.answer = lambda seen: Reply(200, "<a>ü</a>".encode(), {"Content-Type": kind})
    content = {kind.partition(";")[0]: {"schema": {"type": "object"}}}
    tool = open_api(one({"responses": {"200": {"description": "ok", "content": content}}}))
    (action,) = await tool.actions()
    assert action.returns == "str"
    assert await invoke(tool, "call") == "<a>ü</a>"


SEVERAL = {
    "text/csv": {"schema": {"type": "string"}},
    "application/xml": {"schema": PET},
    "application/x-www-form-urlencoded": {"schema": PET},
    "application/json": {"schema": PET},
}


@pytest.mark.parametrize(
    ("prefer", "sent", "accepted"),
    [
        ((), "application/json", "application/json, */*;q=0.5"),
        (("application/xml",), "application/xml", "application/xml, */*;q=0.5"),
        (("text/*",), "text/csv", "text/csv, */*;q=0.5"),
        (("image/png", "*/xml"), "application/xml", "application/xml, */*;q=0.5"),
    ],
)
async def test_what_is_preferred_is_used(
    prefer, sent, accepted, open_api, invoke, server: RawServer, tmp_path
):
    import json

    file = tmp_path / "api.json"
    operation = {
        "requestBody": {"required": True, "content": SEVERAL},
        "responses": {"200": {"description": "ok", "content": SEVERAL}},
    }
    file.write_text(json.dumps(one(operation, method="post")))
    for _ in range(2):  # compiled, then from the cache
        tool = open_api(str(file), prefer=prefer, cache=True, cache_dir=str(tmp_path / "cache"))
        arguments = {"name": "Rex"} if sent == "application/json" else {"body": "<pet/>"}
        await invoke(tool, "call", **arguments)
        assert server.last.header("content-type") == sent
        assert server.last.header("accept") == accepted
        (action,) = await tool.actions()
        assert action.returns.startswith("{" if sent == "application/json" else "str")
