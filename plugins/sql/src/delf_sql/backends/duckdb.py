"""DuckDB, with a child process for each statement (``duckdb_child``).

A function call may run for minutes without reacting to interrupts, or take gigabytes; then its
process is killed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Generator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from delf.machine.forks import TemporaryFolder
from delf.values.encoding import dumps, loads
from delf_confined.children import Child, Template
from delf_confined.limits import Limits
from delf_confined.readers import child_death_error, limit_error, unpack_answer
from delf_sql.backends.base import Problem, WriteResult, missing_file_error
from delf_sql.catalog import Column, Relation, Table
from delf_sql.gate import Statement
from delf_sql.placeholders import BoundStatement, Params, bind
from delf_sql.rows import Fetched
from delf_sql.settings import SQLSettings
from delf_sql.target import Target
from delf_sql.values import for_duckdb

# The memory limit of a child process; DuckDB's own limit is a third of this number.
_MEMORY_BYTES: Final = 1_500_000_000
_MAX_TEMPORARY_BYTES: Final = 4_000_000_000
_UNLIMITED_BYTES: Final = 2**60
_ANSWER_BYTES_PER_ROW_BYTE: Final = 8
_WORK: Final = "delf_sql.backends.duckdb_child:run"
_PRELOADS: Final = ("duckdb", "duckdb_engine")
_STATEMENT: Final = "the statement"
_SETTINGS: Final = ("max_rows", "max_bytes", "connect_timeout", "statement_timeout", "pool_size")


class _DuckdbError(Exception):
    """A failure reported by DuckDB, or the death of its process."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


@dataclass(frozen=True)
class _ReadyChild:
    """A child process that was forked for one statement."""

    child: Child
    limits: Limits
    folder: TemporaryFolder

    def end(self) -> None:
        """Kill the child and remove its folder."""
        self.child.end()
        self.folder.remove()


class _Session:
    """Runs statements one after another, each in its own child process.

    Args:
        template: The template process that forks the children.
        path: The database file.
        read_only: Whether to open the file read-only.
        settings: The connection's settings.
    """

    def __init__(
        self, template: Template, path: Path, *, read_only: bool, settings: SQLSettings
    ) -> None:
        self._template = template
        self._path = path
        self._is_read_only = read_only
        self._settings = settings
        self._lock = threading.Lock()
        self._running: Child | None = None
        self._is_stopped = False
        # The child of the first statement. The template and this child start now, before the
        # timeout of the statement begins.
        self._ready: _ReadyChild | None = self._start()

    def do(self, work: str, **arguments_of_work: Any) -> Any:
        """Run a function of :mod:`duckdb_child` in a child process.

        Raises:
            _DuckdbError: If DuckDB fails or its process dies.
            DelfError: If the function raises a DelfError in the child process.
        """
        settings = self._settings
        arguments = {
            "database": str(self._path),
            "read_only": self._is_read_only,
            "settings": {name: getattr(settings, name) for name in _SETTINGS},
            "work": work,
            "given": arguments_of_work,
        }
        ready_child = self._ready or self._start()  # the first statement has a child already
        self._ready = None
        try:
            answer = self._ask(ready_child, dumps(arguments))
        finally:
            ready_child.end()
        result = unpack_answer(answer, _STATEMENT, ready_child.limits)
        if "problem" in result:
            raise _DuckdbError(Problem(**result["problem"]))
        return result["value"]

    def _start(self) -> _ReadyChild:
        """Fork a limited child process for one statement, with a folder for temporary files."""
        settings = self._settings
        folder = TemporaryFolder("delf-duckdb-")
        bytes_of_rows = _ANSWER_BYTES_PER_ROW_BYTE * settings.max_bytes
        limits = Limits(
            seconds=settings.statement_timeout,
            memory=_MEMORY_BYTES + bytes_of_rows,
            answer=bytes_of_rows + 1_000_000,  # plus column names, notes and errors
            scratch=folder.name,
            # A writer also writes the database, which may be of any size.
            file_bytes=_MAX_TEMPORARY_BYTES if self._is_read_only else _UNLIMITED_BYTES,
            writable=() if self._is_read_only else (str(self._path.parent),),
        )
        files = (str(self._path), f"{self._path}.wal")
        try:
            child = self._template.fork(_WORK, limits, files, _PRELOADS)
        except BaseException:
            folder.remove()
            raise
        return _ReadyChild(child, limits, folder)

    def _ask(self, ready_child: _ReadyChild, arguments: bytes) -> dict[str, Any]:
        """Send arguments to a child, and return its answer.

        Raise if the child dies, or if its answer is too long.
        """
        child = ready_child.child
        limits = ready_child.limits
        with self._lock:
            self._running = child
            # stop() may have come while the child was being started; call() then raises EOFError.
            if self._is_stopped:
                child.kill()
        try:
            answer = child.call(arguments, limits.answer)
        except EOFError:
            raise self._death_error(child.end()) from None
        except ValueError:  # the answer is longer than limits.answer
            raise limit_error("answer", _STATEMENT, limits) from None
        finally:
            with self._lock:
                self._running = None
        return loads(answer)

    def _death_error(self, status: int) -> _DuckdbError:
        """Return the error for a child that has died before its answer."""
        text = child_death_error(status, _STATEMENT).message
        if self._is_read_only:
            cause = "timeout" if self._is_stopped else "unavailable"
            return _DuckdbError(Problem(cause=cause, text=text))
        # is_connection_lost makes the caller report that the write may have been done.
        return _DuckdbError(Problem(cause="unavailable", text=text, is_connection_lost=True))

    def stop(self) -> None:
        """Kill the running statement's process, and refuse further statements."""
        with self._lock:
            self._is_stopped = True
            if self._running is not None:
                self._running.kill()

    def close(self) -> None:
        """Kill the child process that waits for the first statement, if no statement has come."""
        if self._ready is not None:
            self._ready.end()
            self._ready = None


