"""delf's reading of a statement finds all that the server calls: random statements.

A few seconds for each engine; ``DELF_SQL_FUZZ_SECONDS=1200`` for a long run, with
``DELF_SQL_FUZZ_SEED`` for other statements.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from .sql_fuzz import (
    DUCKDB_CANARIES,
    MARIADB_CANARIES,
    POSTGRESQL_CANARIES,
    Figures,
    duckdb_runner,
    fuzz,
    mariadb_runner,
    postgresql_runner,
    read_everything,
    sqlite_runner,
)

SECONDS = float(os.environ.get("DELF_SQL_FUZZ_SECONDS", "2"))
SEED = int(os.environ.get("DELF_SQL_FUZZ_SEED", "10"))

pytestmark = [pytest.mark.services, pytest.mark.timeout(SECONDS * 2 + 60)]


def check(figures: Figures) -> None:
    print(figures)
    assert not figures.unseen
    assert figures.ran > figures.made / 100, str(figures)
    assert figures.calls > 0, str(figures)


async def test_sqlite_queries_change_nothing_under_fuzzing():
    with sqlite_runner() as run:
        check(await fuzz("sqlite", run, seed=SEED, seconds=SECONDS))


async def test_postgresql_queries_change_nothing_under_fuzzing(postgres_database):
    postgres_database.run(POSTGRESQL_CANARIES)
    async with postgresql_runner(postgres_database.url) as run:
        check(await fuzz("postgresql", run, seed=SEED, seconds=SECONDS))


async def test_mariadb_queries_change_nothing_under_fuzzing(mariadb_database):
    mariadb_database.run(MARIADB_CANARIES)
    with mariadb_runner(mariadb_database.url) as run:
        check(await fuzz("mysql", run, seed=SEED, seconds=SECONDS))


async def test_duckdb_queries_change_nothing_under_fuzzing(duckdb_database):
    duckdb_database.run(DUCKDB_CANARIES)
    with duckdb_runner(duckdb_database.url) as run:
        check(await fuzz("duckdb", run, seed=SEED, seconds=SECONDS))


async def test_fuzzer_detects_a_gate_that_ignores_attributes(postgres_database):
    def blind(text, dialect):
        return replace(read_everything(text, dialect), names_after_dot=frozenset())

    postgres_database.run(POSTGRESQL_CANARIES)
    async with postgresql_runner(postgres_database.url) as run:
        for seed in range(10):
            if (await fuzz("postgresql", run, seed=seed, seconds=0.3, read=blind)).unseen:
                return
    pytest.fail("nothing was found")
