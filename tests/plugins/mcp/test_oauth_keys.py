"""A client's key goes only where its user configured it, not where a server wants it."""

from contextlib import suppress

import httpx2
import pytest
from mcp.shared.auth import OAuthToken

from delf.errors import ConnectionConfigurationError
from delf_mcp import oauth
from delf_mcp.oauth import CredentialGuard, TokenFile
from delf_mcp.settings import MCPSettings

HOME, ELSEWHERE = "https://tools.example/mcp", "https://login.invalid/token"


def settings(**given):
    return MCPSettings.for_instance(
        "tools", {"url": HOME, "oauth": "client_credentials", "client_id": "me", **given}
    )


@pytest.fixture
def tokens(tmp_path):
    return TokenFile(tmp_path / "tokens.json", lambda _: None)


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
async def test_client_key_is_sent_only_to_the_server_and_its_issuer(kind, key, tokens):
    check = CredentialGuard("tools", settings(**key), tokens).check
    await check(proof(kind, "https://tools.example/token"))
    with pytest.raises(ConnectionConfigurationError, match="wants your client's key") as caught:
        await check(proof(kind, ELSEWHERE))
    assert caught.value.hint == 'if that is right, set issuer = "https://login.invalid"'
    for other in ("http://tools.example/token", "https://tools.example:8443/token"):
        with pytest.raises(ConnectionConfigurationError):
            await check(proof(kind, other))
    accepted = CredentialGuard(
        "tools", settings(issuer="https://login.invalid", **key), tokens
    ).check
    await accepted(proof(kind, ELSEWHERE))


async def test_requests_without_a_key_are_unrestricted(tokens):
    check = CredentialGuard("tools", settings(client_secret="s"), tokens).check
    asked = httpx2.Request("GET", "https://login.invalid/.well-known/oauth-authorization-server")
    assert await check(asked) is None


def token_request(url, **fields):
    return httpx2.Request("POST", url, data=fields)


async def test_refresh_token_is_sent_only_to_its_server(tokens):
    login = "https://login.example/token"
    check = CredentialGuard("tools", settings(oauth="browser"), tokens).check
    await check(token_request(login, grant_type="authorization_code", code="c"))
    await tokens.set_tokens(OAuthToken(access_token="a", refresh_token="r"))
    fields = {"grant_type": "refresh_token", "refresh_token": "r"}
    for elsewhere in (ELSEWHERE, "http://login.example/token", "https://tools.example/token"):
        with pytest.raises(ConnectionConfigurationError, match="refresh token") as caught:
            await check(token_request(elsewhere, **fields))
        assert "log in again" in caught.value.hint
    again = TokenFile(tokens.path, lambda _: None)  # another process
    for one in (tokens, again):
        await CredentialGuard("tools", settings(oauth="browser"), one).check(
            token_request(login, **fields)
        )


async def test_refresh_token_of_an_unknown_server_is_sent_nowhere(tokens):
    tokens.path.write_text('{"tokens": {"access_token": "a", "refresh_token": "r"}}')
    check = CredentialGuard("tools", settings(oauth="browser"), tokens).check
    with pytest.raises(ConnectionConfigurationError, match="an unknown server"):
        await check(token_request(HOME, grant_type="refresh_token", refresh_token="r"))


async def test_crash_while_storing_tokens_does_not_change_their_issuer(tokens, monkeypatch):
    tokens.set_pending_issuer("https://login.example")
    await tokens.set_tokens(OAuthToken(access_token="a", refresh_token="r"))
    write, written = oauth.write_private, []

    def last_write(path, content):
        if written:
            raise KeyboardInterrupt
        written.append(write(path, content))

    monkeypatch.setattr(oauth, "write_private", last_write)
    tokens.set_pending_issuer("https://login.invalid")
    with suppress(KeyboardInterrupt):
        await tokens.set_tokens(OAuthToken(access_token="b", refresh_token="s"))
    kept = await tokens.get_tokens()
    assert (tokens.issuer, kept.refresh_token) in (
        ("https://login.example", "r"),
        ("https://login.invalid", "s"),
    )


PUBLIC, METADATA = "https://93.184.216.34/mcp", "http://169.254.169.254/latest/meta-data"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_public_server_cannot_lead_the_login_into_the_private_network(method, tokens):
    public = settings(url=PUBLIC, client_secret="s")
    for private in (METADATA, "http://127.0.0.1:8080/register", "http://[::1]/", "http://10.0.0.1"):
        with pytest.raises(ConnectionConfigurationError, match="a private address") as caught:
            await CredentialGuard("tools", public, tokens).check(httpx2.Request(method, private))
        assert "issuer" in caught.value.hint
    own_network = (settings(url="http://127.0.0.1/mcp"), settings(url=PUBLIC, issuer=METADATA))
    for given in own_network:
        await CredentialGuard("tools", given, tokens).check(httpx2.Request(method, METADATA))
