"""Input files that a stranger made: they hold nothing up, and nothing of them is believed."""

import asyncio
import io
import json
import os
import re
import sqlite3
import sys
import time
import zipfile

import duckdb
import pytest
from openpyxl import Workbook

from delf.errors import ToolExecutionError, ToolRefusedError
from delf.protocols.connection import SupportsClose
from delf.specs import FormatSpec
from delf.testing import TestHost
from delf_confined import seccomp
from delf_engine.formats import Formats
from delf_engine.inputs import find_inputs, input_files
from delf_files.connection import Files
from support.until import until

confined = pytest.mark.skipif(not seccomp.is_supported(), reason="there is no filter here")


@pytest.fixture
async def opened():
    made = []

    def opened(*paths, host=None, formats=None):
        formats = formats or Formats(host or TestHost.discover(environ={}))
        made.append(formats)
        return Files(input_files(find_inputs([str(path) for path in paths]), str), formats)

    yield opened
    for formats in made:
        assert isinstance(formats, SupportsClose)
        await formats.aclose()


def database(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


def endless_rows(path):
    database(path, f"CREATE VIEW v AS {ENDLESS} SELECT zeroblob(1000000) FROM c")


def one_large_cell(path):
    database(path, "CREATE VIEW v AS SELECT zeroblob(900000000) AS z")


def many_lists(path):
    path.write_text("[" + "[]," * 4_000_000 + "[]]")


def deep_lists(path):
    path.write_text("[" * 1_000_000)


def cells_of_a_row(path):
    cells = b'<row r="1">' + b'<c r="A1"><v>1</v></c>' * 2_000_000 + b"</row>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
        for name, part in _parts_of_a_book().items():
            if name.endswith("sheet1.xml"):
                part = part.replace(b"<sheetData>", b"<sheetData>" + cells)
            book.writestr(name, part)


def large_page(path):
    duckdb.sql(f"COPY (SELECT repeat('x', 400000000) AS v) TO '{path}'")


def _parts_of_a_book():
    book, data = Workbook(), io.BytesIO()
    book.active.append([1])
    book.save(data)
    with zipfile.ZipFile(data) as parts:
        return {name: parts.read(name) for name in parts.namelist()}


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.db", endless_rows, "reading a.db needs more than 1,000 MB of memory"),
        ("b.db", one_large_cell, "reading b.db (needs more|gives more)"),
        ("c.json", many_lists, "reading c.json (needs more|gives more)"),
        ("d.json", deep_lists, "d.json: .*(nested|recursion)"),
        ("e.xlsx", cells_of_a_row, "sheet|workbook|e.xlsx"),
        ("f.parquet", large_page, "Out of Memory|the query needs more"),
    ],
)
async def test_zip_bomb_is_an_error_within_the_memory_limit(name, make, message, opened, tmp_path):
    make(tmp_path / name)
    (tmp_path / "fine.csv").write_text("n\n1\n")
    files = opened(tmp_path / name, tmp_path / "fine.csv")
    before = _memory()
    with pytest.raises(ToolExecutionError, match=message):
        await files.read(name)
    assert _memory() - before < 300_000_000
    assert await files.read("fine.csv") == [{"n": "1"}]


def document_type(path):
    with zipfile.ZipFile(path, "w") as book:
        for name, part in _parts_of_a_book().items():
            shown = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
            book.writestr(name, shown if name.endswith("workbook.xml") else part)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.xlsx", document_type),
        ("b.xlsx", lambda path: path.write_bytes(b"PK\3\4")),
        ("c.xls", lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0")),
        ("d.db", lambda path: path.write_bytes(b"SQLite format 3\0")),
        ("e.json", lambda path: path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)),
        ("f.jsonl", lambda path: path.write_text('{"a":' * 50_000 + "1" + "}" * 50_000)),
    ],
)
async def test_read_error_names_the_file(name, make, opened, tmp_path):
    make(tmp_path / name)
    (tmp_path / "fine.csv").write_text("n\n1\n")
    files = opened(tmp_path / "fine.csv", tmp_path / name)
    with pytest.raises(ToolExecutionError, match=re.escape(name)):
        await files.read(name)
    with pytest.raises(ToolExecutionError, match=re.escape(name)):
        await files.query(f"SELECT * FROM 'fine.csv', '{name}'")


def _memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


async def test_hostile_files_do_not_delay_an_honest_file(opened, tmp_path):
    formats = Formats(TestHost.discover(environ={}))
    endless = [
        database(
            tmp_path / f"{number}.db", f"CREATE VIEW v AS {ENDLESS} SELECT x FROM c WHERE x < 0"
        )
        for number in range(60)
    ]
    (tmp_path / "fine.csv").write_text("n\n1\n")
    hostile = [
        asyncio.create_task(opened(path, formats=formats).read(path.name)) for path in endless
    ]
    began = time.monotonic()
    assert await opened(tmp_path / "fine.csv", formats=formats).read("fine.csv") == [{"n": "1"}]
    assert await asyncio.to_thread(lambda: 1) == 1, "no thread is held"
    assert time.monotonic() - began < 25, "sixty times thirty seconds, by four"
    for each in hostile:
        each.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)


