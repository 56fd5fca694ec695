"""Failures are reported in one line without secrets, and leave the pool healthy."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import threading
import traceback
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import ER
from sqlalchemy.exc import StatementError

from delf import Agent
from delf.errors import (
    ConnectionFileNotFoundError,
    ConnectionUnavailableError,
    DelfError,
    OptionalDependencyError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf_sql import SQL
from delf_sql.backends import mysql, postgresql
from delf_sql.failures import SQLSchemaError
from support.postgres import PASSWORD
from support.until import until

pytestmark = pytest.mark.services
SPELLINGS = (PASSWORD, "p%40ss", "w%3Ard", "rd%2542")
SETUP = "CREATE TABLE items (id int PRIMARY KEY, name varchar(50)); INSERT INTO items VALUES (1, 'one');"
FILES = ("sqlite", "duckdb")
SLOW = {
    "sqlite": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "duckdb": "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3",
    "postgresql": "SELECT pg_sleep(25) AS slow_marker",
    "mariadb": "SELECT count(*) AS slow_marker FROM seq_1_to_1000000000 a, seq_1_to_1000 b WHERE a.seq % 7 = b.seq",
}


def check_no_secret(error: BaseException) -> None:
    texts = ["".join(traceback.format_exception(error))]
    seen: BaseException | None = error
    while seen is not None:
        texts += [str(seen), repr(seen), repr(seen.args)]
        seen = seen.__cause__ or seen.__context__
    for spelling in SPELLINGS:
        assert not [text for text in texts if spelling in text]


async def failure_of(awaitable) -> DelfError:
    with pytest.raises(DelfError) as caught:
        await awaitable
    check_no_secret(caught.value)
    assert "\n" not in caught.value.describe()
    assert "sqlalche.me" not in caught.value.describe()
    return caught.value


async def test_statement_error_is_reported(any_database, open_sql):
    any_database.run(SETUP)
    sql = open_sql(any_database)
    for asked, words in (
        (sql.query("SELECT * FROM itmes"), "itmes"),
        (sql.query("SELECT nam FROM items"), "nam"),
        (sql.write("INSERT INTO itmes VALUES (1)"), "itmes"),
        (sql.query("SELEC 1"), "SELEC"),
        (sql.query("SELECT FROM WHERE"), "syntax"),
    ):
        error = await failure_of(asked)
        assert isinstance(error, (ToolExecutionError, ToolRefusedError))
        assert words in error.for_model()


async def test_password_is_in_no_error_log_or_context(
    postgres_database, mariadb_database, open_sql, caplog
):
    caplog.set_level("DEBUG")
    for database in (postgres_database, mariadb_database):
        database.run(SETUP)
        sql = open_sql(database)
        await sql.query("SELECT 1 AS a")
        await failure_of(sql.query(f"SELECT * FROM items WHERE name = '{PASSWORD}' AND"))
        await failure_of(sql.query("SELECT x FROM items"))
        shown = [
            repr(sql),
            str(vars(sql)),
            repr(sql.settings),
            str(sql.settings),
            repr(sql.target),
        ]
        shown += [
            await sql.context("x"),
            str(sql.inspect(verbose=True)),
            caplog.text.replace(f"'{PASSWORD}'", ""),
        ]
        for spelling in SPELLINGS[1:]:
            assert not [text for text in shown if spelling in text]
        assert not [text for text in shown[:-1] if PASSWORD in text]


async def test_wrong_password_error_hides_the_password(postgres_server, mariadb_server, open_sql):
    for url in (postgres_server.url("postgres"), mariadb_server.url("mysql")):
        sql = open_sql(url.replace("p%40ss", "p%40ss-wrong-p%40ss"))
        for call in (
            sql.query("SELECT 1"),
            sql.write("DROP TABLE x"),
            sql.context("x"),
            sql.schema(),
        ):
            error = await failure_of(call)
            assert isinstance(error, ConnectionUnavailableError)
            assert "at 127.0.0.1:" in error.message
            assert "denied" in error.message or "authentication failed" in error.message
            assert "wrong" not in error.describe()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_unreachable_server_is_reported_before_the_task(scheme, delf_host, scripted_model):
    sql = SQL(url=f"{scheme}://u@127.0.0.1:1/x", connect_timeout=2)
    with Agent(tools=[sql], llm="scripted", host=delf_host) as agent:
        response = agent.run("How many?")
    assert not response.status
    assert "server at 127.0.0.1:1" in str(response.error)
    assert not scripted_model.requests


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_missing_database_file_is_reported_before_the_task(scheme, delf_host, scripted_model):
    sql = SQL(url=f"{scheme}:////nowhere/x")
    agent = Agent(tools=[sql], llm="scripted", host=delf_host)
    with agent, pytest.raises(ConnectionFileNotFoundError):
        agent.run("How many?")
    assert not scripted_model.requests


async def test_file_that_is_not_a_database_is_reported(tmp_path, open_sql):
    path = tmp_path / "x.db"
    path.write_bytes(b"no database at all" * 100)
    error = await failure_of(open_sql(f"sqlite:///{path}").query("SELECT * FROM t"))
    assert isinstance(error, ConnectionUnavailableError)
    assert "file is not a database" in error.message
    assert "such a file" in (error.hint or "")
    assert "password" not in (error.hint or "")
    error = await failure_of(open_sql(f"sqlite:///{path}").context("x"))
    assert isinstance(error, (ConnectionUnavailableError, SQLSchemaError))


@pytest.mark.parametrize(
    ("url", "extra", "module"),
    [
        ("postgresql://h/x", "postgresql", "psycopg"),
        ("mysql://h/x", "mysql", "pymysql"),
        ("duckdb:///x", "duckdb", "duckdb_engine"),
    ],
)
async def test_missing_driver_error_names_the_extra(url, extra, module, open_sql, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    error = await failure_of(open_sql(url).query("SELECT 1"))
    assert isinstance(error, OptionalDependencyError)
    assert error.hint == f"delf plugins install 'sql[{extra}]'"


async def test_concurrent_queries_share_a_pool(any_database, open_sql):
    any_database.run(SETUP)
    sql = open_sql(any_database, pool_size=3)
    count = 12 if any_database.kind == "duckdb" else 60  # it is opened for each
    asked = [sql.query("SELECT :i AS i, count(*) AS n FROM items", {"i": i}) for i in range(count)]
    wrong = [sql.query("SELECT nonsense FROM items") for _ in range(count // 6)]
    done = await asyncio.gather(*asked, *wrong, return_exceptions=True)
    assert [rows[0]["i"] for rows in done[:count]] == list(range(count))
    assert all(isinstance(error, ToolExecutionError) for error in done[count:])


async def test_concurrent_writes_succeed(any_database, open_sql):
    any_database.run(SETUP)
    sql = open_sql(any_database)
    await asyncio.gather(
        *(sql.write("INSERT INTO items VALUES (?, ?)", [i, "x"]) for i in range(10, 18))
    )
    assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 9}]


def running(database) -> int:
    look = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'FETCH%'"
        " AND datname = current_database() AND pid <> pg_backend_pid()",
        "mariadb": "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%slow_marker%'"
        " AND db = DATABASE() AND id <> CONNECTION_ID() AND time_ms > 300",  # it is past its preparation
    }
    return int(database.run(look[database.kind]))


def writing(database) -> int:
    if database.kind == "mariadb":
        return running(database)
    return int(
        database.run(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT%pg_sleep%' AND state = 'active' AND datname = current_database()"
        )
    )


async def test_cancelled_query_stops_in_the_database(any_database, open_sql):
    sql = open_sql(any_database, pool_size=1)
    await sql.query("SELECT 1 AS a")
    for _ in range(2):
        task = asyncio.create_task(sql.query(SLOW[any_database.kind]))
        if any_database.kind in FILES:
            await until(at_work)
        else:
            await until(lambda: running(any_database) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await sql.query("SELECT 1 AS a") == [{"a": 1}]
        await until(lambda: any_database.kind in FILES or running(any_database) == 0)


async def test_cancelled_write_is_not_committed(any_database, open_sql):
    any_database.run(SETUP)
    sql = open_sql(any_database, pool_size=1)
    slow = (
        SLOW[any_database.kind]
        .replace("pg_sleep(25) AS", "2, pg_sleep(25)::text AS")
        .replace("max(n)", "max(n), 'x'")
        .replace("count(*) ", "count(*), 'x' ")
    )
    statement = f"INSERT INTO items {slow}"
    if any_database.kind == "sqlite":
        statement = slow.replace(" SELECT max(n)", " INSERT INTO items SELECT max(n)")
    task = asyncio.create_task(sql.write(statement))
    if any_database.kind in FILES:
        await until(at_work)
    else:
        await until(lambda: writing(any_database) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await sql.write("INSERT INTO items VALUES (3, 'three')"))["rowcount"] == 1
    assert await sql.query("SELECT id FROM items ORDER BY id") == [{"id": 1}, {"id": 3}]


async def test_queries_waiting_for_a_connection_can_be_cancelled(any_database, open_sql):
    sql = open_sql(any_database, pool_size=1)
    tasks = [asyncio.create_task(sql.query("SELECT 1 AS a")) for _ in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(rows == [{"a": 1}] for rows in done[1::2])
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


class Line:
    """A proxy to a server whose connections can be cut without notice to either end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._held += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._is_cut.is_set():
                    target.sendall(data)

    def cut(self) -> None:
        self._is_cut.set()

    def close(self) -> None:
        for held in (self._listener, *self._held):
            held.close()


