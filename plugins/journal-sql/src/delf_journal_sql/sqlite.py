"""SQLite in WAL mode: one writer at a time, and readers that are never blocked."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from delf.machine.own_files import make_private_folder
from delf_journal_sql.database import (
    Connection,
    SqlRow,
    WordSearch,
    in_chunks,
    name_columns,
    new_only,
)
from delf_journal_sql.errors import DuplicateRowError, JournalError, JournalSetupError
from delf_journal_sql.settings import JournalSettings

_PAGES_AT_ONCE: Final = 1000
_QUICKEST: Final = 0.004
_SLOWEST: Final = 0.1
_BROKEN: Final = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}
_NOT_WRITABLE: Final = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH"}


class SqliteConnection:
    """Implements :class:`delf_journal_sql.database.Connection`.

    Args:
        path: The file.
        settings: The settings for timeouts and durability.
    """

    def __init__(self, path: Path, settings: JournalSettings) -> None:
        self._path = path
        self._wait = settings.lock_timeout
        try:
            self._raw = sqlite3.connect(
                # begin() opens the transactions, and the module must not open its own. Pooled
                # connections move between threads, but only one at a time uses them.
                path,
                timeout=self._wait,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise explain(error, path, self._wait) from error
        full = settings.durability == "power"
        self._file: tuple[int, int] | None = None
        try:
            self.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        except BaseException:
            self._raw.close()
            raise

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[SqlRow]:
        """Run a statement; return its rows."""
        try:
            cursor = self._raw.execute(sql, parameters or {})
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise explain(error, self._path, self._wait) from error
        return name_columns((column[0] for column in cursor.description), rows) if rows else []

    def copy_to(self, path: Path) -> None:
        """Copy the whole database into an empty file by SQLite's backup API."""
        try:
            with contextlib.closing(sqlite3.connect(path)) as other:
                self._raw.backup(other)
                with other:  # no process works on the copy's tasks
                    other.execute("DELETE FROM delf_owners")
        except sqlite3.Error as error:
            raise explain(error, path, self._wait) from error

    def run_to_end(self, sql: str) -> None:
        """Run statements and step through them until they are complete."""
        try:
            self._raw.executescript(sql)
        except sqlite3.Error as error:
            raise explain(error, self._path, self._wait) from error

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        unique: str | None = None,
    ) -> list[SqlRow]:
        """Insert rows, many with one statement."""
        placeholders = f"({', '.join('?' * len(columns))})"
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "  # noqa: S608 - own names
        inserted: list[SqlRow] = []
        try:
            for chunk in in_chunks(rows):
                sql = head + ", ".join([placeholders] * len(chunk)) + new_only(unique)
                inserted += self._raw.execute(sql, [value for row in chunk for value in row])
        except sqlite3.IntegrityError as error:
            raise DuplicateRowError(str(error)) from error
        except sqlite3.Error as error:
            raise explain(error, self._path, self._wait) from error
        return inserted

    def has_table(self, name: str) -> bool:
        """Return True if a table exists."""
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"
        return bool(self.execute(sql, {"name": name}))

    def tables(self) -> set[str]:
        """Return the names of delf's tables."""
        sql = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'delf!_%' ESCAPE '!'"
        )
        # LIKE ignores case in SQLite: a table DELF_X of somebody else would be copied and migrated.
        return {name for (name,) in self.execute(sql) if str(name).startswith("delf_")}

    def stream(self, table: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        """Return a table's columns and an iterator of its rows, with few rows in memory at once."""
        try:
            cursor = self._raw.execute(f"SELECT * FROM {table}")  # noqa: S608 - own names
        except sqlite3.Error as error:
            raise explain(error, self._path, self._wait) from error
        return [str(column[0]) for column in cursor.description], cursor

    def number_on(self, tables: Collection[str]) -> None:
        """Do nothing, because SQLite continues from the highest id itself."""

    def begin(self, *, write: bool, long: bool = False) -> None:
        """Begin a transaction.

        Raises:
            JournalError: If the transaction writes and the file was replaced since it was opened.
        """
        if write:
            self._check_file()
        # A transaction that first reads and then writes fails if another one wrote in between.
        self.execute("BEGIN IMMEDIATE" if write else "BEGIN")

    def _check_file(self) -> None:
        """Raise if the journal's file was deleted or replaced since the first write."""
        # SQLite continues to use a deleted file, and all writes are lost.
        try:
            status = self._path.stat()
        except OSError:
            status = None
        file = None if status is None else (status.st_dev, status.st_ino)
        # Remembered at the first write, when the file certainly exists.
        self._file = self._file or file
        if file is None or file != self._file:
            raise JournalError(
                f"the journal {self._path} was deleted or replaced while it was in use",
                hint="put the file back, or start delf again with a new one",
            )

    def commit(self) -> None:
        """Commit."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back."""
        try:
            self._raw.rollback()
        except sqlite3.Error:
            return  # SQLite has already rolled back

    def close(self) -> None:
        """Close the connection."""
        try:
            self._raw.close()
        except sqlite3.Error:
            return  # the file went away; there is nothing left to free


class SqliteDatabase:
    """Implements :class:`delf_journal_sql.database.Database`.

    Args:
        path: The file; created with its folder on first use, accessible only to the user.
        settings: The journal's settings.
    """

    types: Mapping[str, str] = {
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "big": "INTEGER",
        "real": "REAL",
        "bytes": "BLOB",
    }
    words = WordSearch(
        create=("CREATE VIRTUAL TABLE delf_index_words USING fts5(words, tokenize='ascii')",),
        insert="INSERT INTO delf_index_words (rowid, words) VALUES (:place, :words)",
        match="delf_index_words MATCH :query",
        query=lambda terms: " AND ".join(f'"{" ".join(term)}"' for term in terms) + "*",
        whole="CAST({} AS INTEGER)",
    )

    def __init__(self, path: Path, settings: JournalSettings) -> None:
        self.name = str(path)
        self._path = path
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[SqliteConnection] = []
        self._prepared = False

    def connect(self) -> Connection:
        """Open a connection for writing."""
        return self._open()

    @contextmanager
    def reader(self) -> Generator[Connection]:
        """Borrow a pooled connection for reading."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._open()
        try:
            yield connection
        except BaseException:
            # A read that failed may leave its transaction open, which keeps the write-ahead log
            # from ever shrinking.
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)

    def changes(self) -> SqliteChanges:
        """Start watching for writes of any process."""
        return SqliteChanges(self._open())

    def size(self, connection: Connection) -> tuple[int, int]:
        """Return the bytes of all pages, and of the free pages."""
        ((page,),) = connection.execute("PRAGMA page_size")
        ((pages,),) = connection.execute("PRAGMA page_count")
        ((free,),) = connection.execute("PRAGMA freelist_count")
        return page * pages, page * free

    def back_up(self, path: Path) -> None:
        """Copy the database into an empty file while others read and write."""
        connection = self._open()
        try:
            connection.copy_to(path)
        finally:
            connection.close()

    def check(self, connection: Connection) -> None:
        """Check the integrity of the whole file."""
        ((outcome,),) = connection.execute("PRAGMA quick_check(1)")
        if outcome != "ok":
            raise explain(_damage(str(outcome)), self._path, 0.0)

    def reclaim(self) -> None:
        """Release the space of deleted rows."""
        connection = self._open()
        try:
            self._give_back(connection)
            # The log may be as large as the removed data, and nothing else truncates it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()

    def _give_back(self, connection: SqliteConnection) -> None:
        """Free a few pages at a time, so that others can write in between."""
        ((free,),) = connection.execute("PRAGMA freelist_count")
        while free:
            connection.run_to_end(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
            before, ((free,),) = free, connection.execute("PRAGMA freelist_count")
            # Nothing was freed, as in a file without incremental vacuum: asking again would never
            # end.
            if free >= before:
                return

    def now(self, connection: Connection) -> float:
        """Return the time of this machine, on which all processes of a SQLite file run."""
        return time.time()

    def answers(self) -> bool:
        """Return True, because a file always answers."""
        return True

    def close(self) -> None:
        """Close pooled connections."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._prepared = False
        for connection in idle:
            connection.close()

    def _open(self) -> SqliteConnection:
        with self._lock:
            if not self._prepared:
                self._prepare()
                self._prepared = True
        return SqliteConnection(self._path, self._settings)

    def _prepare(self) -> None:
        """Create the file and switch it to WAL mode."""
        try:
            make_private_folder(self._path.parent)
            _make_file(self._path)
        except OSError as error:
            raise JournalSetupError(
                f"the journal {self._path} cannot be opened: {error.strerror}"
            ) from error
        connection = SqliteConnection(self._path, self._settings)
        try:
            _use_wal(connection, time.monotonic() + self._settings.lock_timeout)
        finally:
            connection.close()


def _make_file(path: Path) -> None:
    """Create a file accessible only to the user, if it does not exist.

    An existing file is not opened: closing it would drop the POSIX locks of this process's SQLite
    connections, and others would remove the write-ahead log.

    Raises:
        OSError: If the file cannot be created or written.
    """
    try:
        # O_EXCL refuses a symbolic link, but the journal may be one, as to a larger disk.
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.is_file():
            raise IsADirectoryError(errno.EISDIR, "it is not a file") from None
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be read and written") from None


def _use_wal(connection: SqliteConnection, deadline: float) -> None:
    """Switch to WAL mode, retrying while another process does the same."""
    while True:
        try:
            if connection.execute("PRAGMA journal_mode")[0][0] == "wal":
                return
            # Effective only before the first table is created; otherwise a pruned journal never
            # shrinks.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except JournalSetupError:
            raise
        except JournalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_QUICKEST)


