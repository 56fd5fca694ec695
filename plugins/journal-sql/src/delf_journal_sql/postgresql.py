"""PostgreSQL by psycopg, without SQLAlchemy, whose import takes longer than most commands."""

from __future__ import annotations

import contextlib
import functools
import re
import select
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from delf.errors import OptionalDependencyError
from delf_journal_sql.errors import (
    ConnectionLostError,
    DuplicateRowError,
    JournalError,
    JournalSetupError,
)
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.statements import (
    SqlRow,
    WordSearch,
    insert_statements,
    name_columns,
)

if TYPE_CHECKING:
    import psycopg

_LOCK_KEY: Final = 0x64656C66  # "delf"
_CHANNEL: Final = "delf_journal"
_CONNECT_SECONDS: Final = 10
SILENCE_SECONDS: Final = 5.0
"""The seconds that a statement may run without data before delf probes the server."""
_GREETING_SECONDS: Final = 3
# The time after which the server aborts an idle transaction, in seconds.
#
# Without this limit, a process that is suspended in a transaction would block all other writers.
_IDLE_TRANSACTION_SECONDS: Final = 5
_PARAMETER: Final = re.compile(r":(\w+)")


class PostgresConnection:
    """A connection to PostgreSQL; parameters in its statements are written as ``:name``.

    Failures raise :class:`JournalError`, :class:`DuplicateRowError` or
    :class:`ConnectionLostError`. The methods do the same as those of ``SqliteConnection``.

    Args:
        database: The database, which pools the connection.
        raw: The psycopg connection in autocommit mode.
    """

    # Independent of the database's locale; see ``_text_parameters`` of ``store.py``.
    lower_case = 'LOWER(TRANSLATE({}, :upper, :lower) COLLATE "C")'

    def __init__(self, database: PostgresDatabase, raw: psycopg.Connection[Any]) -> None:
        self._database = database
        self._raw = raw
        self._writes = False

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[SqlRow]:
        """Run a statement; return its rows."""
        with self._database.convert_errors(self._raw):
            cursor = self._raw.execute(_psycopg_statement(sql), parameters or {})
            columns = [column.name for column in cursor.description or ()]
            return name_columns(columns, cursor.fetchall()) if columns else []

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        unique: str | None = None,
    ) -> list[SqlRow]:
        """Insert rows into a table, many with one statement.

        See :meth:`delf_journal_sql.sqlite.SqliteConnection.insert`.
        """
        # Not in psycopg's pipeline mode: a process that is suspended in a pipeline would keep its
        # locks, because the server does not count such a session as idle.
        inserted: list[SqlRow] = []
        statements = insert_statements(table, columns, rows, unique=unique, placeholder="%s")
        with self._database.convert_errors(self._raw):
            for sql, values in statements:
                cursor = self._raw.execute(sql.encode(), values)
                if unique:
                    inserted += name_columns(("id", unique), cursor.fetchall())
        return inserted

    def has_table(self, name: str) -> bool:
        """Return True if a table exists."""
        sql = (
            "SELECT 1 FROM pg_catalog.pg_tables "  # to_regclass would answer from a cache
            "WHERE tablename = :name AND schemaname = ANY(current_schemas(false))"
        )
        return bool(self.execute(sql, {"name": name}))

    def tables(self) -> set[str]:
        """Return the names of delf's tables."""
        sql = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"
        return {name for (name,) in self.execute(sql) if str(name).startswith("delf_")}

    def stream(self, table: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        """Return a table's column names, and an iterator that fetches its rows in small batches."""
        cursor = self._raw.cursor(name=f"all_{table}")
        with self._database.convert_errors(self._raw):
            cursor.execute(f"SELECT * FROM {table}".encode())  # noqa: S608 - only names of this module
        columns = [column.name for column in cursor.description or ()]
        return columns, self._rows_of(cursor)

    def _rows_of(self, cursor: psycopg.ServerCursor[Any]) -> Iterator[Sequence[Any]]:
        with self._database.convert_errors(self._raw), cursor:
            yield from cursor

    def advance_id_sequences(self, tables: Collection[str]) -> None:
        """Set the id sequences of tables past the highest id of their copied rows."""
        rows = self.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE is_identity = 'YES' AND table_schema = current_schema()"
        )
        for row in rows:
            table = row.table_name
            column = row.column_name
            if table in tables:
                self.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), "  # noqa: S608 - only names of this module
                    f"(SELECT COALESCE(MAX({column}), 0) + 1 FROM {table}), false)"
                )

    def size(self) -> tuple[int, int]:
        """Return the size of the tables and indexes in bytes, and 0 as unknown free space."""
        ((total,),) = self.execute(
            "SELECT CAST(COALESCE(SUM(pg_total_relation_size(oid)), 0) AS bigint) FROM pg_class "
            "WHERE relkind = 'r' AND relname LIKE 'delf\\_%' "
            "AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
        )
        return int(total), 0

    def check(self) -> None:
        """Do nothing, because the server checks its own files."""

    def now(self) -> float:
        """Return the server's Unix time, with which heartbeats are compared."""
        sql = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
        return float(self.execute(sql)[0][0])

    def begin(self, *, write: bool, long: bool = False) -> None:
        """Begin a transaction.

        Write transactions hold a lock, so that events are committed in the order of their
        positions.

        Args:
            write: Whether the transaction may write.
            long: Whether the transaction may be idle for longer than the server usually allows.
        """
        self._writes = write
        if write:
            self.execute("BEGIN")
            # Without the lock, an event could be committed after readers saw an event with a higher
            # position.
            self.execute("SELECT pg_advisory_xact_lock(:key)", {"key": _LOCK_KEY})
        else:
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if long:
            self.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

    def commit(self) -> None:
        """Commit the transaction. After a write transaction, notify all processes that listen."""
        if self._writes:  # PostgreSQL sends the notification when the transaction is committed
            self.execute(f"SELECT pg_notify('{_CHANNEL}', '')")
        with self._database.convert_errors(self._raw):
            self._raw.commit()

    def rollback(self) -> None:
        """Roll back the transaction."""
        with contextlib.suppress(*self._database.errors):
            self._raw.rollback()

    def close(self) -> None:
        """Return the connection to its pool."""
        self.rollback()
        self._database.give_back(self._raw)


