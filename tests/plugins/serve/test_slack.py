"""A server whose questions are asked in Slack: who decides, where it is seen, which process."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
import pytest_asyncio
from playwright.async_api import expect

from plugins.approval_slack.slack import SECRET, Slack
from plugins.serve.test_inbox import logged_in
from plugins.serve.test_people import add, change, person
from support.server import free_port
from support.serving import Outbox, bearer, doing, make_agent, serving
from support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

APPROVE, REJECT, EDIT = "delf_approve", "delf_reject", "delf_edit"
NAMES = {"U0ADA": "ada", "U0BO": "bo", "U0CY": "cy"}
FOUR_EYES = {"send": {"four_eyes": True}}


@pytest_asyncio.fixture(loop_scope="session")
async def office(tmp_path, monkeypatch, request):
    """Slack, and a function that opens servers on one journal, which ask there and on the page."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    if getattr(request, "param", "") == "postgresql":
        url = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", url)
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    async with Slack() as slack:
        settings = {
            "BOT_TOKEN": "xoxb-1",
            "APP_TOKEN": "xapp-1",
            "CHANNEL": "C0PAY",
            "APPROVERS": '["*"]',
            "NAMES": json.dumps(NAMES),
            "API_URL": f"{slack.url}/api/",
        }
        for name, value in settings.items():
            monkeypatch.setenv(f"DELF_APPROVAL_SLACK_{name}", value)

        def opens(**options):
            box = Outbox()
            agent = make_agent(str(tmp_path), box, approvals=["web", "slack"], **options)
            return serving(agent, box, "ada-key", api_key="boss:boss-key")

        yield slack, opens


async def staffed(server):
    """Add three people who see everything to the server."""
    known = await server.app.tasks.journal.people()
    if not known:
        await add(server, *(person(name, scope="all") for name in ("ada", "bo", "cy")))
    await server.app.keys.reload(server.app.tasks.journal, at_once=True)


async def asks(server, to: str, who: str = "ada") -> str:
    order = {"task": doing(f"print(await send('{to}'))")}
    answer = await server.client.post("/run", json=order, headers=bearer(f"{who}-key"))
    return answer.json()["task_id"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["Socket Mode", "HTTP"])
async def test_request_from_a_browser_is_decided_in_slack(
    office,
    monkeypatch,
    open_page,
    way,
):
    """Slack refuses the person who asked; their browser shows who decided, and where."""
    slack, opens = office
    if way == "HTTP":
        monkeypatch.delenv("DELF_APPROVAL_SLACK_APP_TOKEN")
        monkeypatch.setenv("DELF_APPROVAL_SLACK_SIGNING_SECRET", SECRET)
        slack.http_port = free_port()
        monkeypatch.setenv("DELF_APPROVAL_SLACK_PORT", str(slack.http_port))
    async with opens(approval_rules=FOUR_EYES) as server:
        await staffed(server)
        page = await open_page(server.url)
        await logged_in(page, "ada-key")
        await page.get_by_label("A task, in plain words").fill(doing("print(await send('bob'))"))
        await page.get_by_role("button", name="Run", exact=True).click()
        question = await slack.question("send")
        await expect(page.locator(".ask .outcome")).to_contain_text("another person has to")
        await slack.press(question, APPROVE, "U0ADA")
        assert "another person has to" in slack.ephemeral[-1]["text"]
        assert slack.ephemeral[-1]["user"] == "U0ADA"
        await slack.press(question, EDIT, "U0ADA")
        assert (len(slack.ephemeral), slack.views, server.box.sent) == (2, [], [])
        assert slack.questions, "the question waits on"
        await slack.press(question, APPROVE, "U0BO")
        await expect(page.locator(".ask .outcome")).to_contain_text("approved by bo (slack)")
        await expect(page.locator(".state")).to_contain_text("done")
        assert server.box.sent == [("bob", 1)]
        reported = await slack.shown(question["ts"], "Approved by bo, slack")
        assert not [block for block in reported["blocks"] if block["type"] == "actions"]


async def test_two_approvers_can_both_use_slack(office):
    slack, opens = office
    async with opens(approval_rules={"send": {"two_of": ["ada", "bo"]}}) as server:
        await staffed(server)
        task = await asks(server, "bob", "cy")
        question = await slack.question("send")
        await slack.press(question, APPROVE, "U0ADA")
        await slack.shown(question["ts"], "approved by (another is needed): ada")
        await slack.press(question, APPROVE, "U0ADA")
        assert "ada has approved it" in slack.ephemeral[-1]["text"]
        await slack.press(question, APPROVE, "U0BO")
        await server.until(task, "done")
        assert server.box.sent == [("bob", 1)]
        await slack.shown(question["ts"], "Approved by bo, slack")


