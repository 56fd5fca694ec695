"""SQLite in a process of its own, which can be bounded and killed.

One instruction of SQLite's machine may run for minutes and take gigabytes, and no handler is
asked in it. So statements run here: memory, files and time are bounded by the system, and when
the time is over the process ends. It sees its database and no other file, reaches no network and
starts no process: the authorizer is not all that holds a statement. Started as a script; takes
frames from standard input (length, then ``marshal``) and answers each. Only the standard library
and ``delf_confined`` are imported.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import resource
import signal
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, Final, NamedTuple

_LENGTH: Final = struct.Struct("<Q")
_STEPS: Final = 5000
"""Instructions of SQLite's machine between two looks at the clock."""
_GRACE_SECONDS: Final = 0.3
"""The seconds beyond its time in which a statement can end by itself, before its process is ended.
"""
_SMALLEST_LENGTH: Final = 64_000_000
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


class Opening(NamedTuple):
    """The database that a child opens.

    Args:
        uri: The file, with how to open it.
        reader: Whether nothing but reading is let pass.
        timeout: Seconds for each statement.
        busy: Seconds to wait for another's lock.
        max_bytes: About how much the rows of a result may hold.
        functions: Functions that a reader may call, by name or pattern.
        attached: Other files, each with its schema's name and how to open it.
        temporary: The most bytes of all temporary files, and of each.
        readable: Files that the process may read.
        writable: Files and folders that it may write.
        library: The folder of ``delf_confined``.
    """

    uri: str
    reader: bool
    timeout: float
    busy: float
    max_bytes: int
    functions: list[str]
    attached: list[tuple[str, str]]
    temporary: int
    readable: list[str]
    writable: list[str]
    library: str


class Work(NamedTuple):
    """The work of a child.

    Args:
        runs: Statements with their values; for a writer all or none.
        limit: The most rows to give back.
        many: Whether it is one statement for all values, which gives no rows.
    """

    runs: list[tuple[str, list[Any]]]
    limit: int
    many: bool


def weight(row: Sequence[Any]) -> int:
    """About how many bytes a row holds."""
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
                parts += (value, value.values())
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
        EOFError: When the other side has ended.
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
    """A result that exceeds its limit."""


class _FailedAtError(Exception):
    """A failure of one statement, with its number; its cause is SQLite's error."""


_FAILURES: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError)


