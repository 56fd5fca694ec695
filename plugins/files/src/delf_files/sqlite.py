"""``SqliteFormat``: the tables of a SQLite file as rows. The file is opened for reading only.

A view may run forever, and make values of gigabytes: whoever calls this does so in a child
process with limits, as the connection ``files`` does.
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

MAX_ROWS: Final = 200_000
_TABLES: Final = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)


class SqliteFormat:
    """Implements :class:`delf.protocols.formats.FileFormat`."""

    async def parts(self, path: str) -> Sequence[str]:
        """The names of the tables and views.

        Raises:
            ToolExecutionError: When the file cannot be read.
        """
        return _names(path)

    async def read(self, path: str, part: str | None) -> list[dict[str, Any]]:
        """The rows of one table.

        Args:
            path: Absolute, on the host.
            part: The table's name; the first when None.

        Raises:
            ToolExecutionError: When the file cannot be read, or has no such table.
        """
        return _rows(path, part)


def _names(path: str) -> list[str]:
    with _opened(path) as database:
        return [name for (name,) in database.execute(_TABLES)]


def _rows(path: str, name: str | None) -> list[dict[str, Any]]:
    with _opened(path) as database:
        names = [found for (found,) in database.execute(_TABLES)]
        if name is None and names:
            name = names[0]
        if name not in names:
            listed = ", ".join(map(repr, names)) or "none"
            raise ToolExecutionError(f"there is no table {name!r}; the tables: {listed}")
        quoted = str(name).replace('"', '""')
        cursor = database.execute(f'SELECT * FROM "{quoted}" LIMIT {MAX_ROWS + 1}')  # noqa: S608 - a name of the file
        columns = [str(column[0]) for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor]
    if len(rows) > MAX_ROWS:
        raise ToolExecutionError(
            f"the table {name!r} has more than {MAX_ROWS:,} rows; the connection sql reads larger "
            "ones"
        )
    return rows


@contextmanager
def _opened(path: str) -> Generator[sqlite3.Connection]:
    try:
        with closing(_connected(path)) as database:
            database.text_factory = _text
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            yield database
    except sqlite3.Error as error:
        raise ToolExecutionError(f"the SQLite file cannot be read: {error}") from error


def _connected(path: str) -> sqlite3.Connection:
    """The database, opened for reading only.

    Where it has a log of changes (WAL) but nothing is in it, SQLite would make the log's files.
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


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        note("the SQLite file has text that is not UTF-8: each bad byte was read as \ufffd")
        return data.decode("utf-8", "replace")
