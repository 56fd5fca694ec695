"""PostgreSQL by psycopg; queries run as a cursor in a read-only transaction.

``DECLARE … CURSOR FOR`` admits only a query, and the extended protocol only one statement. The
transaction is read-only from its first statement on, so it cannot be made writable, and it is
always rolled back. Before the query runs, the catalogue is searched for each called name and each
name after a dot, because PostgreSQL reads ``x.f`` as ``f(x)`` if ``x`` has no such column.
User-defined functions that are not allowed are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa
from psycopg.pq import Conninfo, TransactionStatus

from delf.errors import ConnectionConfigurationError
from delf_sql.backends.base import Problem, disallowed_function_error, first_line
from delf_sql.backends.engine import EngineBackend, cut_socket, driver_error
from delf_sql.backends.postgresql_params import placeholder_types, with_json
from delf_sql.backends.postgresql_types import JSONNotes, register_texts, register_user_types
from delf_sql.catalog import Catalogue
from delf_sql.functions import is_listed, known_functions
from delf_sql.gate import Statement
from delf_sql.placeholders import BoundStatement, Params, bind
from delf_sql.settings import SQLSettings
from delf_sql.target import Target
from delf_sql.values import for_postgresql

# Sets the timeout and the text form of values for one transaction. These settings override those of
# the server and of ``PGOPTIONS``.
_BEGIN: Final = """
SELECT pg_catalog.set_config('statement_timeout', %s, true),
       pg_catalog.set_config('standard_conforming_strings', 'on', true),
       pg_catalog.set_config('datestyle', 'ISO', true),
       pg_catalog.set_config('intervalstyle', 'postgres', true),
       pg_catalog.set_config('extra_float_digits', '1', true)
"""
_ROLE: Final = "SELECT pg_catalog.set_config('role', %s, true)"
# Finds a function that must not be called, if there is one:
#
# - a volatile function among ``calls``, unless its name is also in ``known``
# - a user-defined function among ``calls``, unless an extension brings it and it is not volatile
# - a function among ``names_after_dot`` with a parameter, so that ``row.f`` could call it
_UNSAFE_FUNCTION: Final = """
SELECT p.proname::text
FROM pg_catalog.pg_proc p
WHERE p.proname OPERATOR(pg_catalog.=) ANY (%(calls)s::pg_catalog.name[])
  AND (p.provolatile OPERATOR(pg_catalog.=) 'v'
       AND NOT p.proname OPERATOR(pg_catalog.=) ANY (%(known)s::pg_catalog.name[])
    OR p.pronamespace OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.regnamespace
       AND (p.provolatile OPERATOR(pg_catalog.=) 'v' OR NOT EXISTS (
            SELECT FROM pg_catalog.pg_depend d
            WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
              AND d.objid OPERATOR(pg_catalog.=) p.oid
              AND d.deptype OPERATOR(pg_catalog.=) 'e')))
UNION ALL
SELECT '.' OPERATOR(pg_catalog.||) p.proname::text
FROM pg_catalog.pg_proc p
WHERE p.proname OPERATOR(pg_catalog.=) ANY (%(names_after_dot)s::pg_catalog.name[])
  AND p.pronargs OPERATOR(pg_catalog.>=) 1
LIMIT 1
"""

_CATALOGUE: Final = Catalogue(
    relations="""
SELECT c.oid, CASE WHEN NOT pg_table_is_visible(c.oid) THEN n.nspname END, c.relname,
       c.relkind IN ('v', 'm'), obj_description(c.oid, 'pg_class')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND (has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE')
       OR has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE'))
ORDER BY NOT pg_table_is_visible(c.oid), n.nspname, c.relname
""",
    columns="""
SELECT a.attrelid, a.attname,
       format_type(a.atttypid, a.atttypmod) || coalesce(
           (SELECT '(' || string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder)
                || ')'
            FROM pg_catalog.pg_enum e WHERE e.enumtypid = a.atttypid), ''),
       NOT a.attnotnull, col_description(a.attrelid, a.attnum)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%(keys)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
""",
    constraints="""
SELECT k.conrelid, a.attname, k.contype::text, k.confrelid::regclass || '.' || b.attname
FROM pg_catalog.pg_constraint k
CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS u (mine, theirs)
JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.mine
LEFT JOIN pg_catalog.pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = u.theirs
WHERE k.conrelid = ANY (%(keys)s::oid[])
  AND (k.contype IN ('p', 'f') OR k.contype = 'u' AND cardinality(k.conkey) = 1)
