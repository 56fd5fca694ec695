"""Values come out as plain Python, go in as such, and cross the wire."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import sqlite3
import uuid
from decimal import Decimal
from pathlib import Path

import pytest

from delf.errors import ToolRefusedError
from delf.notes import notes_of_call
from delf.values.encoding import dumps, loads

pytestmark = pytest.mark.services

ID = uuid.UUID("00000000-0000-4000-8000-000000000001")
WHEN = dt.datetime(2024, 1, 31, 12, 30, 15, 250000)


async def one(sql, statement, params=None):
    (row,) = await sql.query(statement, params)
    crossed = loads(dumps(row))
    assert {k: v for k, v in crossed.items() if v == v} == {k: v for k, v in row.items() if v == v}
    return row


async def test_postgresql_values_become_python_values(postgres_database, open_sql):
    postgres_database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int, b text);"
    )
    row = await one(
        open_sql(postgres_database),
        """SELECT 1::smallint AS small, 9223372036854775807 AS big, 1.50::numeric AS num, 1.5::float8 AS f,
        true AS t, NULL::int AS n, 'x'::text AS txt, '\\x00ff'::bytea AS b, date '2024-01-31' AS d,
        time '12:30' AS tm, timestamp '2024-01-31 12:30:15.25' AS ts, timestamptz '2024-01-31 12:30:15+00' AS tz,
        interval '1 day 2 hours' AS iv, '{"a": [1, null]}'::jsonb AS j, '[1]'::json AS k,
        ARRAY[1, NULL, 3] AS arr, ARRAY[['a'], ['b']] AS arr2, 'ok'::mood AS e,
        '00000000-0000-4000-8000-000000000001'::uuid AS u, inet '10.0.0.1' AS ip, '10.0.0.0/8'::cidr AS net,
        int4range(1, 5) AS r, ROW(1, 'x')::pair AS p, '<a/>'::xml AS x, B'101' AS bits, point(1, 2) AS pt,
        'a b'::tsvector AS tsv, '12.5'::money AS m, 'NaN'::numeric AS nan""",
    )  # fmt: skip
    nan = row.pop("nan")
    assert nan.is_nan()
    assert row.pop("tz") == dt.datetime(2024, 1, 31, 12, 30, 15, tzinfo=dt.UTC)
    assert row == {
        "small": 1, "big": 9223372036854775807, "num": Decimal("1.50"), "f": 1.5, "t": True, "n": None,
        "txt": "x", "b": b"\x00\xff", "d": dt.date(2024, 1, 31), "tm": dt.time(12, 30), "ts": WHEN,
        "iv": dt.timedelta(days=1, hours=2), "j": {"a": [1, None]}, "k": [1], "arr": [1, None, 3],
        "arr2": [["a"], ["b"]], "e": "ok", "u": ID, "ip": "10.0.0.1", "net": "10.0.0.0/8", "r": "[1,5)",
        "p": "(1,x)", "x": "<a/>", "bits": "101", "pt": "(1,2)", "tsv": "'a' 'b'", "m": "$12.50",
    }  # fmt: skip
    assert str(row["num"]) == "1.50"


SHOWN_AS_TEXT = {
    "'infinity'::timestamp": "infinity",
    "'-infinity'::date": "-infinity",
    "'infinity'::timestamptz": "infinity",
    "'0044-03-15 BC'::date": "0044-03-15 BC",
    "'10000-01-02 03:04'::timestamp": "10000-01-02 03:04:00",
    "'24:00'::time": "24:00:00",
    "'1 month'::interval": "1 mon",
    "'1 year 2 days'::interval": "1 year 2 days",
    "ARRAY['infinity'::date, '2026-01-02'::date]": ["infinity", dt.date(2026, 1, 2)],
}


async def test_value_without_a_python_type_becomes_text_and_is_reported(
    postgres_database, open_sql
):
    sql = open_sql(postgres_database)
    for expression, expected in SHOWN_AS_TEXT.items():
        with notes_of_call() as notes:
            rows = await sql.query(f"SELECT {expression} AS at UNION ALL SELECT NULL")
        assert rows == [{"at": expected}, {"at": None}]
        assert loads(dumps(rows)) == rows
        (message,) = notes
        assert message.startswith("column 'at': 1 of 2 values came as text")
    with notes_of_call() as notes:
        assert await sql.query("SELECT '1 day'::interval AS i, '23:59'::time AS t") == [
            {"i": dt.timedelta(days=1), "t": dt.time(23, 59)}
        ]
    assert not notes


async def test_arrays_of_user_types_become_lists(postgres_database, open_sql):
    sql = open_sql(postgres_database)
    assert await sql.query("SELECT 1 AS n") == [{"n": 1}], "the connection was there before them"
    postgres_database.run(
        """CREATE TYPE mood AS ENUM ('sad', 'so so, ok'); CREATE DOMAIN amount AS int;
        CREATE TABLE days (moods mood[], sums amount[], one mood);
        INSERT INTO days VALUES (ARRAY['sad', 'so so, ok']::mood[], ARRAY[1, NULL]::amount[], 'sad')"""
    )
    expected = [{"moods": ["sad", "so so, ok"], "sums": [1, None], "one": "sad"}]
    assert await sql.query("SELECT * FROM days") == expected
    written = await sql.write("UPDATE days SET one = 'sad' RETURNING *")
    assert written["rows"] == expected


async def test_invalid_sqlite_text_is_read_and_reported(tmp_path, open_sql):
    path = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (id TEXT PRIMARY KEY, name TEXT, n INTEGER) WITHOUT ROWID")
        database.execute("INSERT INTO t VALUES ('a', CAST(X'4df8' AS TEXT), 'dynamic')")
        database.execute("INSERT INTO t VALUES ('b', 'ü', 1.5), ('c', X'ff', NULL)")
        database.commit()
    sql = open_sql(f"sqlite:///{path}")
    with notes_of_call() as notes:
        assert await sql.query("SELECT * FROM t ORDER BY id") == [
            {"id": "a", "name": "M\ufffd", "n": "dynamic"},
            {"id": "b", "name": "ü", "n": 1.5},
            {"id": "c", "name": b"\xff", "n": None},
        ]
    assert list(notes) == [
        "column 'name' has text that is not UTF-8: each such byte was read as \ufffd"
    ]
    with notes_of_call() as notes:
        assert await sql.query("SELECT name FROM t WHERE id = 'b'") == [{"name": "ü"}]
    assert not notes
    written = await sql.write("UPDATE t SET n = 2 WHERE id = 'a' RETURNING name")
    assert written["rows"] == [{"name": "M\ufffd"}]
    (table,) = await sql.schema()
    assert [(c["name"], c["type"]) for c in table["columns"]][:1] == [("id", "text")]


async def test_mariadb_values_become_python_values(mariadb_database, open_sql):
    mariadb_database.run(
        "CREATE TABLE v (d date, t time, ts datetime(6), y year, n numeric(10, 2), f double, b blob, e enum('a', 'b'),"
        " s set('x', 'y'), j json, flag boolean, u bigint unsigned, bits bit(3), nothing int);"
        "INSERT INTO v VALUES ('2024-01-31', '-12:30:00', '2024-01-31 12:30:15.25', 2024, 1.50, 1.5, x'00ff', 'b',"
        " 'x,y', '{\"a\": 1}', true, 18446744073709551615, b'101', NULL)"
    )
    assert await one(open_sql(mariadb_database), "SELECT * FROM v") == {
        "d": dt.date(2024, 1, 31), "t": -dt.timedelta(hours=12, minutes=30), "ts": WHEN, "y": 2024,
        "n": Decimal("1.50"), "f": 1.5, "b": b"\x00\xff", "e": "b", "s": "x,y", "j": '{"a": 1}', "flag": 1,
        "u": 18446744073709551615, "bits": b"\x05", "nothing": None,
    }  # fmt: skip


async def test_mariadb_zero_dates_become_text_and_are_reported(mariadb_database, open_sql):
    mariadb_database.run(
        "SET sql_mode = ''; CREATE TABLE v (d date, t datetime, s timestamp NULL, x time);"
        "INSERT INTO v VALUES ('0000-00-00', '0000-00-00 00:00:00', '0000-00-00', '838:59:59'),"
        " ('2024-02-00', '2024-01-31 12:00:00', '2024-01-31', '00:00:01')"
    )
    with notes_of_call() as notes:
        rows = await open_sql(mariadb_database).query("SELECT * FROM v ORDER BY d")
    assert rows == [
        {"d": "0000-00-00", "t": "0000-00-00 00:00:00", "s": "0000-00-00 00:00:00",
         "x": dt.timedelta(hours=838, minutes=59, seconds=59)},
        {"d": "2024-02-00", "t": dt.datetime(2024, 1, 31, 12), "s": dt.datetime(2024, 1, 31),
         "x": dt.timedelta(seconds=1)},
    ]  # fmt: skip
    assert loads(dumps(rows)) == rows
    assert [note.split(" values")[0] for note in notes] == [
        "column 'd': 2 of 2",
        "column 't': 1 of 2",
        "column 's': 1 of 2",
    ]


DUCKDB_SAYS = {
    "'infinity'::date": "infinity",
    "'-infinity'::timestamp": "-infinity",
    "'infinity'::timestamptz": "infinity",
    "'0044-03-15 (BC)'::date": "0044-03-15 (BC)",
    "'10000-01-02 03:04'::timestamp": "10000-01-02 03:04:00",
    "'24:00'::time": "24:00:00",
    "interval '1 month'": "1 month",
    "interval '1 year 2 days'": "1 year 2 days",
    "timestamp_ns '2024-01-01 00:00:00.000000001'": "2024-01-01 00:00:00.000000001",
    "time_ns '12:00:00.123456789'": "12:00:00.123456789",
    "[time_ns '12:00:00.000000001']": "['12:00:00.000000001']",
}


async def test_unusual_duckdb_values_are_converted_and_reported(duckdb_database, open_sql):
    sql = open_sql(duckdb_database)
    for expression, expected in DUCKDB_SAYS.items():
        with notes_of_call() as notes:
            rows = await sql.query(f"SELECT {expression} AS v UNION ALL SELECT NULL ORDER BY 1")
        assert rows == [{"v": expected}, {"v": None}]
        (message,) = notes
        assert message.startswith("column 'v': 1 of 2 values came as text")
    with notes_of_call() as notes:
        row = await one(
            sql,
            """SELECT interval '1 day 2 hours' AS i, date '9999-12-31' AS d, 2::hugeint AS h,
            timestamptz '2024-01-31 12:30:15.25+00' AS z, [1, NULL] AS l, {x} AS s, uuid '{id}' AS u,
            1.50::decimal(9, 2) AS n, 'nan'::double AS nan, '\\x00\\xff'::blob AS b, time '12:30' AS t,
            timestamp_ns '2024-01-01 00:00:00.000001' AS ns, ('a')::varchar AS w, 1 AS w""".replace(
                "{x}", "struct_pack(a := 1, b := [date '2024-01-31'])"
            ).replace("{id}", str(ID)),
        )
    assert not notes
    assert row.pop("nan") != 0
    assert row == {
        "i": dt.timedelta(days=1, hours=2), "d": dt.date(9999, 12, 31), "h": 2,
        "z": WHEN.replace(tzinfo=dt.UTC), "l": [1, None], "s": {"a": 1, "b": [dt.date(2024, 1, 31)]}, "u": ID,
        "n": Decimal("1.50"), "b": b"\x00\xff", "t": dt.time(12, 30),
        "ns": dt.datetime(2024, 1, 1, 0, 0, 0, 1), "w": "a", "w_2": 1,
    }  # fmt: skip


async def test_duckdb_json_becomes_python_values(duckdb_database, open_sql):
    sql = open_sql(duckdb_database)
    await sql.write("CREATE TABLE t (id int, j json, m map(varchar, integer), s struct(a int))")
    texts = ['{"a": [1, null]}', "[1.5]", '"7"', "7", "null", None]
    await sql.write("INSERT INTO t (id, j) VALUES (?, ?)", [[*row] for row in enumerate(texts)])
    rows = await sql.query("SELECT j FROM t ORDER BY id")
    assert [row["j"] for row in rows] == [{"a": [1, None]}, [1.5], "7", 7, None, None]
    assert "json is dict or list" in await sql.context("x")
    for value in ({"a": 1}, {"it's \"b": 2, "": 0}, {}):
        await sql.write("UPDATE t SET j = :v, m = :v WHERE id = 0", {"v": value})
        (row,) = await sql.query("SELECT j, m FROM t WHERE id = 0")
        assert row == {"j": value, "m": value}
    await sql.write("UPDATE t SET s = {'a': :n}, m = MAP {'k': 2}", {"n": 5})
    assert (await sql.query("SELECT s, m, {'x': s.a} AS x FROM t LIMIT 1")) == [
        {"s": {"a": 5}, "m": {"k": 2}, "x": {"x": 5}}
    ]
    await sql.write("UPDATE t SET s = :v, j = :l", {"v": {"a": 3}, "l": [{"b": None}]})
    assert (await sql.query("SELECT s, j FROM t"))[0] == {"s": {"a": 3}, "j": [{"b": None}]}


async def test_sqlite_values_become_python_values(sqlite_database, open_sql):
    row = await one(
        open_sql(sqlite_database),
        "SELECT 1 AS i, 1.5 AS f, 'x' AS t, x'00ff' AS b, NULL AS n, date('2024-01-31') AS d",
    )
    assert row == {"i": 1, "f": 1.5, "t": "x", "b": b"\x00\xff", "n": None, "d": "2024-01-31"}


class Colour(enum.Enum):
    RED = "red"


IN = {
    "int": (5, 5), "big": (2**40, 2**40), "float": (1.5, 1.5), "text": ("it's %s :x ? \\' ü€😀", None),
    "bool": (True, {"postgresql": True, "sqlite": 1, "mariadb": 1}), "none": (None, None),
    "bytes": (b"\x00'\\\xff", None), "decimal": (Decimal("12.25"), {"sqlite": 12.25}),
    "date": (dt.date(2024, 1, 31), {"sqlite": "2024-01-31", "mariadb": "2024-01-31"}),
    "datetime": (WHEN, {"sqlite": "2024-01-31 12:30:15.250000", "mariadb": "2024-01-31 12:30:15.250000"}),
    "time": (dt.time(12, 30), {"sqlite": "12:30:00", "mariadb": "12:30:00"}),
    "timedelta": (dt.timedelta(hours=2), {"sqlite": 7200.0, "mariadb": "02:00:00"}),
    "uuid": (ID, {"sqlite": str(ID), "mariadb": str(ID)}), "enum": (Colour.RED, "red"),
    "path": (Path("a/b"), "a/b"),
    "json": ({"a": [1, None, "x"]}, {"sqlite": '{"a": [1, null, "x"]}', "duckdb": '{"a": [1, null, "x"]}', "mariadb": '{"a": [1, null, "x"]}'}),
    "list": ([1, 2], {"sqlite": "[1, 2]", "mariadb": "[1, 2]"}),
    "objects": ([{"a": 1}], {"sqlite": '[{"a": 1}]', "duckdb": '[{"a": 1}]', "mariadb": '[{"a": 1}]'}),
}  # fmt: skip


async def test_parameter_values_round_trip(any_database, open_sql):
    def wanted(value, expected):
        found = expected.get(any_database.kind) if isinstance(expected, dict) else expected
        return value if found is None else found

    sql = open_sql(any_database)
    values = {name: value for name, (value, _) in IN.items()}
    named = ", ".join(f":{name} AS {name}_" for name in values)
    by_place = ", ".join(f"? AS {name}_" for name in values)
    for statement, params in ((named, values), (by_place, list(values.values()))):
        (row,) = await sql.query(f"SELECT {statement}", params)
        assert row == {f"{name}_": wanted(*case) for name, case in IN.items()}


async def test_stored_values_match_equal_parameters(any_database, open_sql):
    kinds = {
        "sqlite": ("blob", "numeric"),
        "duckdb": ("blob", "numeric(10,2)"),
        "postgresql": ("bytea", "numeric(10,2)"),
        "mariadb": ("blob", "numeric(10,2)"),
    }
    blob, number = kinds[any_database.kind]
    sql = open_sql(any_database)
    await sql.write(f"CREATE TABLE v (id int, t varchar(99), b {blob}, n {number}, d date)")
    text, data = "it's \\ % :x ? \"` ü😀\n\t", bytes(range(256))
    await sql.write(
        "INSERT INTO v VALUES (1, :t, :b, :n, :d)",
        {"t": text, "b": data, "n": Decimal("0.10"), "d": dt.date(2024, 2, 29)},
    )
    (row,) = await sql.query(
        "SELECT * FROM v WHERE t = :t AND b = :b AND n = :n AND d = :d",
        {"t": text, "b": data, "n": Decimal("0.10"), "d": dt.date(2024, 2, 29)},
    )
    assert row["t"] == text
    assert row["b"] == data
    assert float(row["n"]) == 0.1


@pytest.mark.parametrize(
    "mode", ["NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"]
)
async def test_mariadb_sql_modes_cannot_break_quoting(mode, mariadb_database, open_sql, request):
    mariadb_database.run("CREATE TABLE items (id int); INSERT INTO items VALUES (1), (2)")
    request.addfinalizer(lambda: mariadb_database.run("SET GLOBAL sql_mode = DEFAULT"))
    mariadb_database.run(f"SET GLOBAL sql_mode = '{mode}'")
    sql = open_sql(mariadb_database)
    for value in ("\\' OR 1=1 -- ", "\\", "'", b"\\' OR 1=1 -- ", b"\\"):
        assert await sql.query("SELECT id FROM items WHERE 'x' = :v", {"v": value}) == []
        assert await sql.query("SELECT :v AS v", {"v": value}) == [{"v": value}]
    assert await sql.query("SELECT 'a\\'b' AS a, \"c\" AS c") == [{"a": "a'b", "c": "c"}]
    with pytest.raises(ToolRefusedError, match="one statement"):
        await sql.query("SELECT '\\\\'; DELETE FROM items; -- '")
    assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 2}]


async def test_unrepresentable_numbers_are_refused(
    sqlite_database, mariadb_database, postgres_database, open_sql
):
    with pytest.raises(ToolRefusedError, match="64 bits"):
        await open_sql(sqlite_database).query("SELECT :v", {"v": 2**63})
    with pytest.raises(ToolRefusedError, match="NaN"):
        await open_sql(mariadb_database).query("SELECT :v", {"v": float("nan")})
    with pytest.raises(ToolRefusedError, match="NUL"):
        await open_sql(postgres_database).query("SELECT :v", {"v": "a\x00"})


async def test_postgresql_json_and_ranges_are_converted_with_notes(postgres_database, open_sql):
    sql = open_sql(postgres_database)
    with notes_of_call() as notes:
        (row,) = await sql.query(
            """SELECT json '{"a": 1, "a": 2}' AS j, json '[1e400, 0.1]' AS n, daterange('2026-01-01', NULL)
            AS open, int4range(1, 5) AS r, ARRAY[int4range(NULL, 1)] AS many, 1 << 3 AS shifted"""
        )
    assert row == {
        "j": {"a": 2},
        "n": ["1e400", 0.1],
        "open": "[2026-01-01,)",
        "r": "[1,5)",
        "many": ["(,1)"],
        "shifted": 8,
    }
    assert [note[:50] for note in notes] == [
        "the database says: its JSON has objects with a rep",
        "the database says: its JSON has numbers that fit n",
    ]
    with notes_of_call() as notes:
        await sql.query("""SELECT json '{"a": 1}' AS j""")
    assert not notes


async def test_bit_shift_operators_are_supported(any_database, open_sql):
    rows = await open_sql(any_database).query("SELECT 1<<3 AS a, 16 >> 2 AS b, 1 < 2 AS c")
    assert rows == [{"a": 8, "b": 4, "c": True}]


async def test_dates_inside_duckdb_lists_are_converted(duckdb_database, open_sql):
    duckdb_database.run(
        "CREATE TABLE t (d DATE[], s STRUCT(ns TIMESTAMP_NS), i INTERVAL[], m TIME[])"
    )
    duckdb_database.run(
        "INSERT INTO t VALUES (['2026-01-01'], {'ns': '2026-01-01 00:00:00.123456'}, [INTERVAL 1 DAY], ['10:00']),"
        "(['2026-01-01', 'infinity'], {'ns': '2026-01-01 00:00:00.123456789'}, [INTERVAL 1 MONTH], ['24:00'])"
    )
    with notes_of_call() as notes:
        first, second = await open_sql(duckdb_database).query("SELECT * FROM t")
    assert first == {
        "d": [dt.date(2026, 1, 1)],
        "s": {"ns": dt.datetime(2026, 1, 1, microsecond=123456)},
        "i": [dt.timedelta(days=1)],
        "m": [dt.time(10)],
    }
    assert second == {
        "d": "[2026-01-01, infinity]",
        "s": "{'ns': '2026-01-01 00:00:00.123456789'}",
        "i": "[1 month]",
        "m": "['24:00:00']",
    }
    assert len(notes) == 4


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM docs WHERE data = :d",
        "SELECT id FROM docs WHERE :d = data",
        "SELECT id FROM docs WHERE id = 1 AND data <> :d",
        "SELECT id FROM docs WHERE data IN (:d)",
        "SELECT CASE WHEN data = :d THEN 1 END AS n FROM docs",
        "UPDATE docs SET id = 2 WHERE data = :d",
    ],
)
async def test_json_columns_are_not_compared_as_text(open_sql, sqlite_database, statement):
    sqlite_database.run("CREATE TABLE docs (id int, data json)")
    sqlite_database.run("""INSERT INTO docs VALUES (1, '{"a":1}')""")
    sql = open_sql(sqlite_database)
    call = sql.query if statement.startswith("SELECT") else sql.write
    with pytest.raises(ToolRefusedError, match=r"compared as JSON text.* column ->> "):
        await call(statement, {"d": {"a": 1}})
    found = "SELECT id FROM docs WHERE json(data) = json(:d) AND id IN (:ids)"
    assert await sql.query(found, {"d": {"a": 1}, "ids": [1]}) == [{"id": 1}]
    await sql.write("UPDATE docs SET id = 3, data = :d WHERE id = :n", {"d": {"b": 2}, "n": 1})
    await sql.write("INSERT INTO docs VALUES (4, :d)", {"d": {"b": 2}})
    assert [row["id"] for row in await sql.query("SELECT id FROM docs")] == [3, 4]
