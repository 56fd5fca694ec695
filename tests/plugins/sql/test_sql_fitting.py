"""A value fits the type of its column, or is refused: a table of types and values on each engine."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from delf.errors import DelfError, ToolRefusedError
from delf_sql.backends.duckdb_child import DuckdbEngine
from delf_sql.placeholders import BoundStatement, bind
from delf_sql.settings import SQLSettings
from delf_sql.target import make_target
from delf_sql.targets import stored_parameters
from delf_sql.tokens import normalise
from delf_sql.values import for_duckdb

pytestmark = pytest.mark.services

NOON = dt.datetime(2024, 1, 31, 12, 0, 0, 500000)
CET = dt.timezone(dt.timedelta(hours=1))
VALUES: dict[str, Any] = {
    "none": None, "5": 5, "true": True, "1.5": 1.5, "nan": math.nan, "1.25": Decimal("1.25"),
    "3.00": Decimal("3.00"), "long": Decimal("0.12345678901234567890123"), "text": "abc", "digits": "12",
    "json text": '{"a": 1}', "bytes": b"\x00\xff", "date": dt.date(2024, 1, 31), "midnight": dt.datetime(2024, 1, 31),
    "moment": NOON, "zoned": NOON.replace(tzinfo=CET), "time": dt.time(12, 30), "zoned time": dt.time(12, 30, tzinfo=CET),
    "26 h": dt.timedelta(hours=26), "2 h": dt.timedelta(hours=2), "uuid": uuid.UUID("3f2504e0-4f89-41d3-9a0c-0305e82c3301"), "[]": [], "['a']": ["a"],
    "[1]": [1, 2], "[null]": [None, "x"], "[{}]": [{"a": 1}], "[zoned]": [NOON.replace(tzinfo=CET)], "[1.5]": [1.5],
    "{}": {}, "{…}": {"a": [1, None]}, "{zoned}": {"at": NOON.replace(tzinfo=CET)}, "{bytes}": {"b": b"x"},
    "{1.25}": {"d": Decimal("1.25")}, "[nan]": [math.nan], "false": False, "''": "", "007": "007", "1.5 text": "1.5",
    "2**53+1": 2**53 + 1, "2**63": 2**63, "inf": math.inf, "moment text": "2024-01-31 12:00:00.5",
    "zoned text": "2024-01-31T12:00:00+01:00", "26 h text": "26:00:00", "null text": "null",
}  # fmt: skip
TYPES = {
    "postgresql": "jsonb json text int numeric float8 boolean bytea date timestamp timestamptz time timetz interval "
    "uuid text[] int[] jsonb[] date[] timestamp[]",
    "mariadb": "longtext json varchar(99) int decimal(20,5) double boolean blob date datetime(6) timestamp(6) time(6) year "
    "uuid",
    "sqlite": "text integer real blob any numeric json date boolean",
    "duckdb": "json varchar int decimal(18,3) double boolean blob date timestamp timestamptz time timetz interval "
    "uuid varchar[] int[] json[] date[] timestamp[]",
}
REFUSED = "refused"


def meaning(value: Any) -> Any:
    """Return a value in a form that compares independently of its type."""
    if isinstance(value, bool) or value is None:
        return value if value is None else int(value)
    if isinstance(value, (float, Decimal)):
        if math.isfinite(value) and value == int(value):
            return int(value)
        return "nan" if math.isnan(value) else round(float(value), 15)
    if isinstance(value, dt.datetime):
        return (
            value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=None)
        ).isoformat()
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [meaning(item) for item in value]
    if isinstance(value, dict):
        return {key: meaning(item) for key, item in value.items()}
    if isinstance(value, str) and len(value) > len("2024-01-31"):
        with contextlib.suppress(ValueError):
            return meaning(dt.datetime.fromisoformat(value))
    return str(value) if isinstance(value, uuid.UUID) else value


def readings(stored: Any) -> list[Any]:
    """Return all meanings of a stored value; a text also means what it parses to."""
    found = [meaning(stored)]
    if isinstance(stored, dt.datetime):
        found += [meaning(stored.date())] if stored.time() == dt.time(0) else []
        found += [meaning(stored.astimezone(dt.UTC).replace(tzinfo=None))] if stored.tzinfo else []
    if isinstance(stored, dt.date):
        found.append(f"{stored.isoformat()[:10]}T00:00:00")
    if isinstance(stored, dt.time) and stored.tzinfo:
        found.append(stored.replace(tzinfo=None).isoformat())
    if isinstance(stored, dt.timedelta):
        found += [stored.total_seconds(), (dt.datetime.min + stored).time().isoformat()]
    if isinstance(stored, list):
        found += [[one[-1] for one in map(readings, stored)]]
    if isinstance(stored, str):
        for read in (json.loads, float, dt.datetime.fromisoformat, dt.time.fromisoformat):
            with contextlib.suppress(ValueError):
                found += [meaning(read(stored))]
    return found


def spoken(value: Any) -> list[Any]:
    """Return the meanings of a value in every type that stores it without loss."""
    found = [meaning(value)]
    if isinstance(value, str):
        found += [meaning(one) for one in readings(value)]
    if isinstance(value, dt.time):
        found.append(dt.timedelta(hours=value.hour, minutes=value.minute).total_seconds())
    if isinstance(value, dt.timedelta):
        found += [value.total_seconds()]
        hours = int(value.total_seconds() // 3600)
        found += [
            f"{hours:02}:00:00",
            f"{value.days} day {hours % 24:02}:00:00".removeprefix("0 day "),
        ]
    if value == "26:00:00":
        found += spoken(dt.timedelta(hours=26))
    if isinstance(value, bool):
        found.append(str(value).lower())
    if isinstance(value, list):
        found.append([str(item) if item is not None else None for item in value])
        found.append([spoken(item)[-1] for item in value])
    if isinstance(
        value, Decimal
    ):  # text where no float holds it, or rounded to what the column keeps, as SQL does
        found += [str(value), round(float(value), 5), round(float(value), 3)]
    return found


def is_kept(value: Any, stored: Any) -> bool:
    return any(one == other for one in spoken(value) for other in readings(stored))


async def store_all(database: Any, open_sql: Any, kind: str) -> dict[str, Any]:
    """Write each value into a column of a type; return the values read back, or REFUSED."""
    found: dict[str, Any] = {}
    sql = open_sql(database)
    await sql.write(f"CREATE TABLE v (id varchar(20), v {'' if kind == 'any' else kind})")
    for name, value in VALUES.items():
        try:
            await sql.write("INSERT INTO v VALUES (:id, :v)", {"id": name, "v": value})
        except DelfError:
            found[name] = REFUSED
    for row in await sql.query("SELECT id, v FROM v"):
        found[row["id"]] = row["v"]
    await sql.write("DROP TABLE v")
    return found


def store_all_in_duckdb(database: Any, kind: str) -> dict[str, Any]:
    """Do the same as :func:`store_all` for DuckDB, without a process for each statement."""
    settings = SQLSettings(url=database.url)
    engine = DuckdbEngine(make_target("sql", settings), settings)

    def bound(text: str, params: Any = None) -> BoundStatement:
        return bind(*normalise(text, "duckdb"), params, "duckdb", for_duckdb)

    found: dict[str, Any] = {}
    with engine.session(read_only=False) as session:
        engine.change(session, [bound(f"CREATE TABLE v (id varchar, v {kind})")], returns=False)
        for name, value in VALUES.items():
            try:
                insert = bound("INSERT INTO v VALUES (:id, :v)", {"id": name, "v": value})
                engine.change(session, [insert], returns=False)
            except (ToolRefusedError, DBAPIError, UnicodeDecodeError):
                session.rollback()
                found[name] = REFUSED
        found |= {
            row[0]: row[1] for row in engine.query(session, bound("SELECT id, v FROM v"), 100).rows
        }
        engine.change(session, [bound("DROP TABLE v")], returns=False)
    return found


async def test_value_fits_its_column_or_is_refused(any_database, open_sql):
    wrong = {}
    for kind in TYPES[any_database.kind].split():
        if any_database.kind == "duckdb":
            table = store_all_in_duckdb(any_database, kind)
        else:
            table = await store_all(any_database, open_sql, kind)
        print(f"{any_database.kind} {kind}: {table}")
        assert set(table) == set(VALUES)
        for name, stored in table.items():
            if stored != REFUSED and not is_kept(VALUES[name], stored):
                wrong[kind, name] = stored
    print("WRONG", wrong)
    assert not wrong


BY_NUMBER = [
    ("INSERT INTO v VALUES (?, ?)", ["x", 1.5], 2),
    ("INSERT INTO v VALUES (?, ?)", [["x", 1], ["y", 1.5]], 2),
    ("UPDATE v SET n = ? WHERE a = ?", [1.5, "x"], 1),
]


async def test_unfitting_parameter_is_named_by_number(any_database, open_sql):
    sql = open_sql(any_database)
    await sql.write("CREATE TABLE v (a varchar(20), n int)")
    for text, params, number in BY_NUMBER:
        if any_database.kind == "sqlite":  # it keeps any value in any column
            await sql.write(text, params)
            continue
        with pytest.raises(ToolRefusedError, match=f"parameter number {number}: 1.5 .* integer"):
            await sql.write(text, params)
    rows = await sql.query("SELECT n FROM v")
    assert [row["n"] for row in rows] == ([1.5, 1.5, 1.5] if any_database.kind == "sqlite" else [])
    await sql.write("DROP TABLE v")


async def test_duckdb_error_about_bytes_has_a_reason(duckdb_database, open_sql):
    sql = open_sql(duckdb_database)
    await sql.write("CREATE TABLE v (a uuid)")
    with pytest.raises(DelfError, match="a value of bytes does not fit its column"):
        await sql.write("INSERT INTO v VALUES (?)", [b"\x00\xff"])


STORED = {
    "INSERT INTO t (a, `b`) VALUES (?, ?), (?, 1)": [("a", 0), ("b", 1), ("a", 2)],
    "INSERT INTO main.t VALUES (?, ? + 1)": [(0, 0)],
    "REPLACE INTO t (a) VALUES (?)": [("a", 0)],
    "INSERT INTO t SET a = ?, b = ?": [("a", 0), ("b", 1)],
    "INSERT INTO t (a) VALUES (?) ON DUPLICATE KEY UPDATE b = ?": [("a", 0), ("b", 1)],
    "INSERT INTO t (a, b) SELECT ?, (?)": [("a", 0), ("b", 1)],
    "UPDATE t SET a = ?, b = b + ? WHERE c = ?": [("a", 0)],
    "DELETE FROM t WHERE a = ?": [],
}


@pytest.mark.parametrize("text", STORED)
def test_parameters_are_matched_to_their_columns(text):
    pieces = text.split("?")
    found = stored_parameters(BoundStatement(pieces, [None] * (len(pieces) - 1)), "mysql")
    assert [(column, parameter) for _, column, parameter in found] == STORED[text]


async def test_postgresql_json_accepts_any_value_anywhere(postgres_database, open_sql):
    sql = open_sql(postgres_database)
    await sql.write(
        [
            "CREATE DOMAIN document AS jsonb",
            "CREATE TABLE v (id int PRIMARY KEY, j jsonb, d document, many jsonb[])",
            "INSERT INTO v VALUES (1, :list, :list, :many)",
        ],
        {"list": [], "many": [[], {"a": 1}, "2"]},
    )
    await sql.write(
        "INSERT INTO v VALUES (1, :list) ON CONFLICT (id) DO UPDATE SET j = jsonb_set(:base, '{a}', :list)",
        {"list": ["x"], "base": {"b": []}},
    )
    rows = await sql.query("SELECT * FROM v WHERE j @> :part", {"part": {"a": ["x"]}})
    assert rows == [{"id": 1, "j": {"a": ["x"], "b": []}, "d": [], "many": [[], {"a": 1}, 2]}]
    assert await sql.query("SELECT id FROM v WHERE id = ANY(:ids)", {"ids": [1]}) == [{"id": 1}]


async def test_explicit_cast_may_truncate_a_value(any_database, open_sql):
    sql = open_sql(any_database)
    await sql.write("CREATE TABLE v (d date)")
    if any_database.kind != "sqlite":
        with pytest.raises(ToolRefusedError, match=r"parameter :v: .* pass value.date\(\)"):
            await sql.write("INSERT INTO v VALUES (:v)", {"v": NOON})
    await sql.write("INSERT INTO v VALUES (CAST(:v AS date))", {"v": NOON})
    assert (await sql.query("SELECT count(*) AS n FROM v"))[0]["n"] == 1


async def test_mariadb_refuses_a_time_zone_in_a_query(mariadb_database, open_sql):
    with pytest.raises(ToolRefusedError, match="keep no zone"):
        await open_sql(mariadb_database).query("SELECT :v AS v", {"v": NOON.replace(tzinfo=CET)})
