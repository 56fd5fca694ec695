"""SQLite in a process of its own, which can be limited and killed.

A single SQLite instruction may run for minutes and take gigabytes without calling a handler. In
this process the operating system limits memory, files and time. The process sees only its database
files, has no network and starts no processes, so the authorizer is not the only barrier. It runs as
a script that reads frames (length, then ``marshal``) from standard input and answers each; it
imports only the standard library and ``delf_confined``.
"""

from __future__ import annotations

import contextlib
import marshal
import resource
import signal
import sqlite3
import struct
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, Final, NamedTuple

_LENGTH: Final = struct.Struct("<Q")
# The number of SQLite instructions between two checks of the timeout.
_STEPS_PER_CHECK: Final = 5000
# The seconds that a statement gets after its timeout, before its process is killed.
_GRACE_SECONDS: Final = 0.3
# The smallest limit for one text or blob in SQLite, even if ``max_bytes`` is smaller.
_MIN_LENGTH_BYTES: Final = 64_000_000
_LARGEST_LENGTH: Final = 1_000_000_000
_LONGEST_PATTERN: Final = 1000
_SPARE_MEMORY: Final = 300_000_000
_ROW_BYTES: Final = 64
NO_ROOM: Final = "the statement needs more room for temporary files than it may have"
_NO_UTF8: Final = "Could not decode to UTF-8"

_READING: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_READING_PRAGMAS: Final = frozenset(
    {
        "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo",
        "foreign_key_list", "database_list", "collation_list", "function_list", "data_version",
    }
)  # fmt: skip
_FILE_FUNCTIONS: Final = frozenset(
    {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}
)
_RTREE_TABLES: Final = ("_node", "_rowid", "_parent")


class OpenOptions(NamedTuple):
    """The parameters for opening a database in a child process.

    Args:
        uri: The file as a SQLite URI.
        read_only: Whether the process may only read the database.
        timeout: Seconds for each statement.
        busy: Seconds to wait for a lock.
        max_bytes: The approximate maximum number of bytes of a result.
        functions: Additional functions that a process which only reads may call, by name or
            pattern.
        attached: Attached files, each with schema name and URI.
        max_temporary_bytes: The maximum size of all temporary files together. With ``read_only``,
            also the maximum size of each file that the process writes.
        readable: Files that the process may read.
        writable: Files and folders that the process may write.
        library: The folder from which the process can import ``delf_confined``.
    """

    uri: str
    read_only: bool
    timeout: float
    busy: float
    max_bytes: int
    functions: list[str]
    attached: list[tuple[str, str]]
    max_temporary_bytes: int
    readable: list[str]
    writable: list[str]
    library: str


class Work(NamedTuple):
    """Statements for a child to run.

    Args:
        statements: Pairs of a statement and its values; a writer executes all or none.
        limit: The maximum number of rows to return.
        many: Whether all pairs have the same statement without returned rows, so that one call of
            ``executemany`` can execute the statement with all values.
    """

    statements: list[tuple[str, list[Any]]]
    limit: int
    many: bool


class _Written(NamedTuple):
    """The result of the statements of a write.

    Args:
        columns: The names of the columns of the rows.
        rows: The rows that the statements returned.
        more: Whether there are more rows than allowed.
        changed: The number of changed rows.
    """

    columns: list[str]
    rows: list[Any]
    more: bool
    changed: int


def weight(row: Sequence[Any]) -> int:
    """Estimate the size of a row in bytes."""
    size = _ROW_BYTES
    parts: list[Any] = [row]
    while parts:
        for value in parts.pop():
            if isinstance(value, (str, bytes)):
                size += len(value)
                continue
            size += sys.getsizeof(value)
            if isinstance(value, (list, tuple)):
                parts.append(value)
            elif isinstance(value, dict):
                parts += (value.keys(), value.values())
    return size


def send(pipe: BinaryIO, message: Any) -> None:
    """Write a frame."""
    data = marshal.dumps(message)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """Read a frame.

    Raises:
        EOFError: If the other side has closed the pipe.
    """
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return marshal.loads(data)  # noqa: S302 - from our own child, or our own parent


class _TooLargeError(Exception):
    """A result exceeds its limit."""


class _FailedAtError(Exception):
    """A statement among several has failed; holds the statement's number, from 1.

    The ``__cause__`` is SQLite's error.
    """


_FAILURES: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError)
_REPORTED_ERRORS: Final = (*_FAILURES, MemoryError, _FailedAtError, _TooLargeError)


