"""Databases as pytest fixtures. A conftest takes them with ``from support.fixtures import *``."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.mariadb import MariadbServer, mariadb_session
from support.postgres import PostgresServer, postgres_session

__all__ = [
    "Database",
    "SharedDatabases",
    "any_database",
    "duckdb_database",
    "mariadb_database",
    "mariadb_server",
    "mariadb_url",
    "postgres_database",
    "postgres_server",
    "postgres_url",
    "sqlite_database",
    "sqlite_file",
    "sqlite_url",
]


@dataclass(frozen=True)
class Database:
    """A fresh database.

    Args:
        kind: ``sqlite``, ``duckdb``, ``postgresql`` or ``mariadb``.
        url: With its credentials.
        run: Runs statements outside of what is tested and returns rows, ``|`` or tab between.
    """

    kind: str
    url: str
    run: Callable[[str], str]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The session's PostgreSQL server."""
    with postgres_session(tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """The session's MariaDB server."""
    with mariadb_session(tmp_path_factory) as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[Database]:
    """A fresh PostgreSQL database."""
    with postgres_server.database() as name:
        yield Database(
            "postgresql", postgres_server.url(name), lambda text: postgres_server.run(text, name)
        )


@pytest.fixture
def mariadb_database(mariadb_server: MariadbServer) -> Iterator[Database]:
    """A fresh MariaDB database."""
    with mariadb_server.database() as name:
        yield Database(
            "mariadb", mariadb_server.url(name), lambda text: mariadb_server.run(text, name)
        )


def sqlite_file(path: Path) -> Database:
    """A fresh SQLite file.

    Args:
        path: Where to make it.
    """

    def run(text: str) -> str:
        connection = sqlite3.connect(path)
        try:
            if ";" in text.strip().rstrip(";"):
                connection.executescript(text)
                return ""
            rows = connection.execute(text).fetchall()
            connection.commit()
        finally:
            connection.close()
        return "\n".join("|".join("" if v is None else str(v) for v in row) for row in rows)

    run("PRAGMA user_version = 1")
    return Database("sqlite", f"sqlite:///{path}", run)


def duckdb_file(path: Path) -> Database:
    """A fresh DuckDB file.

    Args:
        path: Where to make it.
    """
    import duckdb

    def run(text: str) -> str:
        with duckdb.connect(str(path)) as connection:
            rows = connection.execute(text).fetchall()
        return "\n".join("|".join("" if v is None else str(v) for v in row) for row in rows)

    run("SELECT 1")
    return Database("duckdb", f"duckdb:///{path}", run)


@pytest.fixture
def duckdb_database(tmp_path: Path) -> Database:
    """A fresh DuckDB file."""
    return duckdb_file(tmp_path / "test.duckdb")


@pytest.fixture
def sqlite_database(tmp_path: Path) -> Database:
    """A fresh SQLite file."""
    return sqlite_file(tmp_path / "test.db")


class SharedDatabases:
    """Databases that tests of a module share, since none of them changes anything.

    Args:
        request: Of a fixture of that module.
        factory: Of the session's temporary folders.
        setup: The statements that fill a database, by kind.
    """

    def __init__(
        self,
        request: pytest.FixtureRequest,
        factory: pytest.TempPathFactory,
        setup: Mapping[str, str],
    ) -> None:
        self._request = request
        self._factory = factory
        self._setup = setup
        self._made: dict[str, Database] = {}
        self._open = contextlib.ExitStack()

    def __call__(self, kind: str) -> Database:
        """The database of a kind, made when it is first asked for."""
        if kind not in self._made:
            database = self._make(kind)
            database.run(self._setup[kind])
            self._made[kind] = database
        return self._made[kind]

    def _make(self, kind: str) -> Database:
        if kind == "sqlite":
            return sqlite_file(self._factory.mktemp("shared") / "test.db")
        if kind == "duckdb":
            return duckdb_file(self._factory.mktemp("shared") / "test.duckdb")
        short = "postgres" if kind == "postgresql" else kind
        server = self._request.getfixturevalue(f"{short}_server")
        name = self._open.enter_context(server.database())
        return Database(kind, server.url(name), lambda text: server.run(text, name))

    def close(self) -> None:
        """Drop them."""
        self._open.close()


@pytest.fixture
def postgres_url(postgres_database: Database) -> str:
    """The URL of a fresh PostgreSQL database."""
    return postgres_database.url


@pytest.fixture
def mariadb_url(mariadb_database: Database) -> str:
    """The URL of a fresh MariaDB database."""
    return mariadb_database.url


@pytest.fixture
def sqlite_url(sqlite_database: Database) -> str:
    """The URL of a fresh SQLite file."""
    return sqlite_database.url


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def any_database(request: pytest.FixtureRequest) -> Database:
    """A fresh database, once for each engine."""
    short = {"postgresql": "postgres"}.get(request.param, request.param)
    return request.getfixturevalue(f"{short}_database")
