"""A backend for any database with a SQLAlchemy dialect.

Unknown databases are protected by the statement gate only. The backends of PostgreSQL, MySQL and
DuckDB add read-only sessions and error messages.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import CompileError, DBAPIError, NoSuchTableError, SQLAlchemyError

from delf.errors import (
    ConnectionConfigurationError,
    DelfError,
    OptionalDependencyError,
    ToolRefusedError,
)
from delf_sql.backends.base import FailedAt, Problem, WriteResult, can_batch, first_line
from delf_sql.catalog import (
    Catalogue,
    Relation,
    Table,
    find_relation,
    relations_of,
    tables_of,
)
from delf_sql.fitting import convert_values
from delf_sql.gate import Statement
from delf_sql.placeholders import BoundStatement, Params, bind
from delf_sql.rows import Fetched, collect
from delf_sql.settings import SQLSettings
from delf_sql.target import Target
from delf_sql.targets import column_types_of
from delf_sql.values import for_any

# Methods of drivers that stop a statement from another thread, the gentlest first.
_STOP_METHODS: Final = ("cancel", "interrupt", "close")


class EngineBackend:
    """The backend for any SQLAlchemy dialect.

    Args:
        target: The database.
        settings: The limits of a statement.
    """

    grace: float = 0.0
    """The seconds that the database gets to end a statement itself after its timeout."""
    one_at_a_time: bool = False
    """True if only one statement may run at a time."""
    pool: ClassVar[type[sa.Pool]] = sa.QueuePool
    catalogue: ClassVar[Catalogue | None] = None
    """The catalogue queries; None to use SQLAlchemy's inspector."""

    def __init__(self, target: Target, settings: SQLSettings) -> None:
        self.target = target
        self._settings = settings
        # The engine for read-only sessions has the key True, the other engine the key False.
        self._engines: dict[bool, sa.Engine] = {}
        self._lock = threading.Lock()
        # A cache of the tables that writes have named: to find a table, all tables are listed.
        self._relations_by_name: dict[str, Relation] = {}

    def check_driver(self) -> None:
        """Create the engine, which does not connect yet.

        Raises:
            OptionalDependencyError: If the dialect's driver is not installed.
            ConnectionConfigurationError: If the dialect refuses the URL.
        """
        problem = ""
        try:
            self._engine(read_only=True)
        except ImportError as error:
            package = error.name or "its driver"
            raise OptionalDependencyError(
                f"{self.target.label} needs the package {package}", package=package
            ) from None
        except Exception as error:  # third-party dialects raise anything
            problem = self.target.scrub(first_line(str(error)))
        if problem:  # outside of the handler, whose error may contain the URL
            raise ConnectionConfigurationError(
                f"{self.target.label}: cannot use this url: {problem}"
            )

    # -- sessions -----------------------------------------------------------------------

    def create(self) -> None:
        """Create the database's file, for backends whose database is a file."""

    @contextlib.contextmanager
    def session(self, *, read_only: bool) -> Generator[sa.Connection]:
        """Yield a pooled connection."""
        engine = self._engine(read_only=read_only)
        connection = self._connect(engine)
        try:
            yield connection
        finally:
            try:
                was_disposed = self._engines.get(read_only) is not engine
                if was_disposed:  # nobody would close the connection in the old engine's pool
                    connection.invalidate()
                if not connection.invalidated:
                    connection.rollback()
                    self._reset(connection, read_only=read_only)
            except Exception:  # do not reuse a connection that failed
                connection.invalidate()
            connection.close()

    def _engine(self, *, read_only: bool) -> sa.Engine:
        with self._lock:
            if read_only not in self._engines:
                self._engines[read_only] = self._make_engine(read_only)
            return self._engines[read_only]

    def _make_engine(self, read_only: bool) -> sa.Engine:
        """Make the engine for read-only sessions, or for sessions that write."""
        # session() resets a connection itself, because the pool's rollback does not undo settings,
        # locks and temporary tables.
        options: dict[str, Any] = {"poolclass": self.pool, "pool_reset_on_return": None}
        if self.pool is sa.QueuePool:
            size = self._settings.pool_size
            # No overflow: the setting is the maximum number of connections.
            options |= {"pool_size": size, "max_overflow": 0, "pool_pre_ping": True}
        engine = sa.create_engine(
            self._url(), hide_parameters=True, **self._options(read_only), **options
        )

        def prepare(driver: Any, _: object) -> None:
            self._prepare(driver, read_only=read_only)

        event.listen(engine, "connect", prepare)
        return engine

    def _connect(self, engine: sa.Engine) -> sa.Connection:
        return engine.connect()

    def _url(self) -> sa.URL:
        """Return the URL for SQLAlchemy.

        For a backend that connects by itself, with the option ``creator``, the URL has a dialect
        and nothing else.
        """
        if self.target.url is None:
            return sa.URL.create(self.target.dialect)
        return self.target.url

    def _options(self, read_only: bool) -> dict[str, Any]:
        """Return additional options for SQLAlchemy's ``create_engine``; none by default.

        Args:
            read_only: Whether the engine is only for statements that read.
        """
        return {}

    def _prepare(self, driver: Any, *, read_only: bool) -> None:
        """Configure a fresh connection of the driver."""

    def _reset(self, connection: sa.Connection, *, read_only: bool) -> None:
        """Reset what the rollback after a statement does not undo, such as session settings.

        Does nothing here: subclasses know what their database keeps.
        """

    def stop(self, session: sa.Connection) -> None:
        """Stop the running statement from another thread, if the driver can."""
        driver = _driver_connection(session)
        for name in _STOP_METHODS:
            stop = getattr(driver, name, None)
            if callable(stop):
                stop()
                return

    def discard(self, session: sa.Connection) -> None:
        """Discard a session, so that no other statement gets it."""
        session.invalidate()

    def dispose(self) -> None:
        """Close idle connections."""
        with self._lock:
            engines = list(self._engines.values())
            self._engines = {}
        for engine in engines:
            engine.dispose()

    # -- statements ---------------------------------------------------------------------

    def _bind(self, statement: Statement, params: Params) -> BoundStatement:
        """Bind parameters, converting the values as :func:`for_any` does for an unknown driver."""
        return bind(statement.text, statement.tokens, params, self.target.dialect, for_any)

    def _begin(self, session: sa.Connection, *, read_only: bool) -> None:
        """Run the first statements of a transaction."""

    def read(
        self, session: sa.Connection, statement: Statement, params: Params, limit: int
    ) -> Fetched:
        """Run a query and fetch its rows up to the limits."""
        bound = self._bind(statement, params)
        self._begin(session, read_only=True)
        (bound,) = self._convert_values(session, [bound], is_write=False)
        self._check(session, statement, bound)
        return self._fetch(session, bound, limit, streams=True)

    def _convert_values(
        self, session: sa.Connection, bound_statements: Sequence[BoundStatement], *, is_write: bool
    ) -> list[BoundStatement]:
        """Convert each parameter to the type of its placeholder.

        Args:
            session: The session.
            bound_statements: The statement with each set of parameters.
            is_write: Whether the statement may store the values; False for a query.
        """
        # Statements with the same text around their placeholders have the same types.
        types_by_text: dict[tuple[str, ...], Sequence[str | None]] = {}
        converted: list[BoundStatement] = []
        for bound in bound_statements:
            text = tuple(bound.pieces)
            if text not in types_by_text:
                types: Sequence[str | None] = ()
                if bound.values:
                    types = self._placeholder_types(session, bound, is_write=is_write)
                types_by_text[text] = types
            converted.append(convert_values(bound, types_by_text[text], is_write=is_write))
        return converted

    def _placeholder_types(
        self, session: sa.Connection, bound: BoundStatement, *, is_write: bool
    ) -> Sequence[str | None]:
        """Return the column type for each placeholder of a statement; None if unknown.

        The types of a query's placeholders are not determined.

        Args:
            session: The session, for reading the columns of tables.
            bound: The statement with its values.
            is_write: Whether the statement may store the values; False for a query.
        """
        if not is_write:
            return [None] * len(bound.values)
        return column_types_of(
            bound, self.target.dialect, lambda name: self._table_named(session, name)
        )

    def _table_named(self, session: sa.Connection, name: str) -> Table | None:
        if name not in self._relations_by_name:
            relation = find_relation(name, self.relations(session))
            if relation is None:
                return None
            self._relations_by_name[name] = relation
        # Read the columns each time: anybody may have changed them since the last write.
        return self.tables(session, [self._relations_by_name[name]])[0]

    def _check(self, session: sa.Connection, statement: Statement, bound: BoundStatement) -> None:
        """Refuse a query for a reason that only the database knows, not the statement gate.

        For example, a user may have defined a function with the name of a harmless function.
        """

    def _fetch(
        self, session: sa.Connection, bound: BoundStatement, limit: int, *, streams: bool
    ) -> Fetched:
        """Execute a statement, and fetch its rows up to the limits.

        Args:
            session: The session.
            bound: The statement with its values.
            limit: The maximum number of rows.
            streams: Whether to fetch rows only on request, if the driver supports this.
        """
        # SQLAlchemy must buffer no rows ahead, because its buffer has no limit in bytes.
        clause = bound.clause().execution_options(stream_results=streams, max_row_buffer=1)
        with contextlib.closing(session.execute(clause)) as result:
            if not result.returns_rows:
                server_warnings = self._warnings(session)
                return Fetched((), [], changed=result.rowcount, warnings=server_warnings)
            cursor: Any = result.cursor
            columns = tuple(str(column[0]) for column in cursor.description)
            has_unread_rows = True  # stays True if collect() raises
            try:
                rows, has_unread_rows = collect(result.fetchmany, limit, self._settings.max_bytes)
            finally:
                if has_unread_rows:
                    self._discard_rows(session)
        return Fetched(columns, rows, has_unread_rows, warnings=self._warnings(session))

    def _warnings(self, session: sa.Connection) -> tuple[str, ...]:
        """Return the database's warnings about a statement's changes, if any."""
        return ()

    def _discard_rows(self, session: sa.Connection) -> None:
        """Discard the unread rows of a statement, if the driver would otherwise read them all.

        Here, do nothing: this method is for drivers that read rows only on request. Backends with
        other drivers override the method.
        """

    def write(
        self, session: sa.Connection, changes: Sequence[tuple[Statement, Sequence[Params]]]
    ) -> WriteResult:
        """Run statements with their sets of parameters in one transaction."""
        # Bind all parameters first: a mistake in them is then found before any statement runs.
        bound_changes = [
            (statement, [self._bind(statement, params) for params in parameter_sets])
            for statement, parameter_sets in changes
        ]
        written = WriteResult()
        self._begin(session, read_only=False)
        for number, (statement, bound_statements) in enumerate(bound_changes, 1):
            try:
                self._change(session, statement, bound_statements, written)
            except ToolRefusedError as error:
                if len(bound_changes) == 1:
                    raise
                message = f"statement {number} of {len(bound_changes)}: {error.message}"
                raise ToolRefusedError(message, hint=error.hint) from error
            except DelfError:  # such as too many rows of all statements together
                raise
            except Exception as error:
                if len(bound_changes) == 1:
                    raise
                raise FailedAt(number) from error
        session.commit()
        return written

    def _change(
        self,
        session: sa.Connection,
        statement: Statement,
        bound_statements: Sequence[BoundStatement],
        written: WriteResult,
    ) -> None:
        """Run a statement for each set of values, in one batch if ``can_batch`` allows that."""
        converted = self._convert_values(session, bound_statements, is_write=True)
        if can_batch(statement, converted):
            clause = converted[0].clause()
            result = session.execute(clause, [bound.named for bound in converted])
            written.add(result.rowcount)
            written.warn(self._warnings(session))
        else:
            for bound in converted:
                remaining_rows = written.room(self._settings.max_rows)
                fetched = self._fetch(session, bound, remaining_rows, streams=False)
                # INSERT … RETURNING gives a row for each change. The rows of CALL are no changes.
                written.add(fetched.changed, fetched, returns_changes=statement.is_dml)

    def without_transactions(
        self, session: sa.Connection, names: Collection[str]
    ) -> Sequence[tuple[str, str]]:
        """Return the tables that cannot be rolled back, with their storage engines."""
        return ()

    # -- the catalogue ------------------------------------------------------------------

    def _ask(self, session: sa.Connection, text: str, **values: Any) -> Sequence[sa.Row[Any]]:
        """Run a catalogue query in the driver's own dialect."""
        return session.exec_driver_sql(text, values).fetchall()

    def relations(self, session: sa.Connection) -> list[Relation]:
        """Return all tables and views of the database.

        If the backend has no catalogue queries, return only the tables and views of the default
        schema.
        """
        if self.catalogue is not None:
            return relations_of(self._ask(session, self.catalogue.relations))
        inspector = sa.inspect(session)
        views = set(inspector.get_view_names())
        names = views.union(inspector.get_table_names())
        return [
            Relation(name=name, kind="view" if name in views else "table", key=name)
            for name in sorted(names)
        ]

    def tables(self, session: sa.Connection, relations: Sequence[Relation]) -> list[Table]:
        """Return tables and views with their columns."""
        if self.catalogue is not None and relations:
            relation_keys = [relation.key for relation in relations]
            columns = self._ask(session, self.catalogue.columns, keys=relation_keys)
            constraints = self._ask(session, self.catalogue.constraints, keys=relation_keys)
            return tables_of(relations, columns, constraints)
        inspector = sa.inspect(session)
        return [self._table(session, inspector, relation) for relation in relations]

    def _table(self, session: sa.Connection, inspector: sa.Inspector, relation: Relation) -> Table:
        """Return a table with columns and keys. A table that cannot be read is marked as broken."""
        table_name: str = relation.key
        try:
            # tables_of() takes rows of this form. Each begins with the key of the table.
            columns = [
                (
                    table_name,
                    each["name"],
                    _type(each["type"], session),
                    each["nullable"],
                    each.get("comment"),
                )
                for each in inspector.get_columns(table_name)
            ]
        except (DBAPIError, NoSuchTableError) as error:
            return Table(relation, broken=first_line(str(driver_error(error))))
        constraints: list[Sequence[Any]] = []
        with contextlib.suppress(NotImplementedError, SQLAlchemyError):  # not in every dialect
            constraints.extend(_constraints(inspector, table_name))
        return tables_of([relation], columns, constraints)[0]

    def version(self, session: sa.Connection) -> str:
        """Return the database's name, and its version if known."""
        number = getattr(session.dialect, "server_version_info", None) or ()
        return " ".join([self.target.label, ".".join(map(str, number))]).strip()

    # -- failures -----------------------------------------------------------------------

    def explain(self, error: BaseException) -> Problem | None:
        """Return the problem behind an error of SQLAlchemy; None for any other error."""
        if not isinstance(error, SQLAlchemyError):
            return None
        text = first_line(str(driver_error(error)))
        is_disconnected = isinstance(error, DBAPIError) and error.connection_invalidated
        return Problem(
            cause="unavailable" if is_disconnected else "statement",
            text=text,
            is_connection_lost=is_disconnected,
        )


