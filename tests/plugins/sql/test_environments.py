"""Settings of a shell, server or user change no value; warnings of a server are passed on."""

from __future__ import annotations

import json
import os
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook

from delf.notes import notes_of_call
from plugins.sql.test_sources import DUCKDB, MARIADB, POSTGRESQL, SQLITE, WHEN
from support.program import run

pytestmark = pytest.mark.services

VARIABLES = {
    "PGCLIENTENCODING": "LATIN1",
    "PGDATESTYLE": "SQL, DMY",
    "PGOPTIONS": "-c intervalstyle=sql_standard -c bytea_output=escape -c extra_float_digits=-15",
    "PGUSER": "nobody",
    "PGDATABASE": "nothing",
    "PGPASSWORD": "wrong",
    "PYTHONIOENCODING": "latin-1",
    "LC_ALL": "C",
    "http_proxy": "http://127.0.0.1:1",
    "HOME": "/nowhere",
}
SETTINGS = (
    "datestyle = 'German'",
    "intervalstyle = 'iso_8601'",
    "extra_float_digits = -15",
    "client_encoding = 'LATIN1'",
    "bytea_output = 'escape'",
    "standard_conforming_strings = off",
    "search_path = 'nowhere'",
)
QUERY = f"{POSTGRESQL}, 'Grüße 東京' AS greeting, 0.1::float8 / 3 AS tenth"


async def test_postgresql_results_are_independent_of_the_environment(
    postgres_database: Any, open_sql: Any, monkeypatch: pytest.MonkeyPatch
):
    wanted = await open_sql(postgres_database).query(QUERY)
    assert wanted[0]["tenth"] == 0.1 / 3
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for setting in SETTINGS:
        postgres_database.run(f"ALTER ROLE CURRENT_USER SET {setting}")
    try:
        assert await open_sql(postgres_database).query(QUERY) == wanted
    finally:
        postgres_database.run("ALTER ROLE CURRENT_USER RESET ALL")


_LATE = "has not answered context() for"
"""A machine that is busy takes its time to import DuckDB."""
GREETING = ", 'Grüße 東京' AS greeting, 1e0 / 30 AS tenth"
PROGRAM = Path(__file__).with_name("odd_place.py")
PANDAS = {
    "display.max_rows": 1,
    "display.max_columns": 1,
    "display.max_colwidth": 3,
    "display.precision": 1,
    "mode.string_storage": "python",
    "future.infer_string": False,
}
WORDS_OF_C = {
    "LC_ALL": "C",
    "LANG": "tr_TR.ISO-8859-9",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
}
ODD = {
    "locale": {"env": {**WORDS_OF_C, "TZ": "XYZ-5:45"}, "umask": 0o077},
    "python": {
        "env": {
            "PYTHONIOENCODING": "latin-1",
            "PYTHONHASHSEED": "7",
            "PYTHONOPTIMIZE": "2",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONNODEBUGRANGES": "1",
            "PYTHONINTMAXSTRDIGITS": "640",
            "PYTHONSTARTUP": "/nowhere.py",
            "PYTHONWARNINGS": "default",
        },
        "pandas": PANDAS,
        "umask": 0o777,
    },
    "nowhere": {
        "env": {"HOME": "/nowhere", "TMPDIR": "/nowhere", "TZ": "Nowhere/Else"},
        "gone": True,
    },
}


