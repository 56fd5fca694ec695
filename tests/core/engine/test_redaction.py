"""Secrets are taken out wherever they turn up, and nothing else is changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from delf import Agent, Connection, LLMConfig, action
from delf.engine.known_secrets import (
    Guess,
    secrets_of_model,
    secrets_of_options,
    secrets_of_settings,
)
from delf.engine.redaction import REDACTED, Redactor
from delf.settings import PluginSettings
from delf.testing.hosts import TestHost
from delf.testing.models import ScriptedModel
from delf.values import dumps

TOKEN = 'tok-8f3a"ö\\91x'
PASSWORD = "S3cr3t!pass"


@dataclasses.dataclass
class Row:
    name: str
    token: str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"a {TOKEN} b", f"a {REDACTED} b"),
        ([1, TOKEN], [1, REDACTED]),
        (("x", {TOKEN: [TOKEN]}), ("x", {REDACTED: [REDACTED]})),
        ({TOKEN}, {REDACTED}),
        (b"x " + PASSWORD.encode(), b"x " + REDACTED.encode()),
        (Row("a", TOKEN), {"name": "a", "token": REDACTED}),
    ],
)
def test_in_values(value: Any, expected: Any) -> None:
    redactor = Redactor([TOKEN, PASSWORD])
    assert redactor.value(value) == expected
    assert redactor.is_in(dumps(value)) or isinstance(value, bytes)


@pytest.mark.parametrize(
    "value", [None, 1, 2.5, True, "text", ["a"], {"a": (1, b"x")}, Row("a", "b")]
)
def test_what_holds_none_stays_the_same_object(value: Any) -> None:
    redactor = Redactor([TOKEN])
    assert redactor.value(value) is value
    assert not redactor.is_in(dumps(value))


@pytest.mark.parametrize("word", ["", "abc", "postgres", "password", "12345678", "        "])
def test_words_are_no_secrets(word: str) -> None:
    assert not Redactor([Guess(word)])


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert Redactor(["abcd-1234", "abcd-1234-5678"]).text("abcd-1234-5678") == REDACTED


class _Inner(BaseModel):
    key: SecretStr


class _Settings(PluginSettings):
    url: SecretStr
    inner: _Inner
    keys: list[SecretStr]
    plain: str = "plain-value-1"


def test_what_settings_hold() -> None:
    settings = _Settings.for_instance(
        "x", {"url": "pg://u:p%40ss-word1@h/d", "inner": {"key": "k1-inner"}, "keys": ["k2-list"]}
    )
    found = set(secrets_of_settings(settings))
    assert {"p%40ss-word1", "p@ss-word1", "k1-inner", "k2-list"} <= found
    assert "plain-value-1" not in found


def test_what_models_and_options_hold() -> None:
    model = LLMConfig("m", api_key="key-1", headers={"Authorization": "Bearer abc-1"})
    assert {"key-1", "abc-1", "Bearer abc-1"} <= set(secrets_of_model(model))
    options = {"API_KEY": "a-1", "HOME": "/root", "DB_URL": "x://u:pw-1@h", "t": {"token": "b-2"}}
    assert set(secrets_of_options(options)) == {"a-1", "pw-1", "b-2"}
    more = {"api_keys": ["l-1", "l-2"], "STORE_CONNECTION_STRING": "Key=c-3", "db_pass": "p-4"}
    assert set(secrets_of_options(more)) == {"l-1", "l-2", "Key=c-3", "c-3", "p-4"}
    assert not set(secrets_of_options({"PWD": "/home/ada/work", "OLDPWD": "/home/ada"}))


class Leaky(Connection):
    """A service that tells its own secrets."""

    class Settings(PluginSettings):
        """Its settings."""

        token: SecretStr

    @action(effect="read")
    async def show(self, *, twice: bool = False) -> dict[str, str]:
        """Its token."""
        token = self.settings.token.get_secret_value()
        return {"token": token, "again": token if twice else ""}

    @action(effect="read")
    async def fail(self) -> None:
        """Fail with its token."""
        raise RuntimeError(f"401 for {self.settings.token.get_secret_value()}")

    async def context(self, task: str) -> str:
        """Facts with its token."""
        return f"for {task}: {self.settings.token.get_secret_value()}"


async def test_scripts_prompts_events_and_errors_have_none(
    delf_host: TestHost, scripted_model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_model.writes(
        "r = await leaky.show(twice=True)\nprint(r, len(r['token']))\nawait leaky.fail()",
        "print('again')\nawait leaky.fail()",
    )
    seen: list[Any] = []
    leaky = Leaky(token="tok-123456-abcdef")
    async with Agent(tools=[leaky], llm="scripted", sandbox="local", host=delf_host) as agent:
        response = await agent.arun("Say tok-123456-abcdef.", listeners=[seen.append])
    everything = [repr(seen), str(response.to_dict()), str(response.exception), caplog.text]
    everything += [repr(request) for request in scripted_model.requests]
    assert not any("123456" in text for text in everything)
    assert len(scripted_model.requests) == 2
    assert f"{{'token': '{REDACTED}', 'again': '{REDACTED}'}} {len(REDACTED)}" in repr(seen)
