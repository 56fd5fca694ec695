"""Addresses that get a user's keys: none that only a specification names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf.errors import ConnectionConfigurationError
from delf_openapi import APITool
from support.raw_http import RawServer, Reply, raw_server

SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "asked": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}
KEYS: dict[str, tuple[str, dict[str, Any]]] = {
    "a key in a header": ("key", {"api_key": "s3cret"}),
    "a key in the query": ("asked", {"api_key": "s3cret"}),
    "a key in a cookie": ("cookie", {"api_key": "s3cret"}),
    "a token": ("bearer", {"token": "s3cret"}),
    "a password": ("basic", {"username": "ada", "password": "s3cret"}),
    "a credential by name": ("key", {"credentials": {"key": "s3cret"}}),
    "a header": ("", {"headers": {"X-Key": "s3cret"}}),
    "a parameter": ("", {"params": {"key": "s3cret"}}),
    "a part of the path": ("", {"path_params": {"id": "s3cret"}}),
}


def spec(
    scheme: str = "key", servers: Any = None, *, of_path: Any = None, own: Any = None
) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": "call", "responses": {}}
    path = "/x/{id}" if scheme == "" else "/x"
    if scheme == "":
        operation["parameters"] = [{"name": "id", "in": "path", "schema": {"type": "string"}}]
    else:
        operation["security"] = [{scheme: []}]
    item: dict[str, Any] = {"get": operation}
    for holder, given in ((operation, own), (item, of_path)):
        if given is not None:
            holder["servers"] = [{"url": given}]
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "paths": {path: item},
        "components": {"securitySchemes": SCHEMES},
    }
    if servers is not None:
        document["servers"] = servers if isinstance(servers, list) else [{"url": servers}]
    return document


def publishing(document: Callable[[str], dict[str, Any]]):
    """A server that publishes a specification and answers as the API in it."""
    urls: list[str] = []

    def answer(seen: Any) -> Reply:
        is_spec = seen.path == "/spec.json"
        return Reply(200, json.dumps(document(urls[0])).encode()) if is_spec else Reply()

    return raw_server(answer), urls


async def refused(tool: APITool, invoke: Any, server: RawServer, **given: Any) -> str:
    """Return the hint of a call's refusal; assert that nothing was sent to the server."""
    with pytest.raises(ConnectionConfigurationError, match="which you have not accepted") as caught:
        await invoke(tool, "call", **given)
    assert server.seen == []
    await tool.aclose()
    return caught.value.hint or ""


def accepting(server: RawServer) -> str:
    """Return the setting by which a user accepts a server."""
    return f'servers = ["{server.url}"] in [connections.api]'


