"""Servers on loopback for the tests of the plugin serve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from support.fixtures import *  # noqa: F403 - databases
from support.serving import Outbox, Serve, make_agent, serving


@pytest.fixture
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The journal's URL: a file, unless a test chooses ``postgresql``."""
    if getattr(request, "param", "sqlite") == "postgresql":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path / 'journal.db'}"


@pytest.fixture
async def serve(
    journal_url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Serve]:
    """Opens servers, which share a journal within a test."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", journal_url)
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    async with AsyncExitStack() as stack:

        async def open_one(key: str = "", agent: dict[str, Any] | None = None, **options: Any):
            box = Outbox()
            made = make_agent(str(tmp_path), box, **(agent or {}))
            return await stack.enter_async_context(serving(made, box, key, **options))

        yield open_one
