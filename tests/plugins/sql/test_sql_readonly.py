"""``query`` cannot change anything: the gate refuses, and without it the database does."""

from __future__ import annotations

from pathlib import Path

import pytest

import delf_sql.gate
from delf.errors import DelfError, ToolExecutionError, ToolRefusedError
from delf_sql import SQL
from delf_sql.gate import Statement, _calls
from delf_sql.lexer import tokenize
from support.fixtures import Database
from support.sql_attacks import ATTACKS, FINGERPRINTS, GATE_ONLY, SETUP

pytestmark = pytest.mark.service

CASES = [
    pytest.param(kind, attack, id=f"{kind}-{number}")
    for kind, attacks in ATTACKS.items()
    for number, attack in enumerate(attacks)
]
FILES = [Path("/tmp/delf-evil-file"), Path("/tmp/delf-evil-outfile")]


@pytest.fixture(scope="module")
def targets(request, tmp_path_factory):
    """A database of each kind, made when asked for; attacks share it since none may change it."""
    made: dict[str, Database] = {}
    stack = []

    def get(kind: str) -> Database:
        if kind not in made:
            if kind == "sqlite":
                path = tmp_path_factory.mktemp("attacked") / "test.db"
                database = sqlite_at(path)
            else:
                server = request.getfixturevalue(
                    "postgres_server" if kind == "postgresql" else "mariadb_server"
                )
                context = server.database()
                name = context.__enter__()
                stack.append(context)
                database = Database(
                    kind, server.url(name), lambda text, server=server: server.run(text, name)
                )
            database.run(SETUP[kind])
            made[kind] = database
        return made[kind]

    yield get
    for context in stack:
        context.__exit__(None, None, None)


def gate_off(monkeypatch):
    def check_nothing(text, syntax, allowed=frozenset()):
        tokens = tokenize(text, syntax)
        return Statement(text, tokens, "select", _calls(tokens, syntax))

    monkeypatch.setattr(delf_sql.gate, "check_query", check_nothing)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.glob("evil*"))
    assert not [file for file in FILES if file.exists()]


@pytest.mark.parametrize(("kind", "attack"), CASES)
async def test_an_attack_fails_and_changes_nothing(kind, attack, targets, open_sql):
    database = targets(kind)
    before = database.run(FINGERPRINTS[kind])
    sql = open_sql(database)
    with pytest.raises((ToolRefusedError, ToolExecutionError)) as caught:
        await sql.query(attack)
    assert caught.value.message
    assert "\n" not in caught.value.message
    assert database.run(FINGERPRINTS[kind]) == before
    assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 2}]


@pytest.mark.parametrize(
    ("kind", "attack"),
    [case for case in CASES if case.values[1] not in GATE_ONLY and case.values[1].strip(" ;-")],
)
async def test_without_the_gate_the_database_refuses(
    kind, attack, targets, open_sql, monkeypatch
):
    database = targets(kind)
    before = database.run(FINGERPRINTS[kind])
    gate_off(monkeypatch)
    sql = open_sql(database)
    if attack.strip() != "; -- nothing":
        with pytest.raises(DelfError):
            await sql.query(attack)
    assert database.run(FINGERPRINTS[kind]) == before
    assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 2}]


@pytest.mark.parametrize(
    ("kind", "slow"),
    [
        ("sqlite", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"),
        ("postgresql", "SELECT pg_sleep(20)"),
        ("postgresql", "SELECT count(*) FROM generate_series(1, 1000000000)"),
        ("mariadb", "SELECT count(*) FROM seq_1_to_1000000000 a, seq_1_to_1000 b WHERE a.seq % 7 = b.seq"),
    ],
)  # fmt: skip
async def test_a_slow_query_is_cancelled(kind, slow, targets, open_sql):
    sql = open_sql(targets(kind), statement_timeout=0.3)
    with pytest.raises(ToolExecutionError, match=r"longer than 0\.3 s"):
        await sql.query(slow)
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


async def test_sleeping_and_benchmarks_of_mariadb_end_in_time(targets, open_sql, monkeypatch):
    gate_off(monkeypatch)
    sql = open_sql(targets("mariadb"), statement_timeout=0.3)
    with pytest.raises(ToolExecutionError):
        await sql.query("SELECT SLEEP(20)")
    await sql.query("SELECT BENCHMARK(1000000000, md5('x'))")  # MariaDB ends it without an error


async def test_a_function_can_be_allowed(targets, open_sql):
    sql = open_sql(targets("postgresql"), functions=["add_item"])
    with pytest.raises(ToolRefusedError, match="read-only transaction"):
        await sql.query("SELECT add_item()")
    with pytest.raises(ToolRefusedError, match="volatile"):
        await open_sql(targets("postgresql")).query("SELECT add_item()")


async def test_a_reader_stays_read_only_when_its_session_was_touched(targets, open_sql):
    """What one statement could leave in its session does not help the next one."""
    database = targets("postgresql")
    sql = open_sql(database, pool_size=1, functions=["set_config"])
    await sql.query("SELECT set_config('default_transaction_read_only', 'off', false)")
    await sql.query("SELECT set_config('statement_timeout', '0', false)")
    rows = await sql.query("SELECT current_setting('transaction_read_only') AS r")
    assert rows == [{"r": "on"}]
    assert await sql.query("SHOW statement_timeout") == [{"statement_timeout": "30s"}]


def sqlite_at(path: Path) -> Database:
    import sqlite3

    def run(text: str) -> str:
        connection = sqlite3.connect(path)
        try:
            if text.count(";") > 1:
                connection.executescript(text)
                return ""
            return str(connection.execute(text).fetchall())
        finally:
            connection.close()

    return Database("sqlite", f"sqlite:///{path}", run)


def test_the_fixture_makes_connections(open_sql):
    assert isinstance(open_sql("sqlite:///x.db"), SQL)
