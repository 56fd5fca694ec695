"""The prompt's words on the columns of a database."""

import asyncio
import json
from decimal import Decimal

import pytest

import delf_sql.connection
from delf_sql.catalog import Column, Relation, Table
from delf_sql.render import with_column_values
from delf_sql.samples import with_samples

STATES = ["open", "paid", "void"] * 5
TOWNS = [f"Town {letter}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def held(name, values, kind="text"):
    table = Table(Relation(name="t"), [Column(name=name, type=kind)])
    return (
        with_samples(table, [[value] for value in values], lambda _: True)
        .columns[0]
        .value_description
    )


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("state", STATES, "'open' | 'paid' | 'void'"),
        ("state", [*STATES, None], "'open' | 'paid' | 'void' | None"),
        ("city", TOWNS, None),
        ("active", [0, 1] * 10, "0 | 1"),
        ("total", [*range(40)], None),
        ("day", ["2026-01-31", "2025-12-01"], "%Y-%m-%d"),
        ("at", ["2026-01-31T10:30:00Z"], "%Y-%m-%dT%H:%M:%SZ"),
        ("born", ["31.01.1980", "01.12.2001"], "%d.%m.%Y"),
        ("day", ["31/01/2026", "01/12/2025"], "%d/%m/%Y"),
        ("day", ["01/31/2026"], "%m/%d/%Y"),
        ("day", ["01/12/2026"], "%d/%m/%Y or %m/%d/%Y"),
        ("day", ["20260131", "20251201"], "%Y%m%d"),
        ("seen_at", [1_782_345_600, 1_782_345_601], "unix time in s"),
        ("seenAt", [1_782_345_600_000], "unix time in ms"),
        ("number", [1_782_345_600, 1_782_345_601], None),
        ("code", ["AB-0012", "CD-0034", "EF-0056"], "as AA-0000"),
        ("price", ["9,50 EUR", "12,25 EUR", "1.200,00 EUR", "2,00 EUR", "3,00 EUR", "4,00 EUR"], "as 0,00 AAA or 0.000,00 AAA"),
        ("place", ["12 High Street", "7 Low Road", "9 Old Lane"], None),
        ("data", ['{"a": 1, "b": "x"}', '{"a": null}'], 'JSON {"a": int | None, "b": str}'),
        ("data", [json.dumps({"kind": k}) for k in STATES], "JSON {\"kind\": 'open' | 'paid' | 'void'}"),
        ("data", ["{broken"] * 5, "'{broken'"),
        ("data", [{"tip": Decimal(1)}], '{"tip": Decimal}'),
        ("tags", [["a", "b"], ["a"], ["b"], ["a", "b", "a"]], "list['a' | 'b']"),
        ("by_id", [json.dumps({f"u{i:05}": 1}) for i in range(9)], "JSON dict"),
        ("mixed", [1, "n/a"], "int or str"),
        ("price", [1.5, 2.5], None),
        ("left", ["31.01.2026", "", "01.12.2025"], "%d.%m.%Y | ''"),
        ("left", ["2026-01-31", "n/a", "-", "2025-12-01"], "%Y-%m-%d | '-' | 'n/a'"),
        ("code", ["AB-0012", "CD-0034", "", "EF-0056"], "as AA-0000 | ''"),
        ("left", ["", ""], None),
        ("city", [*TOWNS, None], "some None"),
        ("day", ["2026-01-31", None], "%Y-%m-%d | None"),
        ("price", [1.5, None], "some None"),
        ("price", [None, None], "None"),
    ],
    ids=range(34),
)  # fmt: skip
def test_column_shows_shared_values_or_their_pattern(name, values, words):
    assert held(name, values) == (words or None)


@pytest.mark.parametrize(
    "kind", ["state('open', 'paid', 'void', 'new')", "enum('open','paid','void')"]
)
def test_values_that_the_type_lists_are_not_repeated(kind):
    assert held("state", STATES, kind) is None
    assert held("state", [*STATES, None], kind) == "some None"
    assert held("state", [*STATES, *STATES, "late"], kind) == "'late' | 'open' | 'paid' | 'void'"