ORDER BY k.conname
""",
)
STOP_SECONDS: Final = 3.0
# States of errors: https://www.postgresql.org/docs/current/errcodes-appendix.html
_QUERY_CANCELED: Final = "57014"
# A write in a read-only transaction, and an attempt to make the transaction writable.
_READ_ONLY: Final = ("25006", "25001")
# Classes, the beginnings of states.
_UNAVAILABLE: Final = ("08", "28", "3D", "53", "57P")
_LOST: Final = ("08", "57P")
_CONNECTION_FAILED_PREFIX: Final = re.compile(r"^(?:connection (?:failed|to server)[^:]*:\s*)+")


class PostgresBackend(EngineBackend):
    """The backend for PostgreSQL.

    Args:
        target: The database.
        settings: The limits of a statement.
    """

    grace = 1.0
    catalogue = _CATALOGUE

    def __init__(self, target: Target, settings: SQLSettings) -> None:
        super().__init__(target, settings)
        _check_url_options(target.options)
        self._json_notes: WeakKeyDictionary[psycopg.Connection[Any], JSONNotes] = (
            WeakKeyDictionary()
        )

    def _url(self) -> sa.URL:
        return sa.URL.create("postgresql+psycopg")  # only the driver: _open() knows the database

    def _warnings(self, session: sa.Connection) -> tuple[str, ...]:
        """Return notes about JSON values that Python cannot hold; see :class:`JSONNotes`."""
        return self._json_notes[_psycopg_connection(session)].take_notes()

    def _options(self, read_only: bool) -> dict[str, Any]:
        def connect() -> psycopg.Connection[Any]:
            driver = self._open()
            driver.read_only = read_only
            return driver

        # Without use_native_hstore, SQLAlchemy does not search the catalogue for the type hstore.
        return {"creator": connect, "use_native_hstore": False}

    def _open(self) -> psycopg.Connection[Any]:
        """Connect to the server; the options of the URL override delf's own."""
        target = self.target
        options: dict[str, Any] = {
            "host": target.host or "localhost",
            "port": target.port,
            "user": target.user,
            "password": target.password,
            "application_name": "delf",
            "client_encoding": "UTF8",
            "connect_timeout": max(2, round(self._settings.connect_timeout)),  # libpq's minimum
            **target.options,
        }
        connection = psycopg.Connection[Any].connect(
            dbname=target.database,
            # Prepare at the first execution: PostgreSQL then refuses a text with two statements.
            prepare_threshold=0,
            **{key: value for key, value in options.items() if value is not None},
        )
        # Keep no prepared statement afterwards: a pooler may give the session to other clients.
        connection.prepared_max = 0
        register_texts(connection)
        # Notes about JSON values that Python cannot hold become warnings of the result.
        self._json_notes[connection] = JSONNotes(connection)
        return connection

    def _reset(self, connection: sa.Connection, *, read_only: bool) -> None:
        """Reset settings, locks, temporary tables and cursors of the session."""
        driver = _psycopg_connection(connection)
        # The server refuses DISCARD ALL within a transaction.
        driver.autocommit = True
        driver.execute("DISCARD ALL")
        driver.autocommit = False

    def stop(self, session: sa.Connection) -> None:
        """Cancel the running statement on the server; abandon a server that does not answer."""
        driver = _psycopg_connection(session)
        try:
            driver.cancel_safe(timeout=STOP_SECONDS)
        except psycopg.Error:
            if not driver.closed:
                cut_socket(driver.fileno())

    def discard(self, session: sa.Connection) -> None:
        """Close the connection, at once if a statement runs on it."""
        driver = _psycopg_connection(session)
        if driver.info.transaction_status is TransactionStatus.ACTIVE:
            driver.pgconn.finish()  # closes without a message to the busy server
        super().discard(session)

    def _bind(self, statement: Statement, params: Params) -> BoundStatement:
        return bind(statement.text, statement.tokens, params, "postgresql", for_postgresql)

    def _convert_values(
        self, session: sa.Connection, bound_statements: Sequence[BoundStatement], *, is_write: bool
    ) -> list[BoundStatement]:
        return [
            with_json(bound)
            for bound in super()._convert_values(session, bound_statements, is_write=is_write)
        ]

    def _placeholder_types(
        self, session: sa.Connection, bound: BoundStatement, *, is_write: bool
    ) -> Sequence[str | None]:
        """Ask the server for the types of the placeholders.

        A query without lists or dicts as values needs no types: each type is then None.

        Args:
            session: The session.
            bound: The statement with its parameters.
            is_write: Whether the statement may store the values; False for a query.
        """
        unknown = [None] * len(bound.values)
        has_containers = any(isinstance(value, (list, dict)) for value in bound.values)
        if not is_write and not has_containers:
            return unknown
        driver = _psycopg_connection(session)
        # An error while the server looks at the statement would end the whole transaction.
        driver.execute("SAVEPOINT delf_types")
        types = placeholder_types(driver, bound)
        if types is None:
            driver.execute("ROLLBACK TO SAVEPOINT delf_types")
            return unknown
        driver.execute("RELEASE SAVEPOINT delf_types")
        return types

    def _begin(self, session: sa.Connection, *, read_only: bool) -> None:
        driver = _psycopg_connection(session)
        milliseconds = max(1, round(self._settings.statement_timeout * 1000))  # 0 means no limit
        driver.execute(_BEGIN, [str(milliseconds)])
        register_user_types(driver)  # each time, because other sessions may create types
        if read_only and self._settings.role is not None:
            driver.execute(_ROLE, [self._settings.role])

    def _check(self, session: sa.Connection, statement: Statement, bound: BoundStatement) -> None:
        self._check_calls(_psycopg_connection(session), statement)

    def _check_calls(self, driver: psycopg.Connection[Any], statement: Statement) -> None:
        """Refuse calls of volatile or user-defined functions that are not allowed."""
        if not statement.calls and not statement.names_after_dot:
            return
        known = known_functions("postgresql")
        # PostgreSQL reads `row.f` as the call `f(row)` if the row has no column f. So check the
        # names after a dot, too: known functions like any call, and others more strictly, by
        # refusing each name that is also the name of a function.
        calls = self._without_allowed(statement.calls | (statement.names_after_dot & known))
        unknown_after_dot = self._without_allowed(statement.names_after_dot - known)
        parameters = {
            "calls": sorted(calls),
            "known": sorted(calls & known),
            "names_after_dot": sorted(unknown_after_dot),
        }
        row = driver.execute(_UNSAFE_FUNCTION, parameters).fetchone()
        if row is not None:
            raise disallowed_function_error(row[0])

    def _without_allowed(self, names: Iterable[str]) -> set[str]:
        """Return the names of functions that the setting ``functions`` does not allow."""
        return {name for name in names if not is_listed(name, self._settings.functions)}

    def version(self, session: sa.Connection) -> str:
        """Return the server's version."""
        number = _psycopg_connection(session).info.server_version
        return f"PostgreSQL {number // 10000}.{number % 10000}"

    def explain(self, error: BaseException) -> Problem | None:
        """Return the problem behind an error of psycopg; None for any other error."""
        cause = driver_error(error)
        if not isinstance(cause, psycopg.Error):
            return super().explain(error)
        state = cause.sqlstate or ""
        text = _message(cause)
        if state == _QUERY_CANCELED:
            return Problem(cause="timeout", text=text)
        if state in _READ_ONLY:
            return Problem(cause="read-only", text=text)
        is_from_client = isinstance(cause, psycopg.OperationalError) and not state
        if is_from_client:  # the server sent no state, because the connection failed
            return Problem(cause="unavailable", text=text, is_connection_lost=True)
        if state.startswith(_UNAVAILABLE):
            is_lost = state.startswith(_LOST)
            return Problem(cause="unavailable", text=text, is_connection_lost=is_lost)
        return Problem(cause="statement", text=text)


def _psycopg_connection(session: sa.Connection) -> psycopg.Connection[Any]:
    driver: Any = session.connection.driver_connection
    return driver


def _check_url_options(options: Collection[str]) -> None:
    """Raise ConnectionConfigurationError for an option of a URL that libpq does not have.

    psycopg would take ``autocommit`` for its own argument, and a read-only session could write.
    """
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConnectionConfigurationError(
            f"url has an unknown option {unknown[0]!r}",
            hint="known are the options of PostgreSQL's library libpq, such as sslmode",
        )


def _message(error: psycopg.Error) -> str:
    """Return the server's message with its detail and hint, in one line."""
    primary = error.diag.message_primary
    if primary is None:  # an error of the client: the server sent no message
        for line in str(error).splitlines():
            text = first_line(_CONNECTION_FAILED_PREFIX.sub("", line))
            if text:
                return text
        return type(error).__name__
    parts = filter(None, (primary, error.diag.message_detail, error.diag.message_hint))
    return "; ".join(map(first_line, parts))
