"""Settings, URLs, tokens, placeholders and the gate, without a database."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest
from sqlalchemy.engine.default import DefaultDialect

from delf import load_project
from delf.environment import FileText
from delf.errors import ConnectionConfigurationError, DelfError, ToolRefusedError
from delf.plugins.host import PluginHost
from delf_sql import SQL
from delf_sql.backends.base import Problem
from delf_sql.counting import Count, count_of
from delf_sql.database import Database, LostError
from delf_sql.failures import failed_statement_error
from delf_sql.fitting import check_fits
from delf_sql.gate import check_query, check_write
from delf_sql.placeholders import bind
from delf_sql.render import quoted
from delf_sql.settings import SQLSettings
from delf_sql.target import make_target
from delf_sql.tokens import normalise
from delf_sql.values import for_any, for_duckdb, for_mysql, for_postgresql, for_sqlite


def target(**settings):
    return make_target("db", SQLSettings.for_instance("db", settings))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:1/d", ("postgresql", "h", 1, "u", "p", "d")),
        ("postgres://u:p@h/d", ("postgresql", "h", 5432, "u", "p", "d")),
        ("postgresql+psycopg2://h/d", ("postgresql", "h", 5432, None, None, "d")),
        ("postgresql+asyncpg://u@h/d?sslmode=require", ("postgresql", "h", 5432, "u", None, "d")),
        ("postgresql://u:a%40b%2Fc@h/d%20e", ("postgresql", "h", 5432, "u", "a@b/c", "d e")),
        ("postgresql://u:a@b/c:d@h/d", ("postgresql", "h", 5432, "u", "a@b/c:d", "d")),
        ("postgresql://u:p@[::1]:5/d", ("postgresql", "::1", 5, "u", "p", "d")),
        ("postgresql:///d?host=/run/pg", ("postgresql", None, 5432, None, None, "d")),
        ("postgresql://h/d?dbname=other", ("postgresql", "h", 5432, None, None, "other")),
        ("mysql://u:p@h/d", ("mysql", "h", 3306, "u", "p", "d")),
        ("mariadb+pymysql://u:p@h/d", ("mysql", "h", 3306, "u", "p", "d")),
        ("sqlite:///a/b.db", ("sqlite", None, None, None, None, "a/b.db")),
        ("sqlite:////a/b%20c.db", ("sqlite", None, None, None, None, "/a/b c.db")),
        ("sqlite+aiosqlite:///x@y.db", ("sqlite", None, None, None, None, "x@y.db")),
    ],
)
def test_url_is_parsed_into_a_target(url, expected):
    found = target(url=url)
    assert (
        found.dialect,
        found.host,
        found.port,
        found.user,
        found.password,
        found.database,
    ) == expected


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ({"url": "sqlite:///shop.db"}, "/a b/shop.db"),
        ({"url": "sqlite+aiosqlite:///x%3Fy.db"}, "/a b/x?y.db"),
        ({"url": "sqlite:////c/shop.db"}, "/c/shop.db"),
        ({"db_type": "sqlite", "database": "shop.db"}, "/a b/shop.db"),
        ({"db_type": "sqlite", "database": "/c/shop.db"}, "/c/shop.db"),
        ({"db_type": "postgresql", "database": "shop"}, "shop"),
        ({"url": "postgresql://h/shop"}, "shop"),
    ],
)
def test_relative_sqlite_path_is_next_to_its_config_file(written, path):
    of_file = {name: FileText(text, Path("/a b")) for name, text in written.items()}
    assert target(**of_file).database == path


def test_config_file_still_needs_a_database_file():
    for url in ("sqlite:///", "sqlite:///:memory:"):
        with pytest.raises(ConnectionConfigurationError, match="needs a file"):
            target(url=FileText(url, Path("/p")))


async def test_shop_database_is_found_from_a_subfolder(tmp_path, monkeypatch):
    config = '[connections.shop]\ntype = "sql"\nurl = "sqlite:///shop.db"\n'
    (tmp_path / "delf.toml").write_text(config)
    sqlite3.connect(tmp_path / "shop.db").close()
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    host = PluginHost.discover()
    shop = load_project(environ={}).connector(host)("shop")
    assert await shop.query("SELECT 1 AS one") == [{"one": 1}]
    await shop.aclose()
    variables = {"DELF_SHOP_URL": "sqlite:///shop.db"}
    shop = load_project(environ=variables).connector(host)("shop")
    with pytest.raises(DelfError, match="there is no SQLite file"):
        await shop.query("SELECT 1 AS one")


def test_separate_settings_replace_a_url():
    found = target(host="h", port=9, database="d", user="u", password="secret", db_type="mariadb")
    assert (found.dialect, found.label, found.host, found.port) == ("mysql", "MariaDB", "h", 9)
    assert found.password == "secret"
    assert target(database="d").dialect == "postgresql"
    assert target(database="x.db", db_type="sqlite").database == "x.db"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "db: no database is named"),
        ({"host": "h"}, "db: no database is named"),
        ({"url": "nonesuch://u:hunter22@h/d"}, "url starts with nonesuch://"),
        ({"url": "postgresq://u:hunter22@h/d"}, "did you mean 'postgresql'"),
        ({"url": "hunter22"}, "url is not a database URL"),
        ({"url": "postgresql://u:hunter22@h"}, "url names no database"),
        ({"url": "postgresql://u:hunt?er22@h/d"}, "url is not a database URL"),
        ({"url": "postgresql://u:hunter22@h/d", "host": "h"}, "url and host are both set"),
        ({"url": "sqlite://"}, "needs a file"),
        ({"url": "sqlite:///:memory:"}, "needs a file"),
        ({"url": "sqlite://x.db"}, "three slashes"),
        ({"url": "sqlite:///x.db?mode=rw"}, "no options"),
        ({"url": "sqlite:///x.db", "tiemout": 5}, "unknown setting 'tiemout'"),
        ({"database": "d", "db_type": "nonesuch"}, "no dialect of SQLAlchemy"),
        ({"database": "d", "port": 99999}, "port"),
        ({"url": "sqlite:///x.db", "max_rows": 0}, "max_rows"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ConnectionConfigurationError, match=message) as caught:
        SQL(name="db", **settings)
    assert "hunter22" not in caught.value.describe()
    assert "\n" not in caught.value.describe()


@pytest.mark.parametrize("option", ["autocommit=true", "prepare_threshold=3", "conninfo=port%3D1"])
async def test_option_of_the_driver_is_no_option_of_a_url(option):
    connection = SQL(url=f"postgresql://u:hunter22@127.0.0.1:1/d?sslmode=require&{option}")
    with pytest.raises(ConnectionConfigurationError, match="unknown option"):
        await connection.query("SELECT 1")
    await connection.aclose()


@pytest.mark.parametrize("end", ["h", "h:port/d"])
@pytest.mark.parametrize("kind", ["mysql", "mariadb", "postgres"])
def test_hint_on_an_invalid_url_has_its_scheme(kind, end):
    with pytest.raises(ConnectionConfigurationError) as caught:
        SQL(name="db", url=f"{kind}://u:hunter22@{end}")
    assert f"for example {kind}://user:password@host/database" in caught.value.describe()


def test_settings_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("DELF_SQL_URL", "sqlite:///from-env.db")
    monkeypatch.setenv("DELF_SHOP_URL", "postgresql://u:hunter22@h/shop")
    monkeypatch.setenv("DELF_SHOP_MAX_ROWS", "7")
    assert SQL().target.database == "from-env.db"
    shop = SQL(name="shop")
    assert shop.target.database == "shop"
    assert shop.settings.max_rows == 7
    assert "hunter22" not in repr(shop) + repr(shop.settings) + str(vars(shop))


async def test_actions_have_signature_and_effect():
    actions = {action.name: action for action in await SQL(url="sqlite:///x.db").actions()}
    assert {name: action.effect for name, action in actions.items()} == {
        "schema": "read", "query": "read", "write": "write",
    }  # fmt: skip
    assert actions["query"].signature == (
        "(statement: str, params: dict[str, Any] | list[Any] | None = None, limit: int | None = None)"
        " -> list[dict[str, Any]]"
    )
    assert "limit" in actions["query"].summary
    assert (
        actions["write"].returns
        == '{"rowcount": int, "rows": list[dict[str, Any]], "committed": bool}'
    )
    checked = actions["query"].validate({"statement": "SELECT 1", "params": {"a": 1}, "limit": 5})
    assert checked == {"statement": "SELECT 1", "params": {"a": 1}, "limit": 5}
    assert actions["write"].validate({"statement": "x", "params": [{"a": 1}]})["params"] == [
        {"a": 1}
    ]
    assert SQL.inspect()["methods"] == ["schema", "query", "write"]


@pytest.mark.parametrize(
    ("text", "dialect", "sent"),
    [
        ("SELECT  1 -- x\n\t, 2 /* y */", "postgresql", "SELECT 1 , 2"),
        ("SELECT 1 -- x\r\n, 2", "postgresql", "SELECT 1 , 2"),
        ("SELECT 1 # x; y", "mysql", "SELECT 1"),
        ("SELECT 5--1", "mysql", "SELECT 5 - - 1"),
        ("SELECT 5 -- 1", "mysql", "SELECT 5"),
        ("SELECT 5 --", "mysql", "SELECT 5"),
        ("SELECT t . a, t.b, count(*), @x", "mysql", "SELECT t . a , t.b , count( * ) , @x"),
        ("SELECT a[1:2], :x::int, a!~'b'", "postgresql", "SELECT a [ 1:2 ] , :x :: int , a !~ 'b'"),
        ("SELECT a FROM b GROUP\n  BY 1", "sqlite", "SELECT a FROM b GROUP BY 1"),
        ("SELECT '{}'::jsonb #> '{a}'", "postgresql", "SELECT '{}' :: jsonb #> '{a}'"),
    ],
)
def test_normalise_joins_tokens_by_single_blanks(text, dialect, sent):
    assert normalise(text, dialect)[0] == sent


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("SELECT 1 --\r, 2", "postgresql"),
        ("SELECT 1 --\u00a0 x", "mysql"),
        ("SELECT\u00a01", "sqlite"),
        ("SELECT 1\x0b", "sqlite"),
        ("SELECT 1 \u200b", "mysql"),
        ("SELECT \u2028 1", "postgresql"),
        ("SELECT 1 /*! + 1 */", "mysql"),
        ("SELECT 1 /*M! + 1 */", "mysql"),
        ("SELECT /*+ BKA(t) */ 1", "mysql"),
        ("/* a /* b */ c */ SELECT 1", "postgresql"),
        ("/* a /* b */ SELECT 1", "sqlite"),
        ("SELECT 2x", "mysql"),
        ("SELECT 1e", "mysql"),
        ("SELECT $1", "postgresql"),
        ("SELECT $y", "sqlite"),
        ("SELECT {# x #} 1", "postgresql"),
        ("SELECT \\ 1", "mysql"),
        ("SELECT 1 \uff08 2", "mysql"),
        ("SELECT \ud800", "sqlite"),
    ],
)
def test_ambiguous_statement_is_refused(text, dialect):
    with pytest.raises(ToolRefusedError):
        check_query(text, dialect)


def test_refusal_of_a_numbered_placeholder_names_those_to_write():
    with pytest.raises(ToolRefusedError, match=r"\? with a list or :name with a dict"):
        check_query("SELECT $1", "postgresql")


@pytest.mark.parametrize("text", ["'", '"', "`", "[", "$$", "$a$ $b$", "/*", "/* /* */", "E'\\'"])
def test_normalise_refuses_unterminated_text(text):
    dialect = {"`": "mysql", "[": "sqlite"}.get(text, "postgresql")
    with pytest.raises(ToolRefusedError):
        normalise(f"SELECT {text}", dialect)


def same(value):
    return value


@pytest.mark.parametrize(
    ("text", "params", "sent", "values"),
    [
        ("a = :x", {"x": 1}, "a =  $ ", [1]),
        ("a = :x::int", {"x": 1}, "a =  $  :: int", [1]),
        ("a::text = :x", {"x": 1}, "a :: text =  $ ", [1]),
        ("a[1:n] = :x", {"x": 1}, "a [ 1:n ] =  $ ", [1]),
        ("a[1: :x] = 1", {"x": 1}, "a [ 1:  $  ] = 1", [1]),
        ("a like '%:x' and b = :x", {"x": 1}, "a like '%:x' and b =  $ ", [1]),
        ("a % 2 = ?", [1], "a % 2 =  $ ", [1]),
        ("a = ':x' -- :x\n and b=:x", {"x": 1}, "a = ':x' and b = $ ", [1]),
        ("a in (:x) or b = :y", {"x": [1, 2], "y": 3}, "a in ( $ ,  $  ) or b =  $ ", [1, 2, 3]),
        ("a in :x", {"x": (1, 2)}, "a in ( $ ,  $ )", [1, 2]),
        ("a in (0, :x)", {"x": 5}, "a in ( 0 ,  $  )", [5]),
        ("f(:x, :xy, :x)", {"x": 1, "xy": 2}, "f( $  ,  $  ,  $  )", [1, 2, 1]),
        ("a ? 'b' and c = :x", {"x": 1}, "a ? 'b' and c =  $ ", [1]),
        ("100%", None, "100 %", []),
        ("100% :x ?", {}, "100 % :x ?", []),
        ("E'a\\:b\\\\:c' || ':d\\' = :x", {"x": 1}, "E'a\\:b\\\\:c' || ':d\\' =  $ ", [1]),
    ],
)
@pytest.mark.parametrize("style", ["qmark", "pyformat", "numeric"])
def test_placeholders_are_bound_in_every_style(text, params, sent, values, style):
    text, tokens = normalise(text, "postgresql")
    compiled = (
        bind(text, tokens, params, "postgresql", same)
        .clause()
        .compile(dialect=DefaultDialect(paramstyle=style))
    )
    mark = {
        "qmark": "\\?",
        "format": "%s",
        "pyformat": "%\\(p\\d\\)s",
        "named": ":p\\d",
        "numeric": ":\\d",
    }
    if style in ("format", "pyformat"):
        sent = sent.replace("%", "%%")
    pattern = mark[style].join(re.escape(part) for part in sent.split("$"))
    assert re.fullmatch(pattern, str(compiled)), str(compiled)
    assert list(compiled.params.values()) == values


def test_function_names_are_case_folded_like_the_database():
    statement = check_query(
        'SELECT Lower("Weird" (1)), x /* */ (2), t.Fn',
        "postgresql",
        None,
        frozenset({"Weird", "x"}),
    )
    assert statement.calls == {"lower", "Weird", "x"}
    assert statement.names_after_dot == {"fn"}


@pytest.mark.parametrize(
    ("statement", "dialect"),
    [
        ("SELECT unheard_of(1)", "postgresql"),
        ('SELECT "Lower"(1)', "postgresql"),
        ('SELECT "in"(1)', "postgresql"),
        ("SELECT * FROM a, json_each_evil('{}') AS (x int)", "postgresql"),
        ("WITH evil(x) AS (SELECT 1) SELECT evil(1)", "postgresql"),
        ("SELECT shop.lower('x')", "mysql"),
        ("SELECT `sleep`(1)", "mysql"),
        ("SELECT * FROM evil(1) AS t(a)", "sqlite"),
        ("SELECT a FROM t ORDER BY evil(a)", "sqlite"),
        ("SELECT shop.path(1)", "mysql"),
        ("SELECT ma\u212ae_date(1, 1, 1)", "postgresql"),
    ],
)
def test_unlisted_function_is_refused(statement, dialect):
    with pytest.raises(ToolRefusedError, match="query cannot call"):
        check_query(statement, dialect)


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
@pytest.mark.parametrize("name", ["varchar", "decimal"])
def test_deeply_nested_type_names_are_refused_quickly(name, dialect):
    with pytest.raises(ToolRefusedError, match="nested too deeply"):
        check_query(f"SELECT {f'{name}(' * 60}1{')' * 60}", dialect)
    check_query(f"SELECT {f'{name}(' * 5}1{')' * 5}", dialect)


def test_user_can_list_functions_by_name_or_pattern():
    listed = frozenset({"st_*", "total_of"})
    check_query("SELECT ST_Area(shape), total_of(1) FROM t", "postgresql", None, listed)
    with pytest.raises(ToolRefusedError, match=r"cannot call total\("):
        check_query("SELECT total(1)", "postgresql", None, listed)


def test_column_lists_are_not_taken_for_calls():
    for statement in (
        "WITH RECURSIVE r(n) AS (SELECT 1), q(a, b) AS (SELECT 1, 2) SELECT n, a FROM r, q",
        "SELECT c FROM generate_series(1, 2) AS t(c)",
        "SELECT * FROM (VALUES (1, 2)) AS v(a, b)",
    ):
        assert check_query(statement, "postgresql")


def test_unparsable_statement_is_refused():
    with pytest.raises(ToolRefusedError, match="syntax not known near"):
        check_query("SELECT FROM WHERE )(", "postgresql")


def test_very_long_statement_is_refused():
    with pytest.raises(ToolRefusedError, match="pass values in params"):
        check_query(f"SELECT '{'x' * 300_000}'", "sqlite")
    check_query(f"SELECT '{'x' * 100_000}'", "sqlite")


def test_deeply_nested_statement_is_refused():
    with pytest.raises(ToolRefusedError):
        check_query("SELECT " + "(" * 5000 + "1" + ")" * 5000, "postgresql")


class Stubborn:
    """A backend whose statement completes when it is stopped, or cannot be stopped."""

    grace, one_at_a_time = 0.0, False

    def __init__(self, can_stop: bool) -> None:
        self.can_stop, self.leave = can_stop, threading.Event()

    @contextlib.contextmanager
    def session(self, *, read_only: bool):
        yield self

    def stop(self, session):
        if not self.can_stop:
            raise OSError("no way to it")
        self.leave.set()

    def discard(self, session):
        pass

    def dispose(self):
        pass


@pytest.mark.parametrize("can_stop", [True, False])
async def test_statement_finished_during_cancellation_returns_its_result(can_stop):
    backend = Stubborn(can_stop)
    database = Database(backend, 1, 0.01)
    try:
        running = database.run(lambda session: session.leave.wait(30), read_only=False)
        if can_stop:
            assert await running is True
        else:
            with pytest.raises(LostError):
                await running
    finally:
        backend.leave.set()
        await database.aclose()


USES = (
    "SELECT {k}, id FROM t WHERE {k} > 0 ORDER BY {k}",
    "SELECT max({k}) - min({k}) AS x FROM t GROUP BY t.{k}",
    "INSERT INTO t (id, {k}) VALUES (1, 1)",
    "UPDATE t SET {k} = 2 WHERE {k} = 1",
    "SELECT CASE WHEN {k} > 1 THEN {k} END FROM t a JOIN t b USING ({k})",
)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["duckdb", "sqlite"])
def test_quoted_keywords_are_valid_column_names(dialect):
    listed = duckdb.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    database = duckdb.connect() if dialect == "duckdb" else sqlite3.connect(":memory:")
    with contextlib.closing(database):
        for (word,) in listed:
            database.execute("DROP TABLE IF EXISTS t")
            database.execute(f'CREATE TABLE t (id int, "{word}" int)')
            for use in USES:
                database.execute(use.format(k=quoted(word, dialect)))
            assert len(database.execute("SELECT * FROM t").fetchall()) == 1


def test_reserved_names_are_quoted():
    names = ("order", "rank", "groups", "name")
    assert [quoted(name, "mysql") for name in names] == ["`order`", "`rank`", "`groups`", "name"]
    assert quoted("lateral", "postgresql") == '"lateral"'
    assert quoted("lateral", "nobody_knows") == "lateral"


TRUST = {"customers": "own", "sales.orders": "own", "bills": "own", "bills.note": "outside"}
WHOSE = {
    "SELECT mail FROM customers": "own",
    "SELECT mail FROM Customers": "own",
    "SELECT mail FROM customers WHERE id = :n": "own",
    "SELECT n FROM sales.orders": "own",
    "SELECT n FROM orders": "outside",
    "SELECT mail FROM other.customers": "outside",
    "SELECT iban, note FROM bills": {"iban": "own", "IBAN": "own", "*": "outside"},
    "SELECT iban || note AS x FROM bills": "outside",
    "SELECT iban FROM bills ORDER BY note": "outside",
    "SELECT iban, note AS iban FROM bills": "outside",
    "SELECT iban, lower(note) FROM bills": "outside",
    "SELECT iban FROM bills AS b (note, iban)": "outside",
    "SELECT bills FROM bills": "outside",
    "SELECT b FROM bills AS b": "outside",
    "SELECT * FROM bills": "outside",
    "SELECT (SELECT max(note) FROM bills) AS iban FROM bills": "outside",
    "SELECT mail FROM customers, LATERAL (SELECT text FROM tickets) AS t": "outside",
    "SELECT x FROM generate_series(1, 3) AS t (x)": "outside",
    "WITH t AS (SELECT text FROM t) SELECT text FROM t": "outside",
    "WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b, customers": "own",
    "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a, customers": "outside",
    "SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t) AS x, t, customers": "outside",
    "DELETE FROM customers": "outside",
    "SELECT FROM": "outside",
}


@pytest.mark.parametrize("dialect", ["postgresql", "duckdb"])
@pytest.mark.parametrize(("statement", "whose"), WHOSE.items())
def test_rows_are_trusted_only_if_every_source_is_trusted(tmp_path, dialect, statement, whose):
    url = f"duckdb:///{tmp_path}/d.db" if dialect == "duckdb" else "postgresql://u:p@h/d"
    db = SQL(url=url, trust=TRUST)
    params = {"n": 1} if ":n" in statement else None
    given = {"statement": statement, "params": params}
    assert db.result_trust("query", given) == whose


def test_trusted_tables_are_matched_case_sensitively():
    db = SQL(url="postgresql://u:p@h/d", trust=TRUST)
    assert db.result_trust("query", {"statement": 'SELECT mail FROM "Customers"'}) == "outside"


@pytest.mark.parametrize(("alias", "other"), [("ß", "SS"), ("ı", "I")])
def test_trusted_name_in_other_letter_case_is_no_untrusted_column(alias, other):
    db = SQL(url="postgresql://u:p@h/d", trust={"orders.id": "own"})
    statement = f'SELECT id AS "{alias}", note AS "{other}" FROM orders'
    whose = db.result_trust("query", {"statement": statement})
    assert whose[alias] == "own"
    assert whose.get(other, whose["*"]) == "outside"


def test_alias_that_hides_a_trusted_column_in_other_letter_case_makes_rows_untrusted():
    db = SQL(url="mysql://u:p@h/d", trust={"orders.Id": "own", "orders.total": "own"})
    # MySQL ignores letter case, so that it sorts by the alias, which means the note.
    statement = "SELECT total, note AS iD FROM orders ORDER BY Id"
    assert db.result_trust("query", {"statement": statement}) == "outside"


@pytest.mark.parametrize(
    ("scheme", "trust", "statement"),
    [
        ("mysql", {"orders.note": "outside"}, "SELECT NOTE FROM orders"),
        ("mysql", {"orders.Note": "outside"}, "SELECT `note` FROM orders"),
        ("mysql", {"Orders.note": "outside"}, "SELECT note, id FROM orders"),
        ("mysql", {"Orders.note": "outside"}, "SELECT o.note FROM orders AS o JOIN orders AS p"),
        ("postgresql", {"public.orders.note": "outside"}, "SELECT note FROM orders"),
        ("postgresql", {"orders.note": "outside"}, "SELECT note FROM public.orders"),
    ],
)
def test_untrusted_column_stays_untrusted_under_any_spelling(scheme, trust, statement):
    own = {"orders": "own", "public.orders": "own"}
    db = SQL(url=f"{scheme}://u:p@h/d", trust={**own, **trust})
    whose = db.result_trust("query", {"statement": statement})
    assert whose == "outside" or not {"note", "NOTE"} & whose.keys()


@pytest.mark.parametrize(
    "orders", [{"orders": "own", "orders.note": "outside"}, {"orders.status": "own"}]
)
def test_trusted_column_may_have_the_name_of_an_untrusted_table(orders):
    db = SQL(url="postgresql://u:p@h/d", trust={**orders, "status": "outside"})
    whose = {"SELECT status FROM orders": "own", "SELECT status FROM status": "outside"}
    for statement, trust in whose.items():
        found = db.result_trust("query", {"statement": statement})
        assert (found if isinstance(found, str) else found["status"]) == trust


def test_user_permitted_function_makes_rows_untrusted():
    db = SQL(url="postgresql://u:p@h/d", trust=TRUST, functions=["mine"])
    assert db.result_trust("query", {"statement": "SELECT mine(id) FROM customers"}) == "outside"


@pytest.mark.parametrize("key", ["", "*", "a..b", "a.b.c.d"])
def test_unknown_table_in_trust_is_an_error(key):
    with pytest.raises(ConnectionConfigurationError, match="not a table or column"):
        SQL(url="postgresql://u:p@h/d", trust={key: "own"})


@pytest.mark.parametrize("trust", [{"orders": {"id": "own"}}, {"orders": "mine"}, ["orders"], True])
def test_invalid_trust_setting_is_an_error(trust):
    with pytest.raises(ConnectionConfigurationError, match="trust"):
        SQL(url="postgresql://u:p@h/d", trust=trust)


@pytest.mark.slow
async def test_comments_on_untrusted_columns_are_omitted(tmp_path):
    path = str(tmp_path / "d.db")
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE bills (iban TEXT, note TEXT); CREATE TABLE notes (x TEXT)")
        for what in ("TABLE bills", "TABLE notes", "COLUMN bills.iban", "COLUMN bills.note"):
            database.execute(f"COMMENT ON {what} IS 'about {what}'")
    trust = {"bills": "own", "bills.note": "outside"}
    db = SQL(url=f"duckdb:///{path}", trust=trust)
    assert (await db.context("bills")).count("about ") == 1
    assert re.findall("about [^']*", str(await db.schema())) == ["about COLUMN bills.iban"]
    assert db.context_trust == db.result_trust("schema", {}) == "own"
    await db.aclose()


def test_untested_dialects_keep_a_required_final_semicolon():
    body = "CREATE PROCEDURE p IS BEGIN DELETE FROM items; END"
    merge = "MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN DELETE"
    for dialect, text, kept in [
        ("oracle", body, True),
        ("mssql", merge, True),
        ("oracle", merge, False),
        ("mysql", body, False),
    ]:
        for end in ("", ";", "; ;"):
            sent_text = check_write(text + end, dialect).text
            assert sent_text.endswith(";") == (kept and end != "")


@pytest.mark.parametrize(
    ("dialect", "head"),
    [
        ("snowflake", "CREATE OR REPLACE SECURE PROCEDURE p() RETURNS int LANGUAGE SQL AS"),
        ("oracle", "CREATE TYPE BODY t AS MEMBER FUNCTION f RETURN NUMBER IS"),
        ("oracle", "CREATE OR REPLACE EDITIONABLE TYPE BODY t IS MEMBER PROCEDURE f IS"),
    ],
)
def test_routine_body_of_an_untested_dialect_may_have_semicolons(dialect, head):
    statement = f"{head} BEGIN x := 1; RETURN x; END"
    assert check_write(statement, dialect).text.count(";") == 2


@pytest.mark.parametrize(
    ("dialect", "statement"),
    [
        ("snowflake", "CREATE SECURE VIEW procedure AS SELECT 1; DELETE FROM items"),
        ("oracle", "CREATE TYPE t AS OBJECT (body int); DELETE FROM items"),
        ("postgresql", "CREATE TYPE body AS (a int); DELETE FROM items"),
    ],
)
def test_definition_without_a_body_allows_no_second_statement(dialect, statement):
    with pytest.raises(ToolRefusedError, match="one statement"):
        check_write(statement, dialect)


def test_number_larger_than_any_float_does_not_fit_a_float_column():
    with pytest.raises(TypeError, match="does not fit a column of type float"):
        check_fits(2**2000, "float")


@pytest.mark.parametrize(
    ("text", "fits"), [("1e200000", True), ("1e-200000", False), ("1.50", False), ("2.0", True)]
)
def test_text_fits_an_integer_column_without_a_fraction(text, fits):
    began = time.process_time()
    with contextlib.nullcontext() if fits else pytest.raises(TypeError, match="does not fit"):
        check_fits(text, "integer")
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("value", ["sNaN", Decimal("sNaN"), "NaN", Decimal("NaN"), float("nan")])
def test_nan_does_not_fit_a_boolean_column(value):
    with pytest.raises(TypeError, match="does not fit a column of type boolean"):
        check_fits(value, "boolean")


def test_signalling_nan_is_refused_like_any_nan():
    with pytest.raises(ValueError, match="makes NULL of a NaN in a list"):
        for_duckdb([Decimal(1), [Decimal("sNaN")]])
    with pytest.raises(ValueError, match="MySQL has no infinity and no NaN"):
        for_mysql(Decimal("sNaN"))


@pytest.mark.parametrize("convert", [for_any, for_duckdb, for_mysql, for_postgresql, for_sqlite])
def test_dict_whose_keys_become_equal_is_refused(convert):
    with pytest.raises(TypeError, match="two keys with the same text"):
        convert([{1: "a", "1": "b"}])


@pytest.mark.parametrize("cause", ["unavailable", "statement"])
@pytest.mark.parametrize("read_only", [True, False])
def test_secret_at_the_end_of_a_shortened_error_is_redacted(cause, read_only):
    backend = cast("Any", SimpleNamespace(target=target(url="postgresql://u:s3cret-s3cret@h/d")))
    problem = Problem(cause=cause, text=f"{'x' * 390} s3cret-s3cret", is_connection_lost=True)
    error = failed_statement_error(problem, backend, read_only=read_only, timeout=1.0)
    assert "x" * 390 in error.message
    assert "s3cret" not in error.message


def test_rows_after_a_table_hint_are_counted():
    insert = "INSERT INTO items WITH (TABLOCK)"
    rows = check_write(f"{insert} VALUES (1, 'a'), (2, 'b')", "mssql")
    assert count_of(rows, None) == Count("new rows", number=2)
    query = check_write(f"{insert} SELECT id FROM other", "mssql")
    counted = "SELECT count(*) AS n FROM (SELECT id FROM other) AS counted"
    assert count_of(query, None) == Count("new rows", query=counted)
