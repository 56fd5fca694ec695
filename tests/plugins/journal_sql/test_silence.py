"""A server that takes what it is sent and answers nothing keeps nobody waiting for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from delf_journal_sql import postgresql
from delf_journal_sql.errors import ConnectionLostError
from delf_journal_sql.opening import open_database
from delf_journal_sql.settings import JournalSettings


class Line:
    """A PostgreSQL server behind a proxy that can stop forwarding while it still accepts data."""

    def __init__(self, url: str) -> None:
        there = urlsplit(url)
        self._target = (there.hostname, there.port)
        self._speaks = threading.Event()
        self._speaks.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{there.port}/", f":{self._listener.getsockname()[1]}/")
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, there = self._listener.accept()[0], socket.create_connection(self._target)
                self._sockets += [here, there]
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._speaks.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def falls_silent(self) -> None:
        self._speaks.clear()

    def close(self) -> None:
        self._speaks.set()
        for opened in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()


@pytest.fixture
def line(postgres_url: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setattr(postgresql, "SILENCE_SECONDS", 0.2)
    line = Line(postgres_url)
    yield line
    line.close()


def test_waiting_call_notices_a_broken_connection(line: Any):
    database = open_database(JournalSettings(url=line.url))
    connection = database.connect()
    assert connection.execute("SELECT 1") == [(1,)]
    line.falls_silent()
    with pytest.raises(ConnectionLostError, match="does not answer"):
        connection.execute("SELECT 2")
    connection.close()
    database.close()


def test_slow_query_is_awaited_while_the_server_is_reachable(line: Any):
    database = open_database(JournalSettings(url=line.url))
    with database.reader() as connection:
        assert connection.execute("SELECT 3 FROM pg_sleep(1)") == [(3,)]
    database.close()


@pytest.mark.parametrize("journal_url", ["sqlite", "postgresql"], indirect=True)
def test_reachable_database_counts_as_answering(journal_url: Any):
    assert open_database(JournalSettings(url=journal_url)).is_responding()


def test_server_that_refuses_connections_counts_as_answering():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"postgresql://delf@127.0.0.1:{nobody.getsockname()[1]}/x"
        assert open_database(JournalSettings(url=SecretStr(url))).is_responding()
