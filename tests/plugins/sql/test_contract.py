"""The contract of connections, on each engine."""

from __future__ import annotations

from typing import Any

import pytest

from delf.testing import Call, ConnectionContract, PluginContract
from delf_sql import SQL
from support.fixtures import Database

pytestmark = pytest.mark.services

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) AS n FROM n"
)
MANY = "SELECT COUNT(*) AS n FROM items a, " + ", ".join(f"items b{n}" for n in range(40))


class OnDatabase(ConnectionContract):
    engine = ""
    check_refuses = False
    logs_in = False  # the databases of these tests trust whoever connects
    calls = (
        Call("schema"),
        Call("query", statement="SELECT name, price FROM items WHERE id = :id", params={"id": 1}),
        Call("write", statement="UPDATE items SET price = 2 WHERE id = 1"),
    )
    failing_calls = (
        Call("query", statement="SELECT nothing FROM nowhere"),
        Call("query", statement="DELETE FROM items"),
        Call("write", statement="not sql at all"),
    )

    @pytest.fixture
    def connection(self, request: pytest.FixtureRequest) -> SQL:
        short = {"postgresql": "postgres"}.get(self.engine, self.engine)
        database: Database = request.getfixturevalue(f"{short}_database")
        database.run(
            "CREATE TABLE items (id int PRIMARY KEY, name varchar(50), price numeric(9,2))"
        )
        database.run("INSERT INTO items VALUES (1, 'lamp', 20), (2, 'desk', 150)")
        return SQL(url=database.url)


class TestSQLite(OnDatabase):
    engine = "sqlite"
    slow_call = Call("query", statement=ENDLESS)


class TestPostgreSQL(OnDatabase):
    engine = "postgresql"
    slow_call = Call("query", statement=MANY)


class TestMariaDB(OnDatabase):
    engine = "mariadb"
    slow_call = Call("query", statement=MANY)


class TestDuckDB(OnDatabase):
    engine = "duckdb"
    slow_call = Call("query", statement=ENDLESS)


class TestPackage(PluginContract):
    name = "sql"
    offers: Any = {"connection": ["sql"]}
    vendors = ("psycopg", "pymysql", "duckdb", "duckdb_engine", "sqlalchemy", "sqlglot")
