"""A database of which delf knows nothing but its dialect: read by the gate alone, and asked about."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from delf import Agent
from delf.errors import (
    ConnectionConfigurationError,
    ConnectionUnavailableError,
    OptionalDependencyError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall
from delf_sql import database
from delf_sql.backends.engine import EngineBackend
from delf_sql.gate import check_query
from support.fixtures import sqlite_file
from support.until import until

from .sql_attacks import ATTACKS, FINGERPRINTS
from .sql_attacks import SETUP as ITEMS

SETUP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id), code TEXT UNIQUE);
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob');
CREATE VIEW names AS SELECT name FROM customers;
"""


class Elsewhere(SQLiteDialect_pysqlite):
    """A third-party dialect, unknown to delf."""

    name = "elsewhere"
    supports_statement_cache = True


registry.register("elsewhere", __name__, "Elsewhere")
registry.impls["elsewhere"] = lambda: Elsewhere


@pytest.fixture
def elsewhere(tmp_path: Path):
    path = tmp_path / "x.db"
    database = sqlite3.connect(path)
    database.executescript(SETUP)
    database.close()
    return f"elsewhere:///{path}"


async def test_other_engines_read_write_and_describe_their_schema(elsewhere: Any, open_sql: Any):
    sql = open_sql(elsewhere)
    assert await sql.query("SELECT name FROM customers WHERE id = :id", {"id": 1}) == [
        {"name": "Ada"}
    ]
    ids = {"ids": [1, 2]}
    assert await sql.query("SELECT count(*) AS n FROM customers WHERE id IN :ids", ids) == [
        {"n": 2}
    ]
    done = await sql.write("INSERT INTO customers VALUES (?, ?)", [[3, "Cy:x"], [4, "%d ?"]])
    assert done == {"rowcount": 2, "rows": [], "committed": True}
    assert await sql.query("SELECT name FROM customers ORDER BY id", limit=1) == [{"name": "Ada"}]
    tables = {table["table"]: table for table in await sql.schema()}
    assert (tables["names"]["kind"], tables["orders"]["kind"]) == ("view", "table")
    columns = {column["name"]: column for column in tables["orders"]["columns"]}
    assert columns["id"]["primary_key"]
    assert columns["customer_id"]["references"] == "customers.id"
    assert "orders(id integer pk, customer_id integer -> customers.id, code text unique)" in (
        await sql.context("orders")
    )


async def test_query_without_read_only_sessions_needs_approval(
    elsewhere: Any, open_sql: Any, tmp_path: Path
):
    sql = open_sql(elsewhere)
    query = ProposedCall(action="query", arguments={"statement": "SELECT 1"})
    verdict = await sql.check(query)
    assert isinstance(verdict, NeedsApproval)
    assert "elsewhere has no read-only session here" in verdict.reason
    for action, given in (("schema", {}), ("write", {"statement": "DELETE FROM customers"})):
        assert isinstance(await sql.check(ProposedCall(action=action, arguments=given)), Allowed)
    known = open_sql(f"sqlite:///{tmp_path}/x.db")
    assert isinstance(await known.check(query), Allowed)


@pytest.mark.parametrize("yes", [True, False])
def test_query_of_a_task_is_decided_by_a_person(
    yes: Any, elsewhere: Any, open_sql: Any, delf_host: Any, scripted_model: Any
):
    scripted_model.writes("return await sql.query('SELECT count(*) AS n FROM customers')")
    asked: list[str] = []

    def on_confirm(request: Any):
        asked.append(f"{request.action}: {request.reason}")
        return yes

    with Agent(
        tools=[open_sql(elsewhere)],
        llm="scripted",
        host=delf_host,
        on_confirm=on_confirm,
        retry_count=0,
    ) as agent:
        response = agent.run("How many customers?")
    assert len(asked) == 1
    assert asked[0].startswith("sql.query: elsewhere has no read-only session here")
    (call,) = response.trace.tool_calls
    assert call.status == ("ok" if yes else "rejected")
    assert ('"n": 2' in str(response.text)) is yes


async def test_statement_gate_refuses_sqlite_attacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_sql: Any, subtests: Any
):
    monkeypatch.chdir(tmp_path)
    database = sqlite_file(tmp_path / "x.db")
    database.run(ITEMS["sqlite"])
    before = database.run(FINGERPRINTS["sqlite"])
    sql = open_sql(f"elsewhere:///{tmp_path}/x.db")
    for attack in ATTACKS["sqlite"]:
        with subtests.test(attack=attack):
            with pytest.raises((ToolRefusedError, ToolExecutionError)):
                await sql.query(attack)
            assert database.run(FINGERPRINTS["sqlite"]) == before
    assert not list(tmp_path.glob("evil*"))


