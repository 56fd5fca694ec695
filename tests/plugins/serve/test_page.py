"""The page in a real browser: what people see, and what they can do with eyes, hands or neither."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from playwright.async_api import expect

from delf import Agent
from delf.events import TaskQueued
from delf.messages import ModelReply, Usage
from delf.testing import ScriptedModel, TestHost
from delf.trust.decisions import Trust
from delf_routines.routine import Parameter, Routine, UsedAction
from delf_routines.store import RoutineStore
from plugins.serve.pages import HOSTILE, accessible, at
from support.serving import KEYS, Outbox, bearer, doing, make_agent, serving
from support.shown import SHOWN
from support.until import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]


async def test_page_submits_a_task_and_shows_its_progress(shop, open_page):
    page = await open_page(shop.url)
    await expect(page.get_by_role("heading", name="Say what to do, in plain words")).to_be_visible()
    code = (
        "for n in range(40):\n    row = await look(n)\nprint('| a | b |\\n|---|--:|\\n| x | 1 |')"
    )
    code += "\nadd_to_output_files('rows.csv', [{'a': 1, 'b': 'two'}])"
    code += "\nadd_to_output_files('note.txt', 'a note')"
    await page.get_by_label("A task, in plain words").fill(f"Look at all\n```run\n{code}\n```")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator(".state")).to_contain_text("done", timeout=20_000)
    line = page.locator(".line").nth(1)
    await expect(line.locator(".calls-head")).to_contain_text("40 calls of look")
    await expect(line.locator(".call")).to_have_count(4)
    await line.locator(".call summary").nth(1).click()
    await expect(line.locator(".call-body").nth(1)).to_contain_text('"name": "thing 1"')
    await line.get_by_role("button", name="show 36 more of 36").click()
    await expect(line.locator(".call")).to_have_count(40)
    await expect(page.locator(".answer td.num")).to_have_text("1")
    await expect(page.locator(".figures")).to_contain_text("40 calls")
    await page.locator(".file-box", has_text="rows.csv").locator("summary").click()
    await expect(page.locator(".file-body td").nth(1)).to_have_text("two")
    await page.locator(".file-box", has_text="note.txt").locator("summary").click()
    await expect(page.locator(".file-body pre")).to_have_text("a note")
    async with page.expect_download() as download:
        await page.locator(".file", has_text="note.txt").get_by_role("link", name="take").click()
    assert (await (await download.value).path()).read_text() == "a note"
    await page.locator(".part summary", has_text="Timeline").click()
    await expect(page.locator(".timeline")).to_contain_text("script 1")


async def test_prints_appear_at_once_and_the_running_line_is_highlighted(shop, open_page):
    page = await open_page(shop.url)
    task = await shop.run("print('first')\nprint(await hold())")
    await at(page, task)
    await expect(page.locator(".prints")).to_contain_text("first")
    await expect(page.locator(".line.lit")).to_contain_text("await hold()")
    await expect(page.locator(".state")).to_contain_text("running")
    shop.box.gate.set()
    await expect(page.locator(".state")).to_contain_text("done")
    await expect(page.locator(".line.lit")).to_have_count(0)
    await expect(page.locator(".answer")).to_contain_text("held")


async def test_request_is_approved_in_one_browser_while_another_watches(shop, open_page):
    task = await shop.run("print(await send('bob', copies=2))")
    await shop.until(task["task_id"], "waiting")
    one, other = await open_page(shop.url), await open_page(shop.url)
    for page in (one, other):
        await expect(page.locator(".group").first).to_contain_text("Waiting for you")
        await page.locator(".row").first.click()
        await expect(page.locator(".ask")).to_contain_text("cannot be undone")
        await expect(page.locator(".ask .fields")).to_contain_text("bob")
        await expect(page.locator(".line", has=page.locator(".ask"))).to_contain_text("await send")
    await other.route("**/approvals/*", lambda route: asyncio.ensure_future(hold_back(route)))
    late = asyncio.Event()

    async def hold_back(route):
        if route.request.method == "POST":
            await late.wait()
        await route.continue_()

    await other.get_by_role("button", name="Reject…").click()
    await other.get_by_label("Reason").fill("too late")
    await other.get_by_role("button", name="Reject", exact=True).click()
    await one.locator(".ask").get_by_role("button", name="Approve").click()
    for page in (one, other):
        await expect(page.locator(".outcome")).to_contain_text("approved by local")
        await expect(page.locator(".state")).to_contain_text("done")
    late.set()
    await expect(other.locator(".ask .bad")).to_contain_text("any more: approved by local")
    assert shop.box.sent == [("bob", 2)]


async def test_bidirectional_controls_are_shown_as_escapes(shop, open_page):
    name = "\u202emoc.eve\u202c a\u200bb"
    task = await shop.run(f"print(await send({name!r}, copies=2))")
    await shop.until(task["task_id"], "waiting")
    page = await open_page(shop.url)
    await at(page, task)
    await expect(page.locator(".ask .fields")).to_contain_text(r"\u202emoc.eve\u202c a\u200bb")
    await page.locator(".ask").get_by_role("button", name="Approve").click()
    await expect(page.locator(".state")).to_contain_text("done")
    assert shop.box.sent == [(name, 2)]


async def test_texts_follow_the_escaping_rules_of_the_terminal(shop, open_page):
    page = await open_page(shop.url)
    seen = await page.evaluate(
        "async (texts) => { const { visible } = await import('/page/visible.js');"
        " return texts.map((text) => visible(JSON.parse(text))); }",
        [json.dumps(text) for text in SHOWN],
    )
    assert dict(zip(SHOWN, seen, strict=True)) == SHOWN


async def test_approve_button_counts_unseen_characters(shop, open_page):
    text = "x" * 4000 + "; and pay eve" + "y" * 187
    task = await shop.run(f"print(await send({text!r}, copies=2))")
    await shop.until(task["task_id"], "waiting")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    card = page.locator(".ask")
    button = card.get_by_role("button", name="Approve, 200 characters unseen", exact=True)
    await expect(button).to_be_visible()
    await card.get_by_role("button", name="200 more characters").click()
    await expect(card).to_contain_text("; and pay eve")
    await card.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator(".state")).to_contain_text("done")
    assert shop.box.sent == [(text, 2)]


async def test_routine_is_run_by_a_form_of_its_parameters(shop, open_page, tmp_path, monkeypatch):
    page = await open_page(f"{shop.url}/#/routines")
    await expect(page.locator(".routines")).to_contain_text("There are no routines yet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_TRUST", str(tmp_path))
    number = Parameter(name="number", type="integer", default=7)
    city = Parameter(name="city", type="text", default=HOSTILE, pattern=".*")
    script = "print((await look(number))['name'], len(city))"
    reported = {"title": HOSTILE, "task": "Look.", "script": script}
    look = UsedAction(effect="irreversible", parameters=("number: int = 0",), returns="Any")
    given = {"parameters": {"number": number, "city": city}, "actions": {"look": look}}
    made = Routine(name="thing", **given, **reported)
    RoutineStore(tmp_path, Trust.here()).keep(made)
    await page.reload()
    form = page.get_by_role("form", name="Run thing")
    await expect(form).to_be_visible()
    assert await accessible(page) == []
    await form.get_by_label("city").fill("Rome")
    await form.get_by_label("number").fill("9")
    await form.get_by_role("button", name="Run").click()
    await expect(page.locator(".state")).to_contain_text("done", timeout=20_000)
    await expect(page.locator(".answer")).to_contain_text("thing 9 4")
    assert not await page.evaluate("window.hurt")


async def test_task_can_be_saved_as_a_routine_on_the_page(shop, open_page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_TRUST", str(tmp_path))
    task = await shop.run("print((await look(9))['name'])")
    await shop.until(task["task_id"], "done")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    await page.get_by_role("button", name="Keep as a routine").click()
    await page.get_by_label("name", exact=True).fill("nine")
    await page.get_by_role("button", name="Show it", exact=True).click()
    await expect(page.get_by_role("region", name="Routine")).to_contain_text("# /// routine")
    assert await accessible(page) == []
    assert RoutineStore(tmp_path, Trust.here()).names() == []
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="nine")).to_be_visible()
    assert RoutineStore(tmp_path, Trust.here()).names() == ["nine"]
    form = page.get_by_role("form", name="Run nine")
    await form.get_by_role("button", name="Run").click()
    await expect(page.locator(".state")).to_contain_text("done", timeout=20_000)
    await page.get_by_role("link", name="routines", exact=True).click()
    await expect(page.get_by_role("region", name="nine")).to_contain_text("done 1 time")


async def test_remembered_approvals_are_listed_and_revoked(shop, open_page):
    task = await shop.run("print(await send('bob'))")
    await shop.until(task["task_id"], "waiting")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    card = page.locator(".ask")
    await card.get_by_label("Remember").select_option(label="every send until it is revoked")
    await card.get_by_role("button", name="Approve").click()
    await expect(page.locator(".outcome")).to_contain_text(
        "every call of this action is allowed until"
    )
    again = await shop.run("print(await send('eve'))")
    assert (await shop.until(again["task_id"], "done"))["result"] == "sent 1 to eve"
    await at(page, again)
    await page.locator(".call summary").click()
    await expect(page.locator(".call-body")).to_contain_text("made without asking: local")
    await page.get_by_role("link", name="remembered").click()
    held = page.locator(".remembered section")
    await expect(held).to_contain_text("with any arguments")
    await expect(held).to_contain_text("approved by local")
    await page.get_by_role("button", name="Revoke").click()
    await expect(page.locator(".remembered")).to_contain_text("No decision is remembered")
    last = await shop.run("print(await send('eve'))")
    await shop.until(last["task_id"], "waiting")
    (asked,) = (await shop.client.get("/approvals")).json()["approvals"]
    yes = {"decision": "approve", "remember": "until_revoked", "covers": "action"}
    await shop.client.post(f"/approvals/{asked['request_id']}", json=yes)
    await expect(held).to_contain_text("approved by local")  # the open list follows
    await shop.until(last["task_id"], "done")
    assert shop.box.sent == [("bob", 1), ("eve", 1), ("eve", 1)]


@pytest.mark.parametrize("address", ["#/conversations/%", "#/compare/%E4/%", "docs#%", "#/%"])
async def test_address_that_cannot_be_decoded_shows_a_page(shop, open_page, address):
    page = await open_page(f"{shop.url}/{address}")  # an error in the page fails the test
    await expect(page.locator("#detail h1, #docs h1")).to_be_visible()


async def test_page_lists_all_remembered_decisions(shop, open_page):
    decision = {"task_id": "task_1", "action": "send", "covers": "action", "arguments": None}
    decision |= {"flow_rules": [], "by": "ada", "user": None, "project": "x", "at": 1.0}
    decisions = [{**decision, "request_id": f"req_{n}", "worker": None} for n in range(5)]

    async def answer(route):
        offset = int(re.search(r"offset=([0-9]+)", route.request.url)[1])
        some = decisions[offset : offset + 2]  # a server may give fewer than were asked for
        await route.fulfill(json={"remembered": some, "more": offset + 2 < len(decisions)})

    page = await open_page(shop.url)
    await page.route("**/remembered?*", answer)
    await page.goto(f"{shop.url}/#/remembered")
    await expect(page.locator(".remembered section")).to_have_count(len(decisions))


async def test_page_checks_edited_arguments_of_a_request(shop, open_page):
    task = await shop.run("print(await send('bob', copies=2))")
    await shop.until(task["task_id"], "waiting")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    await page.get_by_role("button", name="Edit…").click()
    copies = page.get_by_label("copies as JSON")
    await copies.fill("{")
    await expect(page.locator(".ask .bad")).to_contain_text("not JSON")
    await expect(page.get_by_role("button", name="Approve as edited")).to_be_disabled()
    await copies.fill('"many"')
    await page.get_by_role("button", name="Approve as edited").click()
    await expect(page.locator(".ask .bad")).to_contain_text("copies")
    await copies.fill("3")
    await expect(page.locator(".was", has_text="was: 2")).to_be_visible()
    await page.get_by_role("button", name="Approve as edited").click()
    await expect(page.locator(".outcome")).to_contain_text("copies became 3")
    await expect(page.locator(".state")).to_contain_text("done")
    assert shop.box.sent == [("bob", 3)]


async def test_page_shows_and_sends_all_digits_of_a_long_number(shop, open_page):
    long = 175_928_847_299_117_063  # JavaScript would round the number to …060
    code = f"await note([{{'id': {long}, 'n': 1}}])"
    task = await shop.run(code)
    await shop.until(task["task_id"], "waiting")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    await expect(page.locator(".ask .fields")).to_contain_text(str(long))
    await page.get_by_role("button", name="Edit…").click()
    orders = page.get_by_label("orders as JSON")
    await expect(orders).to_have_value(re.compile(str(long)))
    await orders.fill(f'[{{"id": {long}, "n": 2}}]')
    await page.get_by_role("button", name="Approve as edited").click()
    await expect(page.locator(".outcome")).to_contain_text(str(long))
    (request,) = (await shop.client.get("/approvals?waiting=false")).json()["approvals"]
    assert request["decided"]["arguments"] == {"orders": [{"id": long, "n": 2}]}


async def test_page_names_the_whole_key_of_a_queued_task(shop, open_page):
    queued = TaskQueued(
        task_id="task_of_a_program", seq=1, at=1.0, task="x", queue="q", user="customer-7"
    )
    await shop.app.tasks.journal.append(queued)
    page = await open_page(f"{shop.url}/#/{queued.task_id}")
    await expect(page.locator(".meta")).to_contain_text(re.compile(r"asked by customer-7\b"))


async def test_keyboard_decides_requests_but_enter_alone_does_not(shop, open_page):
    code = "try:\n    await send('bob')\nexcept Exception as no:\n    print(no)\nawait send('eve')\nawait send('eve')"
    task = await shop.run(code)
    await shop.until(task["task_id"], "waiting")
    page = await open_page(shop.url)
    await page.locator(".row").first.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".jump")).to_be_visible()
    await page.locator(".jump").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".ask")).to_be_focused()
    await page.keyboard.press("Enter")
    assert shop.box.sent == []
    await page.keyboard.press("r")
    await page.keyboard.type("not bob")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".outcome").first).to_contain_text("not bob")
    second = page.locator(".ask:not(.decided)")
    await second.focus()
    await page.keyboard.press("a")
    await expect(second.get_by_role("button", name="Approve")).to_be_focused()
    await second.get_by_label("Remember").select_option("task call")
    await second.get_by_role("button", name="Approve").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".state")).to_contain_text("done")
    assert shop.box.sent == [("eve", 1)] * 2


async def test_delayed_list_answer_hides_no_newer_state(shop, open_page):
    """After a break the page loads the list again, and tasks change before the answer arrives."""
    task = await shop.run("print(await hold())")
    await shop.until(task["task_id"], "running")
    page = await open_page(shop.url)
    row = page.locator(f'.row[data-task="{task["task_id"]}"]')
    await expect(row).to_contain_text("running")
    asked, goes = asyncio.Event(), asyncio.Event()

    async def hold_back(route):
        answer = await route.fetch()
        asked.set()
        await goes.wait()
        await route.fulfill(response=answer)

    await page.route("**/tasks?*", hold_back)
    await page.get_by_label("In which state").dispatch_event("change")  # asks for the list again
    await asked.wait()
    shop.box.gate.set()
    other = await shop.run("print(1)", words="another one")
    await shop.until(other["task_id"], "done")
    await expect(row).to_contain_text("done")
    async with page.expect_response("**/tasks?*") as answered:
        goes.set()
    await (await answered.value).finished()
    await page.evaluate("() => new Promise((drawn) => setTimeout(drawn, 50))")
    await expect(page.locator(f'.row[data-task="{other["task_id"]}"]')).to_contain_text("done")
    await expect(row).to_contain_text("done")


BYTES = {"content-type": "application/octet-stream"}


async def test_failed_script_retry_and_rerun_are_shown_as_chapters(shop, open_page):
    task = await shop.run("rows = await look(1)\nraise ValueError('no such row')")
    await shop.until(task["task_id"], "failed")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    await expect(page.locator(".failure")).to_contain_text("no such row")
    await expect(page.locator(".chapter")).to_have_count(2)
    await expect(page.locator(".chapter").nth(1)).to_contain_text("because the one before failed")
    await expect(page.locator(".line.broke").first).to_contain_text("raise ValueError")
    await page.get_by_role("button", name="Run again").click()
    await expect(page.get_by_label("A task, in plain words")).to_have_value(
        re.compile("no such row")
    )


async def test_finished_task_can_be_replayed(shop, open_page):
    task = await shop.run("for n in range(5):\n    print(await look(n))")
    await shop.until(task["task_id"], "done")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    slider = page.get_by_role("slider", name="Replay")
    await expect(slider).to_be_visible()
    total = int(await slider.get_attribute("max") or 0)
    await slider.fill(str(total // 2))
    await expect(page.locator(".state")).to_contain_text("running")
    calls = await page.locator(".call").count()
    await slider.fill("1")
    await expect(page.locator(".call")).to_have_count(0)
    await slider.fill(str(total))
    await expect(page.locator(".state")).to_contain_text("done")
    await expect(page.locator(".calls-head")).to_contain_text("5 calls")
    assert calls <= 5
    await page.get_by_role("button", name="Play").click()
    await expect(page.locator(".state")).not_to_contain_text("done")
    await expect(page.locator(".state")).to_contain_text("done", timeout=15_000)


async def test_replay_is_marked_and_offers_no_buttons(shop, open_page):
    task = await shop.run("print('first')\nprint(await send('bob'))")
    name = (await shop.question(task["task_id"]))["request_id"]
    await shop.client.post(f"/approvals/{name}", json={"decision": "approve"})
    await shop.until(task["task_id"], "done")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    await expect(page.get_by_role("button", name="Run again")).to_be_visible()
    total = await page.get_by_role("slider", name="Replay").get_attribute("max")
    asked = next(e for e in await shop.events(task["task_id"]) if e["type"] == "ApprovalRequested")
    await page.get_by_role("slider", name="Replay").fill(str(asked["seq"]))
    await expect(page.locator(".state")).to_contain_text("then: waiting")
    await expect(page.get_by_text("This is a replay")).to_be_visible()
    await expect(page.locator(".ask")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(page.get_by_role("button", name="Run again")).to_have_count(0)
    await expect(page.locator(".ask .primary")).to_have_count(0)
    assert "grayscale(1)" in await page.locator(".task").evaluate("n => getComputedStyle(n).filter")
    assert await accessible(page) == []
    await page.get_by_role("button", name="Show how it is").click()
    await expect(page.locator(".state")).to_contain_text("done")
    await expect(page.get_by_text("This is a replay")).to_have_count(0)
    await expect(page.get_by_role("slider", name="Replay")).to_have_value(total)
    await expect(page.get_by_role("button", name="Run again")).to_be_visible()
    assert await page.locator(".task").evaluate("n => getComputedStyle(n).filter") == "none"


async def test_prints_are_shown_separately_if_not_the_answer(shop, open_page):
    same = await shop.run("print('all of it')")
    await shop.until(same["task_id"], "done")
    page = await open_page(f"{shop.url}/#/{same['task_id']}")
    await expect(page.locator(".answer")).to_contain_text("all of it")
    await expect(page.locator(".prints-apart")).to_have_count(0)
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    code = "print('looking at 7 things')\nanswer({'n': 7})"
    other = await shop.run(code, output=shape)
    await shop.until(other["task_id"], "done")
    await at(page, other)
    await expect(page.locator(".answer")).to_contain_text('"n"')
    apart = page.locator(".prints-apart")
    await apart.get_by_text("Prints of the scripts").click()
    await expect(apart.get_by_role("region", name="Prints of script 1")).to_contain_text(
        "looking at 7 things"
    )
    assert await accessible(page) == []
    failed = await shop.run("print('so far')\nraise ValueError('no')")
    await shop.until(failed["task_id"], "failed")
    await at(page, failed)
    await expect(page.get_by_role("heading", name="Prints until it ended")).to_be_visible()


async def test_failed_task_shows_its_error_with_code_and_hint(shop, open_page):
    page = await open_page(shop.url)
    task = await shop.run("await hold()", timeout=0.3)
    failed = await shop.until(task["task_id"], "failed")
    await at(page, task)
    reason = page.locator(".failure")
    for part in ("error", "code", "hint"):
        await expect(reason).to_contain_text(failed[part])


async def test_numbers_are_right_aligned_in_every_table(shop, open_page):
    code = (
        "await every()\n"
        "add_to_output_files('rows.csv', [{'name': 'a', 'n': 12, 'zip': '01067'}, {'name': 'b', 'n': 7, 'zip': ''}])\n"
        "print('| tea | price | share | day |\\n|---|---|:--|---|\\n| x | 1,204.50 € | 3 % | 2026-03-02 |\\n| y | -7 | 4 % | - |')"
    )
    task = await shop.run(code)
    await shop.until(task["task_id"], "done")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    sides = "t => [...t.querySelectorAll('tbody tr:first-child td')].map(c => getComputedStyle(c).textAlign)"
    assert await page.locator(".answer table").evaluate(sides) == ["left", "right", "left", "left"]
    await page.locator(".file-box summary").click()
    assert await page.locator(".file-body table").evaluate(sides) == ["left", "right", "left"]
    await page.locator(".call summary").click()
    result = page.locator(".call-body table")
    assert await result.evaluate(sides) == ["right", "left", "right"]
    assert await accessible(page) == []
    await page.goto(f"{shop.url}/#/figures")
    people = page.get_by_role("region", name="Table by person").locator("table")
    assert set((await people.evaluate(sides))[1:]) == {"right"}


async def test_conversation_continues_from_the_open_task(shop, open_page):
    page = await open_page(shop.url)
    task = await shop.run("print('Ada')", "who?")
    await shop.until(task["task_id"], "done")
    await at(page, task)
    await expect(page.locator(".before")).to_be_hidden()
    await page.get_by_label("Go on in this conversation").fill("again\n```run\nprint(2)\n```")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("h1")).to_contain_text("again")
    await expect(page.locator(".state")).to_contain_text("done")
    newest = (await shop.client.get("/tasks")).json()["tasks"][0]
    view = (await shop.client.get(f"/tasks/{newest['task_id']}")).json()
    assert view["conversation_id"] == task["conversation_id"]
    before = page.locator(".before")
    await expect(before.locator(".thread")).to_have_count(0)
    await before.get_by_text("2 messages before this one").click()
    await expect(before.locator(".message-line.user")).to_contain_text("who?")
    await expect(before.locator(".message-line.assistant")).to_contain_text("Ada")
    assert await accessible(page) == []
    await before.get_by_role("link", name="task").first.click()
    await expect(page.locator("h1")).to_contain_text("who?")
    await expect(page.locator(".after")).to_contain_text("It went on with “again")


async def test_conversations_are_listed_and_shown(shop, open_page):
    first = await shop.run("print('Ada')", "who?")
    await shop.until(first["task_id"], "done")
    more = await shop.run("print('8')", "where?", conversation_id=first["conversation_id"])
    await shop.until(more["task_id"], "done")
    other = await shop.run("print('x')", "what?")
    await shop.until(other["task_id"], "done")
    page = await open_page(shop.url)
    await page.get_by_role("link", name="conversations").click()
    rows = page.locator(".conversations .row")
    await expect(rows).to_have_count(2)
    assert await accessible(page) == []
    await rows.filter(has_text="4 messages").click()
    lines = page.locator(".message-line")
    await expect(lines).to_have_count(4)
    await expect(lines.nth(2)).to_contain_text("where?")
    assert await accessible(page) == []
    await page.get_by_label("Go on in this conversation").fill("once more\n```run\nprint(3)\n```")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.locator(".before")).to_contain_text("4 messages before this one")
    await page.goto(f"{shop.url}/#/conversations/{first['conversation_id']}")
    await page.get_by_role("button", name="Forget…").click()
    await page.get_by_role("button", name="Delete its messages forever").click()
    await expect(rows).to_have_count(1)


async def test_hostile_text_is_escaped(shop, open_page):
    code = (
        f"text = {HOSTILE!r}\nprint(text)\nawait look(1)\n"
        "add_to_output_files('&lt;b&gt; x.html', text)\nadd_to_output_files('x.svg', '<svg onload=\"hurt=1\">')\n"
        "try:\n    await send(text)\nexcept Exception as error:\n    print(error)\nraise ValueError(text)"
    )
    task = await shop.run(code, HOSTILE)
    name = (await shop.question(task["task_id"]))["request_id"]
    page = await open_page(f"{shop.url}/#/{task['task_id']}", width=320)
    await expect(page.locator(".ask")).to_be_visible()
    answer_text = {"decision": "reject", "reason": HOSTILE}
    await shop.client.post(f"/approvals/{name}", json=answer_text)
    await expect(page.locator(".state")).to_contain_text("failed")
    for box in await page.locator(".file-box summary").all():
        await box.click()
    assert await page.evaluate("window.hurt") is None
    assert await page.locator("img, script:not([src])").count() == 0
    wide = "document.documentElement.scrollWidth"
    assert await page.evaluate(wide) <= 320
    await page.goto(f"{shop.url}/#/")
    await expect(page.locator(".row")).to_have_count(1)
    assert await page.evaluate(wide) <= 320


async def test_phone_layout_keeps_words_whole(shop, open_page):
    page = await open_page(shop.url, width=390, height=780)
    order = {"product_id": 11, "quantity": 41, "day": "2026-06-30"}
    task = await shop.run(f"print(await note({[order, order]!r}))")
    await at(page, task)
    await expect(page.locator(".ask .fields dd").first).to_contain_text("2026-06-30")
    broken = await page.locator(".ask .fields dd").first.evaluate("""node => {
      const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), broken = [];
      for (let text = walk.nextNode(); text; text = walk.nextNode()) {
        for (const word of text.data.matchAll(/\\S+/g)) {
          const range = document.createRange();
          range.setStart(text, word.index);
          range.setEnd(text, word.index + word[0].length);
          if (new Set([...range.getClientRects()].map(one => one.top)).size > 1) broken.push(word[0]);
        }
      }
      return broken;
    }""")
    assert broken == []


async def make_rooms(shop) -> None:
    """Make a thousand ended tasks, a tenth of them failed."""
    from delf.events import TaskFinished, TaskStarted

    journal = shop.app.tasks.journal

    async def make(n: int) -> None:
        head = {"task_id": f"task_{n:016x}", "at": 1_790_000_000.0 + n}
        await journal.append(TaskStarted(seq=1, task=f"Count the boxes of room {n}", **head))
        end = TaskFinished(seq=2, status=n % 10 > 0, text="", duration_ms=5.0, error="no", **head)
        await journal.append(end)

    await asyncio.gather(*(make(n) for n in range(1000)))


async def test_thousands_of_tasks_can_be_searched_and_filtered(shop, open_page):
    await make_rooms(shop)
    page = await open_page(shop.url)
    await expect(page.locator(".row").first).to_contain_text("room 999")
    tasks = page.locator(".tasks")
    oldest = page.get_by_text("Count the boxes of room 0", exact=True)

    async def is_reached() -> bool:
        await tasks.evaluate("node => node.scrollTo(0, node.scrollHeight)")
        return await oldest.is_visible()

    await until(is_reached)
    assert await page.locator(".row").count() <= 400, "what nobody sees is not there"
    await tasks.evaluate("node => node.scrollTo(0, 0)")
    await expect(page.locator(".row").first).to_contain_text("room 999")
    await expect(page.locator(".row").first).to_be_in_viewport()
    assert await page.locator(".row").count() <= 400
    await page.locator(".row").first.focus()
    for _ in range(150):
        await page.keyboard.press("ArrowDown")
    await expect(page.locator(".row:focus")).to_contain_text("room 849")
    box = page.get_by_role("searchbox", name="Search")
    await box.fill('"room 77"')  # the last word may be the beginning of one
    await expect(page.locator(".row")).to_have_count(11)
    await page.get_by_label("In which state").select_option("failed")
    await expect(page.locator(".row")).to_have_count(1)
    await box.fill("nowhere")
    await expect(page.get_by_text("No task matches.")).to_be_visible()


async def test_tall_window_loads_enough_tasks_to_fill_it(shop, open_page):
    await make_rooms(shop)
    page = await open_page(shop.url, height=16_000)
    rows = page.locator(".row")
    await expect(rows.nth(249)).to_be_visible()


@pytest.mark.soak
async def test_page_shows_two_thousand_calls(shop, open_page):
    code = "for n in range(2000):\n    await look(n)\n    if n % 20 == 0:\n        print('x' * 20_000)\n"
    page = await open_page(shop.url)
    task = await shop.run(code, timeout=100)
    await at(page, task)
    await expect(page.locator(".calls-head")).to_contain_text("2,000 calls", timeout=90_000)
    await expect(page.locator(".state")).to_contain_text("done", timeout=30_000)
    assert await page.locator("*").count() < 1200, "what nobody sees is not there"
    await page.get_by_role("slider", name="Replay").fill("2000")
    await expect(page.locator(".state")).to_contain_text("running")


async def test_lost_connection_is_shown_and_restored(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box) as one:
        task = await one.run("print('before')\nprint(await send('bob'))")
        await one.until(task["task_id"], "waiting")
        page = await open_page(f"{one.url}/#/{task['task_id']}")
        await expect(page.locator(".ask")).to_be_visible()
        port = int(one.url.rpartition(":")[2])
    await expect(page.get_by_text("The connection is lost")).to_be_visible()
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box, port=port):
        await expect(page.get_by_text("The connection is lost")).to_be_hidden(timeout=20_000)
        await expect(page.get_by_text("The server was restarted")).to_be_visible()
        await page.locator(".ask").get_by_role("button", name="Approve").click()
        await expect(page.locator(".state")).to_contain_text("done", timeout=20_000)
        await expect(page.locator(".answer")).to_contain_text("before")
        await expect(page.locator(".chapter")).to_have_count(1)
    assert box.sent == [("bob", 1)]


async def test_failed_reconnect_offers_a_button(shop, open_page):
    task = await shop.run("print('x')\nprint(await send('bob'))")
    await shop.until(task["task_id"], "waiting")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    await page.clock.install()
    await page.route("**/events*", lambda route: route.abort("connectionrefused"))
    await page.reload()
    button = page.get_by_role("button", name="Try again")
    async with asyncio.timeout(60):
        while not await button.is_visible():
            await page.clock.fast_forward(10_000)
    await expect(page.get_by_text("The server cannot be reached")).to_be_visible()
    assert await accessible(page) == []
    await page.set_viewport_size({"width": 390, "height": 780})
    box = await page.locator("#connection").bounding_box()
    assert box is not None
    assert box["width"] > 300
    await page.unroute("**/events*")
    await button.click()
    await expect(page.locator("#connection")).to_have_text("")
    await expect(page.locator(".ask .primary")).to_be_visible()
    assert "restarted" not in await page.inner_text("body")


async def test_failing_start_of_the_page_offers_a_button(shop, open_page):
    page = await open_page(f"{shop.url}/docs")
    await page.clock.install()
    await page.route("**/session", lambda route: route.abort("connectionrefused"))
    await page.goto(shop.url)
    button = page.get_by_role("button", name="Try again")
    async with asyncio.timeout(60):
        while not await button.is_visible():
            await page.clock.fast_forward(10_000)
    await page.unroute("**/session")
    await button.click()
    await expect(page.get_by_role("heading", name="Say what to do")).to_be_visible()
    await expect(page.locator("#connection")).to_have_text("")


async def test_login_keeps_the_key_in_a_cookie_that_scripts_cannot_read(
    tmp_path, monkeypatch, open_page
):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box, key="ada-key", api_key=KEYS) as server:
        task = await server.run("await send('bob')")
        await server.until(task["task_id"], "waiting")
        page = await open_page(server.url)
        await page.get_by_label("API key").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("the API key is not known")).to_be_visible()
        await page.get_by_label("API key").fill("ben-key")
        await page.keyboard.press("Enter")
        await expect(page.locator(".row")).to_have_count(1)
        assert await page.evaluate("document.cookie") == ""
        await expect(page.get_by_role("button", name="Run", exact=True)).to_have_count(0)
        await page.locator(".row").click()
        await expect(page.locator(".ask")).to_contain_text("no right to decide")
        await expect(page.locator(".ask .primary")).to_have_count(0)
        await page.reload()
        await expect(page.locator(".ask")).to_be_visible()
        await page.get_by_role("button", name="log out").click()
        await expect(page.get_by_label("API key")).to_be_visible()


async def test_page_stays_usable_under_a_rate_limit(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box)
    async with serving(agent, box, key="ada-key", api_key=KEYS, rate=1) as server:
        task = await server.run("print(await send('bob'))")
        page = await open_page(server.url)
        await page.get_by_label("API key").fill("ada-key")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("asks to wait")).to_be_visible()
        await expect(page.get_by_text("The connection is lost")).to_be_hidden()
        await expect(page.locator(".row")).to_have_count(1, timeout=20_000)
        await page.reload()
        await expect(page.get_by_role("button", name="log out")).to_be_visible()
        await expect(page.locator(".row")).to_have_count(1, timeout=20_000)
        await at(page, task, timeout=20_000)
        await expect(page.locator(".ask .primary")).to_be_visible(timeout=20_000)
        await page.locator(".ask .primary").click()
        await expect(page.locator(".state")).to_contain_text("done", timeout=20_000)
        await expect(page.get_by_text("asks to wait")).to_be_hidden(timeout=20_000)
    assert box.sent == [("bob", 1)]


async def test_session_ended_elsewhere_asks_for_the_key(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box, api_key=KEYS) as server:
        page = await open_page(server.url)
        await page.get_by_label("API key").fill("ada-key")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="log out")).to_be_visible()
        task = await server.client.post(
            "/run", json={"task": doing("print(7)")}, headers=bearer("ada-key")
        )
        name = task.json()["task_id"]
        await page.evaluate("name => { location.hash = `#/${name}`; }", name)
        await expect(page.locator(".state")).to_contain_text("done")
        await page.get_by_label("A task, in plain words").fill("half written")
        (cookie,) = await page.context.cookies()
        await server.app.sessions.end(cookie["value"])
        await expect(page.get_by_label("API key")).to_be_visible(timeout=15_000)
        await expect(page.get_by_text("The session is over. Log in again.")).to_be_visible()
        assert await accessible(page) == []
        await page.get_by_label("API key").fill("ada-key")
        await page.keyboard.press("Enter")
        await expect(page.locator(".state")).to_contain_text("done")
        await expect(page.get_by_label("A task, in plain words")).to_have_value("half written")


async def test_api_is_documented_on_its_own_page(shop, open_page):
    page = await open_page(f"{shop.url}/docs")
    await expect(page.get_by_role("heading", name="The API", exact=True)).to_be_visible()
    run = page.locator("#op-run")
    await run.locator("summary").click()
    await expect(run).to_contain_text("curl -X POST")
    await run.get_by_role("link", name="RunRequest").click()
    schema = page.locator("#schema-RunRequest")
    await expect(schema.get_by_role("rowheader", name="wait")).to_be_visible()
    await expect(page.locator("#schema-CallStartedData")).to_be_attached()
    # One of hundreds of alike entries, of which each costs axe much time.
    assert await accessible(page, "header", "#op-run", "#schema-RunRequest") == []


async def test_settled_call_shows_the_given_result(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box) as one:
        task = await one.run("print(await hold())")
        await one.events(task["task_id"], until="CallStarted")
    async with serving(make_agent(str(tmp_path), box), box) as two:
        await two.question(task["task_id"])
        page = await open_page(f"{two.url}/#/{task['task_id']}")
        ask = page.locator(".ask")
        await ask.get_by_role("button", name="It did happen").click()
        assert await accessible(page) == []
        await ask.get_by_label("Result").fill('{"held": 2}')
        await ask.get_by_label("Note").fill("Ada saw it")
        await ask.get_by_role("button", name="It did happen").click()
        await expect(ask).to_contain_text("Ada saw it")
        await expect(page.locator(".answer")).to_contain_text("{'held': 2}")


async def test_timed_out_task_is_resumed_by_a_button(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box, approval_mode="approve_all")
    async with serving(agent, box) as server:
        page = await open_page(server.url)
        code = "print(await send('ada'))\nprint(await hold())\nprint('the end')"
        late = await server.run(code, timeout=2)
        await server.until(late["task_id"], "failed")
        await at(page, late)
        box.gate.set()
        await page.get_by_role("button", name="Resume").click()
        await page.get_by_role("button", name="Make it again").click()  # it was cut off midway
        await server.until(late["task_id"], "done")
        await expect(page.get_by_text("the end").first).to_be_visible()
        await expect(page.get_by_role("button", name="Resume")).to_have_count(0)
        assert box.sent == [("ada", 1)]


async def test_request_shows_the_origin_of_each_value(shop, open_page):
    task = await shop.run("await send((await look(4711))['name'], copies=3)")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    ask = page.locator(".ask")
    await expect(ask.locator(".caution")).to_have_text(
        "careful: a stranger may have chosen to: it is from look (call 1, name), not from the task"
    )
    await expect(ask.locator(".fields .warn")).to_have_text(
        "source of to: from look (call 1, name); others wrote it"
    )
    await expect(ask.locator(".fields .quiet.origin")).to_have_text("source of copies: in the task")
    assert await accessible(page) == []


async def test_meter_shows_the_budget_of_the_agent(open_page, tmp_path, monkeypatch):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box, cost_usd=0.25, budget_usd=1.0, allow_unpriced=True)
    async with serving(agent, box) as server:
        for _ in range(2):
            first = await server.run("print(1)")
            await server.until(first["task_id"], "done")
        page = await open_page(server.url)
        await at(page, first)
        meter = page.locator(".meter")
        await expect(meter).to_have_attribute("aria-label", "50 % of the agent's budget is spent")
        await expect(page.locator(".figures")).to_contain_text(
            "$0.25 · $0.50 of the budget of $1.00 left"
        )
        third = await server.run("print(await hold())")
        await at(page, third)
        await expect(meter).to_have_attribute("aria-label", "75 % of the agent's budget is spent")
        box.gate.set()
        await server.until(third["task_id"], "done")


async def test_task_can_be_forked_from_an_event(shop, open_page):
    page = await open_page(shop.url)
    task = await shop.run("print(await look(1))\nprint(await look(2))")
    await shop.until(task["task_id"], "done")
    await at(page, task)
    button = page.get_by_role("button", name="Continue from here as a new task")
    await expect(page.get_by_role("slider", name="Replay")).to_be_visible()
    await expect(button).to_be_hidden()
    events = await shop.events(task["task_id"])
    number = next(n for n, e in enumerate(events, 1) if e["type"] == "CallFinished")
    await page.locator("#replay").fill(str(number))
    await button.click()
    await expect(page.locator(".warnings")).to_contain_text("forked from")
    await expect(page.locator(".state")).to_contain_text("done", timeout=20_000)
    assert task["task_id"] not in page.url


async def test_search_box_finds_text_anywhere_in_tasks(shop, open_page):
    for number in range(3):
        task = await shop.run(f"print(await look({number}))", f"look up lamp {number}")
        await shop.until(task["task_id"], "done")
    page = await open_page(shop.url)
    rows = page.locator(".list .row")
    await expect(rows).to_have_count(3)
    await expect(page.get_by_role("link", name="search")).to_have_count(0)
    await page.get_by_role("searchbox", name="Search").fill('"thing 2"')
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("look up lamp 2")
    await expect(rows.locator(".excerpt")).to_contain_text("answer")
    await expect(page.locator(".found")).to_contain_text("1 found.")
    assert await accessible(page) == []
    await rows.click()
    await expect(page.locator(".state")).to_contain_text("done")
    await expect(rows).to_have_count(1)
    await page.go_back()
    await expect(page).to_have_url(re.compile("#/search/text="))
    await page.get_by_label("In which state").select_option("failed")
    await expect(page.get_by_text("No task matches.")).to_be_visible()
    await page.get_by_role("button", name="Show all tasks").click()
    await expect(rows).to_have_count(3)
    assert page.url.endswith("#/")


async def test_search_filters_are_kept_in_the_link(shop, open_page):
    for number in range(2):
        task = await shop.run(f"print(await look({number}))", f"look up lamp {number}")
        await shop.until(task["task_id"], "done")
    other = await shop.run("print(1)", "count to one")
    await shop.until(other["task_id"], "done")
    page = await open_page(shop.url)
    rows = page.locator(".list .row")
    await page.get_by_text("More filters").click()
    for label, name in (("Who asked", "local"), ("Connection", "look"), ("Action", "look")):
        options = page.get_by_label(label, exact=True).locator("option")
        await expect(options.filter(has_text=name)).to_have_count(1)
    await page.get_by_label("Action", exact=True).select_option("look")
    await expect(rows).to_have_count(2)
    await expect(page.get_by_text("More filters (1)")).to_be_visible()
    await page.get_by_label("When").select_option("7")
    await page.get_by_label("Name of the view").fill("lamps")
    await page.get_by_role("button", name="Keep view").click()
    assert await accessible(page) == []
    link = page.url
    await page.get_by_role("button", name="Show all tasks").click()
    await expect(rows).to_have_count(3)
    await page.get_by_role("link", name="lamps").click()
    await expect(rows).to_have_count(2)
    phone = await open_page(link, width=390, height=780)
    await expect(phone.locator(".list .row")).to_have_count(2)
    await expect(phone.get_by_label("Action", exact=True)).to_have_value("look")
    assert await accessible(phone) == []


async def test_search_results_stay_until_refreshed(shop, open_page):
    task = await shop.run("print(await look(1))", "look up lamp 1")
    await shop.until(task["task_id"], "done")
    page = await open_page(f"{shop.url}/#/search/text=lamp")
    rows = page.locator(".list .row")
    await expect(rows).to_have_count(1)
    again = page.get_by_role("button", name="Tasks have changed: search again")
    await expect(again).to_be_hidden()
    task = await shop.run("print(await look(2))", "look up lamp 2")
    await shop.until(task["task_id"], "done")
    await expect(again).to_be_visible()
    await expect(rows).to_have_count(1)
    await again.click()
    await expect(rows).to_have_count(2)
    await expect(again).to_be_hidden()


async def test_state_filter_is_updated_live(shop, open_page):
    page = await open_page(f"{shop.url}/#/search/state=waiting")
    await expect(page.get_by_text("No task matches.")).to_be_visible()
    await shop.run("print(await send('bob'))")
    await expect(page.locator(".list .row")).to_have_count(1)
    await expect(page.locator(".list .row")).to_contain_text("waiting for you")


async def test_figures_are_shown_as_chart_and_table(shop, open_page):
    for number in range(2):
        task = await shop.run(f"print(await look({number}))")
        await shop.until(task["task_id"], "done")
    page = await open_page(shop.url)
    await page.get_by_role("link", name="costs and figures", exact=True).click()
    await expect(page.locator(".total")).to_contain_text("2 tasks of the last 7 days, 0 failed")
    for name in ("Cost", "Tokens", "Tasks", "Waiting for answers"):
        await expect(page.get_by_role("region", name=f"{name} by day", exact=True)).to_be_visible()
    tools = page.get_by_role("region", name="By connection")
    await expect(tools.locator("tbody tr")).to_have_count(1)
    async with page.expect_download() as download:
        await tools.get_by_role("link", name="CSV").click()
    taken = (await (await download.value).path()).read_text()
    assert taken.startswith("connection,tasks,")
    await expect(page.get_by_role("img")).to_have_count(4)
    assert await accessible(page) == []
    await page.locator("#detail").get_by_label("When").select_option("")
    assert page.url.endswith("#/figures/")


async def test_figures_name_costs_without_a_known_price(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    usage = Usage(input_tokens=100, output_tokens=10)
    model = ScriptedModel(
        default=lambda _: ModelReply(text="```python\nprint(1)\n```", model="x", usage=usage)
    )
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    agent = Agent(llm="scripted", host=host, journal="sql", sandbox="local")
    async with serving(agent, Outbox()) as server:
        task = await server.run("Print 1")
        await server.until(task["task_id"], "done")
        page = await open_page(f"{server.url}/#/figures")
        cost = page.get_by_role("region", name="Cost by day", exact=True)
        await expect(cost.get_by_role("heading")).to_have_text("Cost $0 and more")
        for table in ("By person", "By model"):
            row = page.get_by_role("region", name=table, exact=True).locator("tbody tr")
            await expect(row).to_contain_text("$0 and more")


async def test_repeated_task_keeps_files_and_fork_may_change_the_model(
    tmp_path, monkeypatch, open_page
):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box, money = Outbox(), {"cost_usd": 0.25, "allow_unpriced": True}
    agent = make_agent(str(tmp_path), box, **money)
    async with serving(agent, box, models=["scripted:other"], budgets={"local": 1.0}) as server:
        sent = await server.client.post("/files?name=note.txt", content=b"the words", headers=BYTES)
        task = await server.run(
            'print(await look(1))\nprint(open("note.txt").read())',
            files=[{"id": sent.json()["id"]}],
        )
        await server.until(task["task_id"], "done")
        page = await open_page(f"{server.url}/#/{task['task_id']}")
        await page.get_by_role("button", name="Run again").click()
        await expect(page.locator(".kept")).to_contain_text("With the files")
        await expect(page.locator(".budgets")).to_contain_text("local: $0.75 of $1.00 left")
        await page.get_by_role("button", name="Run", exact=True).click()
        await page.wait_for_url(lambda url: task["task_id"] not in url)
        await expect(page.locator(".answer")).to_contain_text("the words")
        await expect(page.locator(".kept")).to_be_empty()
        slider = page.get_by_role("slider", name="Replay")
        name = page.url.split("/")[-1]
        await server.until(name, "done")
        found = await server.events(name)
        at = next(n for n, e in enumerate(found, 1) if e["type"] == "CallFinished")
        await slider.fill(str(at))
        await page.get_by_label("The model that continues").select_option("scripted:other")
        await page.get_by_role("button", name="Continue from here as a new task").click()
        await expect(page.locator(".warnings")).to_contain_text("cost nothing")
        await expect(page.locator(".state")).to_contain_text("done")
        await page.get_by_role("button", name="What the model saw").click()
        await expect(page.locator(".prompts")).to_contain_text(
            "replayed: not asked again, and free"
        )
        await expect(page.locator(".figures").first).not_to_contain_text("$0.25")
        assert await accessible(page) == []


async def test_task_can_be_repeated_with_changes_and_compared(tmp_path, monkeypatch, open_page):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    agent = make_agent(str(tmp_path), box)
    async with serving(agent, box, models=["scripted:other"]) as server:
        task = await server.run("print((await look(1))['name'])", "look one up")
        await server.until(task["task_id"], "done")
        page = await open_page(f"{server.url}/#/{task['task_id']}")
        again = page.get_by_label("Run again with another model")
        await again.select_option("scripted:other")
        await page.wait_for_url(lambda url: task["task_id"] not in url)
        await page.reload()  # what was drawn of the old task is gone
        await expect(page.locator(".state")).to_contain_text("done")
        await page.get_by_role("button", name="Change the script…").click()
        words = page.get_by_label("The script")
        await expect(words).to_have_value(re.compile("look"))
        await words.fill("print((await look(2))['name'])")
        await page.get_by_role("button", name="Run this script").click()
        await expect(page.locator(".answer")).to_contain_text("thing 2")
        await expect(page.locator(".state")).to_contain_text("done")
        await page.get_by_role("link", name="Compare…").click()
        await page.get_by_label("The other task").select_option(task["task_id"])
        scripts = page.get_by_role("region", name="Scripts", exact=True)
        await expect(scripts.locator(".minus")).to_contain_text("look(2)")
        await expect(scripts.locator(".plus")).to_contain_text("look(1)")
        answers = page.get_by_role("region", name="Answer", exact=True)
        await expect(answers.locator(".plus")).to_contain_text("thing 1")
        assert await accessible(page) == []


async def test_script_question_is_answered_on_the_page(shop, open_page):
    asks = [
        "await ask('Which?', ['Ann A', 'Ann B'])",
        "await ask('Now?', answer='yes/no')",
        "await ask('Many?', answer='number')",
        "await ask('Name?')",
    ]
    task = await shop.run(f"print([{', '.join(asks)}])")
    page = await open_page(f"{shop.url}/#/{task['task_id']}")
    card = page.locator(".ask:not(.decided)")
    for title, answer in (("Which?", "Ann B"), ("Now?", "no"), ("Many?", "2.5"), ("Name?", "Cleo")):
        await expect(card.get_by_role("heading", name=title)).to_be_visible()
        await expect(card.get_by_role("button", name="Approve")).to_have_count(0)
        field = card.get_by_label("Answer", exact=True)
        if title in ("Which?", "Now?"):
            await field.select_option(answer)
        else:
            await field.fill(answer)
        assert await accessible(page, ".ask:not(.decided)") == []
        await card.get_by_role("button", name="Answer", exact=True).click()
        await expect(page.locator(".ask.decided", has_text=title)).to_contain_text("answered by")
    done = await shop.until(task["task_id"], "done")
    assert done["result"] == "['Ann B', False, 2.5, 'Cleo']"
