"""Memories of the program Delfhos: detection, and import of their facts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from delf.errors import MemoryRetrievalError

_SQLITE: Final = b"SQLite format 3\0"
_COLUMNS: Final = {"namespace", "content", "timestamp"}


class OldFact(NamedTuple):
    """A fact in a memory of Delfhos.

    Args:
        namespace: The namespace of the fact.
        content: The text of the fact.
        saved_at: The Unix time at which the fact was saved.
    """

    namespace: str
    content: str
    saved_at: float


def is_database(path: Path) -> bool:
    """Return True if a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def is_delfhos(path: Path) -> bool:
    """Return True if a file is a memory database that the program Delfhos wrote.

    The file is only read.
    """
    try:
        if not path.is_file() or not is_database(path):
            return False
        with closing(_open_database(path)) as connection:
            return _has_delfhos_tables(connection)
    except (OSError, sqlite3.Error):  # the caller opens the file next, and reports this error
        return False


def facts_of(path: Path) -> list[OldFact]:
    """Return all facts in a memory of Delfhos, oldest first.

    Raises:
        MemoryRetrievalError: If the file is not a memory of Delfhos or cannot be read.
    """
    try:
        with closing(_open_database(path)) as connection:
            if not _has_delfhos_tables(connection):
                raise MemoryRetrievalError(f"{path} is not a memory of Delfhos")
            rows = connection.execute(
                "SELECT namespace, content, timestamp FROM memories ORDER BY id"
            )
            facts = [
                OldFact(str(namespace), str(content), _parse_time(saved_at))
                for namespace, content, saved_at in rows
            ]
            return [fact for fact in facts if fact.content.strip()]
    except sqlite3.Error as error:
        raise MemoryRetrievalError(f"{path} cannot be read: {error}") from error


def _open_database(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _has_delfhos_tables(connection: sqlite3.Connection) -> bool:
    """Return True if a database was written by Delfhos, the predecessor of delf."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    is_written_by_delf = "delf_memory_meta" in tables
    if "memories" not in tables or is_written_by_delf:
        return False
    columns = {row[1] for row in connection.execute("PRAGMA table_info(memories)")}
    return columns >= _COLUMNS


def _parse_time(text: object) -> float:
    """Parse a UTC time as SQLite writes it, and return it as Unix time.

    An invalid time counts as the present time.
    """
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.now(UTC).timestamp()
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