@pytest.mark.parametrize(
    ("label", "rows", "words"),
    [
        ("label", [["N", "new"], ["P", "paid"]], "{'N': 'new', 'P': 'paid'} by code"),
        ("title", [[1, "Sales"], [2, "IT"]], "{1: 'Sales', 2: 'IT'} by code"),
        ("label", [[number, f"Kind {number}"] for number in range(13)], "as Aaaa 0"),
        ("name", [[1, "Ann Klein"], [2, "Bo Groß"]], None),
        ("label", [["a@b.org", "x"], ["c@d.org", "y"]], None),
        ("label", [[1, None], [2, "x"]], "some None"),
    ],
)
def test_small_table_of_codes_is_shown_with_its_meanings(label, rows, words):
    columns = [Column(name="code", type="text", primary_key=True), Column(name=label, type="text")]
    table = Table(Relation(name="t"), columns)
    found = with_samples(table, rows, lambda _: True).columns
    assert [column.value_description for column in found] == [None, words]
    outside = with_samples(table, rows, lambda column: column != "code").columns
    assert "by code" not in str(outside[1].value_description)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("customer_name", "Ann Klein"),
        ("Email", "x"),
        ("lastName", "Klein"),
        ("handled_by", "aklein"),
        ("api_token", "abc"),
        ("place", "ann@example.org"),
        ("place", "account 123456"),
        ("place", "a long text " * 9),
        ("place", "two\nlines"),
    ],
)
def test_personal_looking_texts_are_not_shown(name, value):
    assert held(name, [value] * 50) is None
    assert "Klein" not in (held("data", [json.dumps({name: value})] * 50) or "")


@pytest.mark.slow
async def test_prompt_shows_shared_values_on_any_engine(open_sql, any_database):
    any_database.run(
        "CREATE TABLE bills (id int PRIMARY KEY, state varchar(20), payer varchar(20))"
    )
    for number in range(30):
        any_database.run(
            f"INSERT INTO bills VALUES ({number}, '{STATES[number % 3]}', 'P{TOWNS[number % 26]}')"
        )
    sql = open_sql(any_database, name="db", confirm=False)
    first = await sql.context("x")
    assert "= 'open' | 'paid' | 'void'" in first
    assert "PTown" not in first
    assert await sql.context("y") == first
    await sql.write("UPDATE bills SET state = 'lost' WHERE state = 'paid'")
    assert "= 'lost' | 'open' | 'void'" in await sql.context("x")


def _filled(database):
    database.run("CREATE TABLE bills (id int PRIMARY KEY, state text, kind text)")
    for number, state in enumerate(STATES):
        database.run(f"INSERT INTO bills VALUES ({number}, '{state}', 'plain')")
    database.run("CREATE VIEW slow AS SELECT state FROM bills")


@pytest.mark.parametrize(
    "options",
    [
        {"sample": False},
        {"allow": ["schema"]},
        {"confirm": ["query"]},
        {"confirm": True},
        {"trust": {"bills.id": "own"}},
    ],
    ids=str,
)
async def test_rows_are_not_sampled_if_queries_need_approval(options, open_sql, sqlite_database):
    _filled(sqlite_database)
    assert "'paid'" not in await open_sql(sqlite_database, name="db", **options).context("x")


def test_sample_values_use_the_remaining_budget():
    column = Column(name="state", type="text", value_description="'open' | 'paid'")
    tables = [Table(Relation(name=name), [column]) for name in ("a", "b")]
    lines = "a(state text)\nb(state text)"
    full = "a(state text = 'open' | 'paid')\nb(state text)"
    assert with_column_values(lines, tables, "sqlite", len(full)) == full
    assert with_column_values(lines, tables, "sqlite", len(full) - 1) == lines


async def test_only_trusted_columns_are_sampled(open_sql, sqlite_database):
    _filled(sqlite_database)
    sql = open_sql(sqlite_database, name="db", trust={"bills.state": "own"})
    text = await sql.context("x")
    assert "'paid'" in text
    assert "'plain'" not in text
    assert "view slow(state text)" in text


async def test_write_during_sampling_keeps_the_samples_of_the_prompt(
    open_sql, sqlite_database, monkeypatch
):
    sqlite_database.run("CREATE TABLE invoices (id int PRIMARY KEY, state text)")
    _filled(sqlite_database)
    sql = open_sql(sqlite_database, name="db", confirm=False)
    loop = asyncio.get_running_loop()
    sampled = []

    def sample_after_write(table, rows, is_shown):
        sampled.append(table)
        if len(sampled) == 2:
            write = sql.write("UPDATE bills SET state = 'lost' WHERE state = 'paid'")
            asyncio.run_coroutine_threadsafe(write, loop).result()
        return with_samples(table, rows, is_shown)

    # On a busy machine, the write may take longer than the usual limit for samples.
    monkeypatch.setattr(delf_sql.connection, "SAMPLE_SECONDS", 60)
    monkeypatch.setattr(delf_sql.connection, "with_samples", sample_after_write)
    assert "bills" in await sql.context("x")
    assert "= 'lost' | 'open' | 'void'" in await sql.context("x")
