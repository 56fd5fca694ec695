"""Keys that a library finds in the environment: no address of a project's file receives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, load_project, plugin_context
from delf.environment import FileText, using_environ
from delf.errors import KeyAddressError
from delf.protocols.context import PluginContext
from delf_gmail import Gmail
from delf_google.credentials import Tokens
from delf_journal_sql import SqlJournal
from delf_mcp import MCP
from delf_memory_semantic.recall import Recall
from delf_memory_semantic.store import SemanticStore
from delf_model_http.embedder import HttpEmbedder
from delf_openapi import APITool
from delf_otel.observer import OtelObserver
from delf_runner_dbos.settings import RunnerSettings
from delf_sql import SQL
from delf_web import WebSearch

POSTGRES = "postgresql://me@host.test/shop"
ADDRESS = "http://host.test/v1"


def of_file(text: str) -> str:
    """A text as a project's file gives it."""
    return FileText(text, Path("/p"))


def of_program(text: str) -> str:
    """A text as code gives it."""
    return str(text)


def _logged_in(url: str) -> Any:
    """The first call of a connection, with the login that a person has here."""
    mail = Gmail(base_url=url)
    tokens = Tokens("gmail", mail.settings, (), lambda _: None)
    return tokens._check_base_url_is_not_of_project("a login")  # noqa: SLF001 - a whole login needs Google


def _context(tmp_path: Path, **environ: str) -> PluginContext:
    return PluginContext(data_dir=tmp_path, environ=environ)


WAYS: dict[str, tuple[dict[str, str], Callable[[Callable[[str], str], Path], Any]]] = {
    "sql": ({"PGPASSWORD": "k"}, lambda text, _: SQL(url=text(POSTGRES))),
    "sql by parts": (
        {"PGPASSWORD": "k"},
        lambda text, _: SQL(db_type="postgresql", host=text("h.test"), database="shop"),
    ),
    "journal": ({"PGPASSWORD": "k"}, lambda text, _: SqlJournal(url=text(POSTGRES))),
    "memory": (
        {"PGPASSWORD": "k"},
        lambda text, path: SemanticStore(_context(path), text(POSTGRES), "off"),
    ),
    "otel": (
        {"OTEL_EXPORTER_OTLP_HEADERS": "x=k"},
        lambda text, _: OtelObserver(endpoint=text("http://host.test")),
    ),
    "google": ({}, lambda text, _: _logged_in(text("http://host.test"))),
}


@pytest.mark.parametrize("way", WAYS)
def test_environment_login_goes_only_to_an_address_of_a_program(way, tmp_path, monkeypatch):
    variables, make = WAYS[way]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    make(of_program, tmp_path)
    with pytest.raises(KeyAddressError, match="a file of the project gives"):
        make(of_file, tmp_path)


PASSWORDLESS = (
    POSTGRES,
    "postgresql://me:@host.test/shop",
    "postgresql://:@host.test/shop",
    "postgresql://host.test:5432/shop?application_name=a@b",
    "postgresql://me@host.test/shop?application_name=a:b@c",
    "postgresql:///shop?host=host.test",
    "postgresql://me:x@host.test/shop?password=",
    "postgresql+psycopg://me@host.test/shop",
    "POSTGRESQL://me@host.test/shop",
)
"""URLs to which PostgreSQL's client adds the password of PGPASSWORD."""


def _recall(url: str, _: Path) -> Any:
    """The first call of a connection that opens the journal at its own URL."""
    recall = Recall(url=url)
    recall.use_context(plugin_context())
    return asyncio.run(recall.recall("seat"))


def _chat(url: str, path: Path) -> Any:
    """The first look into the conversations of a project's chat."""
    chat = f"chat = {{ persist = true, path = '{url}' }}"
    (path / "delf.toml").write_text(f"[agent]\nllm = 'gpt-4o'\n{chat}\n")
    project = load_project(path, environ={"OPENAI_API_KEY": "k"}, trust=True)
    with Agent.from_project(project) as agent:
        return agent.chat.conversations()


def _runners(url: str, path: Path) -> Any:
    settings = RunnerSettings.for_instance("runner_dbos", {"database": url})
    return settings.url(path, path)


