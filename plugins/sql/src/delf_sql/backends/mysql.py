# pyright: basic
# PyMySQL has hardly any types.
"""MySQL and MariaDB by PyMySQL; queries run in a read-only transaction.

The server is asked to prepare ``SELECT EXISTS (…)`` around every query, which admits nothing but a
query: no ``INTO OUTFILE``, not even in an executable comment. The gate refuses what a read-only
transaction allows (locks, sleeping, files). The catalogue is searched for user-defined functions
with a called name, because the server may call these instead of a built-in function.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Collection, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from pymysql.connections import Connection
from pymysql.constants import CLIENT, COMMAND, FIELD_TYPE
from pymysql.converters import conversions
from pymysql.err import MySQLError

from delf.errors import ConnectionConfigurationError, ToolRefusedError
from delf_sql.backends.base import Problem, disallowed_function_error, first_line
from delf_sql.backends.engine import EngineBackend, cut_socket, driver_error
from delf_sql.catalog import Catalogue
from delf_sql.functions import is_listed
from delf_sql.gate import Statement
from delf_sql.placeholders import BoundStatement, Params, bind
from delf_sql.rows import Fetched, too_large_error
from delf_sql.settings import SQLSettings
from delf_sql.target import Target
from delf_sql.values import AsText, for_mysql

# The first major version of MySQL with roles; MariaDB has had roles since 10.0.5.
_FIRST_VERSION_WITH_ROLES: Final = 8
_COM_RESET_CONNECTION: Final = 0x1F
STOP_SECONDS: Final = 3.0
# SQL modes in which the server parses text differently from :mod:`delf_sql.gate`.
_UNSUPPORTED_SQL_MODES: Final = frozenset(
    {
        "ANSI", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "IGNORE_SPACE", "PIPES_AS_CONCAT", "ORACLE",
        "MSSQL", "DB2", "MAXDB", "POSTGRESQL",
    }
)  # fmt: skip
_USER_DEFINED_FUNCTION: Final = """
SELECT routine_name FROM information_schema.routines
WHERE routine_schema = DATABASE() AND routine_name IN ({names}) LIMIT 1
"""
_TABLES_WITHOUT_TRANSACTIONS: Final = """
SELECT t.table_name, t.engine FROM information_schema.tables t
JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_name IN ({names}) AND e.transactions <> 'YES'
  AND t.table_schema NOT IN ('information_schema', 'performance_schema', 'sys', 'mysql')
ORDER BY 1 LIMIT 10
"""
_MAX_WARNINGS: Final = 3
# The smallest packet limit: delf's own queries need this size even if ``max_bytes`` is smaller.
_MIN_PACKET_BYTES: Final = 1_000_000
_TIMEOUTS: Final = (1969, 3024)
_READ_ONLY: Final = (1792, 1290, 1836)
_REFUSED: Final = (1040, 1044, 1045, 1049, 1129, 1130, 1152, 1203)
_SHUTDOWN: Final = 1053
_CLIENT_ERRORS: Final = range(2000, 3000)
_SYNTAX_ERROR: Final = 1064
# MariaDB stores JSON as longtext with a check constraint, so the text in /*M! … */, which only
# MariaDB runs, looks for that constraint. Its condition on %(keys)s is repeated because MariaDB
# would otherwise open all tables for each column.
#
# Each statement needs its own LIMIT, because readers' sessions set sql_select_limit.
_CATALOGUE: Final = Catalogue(
    relations="""
SELECT table_name, NULL, table_name, table_type = 'VIEW',
       IF(table_type = 'VIEW', NULL, NULLIF(table_comment, ''))
FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_type IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED')
ORDER BY table_name LIMIT 1000000
""",
    columns="""
SELECT table_name, column_name,
       /*M!100222 IF(EXISTS(
           SELECT 1 FROM information_schema.check_constraints k
           WHERE k.constraint_schema = DATABASE() AND k.table_name = c.table_name
             AND k.table_name IN %(keys)s
             AND k.constraint_name = c.column_name AND k.check_clause LIKE 'json_valid(%%'
       ), 'json', */ column_type /*M!100222 ) */,
       is_nullable = 'YES', NULLIF(column_comment, '')
FROM information_schema.columns c
WHERE table_schema = DATABASE() AND table_name IN %(keys)s
ORDER BY table_name, ordinal_position LIMIT 1000000
""",
    constraints="""
SELECT table_name, column_name, IF(column_key = 'PRI', 'p', 'u'), NULL
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name IN %(keys)s AND column_key IN ('PRI', 'UNI')
UNION ALL
SELECT table_name, column_name, 'f',
       CONCAT_WS('.', NULLIF(referenced_table_schema, DATABASE()), referenced_table_name,
                 referenced_column_name)