@pytest.mark.parametrize(
    "dialect", ["mssql", "oracle", "snowflake", "bigquery", "trino", "nobodys"]
)
def test_ambiguous_sql_is_refused(dialect: Any):
    check_query("SELECT a.b, sum(c) FROM a WHERE d LIKE 'x%' -- why\nGROUP BY a.b", dialect)
    for statement in (
        "SELECT 'a\\' , 1 -- '",
        "SELECT q'[it's]'",
        "SELECT 1 // 2",
        "SELECT 1 # 2\n",
        "SELECT 1 /*! , evil(1) */",
        "SELECT $$x$$",
        'SELECT """x"""',
    ):
        with pytest.raises(ToolRefusedError):
            check_query(statement, dialect)


@pytest.mark.parametrize("dialect", ["mssql", "nobodys"])
def test_second_statement_without_a_semicolon_is_refused(dialect: Any):
    for second in (
        "DELETE FROM items",
        "UPDATE items SET a = 1",
        "EXEC evil",
        "EXECUTE evil",
        "DROP TABLE items",
        "INSERT items VALUES (1)",
        "MERGE items",
        "TRUNCATE TABLE items",
        "SHUTDOWN",
        "KILL 5",
        "WAITFOR",
        "USE master",
        "SET",
        "DBCC",
        "IF 1 = 1 DELETE FROM items",
    ):
        for first in (
            "SELECT 1",
            "SELECT a FROM items",
            "WITH x AS (SELECT 1 AS a) SELECT a FROM x",
        ):
            for between in (" ", "\n", " AS b "):
                with pytest.raises(ToolRefusedError):
                    check_query(f"{first}{between}{second}", dialect)
    check_query("SELECT [delete], a AS \"update\" FROM items WHERE a = 'DROP'", "mssql")


async def test_limits_apply_to_other_engines(elsewhere: Any, open_sql: Any):
    sql = open_sql(elsewhere, max_rows=2, max_bytes=2000, statement_timeout=0.2)
    with pytest.raises(ToolExecutionError, match="more than 2 rows"):
        await sql.query("SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 3")
    with pytest.raises(ToolExecutionError, match="larger than"):
        await sql.query("SELECT :x AS a", {"x": "x" * 5000})
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
    with pytest.raises(ToolExecutionError, match=r"longer than 0\.2 s"):
        await sql.query(endless)
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]
    task = asyncio.create_task(open_sql(elsewhere).query(endless))
    await until(lambda: "delf-sql" in str(threading.enumerate()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_failure_message_hides_the_password(open_sql: Any, elsewhere: Any):
    with pytest.raises(ConnectionConfigurationError, match="no dialect of SQLAlchemy") as caught:
        open_sql("nonesuch://u:hunter22@h/d")
    assert "hunter22" not in str(caught.value)
    with pytest.raises(OptionalDependencyError, match="needs the package"):
        await open_sql("oracle+oracledb://u:hunter22@h/d").query("SELECT 1")
    with pytest.raises(ToolExecutionError, match="no such table: nowhere"):
        await open_sql(elsewhere).query("SELECT * FROM nowhere")
    with pytest.raises((ConnectionUnavailableError, ToolExecutionError)):
        await open_sql("elsewhere:////nowhere/at/all/x.db").query("SELECT 1")
    sql = open_sql("elsewhere:///x.db?cache=1&uri=true&timeout=hunter22&token=hunter22")
    with pytest.raises(ConnectionConfigurationError, match="cannot use this url") as caught:
        await sql.query("SELECT 1")
    assert "hunter22" not in caught.value.describe()
    url = "snowy://u:hunter22@h/d?private_key=hunter33&warehouse=w"
    registry.impls["snowy"] = lambda: Elsewhere
    message = open_sql(url).target.scrub(f"{url} failed")
    assert "hunter" not in message
    assert "warehouse=w" in message


async def test_hanging_driver_call_does_not_block_its_slot_forever(
    elsewhere: Any, open_sql: Any, monkeypatch: pytest.MonkeyPatch
):
    hangs, real = threading.Event(), EngineBackend.read

    def read(self: Any, *args: Any) -> Any:
        if not hangs.is_set():
            hangs.wait(30)
        return real(self, *args)

    monkeypatch.setattr(EngineBackend, "read", read)
    monkeypatch.setattr(EngineBackend, "stop", Mock())
    monkeypatch.setattr(database, "STOP_SECONDS", 0.1)
    sql = open_sql(elsewhere, pool_size=1, statement_timeout=0.1)
    try:
        with pytest.raises(ToolExecutionError, match=r"longer than 0\.1 s"):
            await sql.query("SELECT 1 AS a")
        tables = await sql.schema()
    finally:
        hangs.set()
    assert len(tables) == 3
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]