class PostgresDatabase:
    """A PostgreSQL database in which a journal is stored.

    Args:
        url_without_scheme: The part of the URL after ``postgresql://``.
        settings: The journal's settings.

    Raises:
        JournalSetupError: If the URL is invalid.
        OptionalDependencyError: If psycopg is not installed.
    """

    types: Mapping[str, str] = {
        "serial": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "big": "BIGINT",
        "real": "DOUBLE PRECISION",
        "bytes": "BYTEA",
    }
    truncation = "CAST(FLOOR({}) AS BIGINT)"
    text_search = WordSearch(
        create_statements=(
            "CREATE TABLE delf_index_words (rowid BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
            "CREATE INDEX delf_index_words_gin ON delf_index_words USING gin (words)",
        ),
        insert=(
            "INSERT INTO delf_index_words (rowid, words) "
            "VALUES (:place, to_tsvector('simple', :words))"
        ),
        match="words @@ to_tsquery('simple', :query)",
        # [("not", "paid"), ("ada",)] -> 'not' <-> 'paid' & 'ada':*
        query=lambda terms: (
            " & ".join(" <-> ".join(f"'{w}'" for w in term) for term in terms) + ":*"
        ),
    )

    def __init__(self, url_without_scheme: str, settings: JournalSettings) -> None:
        try:
            import psycopg
            from psycopg import conninfo
        except ImportError as error:
            raise OptionalDependencyError(
                "a journal in PostgreSQL needs psycopg",
                package="delf-plugin-journal-sql[postgresql]",
            ) from error
        try:
            self._target = _parse_url(url_without_scheme)
            public_target = self._target | {"password": ""}
            # Check the options. The password is left out, because errors quote the parameters.
            conninfo.make_conninfo("", **public_target)
        except (psycopg.Error, ValueError, TypeError):  # TypeError for an option ``conninfo``
            raise JournalSetupError(
                "the URL of the journal cannot be read",
                hint="it is postgresql://user:password@host:5432/database; "
                "in a password, write @ as %40, / as %2F and : as %3A",
            ) from None
        self.name = _url_without_password(public_target)
        self.errors: tuple[type[Exception], ...] = (psycopg.Error, OSError)
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        lock_milliseconds = max(1, int(settings.lock_timeout * 1000))  # 0 would be no limit
        self._options: dict[str, Any] = {
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "delf-journal",
            "options": f"-c lock_timeout={lock_milliseconds} -c client_min_messages=warning "
            f"-c idle_in_transaction_session_timeout={_IDLE_TRANSACTION_SECONDS * 1000}",
        }

    @contextmanager
    def convert_errors(self, raw: psycopg.Connection[Any] | None) -> Generator[None]:
        """Convert psycopg's exceptions in a ``with`` block to errors of this plugin.

        Args:
            raw: The connection in use; None while a connection is opened.
        """
        try:
            yield
        except self.errors as error:
            raise self._explain(error, raw) from error

    def connect(self) -> PostgresConnection:
        """Return a connection from the pool, or a new connection."""
        return PostgresConnection(self, self._take_from_pool() or self._open())

    @contextmanager
    def reader(self) -> Generator[PostgresConnection]:
        """Borrow a pooled connection for reading."""
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()

    def changes(self) -> PostgresChanges:
        """Start watching for writes of any process."""
        return PostgresChanges(self)

    def listen(self) -> psycopg.Connection[Any]:
        """Open a psycopg connection that receives a notification of every write."""
        raw = self._open()
        try:
            with self.convert_errors(raw):
                raw.execute(f"LISTEN {_CHANNEL}".encode())
        except BaseException:
            raw.close()
            raise
        return raw

    def is_responding(self) -> bool:
        """Return True if the server responds within seconds, even with an error."""
        import psycopg

        try:
            options: dict[str, Any] = {**self._target, **self._options}
            options["connect_timeout"] = _GREETING_SECONDS
            psycopg.connect(**options).close()
        except psycopg.errors.ConnectionTimeout:
            self._close_idle()  # otherwise each idle connection would wait for the timeout
            return False
        except self.errors:
            return True
        return True

    def reclaim(self) -> None:
        """Do nothing, because PostgreSQL reuses space itself."""

    def close(self) -> None:
        """Close pooled connections."""
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for raw in idle:
            raw.close()

    def give_back(self, raw: psycopg.Connection[Any]) -> None:
        """Return a borrowed connection to the pool."""
        with self._lock:
            if not raw.closed:
                self._idle.append(raw)

    def _take_from_pool(self) -> psycopg.Connection[Any] | None:
        """Return an idle connection that works; None if there is none.

        Broken connections are closed.
        """
        while True:
            with self._lock:
                raw = self._idle.pop() if self._idle else None
            if raw is None:
                return None
            with contextlib.suppress(*self.errors):  # an empty statement tests the connection
                raw.execute(b"")
                return raw
            raw.close()

    def _open(self) -> psycopg.Connection[Any]:
        with self.convert_errors(None):
            connection_class = _watched_connection(self.is_responding)
            return connection_class.connect(autocommit=True, **self._target | self._options)

    def _explain(self, error: Exception, raw: psycopg.Connection[Any] | None) -> Exception:
        """Return the plugin's error for an exception of psycopg.

        An error after which another attempt may succeed becomes :class:`ConnectionLostError`.

        Args:
            error: The exception.
            raw: The connection in use; None while a connection is opened.
        """
        import psycopg

        message = " ".join(str(error).split())
        if isinstance(error, psycopg.errors.UniqueViolation):
            return DuplicateRowError(message)
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return JournalError(
                f"the journal {self.name} was locked by another process for too long",
                hint="pg_locks shows who holds it; or raise lock_timeout of the plugin journal-sql",
            )
        state = getattr(error, "sqlstate", None) or ""
        # Classes 08 and 57: the connection failed, or an operator ended the session. An error that
        # does not come from the server, such as a closed socket, has no state.
        has_broken_state = state[:2] in ("", "08", "57")
        is_broken = has_broken_state and isinstance(error, psycopg.OperationalError)
        has_timed_out = isinstance(error, psycopg.errors.IdleInTransactionSessionTimeout)
        is_closed = raw is not None and bool(raw.closed)
        if is_broken or has_timed_out or is_closed:
            if raw is None:
                reason = JournalSetupError(f"the journal {self.name} does not answer: {message}")
                reason.is_outage = True
            else:
                reason = JournalError(f"the connection to the journal {self.name} broke: {message}")
            return ConnectionLostError(reason)
        # Wrong password, no such user, no such database, no permission, no such schema.
        if state in ("28P01", "28000", "3D000", "42501", "3F000"):
            return JournalSetupError(f"the journal {self.name} cannot be used: {message}")
        return JournalError(f"the journal {self.name} failed: {message}")


