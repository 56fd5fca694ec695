"""PostgreSQL through psycopg. Reading is a cursor in a read-only transaction.

``DECLARE … CURSOR FOR`` takes one query and nothing else, the extended protocol takes one
statement and nothing else, the transaction is read-only from its first statement on, so that
it cannot be made writable, and it is always rolled back. The catalogue says, before the query
runs, whether a name that it calls, or that stands after a dot, is a function of this database
that nobody listed: PostgreSQL reads ``x.f`` as ``f(x)`` where ``x`` has no such column.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from delf_sql.backends.base import (
    Limits,
    Problem,
    Written,
    can_batch,
    first_line,
    unlisted,
)
from delf_sql.backends.postgresql_catalog import read_relations, read_tables
from delf_sql.backends.postgresql_types import register_made_here, register_moments
from delf_sql.catalog import Relation, Table
from delf_sql.functions import is_listed, known_functions
from delf_sql.gate import Statement
from delf_sql.placeholders import Bound, Params, bind
from delf_sql.rows import Fetched, collect
from delf_sql.target import Target
from delf_sql.values import for_postgresql

if TYPE_CHECKING:
    import psycopg

_BEGIN: Final = """
SELECT pg_catalog.set_config('statement_timeout', %s, true),
       pg_catalog.set_config('standard_conforming_strings', 'on', true)
"""
_ROLE: Final = "SELECT pg_catalog.set_config('role', %s, true)"
_UNLISTED: Final = """
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
WHERE p.proname OPERATOR(pg_catalog.=) ANY (%(attributes)s::pg_catalog.name[])
  AND p.pronargs OPERATOR(pg_catalog.>=) 1
