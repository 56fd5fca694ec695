"""SQLite, with a process for each connection (``sqlite_child``).

Queries are confined by a read-only file handle, an authorizer and operating system limits.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import selectors
import signal
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Collection, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import quote

from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import QueuePool

import delf_confined
from delf.errors import DelfError
from delf.machine.folders import expand_home
from delf.machine.forks import TemporaryFolder
from delf.machine.interpreter import own_python
from delf.machine.own_files import make_private_file
from delf_sql import sqlite_child
from delf_sql.backends.base import Problem, WriteResult, can_batch, first_line, missing_file_error
from delf_sql.catalog import Relation, Table, find_relation, tables_of
from delf_sql.fitting import check_values, loses_digits_as_float
from delf_sql.functions import known_functions
from delf_sql.gate import Statement
from delf_sql.placeholders import BoundStatement, Params, bind
from delf_sql.rows import Fetched, too_large_error
from delf_sql.settings import SQLSettings
from delf_sql.sqlite_child import OpenOptions, Work, receive, send
from delf_sql.target import Target
from delf_sql.targets import column_types_of
from delf_sql.values import for_sqlite

_BUSY_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.25
SPARE_FILE_BYTES: Final = 1_000_000_000
"""The disk space for temporary files, in addition to four times the size of the database."""
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "SQLITE_TMPDIR", "TMPDIR")
_ALL: Final = 1_000_000
# Matches the column types for which SQLite converts integers to floats.
_FLOAT_TYPE: Final = re.compile(r"real\b|float|double")

# The type of the tables in which a virtual table keeps its data is ``shadow``.
_RELATIONS: Final = """
SELECT name, type = 'view' FROM pragma_table_list
WHERE schema = ? AND type <> 'shadow' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
"""
# Queries for the rows of :func:`tables_of`. Their parameter is a JSON list of (name, schema) pairs;
# in each row, ``key`` is the index of the table in this list.
_COLUMNS: Final = """
SELECT t.key, c.name, lower(coalesce(nullif(c.type, ''), 'any')), NOT (c."notnull" OR c.pk), NULL
FROM json_each(?) t, pragma_table_xinfo(t.value ->> 0, t.value ->> 1) c
WHERE c.hidden <> 1 ORDER BY t.key, c.cid
"""
# Without a column, a foreign key refers to the primary key of the other table.
_CONSTRAINTS: Final = """
WITH t AS (SELECT key, value FROM json_each(?))
SELECT key, name, role, other FROM (
    SELECT t.key, c.name, 'p' AS role, NULL AS other, 0 AS id, 0 AS seq
    FROM t, pragma_table_xinfo(t.value ->> 0, t.value ->> 1) c WHERE c.pk
    UNION ALL
    SELECT t.key, k."from", 'f', iif(t.value ->> 1 = 'main', '', (t.value ->> 1) || '.')
        || k."table" || coalesce('.' || k."to", ''), k.id, k.seq
    FROM t, pragma_foreign_key_list(t.value ->> 0, t.value ->> 1) k)