async def test_concurrent_queries_share_a_few_processes(opened, tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    files = opened(tmp_path / "a.csv")
    statement = "SELECT sum(CAST(n AS INT)) AS s FROM 'a.csv'"
    others = _grandchildren()  # such as those of connections that other tests left open
    queries = [asyncio.create_task(files.query(statement)) for _ in range(40)]
    seen = []

    def all_done():
        seen.append(len(_grandchildren() - others))
        return all(query.done() for query in queries)

    await until(all_done, 120)
    assert max(seen) <= 4
    assert [query.result() for query in queries] == [[{"s": 3}]] * 40


def _grandchildren():
    def children(pid):
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                return [int(word) for word in file.read().split()]
        except OSError:
            return []

    return {grandchild for child in children(os.getpid()) for grandchild in children(child)}


# -- nothing is written -----------------------------------------------------------------------

WRITES = [
    "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{0}'",
    "EXPLAIN ANALYZE COPY (FROM 'a.csv') TO '{1}/new.csv'",
    "explain analyze verbose copy (from 'a.csv') to '{0}'",
    "EXPLAIN /* x */ ANALYZE -- y\n COPY (FROM 'a.csv') TO '{0}'",
    "EXPLAIN (ANALYZE) COPY (FROM 'a.csv') TO '{0}'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY (FROM 'a.csv') TO '{0}'",
    "EXPLAIN ANALYZE EXPORT DATABASE '{1}/out' -- a.csv",
    "EXPLAIN ANALYZE CREATE TABLE t AS FROM 'a.csv'",
    "EXPLAIN ANALYZE ATTACH '{1}/new.db' -- a.csv",
    "EXPLAIN EXPLAIN ANALYZE COPY (FROM 'a.csv') TO '{0}'",
    "COPY (FROM 'a.csv') TO '{0}'",
    "EXPORT DATABASE '{1}/out' -- a.csv",
    "ATTACH '{1}/new.db' AS a -- a.csv",
    "PRAGMA temp_directory = '{1}' -- a.csv",
    "SET temp_directory = '{1}' -- a.csv",
    "SET enable_external_access = true -- a.csv",
    "SET log_query_path = '{1}/log' -- a.csv",
    "PRAGMA enable_profiling = 'json' -- a.csv",
    "PRAGMA profiling_output = '{1}/profile' -- a.csv",
    "INSTALL httpfs -- a.csv",
    "LOAD '{1}/x.duckdb_extension' -- a.csv",
    "PREPARE p AS COPY (FROM 'a.csv') TO '{0}'",
    "EXECUTE p -- a.csv",
    "CALL enable_logging(storage = 'file', storage_path = '{1}/logs') -- a.csv",
    "VACUUM ANALYZE -- a.csv",
    "CHECKPOINT -- a.csv",
    "FROM query('COPY (SELECT 1) TO ''{0}''') -- a.csv",
    "CREATE MACRO m() AS 1 -- a.csv",
    "WITH t AS (INSERT INTO x VALUES (1) RETURNING 1) FROM t, 'a.csv'",
]


@pytest.mark.parametrize("statement", WRITES)
async def test_query_statements_cannot_write(statement, opened, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n")
    files = opened(path)
    with pytest.raises((ToolRefusedError, ToolExecutionError)):
        await files.query(statement.format(path, tmp_path))
    assert path.read_text() == "n\n1\n"
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize(
    "statement",
    [
        "EXPLAIN SELECT * FROM 'a.csv'",
        "explain analyze select * from 'a.csv'",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM 'a.csv'",
        "EXPLAIN (FROM 'a.csv')",
        "EXPLAIN /* why */ ANALYZE FROM 'a.csv' WHERE n = $n",
    ],
)
async def test_query_explain_is_supported(statement, opened, tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    params = {"n": "1"} if "$n" in statement else None
    (row,) = await opened(tmp_path / "a.csv").query(statement, params)
    assert row["explain_key"] in ("physical_plan", "analyzed_plan")
    assert row["explain_value"]


class Hostile:
    """A format whose parser was taken over by its file."""

    async def parts(self, path):
        return []

    async def read(self, path, part):
        with open(path) as file:
            tries = json.load(file)
        done = []
        for name, code in tries.items():
            try:
                exec(code, {"path": path})
            except OSError:
                continue
            done.append(name)
        return [{"done": done}]


TRIES = {
    "overwrite": "open(path, 'w').write('x')",
    "create": "open('/tmp/delf-format-was-here', 'w')",
    "symlink": "import os; os.symlink('/etc/passwd', path + '-link')",
    "remove": "import os; os.unlink(path)",
    "other files": "open('/etc/passwd').read()",
    "network": "import socket; socket.create_connection(('127.0.0.1', 9))",
    "process": "import os; os.fork()",
}


@confined
async def test_third_party_format_cannot_write_files(opened, tmp_path):
    host = TestHost.discover(no_plugins=True, environ={})
    host.provide(FormatSpec(name="h", summary="", factory="a:b", endings=(".hostile",)), Hostile)
    path = tmp_path / "a.hostile"
    path.write_text(json.dumps(TRIES))
    assert await opened(path, host=host).read("a.hostile") == [{"done": []}]
    assert json.loads(path.read_text()) == TRIES
    assert os.listdir(tmp_path) == ["a.hostile"]


async def test_sqlite_file_with_a_write_ahead_log_is_read(opened, tmp_path):
    path = tmp_path / "a.db"
    database(path, "PRAGMA journal_mode = WAL", "CREATE TABLE t (n)", "INSERT INTO t VALUES (1)")
    assert os.listdir(tmp_path) == ["a.db"]
    assert await opened(path).read("a.db") == [{"n": 1}]
    assert os.listdir(tmp_path) == ["a.db"]
    writer = sqlite3.connect(path)
    writer.execute("INSERT INTO t VALUES (2)")
    writer.commit()
    assert await opened(path).read("a.db") == [{"n": 1}, {"n": 2}]
    writer.close()


if sys.platform != "linux":  # pragma: no cover
    pytestmark = pytest.mark.skip(reason="what is looked at is Linux's")