class _Session:
    """The SQLite connection of this child process, with limits and an authorizer."""

    def __init__(self, open_options: OpenOptions) -> None:
        self._open_options = open_options
        self._deadline = float("inf")
        # SQLite's message about a definition in the file that SQLite cannot parse; set by _open().
        self.unparsable_definition: str | None = None
        self.connection = self._open()

    def _open(self) -> sqlite3.Connection:
        """Open the connection with its limits, its attached files and its authorizer."""
        open_options = self._open_options
        connection = sqlite3.connect(
            open_options.uri, uri=True, isolation_level=None, timeout=open_options.busy
        )
        connection.execute(f"PRAGMA hard_heap_limit = {_heap_bytes(open_options)}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _max_value_bytes(open_options))
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN)
        for name, uri in open_options.attached:
            connection.execute(f'ATTACH ? AS "{name}"', (uri,))
        # Once the user's own files are attached, no statement may attach another one.
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
        if open_options.read_only:
            # Only for a reader: skipping needs the setting ``writable_schema``, by which a writer's
            # statements could change definitions.
            self.unparsable_definition = _skip_unparsable_definition(connection)
        else:
            # The rows of RETURNING may have bytes that are not valid UTF-8. A reader decodes such
            # bytes in a second run of its query, but a write must not run twice.
            connection.text_factory = _escaped
            connection.execute("PRAGMA foreign_keys = ON")
            # If the process of an earlier write was killed, this read makes SQLite roll it back.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        connection.set_authorizer(
            self._authorize_reader if open_options.read_only else self._authorize_writer
        )
        connection.set_progress_handler(self._is_expired, _STEPS_PER_CHECK)
        return connection

    def _is_expired(self) -> bool:
        return time.monotonic() > self._deadline

    def stop(self, *_: object) -> None:
        """Interrupt the running statement at the next check of the timeout."""
        self._deadline = 0.0

    def run(self, work: Work) -> tuple[Any, ...]:
        """Run statements within the timeout."""
        self._deadline = time.monotonic() + self._open_options.timeout
        # SQLite does not call the progress handler, which checks the deadline, while a long call of
        # an SQL function runs. The alarm then ends the process.
        signal.setitimer(signal.ITIMER_REAL, self._open_options.timeout + _GRACE_SECONDS)
        try:
            if self._open_options.read_only:
                return self._read(work)
            return self._write(work)
        finally:
            self._deadline = float("inf")
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _read(self, work: Work) -> tuple[Any, ...]:
        """Run a query; if a text is not valid UTF-8, run the query again with escaped bytes.

        Returns:
            The columns, the rows, whether there are more rows, the number of changed rows (-1 for a
            query), and the names of columns in which invalid bytes were replaced.
        """
        try:
            columns, rows, more = self._read_once(work)
        except sqlite3.OperationalError as error:
            if not str(error).startswith(_NO_UTF8):
                raise
            self.connection.text_factory = _escaped
            try:
                columns, rows, more = self._read_once(work)
            finally:
                self.connection.text_factory = str
        return columns, rows, more, -1, _replace_invalid_bytes(columns, rows)

    def _read_once(self, work: Work) -> tuple[list[str], list[tuple[Any, ...]], bool]:
        """Run a query; return the columns, the rows, and True if there are more rows."""
        (statement_and_values,) = work.statements  # only a write has several statements
        with contextlib.closing(self.connection.execute(*statement_and_values)) as cursor:
            return self._collect(cursor, work.limit)

    def _write(self, work: Work) -> tuple[Any, ...]:
        """Run all statements in one transaction, then reopen the connection.

        Thus temporary tables and settings of the connection do not last.

        Returns:
            The column names, the rows, whether there are too many rows, the number of changed rows,
            and the names of columns with text that is not valid UTF-8.
        """
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            written = self._execute_many(work) if work.many else self._execute_each(work)
            # A statement that returns too many rows must fail as a whole: without a commit, closing
            # the connection rolls back all changes.
            if not written.more:
                self.connection.commit()
        finally:
            self.connection.close()
            self.connection = self._open()
        columns_with_invalid_text = _replace_invalid_bytes(written.columns, written.rows)
        changed = 0 if written.more else written.changed
        return written.columns, written.rows, written.more, changed, columns_with_invalid_text

    def _execute_many(self, work: Work) -> _Written:
        """Execute one statement with several sets of values; the statement has no RETURNING."""
        text, _ = work.statements[0]
        value_sets = [values for _, values in work.statements]
        cursor = self.connection.executemany(text, value_sets)
        return _Written([], [], more=False, changed=max(cursor.rowcount, 0))

    def _execute_each(self, work: Work) -> _Written:
        """Execute statements in turn, until one returns more rows than ``work.limit`` allows."""
        columns: list[str] = []
        rows: list[Any] = []
        changed = 0
        for number, (text, values) in enumerate(work.statements, 1):
            total_before = self.connection.total_changes
            try:
                cursor = self.connection.execute(text, values)
                own_columns, own_rows, more = self._collect(cursor, work.limit - len(rows))
            except _FAILURES as error:
                raise _FailedAtError(number) from error
            if own_columns:
                columns = own_columns
                rows += own_rows
            changed += self._count_changes(total_before)
            if more:
                return _Written(columns, rows, more=True, changed=changed)
        return _Written(columns, rows, more=False, changed=changed)

    def _count_changes(self, total_before: int) -> int:
        """Return the number of rows that the last statement changed, without those of triggers.

        The driver's own count is unknown for a statement that begins with WITH.
        """
        if self.connection.total_changes == total_before:
            return 0  # changes() still has the number of an earlier statement
        ((changed,),) = self.connection.execute("SELECT changes()")
        return int(changed)

    def _collect(
        self, cursor: sqlite3.Cursor, limit: int
    ) -> tuple[list[str], list[tuple[Any, ...]], bool]:
        """Return the column names, at most ``limit`` rows, and whether there are more rows."""
        columns = [str(column[0]) for column in cursor.description or ()]
        rows: list[tuple[Any, ...]] = []
        total_bytes = 0
        for row in cursor:
            if len(rows) == limit:
                return columns, rows, True
            total_bytes += weight(row)
            if total_bytes > self._open_options.max_bytes:
                raise _TooLargeError(len(rows) + 1)
            rows.append(row)
        return columns, rows, False

    def _authorize_reader(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _: str | None,
    ) -> int:
        """Allow a reader to read, to call allowed functions, and to use pragmas that only read.

        SQLite calls this method for each part of a statement. The action says what ``first`` and
        ``second`` are, such as the names of a table and a column.
        """
        if action in _READING:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            allowed = self._open_options.functions
            return _allow_if(any(fnmatchcase(name, pattern) for pattern in allowed))
        if action == sqlite3.SQLITE_PRAGMA:
            pragma = (first or "").lower()
            return _allow_if(pragma in _READING_PRAGMAS)
        # The first query of a virtual table makes SQLite prepare a write to the schema, which is
        # never executed.
        return _allow_if(_is_unexecuted_write(action, first, database))

    def _authorize_writer(
        self,
        action: int,
        first: str | None,
        second: str | None,
        _database: str | None,
        _: str | None,
    ) -> int:
        """Refuse a writer ATTACH, DETACH, file functions and pragmas that do more than read."""
        if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            return _allow_if(name not in _FILE_FUNCTIONS)
        if action == sqlite3.SQLITE_PRAGMA:
            pragma = (first or "").lower()
            return _allow_if(pragma in _READING_PRAGMAS)
        return sqlite3.SQLITE_OK