FROM information_schema.key_column_usage
WHERE table_schema = DATABASE() AND table_name IN %(keys)s AND referenced_table_name IS NOT NULL
LIMIT 1000000
""",
)


def _with_marked_texts(convert: Any) -> Any:
    """Wrap a conversion function so that texts in its results become :class:`AsText`.

    The conversion returns a text only for a value without a Python equivalent, such as 0000-00-00.
    """

    def convert_and_mark(value: Any) -> Any:
        converted = convert(value)
        return AsText(converted) if isinstance(converted, str) else converted

    return convert_and_mark


def _supported_sql_modes(modes: object) -> str:
    supported = [mode for mode in str(modes).split(",") if mode not in _UNSUPPORTED_SQL_MODES]
    return ",".join(supported)


_MOMENTS: Final = (FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIME)
_CONVERSIONS: Final[dict[Any, Any]] = {
    **conversions,
    **{kind: _with_marked_texts(conversions[kind]) for kind in _MOMENTS},
}


_Base: Any = Connection  # the type checker knows none of the methods that _Connection overrides


class _Connection(_Base):
    """A PyMySQL connection with a limit on packet size.

    Args:
        max_packet_bytes: The maximum number of bytes of a packet.
        options: Options of PyMySQL.
    """

    def __init__(self, *, max_packet_bytes: int, **options: Any) -> None:
        self._max_packet_bytes = max_packet_bytes
        self._packet_bytes = 0
        super().__init__(**options)

    def _read_packet(self, *kind: Any) -> Any:
        self._packet_bytes = 0
        return super()._read_packet(*kind)

    def _read_bytes(self, num_bytes: int) -> Any:
        """Read bytes of the current packet; cut the connection if the packet is too large."""
        self._packet_bytes += num_bytes
        if self._packet_bytes > self._max_packet_bytes:
            self.cut()
            raise too_large_error(self._max_packet_bytes, rows=1)
        return super()._read_bytes(num_bytes)

    def cut(self) -> None:
        """Close the connection in the middle of an unneeded result."""
        result: Any = self._result
        if result is not None and result.unbuffered_active:
            # PyMySQL would otherwise read the rest of the result before it closes.
            result.unbuffered_active = False
            result.connection = None
            self._result = None
        self._force_close()

    def prepare(self, text: str) -> None:
        """Let the server check a statement by preparing it; the statement does not run."""
        self._execute_command(COMMAND.COM_STMT_PREPARE, text)
        packet = self._read_packet()
        _, number, columns, params = struct.unpack_from("<BIHH", packet.get_all_data())
        # Read the descriptions of parameters and columns, too. Otherwise, they would be taken for
        # the answer to the next command.
        for count in (params, columns):
            packet_count = count + 1 if count else 0  # an end packet follows the descriptions
            for _ in range(packet_count):
                self._read_packet()
        self._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", number))

    def reset(self) -> None:
        """Roll back, and reset settings, locks, temporary tables and variables."""
        self._execute_command(_COM_RESET_CONNECTION, b"")
        self._read_ok_packet()


class MysqlBackend(EngineBackend):
    """The backend for MySQL and MariaDB.

    Args:
        target: The database.
        settings: The limits of a statement.
    """

    grace = 1.0
    catalogue = _CATALOGUE

    def __init__(self, target: Target, settings: SQLSettings) -> None:
        super().__init__(target, settings)
        # The database and role with which each session was opened.
        self._database_and_role: WeakKeyDictionary[_Connection, Sequence[Any]] = WeakKeyDictionary()

    def _url(self) -> sa.URL:
        return sa.URL.create("mysql+pymysql")  # only the driver: _open() knows host and database

    def _options(self, read_only: bool) -> dict[str, Any]:
        # SQLAlchemy connects with this function. _prepare() makes a session read-only later.
        return {"creator": self._open}

    def _prepare(self, driver: _Connection, *, read_only: bool) -> None:
        """Configure a new or reset session, with the SQL mode that :mod:`delf_sql.gate` needs.

        Raises:
            ConnectionResetError: If a statement has changed the session's database or role.
        """
        role = "CURRENT_ROLE()" if _has_roles(driver) else "NULL"
        (row,) = _rows(driver, f"SELECT @@sql_mode, DATABASE(), {role}")
        modes, *database_and_role = row
        self._require_same_database_and_role(driver, database_and_role)
        settings = [
            f"sql_mode = '{_supported_sql_modes(modes)}'",
            "autocommit = 0",
            "sql_notes = 0",  # notes would displace warnings
            f"max_error_count = {_MAX_WARNINGS}",
        ]
        if read_only:
            # One row more than the maximum shows that the result has more rows.
            settings.append(f"sql_select_limit = {self._settings.max_rows + 1}")
        if read_only or _is_mariadb(driver):  # MySQL's time limit is for SELECT only
            settings.append(self._timeout_setting(driver))
        driver.query(f"SET SESSION {', '.join(settings)}")
        driver.query("SET NAMES utf8mb4")  # connecting has set this, and a reset undoes it
        if read_only:
            driver.query("SET SESSION TRANSACTION READ ONLY")

    def _require_same_database_and_role(
        self, driver: _Connection, database_and_role: Sequence[Any]
    ) -> None:
        """Raise ConnectionResetError if a statement has changed the session's database or role.

        The reset of a session may not restore the database and the role.
        """
        if driver not in self._database_and_role:  # the session is new
            self._database_and_role[driver] = database_and_role
        elif self._database_and_role[driver] != database_and_role:
            raise ConnectionResetError("the session has another database or role than before")

    def _reset(self, connection: sa.Connection, *, read_only: bool) -> None:
        _pymysql_connection(connection).reset()
        self._prepare(_pymysql_connection(connection), read_only=read_only)

    def _open(self, seconds: float | None = None) -> _Connection:
        """Connect to the server.

        Args:
            seconds: The limit for connecting and for each read. Without it, the setting
                ``connect_timeout`` limits connecting, and nothing limits reads.
        """
        target = self.target
        options = target.options
        return _Connection(
            max_packet_bytes=max(self._settings.max_bytes, _MIN_PACKET_BYTES),
            host=target.host or "localhost",
            port=target.port or 0,
            user=target.user,
            password=target.password or "",
            database=target.database,
            unix_socket=options.get("unix_socket"),
            charset="utf8mb4",
            client_flag=CLIENT.FOUND_ROWS,  # count matched rows, as other databases do
            connect_timeout=max(1, round(seconds or self._settings.connect_timeout)),
            read_timeout=seconds,
            ssl=_ssl(options),
            conv=_CONVERSIONS,
        )

    def _timeout_setting(self, driver: _Connection) -> str:
        if _is_mariadb(driver):
            return f"max_statement_time = {self._settings.statement_timeout:.3f}"
        return f"max_execution_time = {max(1, round(self._settings.statement_timeout * 1000))}"

    def stop(self, session: sa.Connection) -> None:
        """Kill the session on the server, and shut down the connection.

        The server then ends the running statement, and rolls the transaction back.
        """
        driver = _pymysql_connection(session)
        try:
            with contextlib.closing(self._open(STOP_SECONDS)) as killer:
                # Use another connection, because a busy connection accepts no command.
                killer.query(f"KILL {int(driver.thread_id())}")
        except MySQLError:
            pass  # the statement has ended, or the server is gone
        finally:
            # A server that is gone may never answer the thread that runs the statement.
            if driver.open:
                cut_socket(driver._sock.fileno())  # noqa: SLF001 - PyMySQL has no public way

    def _bind(self, statement: Statement, params: Params) -> BoundStatement:
        return bind(statement.text, statement.tokens, params, "mysql", for_mysql)

    def _placeholder_types(
        self, session: sa.Connection, bound: BoundStatement, *, is_write: bool
    ) -> Sequence[str | None]:
        """Return for each placeholder the type of the column that stores its value.

        The type is None if the value is not stored in a column, or if the column is unknown. The
        type TIME of MySQL is returned as ``interval``, because it counts as a duration.
        """
        types = super()._placeholder_types(session, bound, is_write=is_write)
        return ["interval" if _is_time(kind) else kind for kind in types]

    def _begin(self, session: sa.Connection, *, read_only: bool) -> None:
        # A statement of our own, because SQLAlchemy cannot begin MySQL's read-only transactions.
        _pymysql_connection(session).query(
            f"START TRANSACTION READ {'ONLY' if read_only else 'WRITE'}"
        )

    def _check(self, session: sa.Connection, statement: Statement, bound: BoundStatement) -> None:
        driver = _pymysql_connection(session)
        self._check_calls(driver, statement.calls)
        _check_is_query(driver, bound.text())

    def _fetch(
        self, session: sa.Connection, bound: BoundStatement, limit: int, *, streams: bool
    ) -> Fetched:
        # Stream the rows of writes, too, whatever the caller passes. PyMySQL would otherwise fetch
        # all rows of an ``INSERT … RETURNING`` of MariaDB at once, beyond the limits.
        return super()._fetch(session, bound, limit, streams=True)

    def _warnings(self, session: sa.Connection) -> tuple[str, ...]:
        """Return MySQL's warnings about a statement, for example about a truncated text.

        If there are more warnings than MySQL keeps, a last line has the number of the others.
        """
        driver = _pymysql_connection(session)
        result: Any = driver._result  # noqa: SLF001 - the closed cursor no longer has the result
        count = 0 if result is None else result.warning_count
        if not count:
            return ()
        lines = [first_line(str(row[-1])) for row in driver.show_warnings()]
        missing_count = count - len(lines)
        if missing_count > 0:
            lines.append(f"{missing_count} more warnings")
        return tuple(lines)

    def _discard_rows(self, session: sa.Connection) -> None:
        # Close the connection: PyMySQL would read the remaining rows before the next statement.
        _pymysql_connection(session).cut()

    def _check_calls(self, driver: _Connection, calls: Collection[str]) -> None:
        """Refuse calls of user-defined functions that are not allowed."""
        names = [name for name in calls if not is_listed(name, self._settings.functions)]
        if names:
            query = _USER_DEFINED_FUNCTION.format(names=", ".join(["%s"] * len(names)))
            user_defined = _rows(driver, query, names)
            if user_defined:
                raise disallowed_function_error(user_defined[0][0])

    def without_transactions(
        self, session: sa.Connection, names: Collection[str]
    ) -> Sequence[tuple[str, str]]:
        """Return tables with engines such as MyISAM, which cannot roll back."""
        query = _TABLES_WITHOUT_TRANSACTIONS.format(names=", ".join(["%s"] * len(names)))
        return [
            (str(name), str(engine))
            for name, engine in _rows(_pymysql_connection(session), query, [*names])
        ]

    def version(self, session: sa.Connection) -> str:
        """Return the server's product and version."""
        driver = _pymysql_connection(session)
        # MariaDB puts "5.5.5-" before its version, for old clients.
        number = re.match(r"(?:5\.5\.5-)?([\d.]+)", driver.get_server_info())
        product = "MariaDB" if _is_mariadb(driver) else "MySQL"
        return f"{product} {number.group(1) if number else ''}".strip()

    def explain(self, error: BaseException) -> Problem | None:
        """Return the problem behind an error of PyMySQL; None for any other error."""
        cause = driver_error(error)
        if not isinstance(cause, MySQLError):
            return super().explain(error)
        code = _code(cause)
        text = first_line(str(cause.args[-1] if cause.args else cause))
        if code in _TIMEOUTS:
            return Problem(cause="timeout", text=text)
        if code in _READ_ONLY:
            return Problem(cause="read-only", text=text)
        if code in _REFUSED:
            return Problem(cause="unavailable", text=text)
        # PyMySQL has no code (0) for a connection that is already closed.
        if code == _SHUTDOWN or code in _CLIENT_ERRORS or code == 0:
            return Problem(cause="unavailable", text=text, is_connection_lost=True)
        return Problem(cause="statement", text=text)