@pytest.fixture
def odd_place(
    tmp_path: Path,
    postgres_database: Any,
    mariadb_database: Any,
    duckdb_database: Any,
    sqlite_database: Any,
):
    """Runs the same task in an oddly configured process; returns its output and output files."""
    databases = {
        "postgresql": (postgres_database, POSTGRESQL),
        "mariadb": (mariadb_database, MARIADB),
        "duckdb": (duckdb_database, DUCKDB),
        "sqlite": (sqlite_database, SQLITE),
    }
    for database, _ in databases.values():
        database.run("CREATE TABLE t (n int)")
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "comma.csv").write_text("name,n\nGrüße 東京,1.50\n", "utf-8")
    (inputs / "latin.csv").write_text("name;n\nGrüße;1,50\n", "latin-1")
    (inputs / "t.json").write_text(json.dumps([{"name": "Grüße"}], ensure_ascii=False), "utf-8")
    (inputs / "t.txt").write_text("Grüße 東京", "utf-8")
    book = Workbook()
    rows: Any = book.active
    rows.append(["name", "when"])
    rows.append(["Grüße 東京", WHEN])
    book.save(inputs / "t.xlsx")
    given = {
        "connections": {name: database.url for name, (database, _) in databases.items()},
        "queries": {name: query + GREETING for name, (_, query) in databases.items()},
        "files": sorted(map(str, inputs.iterdir())),
        "query": "SELECT *, CAST(n AS DOUBLE) / 3 AS third FROM 'comma.csv'",
    }

    def task(name: Any, env: Any = None, umask: Any = None, pandas: Any = None, gone: Any = False):
        place = {"output": str(tmp_path / name), "umask": umask, "pandas": pandas}
        place["gone"] = str(tmp_path / f"gone-{name}") if gone else None
        variables = {
            key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
        }
        python = str(Path(__file__).parents[2])
        done = run(
            [sys.executable, PROGRAM, json.dumps({**given, **place})],
            env={**variables, "PYTHONPATH": python, "PYTHONUTF8": "1", "TZ": "UTC", **(env or {})},
            cwd=tmp_path,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
        message = json.loads(done.stdout)
        warnings = [line for line in done.stderr.decode().splitlines() if _LATE not in line]
        assert not warnings, warnings
        files = {name: bytes.fromhex(data) for name, data in message["files"].items()}
        sheet: Any = load_workbook(BytesIO(files.pop("frame.xlsx"))).active
        return message["text"], message["warnings"], files, list(sheet.values)

    return task


@pytest.mark.timeout(300)  # four programs that import pandas, on a machine that may be busy
@pytest.mark.soak
def test_task_results_are_independent_of_the_environment(odd_place: Any):
    plain = odd_place("plain")
    text, _, files, _ = plain
    assert text.count(r"Gr\xfc\xdfe \u6771\u4eac") == 8
    assert files["Grüße 東京.txt"].decode() == "Grüße 東京"
    for name, odd in ODD.items():
        assert odd_place(name, **odd) == plain, name


async def test_mariadb_differences_are_reported(mariadb_database: Any, open_sql: Any):
    mariadb_database.run(
        "CREATE TABLE t (id int, name varchar(3)); INSERT INTO t VALUES (1, 'abc')"
    )
    mariadb_database.run("SET GLOBAL sql_mode = '', group_concat_max_len = 4")
    try:
        sql = open_sql(mariadb_database, confirm=[])
        with notes_of_call() as notes:
            rows = await sql.query(
                "SELECT group_concat('long' SEPARATOR ',') AS g, 1 / 0 AS z FROM t"
            )
        assert rows == [{"g": "long", "z": None}]
        assert not notes
        with notes_of_call() as notes:
            rows = await sql.query(
                "SELECT group_concat('longer') AS g, CAST('1x' AS INT) AS n FROM t"
            )
        assert rows == [{"g": "long", "n": 1}]
        assert len(notes) == 2
        assert all(note.startswith("the database says: ") for note in notes)
        for params in ({"name": "abcdef"}, [{"name": "abcdef"}, {"name": "abcdef"}]):
            with notes_of_call() as notes:
                await sql.write("INSERT INTO t (name) VALUES (:name)", params)
            assert "Data truncated for column 'name'" in "".join(notes)
        with notes_of_call() as notes:
            await sql.query("SELECT CAST('x' AS INT) AS n FROM t, t AS a, t AS b")
        assert "more warnings" in "".join(notes)
    finally:
        mariadb_database.run("SET GLOBAL sql_mode = DEFAULT, group_concat_max_len = DEFAULT")
