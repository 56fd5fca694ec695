"""DuckDB in a child process with limits; queries open the file read-only.

External access, extensions, replacement scans and changes of settings are disabled. DuckDB's own
parser must see a single SELECT, and the query runs as a subquery, which admits nothing but a query.
DuckDB opens a file either for reading or for writing, so the file is closed after each statement.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Final

import duckdb
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from delf.errors import DelfError, ToolRefusedError
from delf_confined.duckdb_values import (
    CONFINED,
    prevent_import_of_pandas,
    python_row,
    select_items,
)
from delf_confined.words import shorten_message
from delf_sql.backends.base import FailedAt, Problem, WriteResult, first_line
from delf_sql.backends.engine import EngineBackend, driver_error
from delf_sql.catalog import Catalogue, Relation
from delf_sql.failures import problem_of
from delf_sql.placeholders import BoundStatement
from delf_sql.rows import Fetched, note_values_turned_to_text
from delf_sql.settings import SQLSettings
from delf_sql.target import Target
from delf_sql.values import AsText, plain

_MEMORY: Final = "512MB"
_SPILL: Final = "4GB"
_THREADS: Final = 2
_BUSY_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.05
_CONFINED: Final = {
    **CONFINED,
    "memory_limit": _MEMORY,
    "max_temp_directory_size": _SPILL,
    "threads": _THREADS,
    "enable_external_access": False,
    "secret_directory": "/nonexistent",
}
_COUNT_COLUMNS: Final = (("Count",), ("Success",))
_CATALOGUE: Final = Catalogue(
    relations="""
SELECT schema_name || chr(31) || name, nullif(schema_name, 'main'), name, is_view, comment FROM (
    SELECT schema_name, table_name AS name, false AS is_view, comment FROM duckdb_tables()
    WHERE database_name = current_database() AND NOT internal
    UNION ALL
    SELECT schema_name, view_name, true, comment FROM duckdb_views()
    WHERE database_name = current_database() AND NOT internal)
ORDER BY schema_name <> 'main', schema_name, name
""",
    columns="""
SELECT schema_name || chr(31) || table_name AS key, column_name, lower(data_type), is_nullable,
       comment
FROM duckdb_columns()
WHERE database_name = current_database() AND list_contains($keys, key)
ORDER BY key, column_index
""",
    constraints="""
SELECT schema_name || chr(31) || table_name AS key, unnest(constraint_column_names),
       lower(constraint_type[1]), referenced_table || '.' || unnest(referenced_column_names)
FROM duckdb_constraints()
WHERE database_name = current_database() AND list_contains($keys, key)
  AND (constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
       OR constraint_type = 'UNIQUE' AND len(constraint_column_names) = 1)