def _escaped(data: bytes) -> str:
    """Decode text that may not be UTF-8, escaping invalid bytes.

    :func:`_replace_invalid_bytes` finds the escaped bytes.
    """
    return data.decode("utf-8", "surrogateescape")


def _replace_invalid_bytes(columns: list[str], rows: list[Any]) -> list[str]:
    """Replace bytes in ``rows`` that are not valid UTF-8 by U+FFFD.

    Return the names of the columns with such bytes. :func:`_escaped` has decoded each such byte to
    a surrogate.
    """
    affected_columns: dict[str, None] = {}
    for number, row in enumerate(rows):
        indexes = [index for index, value in enumerate(row) if _has_invalid_bytes(value)]
        if not indexes:
            continue
        repaired_row = list(row)
        for index in indexes:
            content = row[index].encode("utf-8", "surrogateescape")
            repaired_row[index] = content.decode("utf-8", "replace")
            affected_columns[columns[index]] = None
        rows[number] = tuple(repaired_row)
    return list(affected_columns)


def _has_invalid_bytes(value: Any) -> bool:
    """Return True for a text with surrogates, which stand for bytes that are not UTF-8."""
    if type(value) is not str or value.isascii():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _skip_unparsable_definition(connection: sqlite3.Connection) -> str | None:
    """Make SQLite skip a definition, such as that of a table, that this SQLite cannot parse.

    The definition may need a newer SQLite. This SQLite would otherwise refuse to read the file.

    Returns:
        SQLite's error message about the definition; None if no definition is skipped.
    """
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.DatabaseError as error:
        if not str(error).startswith("malformed database schema"):
            return None  # the first statement will raise the same error
        # The setting also allows changes of definitions, but the file is open for reading only.
        connection.execute("PRAGMA writable_schema = ON")
        return str(error)
    return None