LIMIT 1
"""
"""Functions under a called name: volatile ones that are not known, and those that users made, but
for harmless ones of extensions; and whatever may be called by a name after a dot."""

_NEVER: Final = 1_000_000_000
_UNAVAILABLE: Final = ("08", "28", "3D", "53", "57P")
_CONNECTIONS_ENDED: Final = re.compile(r"^(?:connection (?:failed|to server)[^:]*:\s*)+")
_MISSING: Final = re.compile(r'(?:relation|column) "?([\w.$ ]+?)"? (?:of relation|does not exist)')


class PostgresBackend:
    """Speaks with PostgreSQL.

    Args:
        target: The database.
        limits: What a statement may take.
    """

    def __init__(self, target: Target, limits: Limits) -> None:
        self.target = target
        self._limits = limits

    async def connect(self, *, reader: bool) -> psycopg.AsyncConnection[Any]:
        """A new connection; a reader's transactions are read-only.

        Args:
            reader: Whether it is for reading.
        """
        import psycopg

        target = self.target
        options: dict[str, Any] = {
            "host": target.host or "localhost",
            "port": target.port,
            "user": target.user,
            "password": target.password,
            "application_name": "delf",
            "connect_timeout": max(2, round(self._limits.connect_timeout)),
            **target.options,
        }
        driver = await psycopg.AsyncConnection.connect(
            dbname=target.database,
            prepare_threshold=_NEVER,
            **{key: value for key, value in options.items() if value is not None},
        )
        driver.prepared_max = 0
        register_moments(driver)
        try:
            await driver.set_read_only(reader)
        except BaseException:
            await driver.close()
            raise
        return driver

    async def read(
        self,
        driver: psycopg.AsyncConnection[Any],
        statement: Statement,
        params: Params,
        limit: int,
    ) -> Fetched:
        """Run a query in a read-only transaction.

        Args:
            driver: A reader's connection.
            statement: What passed the gate.
            params: Its parameters.
            limit: The most rows to fetch.
        """
        bound = bind(statement.text, statement.tokens, params, "postgresql", for_postgresql)
        await self._begin_reading(driver, statement)
        async with driver.cursor() as cursor:
            if statement.kind == "select":
                return await self._select(cursor, bound, limit)
            await cursor.execute(_literal(bound.text), bound.values, prepare=True)
            return await self._collect(cursor, limit)

    async def _select(self, cursor: Any, bound: Bound, limit: int) -> Fetched:
        """Row after row, so that none is held before it is weighed."""
        query = f"DECLARE delf NO SCROLL CURSOR FOR {bound.text}"
        await cursor.execute(_literal(query), bound.values, prepare=True)
        async with contextlib.aclosing(cursor.stream(f"FETCH FORWARD {limit} FROM delf")) as source:
            rows, _ = await collect(source, limit, self._limits.max_bytes)
        columns = _columns(cursor) if rows else ()
        more = False
        if len(rows) == limit:
            await cursor.execute("FETCH FORWARD 1 FROM delf")
            more = cursor.rowcount > 0
        return Fetched(columns, rows, more)

    async def _begin_reading(
        self, driver: psycopg.AsyncConnection[Any], statement: Statement
    ) -> None:
        """The transaction's first statements: from here on it stays read-only."""
        await driver.execute(_BEGIN, [self._timeout])
        await register_made_here(driver)
        if self._limits.role is not None:
            await driver.execute(_ROLE, [self._limits.role])
        if not statement.calls and not statement.attributes:
            return
        listed = self._limits.functions
        names = statement.calls | statement.attributes
        others = {name for name in names if not is_listed(name, listed)}
        known = known_functions("postgresql") & others
        asked = {
            "calls": sorted(others & statement.calls | known),
            "known": sorted(known),
            "attributes": sorted(others & statement.attributes - known),
        }
        cursor = await driver.execute(_UNLISTED, asked)
        row = await cursor.fetchone()
        if row is not None:
            raise unlisted(row[0])

    @property
    def _timeout(self) -> str:
        return str(max(1, round(self._limits.timeout * 1000)))

    async def _collect(self, cursor: Any, limit: int) -> Fetched:
        columns = _columns(cursor)
        if not columns:
            return Fetched((), [])
        rows, more = await collect(cursor, limit, self._limits.max_bytes)
        return Fetched(columns, rows, more)

    async def write(
        self,
        driver: psycopg.AsyncConnection[Any],
        statement: Statement,
        batches: Sequence[Params],
    ) -> Written:
        """Run a statement for each set of parameters, and commit.

        Args:
            driver: A writer's connection.
            statement: What passed the gate.
            batches: Sets of parameters, at least one.
        """
        bounds = [
            bind(statement.text, statement.tokens, params, "postgresql", for_postgresql)
            for params in batches
        ]
        written = Written()
        await driver.execute(_BEGIN, [self._timeout])
        await register_made_here(driver)
        async with driver.cursor() as cursor:
            if can_batch(statement, bounds):
                values = [bound.values or [] for bound in bounds]
                await cursor.executemany(_literal(bounds[0].text), values)
                written.add(cursor.rowcount)
            else:
                for bound in bounds:
                    await self._write_one(cursor, bound, written)
        await driver.commit()
        return written

    async def _write_one(self, cursor: Any, bound: Bound, written: Written) -> None:
        await cursor.execute(_literal(bound.text), bound.values, prepare=True)
        fetched = await self._collect(cursor, written.room(self._limits.max_rows))
        written.add(cursor.rowcount, fetched)

    async def relations(self, driver: psycopg.AsyncConnection[Any]) -> list[Relation]:
        """All tables and views that this user may use."""
        return await read_relations(driver)

    async def tables(
        self, driver: psycopg.AsyncConnection[Any], relations: Sequence[Relation]
    ) -> list[Table]:
        """These with their columns.

        Args:
            driver: A reader's connection.
            relations: Of :meth:`relations`.
        """
        return await read_tables(driver, relations)

    async def version(self, driver: psycopg.AsyncConnection[Any]) -> str:
        """The server's version."""
        number = driver.info.server_version
        return f"PostgreSQL {number // 10000}.{number % 10000}"

    async def interrupted(self, driver: psycopg.AsyncConnection[Any]) -> None:
        """Nothing to do: psycopg cancels a statement when its task is cancelled."""

    async def reset(self, driver: psycopg.AsyncConnection[Any]) -> None:
        """End the transaction, and forget settings, locks, tables and cursors of the session."""
        await driver.rollback()
        await driver.set_autocommit(True)
        await driver.execute("DISCARD ALL")

    async def revive(self, driver: psycopg.AsyncConnection[Any]) -> bool:
        """Ask whether the server is still there.

        Args:
            driver: One that was reset.
        """
        import psycopg

        try:
            await driver.execute("SELECT 1")
            await driver.set_autocommit(False)
        except psycopg.Error:
            return False
        return True

    async def close(self, driver: psycopg.AsyncConnection[Any]) -> None:
        """Say goodbye."""
        await driver.close()

    def is_usable(self, driver: psycopg.AsyncConnection[Any]) -> bool:
        """Whether it is connected and its statement has ended."""
        from psycopg.pq import TransactionStatus

        status = driver.info.transaction_status
        return status not in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)

    def abandon(self, driver: psycopg.AsyncConnection[Any]) -> None:
        """Close the socket."""
        driver.pgconn.finish()

    def explain(self, error: BaseException) -> Problem | None:
        """What an error of psycopg means.

        Args:
            error: Any exception.
        """
        import psycopg

        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        text = _message(error)
        if state == "57014":
            return Problem(cause="timeout", text=text)
        if state in ("25006", "25001"):
            return Problem(cause="read-only", text=text)
        lost = isinstance(error, psycopg.OperationalError) and not state
        if lost or state.startswith(_UNAVAILABLE):
            return Problem(cause="unavailable", text=text)
        missing = _MISSING.search(text)
        name = missing.group(1) if missing else None
        hinted = error.diag.message_hint is not None
        return Problem(
            cause="statement",
            text=text,
            table=name if state == "42P01" else None,
            column=name if state == "42703" and not hinted else None,
        )


def _columns(cursor: Any) -> tuple[str, ...]:
    return tuple(str(column.name) for column in cursor.description or ())


def _message(error: psycopg.Error) -> str:
    primary = error.diag.message_primary
    if primary is None:
        lines = [first_line(_CONNECTIONS_ENDED.sub("", line)) for line in str(error).splitlines()]
        return next((line for line in lines if line), type(error).__name__)
    parts = [primary]
    with contextlib.suppress(AttributeError):
        parts += [part for part in (error.diag.message_detail, error.diag.message_hint) if part]
    return first_line(parts[0]) + "".join(f"; {first_line(part)}" for part in parts[1:])


def _literal(text: str) -> Any:
    """Psycopg's types want literal text; what a script gives is not, and need not be."""
    return text
