"""``query`` cannot change anything: the gate refuses, and without it the database does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delf.errors import DelfError, ToolExecutionError, ToolRefusedError
from delf_sql.gate import Statement, folded_names
from delf_sql.tokens import normalise
from support.fixtures import SharedDatabases

from .sql_attacks import ATTACKS, FINGERPRINTS, GATE_ONLY, SETUP

pytestmark = pytest.mark.services

AT_A_TIME = 20
"""Attacks on one connection, one after the other: what one leaves does not help the next."""


def cases(but: Any = ()):
    for kind, all_of_them in ATTACKS.items():
        attacks = [attack for attack in all_of_them if attack not in but]
        for first in range(0, len(attacks), AT_A_TIME):
            yield pytest.param(kind, attacks[first : first + AT_A_TIME], id=f"{kind}-{first}")


SLOWLY_OPENED = ("duckdb",)
"""Looked at after all attacks of a test rather than after each."""
FILES = [Path("/tmp/delf-evil-file"), Path("/tmp/delf-evil-outfile")]


class Attacked(SharedDatabases):
    """Databases, with a copy of their initial state."""

    before: dict[str, str]

    def __call__(self, kind: Any):
        database = super().__call__(kind)
        if kind not in self.before:
            self.before[kind] = database.run(FINGERPRINTS[kind])
        return database

    def check_unchanged(self, kind: Any):
        assert self(kind).run(FINGERPRINTS[kind]) == self.before[kind]


@pytest.fixture(scope="module")
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    shared = Attacked(request, tmp_path_factory, SETUP)
    shared.before = {}
    yield shared
    shared.close()


def gate_off(monkeypatch: pytest.MonkeyPatch):
    def check_nothing(text: Any, dialect: Any, params: Any = None, allowed: Any = frozenset()):
        sent, tokens = normalise(text, dialect)
        return Statement(sent, tokens, *folded_names(tokens, dialect))

    monkeypatch.setattr("delf_sql.connection.check_query", check_nothing)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.glob("evil*"))
    assert not [file for file in FILES if file.exists()]


async def still_there(kind: Any, databases: Any, sql: Any):
    databases.check_unchanged(kind)
    assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 2}]


@pytest.mark.parametrize(("kind", "attacks"), list(cases()))
async def test_attack_is_refused_and_changes_nothing(
    kind: Any, attacks: Any, databases: Any, open_sql: Any, subtests: Any
):
    sql = open_sql(databases(kind))
    for attack in attacks:
        with subtests.test(attack=attack):
            with pytest.raises((ToolRefusedError, ToolExecutionError)) as caught:
                await sql.query(attack)
            assert caught.value.message
            assert "\n" not in caught.value.message
            if kind not in SLOWLY_OPENED:
                await still_there(kind, databases, sql)
    await still_there(kind, databases, sql)


@pytest.mark.parametrize(("kind", "attacks"), list(cases(but={*GATE_ONLY, "", " ; -- nothing"})))
async def test_database_refuses_writes_without_the_statement_gate(
    kind: Any,
    attacks: Any,
    databases: Any,
    open_sql: Any,
    monkeypatch: pytest.MonkeyPatch,
    subtests: Any,
):
    gate_off(monkeypatch)
    sql = open_sql(databases(kind))
    for attack in attacks:
        with subtests.test(attack=attack):
            with pytest.raises(DelfError):
                await sql.query(attack)
            if kind not in SLOWLY_OPENED:
                await still_there(kind, databases, sql)
    await still_there(kind, databases, sql)


@pytest.mark.parametrize(
    ("kind", "slow"),
    [
        ("sqlite", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"),
        ("duckdb", "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"),
        ("postgresql", "SELECT pg_sleep(20)"),
        ("postgresql", "SELECT count(*) FROM generate_series(1, 1000000000)"),
        ("mariadb", "SELECT count(*) FROM seq_1_to_1000000000 a, seq_1_to_1000 b WHERE a.seq % 7 = b.seq"),
    ],
)  # fmt: skip
async def test_slow_query_is_cancelled(kind: Any, slow: Any, databases: Any, open_sql: Any):
    sql = open_sql(databases(kind), statement_timeout=0.3)
    with pytest.raises(ToolExecutionError, match=r"longer than 0\.3 s"):
        await sql.query(slow)
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


async def test_mariadb_sleep_and_benchmark_are_interrupted(
    databases: Any, open_sql: Any, monkeypatch: pytest.MonkeyPatch
):
    gate_off(monkeypatch)
    sql = open_sql(databases("mariadb"), statement_timeout=0.3)
    with pytest.raises(ToolExecutionError):
        await sql.query("SELECT SLEEP(20)")
    await sql.query("SELECT BENCHMARK(1000000000, md5('x'))")  # MariaDB ends it without an error


async def test_tables_reset_by_reading_are_refused(databases: Any, open_sql: Any):
    database = databases("mariadb")
    shown = database.run(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'information_schema'"
        " AND table_name LIKE '%RESET%'"
    )
    names = shown.split()
    assert names
    for name in names:
        for written in (name, f"information_schema.`{name.lower()}`", f"{name} AS x"):
            with pytest.raises(ToolRefusedError, match="counters to zero"):
                await open_sql(database).query(f"SELECT * FROM {written}")


async def test_listed_function_can_be_called_in_a_query(databases: Any, open_sql: Any):
    sql = open_sql(databases("postgresql"), functions=["add_item"])
    with pytest.raises(ToolRefusedError, match="read-only transaction"):
        await sql.query("SELECT add_item()")
    with pytest.raises(ToolRefusedError, match="cannot call add_item"):
        await open_sql(databases("postgresql")).query("SELECT add_item()")


async def test_tampered_reader_session_stays_read_only(databases: Any, open_sql: Any):
    """Settings that one statement leaves in its session do not help the next one."""
    database = databases("postgresql")
    sql = open_sql(database, pool_size=1, functions=["set_config"])
    await sql.query("SELECT set_config('default_transaction_read_only', 'off', false)")
    await sql.query("SELECT set_config('statement_timeout', '0', false)")
    rows = await sql.query("SELECT current_setting('transaction_read_only') AS r")
    assert rows == [{"r": "on"}]
    assert await sql.query("SELECT current_setting('statement_timeout') AS t") == [{"t": "30s"}]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("path", "path(1)"),
        ("any_value", "any_value(1)"),
        ("count", "count ('1')"),
        ("date", "`date`('1')"),
    ],
)
async def test_user_function_named_like_a_built_in_is_refused(
    name: Any, call: Any, mariadb_database: Any, open_sql: Any
):
    """The server runs the user's function if it has no built-in one, or if the name is quoted."""
    mariadb_database.run(f"CREATE FUNCTION `{name}`(a int) RETURNS int RETURN a + 41")
    with pytest.raises(
        ToolRefusedError, match=rf"cannot use {name}\(\): {name} is a function of this"
    ):
        await open_sql(mariadb_database).query(f"SELECT {call} AS n")
    assert await open_sql(mariadb_database, functions=[name]).query(f"SELECT {call} AS n") == [
        {"n": 42}
    ]


@pytest.mark.parametrize("name", ["ÜBERSICHT", "Änderung", "ЗАКАЗ"])
async def test_function_named_in_non_ascii_capitals_is_refused(
    name: Any, postgres_database: Any, open_sql: Any
):
    postgres_database.run(
        "CREATE TABLE items (id int); INSERT INTO items VALUES (1); "
        f"CREATE FUNCTION {name}(items) RETURNS int VOLATILE LANGUAGE sql AS 'SELECT 42'"
    )
    with pytest.raises(ToolRefusedError, match=r"PostgreSQL may read as a call"):
        await open_sql(postgres_database).query(f"SELECT items.{name} FROM items")
