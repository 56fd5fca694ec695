"""Effects that no argument, service or specification can cause."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from delf.errors import (
    ConnectionConfigurationError,
    DelfError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.tools.permissions import needs_confirmation
from delf_openapi import APITool
from delf_openapi.failures import APIError
from delf_openapi.transport import check_redirect
from support.openapi_specs import PETS, body, one, param, with_login
from support.raw_http import RawServer, Reply, Seen, raw_server

KEY = "k-5ecret"
NASTY = [
    "../../admin",
    "..\\..\\admin",
    "..%2f..%2fadmin",
    "%2e%2e/%2e%2e",
    "//evil.example/x",
    "https://evil.example/",
    "@evil.example",
    ":9999",
    "x?admin=1",
    "x#y",
    "x;admin=1",
    "x&admin=1",
    "a\r\nX-Evil: 1",
    "a\nb",
    "a\x00b",
    "{other}",
    "{id}",
    " ",
    "ünï/cödé",
    "．．／admin",
]


# -- the address --------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
@pytest.mark.parametrize("value", NASTY)
async def test_path_argument_cannot_change_the_path(
    value, style, open_api, invoke, server: RawServer
):
    places = [
        param("id", "path", required=True, style=style),
        param("other", "path", required=True),
    ]
    tool = open_api(one({"parameters": places}, "/items/{id}/of/{other}"))
    try:
        await invoke(tool, "call", id=value, other="o")
    except ToolRefusedError:
        assert not server.seen
        return
    (seen,) = server.seen
    parts = seen.target.split("/")
    assert (parts[:2], parts[3:]) == (["", "items"], ["of", "o"])
    assert not set("?#\\\r\n @") & set(parts[2])
    assert not seen.header("x-evil")


@pytest.mark.parametrize("value", NASTY)
@pytest.mark.parametrize("reserved", [True, False])
async def test_query_argument_cannot_inject_a_parameter(
    value, reserved, open_api, invoke, server: RawServer
):
    places = [param("q", allowReserved=reserved), param("last")]
    await invoke(open_api(one({"parameters": places})), "call", q=value, last="1")
    (seen,) = server.seen
    assert seen.path == "/x"
    assert [pair.partition("=")[0] for pair in seen.query.split("&")] == ["q", "last"]
    assert not set("#\r\n ") & set(seen.target)


@pytest.mark.parametrize("place", ["header", "cookie"])
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", "a; sid=1", "a\x7fb"])
async def test_header_argument_cannot_inject_a_header(
    value, place, open_api, invoke, server: RawServer
):
    tool = open_api(one({"parameters": [param("X-A", place)]}))
    try:
        await invoke(tool, "call", x_a=value)
    except ToolRefusedError:
        assert not server.seen
        return
    assert not server.last.header("x-evil")
    assert (server.last.header("cookie") or "").count(";") == 0


async def test_joined_path_arguments_cannot_form_a_parent_step(open_api, invoke, server):
    places = [param("a", "path", required=True), param("b", "path", required=True)]
    tool = open_api(one({"parameters": places}, "/x/{a}{b}/y"))
    with pytest.raises(ToolRefusedError):
        await invoke(tool, "call", a=".", b=".")
    assert not server.seen


@pytest.mark.parametrize(
    "path", ["//evil.example/{id}", "/\\evil.example/{id}", "/@evil.example/{id}", "/{id", "/a b"]
)
async def test_specification_path_cannot_leave_the_server(
    path, open_api, invoke, server: RawServer
):
    tool = open_api(one({"parameters": [param("id", "path", required=True)]}, path))
    (action,) = await tool.actions()
    arguments = {"id": "7"} if action.parameters else {}
    try:
        await invoke(tool, action.name, **arguments)
    except (ToolExecutionError, ToolRefusedError):
        return
    assert len(server.seen) == 1


# -- redirects ----------------------------------------------------------------------------


async def test_header_arguments_are_not_sent_to_another_origin(open_api, invoke, server: RawServer):
    async with raw_server() as other:
        server.answer = lambda seen: Reply(302, b"", {"Location": f"{other.url}/file"})
        places = [param("X-Token", "header"), param("sid", "cookie")]
        await invoke(open_api(one({"parameters": places})), "call", x_token=KEY, sid=KEY)
        assert server.last.header("x-token") == KEY
        assert KEY not in str(other.last)


async def test_credentials_are_not_restored_by_a_redirect_back(open_api, invoke, server: RawServer):
    async with raw_server() as other:
        other.answer = lambda seen: Reply(302, b"", {"Location": f"{server.url}/admin?all=1"})

        def answer(seen: Seen) -> Reply:
            if seen.path == "/x":
                return Reply(302, b"", {"Location": f"{other.url}/y"})
            return Reply()

        server.answer = answer
        await invoke(
            open_api(one({}), token=KEY, headers={"X-Key": KEY}, params={"p": KEY}), "call"
        )
        assert [seen.path for seen in server.seen] == ["/x", "/admin"]
        assert KEY not in str(server.last)


async def test_credentials_in_a_redirect_address_are_ignored(open_api, invoke, server: RawServer):
    def answer(seen: Seen) -> Reply:
        place = server.url.replace("http://", "http://root:root@") + "/y"
        return Reply(302, b"", {"Location": place}) if seen.path == "/x" else Reply()

    server.answer = answer
    await invoke(open_api(one({}), token=KEY), "call")
    assert server.last.header("authorization") == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "place",
    ["file:///etc/passwd", "ftp://x.example/", "javascript:alert(1)", "http://[::1", "http://x:y/"],
)
async def test_redirect_to_another_scheme_is_refused(place, open_api, invoke, server: RawServer):
    server.answer = lambda seen: Reply(302, b"", {"Location": place})
    with pytest.raises(ToolExecutionError, match=r"redirects to|not valid"):
        await invoke(open_api(one({})), "call")


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest", "http://127.0.0.1:1/"])
async def test_public_service_cannot_redirect_into_the_private_network(target) -> None:
    with pytest.raises(ToolExecutionError, match="a private address"):
        await check_redirect(target, "http://93.184.216.34:80", "GET", "GET /x")
    with pytest.raises(ToolExecutionError, match="insecure"):
        await check_redirect(target, "https://93.184.216.34:443", "GET", "GET /x")


@pytest.mark.parametrize(
    ("settings", "message", "sent"),
    [
        ({}, "the specification sends your key to http://127.0.0.1", []),
        ({"base_url": "{private}"}, "the token server is at 127.0.0.1, a private address", []),
        # What was given in code is trusted: there the request is sent, and gets no token.
        ({"base_url": "{private}", "token_url": "{private}/token"}, "no OAuth2 token", ["/token"]),
    ],
)
async def test_public_specification_cannot_lead_into_the_private_network(
    settings, message, sent, invoke, server: RawServer, monkeypatch: pytest.MonkeyPatch
):
    """In this test, ``localhost`` is the public internet and 127.0.0.1 the private network."""
    monkeypatch.setattr("delf_openapi.transport.is_private", lambda host: host == "127.0.0.1")
    document = with_login(server.url) | {"servers": [{"url": server.url}]}
    async with raw_server(lambda seen: Reply(200, json.dumps(document).encode())) as public:
        given = {name: value.replace("{private}", server.url) for name, value in settings.items()}
        address = public.url.replace("127.0.0.1", "localhost")
        login = {"client_id": "me", "client_secret": "s3cret"}
        tool = APITool(f"{address}/spec.json", name="api", **login, **given)
        with pytest.raises((ToolExecutionError, ConnectionConfigurationError), match=message):
            await invoke(tool, "call")
        await tool.aclose()
    assert {seen.path for seen in server.seen} == set(sent)


async def test_get_body_is_not_sent_to_another_origin(open_api, invoke):
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    async with raw_server() as other:
        away = {"Location": f"{other.url}/y"}
        async with raw_server(lambda seen: Reply(307, b"", away)) as server:
            tool = open_api(one({"requestBody": body(schema)}), base_url=server.url)
            await invoke(tool, "call", q="private")
            assert b"private" in server.last.body
        assert (other.last.method, other.last.body) == ("GET", b"")
        assert not other.last.header("content-type")


# -- answers ------------------------------------------------------------------------------


async def test_decompression_bomb_in_an_answer_is_refused(open_api, invoke, server: RawServer):
    bomb = gzip.compress(b"0" * 5_000_000)
    server.answer = lambda seen: Reply(200, bomb, {"Content-Encoding": "gzip"})
    with pytest.raises(ToolExecutionError, match="larger than"):
        await invoke(open_api(one({}), max_response_bytes=100_000), "call")
    twice = gzip.compress(bomb)
    server.answer = lambda seen: Reply(200, twice, {"Content-Encoding": "gzip, gzip"})
    with pytest.raises(ToolExecutionError, match="several times"):
        await invoke(open_api(one({}), max_response_bytes=100_000), "call")


async def test_broken_compression_of_an_answer_is_refused(open_api, invoke, server: RawServer):
    server.answer = lambda seen: Reply(200, b"no gzip", {"Content-Encoding": "gzip"})
    with pytest.raises(ToolExecutionError, match="compression is broken"):
        await invoke(open_api(one({})), "call")


async def test_deeply_nested_answer_is_returned_as_text(open_api, invoke, server: RawServer):
    deep = b"[" * 100_000 + b"]" * 100_000
    server.answer = lambda seen: Reply(200, deep)
    assert isinstance(await invoke(open_api(one({})), "call"), str)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("codec", ["hex", "zlib", "rot13", "undefined", "idna", "punycode", "no"])
async def test_codec_that_is_no_charset_does_not_decode_an_answer(
    codec, status, open_api, invoke, server: RawServer
):
    # Python's punycode takes minutes for such a text.
    text = "xn--" + "a" * 1_000_000
    kind = {"Content-Type": f"text/plain; charset={codec}"}
    server.answer = lambda seen: Reply(status, text.encode(), kind)
    if status == 200:
        assert await invoke(open_api(one({})), "call") == text
    else:
        with pytest.raises(ToolExecutionError, match=r"answered 400.*: xn--aaa"):
            await invoke(open_api(one({})), "call")


async def test_error_repeating_the_credentials_is_redacted(open_api, invoke, server: RawServer):
    server.answer = lambda seen: Reply(403, json.dumps({"you sent": str(seen)}).encode())
    tool = open_api(one({}), token=KEY, headers={"X-Key": f"x{KEY}"}, params={"p": f"p{KEY}"})
    with pytest.raises(ToolExecutionError) as caught:
        await invoke(tool, "call")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [200, 400])
async def test_derived_credentials_are_redacted(status, invoke):
    """The secrets are no settings: a fetched token, and a name and password in base64."""

    def answer(seen: Seen) -> Reply:
        if seen.path == "/token":
            return Reply(200, b'{"access_token": "tok-fresh-1", "expires_in": 60}')
        return Reply(status, json.dumps({"told": seen.header("authorization")}).encode())

    async with raw_server(answer) as server:
        kinds = {"b": {"type": "http", "scheme": "basic"}}
        basic = one({"security": [{"b": []}]}, components={"securitySchemes": kinds})
        for document, settings, secret in (
            (with_login(server.url), {"client_id": "me", "client_secret": "s3cret"}, "tok-fresh-1"),
            (basic, {"username": "ada", "password": "pa55word"}, "YWRhOnBhNTV3b3Jk"),
        ):
            tool = APITool(document, name="api", base_url=server.url, **settings)
            try:
                message = str(await invoke(tool, "call"))
            except APIError as error:
                message = str(error)
            await tool.aclose()
            assert secret in (server.last.header("authorization") or "")
            assert "[redacted]" in message
            assert secret not in message


class Kept:
    """Implements :class:`delf.protocols.connection.SecretsKeeper`."""

    def __init__(self) -> None:
        self.secrets: tuple[str, ...] = ()

    def learn(self, source: str, secrets: Sequence[str]) -> None:
        assert source == "api"
        self.secrets = tuple(secrets)


async def test_agent_learns_obtained_tokens_as_secrets(invoke):
    kept = Kept()

    def answer(seen: Seen) -> Reply:
        if seen.path == "/token":
            return Reply(200, b'{"access_token": "tok-fresh-1", "expires_in": 60}')
        assert kept.secrets == ("tok-fresh-1",), "before it is used"
        return Reply(200, b"{}")

    async with raw_server(answer) as server:
        settings = {"client_id": "me", "client_secret": "s3cret"}
        tool = APITool(with_login(server.url), name="api", base_url=server.url, **settings)
        tool.tell_secrets(kept)
        await invoke(tool, "call")
        assert [seen.path for seen in server.seen] == ["/token", "/x"]
        await tool.aclose()


# -- specifications -----------------------------------------------------------------------


async def test_property_named_ref_is_an_ordinary_key(open_api, invoke, server: RawServer):
    schema = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "name": {"type": "string"}},
        "required": ["$ref"],
    }
    tool = open_api(one({"requestBody": body(schema)}, method="post"))
    (action,) = await tool.actions()
    name = action.parameters[0].name
    await invoke(tool, "call", **{name: "refs/heads/main"})
    assert json.loads(server.last.body) == {"$ref": "refs/heads/main"}


async def test_header_name_with_line_breaks_is_refused(open_api, invoke, server: RawServer):
    tool = open_api(one({"parameters": [param("X-A: 1\r\nX-Evil", "header")]}))
    (action,) = await tool.actions()
    with pytest.raises(ToolExecutionError, match="cannot be sent"):
        await action.call(**action.validate({action.parameters[0].name: "1"}))
    assert not server.seen


async def test_httpx_logging_of_others_is_unchanged(
    open_api, invoke, server: RawServer, caplog: Any
):
    import httpx

    caplog.set_level("INFO", logger="httpx")
    await invoke(open_api(one({}), params={"p": KEY}), "call")
    assert KEY not in caplog.text
    async with httpx.AsyncClient() as client:
        await client.get(f"{server.url}/other")
    assert "/other" in caplog.text


JUNK: list[Any] = [
    None, 0, -1, 5.5, True, "", "x", "a\nb\"'`{}", "9" * 400, "\ud800", 10**30,
    [], {}, [[]], [None], {"a": None}, {"": ""}, {"$ref": "#/"}, {"$ref": "#/paths"},
    {"$ref": "#/components/schemas/Pet"}, {"$ref": 5}, {"$ref": "nope.json"},
    {"type": ["string", None]}, {"type": 5}, {"enum": {}}, {"allOf": 5}, {"oneOf": [None]},
    {"properties": [1]}, {"required": "a"}, {"required": [[]]}, {"content": {"*": None}},
]  # fmt: skip


def places_of(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(tree, (dict, list)):
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, part in pairs:
            yield from places_of(part, (*path, key))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_damaged_specification_never_crashes_the_plugin(seed: int) -> None:
    chance = random.Random(seed)
    read = 0
    for _ in range(40):
        document = copy.deepcopy(PETS)
        for path in chance.choices(list(places_of(PETS)), k=chance.choice([1, 1, 2, 5])):
            with contextlib.suppress(KeyError, IndexError, TypeError):
                holder: Any = document
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = copy.deepcopy(chance.choice(JUNK))
        with contextlib.suppress(DelfError):
            tool = APITool(document, name="api", base_url="http://127.0.0.1:9")
            for action in await tool.actions():
                given = {p.name: chance.choice([1, "x", {"a": 1}, [1]]) for p in action.parameters}
                with contextlib.suppress(DelfError):
                    action.validate(given)
            tool.inspect(verbose=True)
            read += 1
    assert read  # some are damaged in parts that nobody needs


TAGGED = {
    "openapi": "3.1.0",
    "info": {"title": "T", "version": "1"},
    "servers": [{"url": "https://api.invalid"}],
    "paths": {
        "/a": {
            "post": {"operationId": "send", "tags": ["send"], "responses": {}},
            "delete": {"operationId": "wipe", "tags": ["send"], "responses": {}},
        }
    },
}


@pytest.mark.parametrize(
    ("allow", "found"),
    [
        ("send", ["send"]),
        ("tag:send", ["send", "wipe"]),
        ("tag:Send", ["send", "wipe"]),
        ("Send", None),
        (" send", None),
    ],
)
async def test_tag_named_like_an_operation_needs_its_prefix(allow, found):
    tool = APITool(TAGGED, name="api", allow=[allow])
    if found is None:
        with pytest.raises(ConnectionConfigurationError, match="did you mean 'send'"):
            await tool.actions()
    else:
        assert [action.name for action in await tool.actions()] == found


async def test_confirm_word_selects_operation_and_tag():
    tool = APITool(TAGGED, name="api", confirm=["send"])
    actions = await tool.actions()
    assert all(needs_confirmation(tool.confirm, action) for action in actions)
