"""Tests that secrets are redacted wherever they occur, and nothing else is."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from delf import Agent, CallContext, Connection, LLMConfig, action, tool
from delf import events as ev
from delf.errors import ToolExecutionError
from delf.messages import FilePart, ImagePart, Message, TextPart
from delf.protocols.approval import Edited
from delf.settings import PluginSettings
from delf.values.conversion import plain
from delf.values.encoding import dumps, to_jsonable_or_repr
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.redact import REDACTED, Redactor, restore_secrets
from delf_engine.secrets import (
    secrets_of_environ,
    secrets_of_model,
    secrets_of_options,
    secrets_of_settings,
)

LONG = "tok-123456-abcdef"
TOKEN = 'tok-8f3a"ö\\91x'
PASSWORD = "S3cr3t!pass"


@dataclasses.dataclass
class Row:
    name: str
    token: str


@dataclasses.dataclass
class Holder:
    held: Any


@dataclasses.dataclass
class Picky:
    token: str

    def __post_init__(self) -> None:
        if self.token == REDACTED:
            raise LookupError(self.token)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"a {TOKEN} b", f"a {REDACTED} b"),
        ([1, TOKEN], [1, REDACTED]),
        (("x", {TOKEN: [TOKEN]}), ("x", {REDACTED: [REDACTED]})),
        ({TOKEN}, {REDACTED}),
        (b"x " + PASSWORD.encode(), b"x " + REDACTED.encode()),
        (Row("a", TOKEN), Row("a", REDACTED)),
        (Picky(TOKEN), {"token": REDACTED}),
    ],
)
def test_redactor_hides_secrets_in_values(value: Any, expected: Any) -> None:
    redactor = Redactor([TOKEN, PASSWORD])
    assert redactor.redact_value(value) == expected
    assert redactor.may_be_in(dumps(value)) or isinstance(value, bytes)


@pytest.mark.parametrize(
    "value", [None, 1, 2.5, True, "text", ["a"], {"a": (1, b"x")}, Row("a", "b")]
)
def test_text_without_a_secret_is_returned_unchanged(value: Any) -> None:
    redactor = Redactor([TOKEN])
    assert redactor.redact_value(value) is value
    encoded = dumps(value)
    assert redactor.may_be_in(encoded) == (b'"bytes"' in encoded), "bytes have to be looked at"


def test_image_bytes_are_not_redacted() -> None:
    asked = (Message("user", (TextPart(TOKEN), ImagePart(TOKEN.encode(), "image/png"))),)
    (clean,) = Redactor([TOKEN]).redact_value(asked)
    assert clean.parts == (TextPart(REDACTED), asked[0].parts[1])


@pytest.mark.parametrize("message", ["__repr__", "__str__"])
def test_redactor_reads_records_and_events(message: str) -> None:
    def say(_: object) -> str:
        return f"odd {TOKEN}"

    odd = type("Odd", (), {"__repr__": lambda _: "odd", "__str__": lambda _: "odd", message: say})  # pyright: ignore[reportUnknownLambdaType]
    clean = Redactor([TOKEN]).redact_value({"a": odd()})
    assert TOKEN not in f"{to_jsonable_or_repr(clean)} {plain(clean)}"


@pytest.mark.parametrize("word", ["", "abc", "postgres", "password", "123456", "        "])
def test_placeholders_and_short_words_are_not_secrets(word: str) -> None:
    assert not Redactor([word]).knows_any


def test_secret_that_is_not_valid_unicode_is_redacted() -> None:
    """Python reads other encodings in the environment as lone surrogates."""
    secret = "pass-caf\udce9-1234"
    redactor = Redactor([secret])
    assert redactor.redact_text(f"it is {secret}") == f"it is {REDACTED}"
    data = secret.encode("utf-8", "surrogateescape")
    assert redactor.redact_value(data) == REDACTED.encode()


def test_longer_secret_is_redacted_first() -> None:
    assert Redactor(["abcd-1234", "abcd-1234-5678"]).redact_text("abcd-1234-5678") == REDACTED


class _Inner(BaseModel):
    key: SecretStr


class _Settings(PluginSettings):
    url: SecretStr
    inner: _Inner
    keys: list[SecretStr]
    plain: str = "plain-value-1"


def test_secrets_of_settings_are_redacted() -> None:
    settings = _Settings.for_instance(
        "x", {"url": "pg://u:p%40ss-word1@h/d", "inner": {"key": "k1-inner"}, "keys": ["k2-list"]}
    )
    found = set(secrets_of_settings(settings))
    assert {"p%40ss-word1", "p@ss-word1", "k1-inner", "k2-list"} <= found
    assert "plain-value-1" not in found


def test_secrets_of_models_and_options_are_redacted() -> None:
    model = LLMConfig("m", api_key="key-1", headers={"Authorization": "Bearer abc-1"})
    assert {"key-1", "abc-1", "Bearer abc-1"} <= set(secrets_of_model(model))
    options = {"API_KEY": "a-1", "HOME": "/root", "DB_URL": "x://u:pw-1@h", "t": {"token": "b-2"}}
    assert set(secrets_of_options(options)) == {"a-1", "pw-1", "b-2"}
    more = {"api_keys": ["l-1", "l-2"], "STORE_CONNECTION_STRING": "Key=c-3", "db_pass": "p-4"}
    assert set(secrets_of_options(more)) == {"l-1", "l-2", "Key=c-3", "c-3", "p-4"}
    assert not set(secrets_of_environ({"PWD": "/home/ada/work", "OLDPWD": "/home/ada"}))


class LeakySettings(PluginSettings):
    """The settings of a leaky service."""

    token: SecretStr


class Leaky(Connection[LeakySettings]):
    """A service that repeats its own secrets."""

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


async def seen_of(host: TestHost, *tools: Any, **options: Any) -> tuple[list[Any], Any]:
    """Run a script with a connection that has a token; return its events and its response."""
    seen: list[Any] = []
    given = [Leaky(token=LONG), *tools]
    options = {"llm": "scripted", "sandbox": "local", "host": host, "retry_count": 0, **options}
    async with Agent(tools=given, **options) as agent:
        response = await agent.arun("x", listeners=[seen.append])
    return seen, response


class Renewing(Connection):
    """A service that gives a token for each call, and repeats it."""

    async def _renew(self) -> str:
        self.calls = getattr(self, "calls", 0) + 1
        token = f"{LONG}-{self.calls}"
        self.keep_secret(token)
        return token

    @action(effect="read")
    async def show(self) -> str:
        """Its token."""
        return f"<{await self._renew()}>"

    @action(effect="read")
    def in_a_thread(self) -> str:
        """Its token."""
        return f"<{asyncio.run(self._renew())}>"

    @action(effect="read")
    async def fail(self) -> None:
        """Fail with its token."""
        raise RuntimeError(f"401 for {await self._renew()}")

    async def context(self, task: str) -> str:
        """Facts with its token."""
        return f"for {task}: {await self._renew()}"


async def test_secrets_learned_by_a_connection_are_redacted(
    delf_host: TestHost, scripted_model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    half = len(LONG) // 2
    scripted_model.writes(
        "print(await renewing.show(), await renewing.in_a_thread())\n"
        f"print({LONG[:half]!r} + {LONG[half:]!r} + '-2')\nawait renewing.fail()"
    )
    seen, response = await seen_of(delf_host, Renewing())
    printed = "".join(event.text for event in seen if isinstance(event, ev.Printed))
    assert printed == f"<{REDACTED}> <{REDACTED}>\n{REDACTED}\n"
    assert f"401 for {REDACTED}" in str(response.error)
    assert f"for x: {REDACTED}" in scripted_model.prompts[0]
    message = [repr(seen), str(response.to_dict()), str(response.exception), caplog.text]
    assert not any(f"{LONG}-" in text for text in (*message, repr(scripted_model.requests)))


def test_renewed_secrets_replace_those_of_their_source() -> None:
    redactor = Redactor([LONG])
    redactor.learn("a", ["first-token-1"])
    redactor.learn("b", ["other-token-1", "https://u:url-pass-1@h.test"])
    redactor.learn("a", ["second-token-1"])
    text = f"{LONG} first-token-1 second-token-1 url-pass-1"
    assert redactor.redact_text(text) == f"{REDACTED} first-token-1 {REDACTED} {REDACTED}"


def test_redactor_learns_secrets_later() -> None:
    redactor = Redactor()
    assert not redactor.knows_any
    redactor.learn("a", ["86753098"])
    assert redactor.knows_any
    assert redactor.redact_value([86753098, "86753098"]) == [86753098, REDACTED]
    assert redactor.may_be_in(b'["86753098"]')


async def test_script_never_receives_a_declared_secret(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    scripted_model.writes(f"print(len({LONG!r}))")
    _, response = await seen_of(delf_host, system_prompt=f"The key is {LONG}.")
    assert response.text.strip() == str(len(REDACTED))
    assert LONG not in repr(scripted_model.requests)
    assert f"The key is {REDACTED}." in scripted_model.prompts[0]


async def test_results_of_every_type_are_redacted(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    @tool(confirm=False)
    def all_of_it() -> Any:
        """Values that hold the token."""
        return [
            deque([LONG]),
            Path("/a") / LONG,
            {"k": Row("a", LONG)},
            (LONG, {LONG: 1}),
            frozenset([LONG]),
            LONG.encode(),
            json.dumps({"k": LONG}),
        ]

    scripted_model.writes("print(await all_of_it())")
    seen, response = await seen_of(delf_host, all_of_it)
    assert response.status, response.error
    assert response.text.count(REDACTED) == 8
    assert LONG not in repr(seen)


async def test_output_files_are_redacted(
    delf_host: TestHost, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text(f"the token is {LONG}\n")
    scripted_model.writes(
        "(f,) = await files.list()\nt = open(f['path']).read()\n"
        "add_to_output_files('a.txt', t)\nadd_to_output_files('b.csv', [{'x': t}])"
    )
    out = tmp_path / "out"
    _, response = await seen_of(delf_host, files=[str(notes)], output_dir=str(out))
    assert response.status, response.error
    assert (out / "a.txt").read_text() == f"the token is {REDACTED}\n"
    assert LONG not in (out / "b.csv").read_text()


async def test_approver_neither_sees_nor_changes_a_secret(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    """An argument that the approver did not edit keeps its secret."""
    requests: list[Any] = []
    sent: list[tuple[str, str]] = []

    @tool
    def send(key: str, note: str) -> str:
        """Send a note."""
        sent.append((key, note))
        return "sent"

    def edit(request: Any) -> Edited:
        requests.append(request)
        return Edited(arguments={**request.arguments, "note": "better"})

    half = len(LONG) // 2
    scripted_model.writes(
        f"await send({LONG[:half]!r} + {LONG[half:]!r}, 'good', desc={LONG[:3]!r})"
    )
    seen, response = await seen_of(delf_host, send, on_confirm=edit)
    assert response.status, response.error
    assert sent == [(LONG, "better")]
    assert requests[0].arguments == {"key": REDACTED, "note": "good"}
    assert LONG not in repr(seen)


async def test_edited_part_of_an_argument_leaves_secrets_beside_it(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    sent: list[Any] = []

    @tool
    def send(body: dict[str, Any], flag: int) -> str:
        """Send a body."""
        sent.append((body, flag))
        return "sent"

    def edit(request: Any) -> Edited:
        body = request.arguments["body"]
        body["amount"], body["rows"][1]["n"] = 7, True
        return Edited(arguments={**request.arguments, "body": {**body, "more": "x"}})

    half = len(LONG) // 2
    rows = "[{'key': key, 'n': 1}, {'key': key, 'n': 1}]"
    scripted_model.writes(
        f"key = {LONG[:half]!r} + {LONG[half:]!r}\n"
        f"await send({{'auth': {{'key': key}}, 'amount': 5, 'rows': {rows}}}, 1)"
    )
    _, response = await seen_of(delf_host, send, on_confirm=edit)
    assert response.status, response.error
    rows_sent = [{"key": LONG, "n": 1}, {"key": LONG, "n": True}]
    assert repr(sent[0]) == repr(
        ({"auth": {"key": LONG}, "amount": 7, "rows": rows_sent, "more": "x"}, 1)
    )


async def test_secret_of_a_list_item_goes_to_no_other_item(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    sent: list[Any] = []

    @tool
    def send(rows: list[dict[str, str]]) -> str:
        """Send rows."""
        sent.extend(rows)
        return "sent"

    def edit(request: Any) -> Edited:
        _, *others = request.arguments["rows"]
        return Edited(arguments={"rows": [*others, {"to": "eve", "key": REDACTED}]})

    half = len(LONG) // 2
    scripted_model.writes(
        f"key = {LONG[:half]!r} + {LONG[half:]!r}\n"
        "await send([{'to': to, 'key': f'{to}-{key}'} for to in ('ann', 'bob', 'cid')])"
    )
    _, response = await seen_of(delf_host, send, on_confirm=edit)
    assert response.status, response.error
    assert sent == [
        *({"to": to, "key": f"{to}-{LONG}"} for to in ("bob", "cid")),
        {"to": "eve", "key": REDACTED},
    ]


async def test_edited_list_keeps_booleans_that_equal_numbers(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    sent: list[Any] = []

    @tool
    def send(row: list[Any], others: list[Any]) -> str:
        """Send rows."""
        sent.extend((row, others))
        return "sent"

    def edit(request: Any) -> Edited:
        auth = {**request.arguments["others"][1], "to": "eve"}
        row = [True, "x", "y", {"n": [True]}]
        return Edited(arguments={"row": row, "others": [True, auth]})

    half = len(LONG) // 2
    scripted_model.writes(
        f"key = {LONG[:half]!r} + {LONG[half:]!r}\n"
        "await send([1, 'a', 'b', {'n': [1]}], [1, {'to': 'ann', 'key': key}])"
    )
    _, response = await seen_of(delf_host, send, on_confirm=edit)
    assert response.status, response.error
    # Two items of the second list were changed, so the secret stays hidden.
    rows_sent = [[True, "x", "y", {"n": [True]}], [True, {"to": "eve", "key": REDACTED}]]
    assert repr(sent) == repr(rows_sent)


def test_edit_of_a_long_list_takes_little_time() -> None:
    shown = [{"id": number, "name": f"n{number}", "key": REDACTED} for number in range(2_000)]
    original = [{**row, "key": LONG} for row in shown]
    edited = [*shown]
    edited[0] = {**shown[0], "name": "x"}
    edited[1] = {**shown[1], "name": "y"}
    began = time.process_time()
    restored = restore_secrets(edited, shown, original)
    assert time.process_time() - began < 2
    assert restored == [*edited[:2], *original[2:]]


def test_error_and_its_causes_are_redacted() -> None:
    redactor = Redactor([LONG])
    try:
        try:
            try:
                raise KeyError(LONG)
            except KeyError as inner:
                error = ConnectionError(f"postgresql://u:{LONG}@h")
                error.add_note(f"with {LONG}")
                raise error from inner
        except ConnectionError as middle:
            raise ToolExecutionError(f"it failed: {LONG}", hint=f"not {LONG}") from middle
    except ToolExecutionError as outer:
        cleaned = redactor.redact_error(outer)
    message = "".join(traceback.format_exception(cleaned))
    assert LONG not in message
    assert f"ConnectionError: postgresql://u:{REDACTED}@h" in message
    assert f"with {REDACTED}" in message
    assert f"KeyError: '{REDACTED}'" in message
    assert "test_error_and_its_causes_are_redacted" in message, "where it was raised is still there"


def test_logged_failure_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    redactor = Redactor([LONG])
    for text in (LONG, "harmless"):
        redactor.log_failure(logging.getLogger("x"), "it failed", ValueError(f"bad: {text}"))
    first, second = caplog.records
    assert LONG not in caplog.text
    assert (first.exc_info, f"ValueError: bad: {REDACTED}" in first.getMessage()) == (None, True)
    assert second.exc_info is not None


@pytest.mark.parametrize("media_type", ["text/csv", "application/json", "application/pdf"])
async def test_files_sent_to_a_model_are_redacted(
    delf_host: TestHost, scripted_model: ScriptedModel, tmp_path: Path, media_type: str
) -> None:
    name = {"text/csv": "a.csv", "application/json": "a.json", "application/pdf": "a.pdf"}
    file = tmp_path / name[media_type]
    file.write_text(f'%PDF-1.4 {{"token": "{LONG}"}}')
    scripted_model.writes(f"await llm.call('What is it?', file_data=[{file.name!r}])").says(
        "A token."
    )
    await seen_of(delf_host, files=[str(file)], vision_llm="scripted")
    assert len(scripted_model.requests) == 2
    parts = [p for m in scripted_model.requests[1].messages for p in m.parts]
    assert any(isinstance(part, FilePart) for part in parts)
    assert LONG not in repr(parts)
    assert REDACTED in repr(parts)


async def test_scripts_prompts_events_and_errors_are_redacted(
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
    printed = "".join(event.text for event in seen if isinstance(event, ev.Printed))
    assert f"{{'token': '{REDACTED}', 'again': '{REDACTED}'}} {len(REDACTED)}" in printed


async def test_streamed_tool_output_is_redacted(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    """Output is shown at once, even without a line end, except a possible beginning of a secret."""

    @tool(effect="read", confirm=False)
    async def work(context: CallContext) -> int:
        """Work."""
        for piece in ("10 %", " 20 %\nkey: ", TOKEN[:5], TOKEN[5:], ".", TOKEN[:4]):
            context.say(piece)
        return 1

    scripted_model.writes("print(await work())")
    agent = Agent(tools=[work], llm="scripted", host=delf_host, providers={"openai": TOKEN})
    async with agent:
        response = await agent.arun("x")
    message = [event.text for event in response.events if isinstance(event, ev.CallPrinted)]
    assert message == ["10 %", " 20 %\nkey: ", REDACTED, ".", TOKEN[:4]]
