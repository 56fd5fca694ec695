"""DuckDB in children: a statement that hears no interrupt takes nothing along but its process."""

import asyncio
import os
import signal
import subprocess
import sys

import duckdb
import pytest

from delf.errors import OutcomeUnknownError, ToolExecutionError
from delf_confined import landlock
from delf_sql import SQL
from support.until import until

SLOW = (
    "SELECT count(*) AS n FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
)


@pytest.fixture(autouse=True)
def quick_readers() -> None:
    """Templates are started in the same way as for users, without the tests' shortcut."""


@pytest.fixture
async def sql(tmp_path):
    path = tmp_path / "shop" / "a.duckdb"
    path.parent.mkdir()
    duckdb.connect(str(path)).execute("CREATE TABLE items AS SELECT 1 AS id").close()
    connection = SQL(url=f"duckdb:///{path}", statement_timeout=20)
    yield connection
    await connection.aclose()


def children():
    """Return the processes of statements, which templates forked."""
    found = []
    for template in _children_of(os.getpid(), "delf_confined"):
        found += _children_of(template)
    return found


def _children_of(pid, command=""):
    shown = subprocess.run(
        ["ps", "-wwo", "pid=,stat=,args=", "--ppid", str(pid)], capture_output=True
    )
    lines = (line.split(maxsplit=2) for line in shown.stdout.decode().splitlines())
    return [int(line[0]) for line in lines if "Z" not in line[1] and command in line[-1]]


@pytest.mark.slow
async def test_memory_limit_is_an_error_and_the_next_statement_works(sql):
    with pytest.raises(ToolExecutionError, match=r"[Mm]emory"):
        await sql.query("SELECT length(repeat('x', 2000000000)) AS n")
    assert await sql.query("SELECT id FROM items") == [{"id": 1}]


@pytest.mark.slow
async def test_uninterruptible_statement_ends_with_its_process(tmp_path, monkeypatch):
    """The process is stopped by a signal, so that it cannot react to an interrupt."""
    path = tmp_path / "a.duckdb"
    duckdb.connect(str(path)).execute("CREATE TABLE items AS SELECT 1 AS id").close()
    sql = SQL(url=f"duckdb:///{path}", statement_timeout=2)
    assert await sql.query("SELECT id FROM items") == [{"id": 1}]
    running = asyncio.create_task(sql.query(SLOW))
    (child,) = await until(children)
    os.kill(child, signal.SIGSTOP)
    with pytest.raises(ToolExecutionError, match="took longer than 2 s"):
        await running
    assert await sql.query("SELECT id FROM items") == [{"id": 1}]
    assert not children()
    await sql.aclose()


@pytest.mark.slow
async def test_cancelled_query_leaves_no_process(sql):
    running = asyncio.create_task(sql.query(SLOW))
    await until(children)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not children())
    assert await sql.query("SELECT id FROM items") == [{"id": 1}]


@pytest.mark.slow
async def test_killed_write_process_leaves_unknown_outcome(sql):
    running = asyncio.create_task(sql.write(f"INSERT INTO items {SLOW}"))
    (child,) = await until(children)
    os.kill(child, signal.SIGKILL)
    with pytest.raises(OutcomeUnknownError, match="answer was lost"):
        await running
    assert await sql.query("SELECT id FROM items") == [{"id": 1}]


@pytest.mark.slow
async def test_killed_query_process_is_an_error_and_the_next_works(sql):
    running = asyncio.create_task(sql.query(SLOW))
    (child,) = await until(children)
    os.kill(child, signal.SIGKILL)
    with pytest.raises(Exception, match="its process ended"):
        await running
    assert await sql.query("SELECT id FROM items") == [{"id": 1}]


@pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")
@pytest.mark.parametrize("read_only", [True, False])
def test_process_can_write_only_beside_its_database(read_only, tmp_path):
    """The process itself is confined, even for writes that DuckDB would allow."""
    from delf.values.encoding import dumps, loads
    from delf_confined.children import Template
    from delf_confined.limits import Limits

    own = tmp_path / "own"
    own.mkdir()
    template = Template()
    writable = () if read_only else (str(own),)
    limits = Limits(writable=writable, file_bytes=10_000)
    done = {}
    for name, place in (("own", own / "x.csv"), ("other", tmp_path / "x.csv")):
        child = template.fork("plugins.sql.duck_jobs:copy", limits, ())
        done[name] = loads(child.call(dumps({"path": str(place)}), 10_000)).get("value")
        child.end()
    template.close()
    assert done == {"own": None if read_only else True, "other": None}


if sys.platform != "linux":  # pragma: no cover
    pytestmark = pytest.mark.skip(reason="what is looked at is Linux's")