def _watched_connection(is_server_responding: Callable[[], bool]) -> type[psycopg.Connection[Any]]:
    """Return a connection class whose statements fail if the server stops responding.

    psycopg itself would wait forever for a suspended server, whose kernel still accepts data.

    Args:
        is_server_responding: Returns True if the server answers on another connection; may take
            seconds.
    """
    import psycopg

    class Watched(psycopg.Connection[Any]):
        def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
            """Wait for the server as psycopg does; raise if the server stops responding."""
            silence = _Silence(is_server_responding)

            def raise_if_server_is_gone(data_came: bool) -> None:
                if silence.is_server_gone(data_came):
                    self.pgconn.finish()
                    raise psycopg.OperationalError("the server does not answer")

            checked_gen = _check_each_wait(gen, raise_if_server_is_gone)
            return super().wait(checked_gen, *args, **more)

    return Watched


class _Silence:
    """The time since a server last sent data, or answered on another connection.

    Args:
        is_server_responding: Returns True if the server answers on another connection.
    """

    def __init__(self, is_server_responding: Callable[[], bool]) -> None:
        self._is_server_responding = is_server_responding
        self._last_answer_at = time.monotonic()

    def is_server_gone(self, data_came: bool) -> bool:
        """Return True if the server is silent for too long on this and on another connection.

        Args:
            data_came: Whether data came from the server during the last wait for the socket.
        """
        if data_came:
            self._last_answer_at = time.monotonic()
            return False
        seconds = time.monotonic() - self._last_answer_at
        if seconds <= SILENCE_SECONDS:
            return False
        # A server that answers on another connection is alive: the statement takes long, or waits
        # for a lock.
        if not self._is_server_responding():
            return True
        self._last_answer_at = time.monotonic()
        return False


