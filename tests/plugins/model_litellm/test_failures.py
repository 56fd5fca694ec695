"""Failures, as every plugin of models has them, and litellm's own."""

import pytest

from delf.errors import LLMExecutionError, ModelConfigurationError
from support.model_failures import ModelFailures
from support.model_fixtures import ask
from support.openai_server import Reply

PAGE = Reply(body=b"<html><title>Blocked</title></html>")


class TestFailures(ModelFailures):
    async def test_model_name_unknown_to_litellm_raises(self, call, make_model):
        with pytest.raises(ModelConfigurationError, match="'foo/bar'"):
            await call(make_model("foo/bar"))


@pytest.mark.parametrize(
    ("variables", "text", "hint"),
    [
        ({"ALL_PROXY": "socks5://me:pw@127.0.0.1:9"}, "ALL_PROXY (socks5://127.0.0.1:9)", "http"),
        (
            {"HTTP_PROXY": "http://me:pw@{page}"},
            "the proxy of HTTP_PROXY (http://{page}), sent",
            "NO_",
        ),
        ({"HTTP_PROXY": "http://127.0.0.1:9"}, "the proxy of HTTP_PROXY (http://127", "proxy"),
    ],
)
async def test_error_names_the_failing_proxy(
    variables, text, hint, openai_server, make_model, monkeypatch
):
    page = f"127.0.0.1:{openai_server(lambda _: PAGE).port}"
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(page=page))
    with pytest.raises(LLMExecutionError) as caught:
        await make_model(base_url="http://api.example/v1", api_key="k").complete(ask())
    assert text.format(page=page) in caught.value.message
    assert hint in caught.value.hint
    assert ":pw" not in str(caught.value)


async def test_error_names_the_invalid_certificate_file(make_model, monkeypatch, tmp_path):
    file = tmp_path / "certificates.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(LLMExecutionError) as caught:
        await make_model(base_url="https://127.0.0.1:9/v1", api_key="k").complete(ask())
    assert f"SSL_CERT_FILE ({file}) is not a file of certificates" in caught.value.message
