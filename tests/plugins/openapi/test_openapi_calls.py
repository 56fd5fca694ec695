"""Calls: credentials, servers, redirects, retries, answers, errors, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from unittest.mock import Mock

import pytest

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionUnavailableError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.notes import notes_of_call
from delf_openapi import APITool
from delf_openapi.failures import APIError
from support.openapi_specs import PETS, body, one, param, with_login
from support.raw_http import RawServer, Reply, Seen, raw_server

SCHEMES = {
    "head": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}
BASIC = "Basic " + base64.b64encode(b"ada:s3cret").decode()


def secured(*needs: Any, **more: Any) -> dict[str, Any]:
    return one({"security": list(needs), **more}, components={"securitySchemes": SCHEMES})


@pytest.mark.parametrize(
    ("need", "settings", "place", "value"),
    [
        ("head", {"api_key": "k-1"}, "x-key", "k-1"),
        ("cookie", {"api_key": "k-1"}, "cookie", "sid=k-1"),
        ("bearer", {"token": "t-1"}, "authorization", "Bearer t-1"),
        ("basic", {"username": "ada", "password": "s3cret"}, "authorization", BASIC),
        ("basic", {"credentials": {"basic": "ada:s3cret"}}, "authorization", BASIC),
        ("head", {"credentials": {"head": "k-2"}, "api_key": "k-1"}, "x-key", "k-2"),
    ],
)
async def test_credentials_are_sent_by_security_scheme(
    need: Any, settings: Any, place: Any, value: Any, open_api: Any, invoke: Any, server: RawServer
):
    await invoke(open_api(secured({need: []}), **settings), "call")
    assert server.last.header(place) == value


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/x/<invoice_id>/y", "/x/a%2Fb/y"),
        ("/x/<string:invoice_id>", "/x/a%2Fb"),
        ("/x/:invoice_id", "/x/a%2Fb"),
        ("/x/:other/{invoice_id}:cancel", "/x/:other/a%2Fb:cancel"),
    ],
)
async def test_path_parameters_of_web_frameworks_are_recognised(
    path: Any, asked: Any, open_api: Any, invoke: Any, server: RawServer
):
    operation = {"parameters": [param("invoice_id", "path", required=True)]}
    await invoke(open_api(one(operation, path)), "call", invoice_id="a/b")
    assert server.last.path == asked


async def test_api_key_is_sent_in_the_query(open_api: Any, invoke: Any, server: RawServer):
    await invoke(open_api(secured({"query": []}), api_key="k &1"), "call")
    assert server.last.query == "key=k%20%261"


@pytest.mark.parametrize(
    ("settings", "name", "doc", "is_shown"),
    [
        ({"token": "t"}, "token", "Authentication token. Requires scope: `chat:write`", False),
        ({"api_key": "t"}, "api_key", "Your API key", False),
        ({}, "token", "Authentication token.", True),
        ({"token": "t"}, "token", "The token to revoke", True),
        ({"token": "t"}, "access_token", "The OAuth access token of the application.", True),
        ({"token": "t"}, "channel", "API key or name of a channel", True),
    ],
)
@pytest.mark.parametrize("place", ["header", "query", "body"])
async def test_parameter_filled_by_the_connection_key_is_hidden(
    settings: Any,
    name: Any,
    doc: Any,
    is_shown: Any,
    place: Any,
    open_api: Any,
    invoke: Any,
    server: RawServer,
):
    schema = {"type": "string", "description": doc}
    if place == "body":
        form = {"type": "object", "properties": {name: schema}, "required": [name]}
        extra = {
            "requestBody": {
                "required": True,
                "content": {"application/x-www-form-urlencoded": {"schema": form}},
            }
        }
    else:
        extra = {"parameters": [param(name, place, required=True, description=doc)]}
    tool = open_api(one(extra), **settings)
    (action,) = await tool.actions()
    assert [parameter.name for parameter in action.parameters] == ([name] if is_shown else [])
    if not is_shown:
        await invoke(tool, "call")
        assert server.last.header("authorization") == ("Bearer t" if "token" in settings else None)


async def test_combined_security_schemes_are_sent_together(
    open_api: Any, invoke: Any, server: RawServer
):
    tool = open_api(secured({"basic": []}, {"head": [], "bearer": []}), api_key="k", token="t")
    await invoke(tool, "call")
    assert (server.last.header("x-key"), server.last.header("authorization")) == ("k", "Bearer t")


async def test_public_operation_gets_no_credentials(open_api: Any, invoke: Any, server: RawServer):
    document = one(
        {"security": []}, components={"securitySchemes": SCHEMES}, security=[{"bearer": []}]
    )
    await invoke(open_api(document, token="t"), "call")
    assert server.last.header("authorization") is None


async def test_headers_and_params_of_the_connection_are_sent(
    open_api: Any, invoke: Any, server: RawServer
):
    found = [
        param("X-Tenant", "header"),
        param("key"),
        param("q"),
        param("org", "path", required=True),
    ]
    tool = open_api(
        one({"parameters": found}, "/{org}/x"),
        headers={"x-tenant": "t1", "Authorization": "Bearer abc"},
        params={"key": "k1"},
        path_params={"org": "acme/1"},
    )
    (action,) = await tool.actions()
    assert [p.name for p in action.parameters] == ["q"]
    with pytest.raises(ToolRefusedError, match="unknown argument 'org'"):
        await invoke(tool, "call", org="other")
    await invoke(tool, "call", q="1")
    assert server.last.target == "/acme%2F1/x?q=1&key=k1"
    assert (server.last.header("x-tenant"), server.last.header("authorization")) == (
        "t1",
        "Bearer abc",
    )


async def test_secrets_are_not_shown(open_api: Any, invoke: Any):
    secrets = ["hdr-5ecret", "prm-5ecret", "key-5ecret"]
    tool = open_api(
        PETS,
        headers={"X-A": secrets[0]},
        params={"p": secrets[1]},
        api_key=secrets[2],
        allow=["listPets"],
    )
    shown = [
        repr(tool),
        repr(tool.settings),
        json.dumps(tool.inspect(verbose=True)),
        repr(await tool.actions()),
    ]
    assert not [s for s in secrets if any(s in text for text in shown)]


async def test_key_in_the_query_is_not_logged(
    open_api: Any, invoke: Any, server: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    await invoke(
        open_api(secured({"query": []}), api_key="k-5ecret", path_params={"ORG": "x"}), "call"
    )
    assert "k-5ecret" not in caplog.text


class TokenServer:
    """Issues tokens to the client ``me``, and accepts calls with the newest token."""

    def __init__(self, seconds: Any = 3600, *, in_body: bool = False) -> None:
        self.seconds = seconds
        self.in_body = in_body
        self.given = 0
        self.url = ""

    def __call__(self, seen: Seen) -> Reply:
        if seen.path == "/token":
            basic = "Basic " + base64.b64encode(b"me:s3cret").decode()
            known = b"client_secret=s3cret" in seen.body if self.in_body else False
            if not known and (self.in_body or seen.header("authorization") != basic):
                return Reply(401, b'{"error": "invalid_client"}')
            self.given += 1
            token = {"access_token": f"t{self.given}", "expires_in": self.seconds}
            return Reply(200, json.dumps(token).encode())
        return Reply(200 if seen.header("authorization") == f"Bearer t{self.given}" else 401)

    def tool(self, url: str, method: str = "get", **settings: Any) -> APITool:
        settings = {"client_id": "me", "client_secret": "s3cret", **settings}
        return APITool(with_login(url, method), name="api", base_url=url, **settings)


async def test_expired_token_is_renewed(invoke: Any):
    tokens = TokenServer(seconds=0)
    async with raw_server(tokens) as server:
        tool = tokens.tool(server.url)
        for _ in range(3):
            await invoke(tool, "call")
        await tool.aclose()
    assert tokens.given == 3


async def test_revoked_token_is_renewed_once(invoke: Any):
    tokens = TokenServer()
    async with raw_server(tokens) as server:
        tool = tokens.tool(server.url)
        await invoke(tool, "call")
        tokens.given += 1  # somebody else was given a newer one
        await invoke(tool, "call")
        assert tokens.given == 3
        server.answer = lambda seen: tokens(seen) if seen.path == "/token" else Reply(401)
        with pytest.raises(APIError, match="401"):
            await invoke(tool, "call")
        assert tokens.given == 4
        await tool.aclose()


async def test_concurrent_calls_share_a_token(invoke: Any):
    tokens = TokenServer()
    async with raw_server(tokens) as server:
        tool = tokens.tool(server.url, scopes=["a", "b"])
        await asyncio.gather(*(invoke(tool, "call") for _ in range(10)))
        await tool.aclose()
    assert tokens.given == 1
    assert server.seen[0].body == b"grant_type=client_credentials&scope=a+b"


async def test_client_secret_is_sent_in_the_body_if_required(invoke: Any):
    tokens = TokenServer(in_body=True)
    async with raw_server(tokens) as server:
        tool = tokens.tool(server.url)
        await invoke(tool, "call")
        await tool.aclose()
    assert tokens.given == 1


async def test_refused_token_is_an_error_without_the_secret(invoke: Any):
    tokens = TokenServer()
    async with raw_server(tokens) as server:
        tool = tokens.tool(server.url, client_secret="wr0ng-secret")
        with pytest.raises(ToolExecutionError, match="no OAuth2 token was given: status 401") as e:
            await invoke(tool, "call")
        assert "wr0ng" not in f"{e.value}{e.value.hint}"
        assert [seen.path for seen in server.seen] == ["/token", "/token"]
        await tool.aclose()


@pytest.mark.parametrize(
    "content",
    [
        b'{"access_token": null}',
        b'{"access_token": ""}',
        b'{"access_token": {}}',
        b'{"access_token": "t", "expires_in": 1%b}' % (b"0" * 400),
        b"[]",
        b"[" * 200_000,
    ],
)
async def test_answer_without_usable_token_is_an_error(
    content: bytes, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: Reply(200, content)
    tool = open_api(with_login(server.url), client_id="a", client_secret="b")
    with pytest.raises(ToolExecutionError, match="no OAuth2 token was given"):
        await invoke(tool, "call")
    assert [seen.path for seen in server.seen] == ["/token"]


async def test_secret_is_not_sent_unencrypted(invoke: Any):
    tokens = TokenServer()
    async with raw_server(tokens) as server:
        tool = tokens.tool(server.url, token_url="http://93.184.216.34/token")
        with pytest.raises(ToolExecutionError, match="not secure"):
            await invoke(tool, "call")
        await tool.aclose()


@pytest.mark.parametrize(
    ("document", "settings", "target"),
    [
        ({"servers": [{"url": "{base}/v1/"}]}, {}, "/v1/x"),
        ({"servers": [{"url": "{base}/{v}", "variables": {"v": {"default": "v2"}}}]}, {}, "/v2/x"),
        (
            {"servers": [{"url": "{base}/{v}", "variables": {"v": {"default": "v2"}}}]},
            {"path_params": {"v": "v3"}},
            "/v3/x",
        ),
        ({"servers": [{"url": "https://elsewhere.example"}], "own": "{base}/own"}, {}, "/own/x"),
        ({"servers": [{"url": "https://elsewhere.example"}]}, {"base_url": "{base}/b"}, "/b/x"),
    ],
)
async def test_call_goes_to_the_declared_server(
    document: Any, settings: Any, target: Any, invoke: Any, server: RawServer
):
    filled = json.loads(json.dumps(document).replace("{base}", server.url))
    own = filled.pop("own", None)
    operation: dict[str, Any] = {"servers": [{"url": own}]} if own else {}
    settings = {
        k: v.replace("{base}", server.url) if isinstance(v, str) else v for k, v in settings.items()
    }
    tool = APITool(one(operation, **filled), name="api", servers=[server.url], **settings)
    await invoke(tool, "call")
    await tool.aclose()
    assert server.last.target == target


@pytest.mark.parametrize("schemes", [None, ["http"], ["ws"]])
async def test_swagger_2_server_defaults_to_the_specification_address(schemes: Any, invoke: Any):
    def answer(seen: Seen) -> Reply:
        return Reply(200, json.dumps(document).encode()) if seen.path == "/spec" else Reply()

    async with raw_server(answer) as server:
        item: dict[str, Any] = {"get": {"operationId": "call", "responses": {}}}
        document: dict[str, Any] = {"swagger": "2.0", "info": {}, "paths": {"/x": item}}
        document |= {"host": server.url.partition("//")[2], "basePath": "/v1"}
        document |= {"schemes": schemes} if schemes else {}
        tool = APITool(f"{server.url}/spec", name="api")
        await invoke(tool, "call")
        await tool.aclose()
        assert server.last.target == ("/x" if schemes == ["ws"] else "/v1/x")


async def test_missing_server_is_reported(invoke: Any):
    tool = APITool(one({}), name="api")
    with pytest.raises(ConnectionConfigurationError, match="where the API is"):
        await invoke(tool, "call")


async def test_redirect_within_the_origin_keeps_credentials(
    open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: (
        Reply(307, b"", {"Location": "/y"}) if seen.path == "/x" else Reply()
    )
    await invoke(
        open_api(one({}, method="get"), headers={"X-API-Key": "k"}, params={"p": "1"}), "call"
    )
    assert (server.last.path, server.last.header("x-api-key"), server.last.query) == (
        "/y",
        "k",
        "p=1",
    )


@pytest.mark.parametrize(
    ("location", "query"),
    [("/y?p=10", "p=10&p=1"), ("/p=1/y", "p=1"), ("/y?q=2&p=1", "q=2&p=1")],
)
async def test_redirect_gets_the_query_that_it_dropped(
    location: str, query: str, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: (
        Reply(307, b"", {"Location": location}) if seen.path == "/x" else Reply()
    )
    await invoke(open_api(one({}, method="get"), params={"p": "1"}), "call")
    assert server.last.query == query


async def test_redirect_to_another_origin_drops_credentials(
    open_api: Any, invoke: Any, server: RawServer
):
    async with raw_server() as other:
        server.answer = lambda seen: Reply(302, b"", {"Location": f"{other.url}/file"})
        tool = open_api(
            secured({"head": [], "bearer": [], "cookie": []}),
            api_key="k", token="t", headers={"X-Mine": "m"}, params={"p": "1"},
        )  # fmt: skip
        await invoke(tool, "call")
        names = {k.lower() for k, _ in other.last.headers}
        assert not names & {"x-key", "authorization", "cookie", "x-mine"}
        assert other.last.target == "/file"


async def test_body_is_not_sent_to_another_origin(open_api: Any, invoke: Any, server: RawServer):
    async with raw_server() as other:
        server.answer = lambda seen: Reply(307, b"", {"Location": f"{other.url}/x"})
        tool = open_api(
            one({"requestBody": body({"type": "object", "properties": {"a": {}}})}, method="post")
        )
        with pytest.raises(ToolExecutionError, match="only a request that reads"):
            await invoke(tool, "call", a=1)
        assert not other.seen


async def test_secret_at_the_end_of_a_shortened_error_is_redacted(
    open_api: Any, invoke: Any, server: RawServer
):
    text = {"Content-Type": "text/plain"}
    server.answer = lambda seen: Reply(
        400, b"x" * 1480 + f" {seen.header('x-api-key')}".encode(), text
    )
    tool = open_api(one({}), headers={"X-API-Key": "s3cret" * 10})
    with pytest.raises(APIError) as caught:
        await invoke(tool, "call")
    assert "x" * 1480 in caught.value.message
    assert "s3cret" not in caught.value.message


async def test_redirects_are_limited(open_api: Any, invoke: Any, server: RawServer):
    server.answer = lambda seen: Reply(302, b"", {"Location": "/x"})
    with pytest.raises(ToolExecutionError, match="redirects"):
        await invoke(open_api(one({})), "call")


@pytest.mark.parametrize(
    ("method", "status", "attempts"),
    [
        ("get", 503, 3),
        ("put", 429, 3),
        ("delete", 502, 3),
        ("post", 503, 1),
        ("patch", 429, 1),
        ("get", 500, 1),
    ],
)
async def test_failed_call_is_retried(
    method: Any, status: Any, attempts: Any, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: Reply(status, b"", {"Retry-After": "0"})
    with pytest.raises(APIError) as caught:
        await invoke(open_api(one({}, method=method)), "call")
    assert (len(server.seen), caught.value.status) == (attempts, status)


@pytest.mark.parametrize(
    ("method", "reply", "is_unknown"),
    [
        ("post", Reply(502, b""), True),
        ("patch", Reply(504, b"late"), True),
        ("post", Reply(500, b""), False),
        ("post", Reply(409, b""), False),
        ("delete", Reply(504, b""), False),
        ("get", Reply(502, b""), False),
        ("post", Reply(200, b"x" * 5000), True),
        ("get", Reply(200, b"x" * 5000), False),
    ],
)
async def test_change_with_a_lost_answer_has_unknown_outcome(
    method: Any, reply: Any, is_unknown: Any, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: reply
    tool = open_api(one({}, method=method), retries=0, max_response_bytes=1000)
    with pytest.raises(ToolExecutionError) as caught:
        await invoke(tool, "call")
    assert isinstance(caught.value, OutcomeUnknownError) == is_unknown
    assert isinstance(caught.value, APIError) == (reply.status != 200)
    assert ("may have been done" in caught.value.message) == is_unknown


@pytest.mark.parametrize(
    "location", ["/large", "http://127.0.0.1:9/refused", "https://", "ftp://host/x", "/again"]
)
async def test_redirected_write_without_answer_is_made_once(
    location: str, open_api: Any, invoke: Any, server: RawServer
):
    def answer(seen: Seen) -> Reply:
        if seen.path == "/large":
            return Reply(200, b"x" * 5000)
        return Reply(303, b"", {"Location": location})

    server.answer = answer
    tool = open_api(one({}, method="post"), retries=2, max_response_bytes=1000)
    with pytest.raises(OutcomeUnknownError, match="may have been done"):
        await invoke(tool, "call")
    assert [seen.method for seen in server.seen].count("POST") == 1


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_redirected_write_whose_target_fails_may_have_been_done(
    status: int, open_api: Any, invoke: Any, server: RawServer
):
    def answer(seen: Seen) -> Reply:
        return Reply(status) if seen.path == "/y" else Reply(303, b"", {"Location": "/y"})

    server.answer = answer
    with pytest.raises(OutcomeUnknownError, match="may have been done"):
        await invoke(open_api(one({}, method="post"), retries=0), "call")
    assert [seen.method for seen in server.seen].count("POST") == 1


@pytest.mark.parametrize(
    ("method", "redirect", "attempts"),
    [("post", 303, 1), ("post", 302, 1), ("patch", 303, 1), ("post", 307, 2), ("put", 303, 2)],
)
async def test_write_is_repeated_with_a_new_token_unless_it_was_received(
    method: str, redirect: int, attempts: int, invoke: Any
):
    tokens = TokenServer()

    def answer(seen: Seen) -> Reply:
        if seen.path == "/token":
            return tokens(seen)
        return Reply(redirect, b"", {"Location": "/y"}) if seen.path == "/x" else Reply(401)

    async with raw_server(answer) as server:
        tool = tokens.tool(server.url, method=method)
        with pytest.raises(APIError, match="401"):
            await invoke(tool, "call")
        await tool.aclose()
    assert [seen.path for seen in server.seen].count("/x") == attempts


@pytest.mark.parametrize(
    ("method", "status", "is_unknown"),
    [("post", 303, True), ("delete", 303, False), ("put", 302, False), ("get", 302, False)],
)
async def test_redirect_without_an_address_is_no_success(
    method: str, status: int, is_unknown: bool, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: Reply(status, b"")
    with pytest.raises(ToolExecutionError, match="redirects to no address") as caught:
        await invoke(open_api(one({}, method=method)), "call")
    assert isinstance(caught.value, OutcomeUnknownError) == is_unknown
    assert len(server.seen) == 1


@pytest.mark.parametrize("reply", [Reply(502, b""), Reply(200, b"x" * 5000)])
async def test_lost_token_answer_is_an_ordinary_error(
    reply: Reply, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: reply
    tool = open_api(
        with_login(server.url, "post"), client_id="a", client_secret="b", retries=0,
        max_response_bytes=1000,
    )  # fmt: skip
    with pytest.raises(ToolExecutionError, match=r"no OAuth2 token|is larger") as caught:
        await invoke(tool, "call")
    assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize(
    ("kind", "content", "value", "reported"),
    [
        ("json", b'{"a": 1, "a": 2}', {"a": 2}, "the answer has objects with a repeated key"),
        ("json", b"[1e400]", ["1e400"], "the answer has numbers that fit no float or int"),
        ("json", b"18446744073709551617", 18446744073709551617, ""),
        ("json", b"[Infinity]", [float("inf")], "the answer has constants that are not JSON"),
        ("json", b'"caf\xe9"', "caf\ufffd", "the answer has bytes that are not UTF-8"),
        ("json", b'{"a": 1}', {"a": 1}, ""),
        ("json", '{"a": "ü"}'.encode("utf-16"), {"a": "ü"}, ""),
        ("json", b'{"a": 1', '{"a": 1', "the answer is declared as JSON, and is not JSON"),
        (
            "json",
            b"<html>Log in",
            "<html>Log in",
            "the answer is declared as JSON, and is not JSON",
        ),
        ("jsonl", b'{"a": 1}\n', '{"a": 1}\n', ""),
    ],
)
async def test_altered_answer_values_are_reported(
    kind: Any,
    content: Any,
    value: Any,
    reported: Any,
    open_api: Any,
    invoke: Any,
    server: RawServer,
):
    server.answer = lambda seen: Reply(200, content, {"Content-Type": f"application/{kind}"})
    with notes_of_call() as notes:
        assert await invoke(open_api(one({})), "call") == value
    assert len(notes) == bool(reported)
    assert "".join(notes).startswith(reported)


async def test_long_retry_after_fails_at_once(open_api: Any, invoke: Any, server: RawServer):
    server.answer = lambda seen: Reply(429, b"", {"Retry-After": "3600"})
    with pytest.raises(APIError) as caught:
        await invoke(open_api(one({})), "call")
    assert len(server.seen) == 1
    assert caught.value.headers["retry-after"] == "3600"


async def test_unreachable_server_raises(invoke: Any):
    tool = APITool(one({}), name="api", base_url="http://127.0.0.1:9", retries=0)
    with pytest.raises(ConnectionUnavailableError, match="cannot be reached"):
        await invoke(tool, "call")


async def test_silent_server_times_out(invoke: Any):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        done.set()

    done = asyncio.Event()
    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    tool = APITool(one({}), name="api", base_url=url, retries=0, timeout=0.2)
    with pytest.raises(ConnectionUnavailableError, match=r"within 0\.2 s"):
        await invoke(tool, "call")
    await tool.aclose()
    await done.wait()
    listening.close()


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        ("application/json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("application/problem+json; charset=utf-8", b"[]", []),
        ("text/plain; charset=latin-1", "grün".encode("latin-1"), "grün"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
        ("application/json", b"", None),
        ("application/json; charset=iso-8859-1", b'{"a": "gr\xfcn"}', {"a": "grün"}),
        ("application/json; charset=utf-16", "[1]".encode("utf-16"), [1]),
        ("application/json", b"\xef\xbb\xbf[1]", [1]),
        ("application/x-yaml", b"a: 1", "a: 1"),
    ],
)
async def test_answer_is_converted_by_its_media_type(
    kind: Any, content: Any, value: Any, open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: Reply(200, content, {"Content-Type": kind})
    assert await invoke(open_api(one({})), "call") == value


async def test_full_response_has_status_and_headers(open_api: Any, invoke: Any, server: RawServer):
    head = {
        "Content-Type": "application/json",
        "Link": '<https://x/?page=2>; rel="next"',
        "Set-Cookie": "sid=1",
    }
    server.answer = lambda seen: Reply(200, b"[1]", head)
    found = await invoke(open_api(one({})), "call", full_response=True)
    assert (found["status"], found["body"]) == (200, [1])
    assert found["headers"]["link"] == head["Link"]
    assert "set-cookie" not in found["headers"]


async def test_api_error_has_status_and_message_without_secrets(
    open_api: Any, invoke: Any, server: RawServer
):
    words = {"detail": "name is taken", "echo": "key-5ecret", "more": "x" * 5000}
    server.answer = lambda seen: Reply(422, json.dumps(words).encode())
    with pytest.raises(APIError) as caught:
        await invoke(open_api(PETS, api_key="key-5ecret"), "create_pet", name="Rex")
    text = caught.value.message
    assert "POST /pets answered 422" in text
    assert "name is taken" in text
    assert len(text) < 2500
    assert "key-5ecret" not in text


async def test_unauthorised_error_names_the_missing_scheme(
    open_api: Any, invoke: Any, server: RawServer
):
    server.answer = lambda seen: Reply(401, b"")
    with pytest.raises(APIError) as caught:
        await invoke(open_api(PETS), "list_pets")
    assert "key" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing argument 'name'"),
        ({"name": ""}, 'name: "" is shorter than 1 character'),
        ({"name": 5}, 'name: 5 is not of type "string"'),
        ({"name": "x", "kind": "cow"}, "kind: 'cow' is not one of 'cat'"),
        ({"name": "x", "knd": "cat"}, "unknown argument 'knd'; did you mean 'kind'"),
        ({"name": "x", "parent": {"name": 1}}, r'parent\.name: 1 is not of type "string"'),
        ({"name": "x", "parent": {}}, 'parent: "name" is a required property'),
        ({"name": object()}, "cannot be sent"),
        ({"name": "x", "parent": {"name": float("nan")}}, "not a number that can be sent"),
    ],
)
async def test_invalid_arguments_are_refused_before_sending(
    arguments: Any, words: Any, open_api: Any, invoke: Any, server: Any
):
    with pytest.raises(ToolRefusedError, match=words) as caught:
        await invoke(open_api(PETS), "create_pet", **arguments)
    assert "Expected api.create_pet(name: str" in caught.value.message
    assert not server.seen


async def test_accept_header_lists_declared_types(open_api: Any, invoke: Any, server: RawServer):
    tool = open_api(PETS)
    await invoke(tool, "get_photo", petId=1)
    assert (server.last.header("accept") or "").startswith("image/png")
    await invoke(tool, "get_pet", petId=1)
    assert (server.last.header("accept") or "").startswith("application/json")


async def test_cookies_are_not_kept_between_calls(open_api: Any, invoke: Any, server: RawServer):
    server.answer = lambda seen: Reply(200, b"{}", {"Set-Cookie": "sid=1; Path=/"})
    tool = open_api(one({}))
    await invoke(tool, "call")
    await invoke(tool, "call")
    assert server.last.header("cookie") is None


async def test_undeclared_response_type_is_learned_without_a_cache(
    open_api: Any, invoke: Any, server: Any
) -> None:
    server.answer = Mock(return_value=Reply(body=b'{"id": 1, "name": "Ada"}'))
    tool = open_api(one({}))
    (before,) = await tool.actions()
    assert not tool.is_stale()
    assert (await invoke(tool, "call"))["name"] == "Ada"
    assert tool.is_stale()
    (after,) = await tool.actions()
    assert "name" not in str(before.returns)
    assert "name" in str(after.returns)
    assert not tool.is_stale()
    await invoke(tool, "call")
    assert not tool.is_stale(), "nothing new was learnt"
    quiet = open_api(one({}), sample=False)
    await invoke(quiet, "call")
    assert not quiet.is_stale()


WRONG = one(
    {
        "parameters": [param("limit", schema={"type": "integer", "maximum": 5})],
        "requestBody": body(
            {
                "type": "object",
                "required": ["kind", "never"],
                "properties": {"kind": {"enum": ["cat", "dog"]}, "never": {"type": "string"}},
            }
        ),
    },
    method="post",
)


async def test_validation_can_be_relaxed_for_a_wrong_specification(
    open_api: Any, invoke: Any, server: RawServer, caplog: pytest.LogCaptureFixture
):
    given = {"limit": 50, "kind": "cow"}
    with pytest.raises(ToolRefusedError, match="limit"):
        await invoke(open_api(WRONG), "call", **given)
    tool = open_api(WRONG, check_arguments="warn")
    for _ in range(2):
        await invoke(tool, "call", **given)
    assert server.last.query == "limit=50"
    assert json.loads(server.last.body) == {"kind": "cow"}
    reported = [text for text in caplog.messages if "against its specification" in text]
    assert len(reported) == 3, "each fault once: limit, never and kind"
    with pytest.raises(ToolRefusedError, match="unknown argument 'limmit'"):
        await invoke(tool, "call", limmit=3)