class _Session:
    """The child's connection, with limits."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._deadline = float("inf")
        self.passed_over: str | None = None
        self.connection = self._open()

    def _open(self) -> sqlite3.Connection:
        own = self._opening
        connection = sqlite3.connect(own.uri, uri=True, isolation_level=None, timeout=own.busy)
        longest = min(max(own.max_bytes, _SMALLEST_LENGTH), _LARGEST_LENGTH)
        connection.execute(f"PRAGMA hard_heap_limit = {4 * longest}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN)
        for name, uri in own.attached:
            connection.execute(f'ATTACH ? AS "{name}"', (uri,))
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
        if own.reader:
            self.passed_over = _malformed(connection)
        else:
            connection.text_factory = _escaped
            connection.execute("PRAGMA foreign_keys = ON")
            # A write that was killed is rolled back by the next writer that reads.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        connection.set_authorizer(self._reading if own.reader else self._writing)
        connection.set_progress_handler(self._expired, _STEPS)
        return connection

    def _expired(self) -> bool:
        return time.monotonic() > self._deadline

    def stop(self, *_: object) -> None:
        """End the running statement at the next look at the clock."""
        self._deadline = 0.0

    def run(self, work: Work) -> tuple[Any, ...]:
        """Run a request within the timeout."""
        self._deadline = time.monotonic() + self._opening.timeout
        signal.setitimer(signal.ITIMER_REAL, self._opening.timeout + _GRACE_SECONDS)
        try:
            return self._read(work) if self._opening.reader else self._write(work)
        finally:
            self._deadline = float("inf")
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _read(self, work: Work) -> tuple[Any, ...]:
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
        return columns, rows, more, -1, _mend(columns, rows)

    def _read_once(self, work: Work) -> tuple[list[str], list[tuple[Any, ...]], bool]:
        with contextlib.closing(self.connection.execute(*work.runs[0])) as cursor:
            return self._collect(cursor, work.limit)

    def _write(self, work: Work) -> tuple[Any, ...]:
        """Run all sets or none; the session ends afterwards with all its temporary state."""
        columns: list[str] = []
        rows: list[Any] = []
        changed = 0
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            if work.many:
                values = [values for _, values in work.runs]
                changed = self.connection.executemany(work.runs[0][0], values).rowcount
            else:
                for number, (text, values) in enumerate(work.runs, 1):
                    try:
                        cursor = self.connection.execute(text, values)
                        columns, found, more = self._collect(cursor, work.limit - len(rows))
                    except _FAILURES as error:
                        raise _FailedAtError(number) from error
                    rows += found
                    changed += len(found) if columns else max(cursor.rowcount, 0)
                    if more:
                        return columns, rows, True, 0, []
            self.connection.commit()
        finally:
            self.connection.close()
            self.connection = self._open()
        return columns, rows, False, changed, _mend(columns, rows)

    def _collect(
        self, cursor: sqlite3.Cursor, limit: int
    ) -> tuple[list[str], list[tuple[Any, ...]], bool]:
        columns = [str(column[0]) for column in cursor.description or ()]
        rows: list[tuple[Any, ...]] = []
        held = 0
        for row in cursor:
            if len(rows) == limit:
                return columns, rows, True
            held += weight(row)
            if held > self._opening.max_bytes:
                raise _TooLargeError(len(rows) + 1)
            rows.append(row)
        return columns, rows, False

    def _reading(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _: str | None,
    ) -> int:
        if action in _READING:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            allowed = self._opening.functions
            return _unless(not any(fnmatchcase(name, pattern) for pattern in allowed))
        if action == sqlite3.SQLITE_PRAGMA:
            return _unless((first or "").lower() not in _READING_PRAGMAS)
        return _unless(not _opens_virtual_table(action, first, database))

    def _writing(
        self,
        action: int,
        first: str | None,
        second: str | None,
        _database: str | None,
        _: str | None,
    ) -> int:
        if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            return _unless((second or "").lower() in _FILE_FUNCTIONS)
        if action == sqlite3.SQLITE_PRAGMA:
            return _unless((first or "").lower() not in _READING_PRAGMAS)
        return sqlite3.SQLITE_OK


def _escaped(data: bytes) -> str:
    """Escape a text that may not be UTF-8; :func:`_mend` finds such parts."""
    return data.decode("utf-8", "surrogateescape")


def _mend(columns: list[str], rows: list[Any]) -> list[str]:
    """Put a mark in place of each byte that is not text, and name the columns that have any."""
    found: dict[str, None] = {}
    for number, row in enumerate(rows):
        wrong = [
            place
            for place, value in enumerate(row)
            if type(value) is str and not value.isascii() and not _is_utf8(value)
        ]
        if wrong:
            mended = list(row)
            for place in wrong:
                raw = row[place].encode("utf-8", "surrogateescape")
                mended[place] = raw.decode("utf-8", "replace")
                found[columns[place]] = None
            rows[number] = tuple(mended)
    return list(found)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _malformed(connection: sqlite3.Connection) -> str | None:
    """Find the part of the schema that makes no sense, as a view in a newer SQLite's words.

    By itself SQLite refuses to read anything of such a file.
    """
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.DatabaseError as error:
        if not str(error).startswith("malformed database schema"):
            return None  # the first statement says so
        # The file is open for reading only, and the authorizer lets no statement change it.
        connection.execute("PRAGMA writable_schema = ON")
        return str(error)
    return None


def _opens_virtual_table(action: int, table: str | None, database: str | None) -> bool:
    """Return whether SQLite prepares a virtual table (json_each, FTS, R-tree) for reading.

    SQLite would write to the file's own tables, which the read-only file does not allow.
    """
    if database in (None, "temp") or table is None:
        return False
    if action == sqlite3.SQLITE_UPDATE:
        return table == "sqlite_master"
    changes = action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_DELETE)
    return changes and table.endswith(_RTREE_TABLES)


def _unless(denied: bool) -> int:
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK


def _bound(opening: Opening) -> None:
    """Let the system bound this process."""
    longest = min(max(opening.max_bytes, _SMALLEST_LENGTH), _LARGEST_LENGTH)
    bounds = {resource.RLIMIT_AS: 4 * longest + 6 * opening.max_bytes + _SPARE_MEMORY}
    bounds[resource.RLIMIT_CORE] = 0
    if opening.reader:
        bounds[resource.RLIMIT_FSIZE] = opening.temporary
    for what, most in bounds.items():
        with contextlib.suppress(ValueError, OSError):  # where the system has a lower one
            resource.setrlimit(what, (most, most))


def confine(opening: Opening) -> None:
    """Take from this process all that its database does not need, where the kernel can."""
    sys.path.append(opening.library)
    from delf_confined import landlock, seccomp
    from delf_confined.confine import SYSTEM_FILES

    if landlock.version():
        landlock.restrict([*sys.path, *SYSTEM_FILES, *opening.readable], opening.writable)
    if seccomp.supported():
        seccomp.install(threads=True, writes=True, locks=True)


def _answer(work: Callable[[], tuple[Any, ...]], *, reader: bool) -> tuple[Any, ...]:
    try:
        return "done", *work()
    except _FailedAtError as error:
        return "failed", str(error.__cause__), error.args[0]
    except _TooLargeError as error:
        return "large", error.args[0]
    except MemoryError:
        return "failed", "out of memory: the statement needs more than it may have"
    except sqlite3.OperationalError as error:
        if reader and error.sqlite_errorcode == sqlite3.SQLITE_IOERR_WRITE:
            return "failed", NO_ROOM
        return "failed", str(error)
    except _FAILURES as error:
        return "failed", str(error)


def main() -> None:
    """Open the database of the first frame, then answer one frame after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # and without it nobody reads the answers
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    opening = Opening(*receive(requests))
    _bound(opening)
    confine(opening)
    sessions: list[_Session] = []

    def open_() -> tuple[Any, ...]:
        sessions.append(_Session(opening))
        return (sessions[0].passed_over,)

    send(answers, _answer(open_, reader=opening.reader))
    if not sessions:
        return
    session = sessions[0]
    if not opening.reader:
        signal.signal(signal.SIGTERM, session.stop)
    while True:
        work = Work(*receive(requests))
        send(answers, _answer(functools.partial(session.run, work), reader=opening.reader))


if __name__ == "__main__":
    with contextlib.suppress(EOFError):  # the parent has ended
        main()