def _pymysql_connection(session: sa.Connection) -> _Connection:
    driver: Any = session.connection.driver_connection
    return driver


def _rows(
    driver: _Connection, text: str, values: Sequence[Any] | None = None
) -> Sequence[Sequence[Any]]:
    """Run one of delf's own queries, and return all its rows."""
    with driver.cursor() as cursor:
        cursor.execute(text, values)
        return cursor.fetchall()


def _check_is_query(driver: _Connection, text: str) -> None:
    """Check with the server that a text is a query, without running it.

    Raises:
        ToolRefusedError: If the text is a valid statement of another kind, such as DELETE.
    """
    try:
        # In parentheses, only a query is valid. Preparing a statement does not run it.
        driver.prepare(f"SELECT EXISTS (\n{text}\n)")
    except MySQLError as error:
        if _code(error) != _SYNTAX_ERROR:
            raise
    else:
        return
    driver.prepare(text)  # raises the server's error if the text has a mistake, such as SELEC
    raise ToolRefusedError("query only reads, and this is not a plain query: use write")


def _code(error: BaseException) -> int:
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def _is_mariadb(driver: Connection) -> bool:
    return "mariadb" in driver.get_server_info().lower()


def _has_roles(driver: Connection) -> bool:
    major = driver.get_server_info().partition(".")[0]
    return _is_mariadb(driver) or (major.isdecimal() and int(major) >= _FIRST_VERSION_WITH_ROLES)


def _ssl(options: dict[str, str]) -> Any:
    """Return the TLS context that URL options request; None without TLS."""
    # URLs for other programs often have a charset. It is ignored: delf always uses utf8mb4.
    unknown = sorted(set(options) - {"unix_socket", "charset", "ssl", "ssl_ca"})
    if unknown:
        raise ConnectionConfigurationError(
            f"url has an unknown option {unknown[0]!r}", hint="known: ssl, ssl_ca, unix_socket"
        )
    authority = options.get("ssl_ca")
    is_switched_on = options.get("ssl", "").lower() in ("1", "true", "yes", "on")
    if authority is None and not is_switched_on:
        return None
    import ssl

    return ssl.create_default_context(cafile=authority)


def _is_time(kind: str | None) -> bool:
    """Return True for a column type such as ``time`` or ``time(3)``, but not for ``timestamp``."""
    return kind is not None and (kind == "time" or kind.startswith("time("))
