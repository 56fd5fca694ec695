"""Servers on loopback for the tests of the plugin serve."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from support.fixtures import *  # noqa: F403 - databases
from support.server import find_program
from support.serving import Outbox, Serve, make_agent, serving

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page


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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    from playwright.async_api import async_playwright

    program = find_program("chromium-headless-shell", "chromium", "chromium-browser")
    async with async_playwright() as playwright:
        yield await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser):
    """Opens pages; an error in one fails the test."""
    contexts, wrong = [], []

    async def make(url: str, width: int = 1280, height: int = 800, **more) -> Page:
        context = await browser.new_context(viewport={"width": width, "height": height}, **more)
        contexts.append(context)
        page = await context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"{error}"))
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        await page.goto(url)
        return page

    yield make
    for context in contexts:
        await context.close()
    lost = re.compile("ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|status of 4")
    assert not [text for text in wrong if not lost.search(text)]


@pytest_asyncio.fixture(loop_scope="session")
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A server without people, whose agent has tools and a chat."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box, chat={"persist": True}, retry_count=1)
    async with serving(agent, box) as server:
        yield server
