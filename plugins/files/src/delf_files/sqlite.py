"""``SqliteFormat``: the tables of a SQLite file as rows, opened read-only.

A view may run forever or create huge values, so callers must use a child process with limits, like
the connection ``files``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from delf.errors import ToolExecutionError
from delf.notes import note
from delf.protocols.formats import Peek

MAX_ROWS: Final = 200_000
_LAST_ROWS: Final = 200
_NO_LIMIT: Final = -1
_LIST_TABLES: Final = (
    "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)


class SqliteFormat:
    """The format of SQLite files.

    Implements :class:`delf.protocols.formats.FileFormat` and ``SupportsPeek``.
    """

    async def parts(self, path: str) -> Sequence[str]:
        """Return the names of the tables and views.

        Raises:
            ToolExecutionError: If the file cannot be read.
        """
        return _names(path)

    async def read(self, path: str, part: str | None) -> list[dict[str, Any]]:
        """Return the rows of one table.

        Args:
            path: The absolute path on the host.
            part: The table's name; the first when None.

        Raises:
            ToolExecutionError: If the file cannot be read or does not have the table.
        """
        table = _peek(path, part, None)
        names = [name for name, _ in table.columns or ()]
        return [dict(zip(names, row, strict=True)) for _, row in table.rows]

    async def peek(self, path: str, part: str | None, max_rows: int | None) -> Peek:
        """Return the columns of one table with their declared types, and the table's first rows.

        Args:
            path: The absolute path on the host.
            part: The table's name; the first when None.
            max_rows: The maximum number of rows from the beginning; None for all rows. If this is a
                number, the last 200 rows are returned, too, and a view's rows are not read, because
                the view's query may run forever.

        Raises:
            ToolExecutionError: If the file cannot be read or does not have the table.
        """
        return _peek(path, part, max_rows)


def _names(path: str) -> list[str]:
    with _opened(path) as database:
        return [name for name, _ in database.execute(_LIST_TABLES)]


class _Table(NamedTuple):
    """A table or view of a database, with the declared types of its columns."""

    name: str
    is_view: bool
    types: dict[str, str]

    @property
    def quoted_name(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'


def _peek(path: str, name: str | None, max_rows: int | None) -> Peek:
    """Read the first ``max_rows`` and the last ``_LAST_ROWS`` rows of a table.

    If ``max_rows`` is None, read all rows. Otherwise, read no rows of a view. If ``name`` is None,
    read the first table.

    Raises:
        ToolExecutionError: If the table does not exist, or if ``max_rows`` is None and the table
            has more than ``MAX_ROWS`` rows.
    """
    with _opened(path) as database:
        table = _find_table(database, name)
        if max_rows is None:
            return _read_all(database, table)
        if table.is_view:
            # Even a few rows of a view may take forever, as the view's query has to run.
            return Peek([], None, [*table.types.items()])
        return _preview(database, table, max_rows)


def _find_table(database: sqlite3.Connection, name: str | None) -> _Table:
    """Return the table with a name, or the first table."""
    kind_by_name = dict(database.execute(_LIST_TABLES))
    if not kind_by_name:
        raise ToolExecutionError("the database has no tables")
    if name is None:
        name = str(next(iter(kind_by_name)))
    if name not in kind_by_name:
        names = ", ".join(map(repr, kind_by_name))
        raise ToolExecutionError(f"there is no table {name!r}; the tables: {names}")
    table = _Table(name, is_view=kind_by_name[name] == "view", types={})
    columns = database.execute(f"PRAGMA table_info({table.quoted_name})")
    for _index, column, declared_type, *_ in columns:
        table.types[column] = declared_type
    return table


def _read_all(database: sqlite3.Connection, table: _Table) -> Peek:
    columns, rows = _select(database, table, limit=MAX_ROWS + 1)
    if len(rows) > MAX_ROWS:
        raise ToolExecutionError(
            f"the table {table.name!r} has more than {MAX_ROWS:,} rows; the connection sql reads "
            "larger ones"
        )
    return Peek(rows, len(rows), columns)


def _preview(database: sqlite3.Connection, table: _Table, max_rows: int) -> Peek:
    ((total,),) = database.execute(f"SELECT count(*) FROM {table.quoted_name}")  # noqa: S608 - a name of the file
    columns, rows = _select(database, table, limit=max_rows)
    last_rows: list[tuple[int, list[Any]]] = []
    if total > max_rows:
        offset = max(max_rows, total - _LAST_ROWS)
        _, last_rows = _select(database, table, limit=_NO_LIMIT, offset=offset)
    return Peek(rows, total, columns, last_rows)


def _select(
    database: sqlite3.Connection, table: _Table, *, limit: int, offset: int = 0
) -> tuple[list[tuple[str, str]], list[tuple[int, list[Any]]]]:
    """Read rows of a table.

    Returns:
        The columns with their declared types, and the rows with their numbers from 1.
    """
    cursor = database.execute(
        f"SELECT * FROM {table.quoted_name} LIMIT {limit} OFFSET {offset}"  # noqa: S608 - a name of the file
    )
    names = [str(column[0]) for column in cursor.description]
    columns = [(name, table.types.get(name, "")) for name in names]
    rows = [(number, list(row)) for number, row in enumerate(cursor, offset + 1)]
    return columns, rows


@contextmanager
def _opened(path: str) -> Generator[sqlite3.Connection]:
    """Yield a read-only database that can attach no other file; convert SQLite's errors."""
    try:
        with closing(_open_read_only(path)) as database:
            database.text_factory = _decode
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            yield database
    except sqlite3.Error as error:
        raise ToolExecutionError(f"the SQLite file cannot be read: {error}") from error


def _open_read_only(path: str) -> sqlite3.Connection:
    """Open a database such that SQLite changes and creates no file.

    A database with write-ahead logging whose log is empty or missing is opened as immutable,
    because SQLite would create log files.
    """
    address = f"file:{quote(path)}?mode=ro"
    database = sqlite3.connect(address, uri=True)
    try:
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        log = Path(f"{path}-wal")
        if log.exists() and log.stat().st_size:
            raise  # an immutable database would be read without the changes in its log
        database.close()
        database = sqlite3.connect(f"{address}&immutable=1", uri=True)
    return database


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        note("the SQLite file has text that is not UTF-8: each bad byte was read as \ufffd")
        return data.decode("utf-8", "replace")
