import contextlib
import json
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


def test_without_a_model(doctor, run):
    status, data = doctor()
    assert (status, data["ok"]) == (1, False)
    assert problems(data) == ["no language model is configured"]
    text = run("doctor").stdout
    assert "✗ model" in text
    assert "no task can run" in text


def test_with_a_model(doctor, here):
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\n')
    status, data = doctor()
    assert (status, data["ok"]) == (0, True)
    assert str(here / "delf.toml") in notes(data, "config")
    assert "local, isolation process" in notes(data, "sandbox")
    assert "local: network namespace: " in notes(data, "sandbox")
    assert "local: allow-list of system calls (seccomp): " in notes(data, "sandbox")


def test_keys_are_named_and_never_shown(run, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-sesame")
    for arguments in ((), ("--json",)):
        result = run("doctor", *arguments)
        assert result.exit_code == 0
        assert "OPENAI_API_KEY" in result.output
        assert "sesame" not in result.output


def test_a_model_that_cannot_be_made(doctor, here):
    (here / "delf.toml").write_text('[agent]\nllm = "recorded:nope.jsonl"\n')
    status, data = doctor()
    assert status == 1
    assert "there is no recording" in problems(data)[0]


def test_a_malformed_file(doctor, here):
    (here / "delf.toml").write_text("[agent\n")
    status, data = doctor()
    assert status == 1
    assert "delf.toml, line 1" in problems(data)[0]


def test_no_sandbox_is_strong_enough(doctor, here):
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\nmin_isolation = "vm"\n')
    status, data = doctor()
    assert status == 1
    assert problems(data) == ["no sandbox can be used"]
    assert "weaker than min_isolation" in notes(data, "sandbox")


def test_nothing_is_installed(doctor, monkeypatch):
    others = [name for name in PluginHost.discover(environ={}).names if name != "manage"]
    monkeypatch.setenv("DELF_DISABLE_PLUGINS", ",".join(others))
    status, data = doctor()
    assert status == 1
    hints = [item["hint"] for item in data["findings"] if item["status"] == "problem"]
    assert hints == [
        "delf plugins install sandbox-local",
        "delf plugins shows every plugin with its state",
        "delf plugins install model-http",
    ]


def test_another_projects_delf_beside_this_one(doctor, tmp_path, monkeypatch):
    info = tmp_path / "site/delf-0.1.4.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: delf\nVersion: 0.1.4\n")
    monkeypatch.syspath_prepend(str(info.parent))
    _, data = doctor()
    assert "another project's package 'delf' is installed" in notes(data, "delf")
    (hint,) = (item["hint"] for item in data["findings"] if "another project" in item["text"])
    assert hint.startswith(
        "pip uninstall delf, then pip install --force-reinstall --no-deps --edit"
    )
    assert f"={CORE}" in hint, "from the clone that it was installed from"


def test_connections_are_looked_at(doctor, here):
    (here / "delf.toml").write_text(
        '[connections.shop]\ntype = "sql"\nurl = "${NOPE}"\n[connections.other]\ntype = "gmial"\n'
    )
    _, data = doctor()
    text = notes(data, "tools")
    assert "NOPE is not set" in text
    assert "did you mean 'gmail'?" in text


def test_an_embedder_without_its_model(doctor, here, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(
        f'[agent]\nllm = "{model}"\nembedder = "static"\n'
        '[plugins.embed-static]\nmodel = "nobody/nothing"\n'
    )
    status, data = doctor()
    assert (status, data["ok"]) == (0, True)
    assert "words are searched alone: the embedding model 'nobody/nothing'" in notes(
        data, "embedder"
    )
    hints = [item["hint"] for item in data["findings"] if item["area"] == "embedder"]
    assert hints == ["hf download nobody/nothing, or set download = true for this embedder"]


def test_a_journal_that_is_damaged(doctor, here, monkeypatch):
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\njournal = "sql"\n')
    damaged = here / "journal.db"
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{damaged}")
    assert notes(doctor()[1], "journal") == "can be read"
    for part in here.glob("journal.db*"):
        part.unlink()
    damaged.write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)
    status, data = doctor()
    assert (status, data["ok"]) == (1, False)
    assert "journal" in problems(data)[0]


def test_a_journal_that_is_damaged_in_the_middle(doctor, here, monkeypatch):
    """One page of one table is not what a look at the newest task reads."""
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


def test_a_damaged_journal_that_nobody_chose(doctor, here, monkeypatch):
    """A task runs all the same, and says so."""
    model = write_recording(here / "r.jsonl", "print(1)")
    (here / "delf.toml").write_text(f'[agent]\nllm = "{model}"\n')
    damaged = here / "journal.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{damaged}")
    status, data = doctor()
    assert (status, data["ok"]) == (0, True)
    assert "is damaged" in notes(data, "journal")
