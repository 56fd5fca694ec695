"""A database of which delf knows nothing but its dialect: read by the gate alone, and asked about."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionUnavailableError,
    OptionalDependencyError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall
from delf_sql.gate import check_query

SETUP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id), code TEXT UNIQUE);
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob');
CREATE VIEW names AS SELECT name FROM customers;
"""


class Elsewhere(SQLiteDialect_pysqlite):
    """Somebody's own dialect, which nothing of delf knows."""

    name = "elsewhere"
    supports_statement_cache = True


registry.register("elsewhere", __name__, "Elsewhere")
registry.impls["elsewhere"] = lambda: Elsewhere


@pytest.fixture
def elsewhere(tmp_path):
    path = tmp_path / "x.db"
    database = sqlite3.connect(path)
    database.executescript(SETUP)
    database.close()
    return f"elsewhere:///{path}"


async def test_rows_schema_and_writes(elsewhere, open_sql):
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


async def test_a_query_is_asked_about_and_the_rest_is_as_everywhere(elsewhere, open_sql, tmp_path):
    sql = open_sql(elsewhere)
    query = ProposedCall(action="query", arguments={"statement": "SELECT 1"})
    verdict = await sql.check(query)
    assert isinstance(verdict, NeedsApproval)
    assert "elsewhere has no session here that cannot write" in verdict.reason
    for action in ("schema", "write"):
        assert isinstance(await sql.check(ProposedCall(action=action, arguments={})), Allowed)
    known = open_sql(f"sqlite:///{tmp_path}/x.db")
    assert isinstance(await known.check(query), Allowed)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM customers",
        "SELECT 1; DELETE FROM customers",
        "WITH x AS (SELECT 1) DELETE FROM customers",
        "SELECT 1 -- ;\n; DELETE FROM customers",
        "SELECT load_extension('x')",
        "SELECT evil(1)",
        "PRAGMA user_version = 5",
        "ATTACH 'x' AS y",
        "SELECT 1 INTO evil",
    ],
)
async def test_the_gate_refuses(statement, elsewhere, open_sql):
    with pytest.raises(ToolRefusedError):
        await open_sql(elsewhere).query(statement)


@pytest.mark.parametrize(
    "dialect", ["mssql", "oracle", "snowflake", "bigquery", "trino", "nobodys"]
)
def test_what_databases_read_differently_is_refused(dialect):
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


async def test_the_limits_are_as_everywhere(elsewhere, open_sql):
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
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_fails_says_so_without_the_password(open_sql, elsewhere):
    with pytest.raises(ConnectionConfigurationError, match="no dialect of SQLAlchemy") as caught:
        open_sql("nonesuch://u:hunter22@h/d")
    assert "hunter22" not in str(caught.value)
    with pytest.raises(OptionalDependencyError, match="needs the package"):
        await open_sql("oracle+oracledb://u:hunter22@h/d").query("SELECT 1")
    with pytest.raises(ToolExecutionError, match="no such table: nowhere"):
        await open_sql(elsewhere).query("SELECT * FROM nowhere")
    sql = open_sql("elsewhere:////nowhere/at/all/x.db?token=hunter22hunter")
    with pytest.raises((ConnectionUnavailableError, ToolExecutionError)) as failed:
        await sql.query("SELECT 1")
    assert "hunter22" not in failed.value.describe()
