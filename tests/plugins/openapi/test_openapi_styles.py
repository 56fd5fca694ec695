"""Every style of a parameter with every type, as the specification's table says."""

from __future__ import annotations

from typing import Any

import pytest

from delf.errors import ToolRefusedError
from support.openapi_specs import one, param
from support.raw_http import RawServer

STRING = {"type": "string"}
ARRAY = {"type": "array", "items": {"type": "string"}}
OBJECT = {"type": "object", "properties": {"R": {"type": "integer"}, "G": {"type": "integer"}}}
LIST = ["blue", "black", "brown"]
RGB = {"R": 100, "G": 200}

PATHS = [
    ("simple", False, STRING, "blue", "blue"),
    ("simple", False, ARRAY, LIST, "blue,black,brown"),
    ("simple", False, OBJECT, RGB, "R,100,G,200"),
    ("simple", True, STRING, "blue", "blue"),
    ("simple", True, ARRAY, LIST, "blue,black,brown"),
    ("simple", True, OBJECT, RGB, "R=100,G=200"),
    ("label", False, STRING, "blue", ".blue"),
    ("label", False, ARRAY, LIST, ".blue,black,brown"),
    ("label", False, OBJECT, RGB, ".R,100,G,200"),
    ("label", True, STRING, "blue", ".blue"),
    ("label", True, ARRAY, LIST, ".blue.black.brown"),
    ("label", True, OBJECT, RGB, ".R=100.G=200"),
    ("matrix", False, STRING, "blue", ";color=blue"),
    ("matrix", False, ARRAY, LIST, ";color=blue,black,brown"),
    ("matrix", False, OBJECT, RGB, ";color=R,100,G,200"),
    ("matrix", True, STRING, "blue", ";color=blue"),
    ("matrix", True, ARRAY, LIST, ";color=blue;color=black;color=brown"),
    ("matrix", True, OBJECT, RGB, ";R=100;G=200"),
]


QUERIES = [
    ("form", True, STRING, "blue", "color=blue"),
    ("form", True, ARRAY, LIST, "color=blue&color=black&color=brown"),
    ("form", True, OBJECT, RGB, "R=100&G=200"),
    ("form", False, STRING, "blue", "color=blue"),
    ("form", False, ARRAY, LIST, "color=blue,black,brown"),
    ("form", False, OBJECT, RGB, "color=R,100,G,200"),
    ("spaceDelimited", False, ARRAY, LIST, "color=blue%20black%20brown"),
    ("spaceDelimited", False, OBJECT, RGB, "color=R%20100%20G%20200"),
    ("spaceDelimited", True, ARRAY, LIST, "color=blue&color=black&color=brown"),
    ("pipeDelimited", False, ARRAY, LIST, "color=blue%7Cblack%7Cbrown"),
    ("pipeDelimited", False, OBJECT, RGB, "color=R%7C100%7CG%7C200"),
    ("pipeDelimited", True, ARRAY, LIST, "color=blue&color=black&color=brown"),
    ("deepObject", True, OBJECT, RGB, "color%5BR%5D=100&color%5BG%5D=200"),
    ("deepObject", False, OBJECT, RGB, "color%5BR%5D=100&color%5BG%5D=200"),
    ("deepObject", True, {"type": "object"}, {"a": {"b": [1]}}, "color%5Ba%5D%5Bb%5D%5B0%5D=1"),
    ("deepObject", True, ARRAY, ["x"], "color%5B0%5D=x"),
    ("deepObject", True, STRING, "blue", "color=blue"),
    ("form", True, ARRAY, [], ""),
    ("form", True, STRING, "", "color="),
    ("form", True, STRING, "a b&c=d/é+%", "color=a%20b%26c%3Dd%2F%C3%A9%2B%25"),
    ("form", False, ARRAY, ["a,b", "c"], "color=a%2Cb,c"),
    ("form", True, {"type": "boolean"}, True, "color=true"),
    ("form", True, {"type": "number"}, 2.5, "color=2.5"),
    (
        "form",
        True,
        {"type": "array", "items": {"type": "object"}},
        [{"a": 1}],
        "color=%5B%7B%22a%22%3A1%7D%5D",
    ),
]


async def test_allow_reserved_keeps_reserved_characters(open_api, invoke, server: RawServer):
    tool = open_api(one({"parameters": [param("q", allowReserved=True)]}))
    await invoke(tool, "call", q="a/b?c:d@e&f#g=h+i")
    assert server.last.query == "q=a/b?c:d@e%26f%23g%3Dh%2Bi"


async def test_json_parameter_is_sent_as_json(open_api, invoke, server: RawServer):
    found = {"name": "q", "in": "query", "content": {"application/json": {"schema": OBJECT}}}
    await invoke(open_api(one({"parameters": [found]})), "call", q=RGB)
    assert server.last.query == "q=%7B%22R%22%3A100%2C%22G%22%3A200%7D"


HEADERS = [
    (False, STRING, "blue", "blue"),
    (False, ARRAY, LIST, "blue,black,brown"),
    (False, OBJECT, RGB, "R,100,G,200"),
    (True, ARRAY, LIST, "blue,black,brown"),
    (True, OBJECT, RGB, "R=100,G=200"),
    (False, STRING, "grün", "grün"),
]


COOKIES = [
    (True, STRING, "blue", "color=blue"),
    (False, ARRAY, LIST, "color=blue,black,brown"),
    (True, ARRAY, LIST, "color=blue; color=black; color=brown"),
    (False, OBJECT, RGB, "color=R,100,G,200"),
    (True, OBJECT, RGB, "R=100; G=200"),
    (True, STRING, "a;b c", "color=a%3Bb%20c"),
]


