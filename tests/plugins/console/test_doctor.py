import contextlib
import json
import socket
import sqlite3
from typing import Any

import pytest

from delf.plugins.host import PluginHost
from support.program import write_recording
from support.workspace import CORE


@pytest.fixture
def doctor(run):
    def examine(*arguments: str) -> tuple[int, dict[str, Any]]:
        result = run("doctor", "--json", *arguments)
        return result.exit_code, json.loads(result.stdout)

    return examine


def problems(data: dict[str, Any]) -> list[str]:
    return [item["text"] for item in data["findings"] if item["status"] == "problem"]


def notes(data: dict[str, Any], area: str) -> str:
    return "\n".join(item["text"] for item in data["findings"] if item["area"] == area)


def test_missing_model_is_reported(doctor, run):
    status, data = doctor()
    assert (status, data["ok"]) == (1, False)
    assert problems(data) == ["no language model is configured"]
    text = run("doctor").stdout
    assert "✗ model" in text
    assert "no task can run" in text


def test_configured_model_is_reported(doctor, here):
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\n')
    status, data = doctor()
    assert (status, data["ok"]) == (0, True)
    assert str(here / "delf.toml") in notes(data, "config")
    assert "local, isolation process" in notes(data, "sandbox")
    assert "local: network namespace: " in notes(data, "sandbox")
    assert "local: allow-list of system calls (seccomp): " in notes(data, "sandbox")


def test_doctor_names_keys_without_their_values(run, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-sesame")
    monkeypatch.setenv("DELF_LLM", "gpt-4o-mini")
    for arguments in ((), ("--json",)):
        result = run("doctor", *arguments)
        assert result.exit_code == 0, result.output
        assert "OPENAI_API_KEY" in result.output
        assert "sesame" not in result.output


def test_doctor_reports_that_no_sandbox_is_strong_enough(doctor, here):
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\nmin_isolation = "vm"\n')
    status, data = doctor()
    assert status == 1
    (message,) = problems(data)
    assert message.startswith("no sandbox with isolation 'vm' or stronger works here: ")
    assert "weaker than min_isolation" in notes(data, "sandbox")


def test_doctor_without_plugins_names_what_to_install(doctor, monkeypatch):
    others = [name for name in PluginHost.discover(environ={}).names if name != "console"]
    monkeypatch.setenv("DELF_DISABLE_PLUGINS", ",".join(others))
    status, data = doctor()
    assert status == 1
    hints = [item["hint"] for item in data["findings"] if item["status"] == "problem"]
    assert [hint.partition(" asks")[0] for hint in hints] == [
        "delf plugins install model-http",
        "delf plugins install sandbox-local",
        "delf plugins shows every plugin with its state",
        "delf quickstart",
    ]


def test_doctor_reports_a_namesake_package(doctor, tmp_path, monkeypatch):
    info = tmp_path / "site/delf-0.1.4.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: delf\nVersion: 0.1.4\n")
    monkeypatch.syspath_prepend(str(info.parent))
    _, data = doctor()
    assert "another project's package 'delf' is installed" in notes(data, "delf")
    (hint,) = (item["hint"] for item in data["findings"] if "another project" in item["text"])
    assert hint.startswith(
        "pip uninstall delf, then pip install --force-reinstall --no-deps --find-links dist --edit"
    )
    assert f"={CORE}" in hint, "from the clone that it was installed from"


@pytest.mark.parametrize("more", ['vision_llm = "gpt-4o-mini"', 'embedder = "nope"'])
def test_unusable_optional_model_is_only_a_note(doctor, here, more):
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\n{more}\n')
    status, data = doctor()
    assert (status, problems(data)) == (0, [])
    assert "note" in {item["status"] for item in data["findings"] if item["area"] != "sandbox"}


