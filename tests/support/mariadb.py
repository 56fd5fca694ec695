"""A real MariaDB server for tests, from the installed binaries."""

from __future__ import annotations

import contextlib
import pathlib
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pymysql
import pytest
from pymysql.constants import CLIENT

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


@dataclass(frozen=True)
class MariadbServer:
    """The address of the server; ``database`` makes a fresh database."""

    folder: str
    port: int

    def url(self, database: str) -> str:
        """The URL of a database over loopback, as a user with all rights."""
        password = urllib.parse.quote(PASSWORD, safe="")
        return f"mysql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "mysql") -> str:
        """Run statements as root, outside of what is tested; returns the rows of all of them.

        Values have tabs between them, as the client of MariaDB prints them, which takes longer to
        start than most statements.
        """
        with (
            contextlib.closing(
                pymysql.connect(
                    unix_socket=f"{self.folder}/sock",
                    user="root",
                    database=database,
                    conv={},  # all values are text
                    client_flag=CLIENT.MULTI_STATEMENTS,
                    autocommit=True,
                )
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            rows = list(cursor)
            while cursor.nextset():
                rows += cursor
        return "\n".join(
            "\t".join("NULL" if value is None else value for value in row) for row in rows
        )

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """A fresh database's name; it is dropped afterwards."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name}")


def _recipe(install: str, daemon: str) -> Recipe:
    user = service_user("mysql")
    folder = new_folder("delf-my-", user)
    port = free_port()
    init = pathlib.Path(folder, "init.sql")
    init.write_text(
        f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
    )
    init.chmod(0o644)
    data = f"{folder}/data"
    return Recipe(
        folder=folder,
        setup=[
            [
                install,
                "--no-defaults",
                f"--datadir={data}",
                "--skip-test-db",
                "--skip-name-resolve",
                "--innodb-flush-method=nosync",
                "--auth-root-authentication-method=normal",
            ]
        ],
        serve=[
            daemon,
            "--no-defaults",
            f"--datadir={data}",
            f"--tmpdir={folder}",
            f"--socket={folder}/sock",
            f"--pid-file={folder}/pid",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--secure-file-priv=",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-fast-shutdown=2",
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
            "--innodb-file-per-table=0",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=8M",
            "--max-connections=200",
            f"--init-file={init}",
        ],
        socket=f"{folder}/sock",
        user=user,
        stop="SIGTERM",
        facts={"folder": folder, "port": port},
    )


@contextlib.contextmanager
def mariadb_session(factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """The session's server; skips where MariaDB is not installed."""
    install = find_program("mariadb-install-db", "mysql_install_db")
    daemon = find_program("mariadbd", "mysqld")
    with shared_server("mariadb", factory, lambda: _recipe(install, daemon)) as facts:
        yield MariadbServer(**facts)