CASES = [
    *(("path", *case) for case in PATHS),
    *(("query", *case) for case in QUERIES),
    *(("header", None, *case) for case in HEADERS),
    *(("cookie", None, *case) for case in COOKIES),
]


@pytest.mark.parametrize(("place", "style", "explode", "schema", "value", "written"), CASES)
async def test_parameter_follows_its_style(
    place, style, explode, schema, value, written, open_api, invoke, server: RawServer
):
    more = {"style": style} if style else {}
    found = param("color", place, schema, required=place == "path", explode=explode, **more)
    path = "/a/{color}/b" if place == "path" else "/x"
    await invoke(open_api(one({"parameters": [found]}, path)), "call", color=value)
    seen = server.last
    assert {
        "path": seen.target.removeprefix("/a/").removesuffix("/b"),
        "query": seen.query,
        "header": seen.header("color"),
        "cookie": seen.header("cookie"),
    }[place] == written


async def test_parameter_without_a_style_follows_the_default(open_api, invoke, server: RawServer):
    places = [
        param("p", "path", ARRAY, required=True),
        param("q", "query", ARRAY),
        param("H", "header", ARRAY),
        param("c", "cookie", STRING),
    ]
    tool = open_api(one({"parameters": places}, "/x/{p}"))
    await invoke(tool, "call", p=["1", "2"], q=["1", "2"], H=["1", "2"], c="1")
    assert server.last.target == "/x/1,2?q=1&q=2"
    assert server.last.header("h") == "1,2"
    assert server.last.header("cookie") == "c=1"


@pytest.mark.parametrize("value", ["", ".", "..", "../../admin", "a/../b", "..\\x", "a/.."])
async def test_path_argument_leading_elsewhere_is_refused(value, open_api, invoke, server):
    tool = open_api(one({"parameters": [param("id", "path", required=True)]}, "/items/{id}"))
    with pytest.raises(ToolRefusedError, match="id"):
        await invoke(tool, "call", id=value)
    assert not server.seen


async def test_equal_names_in_different_places_are_distinct(open_api, invoke, server: RawServer):
    places = [
        param("id", "path", required=True),
        param("id"),
        param("id", "header"),
        param("id", "cookie"),
    ]
    tool = open_api(one({"parameters": places}, "/x/{id}"))
    await invoke(tool, "call", id="p", id_query="q", id_header="h", id_cookie="c")
    assert server.last.target == "/x/p?id=q"
    assert (server.last.header("id"), server.last.header("cookie")) == ("h", "id=c")


async def test_parameter_names_become_identifiers_and_are_sent_unchanged(
    open_api, invoke, server: RawServer
):
    names = ["StartTime<", "StartTime>", "continue", "page[size]", "$top", "X-1", "ünï", "desc"]
    tool = open_api(one({"parameters": [param(name) for name in names]}))
    (action,) = await tool.actions()
    args = [p.name for p in action.parameters]
    assert args == [
        "start_time_lt",
        "start_time_gt",
        "continue_",
        "page_size",
        "top",
        "x_1",
        "ünï",
        "desc",
    ]
    await invoke(tool, "call", **dict.fromkeys(args, "v"))
    from urllib.parse import parse_qsl

    assert [k for k, _ in parse_qsl(server.last.query)] == names


async def test_texts_and_numbers_are_interchangeable_in_parameters(
    open_api, invoke, server: RawServer
):
    schemas: dict[str, Any] = {
        "n": {"type": "integer"}, "s": STRING, "b": {"type": "boolean"}, "l": ARRAY,
    }  # fmt: skip
    tool = open_api(one({"parameters": [param(k, schema=v) for k, v in schemas.items()]}))
    await invoke(tool, "call", n="5", s=7, b="true", l="one")
    assert server.last.query == "n=5&s=7&b=true&l=one"


async def test_text_may_be_any_number_if_integers_and_numbers_are_allowed(open_api) -> None:
    schema = {"type": ["integer", "number"]}
    (action,) = await open_api(one({"parameters": [param("n", schema=schema)]})).actions()
    assert action.validate({"n": "5"}) == {"n": 5}
    assert action.validate({"n": "1.5"}) == {"n": 1.5}


@pytest.mark.parametrize("kind", ["integer", "number"])
async def test_text_with_an_underscore_is_no_number(open_api, kind: str) -> None:
    (action,) = await open_api(one({"parameters": [param("n", schema={"type": kind})]})).actions()
    with pytest.raises(ToolRefusedError, match="1_0"):
        action.validate({"n": "1_0"})


@pytest.mark.parametrize(
    ("how", "in_path", "in_header"),
    [
        ("csv", "a,b%20c", "a,b c"),
        ("ssv", "a%20b%20c", "a b c"),
        ("tsv", "a%09b%20c", "a\tb c"),
        ("pipes", "a%7Cb%20c", "a|b c"),
    ],
)
async def test_swagger_2_lists_follow_collection_format(
    how, in_path, in_header, open_api, invoke, server: RawServer
):
    listed = {"type": "array", "items": {"type": "string"}, "collectionFormat": how}
    places = [{"name": n, "in": n, "required": True, **listed} for n in ("path", "query", "header")]
    item = {"get": {"operationId": "call", "parameters": places, "responses": {}}}
    document = {"swagger": "2.0", "info": {}, "host": "h", "paths": {"/x/{path}": item}}
    value = ["a", "b c"]
    await invoke(open_api(document), "call", path=value, query=value, header=value)
    seen = server.last
    assert (seen.path, seen.query) == (f"/x/{in_path}", f"query={in_path}")
    assert seen.header("header") == in_header
