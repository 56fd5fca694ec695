"""Failures, as every plugin of models has them."""

import pytest

from delf.errors import LLMExecutionError
from support.model_failures import ModelFailures
from support.model_fixtures import ask
from support.openai_server import Reply


class TestFailures(ModelFailures):
    pass


PAGE = Reply(body=b"<html><title>Blocked</title></html>")


@pytest.mark.parametrize(
    ("variables", "words", "hint"),
    [
        ({"ALL_PROXY": "socks5://me:pw@127.0.0.1:9"}, "ALL_PROXY (socks5://127.0.0.1:9)", "socks"),
        (
            {"HTTP_PROXY": "ftp://127.0.0.1:9"},
            "HTTP_PROXY (ftp://127.0.0.1:9) is not a proxy",
            "3128",
        ),
        (
            {"HTTP_PROXY": "http://me:pw@{page}"},
            "the proxy of HTTP_PROXY (http://{page}), sent",
            "NO_",
        ),
        ({"HTTP_PROXY": "http://{login}"}, "HTTP_PROXY (http://{login}) wants a login", "password"),
        (
            {"HTTP_PROXY": "http://127.0.0.1:9"},
            "not reachable by the proxy of HTTP_PROXY",
            "running",
        ),
    ],
)
async def test_error_names_the_failing_proxy(
    variables, words, hint, openai_server, make_model, monkeypatch
):
    servers = {"page": PAGE, "login": Reply(status=407, error="who are you?")}
    places = {
        name: f"127.0.0.1:{openai_server(lambda _, r=reply: r).port}"
        for name, reply in servers.items()
    }
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(**places))
    with pytest.raises(LLMExecutionError) as caught:
        await make_model(base_url="http://api.example/v1", api_key="k").complete(ask())
    assert words.format(**places) in caught.value.message
    assert hint in caught.value.hint
    assert ":pw" not in str(caught.value)


async def test_ipv6_entry_in_no_proxy_is_accepted(openai_server, make_model, monkeypatch):
    server = openai_server(["ok"])
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "::1,127.0.0.1,fd00::1")
    reply = await make_model(base_url=server.base_url, api_key="k").complete(ask())
    assert reply.text == "ok"


@pytest.mark.parametrize("content", [None, "nonsense"])
async def test_error_names_the_invalid_certificate_file(content, make_model, monkeypatch, tmp_path):
    file = tmp_path / "certificates.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(LLMExecutionError) as caught:
        await make_model(base_url="https://127.0.0.1:9/v1", api_key="k").complete(ask())
    assert f"SSL_CERT_FILE ({file}) is not a file of certificates" in caught.value.message
    assert "unset the environment variable" in caught.value.hint