def _is_unexecuted_write(action: int, table: str | None, database: str | None) -> bool:
    """Return True for a write that SQLite only prepares, because a query reads a virtual table.

    SQLite asks for permission, but does not execute the write.

    Args:
        action: The number of SQLite's action, such as ``SQLITE_INSERT``.
        table: The table to write; None if the action has no table.
        database: ``main``, the name of an attached file, or ``temp`` for the temporary database;
            None if SQLite names no database.
    """
    # The temporary database is writable, so a write there would be executed. A database without a
    # name may be the temporary database.
    if database in (None, "temp") or table is None:
        return False
    # To learn the columns of a virtual table, SQLite prepares the statement CREATE TABLE, which
    # updates sqlite_master.
    if action == sqlite3.SQLITE_UPDATE:
        return table == "sqlite_master"
    # The module ``rtree`` prepares changes of its own tables, such as ``places_node``.
    is_insert_or_delete = action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_DELETE)
    return is_insert_or_delete and table.endswith(_RTREE_TABLES)


def _allow_if(condition: bool) -> int:
    return sqlite3.SQLITE_OK if condition else sqlite3.SQLITE_DENY


def _max_value_bytes(open_options: OpenOptions) -> int:
    """Return the maximum number of bytes of a text, a blob or a statement."""
    return min(max(open_options.max_bytes, _MIN_LENGTH_BYTES), _LARGEST_LENGTH)


def _heap_bytes(open_options: OpenOptions) -> int:
    """Return the maximum number of bytes that SQLite may allocate."""
    # Room for four of the largest values, such as a function's arguments and its result.
    return 4 * _max_value_bytes(open_options)


def _limit_resources(open_options: OpenOptions) -> None:
    """Limit this process's memory.

    If the database is opened read-only, the size of each file is limited, too, because only
    temporary files are written then.
    """
    # An estimate: rows take the memory of Python objects and of their encoded form.
    row_bytes = 6 * open_options.max_bytes
    # The memory of SQLite, of the rows, and of Python itself.
    limits = {resource.RLIMIT_AS: _heap_bytes(open_options) + row_bytes + _SPARE_MEMORY}
    limits[resource.RLIMIT_CORE] = 0
    if open_options.read_only:
        limits[resource.RLIMIT_FSIZE] = open_options.max_temporary_bytes
    for limit, value in limits.items():
        with contextlib.suppress(ValueError, OSError):  # the system's limit is lower
            resource.setrlimit(limit, (value, value))


def confine(open_options: OpenOptions) -> None:
    """Drop this process's access to everything but its database, where the kernel supports that."""
    # The process started without site-packages, where Python would look for delf_confined.
    sys.path.append(open_options.library)
    from delf_confined import landlock, seccomp
    from delf_confined.confine import SYSTEM_FILES

    if landlock.version():
        landlock.restrict([*sys.path, *SYSTEM_FILES, *open_options.readable], open_options.writable)
    if seccomp.is_supported():
        seccomp.install(seccomp.Permissions(threads=True, writes=True, locks=True))


def _failure_message(error: Exception, *, read_only: bool) -> tuple[Any, ...]:
    """Return a message for the parent process about a failure.

    Args:
        error: One of ``_REPORTED_ERRORS``.
        read_only: Whether the process may only read the database.

    Returns:
        ``("large", ROW_COUNT)`` if a result is too large, else ``("failed", TEXT)``, with the
        number of the failed statement as a third item if the error is a :class:`_FailedAtError`.
    """
    if isinstance(error, _FailedAtError):
        return "failed", str(error.__cause__), error.args[0]
    if isinstance(error, _TooLargeError):
        return "large", error.args[0]
    if isinstance(error, MemoryError):
        return "failed", "out of memory: the statement needs more than it may have"
    # A reader writes only temporary files, and writing fails at the limit on their size.
    error_code = getattr(error, "sqlite_errorcode", None)
    if read_only and error_code == sqlite3.SQLITE_IOERR_WRITE:
        return "failed", NO_ROOM
    return "failed", str(error)


def _answer(session: _Session, work: Work, read_only: bool) -> tuple[Any, ...]:
    try:
        return "done", *session.run(work)
    except _REPORTED_ERRORS as error:
        return _failure_message(error, read_only=read_only)


def main() -> None:
    """Open the database that the first frame describes, then run the work of each further frame."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # exit if the parent is gone
    requests = sys.stdin.buffer
    answers = sys.stdout.buffer
    open_options = OpenOptions(*receive(requests))
    _limit_resources(open_options)
    # Confine before the file is opened, because its content may attack the code that reads it.
    confine(open_options)
    try:
        session = _Session(open_options)
    except _REPORTED_ERRORS as error:
        send(answers, _failure_message(error, read_only=open_options.read_only))
        return
    # The parent puts the message, if any, into the description of the database.
    send(answers, ("done", session.unparsable_definition))
    if not open_options.read_only:  # a write must be rolled back, a read may just be killed
        signal.signal(signal.SIGTERM, session.stop)
    while True:
        # Keep the answer in no variable: its rows would take memory until the next answer.
        send(answers, _answer(session, Work(*receive(requests)), open_options.read_only))


if __name__ == "__main__":
    with contextlib.suppress(EOFError):  # the parent has ended
        main()