""",
)


class DuckdbEngine(EngineBackend):
    """Runs one statement in DuckDB, in the child process.

    Args:
        target: The database file.
        settings: The limits of a statement.
    """

    catalogue = _CATALOGUE
    pool: ClassVar[type[sa.Pool]] = sa.NullPool

    def __init__(self, target: Target, settings: SQLSettings) -> None:
        super().__init__(target, settings)
        self._path = Path(target.database).absolute()

    def _url(self) -> sa.URL:
        return sa.URL.create("duckdb", database=str(self._path))

    def _options(self, read_only: bool) -> dict[str, Any]:
        config = dict(_CONFINED)
        if read_only:
            # DuckDB's default is a folder beside the database file, where this process
            # cannot write. Use the folder for nothing else, because statements may read it.
            config["temp_directory"] = str(Path.cwd() / "spill")
        return {"connect_args": {"read_only": read_only, "config": config}}

    def _connect(self, engine: sa.Engine) -> sa.Connection:
        """Open the file, waiting while another process writes."""
        deadline = time.monotonic() + min(_BUSY_SECONDS, self._settings.connect_timeout)
        while True:
            try:
                return engine.connect()
            except DBAPIError as error:
                is_locked = "Could not set lock" in str(error.orig)
                if not is_locked or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _prepare(self, driver: Any, *, read_only: bool) -> None:
        for setting in (
            "TimeZone = 'UTC'",
            "enable_progress_bar = false",
            "lock_configuration = true",  # last, because it forbids further settings
        ):
            driver.execute(f"SET {setting}")

    def stop(self, session: sa.Connection) -> None:
        """Interrupt the running statement."""
        _duckdb_connection(session).interrupt()

    def query(self, session: sa.Connection, bound: BoundStatement, limit: int) -> Fetched:
        """Run a query after DuckDB's own parser has confirmed that the statement is a query."""
        _check_is_query(session, bound)
        names_and_types = self._describe(session, _wrap(bound, "DESCRIBE ", ""))
        # The columns get new names, because those of a query may be equal or missing.
        new_names = [f"c{number}" for number in range(len(names_and_types))]
        items = select_items(new_names, [type_name for _, type_name in names_and_types])
        head = f"SELECT {', '.join(items)} FROM (\n"  # noqa: S608 - names made here
        wrapped = _wrap(bound, head, f"\n) AS delf({', '.join(new_names)})")
        fetched = self._fetch(session, wrapped, limit, streams=False)
        rows: list[Sequence[Any]] = [_python_row(row, names_and_types) for row in fetched.rows]
        return Fetched(tuple(name for name, _ in names_and_types), rows, fetched.more)

    def _describe(self, session: sa.Connection, bound: BoundStatement) -> list[tuple[str, str]]:
        """Run ``DESCRIBE query``; return the name and type of each column of the query."""
        rows = session.execute(bound.clause()).fetchall()
        return [(column_name, type_name.upper()) for column_name, type_name, *_ in rows]

    def change(
        self, session: sa.Connection, bound_statements: Sequence[BoundStatement], *, returns: bool
    ) -> WriteResult:
        """Run a write for each set of parameters, and commit.

        DuckDB returns the number of changed rows as a row, unless the statement has RETURNING.

        Args:
            session: The session.
            bound_statements: The statements, one for each set of parameters.
            returns: Whether the statement has RETURNING, so that its rows are returned.
        """
        written = WriteResult()
        for number, bound in enumerate(self._converted(session, bound_statements), 1):
            row_limit = written.room(self._settings.max_rows)  # for rows of RETURNING
            try:
                fetched = self._fetch(session, bound, row_limit, streams=False)
            except DBAPIError as error:
                if len(bound_statements) == 1:
                    raise
                raise FailedAt(number) from error
            if not returns:
                fetched = _without_row_count(fetched)
            written.add(fetched.changed, fetched, returns_changes=returns)
        session.commit()
        return written

    def _converted(
        self, session: sa.Connection, bound_statements: Sequence[BoundStatement]
    ) -> Iterator[BoundStatement]:
        """Yield writes whose values have the types of the placeholders.

        DuckDB is asked for these types only when it is the turn of a statement, because an earlier
        statement may create the table. Consecutive statements with the same text share the types.
        """
        for _, group in itertools.groupby(bound_statements, key=lambda bound: bound.pieces):
            yield from self._convert_values(session, list(group), is_write=True)

    def explain(self, error: BaseException) -> Problem | None:
        """Return the problem behind an error of DuckDB; None for any other error."""
        cause = driver_error(error)
        if not isinstance(cause, (duckdb.Error, UnicodeDecodeError)):
            return super().explain(error)
        # For a message that quotes bytes, DuckDB gives an empty text on Python 3.11, and raises
        # UnicodeDecodeError on later versions.
        is_undecodable = isinstance(cause, UnicodeDecodeError)
        text = "" if is_undecodable else first_line(shorten_message(str(cause)))
        if not text:
            return Problem(cause="statement", text="a value of bytes does not fit its column")
        if isinstance(cause, duckdb.InterruptException):
            return Problem(cause="timeout", text=text)
        if isinstance(cause, (duckdb.IOException, duckdb.ConnectionException)):
            return Problem(cause="unavailable", text=text)
        if "read-only mode" in text or isinstance(cause, duckdb.PermissionException):
            return Problem(cause="read-only", text=text)
        return Problem(cause="statement", text=text)


