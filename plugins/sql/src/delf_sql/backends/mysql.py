"""MySQL and MariaDB through asyncmy. Reading is a read-only transaction.

The server is told to take one statement at a time, and asked to prepare
``SELECT EXISTS (…)`` around every query, which takes a query and nothing else: no
``INTO OUTFILE``, not even in a comment that it executes. What a read-only transaction lets
through (locks, sleeping, files) is refused by the gate. The catalogue says whether a name that
it calls is a function of this database that nobody listed: the server looks there for known
names, too, where it has no such function itself or the name is quoted or stands before a blank.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import struct
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from delf.errors import ConnectionConfigurationError, ToolRefusedError
from delf_sql.backends.base import (
    Limits,
    Problem,
    Written,
    can_batch,
    first_line,
    unlisted,
)
from delf_sql.backends.mysql_catalog import read_relations, read_tables
from delf_sql.catalog import Relation, Table
from delf_sql.functions import is_listed
from delf_sql.gate import Statement
from delf_sql.placeholders import Bound, Params, bind
from delf_sql.rows import Fetched, collect
from delf_sql.target import Target
from delf_sql.values import for_mysql

Connection = Any
"""asyncmy's connection, whose type stubs say little and not always the truth."""

_FOUND_ROWS: Final = 2
_FIRST_WITH_ROLES: Final = 8
"""MySQL's; MariaDB has had them since 10.0.5."""
_COM_SET_OPTION: Final = 0x1B
_COM_RESET_CONNECTION: Final = 0x1F
_ONE_STATEMENT: Final = struct.pack("<H", 1)
_OTHER_READINGS: Final = frozenset(
    {
        "ANSI", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "IGNORE_SPACE", "PIPES_AS_CONCAT", "ORACLE",
        "MSSQL", "DB2", "MAXDB", "POSTGRESQL",
    }
)  # fmt: skip
"""Modes in which the server reads text by other rules than the gate."""
_UNLISTED: Final = """
SELECT routine_name FROM information_schema.routines
WHERE routine_schema = DATABASE() AND routine_name IN ({names}) LIMIT 1
"""
_TIMEOUTS: Final = (1969, 3024)
_READ_ONLY: Final = (1792, 1290, 1836)
_UNAVAILABLE: Final = (1040, 1044, 1045, 1049, 1053, 1129, 1130, 1152, 1203)
_CLIENT_ERRORS: Final = range(2000, 3000)
_SYNTAX_ERROR: Final = 1064
_NO_TABLE: Final = 1146
_NO_COLUMN: Final = 1054
_MISSING: Final = re.compile(r"'(?:[^']*\.)?([^'.]+)'")


