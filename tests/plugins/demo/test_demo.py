import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from delf.machine.kept_keys import KeptKeys
from delf_demo import command
from delf_demo.shop import make_shop
from support.program import DELF, delf, environment
from support.terminal import TerminalProcess


def rows(path: Path, statement: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def test_demo_shop_is_identical_each_time(tmp_path):
    counts = [make_shop(tmp_path / name) for name in ("a.db", "b.db")]
    assert counts[0] == counts[1]
    tables, total = counts[0]
    assert tables == 6
    assert 500 < total < 2000
    dumps = []
    for name in ("a.db", "b.db"):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            dumps.append("\n".join(database.iterdump()))
    assert dumps[0] == dumps[1]


def test_demo_without_a_terminal_orders_nothing(tmp_path):
    result = delf("demo", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "| Gyokuro Asahi |" in result.stdout
    assert "\nNothing was ordered: shop.write was rejected: " in result.stdout
    assert "--approve all" in result.stdout
    assert result.stderr.count("done · ") == 2
    assert "→ shop.query · sales of this quarter · ok, " in result.stderr
    assert "Nobody could be asked here: delf demo --approve all" in result.stdout
    assert result.stdout.rstrip().endswith("delf demo --verbose   # the scripts, and every step")
    assert "/delf-demo-" not in result.stdout + result.stderr, "no path that is gone afterwards"
    assert "# script" not in result.stderr
    assert "recording made by hand" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_demo_with_approve_and_keep_places_orders_and_keeps_the_shop(tmp_path):
    result = delf("demo", "--approve", "all", "--keep", "shop", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    placed = rows(
        tmp_path / "shop/shop.db",
        "SELECT COUNT(*), MIN(quantity) FROM purchase_orders WHERE status = 'placed'",
    )
    ((count, smallest),) = placed
    assert count >= 2
    assert smallest > 0
    assert f"Purchase orders placed: {count}" in result.stdout
    again = delf("demo", "--keep", "shop", cwd=tmp_path)
    assert again.returncode == 2
    assert "holds a shop.db already" in again.stderr
    look = delf("inspect", "shop", "--json", cwd=tmp_path / "shop")
    assert json.loads(look.stdout)["note"] is None


@pytest.mark.parametrize("name", ["shop.db", "delf.toml", "answers.jsonl", "journal.db"])
def test_demo_overwrites_no_file_of_the_user(tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = delf("demo", "--make", ".", cwd=tmp_path)
    assert result.returncode == 2
    assert f"holds a {name} already" in result.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_demo_with_rejected_orders_changes_nothing(tmp_path):
    result = delf("demo", "--approve", "none", "--keep", "shop", cwd=tmp_path)
    assert result.returncode == 0
    placed = "SELECT COUNT(*) FROM purchase_orders WHERE status = 'placed'"
    assert rows(tmp_path / "shop/shop.db", placed) == [(0,)]


def test_demo_writes_json(tmp_path):
    result = delf("demo", "--json", cwd=tmp_path)
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["status"]
    assert second["status"]
    assert [call["status"] for call in first["trace"]["tool_calls"]] == ["ok"] * 4
    assert [call["status"] for call in second["trace"]["tool_calls"]] == ["ok", "ok", "rejected"]


def test_demo_works_in_a_folder_with_special_characters(tmp_path):
    result = delf("demo", "--keep", 'a "$b" ü', "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("key", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DELF_API_KEY"])
def test_demo_uses_the_recording_despite_keys(monkeypatch, key):
    monkeypatch.setenv(key, "sk-secret")
    KeptKeys.here().keep("GEMINI_API_KEY", "sk-kept")
    assert command.choose_model(None)[0].startswith("recorded:")


def test_demo_uses_a_given_model(tmp_path):
    assert command.choose_model("m")[0] == "m"
    result = delf("demo", "--llm", "recorded:nope.jsonl", cwd=tmp_path)
    assert result.returncode == 2
    assert "there is no recording" in result.stderr


def test_demo_recording_is_marked_as_handwritten():
    first = json.loads(command.RECORDING.read_text(encoding="utf-8").splitlines()[0])
    assert "Written by hand" in first["about"]


def test_demo_does_not_ask_the_configured_model(tmp_path):
    result = delf("demo", cwd=tmp_path, env={"DELF_LLM": "gpt-4o-mini"})
    assert result.returncode == 0, result.stderr
    assert "OPENAI_API_KEY" not in result.stderr


def test_demo_verbose_shows_the_scripts(tmp_path):
    result = delf("demo", "--verbose", cwd=tmp_path)
    assert result.stderr.count("# script 1\n") == 2
    assert "→ 2 shop.query: sales of this quarter" in result.stderr
    assert "sandbox local (process)" in result.stderr


def test_demo_tasks_are_hidden_from_the_task_list(tmp_path, monkeypatch):
    monkeypatch.delenv("DELF_JOURNAL_SQL_URL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert delf("demo", cwd=tmp_path).returncode == 0
    assert json.loads(delf("runs", "list", "--json", cwd=tmp_path).stdout) == []


def test_demo_make_creates_a_shop_that_runs_tasks(tmp_path):
    made = delf("demo", "--make", "shop", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert sorted(p.name for p in (tmp_path / "shop").iterdir()) == [
        "answers.jsonl",
        "delf.toml",
        "shop.db",
    ]
    *_, go, task = made.stdout.strip().splitlines()
    assert go.strip() == "cd shop"
    ran = delf(*shlex.split(task)[1:], cwd=tmp_path / "shop")
    assert "| Gyokuro Asahi |" in ran.stdout, ran.stderr


def test_demo_output_fits_eighty_columns(tmp_path):
    command = [DELF, "demo", "--approve", "all"]
    with TerminalProcess(
        command, env=environment(COLUMNS="80"), cwd=tmp_path, columns=80
    ) as terminal:
        assert terminal.wait() == 0
        shown = terminal.text
    lines = [line.rstrip() for line in re.split("[\r\n]", shown)]
    assert [line for line in lines if len(line) > 80] == []
    assert any("Gyokuro Asahi" in line and "2.8 weeks" in line for line in lines), "a row is whole"