def at_work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("delf-sql")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # psycopg's cursor
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
async def test_disconnected_server_holds_no_thread(kind, request, open_sql, monkeypatch):
    monkeypatch.setattr(postgresql, "STOP_SECONDS", 0.5)
    monkeypatch.setattr(mysql, "STOP_SECONDS", 0.5)
    database = request.getfixturevalue(f"{kind}_database")
    port = request.getfixturevalue(f"{kind}_server").port
    others = set(at_work())
    line = Line(port)
    try:
        sql = open_sql(database.url.replace(f":{port}/", f":{line.port}/"), pool_size=1)
        task = asyncio.create_task(sql.query(SLOW[database.kind]))
        await until(lambda: running(database) == 1)
        line.cut()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await sql.aclose()
        await until(lambda: not set(at_work()) - others)
    finally:
        line.close()
        gc.collect()


SLOW_WRITES = {
    "postgresql": "INSERT INTO items SELECT 9, 'slow' FROM pg_sleep(25)",
    "mariadb": SLOW["mariadb"].replace("SELECT", "INSERT INTO items SELECT 9,"),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # psycopg's cursor
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
async def test_write_with_a_lost_connection_has_unknown_outcome(kind, request, open_sql):
    database = request.getfixturevalue(f"{kind}_database")
    database.run(SETUP)
    sql = open_sql(database, pool_size=1)
    for call, statements, look in (
        (sql.write, SLOW_WRITES, writing),
        (sql.query, SLOW, running),
    ):
        task = asyncio.create_task(call(statements[database.kind]))
        await until(lambda look=look: look(database) == 1)
        # Again until it ends: MariaDB may miss the end of a connection whose statement begins.
        await until(lambda task=task: task.done() or end_connections(database))
        error = await failure_of(task)
        assert isinstance(error, OutcomeUnknownError) == (look is writing)
        assert isinstance(error, ConnectionUnavailableError) == (look is running)
        assert ("may have been done" in error.message) == (look is writing)
        del error, task
        gc.collect()


async def endless_write(sql, folder) -> asyncio.Task:
    endless = "WITH RECURSIVE r(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM r)"
    task = asyncio.create_task(sql.write(f"INSERT INTO items {endless} SELECT n, 'x' FROM r"))
    await until(lambda: [*folder.glob("*-journal"), *folder.glob("*-wal")])
    return task


def kill_sqlite_children() -> None:
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            if b"sqlite_child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)


async def test_sqlite_write_with_a_killed_process_has_unknown_outcome(
    sqlite_database, open_sql, tmp_path
):
    sqlite_database.run(SETUP)
    sql = open_sql(sqlite_database)
    task = await endless_write(sql, tmp_path)
    kill_sqlite_children()
    assert isinstance(await failure_of(task), OutcomeUnknownError)
    assert await sql.query("SELECT id FROM items") == [{"id": 1}]


@pytest.mark.parametrize("problem", ["the file is gone", "no process can start"])
async def test_killed_sqlite_write_that_cannot_be_rolled_back_has_unknown_outcome(
    sqlite_database, open_sql, tmp_path, monkeypatch, problem
):
    sqlite_database.run(SETUP)
    sql = open_sql(sqlite_database)
    task = await endless_write(sql, tmp_path)
    if problem == "the file is gone":
        Path(sqlite_database.url.removeprefix("sqlite:///")).rename(tmp_path / "moved")
    else:
        monkeypatch.setattr("delf_sql.backends.sqlite.own_python", lambda: "/bin/false")
    kill_sqlite_children()
    assert isinstance(await failure_of(task), OutcomeUnknownError)


def end_connections(database) -> None:
    if database.kind == "postgresql":
        database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            "current_database() AND pid <> pg_backend_pid()"
        )
    else:
        ids = ""
        while not ids.strip():  # one that has just connected is not listed with its database
            ids = database.run(
                "SELECT id FROM information_schema.processlist "
                "WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
        for number in ids.split():
            try:
                database.run(f"KILL {number}")
            except pymysql.err.OperationalError as error:
                if error.args[0] != ER.NO_SUCH_THREAD:  # it has ended by itself meanwhile
                    raise


@pytest.mark.parametrize("backend", [mysql.MysqlBackend, postgresql.PostgresBackend])
def test_value_that_sqlalchemy_refuses_is_a_problem_of_the_statement(backend):
    error = StatementError("not bound", "SELECT :a", None, ValueError("a value is missing"))
    problem = backend.explain(object.__new__(backend), error)
    assert (problem.cause, problem.text) == ("statement", "a value is missing")


async def test_refused_write_has_a_known_outcome(any_database, open_sql):
    any_database.run(SETUP)
    for text in ("INSERT INTO items VALUES (1, 'twice')", "INSERT INTO nowhere VALUES (1)"):
        caught = await failure_of(open_sql(any_database).write(text))
        assert not isinstance(caught, OutcomeUnknownError)


async def test_connection_ended_by_the_server_is_replaced(
    postgres_database, mariadb_database, open_sql
):
    for database in (postgres_database, mariadb_database):
        sql = open_sql(database, pool_size=1)
        assert await sql.query("SELECT 1 AS a") == [{"a": 1}]
        end_connections(database)
        assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


@pytest.mark.parametrize("closed", [True, False])
def test_connection_works_in_another_event_loop(closed, any_database, recwarn):
    sql = SQL(url=any_database.url)

    async def ask():
        rows = await sql.query("SELECT 1 AS a")
        if closed:
            await sql.aclose()
        return rows

    for _ in range(3):
        assert asyncio.run(ask()) == [{"a": 1}]
    asyncio.run(sql.aclose())
    gc.collect()


async def test_failure_of_one_statement_keeps_the_message_of_the_driver(open_sql, any_database):
    shop = open_sql(any_database)
    await shop.write("CREATE TABLE items (id int PRIMARY KEY, name varchar(50))")
    insert = "INSERT INTO items VALUES (1, :name)"
    with pytest.raises(ToolExecutionError) as single:
        await shop.write(insert, {"name": "\ud800"})  # no database can encode this text
    with pytest.raises(ToolExecutionError) as several:
        await shop.write(["INSERT INTO items VALUES (2, 'two')", insert], {"name": "\ud800"})
    cause = single.value.message.partition(": ")[2]
    assert several.value.message.endswith(cause)
    assert await shop.query("SELECT * FROM items") == []
