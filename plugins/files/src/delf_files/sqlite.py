"""``SqliteFormat``: the tables of a SQLite file as rows. The file is opened for reading only."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from delf.errors import ToolExecutionError
from delf.notes import note

MAX_ROWS: Final = 200_000
_TABLES: Final = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)
_STEPS: Final = 10_000
_TURNS: Final = 20_000


class SqliteFormat:
    """Implements :class:`delf.protocols.formats.FileFormat`; the work is done in threads."""

    async def parts(self, path: str) -> Sequence[str]:
        """The names of the tables and views.

        Raises:
            ToolExecutionError: When the file cannot be read.
        """
        return await asyncio.to_thread(_names, path)

    async def read(self, path: str, part: str | None) -> list[dict[str, Any]]:
        """The rows of one table.

        Args:
            path: Absolute, on the host.
            part: The table's name; the first when None.

        Raises:
            ToolExecutionError: When the file cannot be read, or has no such table.
        """
        return await asyncio.to_thread(_rows, path, part)


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
    turns = 0

    def over() -> bool:
        nonlocal turns
        turns += 1
        return turns > _TURNS

    try:
        database = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)
        try:
            database.text_factory = _text
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            database.set_progress_handler(over, _STEPS)
            yield database
        finally:
            database.close()
    except sqlite3.Error as error:
        raise ToolExecutionError(f"the SQLite file cannot be read: {error}") from error


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        note("the SQLite file has text that is not UTF-8: each bad byte was read as \ufffd")
        return data.decode("utf-8", "replace")
