"""The prompt holds the tables and columns that a question needs, whatever else there is."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from delf.errors import ToolExecutionError, ToolRefusedError
from delf_sql import connection

from .recall_schemas import (
    COMPANY,
    HUGE,
    OWN,
    QUESTIONS,
    ddl,
    huge,
    is_shown,
    lines_of,
    wide,
)

MIN = 0.9
CASES = {
    "one database of 876 tables": (huge(), QUESTIONS[::2], 8_000),
    "60 tables in little room": (lines_of(COMPANY), QUESTIONS[20:44], 3_000),
    "beside 30 tables of 200 columns": (lines_of(*OWN) + wide(30, 200), QUESTIONS[1::3], 8_000),
    "few tables, all shown": (lines_of(*OWN[:2]), QUESTIONS[:20], 8_000),
}


@pytest.fixture
def filled(tmp_path: Path, open_sql: Any):
    """Opens a new database with some tables."""

    def make(statements: Any, **settings: Any):
        path = tmp_path / "test.db"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(statements)
        return open_sql(f"sqlite:///{path}", **settings)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
async def test_prompt_shows_tables_and_columns_needed_for_a_question(case: Any, filled: Any):
    lines, questions, budget = CASES[case]
    sql = filled(ddl(lines), schema_chars=budget)
    missed: list[str] = []
    for question, needed in questions:
        prompt = await sql.context(question)
        assert len(prompt) <= budget + 100
        if not is_shown(prompt, needed):
            missed.append(question)
    assert len(missed) <= (1 - MIN) * len(questions), missed


def test_corpus_has_its_documented_number_of_tables():
    assert len(huge()) == len({line.partition("(")[0] for line in huge()}) == HUGE


async def test_wide_table_shows_keys_and_named_columns(filled: Any):
    lines = [
        line.replace("import_0(row_id*", "import_0(row_id*, shoe_size, customer_id>customers")
        for line in [*wide(4, 300), "customers(customer_id*, name)", "colours(colour_id*, hue)"]
    ]
    prompt = await filled(ddl(lines), schema_chars=3_000).context("shoe sizes in the import 0")
    shown = {line.partition("(")[0]: line for line in prompt.splitlines()}
    for column in ("row_id integer pk", "shoe_size text", "customer_id integer -> customers"):
        assert column in shown["import_0"]
    assert "more columns)" in shown["import_0"]
    assert shown["customers"] == "customers(customer_id integer pk, name text)"
    assert shown["colours"] == "colours(colour_id integer pk, hue text)"
    assert {"import_1", "import_2", "import_3"} <= shown.keys()


async def test_spare_budget_shows_more_columns_of_the_best_table(filled: Any):
    lines = [*wide(1, 200), "customers(customer_id*, name)"]
    prompt = await filled(ddl(lines), schema_chars=3_000).context("x")
    assert 2_700 < len(prompt) <= 3_000


async def test_bridging_tables_between_chosen_ones_are_shown(filled: Any):
    many = [f"log_{number:03}(log_id*, message, level)" for number in range(300)]
    lines = [
        "doctors(doctor_id*, name)",
        "patients(patient_id*, name)",
        "dp_x1(dp_id*, d>doctors, q>dp_x2)",
        "dp_x2(q_id*, p>patients)",
        *many,
    ]
    prompt = await filled(ddl(lines), schema_chars=1_000).context("doctors of each patient")
    assert is_shown(prompt, "doctors.name patients.name dp_x1.d dp_x2.p")


async def test_camel_case_names_match_other_word_forms(filled: Any):
    many = [f"Log{number:03}(LogId*, Message)" for number in range(300)]
    sql = filled(ddl(["ShippedParcels(Id*, GrossWeight)", *many]), schema_chars=800)
    assert is_shown(await sql.context("who is shipping a parcel?"), "ShippedParcels.GrossWeight")
    assert is_shown(await sql.context("weights, gross"), "ShippedParcels.GrossWeight")


@pytest.mark.parametrize("tables", [2_000, 50])
async def test_search_finds_tables_by_names_columns_and_keys(tables: Any, filled: Any):
    sql = filled(ddl(huge()), schema_tables=tables)
    found = await sql.schema(search="ticket surveys, satisfaction")
    assert len(found) <= 20
    assert {"help_surveys", "help_tickets"} <= {table["table"] for table in found[:4]}
    assert "satisfaction" in [column["name"] for column in found[0]["columns"] or ()] + [
        column["name"] for column in found[1]["columns"] or ()
    ]
    assert await sql.schema(search="zzzz") == []
    with pytest.raises(ToolRefusedError, match="either table or search"):
        await sql.schema("help_tags", search="tags")


@pytest.mark.parametrize(
    "statement",
    ["EXPLAIN SELECT 1", "PRAGMA table_info(t)", "SHOW TABLES", "DESCRIBE t", "DESC t"],
)
async def test_schema_statements_hint_at_the_schema_action(statement: Any, filled: Any):
    with pytest.raises(ToolRefusedError) as caught:
        await filled("CREATE TABLE t (a int)").query(statement)
    assert "schema('table')" in str(caught.value.hint)


@pytest.mark.services
@pytest.mark.parametrize("statement", ["SELECT * FROM tt", "SELECT aa FROM t"])
async def test_unknown_names_hint_at_the_schema_action(
    statement: Any, any_database: Any, open_sql: Any
):
    any_database.run("CREATE TABLE t (a int)")
    with pytest.raises(ToolExecutionError) as caught:
        await open_sql(any_database).query(statement)
    assert "schema(search=" in str(caught.value.hint)


async def test_sqlite_information_schema_hints_at_the_schema_action(filled: Any):
    with pytest.raises(ToolExecutionError) as caught:
        await filled("CREATE TABLE t (a int)").query("SELECT * FROM information_schema.tables")
    assert "schema(search=" in str(caught.value.hint)


async def test_table_index_is_rebuilt_only_after_changes(
    filled: Any, monkeypatch: pytest.MonkeyPatch
):
    made: list[int] = []
    own = connection.TableIndex

    def counted(tables: Any):
        made.append(len(tables))
        return own(tables)

    monkeypatch.setattr(connection, "TableIndex", counted)
    sql = filled(ddl(lines_of(COMPANY)), schema_chars=3_000)
    first = await sql.context("salaries")
    await sql.context("customers")
    assert await sql.context("salaries") == first
    assert len(made) == 1
    await sql.write("CREATE TABLE salary_salaries (id int)")
    assert "salary_salaries(id int)" in await sql.context("salaries")
    assert len(made) == 2
