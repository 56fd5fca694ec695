"""The inbox on the page: what waits for whom, decided with the keyboard, one by one or many."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from playwright.async_api import expect

from plugins.serve.pages import accessible
from plugins.serve.test_people import add, person
from support.forks import kill_guests
from support.serving import Outbox, bearer, doing, make_agent, serving

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]


@pytest_asyncio.fixture(loop_scope="session")
async def ruled(tmp_path, monkeypatch):
    """A server with two people; the one who asked for ``send`` may not approve it."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box, approval_rules={"send": {"four_eyes": True}})
    async with serving(agent, box, "ada-key") as server:
        await add(server, person("ada", scope="all"), person("bo", scope="all"))
        yield server


async def logged_in(page, key: str) -> None:
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Log in", exact=True).click()
    await expect(page.locator("#who")).to_contain_text("log out")


async def ask(server, code: str) -> str:
    answer = await server.client.post("/run", json={"task": doing(code)})
    name = answer.json()["task_id"]
    await server.until(name, "waiting")
    return name


async def test_four_eyes_rule_applies_in_two_browsers(ruled, open_page):
    name = await ask(ruled, "print(await send('bob'))")
    one, other = await open_page(ruled.url), await open_page(ruled.url)
    await logged_in(one, "ada-key")
    await logged_in(other, "bo-key")
    await expect(one.locator(".group:visible").first).to_contain_text("Waiting for others")
    await expect(other.locator(".group:visible").first).to_contain_text("Waiting for you")
    await expect(other).to_have_title("(1) delf")
    await one.evaluate("name => { location.hash = `#/${name}`; }", name)
    await expect(one.locator(".ask .outcome")).to_contain_text("another person has to")
    await expect(one.locator(".ask .primary")).to_have_count(0)
    await expect(one.locator(".ask").get_by_role("button", name="Reject…")).to_be_visible()
    await expect(one.locator(".state")).to_contain_text("waiting for others")
    await expect(one.locator(".jump")).to_contain_text("1 request waits for others")
    await expect(one.locator(".row")).to_contain_text("waiting for others")
    assert "(1)" not in await one.title()
    await expect(one.locator("#who")).not_to_contain_text("inbox (")
    await expect(one.locator(".meta")).to_contain_text("asked by ada from 127.0.0.1")
    await other.get_by_role("link", name="inbox (1)").click()
    row = other.locator(".inbox-row")
    await expect(row).to_contain_text("asked by ada")
    await expect(row).to_contain_text("cannot be undone")
    assert await accessible(other) == []
    await other.keyboard.press("?")
    await expect(other.locator(".keys")).to_be_visible()
    await other.keyboard.press("j")
    await expect(row).to_be_focused()
    await other.keyboard.press("Enter")
    assert ruled.box.sent == [], "Enter approves nothing from the row"
    await other.keyboard.press("a")
    await other.keyboard.press("Enter")
    await expect(other.get_by_text("Nothing waits for you.")).to_be_visible()
    await expect(one.locator(".ask .outcome")).to_contain_text("approved by bo (page, 127.0.0.1)")
    await expect(one.locator(".state")).to_contain_text("done")
    assert ruled.box.sent == [("bob", 1)]


async def test_enter_after_a_form_approves_nothing(ruled, open_page):
    await ask(ruled, "print(await send('bob'))")
    page = await open_page(f"{ruled.url}/#/inbox")
    await logged_in(page, "bo-key")
    row = page.locator(".inbox-row")
    await expect(row).to_contain_text("asked by ada")
    await page.keyboard.press("j")
    await page.keyboard.press("m")
    await page.keyboard.type("is this right?")
    await page.keyboard.press("Control+Enter")
    await expect(row).to_contain_text("comment by bo: is this right?")
    await expect(row).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("r")
    await row.get_by_role("button", name="Back").focus()
    await page.keyboard.press("Enter")
    await expect(row).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("m")  # the request still waits
    await expect(row.get_by_label("Comment")).to_be_focused()
    assert ruled.box.sent == []


async def test_requester_can_withdraw_with_the_keyboard(ruled, open_page):
    name = await ask(ruled, "print(await send('bob'))")
    page = await open_page(f"{ruled.url}/#/{name}")
    await logged_in(page, "ada-key")
    card = page.locator(".ask")
    await expect(card.get_by_role("button", name="Reject…")).to_be_visible()
    await card.focus()
    await page.keyboard.press("a")
    await page.keyboard.press("e")
    await page.keyboard.press("Enter")
    await expect(card.locator(".field")).to_have_count(0)
    await page.keyboard.press("r")
    await page.keyboard.type("not any more")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".outcome")).to_contain_text("rejected by ada")
    assert ruled.box.sent == []


