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
from delf_journal_sql.errors import DuplicateRowError, JournalError, JournalSetupError
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.statements import (
    SqlRow,
    WordSearch,
    insert_statements,
    name_columns,
)

_VACUUM_PAGES: Final = 1000
_MIN_POLL_SECONDS: Final = 0.004
_MAX_POLL_SECONDS: Final = 0.1
_DAMAGE_ERRORS: Final = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}
_ACCESS_ERRORS: Final = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH"}


class SqliteConnection:
    """A connection to a SQLite file; parameters in its statements are written as ``:name``.

    Failures raise :class:`JournalError` or :class:`DuplicateRowError`.

    Args:
        path: The file.
        settings: The journal's settings.
    """

    lower_case = "LOWER({})"

    def __init__(self, path: Path, settings: JournalSettings) -> None:
        self._path = path
        self._wait = settings.lock_timeout
        try:
            self._raw = sqlite3.connect(
                path,
                timeout=self._wait,
                # The module must not open transactions, because begin() opens them.
                isolation_level=None,
                # Pooled connections move between threads; only one thread at a time uses each.
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise _converted_error(error, path, self._wait) from error
        # SQLite's own function changes only ASCII letters.
        self._raw.create_function("lower", 1, str.lower, deterministic=True)
        # FULL survives a power cut.
        synchronous = "FULL" if settings.durability == "power" else "NORMAL"
        # The device and inode of the file at the first write, to detect a replaced file.
        self._file_id: tuple[int, int] | None = None
        try:
            self.execute(f"PRAGMA synchronous = {synchronous}")
        except BaseException:
            self._raw.close()
            raise

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[SqlRow]:
        """Run a statement; return its rows as named tuples."""
        try:
            cursor = self._raw.execute(sql, parameters or {})
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise _converted_error(error, self._path, self._wait) from error
        if rows:
            return name_columns((column[0] for column in cursor.description), rows)
        return []

    def copy_to(self, path: Path) -> None:
        """Copy the database into an empty file, without the records of processes that own tasks."""
        try:
            with contextlib.closing(sqlite3.connect(path)) as copy:
                self._raw.backup(copy)
                with copy:  # no process works on the copy's tasks
                    copy.execute("DELETE FROM delf_owners")
        except sqlite3.Error as error:
            raise _converted_error(error, path, self._wait) from error

    def run_to_end(self, sql: str) -> None:
        """Run statements, and fetch all their rows, so that each statement completes."""
        try:
            self._raw.executescript(sql)
        except sqlite3.Error as error:
            raise _converted_error(error, self._path, self._wait) from error

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        unique: str | None = None,
    ) -> list[SqlRow]:
        """Insert rows into a table, many with one statement.

        Args:
            table: The table.
            columns: The columns.
            rows: The values of the columns.
            unique: A unique column. Rows whose value exists already are skipped.

        Returns:
            With ``unique``, the id and the unique value of each inserted row; otherwise an empty
            list.
        """
        inserted: list[SqlRow] = []
        statements = insert_statements(table, columns, rows, unique=unique, placeholder="?")
        try:
            for sql, values in statements:
                cursor = self._raw.execute(sql, values)
                if unique:
                    inserted += name_columns(("id", unique), cursor.fetchall())
        except sqlite3.Error as error:
            raise _converted_error(error, self._path, self._wait) from error
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
        # LIKE ignores case in SQLite. Another program's table DELF_X must not be copied and
        # migrated.
        return {name for (name,) in self.execute(sql) if str(name).startswith("delf_")}

    def stream(self, table: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        """Return a table's column names, and an iterator that fetches its rows in small batches."""
        try:
            cursor = self._raw.execute(f"SELECT * FROM {table}")  # noqa: S608 - only names of this module
        except sqlite3.Error as error:
            raise _converted_error(error, self._path, self._wait) from error
        return [str(column[0]) for column in cursor.description], cursor

    def advance_id_sequences(self, tables: Collection[str]) -> None:
        """Do nothing, because SQLite itself continues after the highest id."""

    def size(self) -> tuple[int, int]:
        """Return the size of all pages and of the free pages in bytes."""
        ((page,),) = self.execute("PRAGMA page_size")
        ((pages,),) = self.execute("PRAGMA page_count")
        ((free,),) = self.execute("PRAGMA freelist_count")
        return page * pages, page * free

    def check(self) -> None:
        """Check the integrity of the file.

        Raises:
            JournalError: If the file is damaged.
        """
        ((outcome,),) = self.execute("PRAGMA quick_check(1)")
        if outcome != "ok":
            raise _damage_error(" ".join(str(outcome).split()), self._path)

    def now(self) -> float:
        """Return this machine's Unix time, with which heartbeats are compared.

        All processes of a SQLite file run on one machine.
        """
        return time.time()

    def begin(self, *, write: bool, long: bool = False) -> None:
        """Begin a transaction.

        Args:
            write: Whether the transaction may write.
            long: Without effect, because SQLite has no time limit for transactions.

        Raises:
            JournalError: If the transaction writes, and the file was deleted or replaced while in
                use.
        """
        if write:
            self._require_same_file()
        # IMMEDIATE takes the write lock now. Otherwise a transaction that first reads and then
        # writes would fail if another transaction wrote in between.
        self.execute("BEGIN IMMEDIATE" if write else "BEGIN")

    def _require_same_file(self) -> None:
        """Raise JournalError if the database file was deleted or replaced since the first write."""
        # SQLite continues to use a deleted file, and all writes are lost.
        try:
            status = self._path.stat()
        except OSError:
            status = None
        file_id = None if status is None else (status.st_dev, status.st_ino)
        if self._file_id is None:  # at the first write, when the file certainly exists
            self._file_id = file_id
        if file_id is None or file_id != self._file_id:
            raise JournalError(
                f"the journal {self._path} was deleted or replaced while it was in use",
                hint="put the file back, or start delf again with a new one",
            )

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back the transaction. Never fails."""
        try:
            self._raw.rollback()
        except sqlite3.Error:
            return  # SQLite has already rolled back

    def close(self) -> None:
        """Close the connection. Never fails."""
        try:
            self._raw.close()
        except sqlite3.Error:
            return  # the file went away; there is nothing left to free


class SqliteDatabase:
    """A SQLite file in which a journal is stored.

    Args:
        path: The path of the file. On first use the file and its folder are created, accessible
            only to the user.
        settings: The journal's settings.
    """

    types: Mapping[str, str] = {
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "big": "INTEGER",
        "real": "REAL",
        "bytes": "BLOB",
    }
    truncation = "CAST({} AS INTEGER)"
    text_search = WordSearch(
        create_statements=(
            "CREATE VIRTUAL TABLE delf_index_words USING fts5(words, tokenize='ascii')",
        ),
        insert="INSERT INTO delf_index_words (rowid, words) VALUES (:place, :words)",
        match="delf_index_words MATCH :query",
        # [("not", "paid"), ("ada",)] -> "not paid" AND "ada"*
        query=lambda terms: " AND ".join(f'"{" ".join(term)}"' for term in terms) + "*",
    )

    def __init__(self, path: Path, settings: JournalSettings) -> None:
        self.name = str(path)
        self._path = path
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[SqliteConnection] = []
        self._prepared = False

    def connect(self) -> SqliteConnection:
        """Open a connection for writing, which the caller must close."""
        return self._open()

    @contextmanager
    def reader(self) -> Generator[SqliteConnection]:
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

    def copy_to(self, path: Path) -> None:
        """Copy the database into an empty file; other processes can read and write meanwhile."""
        connection = self._open()
        try:
            connection.copy_to(path)
        finally:
            connection.close()

    def reclaim(self) -> None:
        """Release the space of deleted rows."""
        connection = self._open()
        try:
            self._vacuum(connection)
            # The log may be as large as the removed data, and nothing else truncates it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()

    def _vacuum(self, connection: SqliteConnection) -> None:
        """Free the unused pages in small batches, so that other processes can write in between."""
        ((free,),) = connection.execute("PRAGMA freelist_count")
        while free:
            connection.run_to_end(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
            old_free = free
            ((free,),) = connection.execute("PRAGMA freelist_count")
            # A file without incremental vacuum frees nothing, and the loop would never end.
            if free >= old_free:
                return

    def is_responding(self) -> bool:
        """Return True, because a file is always available."""
        return True

    def close(self) -> None:
        """Close pooled connections. Later use opens new connections."""
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
        """Create the file if needed, and switch it to WAL mode."""
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

    An existing file is not opened. Closing it would drop the POSIX locks of this process's SQLite
    connections, and other processes could then remove the write-ahead log in use.

    Raises:
        OSError: If the file cannot be created or written.
    """
    try:
        # O_EXCL refuses symbolic links, so resolve the path: the journal may be a link to a file on
        # another disk.
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.is_file():
            raise IsADirectoryError(errno.EISDIR, "it is not a file") from None
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be read and written") from None


def _use_wal(connection: SqliteConnection, deadline: float) -> None:
    """Switch the database to WAL mode; retry until the deadline while other processes lock it."""
    while True:
        try:
            if connection.execute("PRAGMA journal_mode")[0][0] == "wal":
                return
            # Without this, a pruned journal never shrinks. It has to be set before the first table
            # is created.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except JournalSetupError:
            raise
        except JournalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_MIN_POLL_SECONDS)


