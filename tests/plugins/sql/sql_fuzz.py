"""A differential fuzz test of the SQL gate: what a server calls, our reading must have seen.

Statements are made of honest queries into which odd pieces are put: calls in disguise, half
strings, comments of every kind, signs that only some read as blanks. What our reading accepts,
with every function allowed, goes to the real server in the form in which it would be sent; each
of the server's own functions there tells when it is called.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from delf.errors import ToolRefusedError
from delf_sql.backends import make_backend
from delf_sql.gate import Statement, check_query
from delf_sql.settings import SQLSettings
from delf_sql.target import Dialect, make_target

CANARIES = ("canary", "fn", "filter", "overlay_", "sets", "mode_")
NATIVE = "last_insert_id"
"""A function of MariaDB itself that leaves a trace."""
ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name varchar(50));"
    "INSERT INTO items VALUES (1, 'one'), (2, 'two');"
)
EVERY_FUNCTION = frozenset({"*"})
_BLANKS = [" ", "\n", "\t", "\r", "\r\n", "\x0b", "\x0c", "\x00", "\u00a0", "\u2003", "\u2028",
           "\u200b", "\ufeff", "\x1a", "", "/**/", "/* x */", "-- \n", "--\n", "#\n", "--\r",
           "--\u00a0", "/*!*/", "/*!99999 x*/", "/*+ x */", "/* /* */", "*/", "--", "{# x #}"]  # fmt: skip
_QUOTES = ["'", '"', "`", "''", '""', "``", "\\'", '\\"', "\\", "[", "]", "$$", "$x$", "E'", "U&'",
           'U&"', "x'", "b'", "n'", "N'", "_utf8'", "'a'", '"a"', "`a`", "[a]", "$$a$$", "E'\\''",
           "'\\'", "'a' 'b'", "'a'\n'b'", "q'[a]'", "0x", "1e", "1.", ".5", "@'", "@`"]  # fmt: skip
_SIGNS = ["(", ")", "((", "))", ",", ".", ";", ":", "::", ":=", "?", "@", "@@", "#", "##", "!", "~",
          "|", "||", "&", "&&", "^", "%", "*", "/", "+", "-", "=", "<", ">", "<=>", "->", "->>",
          "#>", "<@", "{", "}", "{fn", "{d", "=>", "..", "!!", "!~*", "\uff08", "\u037e"]  # fmt: skip
_WORDS = ["SELECT", "FROM", "items", "i", "id", "name", "AS", "WHERE", "AND", "OR", "NOT", "IN",
          "CASE", "WHEN", "THEN", "ELSE", "END", "UNION ALL", "GROUP BY", "ORDER BY", "LIMIT 1",
          "EXISTS", "VALUES", "LATERAL", "ROW", "ARRAY", "ANY", "OVER", "FILTER", "WITHIN GROUP",
          "CAST", "INTERVAL", "COLLATE", "OPERATOR", "DISTINCT", "ALL", "WITH", "RECURSIVE", "USING",
          "NULL", "TRUE", "1", "0", "'1'", "lower", "upper", "count", "max", "EXPLAIN", "TABLE",
          "WINDOW", "PARTITION BY", "TABLESAMPLE", "FETCH FIRST 1 ROW ONLY", "ONLY", "JOIN", "ON",
          "SEPARATOR", "ESCAPE", "UESCAPE", "LIKE", "BETWEEN", "IS", "DIV", "MOD", "BINARY"]  # fmt: skip
_SEEDS = [
    "SELECT i . id , ~ FROM items AS i WHERE i . id = 1",
    "SELECT lower ( name ) AS a , ~ FROM items AS i WHERE i . id IN ( 1 , ~ )",
    "SELECT count ( * ) , max ( ~ ) FROM items i GROUP BY name HAVING count ( * ) > 0 ORDER BY 1",
    "WITH c ( a ) AS ( SELECT id FROM items ) SELECT a , ~ FROM c , items AS i",
    "SELECT i . id , x . name , ~ FROM items i , items AS x WHERE i . id = x . id AND ~ = 1",
    "SELECT CASE WHEN id = 1 THEN 'a' ELSE 'b' END , ~ FROM items i",
    "SELECT ( SELECT max ( ~ ) FROM items i ) , 'it''s' , 1 + 1",
    "SELECT id FROM items UNION ALL SELECT ~ FROM items i",
    "SELECT * , ~ FROM ( SELECT id , name FROM items ) AS s , items AS i",
    "SELECT sum ( id ) OVER ( PARTITION BY name ORDER BY ~ ) FROM items i",
    "SELECT 'a' , - id , ~ , id % 2 FROM items i WHERE NOT ( id = 2 OR name LIKE 'x%' )",
    "SELECT ~ FROM items JOIN items AS i ON i . id = items . id",
]
_PLAIN = ["{name}(1)", "{name}(1)", "{name}(i.id)", "i.id", "1", "'x'", "(SELECT {name}(1))",
          "CASE {name}(1) WHEN 1 THEN 2 END", "COALESCE({name}(1), 2)", "lower(i.name)"]  # fmt: skip
_LISTED = ["[{name}(1)]", "(i.id).{name}()", "i.name.{name}()", "list_transform([1], x -> {name}(x))",
           "struct_pack(a := {name}(1))", "[{name}(x) FOR x IN [1]]", "COLUMNS(c -> {name}(c))",
           "max(i.id ORDER BY {name}(1))", "(FROM {name}(1))", "(FROM items SELECT {name}(1))",
           "TRY({name}(1))", "TRY_CAST({name}(1) AS int)", "map([1], [{name}(1)])", "$$a$$.{name}()"]  # fmt: skip
_DOTTED = ["i.{name}", "(i).{name}", "(i.id).{name}", 'i."{name}"', "i . {name}"]

_OF_DIALECTS = {"postgresql": _DOTTED, "duckdb": _LISTED}


def statements(seed: int, dialect: Dialect) -> Iterable[str]:
    """Yield statements without end, the same ones for the same seed."""
    chance = random.Random(seed)
    while True:
        pieces = [
            _expression(chance, dialect) if piece == "~" else piece
            for piece in chance.choice(_SEEDS).split(" ")
        ]
        for _ in range(chance.choice([0, 0, 1, 1, 1, 2, 3, 5])):
            place = chance.randint(0, len(pieces))
            pieces[place:place] = [_piece(chance)]
        if chance.random() < 0.1:
            del pieces[chance.randrange(len(pieces))]
        joined = chance.choice([" "] * 8 + ["\n", "\t", "\r", ""])
        if joined:
            yield joined.join(pieces)
        else:  # any kind of blank in some places
            odd = chance.choice(_BLANKS)
            yield "".join(f"{piece}{odd if chance.random() < 0.1 else ' '}" for piece in pieces)


def _expression(chance: random.Random, dialect: Dialect) -> str:
    """Return an expression that is valid on some engine."""
    name = chance.choice([*CANARIES, NATIVE] if dialect == "mysql" else CANARIES)
    if chance.random() < 0.7:
        plain = [*_PLAIN, *_OF_DIALECTS.get(dialect, [])]
        return chance.choice(plain).format(name=name)
    blank = chance.choice(["", "", "", " ", "\n", "/**/", " -- x\n"])
    shape = chance.choice(
        [
            "1", "id", "'x'", "'it''s'", "i.id", "{name}{blank}(1)", "{name}{blank}(1)", "{name}(id)",
            '"{name}"{blank}(1)', "`{name}`{blank}(1)", "[{name}](1)", "public.{name}(1)",
            "i.{name}", "(i).{name}", "(i.id).{name}", "i.\"{name}\"", "i{blank}.{blank}{name}",
            "CASE {name}(1) WHEN 1 THEN 2 END", "(SELECT {name}(1))", "ARRAY[{name}(1)]",
            "COALESCE({name}(1), 2)", "CAST({name}(1) AS CHAR)", "1 IN ({name}(1))", "'\\'",
            "'\\' , {name}(1) , '", "E'\\' , {name}(1) , '", "$a$ {name}(1) $a$", "x'41'", "@a",
            "count(*) FILTER (WHERE {name}(1) = 1)", "{name}({name}(1))", "- {name}(1)", "(({name}(1)))",
            "1 /*!, {name}(1) */", "1 /* {name}(1) */", "1 -- {name}(1)\n", "1 # {name}(1)\n",
            "1 --{name}(1)\n", "5--{name}(1)", "'a' '{name}(1)'", "{name}", "{name}(*)", "{name}()",
            "{name}(DISTINCT 1)", "{name}(1) OVER ()", "JSON_OBJECT('a', {name}(1))", "!{name}(1)",
            "'1' = {name}(1)", "EXISTS (SELECT 1 FROM items WHERE {name}(1) = 1)", "{name}('x'::text)",
            "(SELECT f.{name} FROM (SELECT 1 AS a) AS f)", "(SELECT {name} FROM items AS {name} LIMIT 1)",
            "(WITH {name}(a) AS (SELECT 1) SELECT {name}.a FROM {name})", "lower({name}(1))",
        ]
    )  # fmt: skip
    return shape.format(name=name, blank=blank)


def _piece(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.4:
        return _call(chance)
    if kind < 0.55:
        return chance.choice(_BLANKS)
    if kind < 0.7:
        return chance.choice(_QUOTES)
    if kind < 0.82:
        return chance.choice(_SIGNS)
    return chance.choice(_WORDS)


def _call(chance: random.Random) -> str:
    name = chance.choice([*CANARIES, NATIVE])
    argument = chance.choice(["", "1", "'x'", "id", "i", "items", "*", "DISTINCT 1", "(1)"])
    blank = chance.choice(["", "", " ", *_BLANKS])
    shape = chance.choice(
        [
            "{name}{blank}({argument})", ", {name}{blank}({argument})", "+ {name}{blank}(1)",
            '"{name}"{blank}({argument})', "`{name}`{blank}({argument})", "[{name}]({argument})",
            "public.{name}({argument})", "main.{name}(1)", "items.{name}", ", i.{name}",
            ", (items).{name}", ", ('x'::text).{name}", ", s.{name}", '"{name}"', ", i.\"{name}\"",
            ", i{blank}.{blank}{name}", "--\r, {name}(1)\n", "--\u00a0, {name}(1)\n", "/*!, {name}(1) */",
            "/*M!100000 , {name}(1) */", "/* /* */ , {name}(1) -- */", "# , {name}(1)\n",
            "-- , {name}(1)\n", "'\\' , {name}(1) , '", "'\\'' , {name}(1) --'", "E'\\' , {name}(1) --'",
            "$a$ $b$ $a$ , {name}(1) -- $b$", 'U&"{name}"(1)', "U&\"\\0063anary\"(1)", "x'{name}(1)'",
            "{{fn {name}(1)}}", "CAST({name}(1) AS CHAR)", "AS {name}(a)", "WITH {name}(a) AS (SELECT 1)",
            ", {name}(1) AS (a int)", "FROM {name}(1) AS f(a)", "JOIN LATERAL {name}(1) ON TRUE",
            "CASE {name}(1) WHEN 1 THEN 2 END", "IN ({name}(1))", "OPERATOR(pg_catalog.+) {name}(1)",
            "@{name}", "@@{name}", ":{name}", "{name}.nextval", "NEXT VALUE FOR {name}", "{name}",
            "|| {name} (1)", "FILTER (WHERE {name}(1) = 1)", "OVER ({name}(1))", "[{name}(1)]",
            "(({name}))(1)", "{name}(1).{name}", "ARRAY[{name}(1)]", "ROW({name}(1))", "=> {name}(1)",
        ]
    )  # fmt: skip
    return shape.format(name=name, blank=blank, argument=argument)


@dataclass
class Figures:
    """The figures of a run of the fuzz test."""

    made: int = 0
    refused: int = 0
    ran: int = 0
    failed: int = 0
    calls: int = 0
    unseen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __str__(self) -> str:
        return (
            f"{self.made} statements: {self.refused} refused, {self.ran} ran, {self.failed} failed "
            f"at the server; {self.calls} calls seen, {len(self.unseen)} unseen"
        )


Run = Callable[[str], Awaitable[set[str]]]
"""Runs a text and gives the functions that the server called; raises when it fails."""
Read = Callable[[str, Dialect], Statement]


def read_everything(text: str, dialect: Dialect) -> Statement:
    """Parse a statement with delf's reader, with every function allowed."""
    return check_query(text, dialect, None, EVERY_FUNCTION)


