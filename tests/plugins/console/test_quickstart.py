"""`delf quickstart`: from nothing to a project that runs."""

import json
import sqlite3
import tomllib
from contextlib import closing

import pytest

from delf.plugins.host import PluginHost
from delf_console import quickstart
from support.openai_server import OpenAIServer


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch):
    for name in (*PluginHost.discover(environ={}).providers.keys, "OPENAI_BASE_URL", "DELF_LLM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(quickstart, "SERVERS", {})


@pytest.mark.parametrize("name", ["Ollama", "LM Studio", "llama.cpp"])
def test_quickstart_finds_a_local_server_and_writes_a_working_project(name, run, here, monkeypatch):
    with closing(sqlite3.connect(here / "shop.db")) as database:
        database.execute("CREATE TABLE t (a)")
    answers = ["ok", "```python\nprint(await database.query('SELECT 6 * 7 AS n'))\n```"]
    with OpenAIServer(answers, models=["text-embedding-nomic", "qwen3"]) as server:
        monkeypatch.setattr(quickstart, "SERVERS", {name: server.port, "nobody": 1})
        done = run("quickstart", input="\nshop.db\nnew\n")
        assert done.exit_code == 0, done.output
        assert f"1  qwen3, of {name} here" in done.stderr
        assert "embed" not in done.stderr
        assert "cd new" in done.stdout
        monkeypatch.chdir(here / "new")
        ran = run("run", "How many?", "--sandbox", "local")
        assert "42" in ran.stdout, ran.output


@pytest.mark.parametrize("typed", ["llama3.2", "llama3.2:latest", "2"])
def test_quickstart_accepts_a_local_model_name(typed, run, here, monkeypatch):
    with OpenAIServer(["ok"], models=["qwen3", "llama3.2:latest"]) as server:
        monkeypatch.setattr(quickstart, "SERVERS", {"Ollama": server.port})
        done = run("quickstart", "--llm", typed, "--connect", "none", "--folder", ".")
    assert done.exit_code == 0, done.output
    written = tomllib.loads((here / "delf.toml").read_text())
    assert written["agent"]["llm"] == {
        "model": "llama3.2:latest",
        "base_url": server.base_url,
        "api_key": "none",
    }


@pytest.mark.parametrize("key_is_set", ["before", "after"])
def test_a_project_for_a_server_without_a_key_runs_although_a_key_is_set(
    key_is_set, run, here, monkeypatch
):
    with OpenAIServer(["ok", "```python\nprint(6 * 7)\n```"], models=["llama3"]) as server:
        if key_is_set == "before":
            monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
        arguments = ("--llm", "llama3", "--base-url", server.base_url, "--connect", "none")
        done = run("quickstart", *arguments, "--folder", ".")
        assert done.exit_code == 0, done.output
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
        ran = run("run", "How many?", "--sandbox", "local")
        assert "42" in ran.stdout, ran.output
        calls = [request for request in server.requests if request.method == "POST"]
        sent_keys = {request.headers["authorization"] for request in calls}
    assert sent_keys == {"Bearer none"}


def test_quickstart_asks_again_after_a_failed_model_check(run, here, monkeypatch):
    with (
        OpenAIServer(["ok"], models=["qwen3"]) as server,
        OpenAIServer(["ok"], api_key="right") as provider,
    ):
        monkeypatch.setattr(quickstart, "SERVERS", {"Ollama": server.port})
        monkeypatch.setenv("OPENAI_API_KEY", "wrong")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        done = run("quickstart", input="1\n9\n2\n\n\n")
    assert done.exit_code == 0, done.output
    assert "rejected the key (OPENAI_API_KEY)" in done.stderr
    assert "there is no model of the number 9" in done.stderr
    assert "qwen3" in (here / "delf.toml").read_text()


def test_quickstart_without_a_terminal_names_its_options(run, here):
    done = run("quickstart", input="")
    assert done.exit_code == 2
    assert "nobody answers the question 'Which model?" in done.stderr
    assert "--llm MODEL" in done.stderr
    assert not (here / "delf.toml").exists()


def test_quickstart_offers_a_model_whose_key_is_set(run, here, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    done = run("quickstart", "--no-call", input="\n\n\n")
    assert done.exit_code == 0, done.output
    assert (here / "delf.toml").read_text() == '[agent]\nllm = "gpt-4o-mini"\n'
    assert json.loads(run("config", "check", "--json").stdout)["ok"]
    again = run("quickstart", "--no-call", input="\n\n\n")
    assert again.exit_code == 2
    assert "already exists" in again.stderr


def test_quickstart_writes_nothing_after_a_rejected_key(run, here, monkeypatch):
    with OpenAIServer(["ok"], api_key="right") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "wrong")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        done = run("quickstart", "--llm", "gpt-4o-mini", "--connect", "none", "--folder", ".")
    assert done.exit_code != 0
    assert "rejected the key (OPENAI_API_KEY)" in done.stderr
    assert not (here / "delf.toml").exists()


def test_quickstart_writes_nothing_if_the_database_cannot_be_used(run, here, monkeypatch):
    (here / "notes.txt").write_text("This is no database. " * 100)
    with OpenAIServer(["ok", "ok"]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        arguments = ("--llm", "gpt-4o-mini", "--folder", ".")
        done = run("quickstart", *arguments, "--connect", "notes.txt")
        assert done.exit_code == 1, done.output
        assert "file is not a database" in done.stderr
        assert not (here / "delf.toml").exists()
        asked = run("quickstart", *arguments, input="notes.txt\nnone\n")
    assert asked.exit_code == 0, asked.output
    assert "file is not a database" in asked.stderr
    assert "connections" not in (here / "delf.toml").read_text()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:sesame@localhost/shop",
        "postgresql://sesame:sesame@localhost/shop",
        "postgresql://localhost/shop?user=ada&password=sesame",
    ],
)
def test_quickstart_writes_no_secret_of_a_database_url(url, run, here):
    arguments = ("--llm", "gpt-4o-mini", "--no-call", "--connect", url, "--folder", ".")
    done = run("quickstart", *arguments)
    assert done.exit_code == 0, done.output
    assert "export DATABASE_URL=" in done.stderr
    text = (here / "delf.toml").read_text()
    assert "sesame" not in text
    assert 'url = "${DATABASE_URL}"' in text


