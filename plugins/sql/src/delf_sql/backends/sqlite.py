"""SQLite. Reading is confined by a read-only file handle and an authorizer."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast
from urllib.parse import quote

import aiosqlite

from delf.errors import ConnectionFileNotFoundError, ToolRefusedError
from delf_sql.backends.base import Limits, Problem, Written
from delf_sql.catalog import Column, Relation, Table
from delf_sql.gate import Statement
from delf_sql.lexer import SQLITE, Syntax
from delf_sql.placeholders import Params, bind
from delf_sql.rows import Fetched, collect
from delf_sql.target import Target
from delf_sql.values import for_sqlite

_READING: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_READING_PRAGMAS: Final = frozenset(
    "table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list "
    "database_list collation_list function_list data_version".split()
)
_FILE_FUNCTIONS: Final = frozenset({"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"})
_STEPS: Final = 5000
"""Instructions of SQLite's machine between two looks at the clock."""
_BUSY_SECONDS: Final = 5.0
_LARGEST_VALUE: Final = 256_000_000

_MISSING_TABLE: Final = re.compile(r"no such table: (?:\w+\.)?(.+)")
_MISSING_COLUMN: Final = re.compile(r"(?:no such column: (?:\w+\.)?|has no column named )(.+)")
_RELATIONS: Final = """
SELECT name, type, sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
"""
_COLUMNS: Final = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid'
_KEYS: Final = 'SELECT id, seq, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq'


class _Guard:
    """The clock of one connection; its statement ends when the time is over."""

    def __init__(self) -> None:
        self.deadline = float("inf")

    def expired(self) -> bool:
        return time.monotonic() > self.deadline

    @contextlib.contextmanager
    def running(self, seconds: float) -> Iterator[None]:
        self.deadline = time.monotonic() + seconds
        try:
            yield
        except Exception:
            self.deadline = float("inf")
            raise
        else:
            self.deadline = float("inf")


class _Connection(sqlite3.Connection):
    """A connection with a clock, made in the thread that uses it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.guard = _Guard()
        self.set_progress_handler(self.guard.expired, _STEPS)
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)


class _Reader(_Connection):
    """A connection whose authorizer lets nothing pass but reading."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_authorizer(_authorize_reading)


class _Writer(_Connection):
    """A connection that stays within its file, and holds foreign keys."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA foreign_keys = ON")
        self.set_authorizer(_authorize_writing)


def _authorize_reading(
    action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        return _unless(second in _FILE_FUNCTIONS)
    if action == sqlite3.SQLITE_PRAGMA:
        return _unless((first or "").lower() not in _READING_PRAGMAS)
    return sqlite3.SQLITE_DENY


def _authorize_writing(
    action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
) -> int:
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION:
        return _unless(second in _FILE_FUNCTIONS)
    if action == sqlite3.SQLITE_PRAGMA:
        return _unless((first or "").lower() not in _READING_PRAGMAS)
    return sqlite3.SQLITE_OK


def _unless(denied: bool) -> int:
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK


class SqliteBackend:
    """Speaks with SQLite through aiosqlite, a thread for each connection.

    Args:
        target: The file.
        limits: What a statement may take.
    """

    sqlalchemy_url: ClassVar[str] = "sqlite+aiosqlite://"

    def __init__(self, target: Target, limits: Limits) -> None:
        self.target = target
        self._limits = limits

    async def connect(self, *, reader: bool) -> aiosqlite.Connection:
        """A new connection; a reader's has the file open for reading only.

        Args:
            reader: Whether it is for reading.

        Raises:
            ConnectionFileNotFoundError: When there is no such file and none is to be made.
        """
        path = Path(os.path.abspath(self.target.database))
        if not path.is_file() and (reader or not self._limits.create):
            raise ConnectionFileNotFoundError(
                f"there is no SQLite file {self.target.database!r}",
                hint="check the path (it is taken from the working directory), or set create = true"
                " and make the tables with write",
            )
        mode = "ro" if reader else "rwc" if self._limits.create else "rw"
        return await aiosqlite.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=min(_BUSY_SECONDS, self._limits.timeout),
            factory=_Reader if reader else _Writer,
        )

    def syntax(self, driver: aiosqlite.Connection) -> Syntax:
        """How SQLite reads text."""
        return SQLITE

    async def read(
        self, driver: aiosqlite.Connection, statement: Statement, params: Params, limit: int
    ) -> Fetched:
        """Run a query; sqlite3 itself refuses a second statement in the text.

        Args:
            driver: A reader's connection.
            statement: What passed the gate.
            params: Its parameters.
            limit: The most rows to fetch.
        """
        bound = bind(statement.text, statement.tokens, params, "sqlite", for_sqlite)
        with _guard(driver).running(self._limits.timeout):
            return await self._run(driver, bound.text, bound.values, limit)

    async def _run(
        self, driver: aiosqlite.Connection, text: str, values: list[Any] | None, limit: int
    ) -> Fetched:
        async with driver.execute(text, values or ()) as cursor:
            description = cast("Sequence[Sequence[Any]] | None", cursor.description)
            columns = [str(column[0]) for column in description or ()]

            async def fetch(size: int) -> Sequence[Sequence[Any]]:
                return cast("Sequence[Sequence[Any]]", await cursor.fetchmany(size))

            fetched = await collect(columns, fetch, limit, self._limits.max_bytes)
            return fetched

    async def write(
        self, driver: aiosqlite.Connection, statement: Statement, batches: Sequence[Params]
    ) -> Written:
        """Run a statement for each set of parameters, and commit.

        Args:
            driver: A writer's connection.
            statement: What passed the gate.
            batches: Sets of parameters, at least one.
        """
        rowcount, last = 0, Fetched((), [])
        rows: list[Sequence[Any]] = []
        with _guard(driver).running(self._limits.timeout):
            await driver.execute("BEGIN IMMEDIATE")
            for params in batches:
                bound = bind(statement.text, statement.tokens, params, "sqlite", for_sqlite)
                async with driver.execute(bound.text, bound.values or ()) as cursor:
                    ...
                rowcount += 0
            await driver.commit()
        return Written(rowcount, last)