def _without_row_count(fetched: Fetched) -> Fetched:
    """Convert a result that is only DuckDB's count of changed rows to a result without rows.

    The count becomes ``changed``. Return any other result unchanged.
    """
    if fetched.columns not in _COUNT_COLUMNS:
        return fetched
    return Fetched((), [], changed=sum(row[0] for row in fetched.rows))


def run(
    database: str, read_only: bool, settings: dict[str, Any], work: str, given: dict[str, Any]
) -> dict[str, Any]:
    """Open the database file, run one function and close the file, in a child process.

    Args:
        database: The file's path.
        read_only: Whether to open the file read-only.
        settings: Fields of the connection's settings.
        work: The function's name: ``query``, ``change``, ``relations`` or ``tables``.
        given: The function's arguments.

    Returns:
        A dict with the function's result as ``value``, or with DuckDB's error as ``problem``.
    """
    prevent_import_of_pandas()
    target = Target(dialect="duckdb", label="DuckDB", database=database)
    engine = DuckdbEngine(target, SQLSettings.model_construct(**settings))
    try:
        with engine.session(read_only=read_only) as session:
            # If stop() has no effect, the parent kills the process after its own, longer timeout.
            timer = threading.Timer(settings["statement_timeout"], engine.stop, (session,))
            timer.daemon = True
            timer.start()
            try:
                return {"value": _WORKS[work](engine, session, given)}
            finally:
                timer.cancel()
    except DelfError:
        raise
    except Exception as error:
        problem = problem_of(error, engine)
        if problem is None:
            raise
        return {"problem": asdict(problem)}


def _query(engine: DuckdbEngine, session: sa.Connection, arguments: dict[str, Any]) -> Any:
    fetched = engine.query(session, BoundStatement(**arguments["bound"]), arguments["limit"])
    note_values_turned_to_text(fetched.columns, fetched.rows)
    return {"columns": fetched.columns, "rows": _plain(fetched.rows), "more": fetched.more}


def _change(engine: DuckdbEngine, session: sa.Connection, arguments: dict[str, Any]) -> Any:
    bound_statements = [BoundStatement(**bound) for bound in arguments["bound_statements"]]
    written = engine.change(session, bound_statements, returns=arguments["returns"])
    note_values_turned_to_text(written.columns, written.rows)
    return {
        "rowcount": written.rowcount,
        "columns": written.columns,
        "rows": _plain(written.rows),
    }


def _relations(engine: DuckdbEngine, session: sa.Connection, _: dict[str, Any]) -> Any:
    return [asdict(relation) for relation in engine.relations(session)]


def _tables(engine: DuckdbEngine, session: sa.Connection, arguments: dict[str, Any]) -> Any:
    relations = [Relation(**relation) for relation in arguments["relations"]]
    return [asdict(table) for table in engine.tables(session, relations)]


_WORKS: Final = {
    "query": _query,
    "change": _change,
    "relations": _relations,
    "tables": _tables,
}


def _plain(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[plain(value) for value in row] for row in rows]


def _duckdb_connection(session: sa.Connection) -> Any:
    return session.connection.driver_connection


def _check_is_query(session: sa.Connection, bound: BoundStatement) -> None:
    statements = _duckdb_connection(session).extract_statements(bound.text())
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise ToolRefusedError("query only reads, and this is not a plain query: use write")


def _wrap(bound: BoundStatement, head: str, tail: str) -> BoundStatement:
    """Return a statement with SQL before and after its text, and with the same parameters."""
    pieces = list(bound.pieces)
    pieces[0] = head + pieces[0]
    pieces[-1] += tail
    return BoundStatement(pieces, bound.values)


def _python_row(row: Sequence[Any], names_and_types: Sequence[tuple[str, str]]) -> list[Any]:
    cells, indices_of_texts = python_row(row, [type_name for _, type_name in names_and_types])
    for index in indices_of_texts:
        cells[index] = AsText(cells[index])
    return cells