async def test_voter_can_still_reject(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    rules = {"send": {"two_of": ["ada", "bo"]}}
    agent = make_agent(str(tmp_path), box, approval_rules=rules)
    async with serving(agent, box, "ada-key") as server:
        await add(server, person("ada", scope="all"), person("bo", scope="all"))
        name = await ask(server, "print(await send('bob'))")
        page, inbox = [await open_page(f"{server.url}/#/{place}") for place in (name, "inbox")]
        asked = []
        inbox.on("request", lambda one: "approvals?" in one.url and asked.append(one.url))
        await logged_in(page, "ada-key")
        await logged_in(inbox, "ada-key")
        card = page.locator(".ask")
        await expect(card).to_contain_text("rule: two of ada, bo have to approve")
        await expect(page.locator(".state")).to_contain_text("waiting for you")
        mine, others = [
            inbox.get_by_role("list", name=f"Requests that wait for {whom}").locator(".inbox-row")
            for whom in ("you", "others")
        ]
        await expect(mine).to_have_count(1)
        assert len(asked) == 1, "one request has both lists"
        await mine.get_by_role("button", name="Approve").click()
        await expect(others).to_contain_text("approved by (another is needed): ada")
        await expect(others.get_by_role("button", name="Reject…")).to_be_visible()
        await expect(others.locator(".primary")).to_have_count(0)
        await expect(mine).to_have_count(0)
        await expect(card).to_contain_text("approved by (another is needed): ada")
        await expect(card.locator(".primary")).to_have_count(0)
        await expect(page.locator(".state")).to_contain_text("waiting for others")
        await expect(page.locator(".row")).to_contain_text("waiting for others")
        await card.get_by_role("button", name="Reject…").click()
        await page.get_by_label("Reason").fill("on second thoughts")
        await page.get_by_role("button", name="Reject", exact=True).click()
        await expect(page.locator(".outcome")).to_contain_text("rejected by ada")
        await expect(others).to_have_count(0)
    assert box.sent == []


async def test_page_shows_who_stopped_a_task_and_from_where(ruled, open_page):
    name = await ask(ruled, "print(await send('bob'))")
    one, other = await open_page(f"{ruled.url}/#/{name}"), await open_page(f"{ruled.url}/#/{name}")
    await logged_in(one, "ada-key")
    await logged_in(other, "bo-key")
    await other.get_by_role("button", name="Stop", exact=True).click()
    for page in (one, other):
        await expect(page.locator(".meta")).to_contain_text("stopped by bo (page, 127.0.0.1)")
        await expect(page.locator(".meta")).to_contain_text("asked by ada from 127.0.0.1")


async def test_request_of_a_dead_sandbox_explains_what_happened(ruled, open_page):
    name = await ask(ruled, "print(await send('bob'))")
    page = await open_page(f"{ruled.url}/#/{name}")
    await logged_in(page, "bo-key")
    await expect(page.locator(".ask .primary")).to_have_count(1)
    assert kill_guests()
    message = page.locator(".ask").filter(has_text="This is asked again")
    await expect(message).to_contain_text("the sandbox of the script ended before anybody answered")
    await message.get_by_role("button", name="Approve").click()
    await expect(page.locator(".state")).to_contain_text("done")
    assert ruled.box.sent == [("bob", 1)]


async def test_user_can_see_and_end_their_sessions(ruled, open_page):
    here, there = await open_page(ruled.url), await open_page(ruled.url)
    other = await open_page(ruled.url)
    for page, key in ((here, "ada-key"), (there, "ada-key"), (other, "bo-key")):
        await logged_in(page, key)
    await here.get_by_role("link", name="sessions", exact=True).click()
    rows = here.get_by_role("list", name="Sessions").get_by_role("listitem")
    await expect(rows).to_have_count(2)
    await expect(rows.filter(has_text="this session")).to_contain_text("from 127.0.0.1, by a key")
    await expect(rows.filter(has_text="this session").get_by_role("button")).to_have_count(0)
    assert await accessible(here) == []
    await here.get_by_role("button", name="End the session").click()
    await expect(rows).to_have_count(1)
    await expect(there.get_by_text("The session is over. Log in again.")).to_be_visible(
        timeout=15_000
    )
    await expect(other.locator("#who")).to_contain_text("log out")


async def test_similar_requests_can_be_decided_together(ruled, open_page):
    for number in range(3):
        await ask(ruled, f"print(await send('bob{number}'))")
    last = await ask(ruled, "print(await note([{'a': 1}]))")
    page = await open_page(f"{ruled.url}/#/inbox", width=390, height=844)
    await logged_in(page, "bo-key")
    await expect(page.locator(".inbox-row")).to_have_count(4)
    await (
        page.locator(".inbox-row").first.get_by_role("button", name="Choose all like this").click()
    )
    await expect(page.locator(".many")).to_contain_text("3 cannot be undone")
    await page.get_by_role("button", name="Approve 3").click()
    await expect(page.locator(".inbox-row")).to_have_count(1)
    assert sorted(ruled.box.sent) == [("bob0", 1), ("bob1", 1), ("bob2", 1)]
    await page.locator(".inbox-row").focus()
    await page.keyboard.press("r")
    await page.get_by_label("Reason").fill("not today")
    await page.get_by_role("button", name="Reject", exact=True).click()
    await expect(page.locator(".inbox-row")).to_have_count(0)
    await ruled.until(last, "done", "failed", "stopped")
    assert await accessible(page) == []
    await ruled.client.get("/tasks", headers=bearer("bo-key"))


async def answer_in(page, text: str) -> str:
    """Show an answer on a page; return its elements."""
    return await page.evaluate(
        "async (text) => { const { answer } = await import('/page/text.js');"
        " const box = document.createElement('div'); box.append(...answer(text).flat());"
        " document.body.append(box); return box.innerHTML; }",
        text,
    )


async def test_markdown_answer_is_shown_and_sanitised(ruled, open_page):
    text = (
        "# Sums\n**bold** and `code` and [a page](https://example.com/a_(b))\n\n- one\n- two\n\n"
        "[bad](javascript:window.hurt=1) <img src=x onerror=window.hurt=1>\n```\n<b>x</b>\n```"
    )
    page = await open_page(ruled.url)
    shown = await answer_in(page, text)
    for part in ("<h3>Sums</h3>", "<strong>bold</strong>", "<code>code</code>", "<li>two</li>"):
        assert part in shown
    assert 'href="https://example.com/a_(b)"' in shown
    assert "<img" not in shown
    assert 'href="javascript' not in shown
    assert "&lt;b&gt;x&lt;/b&gt;" in shown
    assert not await page.evaluate("window.hurt")


CODE = '<pre class="value" tabindex="0">{}</pre>'
BLOCKS = {
    "a fence in a longer fence": ("````\n```\nx\n```\n````\nend", ["```\nx\n```"]),
    "three marks around a word": ("````\n```x```\n````\n```y```", ["```x```"]),
    "tildes": ("~~~\n```\n~~~\nend", ["```"]),
    "a table in code": ("```\na | b\n--|--\n1 | 2\n```", ["a | b\n--|--\n1 | 2"]),
    "code in a list": ("1. a\n   ```sh\n   ls\n     -l\n   ```\n2. b", ["ls\n  -l"]),
    "a fence without an end": ("```\nx\n", ["x\n"]),
    "two fences": ("```\nx\n```\n```\ny\n```", ["x", "y"]),
}


@pytest.mark.parametrize(("text", "code"), BLOCKS.values(), ids=BLOCKS)
async def test_code_of_an_answer_is_shown_whole(ruled, open_page, text, code):
    shown = await answer_in(await open_page(ruled.url), text)
    assert shown.count("<pre") == len(code)
    for block in code:
        assert CODE.format(block) in shown
    assert "<table" not in shown


async def test_list_of_an_answer_keeps_its_numbers(ruled, open_page):
    text = "1. one\n2. two\n   - under two\n3. three\n\nText.\n4) four"
    shown = await answer_in(await open_page(ruled.url), text)
    assert (
        '<ol class="marked" start="1"><li>one</li><li>two</li></ol>'
        '<ul class="marked"><li>under two</li></ul>'
        '<ol class="marked" start="3"><li>three</li></ol>'
    ) in shown
    assert '<ol class="marked" start="4"><li>four</li></ol>' in shown


async def test_form_opened_before_a_comment_has_arrived_stays_open(ruled, open_page):
    name = await ask(ruled, "print(await send('bob'))")
    page = await open_page(f"{ruled.url}/#/{name}")
    await logged_in(page, "ada-key")
    form_is_open = asyncio.Event()

    async def answer_late(route):
        response = await route.fetch()
        await form_is_open.wait()
        await route.fulfill(response=response)

    await page.route("**/comments", answer_late)
    card = page.locator(".ask")
    await card.focus()
    await page.keyboard.press("m")
    await page.keyboard.type("which Bob?")
    await page.keyboard.press("Control+Enter")
    await card.focus()
    await page.keyboard.press("s")
    await expect(page.get_by_label("Assign to")).to_be_visible()
    form_is_open.set()
    await expect(page.locator("#announcement")).to_have_text("commented")
    await expect(page.get_by_label("Assign to")).to_be_visible()


async def test_comments_can_be_written_with_the_keyboard(ruled, open_page):
    """The texts are a question in the inbox, its answer, an assignment, and changes to the call."""
    await add(ruled, person("cy", scope="all"))
    name = await ask(ruled, "print(await send('bob'))")
    one, other = await open_page(f"{ruled.url}/#/{name}"), await open_page(f"{ruled.url}/#/inbox")
    await logged_in(one, "ada-key")
    await logged_in(other, "bo-key")
    row, card = other.locator(".inbox-row"), one.locator(".ask")
    await expect(row).to_have_count(1)
    await other.keyboard.press("j")
    await other.keyboard.press("m")
    await other.keyboard.type("which Bob?")
    await other.keyboard.press("Control+Enter")
    for place in (row, card):
        await expect(place).to_contain_text("comment by bo: which Bob?")
    await card.focus()
    await one.keyboard.press("m")
    await one.keyboard.type("the one of sales")
    await one.keyboard.press("Control+Enter")
    await expect(row).to_contain_text("comment by ada: the one of sales")
    await card.focus()
    await one.keyboard.press("s")
    names = one.get_by_label("Assign to").locator("option")
    await expect(names).to_have_text(["nobody", "bo", "cy"])
    await one.get_by_label("Assign to").select_option("bo")
    await one.get_by_role("button", name="Assign", exact=True).click()
    await expect(row).to_contain_text("Assigned to you.")
    await expect(card).to_contain_text("assigned to (by ada): bo")
    assert await accessible(one) == []
    assert await accessible(other) == []
    await row.focus()
    await other.keyboard.press("c")
    await other.keyboard.press("Control+Enter")
    await expect(row).to_contain_text("write something first")
    await other.keyboard.type("```run\nprint(await send('carl'))\n```")
    await other.keyboard.press("Control+Enter")
    await expect(one.locator(".outcome").first).to_contain_text("changes requested by bo")
    last = one.locator(".ask:not(.decided)")
    await expect(last).to_contain_text("because bo asked for changes")
    await expect(last).to_contain_text("carl")
    await expect(other.locator("#list .row")).to_contain_text("waiting for others")
    await expect(other.get_by_text("Waiting for others: you may reject")).to_be_visible()
    await ruled.client.post(
        f"/approvals/{await last.get_attribute('id')}".replace("ask-", ""),
        json={"decision": "approve"},
        headers=bearer("cy-key"),
    )
    await expect(one.locator(".state")).to_contain_text("done")
    await expect(one.locator(".ask").first).to_contain_text("comment by ada: the one of sales")
    assert ruled.box.sent == [("carl", 1)]


async def test_comment_form_survives_a_late_server_answer(ruled, open_page):
    """The page asks who may decide under a rule; the answer may arrive while a person writes."""
    name = await ask(ruled, "print(await send('bob'))")
    page = await open_page(ruled.url)
    await logged_in(page, "bo-key")
    held = []
    await page.route("**/approvals/req_*", lambda route: held.append(route))
    await page.evaluate("name => { location.hash = `#/${name}`; }", name)
    card = page.locator(".ask")
    await card.get_by_role("button", name="Comment…").click()
    await page.keyboard.type("which ")
    for route in held:
        await route.continue_()
    await expect(page.locator(".state")).to_contain_text("waiting for you")
    await page.keyboard.type("Bob?")
    await expect(card.get_by_label("Comment")).to_have_value("which Bob?")
    await page.unroute("**/approvals/req_*")
    await page.keyboard.press("Control+Enter")
    await expect(card).to_contain_text("comment by bo: which Bob?")
    await expect(card.locator(".primary")).to_have_text("Approve")
