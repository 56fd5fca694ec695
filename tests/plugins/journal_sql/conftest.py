"""Journals for the tests of the plugin journal-sql."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from delf_journal_sql import SqlJournal
from support.fixtures import *  # noqa: F403

Open = Callable[..., SqlJournal]


@pytest.fixture
def sqlite_place(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "journal.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def journal_url(request: pytest.FixtureRequest) -> str:
    name = "sqlite_place" if request.param == "sqlite" else "postgres_url"
    return request.getfixturevalue(name)


@pytest.fixture
async def open_journal() -> AsyncIterator[Open]:
    """Opens journals and closes them after the test."""
    made: list[SqlJournal] = []

    def make(url: str, **settings: Any) -> SqlJournal:
        made.append(SqlJournal(url, **settings))
        return made[-1]

    yield make
    for journal in made:
        await journal.aclose()