def test_missing_embedder_model_is_reported(doctor, here, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(
        f'[agent]\nllm = "{model}"\nembedder = "static"\n'
        '[plugins.embed-static]\nmodel = "nobody/nothing"\n'
    )
    status, data = doctor()
    assert (status, data["ok"]) == (0, True), "a task runs without it"
    assert "searches compare words only: the embedding model 'nobody/nothing'" in notes(
        data, "embedder"
    )
    hints = [item["hint"] for item in data["findings"] if item["area"] == "embedder"]
    assert hints == ["hf download nobody/nothing, or set download = true for this embedder"]
    assert "a task starts" in notes(data, "task")


def test_unknown_embedder_is_reported_once(doctor, here, monkeypatch):
    monkeypatch.setenv("DELF_DISABLE_PLUGINS", "embed-sentence-transformers")
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\nembedder = "nope"\n')
    _, data = doctor()
    (found,) = (item for item in data["findings"] if item["area"] == "embedder")
    assert (found["status"], found["text"]) == ("problem", "unknown embedder 'nope'")


def test_damaged_journal_page_is_reported(doctor, here, monkeypatch):
    """The damaged page belongs to a table that is not read for the newest task."""
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\njournal = "sql"\n')
    damaged = here / "journal.db"
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{damaged}")
    assert notes(doctor()[1], "journal") == "can be read"
    with contextlib.closing(sqlite3.connect(damaged)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((size,),) = database.execute("PRAGMA page_size")
        ((page,),) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'delf_events'"
        )
    with damaged.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    status, data = doctor()
    assert (status, data["ok"]) == (1, False)
    assert "is damaged" in problems(data)[0]


def test_damaged_default_journal_is_only_a_note(doctor, here, monkeypatch):
    """A task runs without this journal, with a warning."""
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\n')
    monkeypatch.delenv("DELF_JOURNAL_SQL_URL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(here / "data"))
    damaged = here / "data/delf/journal.db"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)
    status, data = doctor()
    assert (status, data["ok"]) == (0, True)
    assert "is damaged" in notes(data, "journal")


UNUSABLE = {
    "a sandbox that there is not": ('sandbox = "dokcer"', "did you mean 'docker'?"),
    "a strategy that there is not": ('strategy = "x"', "unknown strategy 'x'"),
    "a memory that there is not": ('memory = "semantik"', "did you mean 'semantic'?"),
    "an observer that there is not": ('observers = ["x"]', "unknown observer 'x'"),
    "a way to ask that there is not": ('approvals = ["x"]', "unknown approval 'x'"),
    "a prefilter that there is not": ('prefilter_mode = "x"', "unknown prefilter 'x'"),
    "a file that is not there": ('files = ["none.csv"]', "none.csv' does not exist"),
    "a sandbox that does not run here": ('sandbox = "docker"', "'docker' does not work here"),
    "a connection that there is not": ("[connections.x]\ntype = 'gmial'", "did you mean 'gmail'?"),
    "a database that is not there": (
        "[connections.x]\ntype = 'sql'\nurl = 'sqlite:///none.db'",
        "there is no SQLite file",
    ),
    "a server that does not answer": (
        "[connections.x]\ntype = 'sql'\nurl = 'postgresql://me@127.0.0.1:9/db'",
        "127.0.0.1:9",
    ),
    "a folder that is not there": (
        "[connections.x]\ntype = 'filesystem'\nroots = { r = 'none' }",
        "none",
    ),
    "a variable that is not set": (
        "[connections.x]\ntype = 'sql'\nurl = '${URL}'",
        "the variable URL is not set",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_doctor_reports_what_run_refuses(run, here, case):
    """Each error that `delf run` raises before the first model call is reported, with its hint."""
    line, message = UNUSABLE[case]
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\n{line}\n')
    ran = run("run", "a task")
    assert ran.exit_code != 0
    assert message in " ".join(ran.stderr.split())
    found = run("config", "check", "--json")
    assert found.exit_code == 2
    (problem,) = (p for p in json.loads(found.stdout)["findings"] if p["status"] == "problem")
    assert message in problem["text"]


@pytest.mark.parametrize("command", [("doctor",), ("config", "check")], ids=" ".join)
def test_missing_model_key_is_reported_with_other_findings(run, here, command, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (here / "delf.toml").write_text('[agent]\nllm = "gpt-4o-mini"\nstrategy = "x"\n')
    found = run(*command, "--json")
    assert found.exit_code > 0
    message = problems(json.loads(found.stdout))
    assert "OPENAI_API_KEY is not set" in " ".join(message)
    assert "unknown strategy 'x'" in message, "all faults are reported at once"


@pytest.fixture
def a_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_unreachable_model_server_is_reported(doctor, here, a_server):
    place = f"127.0.0.1:{a_server.getsockname()[1]}"
    (here / "delf.toml").write_text(
        f'[agent.llm]\nmodel = "llama3"\nbase_url = "http://{place}/v1"\n'
    )
    status, data = doctor()
    assert (status, data["ok"]) == (0, True)
    assert f"llama3 can be used at {place}" in notes(data, "model")
    a_server.close()
    status, data = doctor()
    assert (status, data["ok"]) == (1, False)
    assert f"llama3: its server {place} is not reachable" in notes(data, "server")


def test_impossible_name_of_a_model_server_is_reported(doctor, here):
    (here / "delf.toml").write_text('[agent.llm]\nmodel = "llama3"\nbase_url = "http://a..b/v1"\n')
    status, data = doctor()
    assert (status, data["ok"]) == (1, False)
    assert "llama3: 'a..b' cannot be the name of a server" in notes(data, "server")


@pytest.mark.parametrize("command", ["doctor", "config check"])
@pytest.mark.parametrize("is_accepted", [False, True])
def test_server_that_may_not_get_the_key_is_reported(run, here, command, is_accepted, monkeypatch):
    monkeypatch.setenv("TICKETS_TOKEN", "s3cret")
    operation = {"operationId": "list", "responses": {}, "security": [{"bearer": []}]}
    spec = {
        "openapi": "3.1.0",
        "info": {"title": "Tickets", "version": "1"},
        "servers": [{"url": "https://tickets.invalid"}],
        "paths": {"/tickets": {"get": operation}},
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }
    if is_accepted:  # one of two servers
        own = [{"url": "https://far.invalid"}]
        spec["paths"]["/other"] = {"get": {**operation, "operationId": "other", "servers": own}}
    (here / "spec.json").write_text(json.dumps(spec))
    model = write_recording(here / "r.jsonl", "print(1)")
    servers = 'servers = ["https://tickets.invalid"]\n' if is_accepted else ""
    (here / "delf.toml").write_text(
        f'[agent]\nllm = "{model}"\n[connections.tickets]\ntype = "openapi"\n'
        f'spec = "spec.json"\ntoken = "${{TICKETS_TOKEN}}"\n{servers}'
    )
    result = run(*command.split(), "--json")
    data = json.loads(result.stdout)
    if is_accepted:
        assert result.exit_code == 0
        assert "your key to https://far.invalid" in notes(data, "task")
    else:
        assert result.exit_code == (1 if command == "doctor" else 2)
        (problem,) = [item for item in data["findings"] if item["status"] == "problem"]
        assert "sends your key to https://tickets.invalid" in problem["text"]
        assert 'servers = ["https://tickets.invalid"]' in problem["hint"]


@pytest.mark.parametrize("command", ["doctor", "config check"])
def test_library_that_is_not_installed_is_reported(run, here, command):
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(
        f'[agent]\nllm = "{model}"\nsandbox = "local"\nallowed_libs = ["nosuchlib"]\n'
    )
    result = run(*command.split(), "--json")
    assert result.exit_code == 0
    text = notes(json.loads(result.stdout), "task")
    assert "scripts cannot import nosuchlib: it is not installed" in text
    assert "pip install nosuchlib" in text