ORDER BY key, id, seq
"""
# The maximum number of tables whose columns or keys one catalogue query reads.
_MAX_TABLES_PER_QUERY: Final = 100

# The position of the file format versions in a database file.
_VERSIONS_POSITION: Final = 18
# The file format versions of a database that uses a write-ahead log.
_WAL_VERSIONS: Final = b"\x02\x02"
_LIBRARY: Final = str(Path(delf_confined.__file__).resolve().parents[1])
_PROCESS_ENDED: Final = "disk I/O error: its process ended"


class _SqliteError(Exception):
    """A failure reported by SQLite.

    Args:
        text: SQLite's message.
        number: The number of the failed statement, if known.
    """

    def __init__(self, text: str, number: int | None = None) -> None:
        super().__init__(text)
        self.number = number


class _Child:
    """A child process with the open file, pooled like a driver's connection.

    Args:
        open_options: The parameters for opening the file.
        files: The database files.

    Raises:
        _SqliteError: If the file cannot be opened.
    """

    def __init__(self, open_options: OpenOptions, files: Sequence[Path] = ()) -> None:
        self._open_options = open_options
        self._files = files
        # Look for logs before the process starts, so that is_stale notices a log that is created
        # during the start.
        self._files_with_write_ahead_log = self._find_files_with_write_ahead_log()
        self._folder = TemporaryFolder("delf-sqlite-", os.environ.get("SQLITE_TMPDIR"))
        self._process = _start_process(self._folder.name)
        writable = [*open_options.writable, self._folder.name]
        options_of_child = open_options._replace(writable=writable)
        self._idle = threading.Event()  # set when a statement has ended
        try:
            # The child process first opens the file. Its answer is SQLite's message about a
            # definition in the file that SQLite cannot parse; None if there is no such definition.
            (self.unparsable_definition,) = self._ask(tuple(options_of_child))
        except BaseException:
            self.close()
            raise

    def _find_files_with_write_ahead_log(self) -> list[Path]:
        return [file for file in self._files if _has_write_ahead_log(file)]

    def run(self, work: Work) -> Fetched:
        """Run statements in the child process.

        Raises:
            _SqliteError: If SQLite fails.
            TimeoutError: If the timeout is exceeded.
        """
        started = time.monotonic()
        self._idle.clear()
        try:
            columns, rows, more, changed, columns_with_invalid_text = self._ask(tuple(work))
        except (EOFError, OSError):  # the process has ended; at the timeout, it ends itself
            self.close()
            if time.monotonic() - started >= self._open_options.timeout:
                raise TimeoutError from None
            raise _SqliteError(_PROCESS_ENDED) from None
        finally:
            self._idle.set()
        return Fetched(
            tuple(columns),
            rows,
            more,
            changed=changed,
            columns_with_invalid_text=tuple(columns_with_invalid_text),
        )

    def _ask(self, message: Any) -> Sequence[Any]:
        """Send a message to the process, and return its answer; raise for a failure."""
        send(cast("BinaryIO", self._process.stdin), message)
        self._wait_for_answer()
        kind, *answer = receive(cast("BinaryIO", self._process.stdout))
        if kind == "large":
            raise too_large_error(self._open_options.max_bytes, answer[0])
        if kind == "failed":
            raise _SqliteError(*answer)
        return answer

    def _wait_for_answer(self) -> None:
        """Wait for the child's answer; raise if its temporary files exceed the limit."""
        # The system limits only each file, and nested sorts with many files could fill the disk.
        # SQLite deletes its temporary files when it opens them, so add up the deleted open files.
        with selectors.DefaultSelector() as selector:
            selector.register(cast("BinaryIO", self._process.stdout), selectors.EVENT_READ)
            while not selector.select(LOOK_SECONDS):
                temporary_bytes = _bytes_of_deleted_files(self._process.pid)
                if temporary_bytes > self._open_options.max_temporary_bytes:
                    self.close()
                    raise _SqliteError(sqlite_child.NO_ROOM)

    @property
    def is_alive(self) -> bool:
        """True if the process is running."""
        return self._process.poll() is None

    @property
    def is_stale(self) -> bool:
        """True if a file has got a write-ahead log, or lost it, since the process started.

        SQLite writes a write-ahead log even to read, and the process may write only the logs that
        existed at its start. So a stale process must be replaced.
        """
        return self._files_with_write_ahead_log != self._find_files_with_write_ahead_log()

    def stop(self) -> None:
        """Stop the running statement and end the process.

        A writer is first asked to end the statement itself, so that no rollback journal is left.
        """
        if not self._open_options.read_only:
            self._process.send_signal(signal.SIGTERM)
            self._idle.wait(_STOP_SECONDS)
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Kill the process at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                cast("BinaryIO", pipe).close()
        self._folder.remove()


def _start_process(temporary_folder: str) -> subprocess.Popen[bytes]:
    """Start a child process that makes its temporary files in a folder."""
    environ = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environ["SQLITE_TMPDIR"] = temporary_folder
    # Without site-packages the child starts faster and runs no .pth files.
    command = [own_python(), "-I", "-S", sqlite_child.__file__]
    return subprocess.Popen(  # noqa: S603 - ours
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        process_group=0,  # only the parent handles Ctrl-C
    )