def test_quickstart_writes_no_secret_of_a_model_url(run, here, monkeypatch):
    answers = ["ok", "```python\nprint(6 * 7)\n```"]
    with OpenAIServer(answers, models=["llama3"]) as server:
        url = server.base_url.replace("://", "://ada:sesame%21@")
        done = run("quickstart", "--base-url", url, "--json", input="1\nnone\n.\n")
        assert done.exit_code == 0, done.output
        assert "export LLM_BASE_URL=" in done.stderr
        assert json.loads(done.stdout)["base_url"] == "${LLM_BASE_URL}"
        shown = done.output + (here / "delf.toml").read_text()
        assert "sesame" not in shown
        missing = run("run", "How many?", "--sandbox", "local")
        assert (missing.exit_code, "LLM_BASE_URL" in missing.stderr) == (2, True)
        monkeypatch.setenv("LLM_BASE_URL", url)
        ran = run("run", "How many?", "--sandbox", "local")
        assert "42" in ran.stdout, ran.output
        logins = {request.headers["authorization"] for request in server.requests}
    assert logins == {"Basic YWRhOnNlc2FtZSE="}


def test_quickstart_writes_a_url_without_a_secret(run, here):
    url = "https://models.example/$team/v1?version=2"
    done = run("quickstart", "--llm", "m", "--base-url", url, "--no-call", input="none\n.\n")
    assert done.exit_code == 0, done.output
    base_url = tomllib.loads((here / "delf.toml").read_text())["agent"]["llm"]["base_url"]
    assert base_url == "https://models.example/$$team/v1?version=2"


@pytest.mark.parametrize(("name", "kind"), [("s.db", "sqlite"), ("s.duckdb", "duckdb")])
def test_quickstart_connects_a_database_file_by_suffix(name, kind, run, here):
    (here / name).touch()
    run("quickstart", "--llm", "x", "--no-call", "--connect", name, "--folder", ".")
    assert f'url = "{kind}:///' in (here / "delf.toml").read_text()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": [1]}', b"\xff"])
def test_quickstart_ignores_other_servers_on_known_ports(body, run, monkeypatch):
    with OpenAIServer(models=body) as server:
        monkeypatch.setattr(quickstart, "SERVERS", {"Ollama": server.port})
        done = run("quickstart", input="")
    assert "no local server answers" in done.stderr