async def test_page_decision_is_reported_in_slack(office):
    slack, opens = office
    async with opens() as server:
        await staffed(server)
        await asks(server, "bob")
        question = await slack.question("send")
        (asked,) = (await server.client.get("/approvals")).json()["approvals"]
        no = {"decision": "reject", "reason": "not him"}
        path = f"/approvals/{asked['request_id']}"
        assert (await server.client.post(path, json=no, headers=bearer("bo-key"))).is_success
        await slack.shown(question["ts"], "Rejected (not him) by bo, API, 127.0.0.1")
        await slack.press(question, APPROVE, "U0CY")
        assert "is not pending any more" in slack.ephemeral[-1]["text"]


async def test_slack_user_without_the_right_cannot_decide(office):
    slack, opens = office
    async with opens() as server:
        await staffed(server)
        people = {one.name: one for one in await server.app.tasks.journal.people()}
        await change(server, people["bo"], replace(people["bo"], revoked_at=time.time()))
        await change(server, people["cy"], replace(people["cy"], rights=("read", "run")))
        task = await asks(server, "bob")
        question = await slack.question("send")
        for user in ("U0BO", "U0CY"):
            await slack.press(question, APPROVE, user)
            assert "no right to decide" in slack.ephemeral[-1]["text"]
        assert server.box.sent == []
        await slack.press(question, APPROVE, "U0ADA")
        await server.until(task, "done")


@pytest.mark.parametrize(("scope", "teams"), [("own", ()), ("team", ()), ("team", ("sales",))])
async def test_slack_refuses_decisions_about_tasks_outside_the_persons_scope(office, scope, teams):
    slack, opens = office
    async with opens() as server:
        await staffed(server)
        people = {one.name: one for one in await server.app.tasks.journal.people()}
        await change(server, people["ada"], replace(people["ada"], teams=("finance",)))
        await change(server, people["bo"], replace(people["bo"], scope=scope, teams=teams))
        task = await asks(server, "bob")
        question = await slack.question("send")
        for button in (APPROVE, REJECT, EDIT):
            await slack.press(question, button, "U0BO")
            assert "does not see the task" in slack.ephemeral[-1]["text"]
        (request,) = (await server.client.get("/approvals")).json()["approvals"]
        answer = await server.client.post(
            f"/approvals/{request['request_id']}",
            json={"decision": "approve"},
            headers=bearer("bo-key"),
        )
        assert (answer.status_code, server.box.sent) == (404, [])
        bo = replace(people["bo"], scope="team", teams=("finance",))
        found = {one.name: one for one in await server.app.tasks.journal.people()}
        await change(server, found["bo"], bo)
        await slack.press(question, APPROVE, "U0BO")
        await server.until(task, "done")


@pytest.mark.parametrize("office", ["postgresql"], indirect=True)
async def test_slack_decision_counts_once_on_two_servers(office):
    """With one PostgreSQL and one app there is one message per question, one decision per press."""
    slack, opens = office
    async with opens() as one, opens() as two:
        await staffed(one)
        await staffed(two)
        first = await asks(one, "bob")
        await slack.question("bob")
        second = await asks(two, "eva")
        await slack.question("eva")
        assert len(slack.sockets) == 2
        assert len(slack.questions) == 2, "a question has one message"
        questions = {to: await slack.question(to) for to in ("bob", "eva")}
        slack.to = 1  # the process of the second task receives the press of the first task's button
        await slack.press(questions["bob"], APPROVE, "U0BO")
        slack.to = 0
        await slack.press(questions["eva"], EDIT, "U0BO")
        assert not await slack.send({"to": "eve"}, "U0BO")
        assert (await one.until(first, "done"))["result"] == "sent 1 to bob"
        assert (await two.until(second, "done"))["result"] == "sent 1 to eve"
        assert (one.box.sent, two.box.sent) == ([("bob", 1)], [("eve", 1)])
        for to in ("bob", "eva"):
            await slack.shown(questions[to]["ts"], "by bo, slack")
        for slack.to in (0, 1):
            await slack.press(questions["bob"], APPROVE, "U0BO")
            assert "is not pending any more" in slack.ephemeral[-1]["text"]
        assert one.box.sent == [("bob", 1)]
        closed = [update["ts"] for update in slack.updates]
        assert sorted(closed) == sorted({m["ts"] for m in questions.values()})


async def test_request_of_a_dead_server_reuses_its_slack_message(office):
    slack, opens = office
    async with opens() as one:
        await staffed(one)
        task = await asks(one, "bob")
        question = await slack.question("send")
    assert slack.questions, "the message says nothing of an end: the question waits on"
    async with opens() as two:
        await staffed(two)
        await two.until(task, "waiting")
        await until(lambda: len(slack.sockets) >= 2 and slack.updates)
        assert [message["ts"] for message in slack.questions] == [question["ts"]]
        await slack.press(question, APPROVE, "U0BO")
        await two.until(task, "done")
        assert two.box.sent == [("bob", 1)]
        assert len(slack.messages) == 2, "one thread, one question"
