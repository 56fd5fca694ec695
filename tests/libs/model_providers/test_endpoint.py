"""Tests that a model's name leads to provider, address and key, without importing anything."""

import pytest

from delf.environment import SourcedText
from delf.errors import EnvironmentKeyError, KeyAddressError, ModelConfigurationError
from delf.llm import NO_KEY, LLMConfig
from delf.protocols.context import PluginContext
from delf.providers import Providers
from delf.specs import Provider
from delf_model_litellm.providers import OTHERS
from delf_model_providers.endpoint import resolve
from delf_model_providers.families import NO_OTHERS, SUPPORTED_PROVIDERS

KEYS = {
    "OPENAI_API_KEY": "openai-key",
    "GOOGLE_API_KEY": "google-key",
    "GEMINI_API_KEY": "gemini-key",
    "ANTHROPIC_API_KEY": "anthropic-key",
    "GROQ_API_KEY": "groq-key",
}


def endpoint(model, environ=None, providers=None, api_key_for=None, **config):
    context = PluginContext(
        environ=KEYS if environ is None else environ,
        providers=providers or {},
        api_key_for=api_key_for or {},
    )
    return resolve(LLMConfig(model, **config), context, SUPPORTED_PROVIDERS, OTHERS)


@pytest.mark.parametrize(
    ("model", "provider", "dialect", "name", "key"),
    [
        ("gemini-3.5-flash", "google", "google", "gemini-3.5-flash", "google-key"),
        ("gemini/gemini-2.5-pro", "google", "google", "gemini-2.5-pro", "google-key"),
        ("google/gemini-2.5-pro", "google", "google", "gemini-2.5-pro", "google-key"),
        ("gpt-5.5", "openai", "openai", "gpt-5.5", "openai-key"),
        (
            "openai-responses/gpt-5.6",
            "openai-responses",
            "openai-responses",
            "gpt-5.6",
            "openai-key",
        ),
        (
            "openai-responses:gpt-5.6",
            "openai-responses",
            "openai-responses",
            "gpt-5.6",
            "openai-key",
        ),
        ("openai/gpt-5.6", "openai", "openai", "gpt-5.6", "openai-key"),
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
def test_provider_is_derived_from_the_model_name(model, provider, dialect, name, key):
    found = endpoint(model)
    assert (found.provider, found.dialect, found.name) == (provider, dialect, name)
    assert found.api_key == key
    assert found.missing_variable is None
    assert not found.custom


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai:gpt-4o-mini", "openai", "gpt-4o-mini"),
        ("OpenAI:gpt-4o-mini", "openai", "gpt-4o-mini"),
        ("anthropic:claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("google:gemini-2.5-flash", "google", "gemini-2.5-flash"),
        ("google-gla:gemini-2.5-flash", "google", "gemini-2.5-flash"),
        ("google_genai:gemini-2.5-flash", "google", "gemini-2.5-flash"),
        ("gemini:gemini-2.5-flash", "google", "gemini-2.5-flash"),
        ("groq:llama-3.3-70b", "groq", "groq/llama-3.3-70b"),
        ("ollama:llama3.2:3b", "ollama", "ollama/llama3.2:3b"),
        ("mistral:mistral-large-latest", "mistral", "mistral/mistral-large-latest"),
    ],
)
def test_provider_prefix_before_a_colon_is_accepted(model, provider, name):
    found = endpoint(model)
    assert (found.provider, found.name, found.custom) == (provider, name, False)


def test_provider_can_use_the_protocol_of_another_provider():
    like = Provider(
        name="like", dialect="openai", url="https://like.example/v1", keys=("LIKE_API_KEY",)
    )
    context = PluginContext(environ={"LIKE_API_KEY": "like-key", "OPENAI_API_KEY": "openai-key"})
    known = Providers((*SUPPORTED_PROVIDERS.all, like))
    found = resolve(LLMConfig("like/big"), context, known)
    assert (found.provider, found.dialect, found.name) == ("like", "openai", "big")
    assert (found.base_url, found.api_key) == ("https://like.example/v1", "like-key")
    assert not found.custom
    assert not found.is_official, "OpenAI's own searches, fees and settings are not this one's"
    assert resolve(LLMConfig("openai/gpt-5"), context, known).is_official
    missing = resolve(LLMConfig("like/big"), PluginContext(environ={}), known).missing_variable
    assert missing == "LIKE_API_KEY"


LIKE = Provider(
    name="like",
    aliases=("lk",),
    models=("like-*",),
    dialect="openai",
    url="https://like.example/v1",
    keys=("LIKE_API_KEY",),
)
OWN = Provider(name="own", models=("own-*",), keys=("OWN_KEY",))


@pytest.mark.parametrize("others", [NO_OTHERS, OTHERS], ids=["standard bundle", "with litellm"])
@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("like-3", {}, ("like", "openai", "like-3")),
        ("lk/like-3", {}, ("like", "openai", "like-3")),
        ("lk:any", {}, ("like", "openai", "any")),
        ("like-3", {"provider": "lk"}, ("like", "openai", "like-3")),
        ("own-3", {}, ("own", None, "own/own-3")),
        ("own/large", {}, ("own", None, "own/large")),
        ("own/large", {"provider": "own"}, ("own", None, "own/large")),
        ("gpt-5", {}, ("openai", "openai", "gpt-5")),
    ],
)
def test_installed_provider_of_another_plugin_is_resolved(model, options, expected, others):
    environ = {"LIKE_API_KEY": "a-key", "OWN_KEY": "a-key", "OPENAI_API_KEY": "a-key"}
    context = PluginContext(environ=environ, installed_providers=Providers((LIKE, OWN)))
    found = resolve(LLMConfig(model, **options), context, SUPPORTED_PROVIDERS, others)
    assert (found.provider, found.dialect, found.name) == expected
    assert found.api_key == "a-key"


