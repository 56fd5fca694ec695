"""Values that count as secrets in URLs, connection strings, options and environments."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    PostgresDsn,
    PrivateAttr,
    Secret,
    SecretBytes,
    SecretStr,
)

from delf import LLMConfig
from delf.settings import NamedValues, PluginSettings, SentValues, reveal_secrets
from delf_engine.redact import REDACTED, Redactor
from delf_engine.secrets import (
    redactable,
    secrets_in,
    secrets_of_environ,
    secrets_of_model,
    secrets_of_options,
    secrets_of_settings,
    without_secrets,
)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("postgresql://u:pa55-w0rd@h/d", {"pa55-w0rd"}),
        ("postgresql+psycopg://u:pa%2F55-w0rd@h/d", {"pa%2F55-w0rd", "pa/55-w0rd"}),
        ("postgresql://u:pa/55-w0rd@h/d", {"pa/55-w0rd"}),
        ("redis://:hunter2@h:6379/0", {"hunter2"}),
        ("https://ghp_0123456789abcdef@github.test/a.git", {"ghp_0123456789abcdef"}),
        ("https://api.test/v1?key=AIza-12-bc&page=2", {"AIza-12-bc"}),
        ("https://api.test/v1?page=2&access_token=ab%3D12cd", {"ab%3D12cd", "ab=12cd"}),
        ("https://x.blob.test/a?sv=2024&sig=q%2Fw1e2r3", {"q%2Fw1e2r3", "q/w1e2r3"}),
        ("https://x.test/?X-Amz-Signature=0a1b2c3d4e&X-Amz-Date=20240101", {"0a1b2c3d4e"}),
        ("https://x.test/cb#access_token=tok-9f8e7d", {"tok-9f8e7d"}),
        ("host=h user=u password=hunter2 dbname=d", {"hunter2"}),
        ("Server=h;Database=d;Uid=u;Pwd=hunter2;", {"hunter2"}),
        ("Endpoint=sb://h/;SharedAccessKey=a1b2c3d4=;", {"a1b2c3d4="}),
        ("AccountName=n;AccountKey=zz99yy88==;", {"zz99yy88=="}),
    ],
)  # fmt: skip
def test_secrets_are_found_inside_text(text: str, hidden: set[str]) -> None:
    assert redactable(secrets_in(text)) == hidden
    assert not any(
        each in Redactor(secrets_in(text)).redact_text(f"failed: {text}") for each in hidden
    )


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://postgres:postgres@localhost:5432/postgres",
        "https://api.test/v1?page=2&sort_key=created_at",
        "https://api.test/services/T0AB12/items/12345678",
        "sqlite:////home/ada/shop.db",
        "https://user@host.test/",
        "mailto:ada@example.org",
        "http://[::1",
    ],
)
def test_placeholders_are_not_secrets(text: str) -> None:
    assert not redactable(secrets_in(text))


def test_declared_secret_is_redacted_even_if_short() -> None:
    for secret in ("hunter2", "correcthorse", "86753098"):
        assert redactable(secrets_of_settings(SecretStr(secret))) == {secret}
        assert redactable(secrets_of_settings(SecretBytes(secret.encode()))) == {secret}
        assert redactable(secrets_of_model(LLMConfig("m", api_key=secret))) == {secret}
        assert redactable(secrets_of_environ({"DELF_SHOP_TOKEN": secret})) == {secret}
        assert redactable(secrets_of_options({"password": secret})) == {secret}


def test_variables_named_like_secrets_are_secret() -> None:
    declared = ["API_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD", "CLIENT_SECRET", "SESSION_COOKIE"]
    for name in declared:
        assert redactable(secrets_of_environ({name: "correcthorse"})) == {"correcthorse"}
        assert not redactable(secrets_of_environ({name: "short-1"}))
    for name in ("HOTKEY", "SORT_KEY", "PWD", "HOME", "SSH_AUTH_SOCK", "TOKEN_URL"):
        assert not redactable(secrets_of_environ({name: "correcthorse"}))


def test_secret_in_a_plain_url_setting_is_found() -> None:
    found = redactable(secrets_of_settings({"url": "https://h.test/?api_key=a1b2c3", "n": "plain"}))
    assert found == {"a1b2c3"}


class _Typed(BaseModel):
    model_config = ConfigDict(extra="allow")

    database: PostgresDsn = PostgresDsn("postgresql://u:pa55-word@h,v:pa55-more@i/d")
    hook: HttpUrl = HttpUrl("https://hooks.test/services/T0AB12/B0CD34/x9y8z7w6v5")
    site: AnyUrl = AnyUrl("https://shop.test/page-1?n=12")
    token: Secret[str] = Secret("generic-1")
    pin: Secret[int] = Secret(86753098)
    keys: Secret[dict[str, list[str]]] = Secret({"a": ["inner-key"]})
    retries: int = 12345678
    _found: SecretStr = PrivateAttr(default=SecretStr("private-1"))
    _itself: Any = PrivateAttr(default=None)

    def model_post_init(self, _context: Any) -> None:
        """Make the settings refer to themselves."""
        self._itself = [self]


@dataclasses.dataclass
class _Login:
    key: SecretStr
    url: str
    kind: type[SecretStr] = SecretStr


class _Served(PluginSettings):
    env: NamedValues = Field(default_factory=dict)
    headers: SentValues = Field(default_factory=dict)
    effects: dict[str, str] = Field(default_factory=dict)


def test_values_in_a_mapping_are_secret_by_name() -> None:
    env = {
        "ROOM": "lamp-room-42", "API_TOKEN": "abc-1234", "DATABASE_URL": "pg://u:pa55-word@h",
        "PLACE": SecretStr("an attic"), "GREETING": "good morning to all of you",
    }  # fmt: skip
    headers = {
        "X-Team": "lamps of Berlin", "X-Date": "2026-11-28", "X-Client": "7f3a9c21bb",
        "Authorization": "Bearer abcdef", "X-Odd": SecretStr("curious"),
    }  # fmt: skip
    settings = _Served(env=env, headers=headers, effects={"revoke_token": "irreversible"})
    found = redactable(secrets_of_settings(settings))
    assert found == {
        *("abc-1234", "pa55-word", "an attic"),
        *("7f3a9c21bb", "abcdef", "Bearer abcdef", "curious"),
    }
    shown = repr(settings)
    assert not any(str(value) in shown for value in (*env.values(), *headers.values()))
    assert reveal_secrets(settings.env)["PLACE"] == "an attic"
    apart = json.dumps(without_secrets(settings))
    assert not any(text in apart for text in found)
    assert "lamp-room-42" in apart
    assert without_secrets(_Served(env={})) != without_secrets(_Served(env={"ROOM": "1"}))


def test_secrets_are_found_in_settings_of_every_type() -> None:
    typed = _Typed.model_validate({"more": SecretStr("extra-key")})
    found = redactable(secrets_of_settings(typed))
    passwords = {"pa55-word", "pa55-more"}
    assert passwords < found
    found = {each for each in found if not any(password in each for password in passwords)}
    assert found == {
        *("generic-1", "86753098", "inner-key", "private-1", "extra-key"),
    }
    login = _Login(SecretStr("key-of-it"), "https://u:url-pass@h.test")
    assert redactable(secrets_of_settings([login])) == {"key-of-it", "url-pass"}
    options = {"login": login, "token": Secret("option-1"), "port": 65535}
    assert redactable(secrets_of_options(options)) == {"key-of-it", "url-pass", "option-1"}


def test_secrets_are_found_in_model_url_and_headers() -> None:
    model = LLMConfig(
        "m",
        base_url="https://u:pa55-w0rd@h.test/v1?key=a1-b2-c3",
        headers={"Content-Type": "application/json", "X-Team": "Bearer team-1-key"},
    )
    found = redactable(secrets_of_model(model))
    assert found == {"pa55-w0rd", "a1-b2-c3", "Bearer team-1-key", "team-1-key"}


def test_harmless_headers_are_not_secret() -> None:
    headers = {"X-Environment": "production", "OpenAI-Organization": "org-acme"}
    assert not redactable(secrets_of_model(LLMConfig("m", headers=headers)))
    keys = LLMConfig("m", headers={"X-Api-Key": "plainkey", "Authorization": "Bearer plain-one"})
    found = redactable(secrets_of_model(keys))
    assert found == {"plainkey", "Bearer plain-one", "plain-one"}


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("localhost:6379", set[str]()),
        ("api.example.com/v1", set[str]()),
        ("/data/app.db", set[str]()),
        ("host=h password=hunter22x", {"hunter22x"}),
    ],
)
def test_secret_in_an_address_without_scheme_is_found(address: str, secrets: set[str]) -> None:
    assert redactable(secrets_of_environ({"SHOP_URL": address})) == secrets
    assert redactable(secrets_of_environ({"SHOP_DSN": address})) == secrets


def test_key_file_lines_are_secrets() -> None:
    pem = "-----BEGIN KEY-----\nMIIabcdef0123456789\nxyzXYZ0123456789abc\n-----END KEY-----\n"
    file = json.dumps(
        {"client_email": "a@b.test", "private_key": pem, "token_uri": "https://t.test"}
    )
    clean = Redactor(secrets_of_settings(SecretStr(file))).redact_text
    for form in (file, pem.strip(), json.dumps(pem.strip())):
        assert "MIIabc" not in clean(f"it is {form}")
    assert clean("line MIIabcdef0123456789") == f"line {REDACTED}"
    assert clean("a@b.test") == "a@b.test"


class Client:
    """A client as of a cloud's vault, whose attributes cost money or do not exist."""

    def get_secret_value(self, secret_id):
        raise AssertionError("nobody asked for it")

    unicode_string = hosts = get_secret_value


def test_private_client_objects_in_settings_are_not_inspected():
    class Held(BaseModel):
        _client: Client = PrivateAttr(default_factory=Client)
        _cache: dict[str, str] = PrivateAttr(default_factory=lambda: {"a": "b"})

    assert list(secrets_of_settings(Held())) == []


@pytest.mark.parametrize(
    "path", ["client_secrets.json", "keys/sa.json", "/srv/keys/x.pem", "~/.ssh/id.key", "{here}"]
)
def test_path_of_a_secret_file_is_not_secret(tmp_path, path):
    path = path.format(here=tmp_path)
    options = {"credentials": path, "private_key": path, "oauth_token": [path]}
    assert set(secrets_of_options(options)) == set()
    assert set(secrets_of_environ({"MY_SECRET_KEY": path})) == set()


@pytest.mark.parametrize(
    "secret", ["/9j+Zm9vYmFy/QUJDREVG", "hunter2.secret", "a/b/c.jsonx", "~nobody1"]
)
def test_secret_resembling_a_path_is_secret(secret):
    assert secret in set(secrets_of_options({"credentials": secret}))
