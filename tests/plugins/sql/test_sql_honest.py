"""Honest queries pass, and say what they say."""

from __future__ import annotations

import pytest

from delf.errors import ToolExecutionError, ToolRefusedError
from support.fixtures import SharedDatabases

pytestmark = pytest.mark.services

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name varchar(50) NOT NULL);
CREATE TABLE orders (id int PRIMARY KEY, customer_id int REFERENCES customers (id), total int, note varchar(50));
INSERT INTO customers VALUES (1, 'Ada; DROP TABLE x'), (2, 'Bob 10%'), (3, 'Cy:name');
INSERT INTO orders VALUES (1, 1, 10, 'delete'), (2, 1, 20, NULL), (3, 2, 5, 'a?b');
"""


KINDS = ["sqlite", "duckdb", "postgresql", "mariadb"]


@pytest.fixture(scope="module")
def shops(request, tmp_path_factory):
    shared = SharedDatabases(request, tmp_path_factory, dict.fromkeys(KINDS, SETUP))
    yield shared
    shared.close()


@pytest.fixture(params=KINDS)
def shop(request, shops):
    return shops(request.param)


EVERYWHERE = [
    ("SELECT count(*) AS n FROM orders", None, [{"n": 3}]),
    ("SELECT count(*) AS n FROM orders;", None, [{"n": 3}]),
    ("select 1 as a; -- done; really", None, [{"a": 1}]),
    ("-- how many\nSELECT /* all; of */ count(*) AS n\nFROM orders", None, [{"n": 3}]),
    ("WITH x AS (SELECT 1 AS a) SELECT a FROM x", None, [{"a": 1}]),
    (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT sum(n) AS s FROM r",
        None,
        [{"s": 6}],
    ),
    ("SELECT 1 AS a UNION SELECT 2 ORDER BY a", None, [{"a": 1}, {"a": 2}]),
    (
        "SELECT id, row_number() OVER (PARTITION BY customer_id ORDER BY id) AS r FROM orders ORDER BY id",
        None,
        [{"id": 1, "r": 1}, {"id": 2, "r": 2}, {"id": 3, "r": 1}],
    ),
    ("SELECT 'a;b' AS a", None, [{"a": "a;b"}]),
    ("SELECT 'it''s; DELETE' AS a", None, [{"a": "it's; DELETE"}]),
    ("SELECT '/* no comment' AS a, '-- none' AS b", None, [{"a": "/* no comment", "b": "-- none"}]),
    ("SELECT id FROM orders WHERE note = 'delete'", None, [{"id": 1}]),
    ("SELECT id FROM customers WHERE name LIKE '%10%'", None, [{"id": 2}]),
    ("SELECT id FROM customers WHERE name LIKE '%10%' AND id = :id", {"id": 2}, [{"id": 2}]),
    ("SELECT id FROM customers WHERE name LIKE '%:name' AND id > :id", {"id": 0}, [{"id": 3}]),
    ("SELECT '12:30:00' AS t, ':id' AS c, :id AS i", {"id": 7}, [{"t": "12:30:00", "c": ":id", "i": 7}]),
    ("SELECT '12:30:00' AS t", None, [{"t": "12:30:00"}]),
    ("SELECT id FROM orders WHERE note = 'a?b' AND id = ?", [3], [{"id": 3}]),
    ("SELECT id FROM orders WHERE note = 'a?b'", None, [{"id": 3}]),
    ("SELECT 7 % 4 AS m", None, [{"m": 3}]),
    ("SELECT 7 % 4 AS m FROM orders WHERE id = :i", {"i": 1}, [{"m": 3}]),
    ("SELECT '100%s %(x)s %' AS a FROM orders WHERE id = ?", [1], [{"a": "100%s %(x)s %"}]),
    ("SELECT id FROM orders WHERE id IN (:ids) ORDER BY id", {"ids": [1, 3]}, [{"id": 1}, {"id": 3}]),
    ("SELECT id FROM orders WHERE id IN :ids ORDER BY id", {"ids": [1, 3]}, [{"id": 1}, {"id": 3}]),
    ("SELECT id FROM orders WHERE id IN (?, ?) ORDER BY id", [1, 3], [{"id": 1}, {"id": 3}]),
    ("SELECT id FROM orders WHERE note IS NULL OR note = :n", {"n": "'; DROP TABLE orders; --"}, [{"id": 2}]),
    ("SELECT id FROM orders WHERE id = :id AND customer_id = :c AND id = :id", {"id": 1, "c": 1}, [{"id": 1}]),
    ("SELECT CASE WHEN 1 = 1 THEN 'update' ELSE 'drop' END AS a", None, [{"a": "update"}]),
    ("SELECT replace('a-b', '-', '+') AS a", None, [{"a": "a+b"}]),
    ("SELECT o.id, c.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.id = 3",
     None, [{"id": 3, "id_2": 2, "name": "Bob 10%"}]),
    ("SELECT id FROM orders ORDER BY id LIMIT 1 OFFSET 1", None, [{"id": 2}]),
    ("SELECT id FROM orders WHERE id < 0", None, []),
]  # fmt: skip


async def test_query_returns_the_same_rows_on_every_database(shop, open_sql, subtests):
    sql = open_sql(shop)
    for statement, params, rows in EVERYWHERE:
        with subtests.test(statement=statement):
            assert await sql.query(statement, params) == rows


SQLITE = [
    ('SELECT "id" AS "delete" FROM [orders] WHERE `id` = 1', None, [{"delete": 1}]),
    ("VALUES (1), (2)", None, [{"column1": 1}, {"column1": 2}]),
    ("SELECT sum(value) AS s FROM json_each('[1, 2]')", None, [{"s": 3}]),
    ("SELECT '{\"a\": 5}' ->> 'a' AS a", None, [{"a": 5}]),
    ("SELECT name FROM pragma_table_info('orders') WHERE pk = 1", None, [{"name": "id"}]),
    ("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1", None, [{"name": "customers"}, {"name": "orders"}]),
    ("SELECT date('2024-01-31', '+1 day') AS d", None, [{"d": "2024-02-01"}]),
]  # fmt: skip
DUCKDB = [
    ("(SELECT 1 AS a) UNION (SELECT 2) ORDER BY a", None, [{"a": 1}, {"a": 2}]),
    ('SELECT "id" AS "delete" FROM "orders" WHERE id = 1', None, [{"delete": 1}]),
    ("VALUES (1), (2)", None, [{"col0": 1}, {"col0": 2}]),
    ("FROM orders SELECT id WHERE id = 1", None, None),
    ("SELECT '5'::int AS a, :x::int + 1 AS b", {"x": "5"}, [{"a": 5, "b": 6}]),
    ("SELECT [1, 2, 3][1:2] AS a, list_transform([1, 2], x -> x + 1) AS b", None, [{"a": [1, 2], "b": [2, 3]}]),
    ("SELECT list_sum([1, 2]) AS a, ('ab').upper() AS b", None, [{"a": 3, "b": "AB"}]),
    ("SELECT id FROM orders WHERE id = ANY(:ids) ORDER BY id", {"ids": [1, 2]}, [{"id": 1}, {"id": 2}]),
    ("SELECT $$it's; $1 ?$$ AS a, E'a\\'b;' AS b", None, [{"a": "it's; $1 ?", "b": "a'b;"}]),
    ("SELECT count(*) FILTER (WHERE total > 5) AS n FROM orders", None, [{"n": 2}]),
    ("SELECT * EXCLUDE (note, total) FROM orders WHERE id = 1", None, [{"id": 1, "customer_id": 1}]),
    ("SELECT customer_id, id FROM orders QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY id) = 1 ORDER BY 1", None, [{"customer_id": 1, "id": 1}, {"customer_id": 2, "id": 3}]),
    ("SELECT table_name FROM information_schema.tables ORDER BY 1", None, [{"table_name": "customers"}, {"table_name": "orders"}]),
    ("SELECT sum(range) AS s FROM range(3)", None, [{"s": 3}]),
    ("SELECT customer_id, sum(total) AS s FROM orders GROUP BY ALL ORDER BY ALL", None, [{"customer_id": 1, "s": 30}, {"customer_id": 2, "s": 5}]),
    ("SELECT '{\"a\": {\"b\": 1}}'::json ->> '$.a.b' AS a, '{\"a\": 1}'::json AS b", None, [{"a": "1", "b": {"a": 1}}]),
    ("SELECT struct_pack(a := 1, b := 'x') AS s", None, [{"s": {"a": 1, "b": "x"}}]),
]  # fmt: skip
POSTGRESQL = [
    ("(SELECT 1 AS a) UNION (SELECT 2) ORDER BY a", None, [{"a": 1}, {"a": 2}]),
    ('SELECT "id" AS "delete" FROM "orders" WHERE id = 1', None, [{"delete": 1}]),
    ("VALUES (1), (2)", None, [{"column1": 1}, {"column1": 2}]),
    ("SELECT '5'::int AS a, 5::text AS b", None, [{"a": 5, "b": "5"}]),
    ("SELECT :x::int + 1 AS a", {"x": "5"}, [{"a": 6}]),
    ("SELECT id::text AS a FROM orders WHERE id = :i", {"i": 1}, [{"a": "1"}]),
    ("SELECT '{\"a\": 1}'::jsonb ? 'a' AS a", None, [{"a": True}]),
    ("SELECT '{\"a\": 1}'::jsonb ? 'a' AS a, :b::int AS b", {"b": 2}, [{"a": True, "b": 2}]),
    ("SELECT '{\"a\": {\"b\": 1}}'::jsonb #>> '{a,b}' AS a, '{\"a\":1}'::jsonb @> '{\"a\":1}' AS b", None, [{"a": "1", "b": True}]),
    ("SELECT (ARRAY[1,2,3])[1:2] AS a", None, [{"a": [1, 2]}]),
    ("SELECT (ARRAY[1,2,3])[1:2] AS a, :n AS n", {"n": "x"}, [{"a": [1, 2], "n": "x"}]),
    ("SELECT id FROM orders WHERE id = ANY(:ids) ORDER BY id", {"ids": [1, 2]}, [{"id": 1}, {"id": 2}]),
    ("SELECT $$it's; $1 ?$$ AS a", None, [{"a": "it's; $1 ?"}]),
    ("SELECT $x$a$$b$x$ AS a", None, [{"a": "a$$b"}]),
    ("SELECT E'a\\'b;' AS a", None, [{"a": "a'b;"}]),
    ("SELECT 'a\\' AS a", None, [{"a": "a\\"}]),
    ("SELECT count(*) FILTER (WHERE total > 5) AS n FROM orders", None, [{"n": 2}]),
    ("SELECT count(*) AS n FROM generate_series(1, 3)", None, [{"n": 3}]),
    ("SELECT random() < 2 AS a, clock_timestamp() > now() AS b", None, [{"a": True, "b": True}]),
    ("SELECT pg_relation_size('orders') > 0 AS a", None, [{"a": True}]),
    ("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1", None, [{"table_name": "customers"}, {"table_name": "orders"}]),
    ("SELECT x.id FROM customers c, LATERAL (SELECT id FROM orders WHERE customer_id = c.id ORDER BY id LIMIT 1) x ORDER BY 1", None, [{"id": 1}, {"id": 3}]),
    ("SELECT extract(year FROM date '2024-01-31') AS y", None, [{"y": 2024}]),
    ("SELECT substring('abc' FROM 2 FOR 1) AS a", None, [{"a": "b"}]),
    ("SELECT U&'d\\0061t' AS a", None, [{"a": "dat"}]),
]  # fmt: skip
MARIADB = [
    ("(SELECT 1 AS a) UNION (SELECT 2) ORDER BY a", None, [{"a": 1}, {"a": 2}]),
    ("SELECT `id` AS `delete` FROM `orders` WHERE `id` = 1", None, [{"delete": 1}]),
    ('SELECT "it\'s; x" AS a', None, [{"a": "it's; x"}]),
    ("SELECT 'a\\'b;' AS a", None, [{"a": "a'b;"}]),
    ("SELECT 1 AS a # ; comment", None, [{"a": 1}]),
    ("SELECT 1 AS a -- ; comment", None, [{"a": 1}]),
    ("SELECT 5--1 AS a", None, [{"a": 6}]),
    ("SELECT JSON_VALUE('{\"a\": 5}', '$.a') AS a", None, [{"a": "5"}]),
    ("SELECT GROUP_CONCAT(id ORDER BY id SEPARATOR ';') AS a FROM orders", None, [{"a": "1;2;3"}]),
    ("SELECT DATE_FORMAT('2024-01-31', '%Y-%m') AS a", None, [{"a": "2024-01"}]),
    ("SELECT DATE_FORMAT('2024-01-31', '%Y-%m') AS a, :b AS b", {"b": 1}, [{"a": "2024-01", "b": 1}]),
    ("SELECT INSERT('abc', 1, 1, 'x') AS a, TRUNCATE(1.55, 1) + 0 AS b, LEFT('abc', 1) AS c, IF(1, 2, 3) AS d", None, None),
    ("SELECT @a := 5 AS a", None, [{"a": 5}]),
    ("SELECT id FROM orders USE INDEX (PRIMARY) WHERE id = 1", None, [{"id": 1}]),
]  # fmt: skip


OF_ONE = dict(zip(KINDS, (SQLITE, DUCKDB, POSTGRESQL, MARIADB), strict=True))


async def test_query_returns_expected_rows_on_its_database(shop, open_sql, subtests):
    sql = open_sql(shop)
    for statement, params, rows in OF_ONE[shop.kind]:
        with subtests.test(statement=statement):
            found = await sql.query(statement, params)
            assert found if rows is None else found == rows


async def test_sqlite_virtual_tables_can_be_queried(sqlite_database, open_sql):
    sqlite_database.run(
        "CREATE VIRTUAL TABLE docs USING fts5(body); INSERT INTO docs VALUES ('hello world');"
        "CREATE VIRTUAL TABLE boxes USING rtree(id, a, b); INSERT INTO boxes VALUES (1, 2, 3);"
    )
    sql = open_sql(sqlite_database)
    assert await sql.query("SELECT body FROM docs WHERE docs MATCH 'hello'") == [
        {"body": "hello world"}
    ]
    assert await sql.query("SELECT id FROM boxes WHERE a > 1") == [{"id": 1}]


async def test_row_limit_raises_instead_of_truncating(shop, open_sql):
    sql = open_sql(shop, max_rows=2)
    with pytest.raises(ToolExecutionError, match=r"more than 2 rows.*aggregate"):
        await sql.query("SELECT id FROM orders")
    with pytest.raises(ToolExecutionError, match="more than 2 rows"):
        await sql.query("SELECT id FROM orders LIMIT 3")
    assert await sql.query("SELECT count(*) AS n FROM (SELECT * FROM orders) x") == [{"n": 3}]
    assert len(await sql.query("SELECT id FROM orders WHERE id < 3")) == 2


async def test_limit_argument_returns_the_first_rows(shop, open_sql):
    sql = open_sql(shop, max_rows=2)
    assert await sql.query("SELECT id FROM orders ORDER BY id", limit=1) == [{"id": 1}]
    assert len(await sql.query("SELECT id FROM orders", limit=2)) == 2
    for limit in (0, -1, 3):
        with pytest.raises(ToolRefusedError, match="from 1 to 2"):
            await sql.query("SELECT id FROM orders", limit=limit)
    (query,) = [each for each in await sql.actions() if each.name == "query"]
    assert "1000 at most" in query.summary
    assert "(query: 2 rows at most, not 1,000)" in await sql.context("")
    assert "at most" not in await open_sql(shop).context("")


MANY = {
    "sqlite": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 2000000) SELECT n FROM r",
    "postgresql": "SELECT * FROM generate_series(1, 2000000)",
    "duckdb": "SELECT * FROM range(2000000)",
    "mariadb": "SELECT * FROM seq_1_to_2000000",
}


async def test_query_fetches_only_the_first_rows(shop, open_sql):
    sql = open_sql(shop)
    for end in ("", " LIMIT 1500000"):
        with pytest.raises(ToolExecutionError, match="more than 1000 rows"):
            await sql.query(MANY[shop.kind] + end)
        assert len(await sql.query(MANY[shop.kind] + end, limit=5)) == 5
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


async def test_result_size_is_limited(shop, open_sql):
    wide = "hex(zeroblob(50000))" if shop.kind == "sqlite" else "repeat('x', 100000)"
    sql = open_sql(shop, max_bytes=500_000)
    with pytest.raises(ToolExecutionError, match=r"larger than 0\.5 MB"):
        await sql.query(
            f"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT {wide} AS w FROM r"
        )
    assert await sql.query("SELECT 1 AS a") == [{"a": 1}]


BAD_PARAMS = [
    ("SELECT id FROM orders WHERE id = :id", {"ID": 1}, "has :id, which params does not have"),
    ("SELECT id FROM orders WHERE id = ?", {"id": 1}, "no :name placeholder"),
    ("SELECT id FROM orders WHERE id = %s", [1], "0 \\? placeholders, params has 1"),
    ("SELECT id FROM orders WHERE id = ? AND id = ?", [1], "2 \\? placeholders, params has 1"),
    ("SELECT id FROM orders WHERE id IN (:ids)", {"ids": []}, "empty list"),
    ("SELECT id FROM orders WHERE id = :id", {"id": object()}, ":id: a value of type object"),
    ("SELECT 'never ends", None, "string.* without an end"),
    ("SELECT 1 /* never ends", None, "comment without an end"),
    ("SELECT \x00", None, "NUL"),
]


async def test_query_refuses_mismatched_parameters(shop, open_sql, subtests):
    sql = open_sql(shop)
    for statement, params, message in BAD_PARAMS:
        with (
            subtests.test(statement=statement, params=params),
            pytest.raises(ToolRefusedError, match=message),
        ):
            await sql.query(statement, params)