class MysqlBackend:
    """Speaks with MySQL and MariaDB.

    Args:
        target: The database.
        limits: What a statement may take.
    """

    def __init__(self, target: Target, limits: Limits) -> None:
        self.target = target
        self._limits = limits
        self._readers: WeakSet[Connection] = WeakSet()
        self._places: WeakKeyDictionary[Connection, Sequence[Any]] = WeakKeyDictionary()

    async def connect(self, *, reader: bool) -> Connection:
        """A new connection; a reader's transactions are read-only.

        Args:
            reader: Whether it is for reading.
        """
        driver = await self._open()
        try:
            await self._prepare(driver, reader=reader)
        except BaseException:
            driver.close()
            raise
        if reader:
            self._readers.add(driver)
        return driver

    async def _prepare(self, driver: Connection, *, reader: bool) -> None:
        """Make a session of a fresh one: one statement at a time, read by MySQL's own rules."""
        await driver._execute_command(_COM_SET_OPTION, _ONE_STATEMENT)  # noqa: SLF001
        await driver.read_packet()
        role = "CURRENT_ROLE()" if _has_roles(driver) else "NULL"
        ((modes, *place),) = await self._rows(driver, f"SELECT @@sql_mode, DATABASE(), {role}")
        if self._places.setdefault(driver, place) != place:
            raise ConnectionResetError("a reset leaves the database and the role that were chosen")
        kept = [mode for mode in str(modes).split(",") if mode not in _OTHER_READINGS]
        settings = [
            f"sql_mode = '{','.join(kept)}'",
            "autocommit = 0",
            "sql_notes = 0",
            "max_error_count = 0",  # asyncmy logs them
        ]
        if reader:
            settings += [f"sql_select_limit = {self._limits.max_rows + 1}", self._clock(driver)]
        elif _is_mariadb(driver):
            settings.append(self._clock(driver))
        await driver.query(f"SET SESSION {', '.join(settings)}")
        await driver.query("SET NAMES utf8mb4")
        if reader:
            await driver.query("SET SESSION TRANSACTION READ ONLY")

    async def reset(self, driver: Connection) -> None:
        """End the transaction, and forget settings, locks, tables and variables of the session."""
        await driver._execute_command(_COM_RESET_CONNECTION, b"")  # noqa: SLF001
        await driver.read_packet()
        await self._prepare(driver, reader=driver in self._readers)

    async def revive(self, driver: Connection) -> bool:
        """Ask whether the server is still there.

        Args:
            driver: One that was reset.
        """
        try:
            await driver.ping(reconnect=False)
        except (self._error_class, OSError, EOFError):
            return False
        return True

    async def close(self, driver: Connection) -> None:
        """Say goodbye."""
        await driver.ensure_closed()

    async def _open(self) -> Connection:
        asyncmy: Any = importlib.import_module("asyncmy")
        target, options = self.target, self.target.options
        return await asyncmy.connect(
            host=target.host or "localhost",
            port=target.port or 0,
            user=target.user,
            password=target.password or "",
            database=target.database,
            unix_socket=options.get("unix_socket"),
            charset="utf8mb4",
            client_flag=_FOUND_ROWS,
            connect_timeout=max(1, round(self._limits.connect_timeout)),
            ssl=_ssl(options),
        )

    def _clock(self, driver: Connection) -> str:
        if _is_mariadb(driver):
            return f"max_statement_time = {self._limits.timeout:.3f}"
        return f"max_execution_time = {max(1, round(self._limits.timeout * 1000))}"

    async def read(
        self, driver: Connection, statement: Statement, params: Params, limit: int
    ) -> Fetched:
        """Run a query in a read-only transaction.

        Args:
            driver: A reader's connection.
            statement: What passed the gate.
            params: Its parameters.
            limit: The most rows to fetch.
        """
        bound = bind(statement.text, statement.tokens, params, "mysql", for_mysql)
        await driver.query("START TRANSACTION READ ONLY")
        await self._check_calls(driver, statement.calls)
        if statement.kind == "select":
            await self._check_is_query(driver, bound.probe)
        own_limit = any(token.word in ("LIMIT", "FETCH") for token in statement.tokens)
        return await self._run(driver, bound, limit, may_drain=not own_limit)

    async def _check_calls(self, driver: Connection, calls: Collection[str]) -> None:
        """Refuse functions that users made, but for those that are listed."""
        names = [name for name in calls if not is_listed(name, self._limits.functions)]
        if names:
            asked = _UNLISTED.format(names=", ".join(["%s"] * len(names)))
            for (name,) in await self._rows(driver, asked, names):
                raise unlisted(name)

    async def _check_is_query(self, driver: Connection, probe: str) -> None:
        """Let the server say that it is a query, without running it."""
        from asyncmy.errors import MySQLError

        try:
            await (await driver.prepare(f"SELECT EXISTS (\n{probe}\n)")).close()
        except MySQLError as error:
            if _code(error) != _SYNTAX_ERROR:
                raise
        else:
            return
        await (await driver.prepare(probe)).close()  # raises what is really wrong with it
        raise ToolRefusedError("query only reads and this is no plain query: use write")

    async def _run(
        self, driver: Connection, bound: Bound, limit: int, *, may_drain: bool
    ) -> Fetched:
        from asyncmy.cursors import SSCursor

        cursor = driver.cursor(SSCursor)
        done = False
        try:
            await cursor.execute(bound.text, bound.values)
            columns = [str(column[0]) for column in cursor.description or ()]
            if not columns:
                fetched = Fetched((), [], changed=cursor.rowcount)
            else:
                rows, more = await collect(_rows_of(cursor), limit, self._limits.max_bytes)
                fetched = Fetched(tuple(columns), rows, more)
            done = may_drain or not fetched.more
            return fetched
        except self._error_class as error:
            done = _code(error) not in _CLIENT_ERRORS
            raise
        finally:
            if done:
                await cursor.close()
            else:
                driver.close()  # the rest of the rows is not worth reading

    @property
    def _error_class(self) -> type[Exception]:
        from asyncmy.errors import MySQLError

        return MySQLError

    async def _rows(
        self, driver: Connection, text: str, values: Sequence[Any] | None = None
    ) -> list[Sequence[Any]]:
        async with driver.cursor() as cursor:
            await cursor.execute(text, values)
            return list(await cursor.fetchall())

    async def write(
        self, driver: Connection, statement: Statement, batches: Sequence[Params]
    ) -> Written:
        """Run a statement for each set of parameters, and commit.

        Args:
            driver: A writer's connection.
            statement: What passed the gate.
            batches: Sets of parameters, at least one.
        """
        bounds = [
            bind(statement.text, statement.tokens, params, "mysql", for_mysql) for params in batches
        ]
        written = Written()
        await driver.query("START TRANSACTION READ WRITE")
        if can_batch(statement, bounds):
            async with driver.cursor() as cursor:
                await cursor.executemany(bounds[0].text, [bound.values for bound in bounds])
                written.add(cursor.rowcount)
        else:
            for bound in bounds:
                room = written.room(self._limits.max_rows)
                fetched = await self._run(driver, bound, room, may_drain=False)
                written.add(fetched.changed, fetched)
        await driver.commit()
        return written

    async def relations(self, driver: Connection) -> list[Relation]:
        """All tables and views of the database."""
        return await read_relations(self._rows, driver)

    async def tables(self, driver: Connection, relations: Sequence[Relation]) -> list[Table]:
        """These with their columns.

        Args:
            driver: A reader's connection.
            relations: Of :meth:`relations`.
        """
        return await read_tables(self._rows, driver, relations)

    async def version(self, driver: Connection) -> str:
        """The server's product and version."""
        number = re.match(r"(?:5\.5\.5-)?([\d.]+)", driver.get_server_info())
        product = "MariaDB" if _is_mariadb(driver) else "MySQL"
        return f"{product} {number.group(1) if number else ''}".strip()

    async def interrupted(self, driver: Connection) -> None:
        """Kill what the server is still at; its transaction is rolled back."""
        thread = driver.thread_id()
        driver.close()
        killer = await self._open()
        try:
            with contextlib.suppress(self._error_class):  # it may have ended by itself
                await killer.query(f"KILL {int(thread)}")
        finally:
            await killer.ensure_closed()

    def is_usable(self, driver: Connection) -> bool:
        """Whether it is still connected."""
        return bool(driver.connected)

    def abandon(self, driver: Connection) -> None:
        """Close the socket, whose event loop is gone."""
        with contextlib.suppress(RuntimeError):
            driver.close()

    def explain(self, error: BaseException) -> Problem | None:
        """What an error of asyncmy means.

        Args:
            error: Any exception.
        """
        if not isinstance(error, self._error_class):
            return None
        code = _code(error)
        text = first_line(str(error.args[-1] if error.args else error))
        if code in _TIMEOUTS:
            return Problem(cause="timeout", text=text)
        if code in _READ_ONLY:
            return Problem(cause="read-only", text=text)
        if code in _UNAVAILABLE or code in _CLIENT_ERRORS or code == 0:
            return Problem(cause="unavailable", text=text)
        missing = _MISSING.search(text)
        name = missing.group(1) if missing else None
        return Problem(
            cause="statement",
            text=text,
            table=name if code == _NO_TABLE else None,
            column=name if code == _NO_COLUMN else None,
        )


async def _rows_of(cursor: Any) -> AsyncIterator[Sequence[Any]]:
    while (row := await cursor.fetchone()) is not None:
        yield row


def _code(error: BaseException) -> int:
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def _is_mariadb(driver: Connection) -> bool:
    return "mariadb" in driver.get_server_info().lower()


def _has_roles(driver: Connection) -> bool:
    major = driver.get_server_info().partition(".")[0]
    return _is_mariadb(driver) or (major.isdecimal() and int(major) >= _FIRST_WITH_ROLES)


def _ssl(options: dict[str, str]) -> Any:
    unknown = sorted(set(options) - {"unix_socket", "charset", "ssl", "ssl_ca"})
    if unknown:
        raise ConnectionConfigurationError(
            f"url has an unknown option {unknown[0]!r}", hint="known: ssl, ssl_ca, unix_socket"
        )
    authority = options.get("ssl_ca")
    if authority is None and options.get("ssl", "").lower() not in ("1", "true", "yes", "on"):
        return None
    import ssl

    return ssl.create_default_context(cafile=authority)