class DuckdbBackend:
    """The backend for DuckDB, with a process for each statement.

    Args:
        target: The database file.
        settings: The limits of a statement.
    """

    grace = 2.0
    one_at_a_time = True

    def __init__(self, target: Target, settings: SQLSettings) -> None:
        self.target = target
        self._settings = settings
        self._path = Path(target.database).absolute()
        self._template = Template()

    def create(self) -> None:
        """Create the file by opening it for writing.

        Raises:
            OSError: If the file cannot be created.
        """
        try:
            with contextlib.closing(self._session(read_only=False)) as session:
                session.do("relations")  # any function: opening makes the file
        except _DuckdbError as error:
            raise OSError(str(error)) from None

    @contextlib.contextmanager
    def session(self, *, read_only: bool) -> Generator[_Session]:
        """Yield a session that runs each statement in a new process."""
        may_create = self._settings.create and not read_only
        if not may_create and not self._path.is_file():
            raise missing_file_error("DuckDB", self.target.database)
        with contextlib.closing(self._session(read_only=read_only)) as session:
            yield session

    def _session(self, *, read_only: bool) -> _Session:
        return _Session(self._template, self._path, read_only=read_only, settings=self._settings)

    def read(self, session: _Session, statement: Statement, params: Params, limit: int) -> Fetched:
        """Run a query."""
        bound = self._bind(statement, params)
        result = session.do("query", bound=asdict(bound), limit=limit)
        return Fetched(tuple(result["columns"]), result["rows"], result["more"])

    def write(
        self, session: _Session, changes: Sequence[tuple[Statement, Sequence[Params]]]
    ) -> WriteResult:
        """Run statements with their sets of parameters in one transaction."""
        bound_statements: list[BoundStatement] = []
        for statement, parameter_sets in changes:
            bound_statements += [self._bind(statement, params) for params in parameter_sets]
        result = session.do(
            "change",
            bound_statements=[asdict(bound) for bound in bound_statements],
            # Only a single statement can have RETURNING: check_writes() refuses it in several.
            returns=any(statement.has_returning for statement, _ in changes),
        )
        written = WriteResult()
        written.rowcount = result["rowcount"]
        written.columns = tuple(result["columns"])
        written.rows = result["rows"]
        return written

    def _bind(self, statement: Statement, params: Params) -> BoundStatement:
        return bind(statement.text, statement.tokens, params, "duckdb", for_duckdb)

    def without_transactions(self, session: _Session, names: Collection[str]) -> Sequence[Any]:
        """Return an empty list: all tables of DuckDB have transactions."""
        return ()

    def relations(self, session: _Session) -> list[Relation]:
        """Return all tables and views."""
        return [Relation(**relation) for relation in session.do("relations")]

    def tables(self, session: _Session, relations: Sequence[Relation]) -> list[Table]:
        """Return tables and views with their columns."""
        if not relations:
            return []
        relations_data = [_as_dict(relation) for relation in relations]
        tables: list[dict[str, Any]] = session.do("tables", relations=relations_data)
        return [
            Table(
                Relation(**table["relation"]),
                [Column(**column) for column in table["columns"]],
                table["broken"],
            )
            for table in tables
        ]

    def version(self, session: _Session) -> str:
        """Return DuckDB's version."""
        return f"DuckDB {version('duckdb')}"

    def stop(self, session: _Session) -> None:
        """Kill the process of the running statement."""
        session.stop()

    def discard(self, session: _Session) -> None:
        """Do nothing: a session keeps no state."""

    def dispose(self) -> None:
        """Kill the processes that were forked in advance."""
        self._template.close()

    def explain(self, error: BaseException) -> Problem | None:
        """Return the problem behind an error of DuckDB; None for any other error."""
        return error.problem if isinstance(error, _DuckdbError) else None


def _as_dict(relation: Relation) -> dict[str, Any]:
    return {name: getattr(relation, name) for name in ("name", "schema", "kind", "comment", "key")}
