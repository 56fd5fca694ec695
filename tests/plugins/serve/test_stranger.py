"""The page for somebody who has never seen it: each answer is in sight, or one click further."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import expect

from plugins.serve.pages import accessible
from plugins.serve.test_inbox import logged_in
from support.serving import KEYS, Outbox, make_agent, serving

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]
SIZES = [(1280, 860), (390, 780)]


@pytest_asyncio.fixture(loop_scope="session")
async def priced(tmp_path, monkeypatch):
    """A server with two models whose calls cost money, and a task that was approved."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box, cost_usd=0.25, reply_id="chatcmpl-4711")
    async with serving(agent, box, models=["scripted:other"]) as server:
        code = "\n".join(f"print('step {n}')" for n in range(60)) + "\nprint(await send('bob'))"
        task = await server.run(code, "Write to Bob")
        name = (await server.question(task["task_id"]))["request_id"]
        await server.client.post(f"/approvals/{name}", json={"decision": "approve"})
        await server.until(task["task_id"], "done")
        yield server


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_task_page_shows_who_approved(priced, open_page, width, height):
    page = await open_page(priced.url, width, height)
    await page.locator(".row").click()
    message = page.get_by_role("button", name="approved by local")
    await expect(message).to_be_in_viewport()
    await message.click()
    card = page.locator(".ask")
    await expect(card).to_be_focused()
    await expect(card).to_be_in_viewport()
    await expect(card).to_contain_text("approved by local (API, 127.0.0.1)")


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_prompt_is_reached_in_two_clicks(priced, open_page, width, height):
    page = await open_page(priced.url, width, height)
    await page.locator(".row").click()
    way = page.get_by_role("button", name="What the model saw")
    await expect(way).to_be_in_viewport()
    await way.click()
    call = page.locator(".prompt > summary").first
    await expect(call).to_be_in_viewport()
    await expect(call).to_contain_text("model scripted")
    await expect(call).to_contain_text("$0.25")
    await call.click()
    await expect(page.locator(".prompt .sent").last).to_contain_text("Write to Bob")
    await expect(page.locator(".prompt")).to_contain_text("chatcmpl-4711")
    await expect(page.locator(".prompt > summary")).to_contain_text("100 in, 10 out tokens")
    assert await accessible(page) == []


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_weekly_cost_is_reached_in_one_click(priced, open_page, width, height):
    page = await open_page(priced.url, width, height)
    way = page.get_by_role("link", name="costs and figures")
    await expect(way).to_be_in_viewport()
    await way.click()
    total = page.locator(".total")
    await expect(total).to_be_in_viewport()
    await expect(total).to_contain_text("$0.25 for 1 task of the last 7 days")
    assert await accessible(page) == []


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_repeat_with_another_model_is_reached_in_two_clicks(priced, open_page, width, height):
    page = await open_page(priced.url, width, height)
    await page.locator(".row").click()
    choice = page.get_by_label("Run again with another model")
    await expect(choice).to_be_in_viewport()
    await expect(choice.locator("option").first).to_have_text("Run again with another model…")
    await choice.select_option("scripted:other")
    await expect(page.locator(".state")).to_contain_text("waiting")
    await expect(page.locator(".meta")).to_contain_text("model: scripted:other")


@pytest.mark.parametrize("key", ["", "ada-key"])
async def test_task_page_labels_the_model(tmp_path, monkeypatch, open_page, key):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    options = {"key": key, "api_key": KEYS} if key else {}
    async with serving(make_agent(str(tmp_path), box), box, **options) as server:
        task = await server.run("print(1)")
        await server.until(task["task_id"], "done")
        page = await open_page(server.url)
        if key:
            await logged_in(page, key)
        await expect(page.locator("#who")).to_contain_text("model: scripted")
        await page.locator(".row").click()
        await expect(page.locator(".meta")).to_contain_text("model: scripted")


async def test_approve_button_is_visible_on_a_phone_without_scrolling(shop, open_page):
    lines = "\n".join(f"print('step {n}')" for n in range(80))
    orders = [{"product": n, "note": "many words " * 12} for n in range(40)]
    task = await shop.run(f"{lines}\nprint(await note({orders!r}))", "Note all orders")
    await shop.until(task["task_id"], "waiting")
    page = await open_page(shop.url, 390, 780)
    await page.locator(".row").click()
    card = page.locator(".ask")
    await expect(card.get_by_role("button", name="Approve")).to_be_in_viewport(ratio=1)
    await expect(card.get_by_role("heading")).to_be_in_viewport()
    assert await accessible(page) == []
    await card.get_by_role("button", name="Approve").click()
    await expect(page.locator(".state")).to_contain_text("done")


async def test_irreversible_call_is_marked(shop, open_page):
    task = await shop.run("await send('bob')")
    await shop.until(task["task_id"], "waiting")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    bad, edge = await page.evaluate("""async () => {
      const { Card } = await import('/page/card.js');
      const asked = { request_id: 'r', action: 'bank.note', effect: 'write', arguments: {}, digest: 'd' };
      const card = new Card(asked, []).node, probe = document.createElement('p');
      probe.className = 'bad';
      document.body.append(probe, card);
      const found = [getComputedStyle(probe).color, getComputedStyle(card).borderLeftColor];
      card.remove();
      return found;
    }""")
    style = "node => [getComputedStyle(node).color, getComputedStyle(node).fontWeight]"
    left = "node => getComputedStyle(node).borderLeftColor"
    assert bad != edge
    for place, card in (("", ".ask"), ("#/inbox", ".inbox-row .ask")):
        if place:
            await page.goto(f"{shop.url}/{place}")
        final = page.locator(f"{card}.final")
        await expect(final.locator(".effect")).to_have_text("● cannot be undone")
        assert await final.locator(".effect").evaluate(style) == [bad, "700"]
        assert await final.evaluate(left) == bad


async def test_browser_notification_counts_waiting_requests(shop, open_page):
    page = await open_page(shop.url)
    await page.add_init_script(
        "window.told = []; window.Notification = class {"
        " static permission = 'granted'; constructor(title, more) { told.push([title, more.body]); } };"
        "Object.defineProperty(document, 'hidden', { get: () => true });"
    )
    async with page.expect_response("**/waiting"):
        await page.reload()
    task = await shop.run("await send('bob')")
    await shop.until(task["task_id"], "waiting")
    await expect(page).to_have_title("(1) delf")
    assert await page.evaluate("told") == [["delf: 1 request waits for you", "local: send"]]


async def test_requests_made_during_a_lost_connection_are_shown_after_it(shop, open_page):
    page = await open_page(f"{shop.url}/#/inbox")
    await expect(page.get_by_text("Nothing waits")).to_be_visible()
    await page.route("**/events*", lambda route: route.abort("connectionrefused"))
    await page.reload()
    await expect(page.get_by_text("The connection is lost")).to_be_visible()
    task = await shop.run("await send('bob')")
    await shop.until(task["task_id"], "waiting")
    await page.unroute("**/events*")
    await page.evaluate("window.dispatchEvent(new Event('online'))")
    await expect(page).to_have_title("(1) delf: inbox")
    await expect(page.locator(".ask")).to_have_count(1)
