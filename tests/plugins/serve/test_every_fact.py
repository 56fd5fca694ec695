"""Each fact about a request arrives at the person, through each real channel.

A new kind of fact needs a sample in ``delf_devkit.testing.requests``; a channel that drops it fails
here. The contract suite shows the same requests to the terminal and to Slack.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from a2a.types import a2a_pb2
from click.testing import CliRunner
from mcp import Client
from mcp_types import ElicitResult
from playwright.async_api import expect

from delf.events import ApprovalRequested, TaskStarted
from delf.protocols.facts import FactKind, facts
from delf.testing import request_for
from delf_cli.main import cli
from delf_devkit.testing.requests import AFTERWARDS, sample_questions, sample_requests, unseen_facts
from delf_engine.config import AgentConfig
from delf_engine.one_call import LIST_TOOLS
from delf_journal_sql import SqlJournal
from delf_mcp.serving import Served
from delf_serve.channel import WebChannel
from plugins.approval_slack.slack import Slack
from plugins.approval_slack.test_slack import channel_of, rejects, seen_in
from plugins.approval_terminal.test_contract import shown_on_terminal
from plugins.serve.pages import accessible
from plugins.serve.test_a2a_client import client_of
from plugins.serve.test_channel import Receiver, smtp
from support.serving import Outbox, make_agent, serving
from support.until import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]
SAMPLES = sample_requests()
every_sample = pytest.mark.parametrize("name", SAMPLES)


def assert_arrived(request, text, discussion=(), *, without=()):
    """Check that the text has each fact, except for kinds that are shown elsewhere."""
    unseen = [f for f in unseen_facts(request, text, discussion) if f.kind not in without]
    assert not unseen, f"{[fact.heading for fact in unseen]} not in {text[:2000]}"


@pytest.fixture
def url(tmp_path, monkeypatch):
    place = str(tmp_path / "journal.db")
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", place)
    return place


async def waiting(request, discussion=(), setup=MappingProxyType({})):
    """A journal with a waiting request, whose process is alive."""
    journal = SqlJournal()
    task_id = request.task_id
    started = TaskStarted(task_id=task_id, seq=1, at=1.0, task=request.task, setup=setup)
    own = {f.name: getattr(request, f.name) for f in dataclasses.fields(request) if f.name != "fit"}
    asked = ApprovalRequested(**own, seq=2, at=2.0)
    later = [dataclasses.replace(event, seq=3 + n) for n, event in enumerate(discussion)]
    for event in (started, asked, *later):
        await journal.append(event)
    return journal


# -- channels of other programs ------------------------------------------------------------------


@every_sample
async def test_terminal_shows_every_fact(name, monkeypatch):
    assert_arrived(SAMPLES[name], await shown_on_terminal(SAMPLES[name], monkeypatch))


@every_sample
async def test_slack_shows_every_fact(name):
    async with Slack(rejects) as slack:
        channel = channel_of(slack, names={"U0ADA": "ada"})
        await channel.decide(SAMPLES[name])
        shown = seen_in(slack)
        await channel.aclose()
    assert shown.offers_yes
    assert_arrived(SAMPLES[name], shown.text)


class Asks:
    """An agent that only asks."""

    config = AgentConfig()

    def __init__(self, request, on_confirm) -> None:
        self._request = request
        self._confirm = on_confirm

    async def arun(self, task: str, **_: Any) -> Any:
        text = "[]" if task == LIST_TOOLS else repr(await self._confirm(self._request))
        trace = SimpleNamespace(task_id="task_1")
        return SimpleNamespace(text=text, files={}, trace=trace, raise_for_status=lambda: None)

    async def astop(self) -> None:
        """Nothing runs."""


@every_sample
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_mcp_client_shows_every_fact(name, mode):
    asked = []

    async def answer(context, params):
        asked.append(params)
        return ElicitResult(action="accept", content={"approve": False})

    served = Served(lambda **options: Asks(SAMPLES[name], options["on_confirm"]))
    async with Client(served.server(), mode=mode, elicitation_callback=answer) as client:
        result = await client.call_tool("run", {"task": "ask"})
    assert "Rejected" in result.content[0].text
    (form,) = asked
    assert "approve" in form.requested_schema["properties"]
    assert_arrived(SAMPLES[name], form.message)
    await served.aclose()


@every_sample
async def test_webhook_and_mail_tell_every_fact(name):
    receiver = Receiver()
    with smtp() as box:
        web = WebChannel(
            webhook_url=receiver.url,
            smtp_url=f"smtp://127.0.0.1:{box.port}",
            mail_to=["ann@us.example"],
            public_url="https://delf.example",
        )
        assert await web.decide(SAMPLES[name]) is None, "it offers no answer, and so no yes"
        await until(lambda: receiver.got and box.mails)
        await web.aclose()
    receiver.close()
    reported = json.loads(receiver.got[0][1])["facts"]
    assert reported == [fact.data() for fact in facts(SAMPLES[name])]
    assert_arrived(SAMPLES[name], box.mails[0][1].get_content())


# -- what reads the journal ----------------------------------------------------------------------


@every_sample
async def test_commands_and_json_show_every_fact(name, url):
    journal = await waiting(SAMPLES[name])

    def delf(*words):
        done = CliRunner().invoke(cli, ["approvals", *words])
        assert done.exit_code == 0, done.output
        return done.output

    shown = await asyncio.to_thread(delf, "show", SAMPLES[name].request_id)
    listed = json.loads(await asyncio.to_thread(delf, "list", "--json"))
    await journal.aclose()
    assert_arrived(SAMPLES[name], shown)
    assert listed[0]["facts"] == [fact.data() for fact in facts(SAMPLES[name])]


@pytest_asyncio.fixture(loop_scope="session")
async def server(url, tmp_path):
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box) as served:
        yield served


async def unfolded(place) -> str:
    """Unfold everything on a card, and return its whole text."""
    for more in await place.get_by_role("button", name="more characters").all():
        await more.click()
    return await place.evaluate("node => node.textContent")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["task", "inbox"])
async def test_page_shows_every_fact(where, server, open_page, subtests):
    requests = {
        name: dataclasses.replace(
            sample,
            task_id=f"task_{number}",
            request_id=f"req_{number}",
            # The reader is one of those who may.
            rule={"two_of": ["local", "directors"]} if sample.rule else {},
        )
        for number, (name, sample) in enumerate({**SAMPLES, **sample_questions()}.items())
    }
    journals = [await waiting(request) for request in requests.values()]
    page = await open_page(f"{server.url}/#/inbox")
    # The task's words and the line are what the card stands at.
    around = {"task": {FactKind.TASK, FactKind.LINE}, "inbox": ()}[where]
    for name, request in requests.items():
        if where == "task":
            await page.goto(f"{server.url}/#/{request.task_id}/{request.request_id}")
        card = page.locator(f"#ask-{request.request_id}")
        if where == "inbox":
            card = page.locator(".inbox-row").filter(has=card)
        with subtests.test(name):
            no = "Answer nothing…" if request.is_question else "Reject…"
            await expect(card.get_by_role("button", name=no)).to_be_visible()
            assert await card.locator(".primary").count() == 1
            assert_arrived(request, await unfolded(card), without=around)
    assert await accessible(page) == []
    await page.close()
    for journal in journals:
        await journal.aclose()


async def test_page_and_api_name_the_project_of_another_folder(server, open_page):
    here = dataclasses.replace(request_for(), task_id="task_here", request_id="req_here")
    folders = [(request_for(), "/home/ada/teas"), (here, str(Path.cwd()))]
    journals = [await waiting(one, setup={"folder": name}) for one, name in folders]
    for path, key in (("/approvals", "approvals"), ("/tasks", "tasks")):
        found = (await server.client.get(path)).json()[key]
        assert {one["task_id"]: one["project"] for one in found} == {
            request_for().task_id: "teas",
            "task_here": None,
        }
    page = await open_page(f"{server.url}/#/inbox")
    await expect(page.locator(".inbox-head", has_text="in teas")).to_have_count(1)
    await expect(page.locator(".row-figures", has_text="teas")).to_have_count(1)
    await page.close()
    for journal in journals:
        await journal.aclose()


@every_sample
async def test_a2a_client_shows_every_fact(name, server, url):
    request = SAMPLES[name]
    discussion = [
        dataclasses.replace(event, task_id=request.task_id, request_id=request.request_id)
        for event in AFTERWARDS.values()
    ]
    journal = await waiting(request, discussion)
    async with client_of(server) as client:
        task = await client.get_task(a2a_pb2.GetTaskRequest(id=request.task_id))
    await journal.aclose()
    text = task.status.message.parts[0].text
    assert f"approve {request.request_id}" in text
    assert_arrived(request, text, discussion)


async def test_page_and_api_show_votes(server, open_page):
    request = dataclasses.replace(request_for(), rule={"two_of": ["ann", "bo"]})
    discussion = [AFTERWARDS[FactKind.VOTE]]
    journal = await waiting(request, discussion)
    known = (await server.client.get(f"/approvals/{request.request_id}")).json()
    assert known["facts"] == [fact.data() for fact in facts(request, discussion)]
    page = await open_page(f"{server.url}/#/{request.task_id}")
    await expect(page.locator(".ask")).to_contain_text(
        "approved by (another is needed): wilhelmina"
    )
    await page.close()
    await journal.aclose()


async def test_bulk_approval_skips_risky_requests(server, open_page):
    """A second payment, and a receiver written by others, are approved one by one."""
    plain = request_for()
    names = ("outcome_unknown", "others_words", "made_before", "changed", "hidden")
    others = [
        dataclasses.replace(SAMPLES[name], request_id=f"req_{name}", task_id=f"task_{name}")
        for name in names
    ]
    journals = [await waiting(request) for request in (plain, *others)]
    page = await open_page(f"{server.url}/#/inbox")
    await expect(page.locator(".inbox-row")).to_have_count(6)
    for box in await page.locator(".inbox-row input[type=checkbox]").all():
        await box.check()
    many = page.locator(".many")
    await expect(many.get_by_role("button", name="Approve 1", exact=True)).to_be_visible()
    await expect(many).to_contain_text("5 requests have to be approved one by one")
    await page.get_by_label("Choose bank.pay").first.uncheck()
    await expect(many.get_by_role("button", name="Reject 5", exact=True)).to_be_visible()
    await page.close()
    for journal in journals:
        await journal.aclose()


async def test_inbox_settles_a_call_of_unknown_outcome(tmp_path, url, open_page):
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box) as one:
        task = await one.run("print(await hold())")
        await one.events(task["task_id"], until="CallStarted")
    async with serving(make_agent(str(tmp_path), box), box) as two:
        await two.question(task["task_id"])
        page = await open_page(f"{two.url}/#/inbox")
        row = page.locator(".inbox-row")
        await expect(row).to_contain_text("may already have happened")
        await expect(row.get_by_role("button", name="Make it again")).to_be_visible()
        await row.get_by_role("button", name="It did happen…").click()
        await row.get_by_label("Result").fill('{"held": 2}')
        await row.get_by_role("button", name="It did happen", exact=True).click()
        await expect(row).to_have_count(0)
        done = await two.until(task["task_id"], "done")
        await page.close()
    assert done["result"] == "{'held': 2}"


async def test_inbox_edit_works_with_the_keyboard(server, open_page):
    task = await server.run("print(await send('bob', copies=2))")
    await server.question(task["task_id"])
    page = await open_page(f"{server.url}/#/inbox")
    await page.locator(".inbox-row").focus()
    await page.keyboard.press("Enter")
    assert server.box.sent == []
    await page.keyboard.press("e")
    await page.get_by_label("copies as JSON").fill("3")
    await page.get_by_role("button", name="Approve as edited").click()
    await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    await server.until(task["task_id"], "done")
    assert server.box.sent == [("bob", 3)]
    await page.close()
