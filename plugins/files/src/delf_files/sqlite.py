"""``SqliteFormat``: the tables of a SQLite file as rows, opened read-only.

A view may run forever or create huge values, so callers must use a child process with limits, like
the connection ``files``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from delf.errors import ToolExecutionError
from delf.notes import note
from delf.protocols.formats import Peek

MAX_ROWS: Final = 200_000
_LAST_ROWS: Final = 200
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


def _peek(path: str, name: str | None, max_rows: int | None) -> Peek:
    """Read the first ``max_rows`` and the last ``_LAST_ROWS`` rows of a table.

    If ``max_rows`` is None, read all rows.

    Raises:
        ToolExecutionError: If the table does not exist, or if ``max_rows`` is None and the table
            has more than ``MAX_ROWS`` rows.
    """
    with _opened(path) as database:
        kinds = dict(database.execute(_LIST_TABLES))
        if not kinds:
            raise ToolExecutionError("the database has no tables")
        if name is None:
            name = next(iter(kinds))
        if name not in kinds:
            names = ", ".join(map(repr, kinds))
            raise ToolExecutionError(f"there is no table {name!r}; the tables: {names}")
        quoted = '"' + str(name).replace('"', '""') + '"'
        declared = {row[1]: row[2] for row in database.execute(f"PRAGMA table_info({quoted})")}
        is_preview = max_rows is not None
        if is_preview and kinds[name] == "view":
            # Even a few rows of a view may take forever, as the view's query has to run.
            return Peek([], None, [*declared.items()])
        total = None
        if is_preview:
            ((total,),) = database.execute(f"SELECT count(*) FROM {quoted}")  # noqa: S608 - a name of the file
        limit = MAX_ROWS + 1 if max_rows is None else max_rows
        cursor = database.execute(f"SELECT * FROM {quoted} LIMIT {limit}")  # noqa: S608 - a name of the file
        columns = [str(column[0]) for column in cursor.description]
        rows = [(number, list(row)) for number, row in enumerate(cursor, 1)]
        last_rows: list[tuple[int, list[Any]]] = []
        if max_rows is not None and total is not None and total > max_rows:
            start = max(max_rows, total - _LAST_ROWS)
            last_cursor = database.execute(f"SELECT * FROM {quoted} LIMIT -1 OFFSET {start}")  # noqa: S608 - a name of the file
            last_rows = [(number, list(row)) for number, row in enumerate(last_cursor, start + 1)]
    if len(rows) > MAX_ROWS:
        raise ToolExecutionError(
            f"the table {name!r} has more than {MAX_ROWS:,} rows; the connection sql reads larger "
            "ones"
        )
    total = len(rows) if total is None else total
    typed_columns = [(column, declared.get(column, "")) for column in columns]
    return Peek(rows, total, typed_columns, last_rows)


@contextmanager
def _opened(path: str) -> Generator[sqlite3.Connection]:
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
            raise
        database.close()
        database = sqlite3.connect(f"{address}&immutable=1", uri=True)
    return database


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        note("the SQLite file has text that is not UTF-8: each bad byte was read as \ufffd")
        return data.decode("utf-8", "replace")