DATABASES: dict[str, Callable[[str, Path], Any]] = {
    "journal": lambda url, _: SqlJournal(url=url),
    "memory": lambda url, path: SemanticStore(_context(path), url, "off"),
    "recall": _recall,
    "chat": _chat,
    "runners": _runners,
}


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("url", PASSWORDLESS)
def test_database_password_of_the_user_is_not_sent_to_a_url_in_a_project_file(
    url, database, tmp_path, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", "k3y-of-the-person")
    with pytest.raises(KeyAddressError, match="PGPASSWORD"):
        DATABASES[database](of_file(url), tmp_path)


@pytest.mark.parametrize("database", [*DATABASES, "sql"])
def test_login_of_a_service_file_is_not_sent_to_a_url_in_a_project_file(
    database, tmp_path, monkeypatch
):
    use = {**DATABASES, "sql": lambda url, _: SQL(url=url)}[database]
    for url in ("postgresql://host.test/shop?service=prod", "postgresql://a:b@h.test/x?Service=x"):
        with pytest.raises(KeyAddressError, match="may add a login of this computer"):
            use(of_file(url), tmp_path)
    monkeypatch.setenv("PGSERVICE", "prod")
    with pytest.raises(KeyAddressError, match="PGSERVICE"):
        use(of_file(POSTGRES), tmp_path)


@pytest.mark.parametrize("database", [*DATABASES, "sql"])
def test_database_password_of_a_password_file_goes_to_no_url_of_a_file(
    database, tmp_path, monkeypatch
):
    use = {**DATABASES, "sql": lambda url, _: SQL(url=url)}[database]
    with pytest.raises(KeyAddressError, match="hostaddr"):
        use(of_file("postgresql://me@trusted.test/shop?hostaddr=192.0.2.1"), tmp_path)
    with pytest.raises(KeyAddressError, match="conninfo"):
        use(of_file("postgresql://me@trusted.test/shop?conninfo=hostaddr%3D192.0.2.1"), tmp_path)
    passwords = tmp_path / "pgpass"
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    passwords.write_text("trusted.test:*:*:me:k3y\n*:*:*:*:k3y-of-the-person\n")
    with pytest.raises(KeyAddressError, match="pgpass has a password for any host"):
        use(of_file(POSTGRES), tmp_path)


def test_database_password_of_a_password_file_goes_to_its_own_host(tmp_path, monkeypatch):
    passwords = tmp_path / "pgpass"
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    passwords.write_text("host.test:*:*:me:k3y\n")
    assert SQL(url=of_file(POSTGRES)).target.place == "the PostgreSQL server at host.test:5432"


def test_empty_password_option_of_a_url_is_no_password(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "k3y-of-the-person")
    with pytest.raises(KeyAddressError, match="PGPASSWORD"):
        SQL(url=of_file(POSTGRES + "?password="))


def test_database_url_with_its_own_password_needs_no_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "k3y-of-the-person")
    url = "postgresql://me:own-pass@host.test/shop"
    assert _runners(of_file(url), tmp_path) == url
    assert SqlJournal(url=of_file(url)).place == "postgresql://me@host.test/shop"


SETTINGS: dict[str, tuple[dict[str, str], Callable[[], Any]]] = {
    "mcp": (
        {"DELF_X_HEADERS": '{"Authorization": "Bearer k3y-of-the-person"}'},
        lambda: MCP(name="x", url=of_file(ADDRESS)),
    ),
    "openapi": (
        {"DELF_X_TOKEN": "k"},
        lambda: APITool(name="x", spec="shop.json", base_url=of_file(ADDRESS)),
    ),
    "openapi's specification": (
        {"DELF_X_API_KEY": "k"},
        lambda: APITool(name="x", spec=of_file("shop.json")),
    ),
    "gmail": ({"DELF_X_TOKEN": "k"}, lambda: Gmail(name="x", base_url=of_file(ADDRESS))),
    "websearch": (
        {"OPENAI_API_KEY": "k"},
        lambda: WebSearch(name="x", llm="gpt-4o", base_url=of_file(ADDRESS)),
    ),
    "sql": (
        {"DELF_X_PASSWORD": "k"},
        lambda: SQL(name="x", host=of_file("h.test"), database=of_file("shop")),
    ),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_environment_key_goes_to_no_address_of_a_file(kind):
    variables, make = SETTINGS[kind]
    with using_environ(variables), pytest.raises(KeyAddressError, match="a file of the project"):
        make()


def test_embedder_key_is_not_sent_to_another_address(tmp_path):
    context = _context(tmp_path, OPENAI_API_KEY="k")
    with pytest.raises(KeyAddressError):
        HttpEmbedder(context, embedding_base_url=of_file(ADDRESS))
    HttpEmbedder(context, embedding_base_url=of_file(ADDRESS), embedding_api_key=of_file("own"))


def test_server_of_an_mcp_file_counts_as_an_address_of_a_file(tmp_path):
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"x": {"url": "http://host.test/mcp"}}}')
    variables = {"DELF_X_HEADERS": '{"Authorization": "Bearer k3y-of-the-person"}'}
    config = str(tmp_path / "mcp.json")
    with using_environ(variables):
        assert MCP(name="x", config=config).settings.headers
        with pytest.raises(KeyAddressError):
            MCP(name="x", config=FileText(config, tmp_path))
