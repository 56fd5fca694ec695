"""SQLite. Reading is confined by a read-only file handle and an authorizer."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast
from urllib.parse import quote
from weakref import WeakKeyDictionary

import aiosqlite

from delf.errors import ConnectionFileNotFoundError
from delf_sql.backends.base import Limits, Problem, Written, can_batch, first_line
from delf_sql.catalog import Column, Relation, Table
from delf_sql.gate import Statement
from delf_sql.lexer import SQLITE, Syntax, words
from delf_sql.placeholders import Params, bind
from delf_sql.rows import Fetched, collect
from delf_sql.target import Target
from delf_sql.values import for_sqlite

_READING: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_READING_PRAGMAS: Final = words(
    "table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list "
    "database_list collation_list function_list data_version"
)
_TELLING_PRAGMAS: Final = words(
    "application_id compile_options encoding foreign_keys freelist_count journal_mode page_count "
    "page_size read_uncommitted schema_version user_version"
)
"""These read without an argument and write with one."""
_FILE_FUNCTIONS: Final = frozenset(
    {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}
)
_RTREE_TABLES: Final = ("_node", "_rowid", "_parent")
_STEPS: Final = 5000
"""Instructions of SQLite's machine between two looks at the clock."""
_BUSY_SECONDS: Final = 5.0
_LARGEST_VALUE: Final = 256_000_000
_ALL: Final = 1_000_000

_MISSING_TABLE: Final = re.compile(r"no such table: (?:\w+\.)?(.+)")
_MISSING_COLUMN: Final = re.compile(r"(?:no such column: (?:\w+\.)?|has no column named )(.+)")
_RELATIONS: Final = """
SELECT name, type, sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
"""
_COLUMNS: Final = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid'
_KEYS: Final = (
    'SELECT id, seq, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq'
)


class _Guard:
    """The clock of one connection; its statement ends when the time is over."""

    def __init__(self) -> None:
        self.deadline = float("inf")

    def expired(self) -> bool:
        """Asked by SQLite every so many steps, in the connection's thread."""
        return time.monotonic() > self.deadline

    @contextlib.contextmanager
    def running(self, seconds: float) -> Generator[None]:
        """Statements in this block end in time, or at once when their task is cancelled."""
        self.deadline = time.monotonic() + seconds
        try:
            yield
        except asyncio.CancelledError:
            self.deadline = 0.0  # the thread is still at it
            raise
        except BaseException:
            self.deadline = float("inf")
            raise
        self.deadline = float("inf")


class _Connection(sqlite3.Connection):
    """A connection with limits. Made in the thread that uses it."""

    def guard(self, guard: _Guard) -> None:
        """Let a clock end what takes too long."""
        self.set_progress_handler(guard.expired, _STEPS)
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
    action: int, first: str | None, second: str | None, database: str | None, _by: str | None
) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        return _unless(second in _FILE_FUNCTIONS)
    if action == sqlite3.SQLITE_PRAGMA:
        return _unless(not _is_reading_pragma(first, second))
    return _unless(not _opens_virtual_table(action, first, database))


def _authorize_writing(
    action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
) -> int:
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION:
        return _unless(second in _FILE_FUNCTIONS)
    if action == sqlite3.SQLITE_PRAGMA:
        return _unless(not _is_reading_pragma(first, second))
    return sqlite3.SQLITE_OK


def _exists(path: Path) -> bool:
    return path.is_file()


def _is_reading_pragma(name: str | None, argument: str | None) -> bool:
    lower = (name or "").lower()
    return lower in _READING_PRAGMAS or (lower in _TELLING_PRAGMAS and argument is None)