class ServerError(Exception):
    """The server could not run a statement; ``called`` has the functions called before."""

    def __init__(self, called: set[str]) -> None:
        super().__init__()
        self.called = called


async def fuzz(
    dialect: Dialect, run: Run, *, seed: int, seconds: float, read: Read = read_everything
) -> Figures:
    """Generate and run statements for some seconds.

    Args:
        dialect: The dialect of the statements.
        run: Runs a statement on the real server.
        seed: The seed of all random choices.
        seconds: The duration.
        read: Parses a statement, by default with delf's reader.
    """
    figures = Figures()
    end = time.monotonic() + seconds
    for text in statements(seed, dialect):
        if time.monotonic() > end:
            return figures
        figures.made += 1
        try:
            statement = read(text, dialect)
        except ToolRefusedError:
            figures.refused += 1
            continue
        try:
            called = await run(statement.text)
            figures.ran += 1
        except ServerError as error:
            called = error.called
            figures.failed += 1
        seen = {name.lower() for name in statement.calls | statement.names_after_dot}
        figures.calls += len(called & seen)
        for name in called - seen:
            figures.unseen.append((name, text))
    raise AssertionError("statements have no end")


@contextlib.contextmanager
def sqlite_runner() -> Generator[Run]:
    """Make a runner for SQLite, whose authorizer reports every function call."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(ITEMS)
    for name in CANARIES:
        connection.create_function(name, -1, lambda *_: 1)
    called: set[str] = set()
    by_operator = {
        "like", "glob", "match", "regexp", "->", "->>", "current_date", "current_time",
        "current_timestamp",
    }  # fmt: skip

    def authorize(action: int, _first: Any, second: Any, *_: Any) -> int:
        if action == sqlite3.SQLITE_FUNCTION and second.lower() not in by_operator:
            called.add(second.lower())
        return sqlite3.SQLITE_OK

    connection.set_authorizer(authorize)

    async def run(text: str) -> set[str]:
        called.clear()
        try:
            connection.execute(text).fetchmany(5)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ServerError(set(called)) from error
        return set(called)

    with contextlib.closing(connection):
        yield run


POSTGRESQL_CANARIES = ITEMS + "".join(
    f"CREATE FUNCTION {name}({argument}) RETURNS int LANGUAGE plpgsql VOLATILE AS "
    f"$f$ BEGIN RAISE WARNING 'called {name}'; RETURN 1; END $f$;"
    for name in CANARIES
    for argument in ("", "int", "text", "anyelement")
)


@contextlib.asynccontextmanager
async def postgresql_runner(url: str) -> AsyncGenerator[Run]:
    """Make a runner for PostgreSQL, with functions that warn when they are called."""
    import psycopg

    called: set[str] = set()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        connection.add_notice_handler(
            lambda note: called.add((note.message_primary or "").removeprefix("called "))
        )
        await connection.execute("SET statement_timeout = '2s'")
        await connection.execute("SET default_transaction_read_only = on")

        async def run(text: str) -> set[str]:
            called.clear()
            try:
                await connection.execute(text, prepare=True)
            except psycopg.Error as error:
                raise ServerError(called & set(CANARIES)) from error
            return called & set(CANARIES)

        yield run


MARIADB_CANARIES = ITEMS + (
    "".join(
        f"CREATE FUNCTION `{name}`(a varchar(50)) RETURNS int NO SQL "
        f"BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'called {name}'; RETURN 1; END;\n"
        for name in CANARIES
    )
)


def backend_of(url: str, **more: Any) -> Any:
    """Return the backend of a connection to a database."""
    settings = SQLSettings.for_instance("db", {"url": url, **more})
    return make_backend(make_target("db", settings), settings)


@contextlib.contextmanager
def mariadb_runner(url: str) -> Generator[Run]:
    """Make a runner for delf's MariaDB session, where functions fail with their names."""
    from pymysql.err import MySQLError

    backend = backend_of(url, statement_timeout=2)
    with backend.session(read_only=True) as session:
        driver: Any = session.connection.driver_connection

        async def run(text: str) -> set[str]:
            called: set[str] = set()
            failed = False
            try:
                driver.query(text)
            except MySQLError as error:
                failed = True
                message = str(error.args[-1])
                if message.startswith("called "):
                    called.add(message.removeprefix("called "))
            with driver.cursor() as cursor:
                cursor.execute("SELECT LAST_INSERT_ID(), LAST_INSERT_ID(0)")
                if cursor.fetchone()[0] not in (0, "0"):
                    called.add(NATIVE)
            if failed:
                raise ServerError(called)
            return called

        yield run
    backend.dispose()


DUCKDB_CANARIES = ITEMS + "".join(
    f"CREATE MACRO {name}() AS error('called {name}'), (a) AS error('called {name}'), "
    f"(a, b) AS error('called {name}');"
    f"CREATE MACRO {name}(a) AS TABLE SELECT error('called {name}') AS a;"
    for name in ('"filter"' if name == "filter" else name for name in CANARIES)
).replace("'called \"filter\"'", "'called filter'")


@contextlib.contextmanager
def duckdb_runner(url: str) -> Generator[Run]:
    """Make a runner for delf's DuckDB session, where macros fail with their names."""
    import duckdb

    from delf_sql.backends.duckdb_child import DuckdbEngine

    settings = SQLSettings.for_instance("db", {"url": url})
    backend = DuckdbEngine(make_target("db", settings), settings)
    with backend.session(read_only=True) as session:
        driver: Any = session.connection.driver_connection

        async def run(text: str) -> set[str]:
            try:
                driver.execute(text).fetchmany(5)
            except (duckdb.Error, RuntimeError) as error:
                raise ServerError(
                    {name for name in CANARIES if f"called {name}" in str(error)}
                ) from error
            return set()

        yield run
    backend.dispose()
