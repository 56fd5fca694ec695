"""Tests that every HTTP client reads the proxies of the environment in the same way."""

import re

import httpx
import httpx2
import pytest

from delf.errors import ConfigurationError, OptionalDependencyError
from delf.network import proxies
from delf.network.proxies import Proxies, Proxy, async_transport, proxy_for, transport
from support.workspace import ROOT

USED = {"http": "http://plain:1", "https": "http://secure:2"}


@pytest.mark.parametrize(
    ("environ", "url", "variable"),
    [
        (USED, "https://api.example/v1", "HTTPS_PROXY"),
        (USED, "http://api.example/v1", "HTTP_PROXY"),
        (USED, "wss://api.example/v1", "HTTPS_PROXY"),
        ({"all": "http://any:3"}, "https://api.example", "ALL_PROXY"),
        ({"all": "http://any:3", **USED}, "https://api.example", "HTTPS_PROXY"),
        ({"http": "http://plain:1"}, "https://api.example", None),
        (USED, "http://localhost:11434", None),
        (USED, "http://ollama.localhost:11434", None),
        (USED, "http://127.0.0.2:8000", None),
        (USED, "http://[::1]:8000", None),
        ({}, "https://api.example", None),
    ],
)
def test_proxy_is_chosen_by_scheme_and_skips_loopback(environ, url, variable):
    found = Proxies(environ).for_url(url)
    assert (found and found.variable) == variable


@pytest.mark.parametrize(
    ("entry", "url", "goes_direct"),
    [
        ("example.com", "https://example.com", True),
        ("example.com", "https://API.Example.com.", True),
        ("example.com", "https://badexample.com", False),
        (".example.com", "https://api.example.com", True),
        ("*.example.com", "https://api.example.com", True),
        ("other.org, example.com", "https://example.com", True),
        ("other.org example.com", "https://example.com", True),
        ("example.com:8443", "https://example.com:8443", True),
        ("example.com:8443", "https://example.com", False),
        ("example.com:443", "https://example.com", True),
        ("10.0.0.0/8", "https://10.3.2.1", True),
        ("10.0.0.0/8", "https://11.3.2.1", False),
        ("10.0.0.0/8", "https://example.com", False),
        ("10.3.2.1", "https://10.3.2.1:8000", True),
        ("10.3.2.1:8000", "https://10.3.2.1", False),
        ("example.com:²", "https://example.com", False),
        ("fd00::/8", "https://[fd00::5]/", True),
        ("[fd00::5]", "https://[fd00::5]/", True),
        ("[fd00::5]:8000", "https://[fd00::5]:8000/", True),
        ("fd00::5", "https://[fd00::5]/", True),
        ("fd00::6", "https://[fd00::5]/", False),
        ("*", "https://example.com", True),
        ("10.0.0.0/99", "https://10.0.0.1", False),
        ("", "https://example.com", False),
    ],
)
def test_no_proxy_accepts_names_addresses_and_networks(entry, url, goes_direct):
    assert (Proxies({**USED, "no": entry}).for_url(url) is None) is goes_direct


@pytest.mark.parametrize(
    ("url", "error", "shown"),
    [
        ("socks5://me:pw@127.0.0.1:9", OptionalDependencyError, "is SOCKS, and socksio is missing"),
        ("socks5h://proxy:9", OptionalDependencyError, "socksio is missing"),
        ("ftp://proxy:9", ConfigurationError, "is not a proxy's address"),
        ("http://proxy:port", ConfigurationError, "is not a proxy's address"),
        ("http://", ConfigurationError, "is not a proxy's address"),
    ],
)
def test_unusable_proxy_error_names_it_without_its_password(url, error, shown, monkeypatch):
    monkeypatch.setattr(proxies, "find_spec", lambda name: None)
    with pytest.raises(error) as caught:
        Proxy("ALL_PROXY", url).checked_address()
    assert shown in caught.value.message
    assert "ALL_PROXY" in caught.value.message
    assert ":pw" not in str(caught.value)
    if error is OptionalDependencyError:
        assert "pip install 'httpx[socks]'" in caught.value.hint


def test_proxy_without_scheme_is_read_as_http():
    assert Proxy("HTTP_PROXY", "proxy:3128").checked_address() == "http://proxy:3128"


def test_missing_socks_support_is_reported():
    with pytest.raises(ConfigurationError, match="not supported here"):
        Proxy("ALL_PROXY", "socks5://proxy:1").checked_address(socks_module=None)


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_client_error_names_the_failing_proxy(library, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:pw@127.0.0.1:9")
    for name in ("https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    printed = re.escape("(by the proxy of HTTPS_PROXY (http://127.0.0.1:9))")
    async with library.AsyncClient(transport=async_transport(library)) as client:
        with pytest.raises(library.ConnectError, match=printed):
            await client.get("https://api.example")
    with (
        library.Client(transport=transport(library)) as client,
        pytest.raises(library.ConnectError, match=printed),
    ):
        client.get("https://api.example")


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_clients_refuse_socks_without_its_module(library, monkeypatch):
    monkeypatch.setattr(proxies, "find_spec", lambda name: None)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    for name in ("HTTPS_PROXY", "https_proxy", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert str(proxy_for("https://api.example")) == "the proxy of ALL_PROXY (socks5://127.0.0.1:9)"
    async with library.AsyncClient(transport=async_transport(library)) as client:
        with pytest.raises(OptionalDependencyError, match="socksio is missing"):
            await client.get("https://api.example")


@pytest.mark.parametrize("query", ["/?key=k-1", "?key=k-1"])
def test_proxy_is_named_without_login_and_query(query, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"http://ann:s3cret@proxy.example:3128{query}")
    monkeypatch.delenv("https_proxy", raising=False)
    name = "the proxy of HTTPS_PROXY (http://proxy.example:3128)"
    assert str(proxy_for("https://api.example")) == name


def test_every_http_client_uses_the_proxy_settings():
    """A client with its own transport would otherwise read the environment in its library's way."""
    made = re.compile(r"\bhttpx2?\.(?:Async)?Client\((?P<given>[^()]*(?:\([^()]*\)[^()]*)*)\)")
    direct = re.compile(r"\bhttpx2?\.(?:get|post|put|delete|request|stream)\(")
    clients = 0
    for path in ROOT.glob("*/*/src/**/*.py"):
        text = path.read_text(encoding="utf-8")
        assert not direct.search(text), path
        for found in made.finditer(text):
            assert "transport=" in found["given"], path
            clients += 1
    assert clients > 2