@pytest.mark.parametrize(("scheme", "keys"), KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("how", ["mapping", "file"])
async def test_key_is_not_sent_to_a_server_of_the_specification(
    scheme: Any, keys: Any, how: Any, invoke: Any, server: RawServer, tmp_path: Path
):
    document: Any = spec(scheme, server.url)
    if how == "file":
        (tmp_path / "spec.json").write_text(json.dumps(document))
        document = str(tmp_path / "spec.json")
    given = {} if scheme or "path_params" in keys else {"id": "1"}
    assert accepting(server) in await refused(
        APITool(document, name="api", **keys), invoke, server, **given
    )


@pytest.mark.parametrize(
    "servers",
    [
        {"servers": "{server}"},
        {"servers": "http://api.invalid", "own": "{server}"},
        {"servers": "http://api.invalid", "of_path": "{server}"},
        {"servers": [{"url": "http://{host}", "variables": {"host": {"default": "{bare}"}}}]},
    ],
    ids=["of all", "of the operation", "of the path", "by a variable"],
)
async def test_servers_of_a_specification_must_be_accepted(
    servers: Any, invoke: Any, server: RawServer
):
    bare = server.url.removeprefix("http://")
    text = json.dumps(servers).replace("{server}", server.url).replace("{bare}", bare)
    assert accepting(server) in await refused(
        APITool(spec(**json.loads(text)), name="api", api_key="k"), invoke, server
    )
    accepted = APITool(spec(**json.loads(text)), name="api", api_key="k", servers=[server.url])
    await invoke(accepted, "call")
    await accepted.aclose()
    assert server.last.header("x-key") == "k"


async def test_call_without_a_key_uses_the_specified_server(invoke: Any, server: RawServer):
    tool = APITool(spec("", server.url), name="api")
    await invoke(tool, "call", id="1")
    await tool.aclose()
    assert server.last.path == "/x/1"


@pytest.mark.parametrize("where", [None, "/v1", "{own}/v2"])
async def test_key_is_sent_to_the_origin_of_the_specification(where: Any, invoke: Any):
    running, urls = publishing(lambda own: spec(servers=where and where.replace("{own}", own)))
    async with running as server:
        urls.append(server.url)
        tool = APITool(f"{server.url}/spec.json", name="api", api_key="k")
        await invoke(tool, "call")
        await tool.aclose()
        assert server.last.header("x-key") == "k"


async def test_port_is_part_of_the_accepted_server(invoke: Any, server: RawServer):
    running, urls = publishing(lambda own: spec(servers=server.url))
    async with running as home:
        urls.append(home.url)
        assert accepting(server) in await refused(
            APITool(f"{home.url}/spec.json", name="api", api_key="k"), invoke, server
        )


async def test_later_server_of_a_specification_gets_no_key(invoke: Any, server: RawServer):
    servers: list[str] = []
    running, urls = publishing(lambda own: spec(servers=servers[0]))
    async with running as home:
        urls.append(home.url)
        servers.append(home.url)
        for attempt in range(2):
            tool = APITool(f"{home.url}/spec.json", name="api", api_key="k")
            if attempt == 0:
                await invoke(tool, "call")
                await tool.aclose()
                servers[0] = server.url
            else:
                assert accepting(server) in await refused(tool, invoke, server)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_server_accepted_over_tls_gets_no_key_over_plain_http(scheme: Any, invoke: Any):
    tool = APITool(
        spec(servers="http://api.invalid"), name="api", api_key="k", servers=["api.invalid"]
    )
    with pytest.raises(ConnectionConfigurationError, match=r"to http://api\.invalid"):
        await invoke(tool, "call")
    await tool.aclose()


async def test_client_secret_is_not_sent_to_a_token_url_of_the_specification(
    invoke: Any, server: RawServer
):
    document = spec("login", "https://api.invalid")
    flow: dict[str, Any] = {"tokenUrl": f"{server.url}/token", "scopes": {}}
    document["components"]["securitySchemes"]["login"] = {
        "type": "oauth2",
        "flows": {"clientCredentials": flow},
    }
    login: dict[str, Any] = {"client_id": "me", "client_secret": "s3cret"}
    tool = APITool(document, name="api", base_url="https://api.invalid", **login)
    with pytest.raises(ConnectionConfigurationError, match="its OAuth2 token"):
        await invoke(tool, "call")
    await tool.aclose()
    assert server.seen == []


@pytest.mark.parametrize(
    "address",
    [
        *("http://api.invalid", "https://api.invalid:8443", "https://api.invalid:0"),
        *("https://api.invalid.", "https://api.invalid@far.invalid", "https://api.invalid%2efar"),
        *("https://api.invalid\\@far.invalid", "https://api.invalid\t.far", "https://[::1]"),
        *("https://\uff41pi.invalid", "https://api\u3002invalid", "https://ap\u00adi.invalid"),
    ],
)
async def test_lookalike_server_address_gets_no_key(address: Any, invoke: Any):
    tool = APITool(spec(servers=address), name="api", api_key="k", servers=["https://api.invalid"])
    with pytest.raises(ConnectionConfigurationError, match="which you have not accepted"):
        await invoke(tool, "call")
    await tool.aclose()


@pytest.mark.parametrize(
    "given", ["", "ftp://api.example", "https://", "https://*.example", "a b:c"]
)
def test_invalid_server_address_is_refused(given: Any):
    with pytest.raises(ConnectionConfigurationError, match="no address of a server"):
        APITool(spec(), name="api", servers=[given])


def two_servers() -> dict[str, Any]:
    """Return a specification of two operations, of which one has a server of its own."""
    document = spec("bearer", "https://api.invalid")
    document["paths"]["/y"] = {
        "servers": [{"url": "https://far.invalid/v1"}],
        "get": {"operationId": "other", "responses": {}, "security": [{"bearer": []}]},
    }
    return document


async def test_unaccepted_server_of_all_actions_stops_the_start():
    tool = APITool(two_servers(), name="api", token="s3cret")
    with pytest.raises(ConnectionConfigurationError, match=r"^api: .* have not accepted") as caught:
        await tool.actions()
    assert 'servers = ["https://api.invalid"]' in (caught.value.hint or "")


async def test_unaccepted_server_of_some_actions_is_a_notice():
    tool = APITool(two_servers(), name="api", token="s3cret", servers=["https://api.invalid"])
    assert [action.name for action in await tool.actions()] == ["call", "other"]
    (notice,) = tool.notices()
    assert notice.startswith("calls of api.other are refused: the specification sends your key to")
    assert 'servers = ["https://far.invalid"]' in notice


@pytest.mark.parametrize(
    "given",
    [{}, {"token": "k", "servers": ["https://api.invalid", "far.invalid"]}],
    ids=["no key", "accepted"],
)
async def test_usable_servers_need_no_notice(given: Any):
    tool = APITool(two_servers(), name="api", **given)
    await tool.actions()
    assert tool.notices() == ()
