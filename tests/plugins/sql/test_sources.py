"""The same values from every source, for a script and a file: the table of the docs.

``WRITE_TABLES=1`` writes the table in ``docs/values.md`` again.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sqlite3
from decimal import Decimal
from typing import Any

import duckdb
import mcp_types
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from openpyxl import Workbook

from delf.testing import TestHost
from delf.values.conversion import plain
from delf.values.encoding import dumps, loads
from delf_engine.formats import Formats
from delf_engine.inputs import find_inputs, input_files
from delf_files.connection import Files
from delf_mcp.results import result_of
from delf_openapi import APITool
from delf_sandbox.guest.content import make_content
from support.fixtures import sqlite_file
from support.raw_http import Reply, raw_server
from support.workspace import ROOT

pytestmark = pytest.mark.services

PAGE = ROOT / "docs/values.md"
PLACE = re.compile(r"(<!-- sources[^\n]*-->\n).*?(<!-- end of sources -->)", re.DOTALL)
KINDS = (
    "whole",
    "exact",
    "real",
    "yes",
    "words",
    "day",
    "moment",
    "zoned",
    "lasting",
    "raw",
    "many",
    "none",
)
WHEN = dt.datetime(2026, 1, 2, 3, 4, 5)
ZONED = WHEN.replace(tzinfo=dt.UTC)
VALUES: dict[str, Any] = {
    "whole": 7, "exact": Decimal("1.50"), "real": 1.5, "yes": True, "words": "007", "day": WHEN.date(),
    "moment": WHEN, "zoned": ZONED, "lasting": dt.timedelta(days=1, seconds=90), "raw": b"\xff", "many": [1, 2],
    "none": None,
}  # fmt: skip
JSON = {"whole": 7, "real": 1.5, "yes": True, "words": "007", "many": [1, 2], "none": None}
POSTGRESQL = """SELECT 7 AS whole, 1.50::numeric AS exact, 1.5::float8 AS real, true AS yes, '007' AS words,
    date '2026-01-02' AS day, timestamp '2026-01-02 03:04:05' AS moment,
    timestamptz '2026-01-02 03:04:05+00' AS zoned, interval '1 day 90 seconds' AS lasting,
    '\\xff'::bytea AS raw, ARRAY[1, 2] AS many, NULL AS none"""
MARIADB = """SELECT 7 AS whole, CAST(1.50 AS DECIMAL(9, 2)) AS exact, CAST(1.5 AS DOUBLE) AS `real`,
    TRUE AS yes, '007' AS words, DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05' AS moment,
    UNHEX('ff') AS raw, NULL AS none"""
SQLITE = "SELECT 7 AS whole, 1.5 AS real, '007' AS words, x'ff' AS raw, NULL AS none"
DUCKDB = """SELECT 7 AS whole, 1.50::DECIMAL(9, 2) AS exact, 1.5::DOUBLE AS real, true AS yes, '007' AS words,
    DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05' AS moment,
    TIMESTAMPTZ '2026-01-02 03:04:05+00' AS zoned, INTERVAL '1 day 90 seconds' AS lasting,
    '\\xFF'::BLOB AS raw, [1, 2] AS many, NULL AS none"""


@pytest.fixture
def files(tmp_path) -> Files:
    """The values in files."""
    (tmp_path / "t.csv").write_text("whole;real;words;day\n7;1.5;007;2026-01-02\n")
    (tmp_path / "t.json").write_text(json.dumps([JSON]))
    duckdb.sql(f"COPY ({DUCKDB}) TO '{tmp_path / 't.parquet'}'")
    book = Workbook()
    names = ("whole", "real", "yes", "words", "moment", "none")
    book.active.append(names)
    book.active.append([VALUES[name] for name in names])
    book.save(tmp_path / "t.xlsx")
    found = find_inputs(
        [str(tmp_path / f"t.{ending}") for ending in ("csv", "json", "parquet", "xlsx")]
    )
    return Files(input_files(found, str), Formats(TestHost.discover(environ={})))


async def rows_of_sources(
    files, tmp_path, open_sql, postgres_database, mariadb_database, duckdb_database
):
    """Return a row of each source, as a script gets it."""
    table = {name: [value] for name, value in VALUES.items()}
    sqlite3.connect(tmp_path / "t.db").close()
    sqlite = sqlite_file(tmp_path / "t.db")
    frame = pd.DataFrame({**table, "zoned": pd.to_datetime([ZONED])})
    structured = mcp_types.CallToolResult(content=[], structured_content=JSON)
    return {
        "PostgreSQL": await open_sql(postgres_database).query(POSTGRESQL),
        "MariaDB": await open_sql(mariadb_database).query(MARIADB),
        "SQLite": await open_sql(sqlite).query(SQLITE),
        "DuckDB": await open_sql(duckdb_database).query(DUCKDB),
        "pandas": plain(frame),
        "polars": plain(pl.DataFrame(table)),
        "pyarrow": plain(pa.table(table)),
        "numpy": plain(
            np.array([(7, 1.5, True, "007")], dtype="i8,f8,?,U3").astype(
                [("whole", "i8"), ("real", "f8"), ("yes", "?"), ("words", "U3")]
            )
        ),
        "Excel": await files.read("t.xlsx"),
        "CSV": await files.read("t.csv"),
        "Parquet": await files.query("SELECT * FROM 't.parquet'"),
        "JSON": await files.read("t.json"),
        "MCP": [result_of("t", structured)],
        "OpenAPI": [await row_of_an_api()],
    }


async def row_of_an_api() -> dict[str, Any]:
    """Return the values of an API whose specification marks some texts as dates."""
    forms = {"day": "date", "zoned": "date-time"}
    message = {**JSON, "day": "2026-01-02", "zoned": "2026-01-02T03:04:05Z"}
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "format": form} for name, form in forms.items()},
    }
    answer = {"description": "ok", "content": {"application/json": {"schema": schema}}}
    get = {"operationId": "values", "responses": {"200": answer}}
    info = {"title": "T", "version": "1"}
    spec = {"openapi": "3.1.0", "info": info, "paths": {"/values": {"get": get}}}
    async with raw_server() as server:
        headers = {"Content-Type": "application/json"}
        server.answer = lambda _: Reply(200, json.dumps(message).encode(), headers)
        tool = APITool(spec, name="api", base_url=server.url)
        (action,) = await tool.actions()
        row = await action.call(**action.validate({}))
        await tool.aclose()
    return row


MISSING = "–"


def as_table(sources: dict[str, list[dict[str, Any]]]) -> str:
    """Return a line for each source, with the types of values that a script gets."""
    lines = [f"| source | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    for source, (row,) in sources.items():
        kinds = [type(row[k]).__name__ if k in row else MISSING for k in KINDS]
        lines.append(f"| {source} | {' | '.join(f'`{k}`' if k != MISSING else k for k in kinds)} |")
    whole = sources["PostgreSQL"][0]
    for name in ("t.csv", "t.json"):
        cells = [in_file(name, {kind: whole[kind]}) for kind in KINDS]
        lines.append(f"| → `{name[1:]}` | {' | '.join(f'`{cell}`' for cell in cells)} |")
    return "\n".join(lines) + "\n"


def in_file(name: str, row: dict[str, Any]) -> str:
    """Return the text of one value in an output file."""
    text = make_content(name, [row]).data.decode()
    if name.endswith(".csv"):
        return text.split("\n", 1)[1].strip() or '""'
    ((value,),) = (item.values() for item in json.loads(text))
    return json.dumps(value)


async def test_documented_table_matches_the_sources(
    files, tmp_path, open_sql, postgres_database, mariadb_database, duckdb_database
):
    sources = await rows_of_sources(
        files, tmp_path, open_sql, postgres_database, mariadb_database, duckdb_database
    )
    for source, rows in sources.items():
        (row,) = rows
        assert loads(dumps(rows)) == rows, source
        for kind, value in row.items():
            wanted = str(VALUES[kind]) if source == "CSV" else VALUES[kind]
            assert value == wanted, (source, kind)
            csv, alike = in_file("t.csv", {kind: value}), in_file("t.csv", {kind: wanted})
            if (source, kind) != ("MariaDB", "yes"):  # its booleans are numbers
                assert csv == alike, (source, kind)
    text = PAGE.read_text("utf-8")
    made = PLACE.sub(lambda found: f"{found[1]}{as_table(sources)}{found[2]}", text)
    if os.environ.get("WRITE_TABLES"):
        PAGE.write_text(made, "utf-8")
    assert PAGE.read_text("utf-8") == made, "WRITE_TABLES=1 writes it again"
