"""Every view of the page: axe finds nothing, and nothing is wider than the screen."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from plugins.serve.pages import accessible
from plugins.serve.test_inbox import logged_in
from plugins.serve.test_people import RIGHTS, add, person
from support.serving import Outbox, make_agent, serving

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
LOOKS = {
    "light": {"width": 1280, "height": 860},
    "dark": {"width": 1280, "height": 860, "color_scheme": "dark"},
    "phone": {"width": 390, "height": 780},
}


@pytest_asyncio.fixture(loop_scope="session")
async def team(tmp_path, monkeypatch):
    """A server with people, and a task of each kind."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box, cost_usd=0.02, chat={"persist": True})
    async with serving(agent, box, "ada-key", models=["scripted:other"]) as server:
        ada = person("ada", scope="all", rights=(*RIGHTS, "people"), mail="ada@example.com")
        await add(server, ada)
        yield server


async def fitting(page: Page, rules: tuple[str, ...] = ()) -> None:
    """Fail if axe finds an error, or if the page is wider than its window."""
    assert await accessible(page, rules=rules) == []
    wide = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1], page.url


@pytest.mark.parametrize("look", LOOKS)
async def test_page_views_pass_layout_checks_in_every_theme(team, open_page, look):
    rules = ("color-contrast",) if look == "dark" else ()  # the dark theme changes only colours
    code = (
        "print('| a | b |\\n|---|--:|\\n| x | 1 |')\nrows = await every()\nawait send('bo' + 'b')"
    )
    done = (await team.run(code, "Write a letter"))["task_id"]
    asked = await team.question(done)
    await team.client.post(f"/approvals/{asked['request_id']}", json={"decision": "approve"})
    await team.until(done, "done")
    failed = (await team.run("raise ValueError('no such row')", "Fail"))["task_id"]
    await team.until(failed, "failed")
    poisoned = "await send((await look(4711))['name'], copies=3)"
    asks = (await team.run(poisoned, "Pay the invoice"))["task_id"]
    await team.until(asks, "waiting")
    page = await open_page(team.url, **LOOKS[look])
    await expect(page.get_by_label("API key")).to_be_visible()
    await fitting(page, rules)
    await logged_in(page, "ada-key")

    async def there(address: str, sign: str) -> None:
        await page.goto(f"{team.url}/#/{address}")
        await expect(page.locator(sign).first).to_be_visible()

    await there("", ".list .row")
    await page.get_by_text("More filters").click()
    await expect(page.get_by_label("Who asked").locator("option")).not_to_have_count(1)
    await page.get_by_role("searchbox", name="Search").fill("bob")
    await expect(page.locator(".list .excerpt").first).to_be_visible()
    await fitting(page, rules)
    await there(failed, ".failure")
    await fitting(page, rules)
    await there(asks, ".ask .primary")
    await expect(page.locator(".caution")).to_be_visible()
    await page.get_by_role("button", name="Edit…").click()
    await fitting(page, rules)
    await there(done, ".answer table")
    await page.locator(".call summary").first.click()
    await page.locator(".part summary", has_text="Timeline").click()
    await page.get_by_role("button", name="What the model saw").click()
    await page.locator(".prompt > summary").first.click()
    await expect(page.locator(".prompt .sent").last).to_be_visible()
    await fitting(page, rules)
    await page.locator(".seen > summary").click()
    await page.get_by_role("button", name="Change the script…").click()
    await fitting(page, rules)
    await page.get_by_role("button", name="Cancel").click()
    await page.locator("#replay").fill("9")
    await expect(page.get_by_text("This is a replay")).to_be_visible()
    await fitting(page, rules)
    await there("inbox", ".inbox-row")
    await page.keyboard.press("?")
    await page.locator(".inbox-row").get_by_role("button", name="Choose all like this").click()
    await expect(page.locator(".many")).to_be_visible()
    await fitting(page, rules)
    for address, sign in (
        ("figures", ".tables table"),
        ("conversations", ".conversations .row"),
        ("routines", ".routines"),
        ("remembered", ".remembered"),
        ("sessions", ".notices"),
        ("people", "tbody tr"),
        ("schedules", ".routines"),
        (f"compare/{done}/{failed}", ".compared .minus"),
        ("task_there_is_none", "h1"),
    ):
        await there(address, sign)
        await fitting(page, rules)
    await page.set_viewport_size({"width": 320, "height": 640})
    for address, sign in ((asks, ".ask .primary"), (done, ".answer table"), ("people", "tbody tr")):
        await there(address, sign)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