class SqliteChanges:
    """Waits for changes by polling SQLite's data version, less often if nothing changes for long.

    Args:
        connection: A connection that is used for nothing else.
    """

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        # Set to end the pause of :meth:`wait`, after a write of this process or by :meth:`close`.
        self._wake_event = threading.Event()
        self._closed = False
        self._pause = _MIN_POLL_SECONDS
        self._version = self._data_version()

    def wait(self) -> bool:
        """Block until there may be new data; return False after :meth:`close`."""
        # SQLite notifies no other process, so poll its counter of writes.
        while not self._wake_event.wait(self._pause):
            version = self._data_version()
            if version != self._version:
                self._version = version
                self._pause = _MIN_POLL_SECONDS
                return True
            # Back off while nobody writes, because the poll wakes up the processor.
            self._pause = min(self._pause * 1.3, _MAX_POLL_SECONDS)
        self._wake_event.clear()
        self._pause = _MIN_POLL_SECONDS
        return not self._closed

    def free(self) -> None:
        """Close the connection. Must be called in the thread that called :meth:`wait`."""
        self._connection.close()

    def poke(self) -> None:
        """Report a write of this process, which wakes :meth:`wait`."""
        self._wake_event.set()

    def close(self) -> None:
        """End :meth:`wait` for good."""
        self._closed = True
        self._wake_event.set()

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version")[0][0])


def _damage_error(message: str, path: Path) -> JournalSetupError:
    return JournalSetupError(
        f"the journal {path} is damaged, or no SQLite file: {message}",
        hint=f"move it away; sqlite3 {path} .recover may save what it holds",
    )


def _converted_error(error: sqlite3.Error, path: Path, waited: float) -> Exception:
    """Convert an error of SQLite to an error of the plugin with a message for the user.

    Args:
        error: The error.
        path: The path of the journal.
        waited: The maximum time in seconds that SQLite waits for another process's lock.
    """
    name = getattr(error, "sqlite_errorname", "") or ""
    kind = "_".join(name.split("_")[:2])  # SQLITE_BUSY_TIMEOUT -> SQLITE_BUSY
    if isinstance(error, sqlite3.IntegrityError):
        return DuplicateRowError(str(error))
    if kind in _DAMAGE_ERRORS:
        return _damage_error(str(error), path)
    if kind in _ACCESS_ERRORS:
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
