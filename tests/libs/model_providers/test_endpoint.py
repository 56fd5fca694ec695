"""Names lead to providers, addresses and keys; nothing is imported for it."""

import pytest

from delf.errors import EnvironmentKeyError, ModelConfigurationError
from delf.llm import LLMConfig
from delf.protocols.model import ModelContext
from delf_model_providers.endpoint import NO_KEY, resolve

KEYS = {
    "OPENAI_API_KEY": "openai-key",
    "GOOGLE_API_KEY": "google-key",
    "GEMINI_API_KEY": "gemini-key",
    "ANTHROPIC_API_KEY": "anthropic-key",
    "GROQ_API_KEY": "groq-key",
}


def endpoint(model, environ=None, providers=None, **config):
    context = ModelContext(environ=KEYS if environ is None else environ, providers=providers or {})
    return resolve(LLMConfig(model, **config), context)


@pytest.mark.parametrize(
    ("model", "provider", "dialect", "name", "key"),
    [
        ("gemini-3.5-flash", "google", "google", "gemini-3.5-flash", "google-key"),
        ("gemini/gemini-2.5-pro", "google", "google", "gemini-2.5-pro", "google-key"),
        ("google/gemini-2.5-pro", "google", "google", "gemini-2.5-pro", "google-key"),
        ("gpt-5.5", "openai", "openai", "gpt-5.5", "openai-key"),
        ("GPT-4o", "openai", "openai", "GPT-4o", "openai-key"),
        ("chatgpt-4o-latest", "openai", "openai", "chatgpt-4o-latest", "openai-key"),
        ("o1", "openai", "openai", "o1", "openai-key"),
        ("o3", "openai", "openai", "o3", "openai-key"),
        ("o4-mini", "openai", "openai", "o4-mini", "openai-key"),
        ("openai/whatever", "openai", "openai", "whatever", "openai-key"),
        ("claude-opus-4-8", "anthropic", "anthropic", "claude-opus-4-8", "anthropic-key"),
        ("anthropic/claude-3-haiku", "anthropic", "anthropic", "claude-3-haiku", "anthropic-key"),
        ("groq/llama-3.3-70b", "groq", None, "groq/llama-3.3-70b", "groq-key"),
        ("ollama/llama3.2", "ollama", None, "ollama/llama3.2", None),
        ("azure/my-deployment", "azure", None, "azure/my-deployment", None),
    ],
)
def test_the_name_says_the_provider(model, provider, dialect, name, key):
    found = endpoint(model)
    assert (found.provider, found.dialect, found.name) == (provider, dialect, name)
    assert found.api_key == key
    assert found.missing is None
    assert not found.custom


@pytest.mark.parametrize("model", ["llama3.2", "o5x", "mistral-large", "my-claude"])
def test_an_unknown_name_is_an_error_with_the_way_out(model):
    with pytest.raises(ModelConfigurationError) as caught:
        endpoint(model)
    assert model in caught.value.message
    assert "base_url" in caught.value.hint


@pytest.mark.parametrize("model", ["llama3.2", "openai/gpt-4o", "a/b", "gemini-2.5-flash"])
def test_with_a_base_url_the_name_goes_out_as_it_is(model):
    found = endpoint(model, base_url="http://localhost:1234/v1")
    assert (found.provider, found.name, found.custom) == ("openai", model, True)
    assert found.address == "localhost:1234"


def test_azure_and_ollama_keep_their_protocol_at_a_base_url():
    found = endpoint("azure/d", base_url="https://x.openai.azure.com", api_key="k")
    assert (found.dialect, found.name) == (None, "azure/d")


def test_the_provider_can_be_said():
    found = endpoint("m", base_url="http://localhost:1", provider="anthropic")
    assert (found.dialect, found.name) == ("anthropic", "m")
    assert endpoint("x", provider="openai").name == "x"
    assert endpoint("gemini/x", provider="google").name == "x"


def test_where_keys_come_from():
    assert endpoint("gpt-5.5", api_key="given").api_key == "given"
    assert endpoint("gpt-5.5", providers={"openai": "p"}).api_key == "p"
    assert endpoint("gemini-x", providers={"gemini": "p"}).api_key == "p"
    assert endpoint("gemini-x", {"GEMINI_API_KEY": "second"}).api_key == "second"
    assert endpoint("m", base_url="http://h/v1").api_key == "openai-key"
    assert endpoint("m", {}, base_url="http://h/v1").api_key == NO_KEY


def test_openai_base_url_from_the_environment():
    environ = {"OPENAI_BASE_URL": "http://proxy:4000/v1", "OPENAI_API_KEY": "k"}
    for model in ("gpt-5.5", "llama3.2"):
        found = endpoint(model, environ)
        assert (found.base_url, found.custom) == ("http://proxy:4000/v1", True)
    assert endpoint("claude-x", environ | {"ANTHROPIC_API_KEY": "a"}).base_url is None


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("gpt-5.5", "OPENAI_API_KEY"),
        ("gemini-3.5-flash", "GOOGLE_API_KEY"),
        ("claude-opus-5", "ANTHROPIC_API_KEY"),
        ("groq/llama", "GROQ_API_KEY"),
    ],
)
@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": "", "GOOGLE_API_KEY": ""}])
def test_a_missing_key_names_its_variable(model, variable, environ):
    with pytest.raises(EnvironmentKeyError) as caught:
        endpoint(model, environ).require_key()
    assert caught.value.variable == variable
    assert variable in caught.value.describe()


@pytest.mark.parametrize("url", ["localhost:11434", "ftp://h/v1", "http://", "u:secret@h"])
def test_a_base_url_that_is_none(url):
    with pytest.raises(ModelConfigurationError, match="base_url") as caught:
        endpoint("m", base_url=url)
    assert "secret" not in caught.value.describe()


def test_no_secret_is_shown():
    url = "http://me:s3cret@h:1/v1"
    found = endpoint("m", base_url=url, api_key="k3y", headers={"X": "t0ken"})
    for secret in ("s3cret", "k3y", "t0ken"):
        assert secret not in repr(found) + found.label + found.address


def test_credentials_in_a_base_url_become_a_header():
    found = endpoint("m", base_url="http://me:p%40ss@h:1/v1")
    assert found.base_url == "http://h:1/v1"
    assert found.headers == {"Authorization": "Basic bWU6cEBzcw=="}
    kept = {"authorization": "Bearer x"}
    assert endpoint("m", base_url="http://me:p@h/v1", headers=kept).headers == kept
