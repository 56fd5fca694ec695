"""The key of a client goes where its user said, not where a server says."""

import httpx2
import pytest

from delf.errors import ConnectionConfigurationError
from delf_mcp.oauth import keeps_keys
from delf_mcp.settings import MCPSettings

HOME, ELSEWHERE = "https://tools.example/mcp", "https://login.invalid/token"


def settings(**given):
    return MCPSettings.for_instance(
        "tools", {"url": HOME, "oauth": "client_credentials", "client_id": "me", **given}
    )


def proof(kind, url):
    match kind:
        case "header":
            return httpx2.Request("POST", url, headers={"Authorization": "Basic bWU6cw=="})
        case "body":
            return httpx2.Request("POST", url, data={"client_id": "me", "client_secret": "s"})
        case _:
            return httpx2.Request("POST", url, data={"client_assertion": "a.b.c"})


@pytest.mark.parametrize("kind", ["header", "body", "assertion"])
@pytest.mark.parametrize("key", [{"client_secret": "s"}, {"private_key": "p"}])
async def test_a_clients_key_goes_to_the_server_itself_and_its_issuer_only(kind, key):
    check = keeps_keys("tools", settings(**key))
    await check(proof(kind, "https://tools.example/token"))
    with pytest.raises(ConnectionConfigurationError, match="wants your client's key") as caught:
        await check(proof(kind, ELSEWHERE))
    assert caught.value.hint == 'if that is right, set issuer = "https://login.invalid"'
    for other in ("http://tools.example/token", "https://tools.example:8443/token"):
        with pytest.raises(ConnectionConfigurationError):
            await check(proof(kind, other))
    accepted = keeps_keys("tools", settings(issuer="https://login.invalid", **key))
    await accepted(proof(kind, ELSEWHERE))


async def test_requests_without_a_key_go_anywhere():
    check = keeps_keys("tools", settings(client_secret="s"))
    asked = httpx2.Request("GET", "https://login.invalid/.well-known/oauth-authorization-server")
    assert await check(asked) is None
