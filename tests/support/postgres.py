"""A real PostgreSQL server for tests, from the installed binaries."""

from __future__ import annotations

import contextlib
import glob
import pathlib
import shutil
import signal
import subprocess
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus

from support.server import (
    Recipe,
    find_program,
    free_port,
    new_folder,
    service_user,
    shared_server,
)

USER = "delf"
PASSWORD = "p@ss/w:rd%42"  # of a server that lives for one test session
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "fatal",
    "autovacuum": "off",
}


_EMPTY = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid();
SELECT lo_unlink(oid) FROM pg_largeobject_metadata;
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace
    WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$;
CREATE SCHEMA public;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""
"""The remains of a test in a database: connections, large objects, everything in a schema."""


@dataclass(frozen=True)
class PostgresServer:
    """The address of the server; ``database`` gives an empty database."""

    socket_folder: str
    port: int
    _emptied: list[str] = field(default_factory=list[str], repr=False, compare=False)
    _kept: dict[str, pq.PGconn] = field(
        default_factory=dict[str, pq.PGconn], repr=False, compare=False
    )

    def url(self, database: str) -> str:
        """The URL of a database over loopback, as its superuser."""
        password = urllib.parse.quote(PASSWORD, safe="")
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> str:
        """Run statements as the superuser, outside of what is tested.

        A connection takes the server longer to open than most statements: it is kept.

        Returns:
            The last one's rows as text, values with ``|`` between them, as the client of
            PostgreSQL prints them.

        Raises:
            psycopg.OperationalError: With the server's message.
        """
        connection = self._kept.pop(database, None)
        if connection is None or connection.exec_(b"DISCARD ALL").status != ExecStatus.COMMAND_OK:
            connection = self._connect(database)
        result = connection.exec_(statement.encode())
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            message = connection.get_error_message()
            connection.finish()
            raise psycopg.OperationalError(message)
        self._kept[database] = connection
        columns = range(result.nfields)
        rows = (
            b"|".join(result.get_value(row, column) or b"" for column in columns)
            for row in range(result.ntuples)
        )
        return b"\n".join(rows).decode().strip()

    def _connect(self, database: str) -> pq.PGconn:
        where = make_conninfo(
            host=self.socket_folder, port=self.port, user=USER, dbname=database, password=PASSWORD
        )
        connection = pq.PGconn.connect(where.encode())
        if connection.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(connection.get_error_message())
        return connection

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """An empty database's name.

        To make and drop one takes the server a tenth of a second of a processor, to empty one
        almost nothing: so the next test is given it emptied.
        """
        try:
            name = self._emptied.pop()
        except IndexError:
            name = f"t{uuid.uuid4().hex[:12]}"
            self.run(f"CREATE DATABASE {name}")
            self.run(_EMPTY, name)
        try:
            yield name
        finally:
            self.run(_EMPTY, name)
        self._emptied.append(name)


def _recipe(initdb: str, postgres: str, **more: str) -> Recipe:
    user = service_user("postgres")
    folder = new_folder("delf-pg-", user)
    secret = pathlib.Path(folder, "password")
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    port = free_port()
    data = f"{folder}/data"
    init = [initdb, "-D", data, "-U", USER, f"--pwfile={secret}"]
    init += [
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        "--no-sync",
        "--no-instructions",
        "-E",
        "UTF8",
        "--locale=C",
    ]
    settings = {**_SETTINGS, **more, "port": str(port), "unix_socket_directories": folder}
    serve = [postgres, "-D", data]
    for key, value in settings.items():
        serve += ["-c", f"{key}={value}"]
    return Recipe(
        folder=folder,
        setup=[init],
        serve=serve,
        socket=f"{folder}/.s.PGSQL.{port}",
        user=user,
        stop="SIGINT",
        facts={"socket_folder": folder, "port": port},
    )


class OwnPostgres:
    """A server of one test, which may be crashed and whose clock may be set.

    Args:
        server: Where it is.
        recipe: How it runs.
        clock: Whether its clock can be set.
    """

    def __init__(self, server: PostgresServer, recipe: Recipe, *, clock: bool) -> None:
        self._server = server
        self._recipe = recipe
        self._process = self._start()
        self._name = f"t{uuid.uuid4().hex[:12]}"
        server.run(f"CREATE DATABASE {self._name}")
        if clock:
            server.run(_CLOCK.format(name=self._name), self._name)

    @property
    def url(self) -> str:
        """Its one database."""
        return self._server.url(self._name)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def restart(self) -> None:
        """Let it crash, and start it again."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)
        self._process = self._start()

    def shift(self, seconds: float) -> None:
        """Set its clock: so many seconds beside the right time."""
        self._server.run(f"UPDATE clock.shift SET seconds = {seconds}", self._name)

    def end(self) -> None:
        """Stop it, and remove its folder."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        shutil.rmtree(self._recipe.folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        recipe, user = self._recipe, self._recipe.user
        who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": recipe.folder}
        process = subprocess.Popen(recipe.serve, **quiet, **who)
        _wait_until_started(self._server)
        return process


_CLOCK = """
CREATE SCHEMA clock;
CREATE TABLE clock.shift (seconds double precision);
INSERT INTO clock.shift VALUES (0);
CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    'SELECT pg_catalog.clock_timestamp() + seconds * interval ''1 second'' FROM clock.shift';
ALTER DATABASE {name} SET search_path = public, clock, pg_catalog;
"""
"""The server's own function is found after this one, where a statement does not say which."""


@contextlib.contextmanager
def own_postgres(*, clock: bool = True) -> Iterator[OwnPostgres]:
    """A server for one test alone; skips where PostgreSQL is not installed.

    Args:
        clock: Whether its clock can be set.
    """
    programs = _programs()
    recipe = _recipe(*programs, synchronous_commit="on")
    user = recipe.user
    who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    for command in recipe.setup:
        subprocess.run(command, check=True, capture_output=True, cwd=recipe.folder, **who)
    one = OwnPostgres(PostgresServer(**recipe.facts), recipe, clock=clock)
    try:
        yield one
    finally:
        one.end()


def postgres_is_installed() -> bool:
    """True if a server can be started."""
    return bool(shutil.which("postgres") or glob.glob("/usr/lib/postgresql/*/bin/postgres"))


def _programs() -> list[str]:
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return [
        find_program(*(f"{folder}/{name}" for folder in folders), name)
        for name in ("initdb", "postgres")
    ]


@contextlib.contextmanager
def postgres_session(factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The session's server; skips where PostgreSQL is not installed."""
    programs = _programs()
    with shared_server("postgres", factory, lambda: _recipe(*programs)) as facts:
        server = PostgresServer(**facts)
        _wait_until_started(server)
        yield server


def _wait_until_started(server: PostgresServer) -> None:
    """Wait until it takes statements: while it starts, it takes connections and refuses them."""
    deadline = time.monotonic() + 20
    while True:
        try:
            server.run("SELECT 1")
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