def test_provider_prefix_chooses_the_protocol_at_an_address():
    found = endpoint("anthropic:claude-x", base_url="http://h")
    assert (found.dialect, found.name) == ("anthropic", "claude-x")
    for name in ("openai:my-model", "my-model"):
        found = endpoint(name, base_url="http://h/v1")
        assert (found.dialect, found.name) == ("openai", "my-model")
    for name in ("mistral:7b", "mistral:latest", "llama3:8b", "recorded:a.jsonl"):
        assert endpoint(name, base_url="http://h/v1").name == name


@pytest.mark.parametrize("model", ["llama3.2", "o5x", "mistral-large", "my-claude"])
def test_unknown_model_name_raises_with_a_hint(model):
    with pytest.raises(ModelConfigurationError) as caught:
        endpoint(model)
    assert model in caught.value.message
    assert "base_url" in caught.value.hint


@pytest.mark.parametrize("model", ["llama3.2", "openai/gpt-4o", "a/b", "gemini-2.5-flash"])
def test_base_url_sends_the_model_name_unchanged(model):
    found = endpoint(model, base_url="http://localhost:1234/v1")
    assert (found.provider, found.name, found.custom) == ("openai", model, True)
    assert found.address == "localhost:1234"


def test_azure_keeps_its_protocol_at_a_base_url():
    found = endpoint("azure/d", base_url="https://x.openai.azure.com", api_key="k")
    assert (found.dialect, found.name) == (None, "azure/d")


def test_provider_option_sets_the_protocol():
    found = endpoint("m", base_url="http://localhost:1", provider="anthropic")
    assert (found.dialect, found.name) == ("anthropic", "m")
    assert endpoint("x", provider="openai").name == "x"
    assert endpoint("gemini/x", provider="google").name == "x"


def test_model_may_have_the_name_of_its_provider():
    assert endpoint("gemini", provider="google").name == "gemini"
    assert endpoint("perplexity", provider="perplexity").name == "perplexity/perplexity"


def test_key_sources_are_used_in_order():
    assert endpoint("gpt-5.5", api_key="given").api_key == "given"
    assert endpoint("gpt-5.5", providers={"openai": "p"}).api_key == "p"
    assert endpoint("gemini-x", providers={"gemini": "p"}).api_key == "p"
    assert endpoint("gemini-x", {"GEMINI_API_KEY": "second"}).api_key == "second"
    assert endpoint("m", base_url="http://h/v1", providers={"openai": "p"}).api_key == "p"
    assert endpoint("m", {}, base_url="http://h/v1").api_key == NO_KEY


