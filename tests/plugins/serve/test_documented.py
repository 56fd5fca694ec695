"""The set-ups of the documentation start, each from an empty folder."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass
from typing import Any

import pytest

import delf_serve.project as project
from delf_serve.app import Application
from support.cli_fixtures import *  # noqa: F403 - the command line in this process
from support.workspace import ROOT

BLOCK = re.compile(r"^```(sh|bash|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass
class Page:
    """The commands, variables and settings in a part of a page."""

    commands: list[list[str]]
    variables: dict[str, str]
    settings: str


def page_of(path: str, heading: str) -> Page:
    text = (ROOT / path).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    part = re.split(r"^##+ ", found.group(1), maxsplit=1, flags=re.MULTILINE)[0]
    page = Page([], {}, "")
    for kind, block in BLOCK.findall(part):
        if kind == "toml":
            page.settings += block
            continue
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            assigned = [word.partition("=") for word in words if re.match(r"[A-Z_]+=", word)]
            page.variables |= {name: value for name, _, value in assigned}
            if words and words[0] == "delf" and words[1] != "plugins":
                page.commands.append(words[1:])
    return page


SET_UPS = {
    "logins": ("docs/serve.md", "Logins by OpenID Connect"),
    "a proxy": ("docs/serve.md", "Behind a proxy"),
    "a proxy that knows people": ("docs/serve.md", "A proxy that knows people"),
    "notices": ("docs/serve.md", "Notices"),
    "people": ("docs/serve.md", "People"),
    "hooks": ("docs/serve.md", "Hooks"),
    "a team": ("docs/teams.md", "2. A server for a team"),
    "rules": ("docs/team-rules.md", "Rules of a team"),
    "slack": ("plugins/approval-slack/README.md", "delf-plugin-approval-slack"),
}


@pytest.fixture
def start(run: Any, here: Any, monkeypatch: pytest.MonkeyPatch):
    """Start a server as a page describes: with its command, settings and variables."""
    for name in ("DELF_API_KEY", "DELF_JOURNAL_SQL_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(here / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
    monkeypatch.setenv("DELF_JOURNAL", "sql")
    monkeypatch.setenv("DELF_LLM", "gpt-4o-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-nobody")
    for hook in ("ORDER", "REFUND"):
        monkeypatch.setenv(f"{hook}_HOOK_SECRET", "a-secret-of-the-hook")
    served: list[Application] = []

    def serve(app: Application, *_: object) -> None:
        async def life() -> None:
            await app.start()
            await app.stop()

        asyncio.run(life())
        served.append(app)

    monkeypatch.setattr(project, "serve", serve)

    def begin(page: Page) -> Application:
        (here / "delf.toml").write_text(page.settings)
        for name, value in page.variables.items():
            known = {"DELF_JOURNAL_SQL_URL": f"sqlite:///{here / 'journal.db'}"}
            monkeypatch.setenv(name, known.get(name, value))
        monkeypatch.setenv("DELF_TRUST", str(here))
        for command in page.commands:
            if command[0] == "users":
                result = run(*command)
                assert result.exit_code == 0, (command, result.output)
        result = run("serve", "--port", "0")
        assert result.exit_code == 0, result.output
        return served.pop()

    return begin


@pytest.mark.parametrize("name", SET_UPS)
def test_documented_setup_starts(name: Any, start: Any):
    page = page_of(*SET_UPS[name])
    assert page.settings or page.variables or page.commands
    assert start(page)


def test_documented_login_setup_uses_the_secret_variable(start: Any):
    settings = start(page_of(*SET_UPS["logins"])).settings
    assert settings.oidc_client_secret.get_secret_value() == "a-long-secret"


def test_lists_in_variables_are_comma_separated(start: Any):
    settings = start(page_of(*SET_UPS["a proxy"])).settings
    assert settings.hosts == ["delf.example.com", "delf.internal"]


KEYS = {
    "DELF_SERVE_API_KEY": "a-long-key",
    "DELF_SERVE_WEBHOOK_SECRET": "a-secret",
    "DELF_SERVE_WEBHOOK_URL": "https://hooks.example.com/token",
    "DELF_SERVE_SMTP_URL": "smtps://delf:secret@mail.example.com",
}


@pytest.mark.parametrize("variable", KEYS)
def test_local_secret_is_accepted_with_any_configured_address(variable: Any, start: Any):
    addresses = (
        '[plugins.serve]\npublic_url = "https://delf.example.com"\n'
        'allow_origins = ["https://app.example.com"]\nhosts = ["delf.example.com"]\n'
    )
    assert start(Page([], {variable: KEYS[variable]}, addresses))


def test_oidc_secret_variable_is_not_sent_to_an_issuer_of_a_file(start: Any, run: Any):
    page = page_of(*SET_UPS["logins"])
    settings = re.sub(r"oidc_client_secret.*\n", "", page.settings)
    variables = {"DELF_SERVE_OIDC_CLIENT_SECRET": "of the environment"}
    with pytest.raises(AssertionError, match="oidc_issuer in a file"):
        start(Page([], variables, settings))