def _has_large_integer(bound: BoundStatement) -> bool:
    """Return True if a value is an integer that a float column would round."""
    integers = [value for value in bound.values if isinstance(value, int)]
    return any(loses_digits_as_float(integer) for integer in integers)


class SqliteBackend:
    """The backend for SQLite, with a process for each connection.

    Args:
        target: The file.
        settings: The limits of a statement.
    """

    grace = 1.0
    one_at_a_time = False

    def __init__(self, target: Target, settings: SQLSettings) -> None:
        self.target = target
        self._settings = settings
        # The pools of processes by ``read_only``; _pool() makes each pool at its first use.
        self._pools: dict[bool, QueuePool] = {}
        # Held while a pool is made or removed.
        self._lock = threading.Lock()

    def create(self) -> None:
        """Create an empty file that only its owner may read: a database without tables.

        Raises:
            OSError: If the file cannot be created.
        """
        make_private_file(_absolute(self.target.database))

    @contextlib.contextmanager
    def session(self, *, read_only: bool) -> Generator[_Child]:
        """Yield a pooled process; with ``read_only``, a process that has the file open read-only.

        Any process of a pool fits: a reader keeps no state, and a writer reopens the file for each
        write.
        """
        pool = self._pool(read_only)
        pooled = pool.connect()
        child = cast("_Child", pooled.driver_connection)
        try:
            yield child
        finally:
            was_disposed = self._pools.get(read_only) is not pool
            was_killed = not child.is_alive
            if was_disposed or was_killed:
                pooled.invalidate()
            pooled.close()
            if was_killed and not read_only:
                self._roll_back_killed_writer()

    def _pool(self, read_only: bool) -> QueuePool:
        """Return the pool of reading or of writing processes, making it at its first use."""
        with self._lock:
            if read_only not in self._pools:
                pool = QueuePool(
                    lambda: self._open(read_only=read_only),  # pyright: ignore[reportArgumentType]
                    pool_size=self._settings.pool_size,
                    max_overflow=0,
                    reset_on_return=None,
                )
                event.listen(pool, "checkout", _check_alive)
                self._pools[read_only] = pool
            return self._pools[read_only]

    def _open(self, *, read_only: bool) -> _Child:
        """Start a process that can access only the database's files and the attached files."""
        settings = self._settings
        database = self.target.database
        mode = "ro" if read_only else "rw"
        may_create = settings.create and not read_only
        if may_create:
            mode = "rwc"
        path = _absolute(database) if may_create else _existing_file(database)
        attached = {name: _existing_file(file) for name, file in settings.attach.items()}
        # SQLite follows links, too, and puts its journal and log beside the real file.
        files = [Path(os.path.realpath(each)) for each in (path, *attached.values())]
        total_size = sum(file.stat().st_size for file in files if file.is_file())
        options = OpenOptions(
            uri=_uri(path, mode),
            read_only=read_only,
            timeout=settings.statement_timeout,
            busy=min(_BUSY_SECONDS, settings.statement_timeout),
            max_bytes=settings.max_bytes,
            functions=sorted(known_functions("sqlite") | settings.functions),
            attached=[(name, _uri(file, "ro")) for name, file in attached.items()],
            # Sorting and VACUUM may need several copies of the data.
            max_temporary_bytes=4 * total_size + SPARE_FILE_BYTES,
            readable=[each for file in files for each in _database_files(file)],
            writable=_written_folders(files, read_only=read_only),
            library=_LIBRARY,
        )
        return _Child(options, files)

    def read(self, session: _Child, statement: Statement, params: Params, limit: int) -> Fetched:
        """Run a query; sqlite3 itself refuses a text with a second statement."""
        bound = bind(statement.text, statement.tokens, params, "sqlite", for_sqlite)
        return self._run(session, bound.text(), bound.values, limit)

    def _run(self, session: _Child, text: str, values: Sequence[Any], limit: int) -> Fetched:
        return session.run(Work([(text, list(values))], limit, many=False))

    def write(
        self, session: _Child, changes: Sequence[tuple[Statement, Sequence[Params]]]
    ) -> WriteResult:
        """Run statements with their sets of parameters in one transaction."""
        bound_statements = [
            bind(statement.text, statement.tokens, params, "sqlite", for_sqlite)
            for statement, parameter_sets in changes
            for params in parameter_sets
        ]
        self._refuse_integers_that_would_be_rounded(session, bound_statements)
        statements = [(bound.text(), bound.values) for bound in bound_statements]
        first_statement, _ = changes[0]
        is_batch = (
            len(changes) == 1
            and can_batch(first_statement, bound_statements)
            # The driver does not count the changes of a statement that begins with WITH.
            and first_statement.tokens[0].word != "WITH"
        )
        fetched = session.run(Work(statements, self._settings.max_rows, is_batch))
        result = WriteResult()
        result.add(fetched.changed, fetched)
        # For RETURNING, add() has counted the returned rows. Replace this count by SQLite's count
        # of the changes.
        result.rowcount = fetched.changed
        return result

    def _refuse_integers_that_would_be_rounded(
        self, session: _Child, bound_statements: Sequence[BoundStatement]
    ) -> None:
        """Refuse an integer for a float column if the conversion would round it.

        SQLite stores all other values unchanged, because its columns hold values of any type.
        """
        statements_to_check = [each for each in bound_statements if _has_large_integer(each)]
        if not statements_to_check:
            return
        find_table = functools.partial(self._find_table, session, self.relations(session))
        for bound in statements_to_check:
            float_types = [
                kind if kind is not None and _FLOAT_TYPE.match(kind) else None
                for kind in column_types_of(bound, "sqlite", find_table)
            ]
            check_values(bound, float_types)

    def _find_table(
        self, session: _Child, relations: Sequence[Relation], name: str
    ) -> Table | None:
        relation = find_relation(name, relations)
        return None if relation is None else self._table(session, relation)

    def without_transactions(self, session: _Child, names: Collection[str]) -> Sequence[Any]:
        """Return an empty list: all tables of SQLite have transactions."""
        return ()

    def relations(self, session: _Child) -> list[Relation]:
        """Return all tables and views except SQLite's internal ones.

        The tables of an attached file have the file's name as their schema.
        """
        relations = self._relations(session, None)
        for schema in self._settings.attach:
            relations += self._relations(session, schema)
        return relations

    def _relations(self, session: _Child, schema: str | None) -> list[Relation]:
        """Return a schema's tables and views, without the internal tables of virtual tables."""
        sqlite_schema = schema or "main"
        return [
            Relation(
                name=name,
                schema=schema,
                kind="view" if is_view else "table",
                key=(name, sqlite_schema),
            )
            for name, is_view in self._run(session, _RELATIONS, [sqlite_schema], _ALL).rows
        ]

    def tables(self, session: _Child, relations: Sequence[Relation]) -> list[Table]:
        """Return tables with their columns; a broken table does not affect the others."""
        tables: list[Table] = []
        for start in range(0, len(relations), _MAX_TABLES_PER_QUERY):
            batch = relations[start : start + _MAX_TABLES_PER_QUERY]
            try:
                tables += self._tables(session, batch)
            except _SqliteError:
                if not session.is_alive:
                    raise
                tables += [self._table(session, relation) for relation in batch]
        return tables

    def _table(self, session: _Child, relation: Relation) -> Table:
        """Return a table with its columns. A table that SQLite cannot read is marked as broken."""
        try:
            return self._tables(session, [relation])[0]
        except _SqliteError as error:
            if not session.is_alive:
                raise
            return Table(relation, broken=first_line(str(error)))

    def _tables(self, session: _Child, relations: Sequence[Relation]) -> list[Table]:
        """Return tables with columns and references; mark tables without columns as broken.

        Raises:
            _SqliteError: If SQLite cannot read the definition of a table.
        """
        keys = json.dumps([relation.key for relation in relations])

        def rows(query: str) -> list[Sequence[Any]]:
            """Return a query's rows, after replacing a relation's index by the relation's key.

            The index is the first value of each row; it is the position in ``relations``.
            """
            found = self._run(session, query, [keys], _ALL).rows
            return [(relations[int(index)].key, *values) for index, *values in found]

        return tables_of(relations, rows(_COLUMNS), rows(_CONSTRAINTS))

    def version(self, session: _Child) -> str:
        """Return SQLite's version, with a note if SQLite cannot parse a definition in the file."""
        if session.unparsable_definition:
            note = f"; passed over: {first_line(session.unparsable_definition)}"
        else:
            note = ""
        return f"SQLite {sqlite3.sqlite_version}{note}"

    def stop(self, session: _Child) -> None:
        """Kill the process of the running statement."""
        session.stop()

    def discard(self, session: _Child) -> None:
        """Kill the process of a session."""
        session.close()

    def _roll_back_killed_writer(self) -> None:
        """Open the file for writing, so that SQLite rolls back the changes of a killed writer.

        Before the rollback, no reader can open the file.
        """
        # Raise nothing here: the caller raises the error of the killed write, which is more
        # important. Perhaps another process has the file open, and rolls back.
        with contextlib.suppress(_SqliteError, EOFError, OSError, DelfError):
            self._open(read_only=False).close()

    def dispose(self) -> None:
        """Kill idle processes."""
        with self._lock:
            pools = list(self._pools.values())
            self._pools = {}
        for pool in pools:
            pool.dispose()

    def explain(self, error: BaseException) -> Problem | None:
        """Return the problem behind an error of SQLite; None for any other error."""
        if not isinstance(error, _SqliteError):
            return None
        return replace(self._explain_text(error), number=error.number)

    def _explain_text(self, error: _SqliteError) -> Problem:
        text = first_line(str(error))
        if text == "interrupted":
            return Problem(cause="timeout", text=text)
        if text.startswith("attempt to write a readonly"):
            return Problem(cause="read-only", text=text)
        if "not authorized" in text or "prohibited" in text:
            return Problem(cause="read-only", text="this is not allowed on a SQLite connection")
        if text == _PROCESS_ENDED:  # during a statement, whose outcome is unknown
            return Problem(cause="unavailable", text=text, is_connection_lost=True)
        if text.startswith(("unable to open", "file is not a database", "disk I/O")):
            return Problem(cause="unavailable", text=text)
        return Problem(cause="statement", text=text)


