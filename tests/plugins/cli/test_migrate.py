"""`delf migrate delfhos`: what Delfhos keeps becomes what delf keeps."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.commands import check_object, json_tables

LOGIN = {"refresh_token": "r", "client_id": "c", "client_secret": "s", "token": "t"}


@pytest.fixture
def delfhos(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which Delfhos was used: two memories, a chat with a summary, prices, a login."""
    home = here / "home"
    folder = home / "delfhos"
    for name in ("memory", "chat"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(here / "journal.db"))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(home / variable.lower()))
    with closing(sqlite3.connect(folder / "memory/work.db")) as database, database:
        database.execute(
            "CREATE TABLE memories (id INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL,"
            " content TEXT NOT NULL, timestamp DATETIME DEFAULT CURRENT_TIMESTAMP)"
        )
        facts = [
            ("work", "Ada leads the shop."),
            ("work", "The shop opens at nine."),
            ("home", "é"),
        ]
        database.executemany("INSERT INTO memories (namespace, content) VALUES (?, ?)", facts)
    with closing(sqlite3.connect(folder / "chat/work.db")) as database, database:
        database.execute(
            "CREATE TABLE chat_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT,"
            " role TEXT, content TEXT, created_at DATETIME)"
        )
        database.execute("CREATE TABLE chat_state (namespace TEXT PRIMARY KEY, summary TEXT)")
        said = [
            ("work", "user", "Who leads the shop?", "2026-03-01 09:00:00"),
            ("work", "assistant", "Ada.", "2026-03-01 09:00:05"),
        ]
        database.executemany(
            "INSERT INTO chat_messages (namespace, role, content, created_at) VALUES (?, ?, ?, ?)",
            said,
        )
        database.execute("INSERT INTO chat_state VALUES ('work', 'The shop was introduced.')")
    (folder / "pricing.json").write_text(
        '{"_comment": "see https://x.y", /* rates */\n"models": {"gpt-*": {"input_per_million": 2,'
        ' "output_per_million": 8}}}'
    )
    tokens = home / ".cortex/tokens"
    tokens.mkdir(parents=True)
    (tokens / "gmail_0a1b2c3d.json").write_text(json.dumps(LOGIN))
    (tokens / "drive_0a1b2c3d.json").write_text("{}")
    return folder


def test_all_of_it_is_taken_once(run, here, delfhos):
    done = run("migrate", "delfhos", "--json")
    assert done.exit_code == 0, done.output
    taken = json.loads(done.stdout)
    check_object(taken, json_tables()["delf migrate delfhos"])
    counts = {key: taken[key] for key in ("facts", "conversations", "messages", "prices")}
    assert counts == {"facts": 3, "conversations": 1, "messages": 2, "prices": 1}
    assert list(taken["logins"]) == ["gmail"]

    facts = json.loads(run("memory", "--namespace", "work", "list", "--json").stdout)
    assert [fact["content"] for fact in facts] == ["Ada leads the shop.", "The shop opens at nine."]
    assert json.loads((here / "pricing.json").read_text())["gpt-*"]["output_per_million"] == 8

    again = json.loads(run("migrate", "delfhos", "--json").stdout)
    assert not any(again[key] for key in counts)


def test_a_chat_goes_on_where_it_was(run, delfhos):
    assert run("migrate", "delfhos").exit_code == 0
    from delf import Chat

    with Chat(persist=True, namespace="work") as chat:
        assert chat.summary == "The shop was introduced."
        assert [(m.role, m.content) for m in chat] == [
            ("user", "Who leads the shop?"),
            ("assistant", "Ada."),
        ]
        assert chat[0].at == 1772355600.0


def test_the_login_is_a_section_to_copy(run, delfhos):
    done = run("migrate", "delfhos")
    assert "[connections.gmail]\noauth_credentials = " in done.stdout
    assert "refresh" not in done.stdout


def test_prices_that_delfhos_wrote_itself_are_left_out(run, here, delfhos):
    """It writes its own table as soon as a cost is computed; only what a person changed counts."""
    shipped = {
        "gpt-5-mini": {"input_per_million": 0.25, "output_per_million": 1.0},
        "gpt-4o": {"input_per_million": 2.5, "output_per_million": 9.0},
    }
    (delfhos / "pricing.json").write_text(json.dumps({"models": shipped}))
    assert run("migrate", "delfhos").exit_code == 0
    assert list(json.loads((here / "pricing.json").read_text())) == ["gpt-4o"]


def test_what_it_writes_is_trusted(run, here, delfhos, monkeypatch, tmp_path_factory):
    monkeypatch.delenv("DELF_TRUST")
    done = run("migrate", "delfhos")  # the record of what is trusted would lie in the folder
    assert "cannot be kept" in done.stderr
    assert not (here / "pricing.json").exists()
    assert not (here / "journal.db").exists()

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    done = run("migrate", "delfhos")
    assert done.exit_code == 0, done.output
    for command in (("memory", "list"), ("migrate", "delfhos")):
        done = run(*command)
        assert done.exit_code == 0, done.output
    (here / "pricing.json").write_text('{"cheap": {"input_per_million": 0}}')
    assert "not as it was" in run("migrate", "delfhos").stderr
    assert "gpt-*" not in (here / "pricing.json").read_text()


def test_own_prices_stay(run, here, delfhos):
    own = {"models": {"gpt-*": {"input": 1, "output": 1}}}
    (here / "pricing.json").write_text(json.dumps(own))
    assert json.loads(run("migrate", "delfhos", "--json").stdout)["prices"] == 0
    assert json.loads((here / "pricing.json").read_text()) == own


def test_nothing_and_what_is_no_database_are_told(run, here, delfhos):
    (here / "home/.cortex/tokens/gmail_0a1b2c3d.json").unlink()
    nothing = run("migrate", "delfhos", "--from", here / "nowhere")
    assert nothing.exit_code == 2
    assert "--from names its folder" in nothing.stderr
    (delfhos / "memory/bad.db").write_text("no database at all, whatever its name says")
    bad = run("migrate", "delfhos")
    assert bad.exit_code == 2
    assert "bad.db is not a database of Delfhos" in bad.stderr