def _constraints(inspector: sa.Inspector, table_name: str) -> Iterator[Sequence[Any]]:
    """Yield a row for each column of a table that is a key, unique or a reference.

    :func:`tables_of` takes these rows.
    """
    for column in inspector.get_pk_constraint(table_name)["constrained_columns"]:
        yield table_name, column, "p", None
    for unique in inspector.get_unique_constraints(table_name):
        # Of several columns that are unique together, each may repeat its values.
        if len(unique["column_names"]) == 1:
            yield table_name, unique["column_names"][0], "u", None
    for key in inspector.get_foreign_keys(table_name):
        other_table = ".".join(filter(None, (key["referred_schema"], key["referred_table"])))
        for own, other in zip(key["constrained_columns"], key["referred_columns"], strict=False):
            yield table_name, own, "f", f"{other_table}.{other}"


def _driver_connection(session: sa.Connection) -> Any:
    return session.connection.driver_connection


def cut_socket(descriptor: int) -> None:
    """Shut down a socket, to unblock a driver that waits for a dead server."""
    # Use a copy of the descriptor, because the driver closes its own.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def _type(kind: Any, session: sa.Connection) -> str:
    try:
        return str(kind.compile(dialect=session.dialect)).lower()
    except CompileError:  # a type that the dialect does not know
        return "unknown"


def driver_error(error: BaseException) -> BaseException:
    """Return the driver's exception behind a SQLAlchemy exception; any other error itself."""
    cause = getattr(error, "orig", None)
    return error if cause is None else cause
