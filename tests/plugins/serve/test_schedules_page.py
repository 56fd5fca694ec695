"""Schedules on the page: added, paused, tested, removed; their history."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import expect

from delf import load_project
from plugins.serve.pages import HOSTILE, accessible
from support.serving import Outbox, make_agent, serving

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]


@pytest_asyncio.fixture(loop_scope="session")
async def office(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_RUNNER_DBOS_DATABASE", f"sqlite:///{tmp_path}/dbos.sqlite")
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box, project=load_project(tmp_path))
    async with serving(agent, box) as server:
        yield server


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
async def test_schedule_page_adds_pauses_tests_and_removes(office, open_page, width, height):
    page = await open_page(f"{office.url}/#/schedules", width, height)
    await expect(page.locator(".routines")).to_contain_text("There is no schedule yet")
    await page.get_by_text("Add a schedule").click()
    form = page.get_by_role("form", name="Add a schedule")
    await form.get_by_label("Name").fill("mails")
    await form.get_by_label("Times").fill("every day")
    await form.get_by_label("Task", exact=True).fill(HOSTILE)
    await form.get_by_label("For each new item of").fill('mails(query="is:unread")')
    assert await accessible(page) == []
    await form.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert")).to_contain_text("every day")
    await form.get_by_label("Times").fill("* * * * *")
    await form.get_by_label("Does").select_option("a routine, by its call")
    await form.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert")).to_contain_text("is not a call of a routine")
    await form.get_by_label("Does").select_option("a task in plain words")
    await form.get_by_role("button", name="Add").click()
    section = page.get_by_role("region", name="mails")
    await expect(section).to_contain_text('mails(query="is:unread")')
    await section.get_by_role("button", name="Pause mails").click()
    await expect(section).to_contain_text("paused; * * * * *")
    await section.get_by_role("button", name="Resume mails").click()
    await expect(section.get_by_role("button", name="Pause mails")).to_be_visible()
    await section.get_by_role("button", name="Test mails").click()
    await expect(section).to_contain_text("test, ")
    assert await accessible(page) == []
    page.on("dialog", lambda dialog: dialog.accept())
    await section.get_by_role("button", name="Remove mails").click()
    await expect(page.locator(".routines")).to_contain_text("There is no schedule yet")
    assert not await page.evaluate("window.hurt")
    wide = await page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
