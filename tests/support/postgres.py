"""A real PostgreSQL server for tests, from the installed binaries."""

from __future__ import annotations

import contextlib
import glob
import pathlib
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import make_conninfo

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
"""What a test leaves in a database: connections, large objects, everything in a schema."""


@dataclass(frozen=True)
class PostgresServer:
    """Where the server is; ``database`` gives an empty database."""

    socket_folder: str
    port: int
    _emptied: list[str] = field(default_factory=list[str], repr=False, compare=False)

    def url(self, database: str) -> str:
        """The URL of a database over loopback, as its superuser."""
        password = urllib.parse.quote(PASSWORD, safe="")
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> str:
        """Run statements as the superuser, outside of what is tested.

        Returns:
            The last one's rows as text, values with ``|`` between them: as the client of
            PostgreSQL prints them, which takes longer to start than most statements.

        Raises:
            psycopg.OperationalError: With what the server said.
        """
        where = make_conninfo(
            host=self.socket_folder, port=self.port, user=USER, dbname=database, password=PASSWORD
        )
        connection = pq.PGconn.connect(where.encode())
        try:
            result = connection.exec_(statement.encode())
            if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                raise psycopg.OperationalError(connection.get_error_message())
            columns = range(result.nfields)
            rows = (
                b"|".join(result.get_value(row, column) or b"" for column in columns)
                for row in range(result.ntuples)
            )
            return b"\n".join(rows).decode().strip()
        finally:
            connection.finish()

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


def _recipe(initdb: str, postgres: str) -> Recipe:
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
    settings = {**_SETTINGS, "port": str(port), "unix_socket_directories": folder}
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


@contextlib.contextmanager
def postgres_session(factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The session's server; skips where PostgreSQL is not installed."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    programs = [
        find_program(*(f"{folder}/{name}" for folder in folders), name)
        for name in ("initdb", "postgres")
    ]
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
