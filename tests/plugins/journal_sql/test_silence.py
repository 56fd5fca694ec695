"""A server that takes what it is sent and answers nothing keeps nobody waiting for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from delf_journal_sql.opening import open_database
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.vigil import Vigil


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection, and the end of the server."""
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_who_waits_for_a_silent_server_is_told_that_the_connection_broke(line):
    vigil = Vigil(lambda: False, patience=0.02, look=0.01)
    with vigil.over(line[0]):
        assert line[0].recv(10) == b""
    vigil.end()


def test_who_waits_for_a_slow_server_that_answers_others_waits_on(line):
    asked = threading.Event()
    looks: list[int] = []

    def answers() -> bool:
        looks.append(1)
        if len(looks) == 3:
            asked.set()
        return True

    vigil = Vigil(answers, patience=0.02, look=0.01)
    with vigil.over(line[0]):
        assert asked.wait(5)
        line[1].send(b"done")
        assert line[0].recv(10) == b"done"
    vigil.end()


def test_what_is_over_is_let_alone(line):
    judged = threading.Event()

    def answers() -> bool:
        with vigil.over(line[0]):  # another statement of the connection, which has just begun
            judged.set()
            line[1].send(b"done")
        return False

    vigil = Vigil(answers, patience=0.02, look=0.01)
    with contextlib.ExitStack() as first:
        first.enter_context(vigil.over(line[0]))
        assert judged.wait(5)
    vigil.end()
    assert line[0].recv(10) == b"done"


@pytest.mark.parametrize("journal_url", ["sqlite", "postgresql"], indirect=True)
def test_a_database_that_works_answers(journal_url):
    assert open_database(JournalSettings(url=journal_url)).answers()


def test_a_server_that_refuses_answers():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"postgresql://delf@127.0.0.1:{nobody.getsockname()[1]}/x"
        assert open_database(JournalSettings(url=url)).answers()