def test_openai_base_url_variable_is_used():
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
def test_missing_key_error_names_the_variable(model, variable, environ):
    with pytest.raises(EnvironmentKeyError) as caught:
        endpoint(model, environ).require_key()
    assert caught.value.variable == variable
    assert variable in caught.value.describe()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:11434",
        "ftp://h/v1",
        "http://",
        "u:secret@h",
        "http://u:secret@h:99999/v1",
        "http://u:secret@[::1/v1",
    ],
)
def test_invalid_base_url_is_refused(url):
    with pytest.raises(ModelConfigurationError, match="base_url") as caught:
        endpoint("m", base_url=url)
    assert "secret" not in caught.value.describe()


def test_the_documented_word_for_no_key_is_sent_and_not_redacted():
    address = SourcedText("http://127.0.0.1:8000/v1", "project")
    key = SourcedText("none", "project")
    found = endpoint("llama3", KEYS, base_url=address, api_key=key)
    assert found.api_key == "none"
    assert found.secrets == ()
    assert found.key_location == 'no key, as api_key is "none"'


def test_endpoint_repr_hides_secrets():
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


# -- where keys go --------------------------------------------------------------------------------

HOST = "http://gateway.test:8080/v1"
GIVERS = ("command line", "environment", "program", "project")
GOES = {
    "command line": GIVERS,
    "environment": GIVERS,
    "program": ("program",),
    "project": ("project",),
}
"""For whoever gave an address: whose keys go there."""


def text(value: str, source: str) -> str:
    """Return a text with its source; a plain text counts as the program's."""
    return value if source == "program" else SourcedText(value, source)


@pytest.mark.parametrize("key", GIVERS)
@pytest.mark.parametrize("address", GIVERS)
@pytest.mark.parametrize("place", ["api_key", "providers", "variable", "header"])
def test_key_needs_an_address_from_the_same_source(place, address, key):
    url, secret = text(HOST, address), text("s3cret", key)
    environ, more = {}, {}
    if place == "api_key":
        more = {"api_key": secret}
    elif place == "providers":
        more = {"providers": {"openai": secret}}
    elif place == "variable":
        environ = {"OPENAI_API_KEY": SourcedText("s3cret", key)}
    else:
        more = {"headers": {"Authorization": secret}}

    def sent() -> str:
        found = endpoint("m", environ, base_url=url, **more)
        return f"{found.api_key} {dict(found.headers)}"

    if key in GOES[address] or (place == "header" and address != "project"):
        assert "s3cret" in sent()
    elif address == "project":
        with pytest.raises(KeyAddressError, match="a file of the project gives the address") as e:
            sent()
        assert "api_key_for" in (e.value.hint or "")
        assert "s3cret" not in e.value.describe()
    else:
        assert sent() == f"{NO_KEY} {{}}"


@pytest.mark.parametrize("key", GIVERS)
def test_provider_key_is_accepted_for_its_own_host(key):
    for model, variable in (("gpt-5.5", "OPENAI_API_KEY"), ("groq/x", "GROQ_API_KEY")):
        assert endpoint(model, {variable: SourcedText("s3cret", key)}).api_key == "s3cret"
        assert endpoint(model, {}, api_key=text("s3cret", key)).api_key == "s3cret"


@pytest.mark.parametrize(
    "named", ["gateway.test:8080", "GATEWAY.test:8080", "http://gateway.test:8080", HOST]
)
@pytest.mark.parametrize("address", GIVERS)
def test_api_key_for_applies_to_its_address(named, address):
    environ = {"OPENAI_API_KEY": "other"}
    found = endpoint("m", environ, base_url=text(HOST, address), api_key_for={named: "s3cret"})
    assert found.api_key == "s3cret"
    assert found.key_location == "api_key_for"


@pytest.mark.parametrize(
    "named", ["gateway.test", "test:8080", "https://gateway.test:8080", "evil.test", "", "http://"]
)
def test_api_key_for_another_address_is_refused(named):
    with pytest.raises(KeyAddressError):
        endpoint(
            "m",
            {"OPENAI_API_KEY": "other"},
            base_url=SourcedText(HOST, "project"),
            api_key_for={named: "s3cret"},
        )


