"""Databases for the tests of the sql plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from delf_sql import SQL
from support.fixtures import *  # noqa: F403
from support.fixtures import Database

Open = Callable[..., SQL]


@pytest.fixture
async def open_sql() -> AsyncIterator[Open]:
    """Makes connections and closes them after the test."""
    made: list[SQL] = []

    def make(database: Database | str, **settings: Any) -> SQL:
        url = database if isinstance(database, str) else database.url
        made.append(SQL(url=url, **settings))
        return made[-1]

    yield make
    for connection in made:
        await connection.aclose()


@pytest.fixture(params=["sqlite", "duckdb", "postgresql", "mariadb"])
def any_database(request: pytest.FixtureRequest) -> Database:
    """A fresh database, once for each engine."""
    short = {"postgresql": "postgres"}.get(request.param, request.param)
    return request.getfixturevalue(f"{short}_database")