class SqliteChanges:
    """Polls SQLite's data version: often after a change, rarely when idle.

    Args:
        connection: A connection used for nothing else.
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._poked = threading.Event()
        self._closed = False
        self._pause = _QUICKEST
        self._version = self._ask()

    def wait(self) -> bool:
        """Wait until there may be new data; return False once closed."""
        # SQLite notifies no other process, so poll its counter of writes.
        while not self._poked.wait(self._pause):
            version = self._ask()
            if version != self._version:
                self._version = version
                self._pause = _QUICKEST
                return True
            # Back off while nobody writes, because the poll wakes up the processor.
            self._pause = min(self._pause * 1.3, _SLOWEST)
        self._poked.clear()
        self._pause = _QUICKEST
        return not self._closed

    def free(self) -> None:
        """Release resources; call in the thread that waited."""
        self._connection.close()

    def poke(self) -> None:
        """Signal a write of this process."""
        self._poked.set()

    def close(self) -> None:
        """Stop waiting."""
        self._closed = True
        self._poked.set()

    def _ask(self) -> int:
        return int(self._connection.execute("PRAGMA data_version")[0][0])


def _damage(outcome: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(" ".join(outcome.split()))
    error.sqlite_errorname = "SQLITE_CORRUPT"
    return error


def explain(error: sqlite3.Error, path: Path, waited: float) -> Exception:
    """Explain SQLite's error to a user."""
    name = getattr(error, "sqlite_errorname", "") or ""
    kind = "_".join(name.split("_")[:2])
    if isinstance(error, sqlite3.IntegrityError):
        return DuplicateRowError(str(error))
    if kind in _BROKEN:
        return JournalSetupError(
            f"the journal {path} is damaged, or no SQLite file: {error}",
            hint=f"move it away; sqlite3 {path} .recover may save what it holds",
        )
    if kind in _NOT_WRITABLE:
        return JournalSetupError(f"the journal {path} cannot be written: {error}")
    if kind in ("SQLITE_BUSY", "SQLITE_LOCKED"):
        return JournalError(
            f"the journal {path} was locked by another process for {waited:g} s",
            hint="find who holds it (fuser -v), or raise lock_timeout of the plugin journal-sql",
        )
    if kind == "SQLITE_FULL":
        return JournalError(
            f"the disk of the journal {path} is full",
            hint="free some space; then delf runs prune and delf chat prune free more",
        )
    return JournalError(f"the journal {path} failed: {error}")
