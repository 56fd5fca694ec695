"""A query of SQLite cannot take the host: its memory, its time, its disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from delf.errors import ToolExecutionError
from delf_sql import sqlite_child
from delf_sql.backends import sqlite

SETUP = "CREATE TABLE items (id int PRIMARY KEY, name text); INSERT INTO items VALUES (1, 'one')"
RECURSION = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 50)"
ONE_OPCODE = "SELECT instr(zeroblob(60000000), CAST(zeroblob(30000000) || x'01' AS BLOB)) AS n"
LARGE = 400_000_000


@pytest.fixture
def items(sqlite_database: Any):
    sqlite_database.run(SETUP)
    return sqlite_database


def children() -> list[Path]:
    """Return the SQLite processes that this process started."""
    found: list[Path] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if fields[1] == str(os.getpid()) and b"sqlite_child" in command and fields[0] != "Z":
            found.append(process)
    return found


async def peak_during(task: asyncio.Task[object], process: Path) -> int:
    """Return the highest sampled memory use of a process while a task ran."""
    most = 0
    while not task.done():
        with contextlib.suppress(OSError):
            for line in (process / "status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    most = int(line.split()[1]) * 1024
        await asyncio.wait([task], timeout=0.02)
    return most


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        f"{RECURSION} SELECT zeroblob(100000000) AS z FROM r",
        f"SELECT {', '.join(f'zeroblob(50000000) AS z{n}' for n in range(100))}",
        f"{RECURSION} SELECT group_concat(hex(zeroblob(20000000))) AS z FROM r",
        f"{RECURSION} SELECT randomblob(20000000) AS z FROM r ORDER BY 1",
    ],
)
async def test_large_values_stay_within_the_memory_limit(query: Any, items: Any, open_sql: Any):
    sql = open_sql(items, max_bytes=1_000_000, pool_size=1, statement_timeout=1)
    await sql.query("SELECT 1 AS a")
    (process,) = children()
    task = asyncio.create_task(sql.query(query))
    most = await peak_during(task, process)
    with pytest.raises(
        ToolExecutionError, match=r"larger than|too big|memory|temporary|longer than"
    ):
        await task
    assert 0 < most < LARGE
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


async def test_single_long_instruction_is_interrupted(items: Any, open_sql: Any):
    sql = open_sql(items, statement_timeout=0.3)
    started = time.monotonic()
    with pytest.raises(ToolExecutionError, match=r"longer than 0\.3 s"):
        await sql.query(ONE_OPCODE)
    assert time.monotonic() - started < 10
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


@pytest.mark.slow
async def test_killed_write_leaves_a_readable_file(items: Any, open_sql: Any):
    sql = open_sql(items, statement_timeout=0.3)
    write = ONE_OPCODE.replace("SELECT ", "INSERT INTO items SELECT 7, ").replace(" AS n", "")
    for _ in range(2):
        with pytest.raises(ToolExecutionError, match=r"longer than 0\.3 s"):
            await sql.write(write)
        assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 1}]
    assert (await sql.write("INSERT INTO items VALUES (2, 'two')"))["rowcount"] == 1


async def test_killed_process_is_replaced(items: Any, open_sql: Any):
    sql = open_sql(items, pool_size=1)
    await sql.query("SELECT 1 AS a")
    (process,) = children()
    os.kill(int(process.name), signal.SIGKILL)
    os.waitid(os.P_PID, int(process.name), os.WEXITED | os.WNOWAIT)
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]
    await sql.aclose()
    assert not children()


async def test_oversized_result_stops_at_the_exceeding_row(
    postgres_database: Any, mariadb_database: Any, open_sql: Any
):
    many = {
        "postgresql": "SELECT repeat('x', 400000) AS w FROM generate_series(1, 50)",
        "mariadb": "SELECT repeat('x', 400000) AS w FROM seq_1_to_50",
    }
    for database in (postgres_database, mariadb_database):
        sql = open_sql(database, max_bytes=1_000_000)
        with pytest.raises(ToolExecutionError, match="larger than 1 MB after 3 rows"):
            await sql.query(many[database.kind])
        assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


async def test_mariadb_row_size_is_checked_before_reading(mariadb_database: Any, open_sql: Any):
    sql = open_sql(mariadb_database, max_bytes=2_000_000)
    await sql.write("CREATE TABLE x (a int)")
    tracemalloc.start()
    try:
        with pytest.raises(ToolExecutionError, match="larger than 2 MB"):
            await sql.query("SELECT repeat('x', 15000000) AS w")
        with pytest.raises(ToolExecutionError, match="larger than 2 MB"):
            await sql.write("INSERT INTO x VALUES (1) RETURNING repeat('x', 15000000)")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8_000_000
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


async def test_sqlite_temporary_files_have_a_total_limit(
    items: Any, open_sql: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "SPARE_FILE_BYTES", 12_000_000)
    monkeypatch.setattr(sqlite, "LOOK_SECONDS", 0.01)
    blobs, end = "SELECT randomblob(200000) AS z", "FROM r ORDER BY z LIMIT 49"
    sort = f"SELECT count(z) AS n FROM ({RECURSION} {blobs} {end})"
    one = open_sql(items)
    assert await one.query(sort) == [{"n": 49}]
    nested = sort
    for _ in range(3):
        inner = f"{blobs}, (SELECT n FROM ({nested})) AS m {end}"
        nested = f"SELECT count(z) AS n FROM ({RECURSION} {inner})"
    with pytest.raises(ToolExecutionError, match="more room for temporary files"):
        await one.query(nested)
    assert await one.query(sort) == [{"n": 49}]


def test_process_without_a_parent_ends_silently():
    command = [sys.executable, "-I", "-S", sqlite_child.__file__]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.services
@pytest.mark.parametrize(
    "value",
    [
        "ARRAY[repeat('x', 100000)]",
        "ROW(repeat('x', 100000))",
        "jsonb_build_object('a', jsonb_build_array(repeat('x', 100000)))",
        "repeat('9', 100000)::numeric",
    ],
    ids=["array", "row", "json", "number"],
)
async def test_nested_values_count_against_the_size_limit(
    value: Any, postgres_database: Any, open_sql: Any
):
    sql = open_sql(postgres_database, max_bytes=1_000_000)
    with pytest.raises(ToolExecutionError, match="larger than 1 MB"):
        await sql.query(f"SELECT {value} AS v FROM generate_series(1, 100)")