def _check_each_wait(
    statement: Generator[Any, Any, Any], check_wait: Callable[[bool], None]
) -> Generator[Any, Any, Any]:
    """Pass through psycopg's generator for a statement; call a function after each wait.

    psycopg's generators yield when psycopg must wait for the socket. psycopg then sends them the
    state of the socket, or 0 if no data came for a short time.

    Args:
        statement: The generator.
        check_wait: Called with True if data came, else with False; raises to abort the statement.
    """
    socket_state = None
    while True:
        try:
            awaited_state = statement.send(socket_state)
        except StopIteration as end:
            return end.value
        socket_state = yield awaited_state
        check_wait(bool(socket_state))


@functools.lru_cache(256)
def _psycopg_statement(sql: str) -> bytes:
    """Convert a statement's ``:name`` parameters to psycopg's ``%(name)s``."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")).encode()


def _parse_url(url_without_scheme: str) -> dict[str, Any]:
    """Parse a URL into connection parameters of libpq.

    libpq's own parser is not used: with an ``@`` in the password it takes the rest of the password
    for the host, and shows that text in errors.

    Raises:
        ValueError: If the URL is invalid.
    """
    url = urllib.parse.urlsplit(f"postgresql://{url_without_scheme}")
    # With an unescaped / or # in the password, urlsplit() takes the rest of the password and the @
    # for a part of the path or fragment.
    if "@" in url.path or url.fragment:
        raise ValueError("a / or # that is not escaped")
    parameters_of_url = {
        "user": url.username,
        "password": url.password,
        "host": url.hostname,
        "port": url.port,
        "dbname": url.path.removeprefix("/"),
    }
    parameters: dict[str, Any] = {}
    for name, value in parameters_of_url.items():
        if value:
            parameters[name] = urllib.parse.unquote(value) if isinstance(value, str) else value
    return parameters | dict(urllib.parse.parse_qsl(url.query, strict_parsing=bool(url.query)))


def _url_without_password(target: Mapping[str, Any]) -> str:
    """Return the URL of the database without its password."""
    user = f"{target['user']}@" if "user" in target else ""
    port = f":{target['port']}" if "port" in target else ""
    return f"postgresql://{user}{target.get('host', '')}{port}/{target.get('dbname', '')}"


class PostgresChanges:
    """Waits for PostgreSQL's notifications of writes.

    Args:
        database: The database.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._raw = database.listen()
        # close() sends a byte through this pair to end the select() of another thread. Closing a
        # descriptor would not end it.
        self._closing_receiver, self._closing_sender = socket.socketpair()
        self._closing_sender.setblocking(False)
        self._closed = False

    def wait(self) -> bool:
        """Block until there may be new data; return False after :meth:`close`.

        Raises:
            ConnectionLostError: If the connection broke, so that notifications may be missed.
        """
        while not self._closed:
            server = self._raw.fileno()
            ready, _, _ = select.select([server, self._closing_receiver], [], [])
            if self._closing_receiver in ready:
                self._closing_receiver.recv(4096)
            elif self._read_notifications():
                return True
        return False

    def free(self) -> None:
        """Close the connection. Must be called in the thread that called :meth:`wait`."""
        self._raw.close()
        self._closing_receiver.close()
        self._closing_sender.close()

    def poke(self) -> None:
        """Do nothing, because the server notifies this process, too."""

    def close(self) -> None:
        """End :meth:`wait` for good."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._closing_sender.send(b"x")

    def _read_notifications(self) -> bool:
        """Read what the server has sent; return True if a notification was received."""
        is_notified = False
        with self._database.convert_errors(self._raw):
            self._raw.pgconn.consume_input()
            while self._raw.pgconn.notifies() is not None:
                is_notified = True
        return is_notified