def _absolute(file: str) -> Path:
    return expand_home(file).absolute()


def _existing_file(file: str) -> Path:
    path = _absolute(file)
    if not path.is_file():
        raise missing_file_error("SQLite", file)
    return path


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


def _written_folders(files: Sequence[Path], *, read_only: bool) -> list[str]:
    """Return the folders in which SQLite writes.

    Args:
        files: The database, and the attached files, which are never changed.
        read_only: Whether the database is not changed either.
    """
    changed_files = () if read_only else files[:1]
    # Readers, too, write the shared memory beside a write-ahead log.
    return [
        str(file.parent) for file in files if file in changed_files or _has_write_ahead_log(file)
    ]


def _database_files(file: Path) -> list[str]:
    """Return the paths of a database file, its rollback journal and its write-ahead log."""
    return [f"{file}{ending}" for ending in ("", "-journal", "-wal", "-shm")]


def _has_write_ahead_log(file: Path) -> bool:
    """Return True if a database uses a write-ahead log."""
    try:
        with file.open("rb") as content:
            content.seek(_VERSIONS_POSITION)
            return content.read(len(_WAL_VERSIONS)) == _WAL_VERSIONS
    except OSError:
        return False


def _bytes_of_deleted_files(process: int) -> int:
    """Count the bytes of deleted files that a process has open, such as SQLite's temporary files.

    Return 0 on a system without ``/proc``.
    """
    total = 0
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                status = link.stat()
                is_deleted = status.st_nlink == 0
                if is_deleted and stat.S_ISREG(status.st_mode):
                    total += status.st_size
    return total


def _check_alive(child: Any, *_: object) -> None:
    """Make the pool replace a process that has ended or is stale."""
    if not child.is_alive or child.is_stale:
        raise DisconnectionError