def test_user_info_in_a_url_is_not_taken_for_its_host():
    url = SourcedText("http://gateway.test:8080@evil.test/v1", "project")
    with pytest.raises(KeyAddressError):
        endpoint("m", {"OPENAI_API_KEY": "k"}, base_url=url, api_key_for={"gateway.test:8080": "s"})


def test_address_variable_from_the_project_counts_as_the_project():
    address = SourcedText(HOST, "project")
    for model, base, key in (
        ("gpt-5.5", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
        ("unheard-of", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
        ("groq/x", "GROQ_API_BASE", "GROQ_API_KEY"),
        ("azure/x", "AZURE_API_BASE", "AZURE_API_KEY"),
    ):
        with pytest.raises(KeyAddressError):
            endpoint(model, {base: address, key: "s3cret"})
        own = {base: address, key: SourcedText("s3cret", "project")}
        assert endpoint(model, own).api_key == "s3cret"


def test_cloud_login_is_not_sent_to_an_address_from_a_project_file():
    """Without a key, litellm signs with the login of AWS or Google, whatever the address."""
    address = SourcedText(HOST, "project")
    for model in ("bedrock/x", "vertex_ai/x", "groq/x"):
        stem = model.partition("/")[0].upper()
        with pytest.raises(KeyAddressError):
            endpoint(model, {f"{stem}_API_BASE": address})
        assert endpoint(model, {f"{stem}_API_BASE": HOST}).base_url == HOST
    assert endpoint("ollama/x", {}, base_url=address).api_key == NO_KEY
    assert endpoint("azure/x", {"AZURE_API_KEY": "k"}, base_url=HOST).api_key == NO_KEY


def test_address_in_a_model_name_is_as_trusted_as_the_name():
    name = "huggingface/https://evil.test/x"
    environ = {"HUGGINGFACE_API_KEY": "s3cret"}
    with pytest.raises(KeyAddressError):
        endpoint(SourcedText(name, "project"), environ)
    assert endpoint(SourcedText(name, "command line"), environ).api_key == "s3cret"


@pytest.mark.parametrize("address", GIVERS)
@pytest.mark.parametrize("key", GIVERS)
def test_replaced_address_is_checked_against_the_key_source(address, key):
    found = endpoint("gpt-5.5", {"OPENAI_API_KEY": SourcedText("s3cret", key)})
    if key in GOES[address]:
        found.check_address(text("wss://evil.test/x", address))
    else:
        with pytest.raises(KeyAddressError):
            found.check_address(text("wss://evil.test/x", address))


@pytest.mark.parametrize("others", [NO_OTHERS, OTHERS], ids=["standard bundle", "with litellm"])
def test_suggested_model_prefixes_resolve(others):
    context = PluginContext(environ=KEYS, providers={}, api_key_for={})
    with pytest.raises(ModelConfigurationError, match="'llama3'") as caught:
        resolve(LLMConfig("llama3"), context, SUPPORTED_PROVIDERS, others)
    command, _, prefixes = caught.value.hint.partition("; with a provider in front of its name: ")
    words = command.partition(": ")[2].split()[:4]
    assert words[::2] == ["--llm", "--base-url"]
    assert resolve(
        LLMConfig(words[1], base_url=words[3]), context, SUPPORTED_PROVIDERS, others
    ).custom
    assert ("groq/…" in prefixes) is (others is OTHERS)
    for prefix in prefixes.split(", "):
        model = prefix.replace("…", "llama3")
        assert resolve(LLMConfig(model), context, SUPPORTED_PROVIDERS, others).provider in prefix


def test_openai_key_is_used_for_openai_responses():
    found = endpoint("openai-responses/gpt-5.6", environ={}, providers={"openai": "k"})
    assert found.api_key == "k"
    at_server = endpoint("gpt-5.6", provider="openai-responses", base_url="http://127.0.0.1/v1")
    assert (at_server.dialect, at_server.name) == ("openai-responses", "gpt-5.6")