def _opens_virtual_table(action: int, table: str | None, database: str | None) -> bool:
    """What SQLite prepares to declare a virtual table (json_each, FTS, R-tree) for reading.

    It would write to the file's own tables, which the read-only file does not let it.
    """
    if database != "main" or table is None:
        return False
    if action == sqlite3.SQLITE_UPDATE:
        return table == "sqlite_master"
    changes = action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_DELETE)
    return changes and table.endswith(_RTREE_TABLES)


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
        self._guards: WeakKeyDictionary[aiosqlite.Connection, _Guard] = WeakKeyDictionary()

    async def connect(self, *, reader: bool) -> aiosqlite.Connection:
        """A new connection; a reader's has the file open for reading only.

        Args:
            reader: Whether it is for reading.

        Raises:
            ConnectionFileNotFoundError: When there is no such file and none is to be made.
        """
        path = Path.cwd() / self.target.database
        if not _exists(path) and (reader or not self._limits.create):
            raise ConnectionFileNotFoundError(
                f"there is no SQLite file {self.target.database!r}",
                hint="check the path (it is taken from the working directory), or set create = true"
                " and make the tables with write",
            )
        mode = "ro" if reader else "rwc" if self._limits.create else "rw"
        guard = _Guard()

        def make(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = (_Reader if reader else _Writer)(*args, **kwargs)
            connection.guard(guard)
            return connection

        driver = await aiosqlite.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=min(_BUSY_SECONDS, self._limits.timeout),
            factory=make,
        )
        self._guards[driver] = guard
        return driver

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
        return await self._run(driver, bound.text, bound.values, limit)

    async def _run(
        self, driver: aiosqlite.Connection, text: str, values: Sequence[Any] | None, limit: int
    ) -> Fetched:
        with self._guards[driver].running(self._limits.timeout):
            cursor = await driver.execute(text, values or ())
            try:
                return await self._fetch(cursor, limit)
            except Exception:
                await cursor.close()
                raise

    async def _fetch(self, cursor: aiosqlite.Cursor, limit: int) -> Fetched:
        async def fetch(size: int) -> Sequence[Sequence[Any]]:
            return cast("Sequence[Sequence[Any]]", await cursor.fetchmany(size))

        columns = [str(column[0]) for column in cursor.description or ()]
        fetched = await collect(columns, fetch, limit, self._limits.max_bytes)
        await cursor.close()
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
        bounds = [
            bind(statement.text, statement.tokens, params, "sqlite", for_sqlite)
            for params in batches
        ]
        written = Written()
        with self._guards[driver].running(self._limits.timeout):
            await driver.execute("BEGIN IMMEDIATE")
            if can_batch(statement, bounds):
                values = [bound.values or [] for bound in bounds]
                cursor = await driver.executemany(bounds[0].text, values)
                written.add(cursor.rowcount)
            else:
                for bound in bounds:
                    cursor = await driver.execute(bound.text, bound.values or ())
                    fetched = await self._fetch(cursor, written.room(self._limits.max_rows))
                    written.add(cursor.rowcount, fetched)
            await driver.commit()
        return written

    async def relations(self, driver: aiosqlite.Connection) -> list[Relation]:
        """All tables and views but SQLite's own."""
        found = (await self._run(driver, _RELATIONS, None, _ALL)).rows
        shadows = tuple(f"{name}_" for name, _, virtual in found if virtual)
        return [
            Relation(name=name, kind="view" if kind == "view" else "table", key=name)
            for name, kind, _ in found
            if not name.startswith(shadows)
        ]

    async def tables(
        self, driver: aiosqlite.Connection, relations: Sequence[Relation]
    ) -> list[Table]:
        """These with their columns.

        Args:
            driver: A reader's connection.
            relations: Of :meth:`relations`.
        """
        return [await self._table(driver, relation) for relation in relations]

    async def _table(self, driver: aiosqlite.Connection, relation: Relation) -> Table:
        table = Table(relation)
        columns = await self._run(driver, _COLUMNS, (relation.key,), _ALL)
        for name, kind, not_null, key, hidden in columns.rows:
            if hidden != 1:
                table.columns.append(
                    Column(
                        name=name,
                        type=(kind or "any").lower(),
                        nullable=not not_null and not key,
                        primary_key=bool(key),
                    )
                )
        for _, _, other, mine, theirs in (
            await self._run(driver, _KEYS, (relation.key,), _ALL)
        ).rows:
            column = table.column(mine)
            if column is not None:
                column.references = f"{other}.{theirs}" if theirs else other
        return table

    async def version(self, driver: aiosqlite.Connection) -> str:
        """SQLite's version."""
        return f"SQLite {sqlite3.sqlite_version}"

    async def interrupted(self, driver: aiosqlite.Connection) -> None:
        """Nothing to do: the clock has ended the statement, and rolling back waits for that."""

    def is_usable(self, driver: aiosqlite.Connection) -> bool:
        """Always."""
        return True

    def abandon(self, driver: aiosqlite.Connection) -> None:
        """Let the connection's thread close it."""
        guard = self._guards.get(driver)
        if guard is not None:
            guard.deadline = 0.0
        # In a thread without a loop, since stop() reports to the running one, which may be
        # closed by the time the connection's thread gets there.
        stopper = threading.Thread(target=driver.stop)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        stopper.start()
        stopper.join()

    def explain(self, error: BaseException) -> Problem | None:
        """What an error of sqlite3 means.

        Args:
            error: Any exception.
        """
        if not isinstance(error, (sqlite3.Error, sqlite3.Warning)):
            return None
        text = first_line(str(error))
        if text == "interrupted":
            return Problem(cause="timeout", text=text)
        if text.startswith("attempt to write a readonly"):
            return Problem(cause="read-only", text=text)
        if "not authorized" in text or "prohibited" in text:
            return Problem(cause="read-only", text="this is not allowed on a SQLite connection")
        if text.startswith(("unable to open", "file is not a database", "disk I/O")):
            return Problem(cause="unavailable", text=text)
        table, column = _MISSING_TABLE.search(text), _MISSING_COLUMN.search(text)
        return Problem(
            cause="statement",
            text=text,
            table=table.group(1) if table else None,
            column=column.group(1) if column else None,
        )
