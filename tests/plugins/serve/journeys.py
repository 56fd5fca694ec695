"""Lets three people work on the real page, and compares the page with the journal.

    cd tests && python -m plugins.serve.journeys --minutes 60 [--seed 7] [--folder FOLDER]

``delf serve`` and ``delf runner`` run as programs on a PostgreSQL of their own. A member, a lead
and an administrator each have a browser. By chance they start tasks, decide, edit, reject, answer,
talk, ask for changes, stop, fork, run again, keep schedules, people, keys and notices; another
service sends webhooks; sometimes the server is killed. After each step all three pages are compared
with what the API tells each person, and the API with the journal: states, groups, counts, titles,
cards with their facts and buttons, inboxes, costs, answers. At the end the calls that really
happened are compared with the decisions in the journal. It prints what it saw as JSON; ``faults``
is empty if the page showed nothing wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import io
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.async_api import Browser, Page, async_playwright, expect
from playwright.async_api import Error as BrowserError

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    Event,
    ModelReplied,
    TaskFinished,
    TaskQueued,
    TaskStarted,
)
from delf.protocols.approval import NO_REASON
from delf.protocols.states import state_of
from delf.types import STATE_WORDS, WAITING_FOR_OTHERS_WORDS, TaskState
from delf_engine.changes import OTHER_AUTHORS_KEY
from delf_engine.task import MODEL
from delf_engine.views.copies import COPIED
from delf_journal_sql import SqlJournal
from delf_serve.signatures import signature
from plugins.serve.test_people import person
from support.openai_server import OpenAIServer, Reply, Request
from support.postgres import own_postgres
from support.program import DELF, environment, start
from support.server import find_program, free_port
from support.serving import bearer
from support.until import until

SECRET: Final = "a-secret-of-the-hook"
SETTLE: Final = 20.0
"""Seconds in which pages have to show what the API says."""
EVERY: Final = ("read", "run", "decide", "delete", "people")
TEAM: Final = ("sales",)
RULES: Final = """
[agent.approval_rules]
send = { four_eyes = true }
pay = { two_of = ["max", "lea", "ann"] }
"""
TOOLS: Final = '''
import json, os
from delf import tool

def did(name, **arguments):
    with open("did.jsonl", "a") as file:
        file.write(json.dumps([name, arguments]) + "\\n")

@tool(confirm=True)
async def send(to: str, copies: int = 1) -> str:
    """Send something to somebody."""
    did("send", to=to, copies=copies)
    return f"sent {copies} to {to}"

@tool(confirm=True)
async def pay(to: str, euros: float) -> str:
    """Pay somebody."""
    did("pay", to=to, euros=euros)
    return f"paid {euros} to {to}"

@tool(effect="write", confirm=True)
async def note(text: str) -> str:
    """Note something down."""
    did("note", text=text)
    return f"noted {text}"

@tool(effect="read", confirm=False)
async def look(number: int = 0) -> dict:
    """Look something up."""
    return {"number": number, "name": f"thing {number}"}
'''
NAMES: Final = ("bob", "carla", "dörte", "<b>eve</b>", "mallory & sons", "an 'odd' name", "日本")


SNAPSHOT: Final = """() => {
  const texts = (nodes) => [...nodes].map((node) => node.textContent.trim());
  const ids = (label) => [...document.querySelectorAll(`ul.inbox[aria-label="${label}"] > li .ask`)].map((node) => node.id.slice(4));
  return {
    title: document.title,
    hash: location.hash,
    inbox: document.querySelector('#who a[href="#/inbox"]')?.textContent,
    connection: document.querySelector("#connection").textContent,
    rows: [...document.querySelectorAll(".tasks .row")].map((row) => [row.dataset.task,
      row.querySelector(".row-state").textContent, row.closest(".group").getAttribute("aria-label"), row.querySelector(".row-figures").textContent]),
    task: document.querySelector(".detail .meta code")?.title ?? null,
    state: document.querySelector(".detail .state")?.textContent.trim() ?? null,
    jump: document.querySelector(".detail .jump:not([hidden])")?.textContent ?? "",
    cards: [...document.querySelectorAll(".detail .ask[id^=ask-]")].map((card) => ({ id: card.id.slice(4), text: card.textContent,
      decided: card.classList.contains("decided"), outcome: card.querySelector(".outcome").textContent,
      buttons: texts(card.querySelectorAll(".buttons button")), isWriting: card.querySelector(".buttons textarea:not([aria-label=Answer]), .field") !== null })),
    answer: document.querySelector(".detail .answer:not([hidden])")?.textContent ?? "",
    figures: document.querySelector(".detail .figures")?.textContent ?? "",
    isWindowed: [...document.querySelectorAll(".tasks .rows")].some((block) => block.style.height),
    mine: ids("Requests that wait for you"),
    others: ids("Requests that wait for others"),
  };
}"""
IN_CARD: Final = frozenset({"task", "asker", "line", "question", "effect", "argument", "default"})
"""Facts that stand around a card of a task, or in a layout of their own."""


class Notices(ThreadingHTTPServer):
    """The webhook to which the server sends its notices."""

    def __init__(self) -> None:
        received = self.received = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                return

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


def answer(request: Request) -> Reply:
    """Return the model's answer: the script in the newest part of the task."""
    code = request.prompt.rpartition("```run\n")[2].partition("```")[0]
    return Reply(text=f"```python\n{code}\n```", usage=(1000, 200))


def doing(words: str, code: str) -> str:
    return f"{words}\n```run\n{code}\n```"


class Office:
    """The programs: database, server, runner, model, and the receiver of notices."""

    def __init__(self, folder: Path, database: str, model: str, notices: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.started = list[Any]()
        (folder / "tools.py").write_text(TOOLS)
        (folder / "did.jsonl").touch()
        (folder / "data").mkdir()
        price = {"input": 1.0, "output": 10.0}
        (folder / "pricing.json").write_text(json.dumps({"first": price, "second": price}))
        (folder / "delf.toml").write_text(
            f"""[agent]
llm = {{ model = "first", base_url = "{model}", provider = "openai" }}
providers = {{ openai = "test-key" }}
sandbox = "local"
journal = "sql"
retry_count = 0
timeout = 120
chat = {{ persist = true }}
{RULES}
[connections.drop]
type = "filesystem"
roots = {{ data = "data" }}
[plugins.journal-sql]
url = "{database}"
[plugins.runner-dbos]
database = "{database}"
lease = 3
[plugins.serve]
models = ["second"]
budgets = {{ max = 5.0, "*" = 50.0 }}
webhook_url = "{notices}"
public_url = "{self.url}"
grace_seconds = 0
access_log = false
[plugins.serve.hooks.order]
secret = "{SECRET}"
person = "max"
task = '''
{doing("Look at the order `item`", "print(item['number'])")}
'''
"""
        )

    def program(self, *words: str) -> Any:
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            made = start(
                [DELF, *words],
                cwd=self.folder,
                env=environment(DELF_TRUST=str(self.folder)),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(made)
        return made

    async def serve(self) -> None:
        self.server = self.program("serve", "--port", str(self.port), "--tools", "tools.py")
        async with httpx.AsyncClient(base_url=self.url) as client:

            async def is_ready() -> bool:
                assert self.server.poll() is None, (self.folder / "serve.log").read_text()[-3000:]
                with contextlib.suppress(httpx.TransportError):
                    return (await client.get("/ready")).is_success
                return False

            await until(is_ready, 60)

    def end(self) -> None:
        for one in self.started:
            one.kill()
            one.wait()

    def did(self) -> Counter[str]:
        return Counter((self.folder / "did.jsonl").read_text().splitlines())


@dataclass
class Person:
    """A person with a browser, and with a client that shows the API's view."""

    name: str
    page: Page
    client: httpx.AsyncClient
    wrong: list[str] = field(default_factory=list[str])

    async def get(self, path: str, **query: Any) -> Any:
        answered = await self.client.get(path, params=query)
        answered.raise_for_status()
        return answered.json()

    async def at(self, place: str) -> None:
        """Follow a link within the page."""
        await self.page.evaluate("place => { location.hash = place; }", f"#/{place}")

    async def open(self, task_id: str) -> None:
        await self.at(task_id)
        await expect(self.page.locator(f'.meta code[title="{task_id}"]')).to_be_visible()

    def card(self, request_id: str) -> Any:
        return self.page.locator(f"[id='ask-{request_id}']")


Step = Callable[["Journeys", Person], Awaitable[str | None]]


class Journeys:
    """Lets people act at random, and compares page, API and journal.

    Args:
        office: The programs.
        people: The people, by name.
        notices: The notices that the server sent.
        journal: The journal, read without the server.
        seed: The seed of all random choices.
    """

    def __init__(
        self,
        office: Office,
        people: dict[str, Person],
        notices: Notices,
        journal: SqlJournal,
        seed: int,
    ) -> None:
        self.office, self.people, self.notices, self.journal = office, people, notices, journal
        self.chance = random.Random(seed)
        self.steps: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.checks = 0
        self.faults = list[str]()
        self.known = set[str]()
        self.tasks = list[str]()
        self.number = 0
        self.now = ""

    def fault(self, text: str) -> None:
        if text in self.known:  # a lasting fault is reported once
            return
        self.known.add(text)
        line = f"after {self.now}: {text}"
        self.faults.append(line)
        print(line, file=sys.stderr, flush=True)

    def check(self, fits: object, text: str) -> None:
        self.checks += 1
        if not fits:
            self.fault(text)

    # -- the comparison ---------------------------------------------------------------------

    async def compare(self, who: Person) -> None:
        """Wait until the page agrees with the API; fail with the differences if it does not."""
        differences = list[str]()

        async def is_same() -> bool:
            differences[:] = await self.differences(who)
            return not differences

        try:
            await until(is_same, SETTLE)
        except TimeoutError:
            for one in differences:
                self.fault(f"{who.name}'s page: {one}")

    async def differences(self, who: Person) -> list[str]:
        """Return all differences between the page and the API."""
        listed = (await who.get("/tasks", limit=100))["tasks"]
        count = (await who.get("/waiting"))["count"]
        mine = (await who.get("/approvals", mine="true", limit=200))["approvals"]
        shown = await who.page.evaluate(SNAPSHOT)
        found = list[str]()

        def same(what: str, is_: object, wanted: object) -> None:
            self.checks += 1
            if is_ != wanted:
                found.append(f"{what}: {is_!r} where the API says {wanted!r}")

        same("the head", shown["inbox"], f"inbox ({count})" if count else "inbox")
        same(
            "the count of the title", re.match(r"\((\d+)\)", shown["title"]) is not None, count > 0
        )
        same("the title", shown["title"].startswith(f"({count}) ") or count == 0, True)
        same("the count", count, len(mine))
        rows = {row[0]: row for row in shown["rows"]}
        for task in listed:
            row = rows.get(task["task_id"])
            if row is None and shown["isWindowed"]:
                continue  # far from what is seen, a list has gaps in place of rows
            if row is None:
                found.append(f"no row for {task['task_id']} ({task['state']})")
                continue
            same(f"the row of {task['task_id']}", row[1:3], words_of(task))
            if task["is_terminal"]:
                same(f"the cost of {task['task_id']}", money(task["cost_usd"]) in row[3], True)
        unseen = rows.keys() - {task["task_id"] for task in listed}
        if len(listed) < 100:
            same("rows of tasks that are not seen", unseen, set())
        if shown["hash"] == "#/inbox":
            rejectable = await who.get("/approvals", rejectable="true", limit=200)
            same("the inbox", shown["mine"], [one["request_id"] for one in mine])
            others = [one["request_id"] for one in rejectable["approvals"]]
            same("what others decide", shown["others"], others)
        if shown["task"]:
            found += await self.differences_of_task(who, shown)
        elif shown["mine"] or shown["others"]:
            found += await self.differences_of_cards(who, shown["cards"])
        return found

    async def differences_of_task(self, who: Person, shown: dict[str, Any]) -> list[str]:
        answered = await who.client.get(f"/tasks/{shown['task']}")
        if answered.status_code == 404:
            return []
        task = answered.json()
        found = list[str]()
        if "then:" in shown["state"]:  # a replay
            return found
        wanted = words_of(task)[0]
        if shown["state"] != wanted:
            found.append(f"the state of {task['task_id']}: {shown['state']!r}, not {wanted!r}")
        waiting = task["approvals"]
        cards = {card["id"]: card for card in shown["cards"]}
        found += [f"no card for {name}" for name in waiting if name not in cards]
        open_cards = [name for name, card in cards.items() if not card["decided"]]
        found += [
            f"an open card of {name}, which is decided"
            for name in open_cards
            if name not in waiting
        ]
        if task["is_terminal"] and task["cost_usd"] is not None:
            self.checks += 1
            if money(task["cost_usd"]) not in shown["figures"]:
                found.append(f"the cost: {shown['figures']!r}, not {task['cost_usd']}")
        if task["state"] == "done" and task["result"] and len(task["result"]) < 200:
            self.checks += 1
            if squeezed(task["result"]) not in squeezed(shown["answer"]):
                found.append(f"the answer: {shown['answer']!r}, not {task['result']!r}")
        if bool(shown["jump"]) != bool(waiting):
            found.append(f"the jump button: {shown['jump']!r} with {len(waiting)} requests")
        elif waiting:
            decides = any([(await who.get(f"/approvals/{name}"))["can_decide"] for name in waiting])
            if ("for you" in shown["jump"]) != decides:
                found.append(f"the jump button: {shown['jump']!r}, can decide: {decides}")
        return found + await self.differences_of_cards(who, shown["cards"])

    async def differences_of_cards(self, who: Person, cards: Sequence[Any]) -> list[str]:
        found = list[str]()
        for card in cards:
            known = await who.client.get(f"/approvals/{card['id']}")
            if known.status_code == 404:
                found.append(f"a card of {card['id']}, which the API does not know")
                continue
            one = known.json()
            text = squeezed(card["text"])
            for fact in one["facts"]:
                self.checks += 1
                if fact["kind"] in IN_CARD or len(fact["text"]) > 2000 or card["isWriting"]:
                    continue
                if squeezed(fact["text"]) not in text:
                    found.append(f"the card of {card['id']} does not say {fact}")
            if one["state"] != "waiting":
                if not card["decided"]:
                    found.append(f"{card['id']} is {one['state']}, and its card is open")
                by = (one.get("decided") or {}).get("by")
                if (
                    by
                    and card["decided"]
                    and one["state"] != "expired"
                    and by not in card["outcome"]
                ):
                    found.append(f"the outcome of {card['id']}: {card['outcome']!r}, not by {by}")
                continue
            if card["isWriting"] or not card["buttons"]:
                continue
            buttons = " ".join(card["buttons"])
            yes = "Answer" if one["is_question"] else "Approve"
            no = "Answer nothing" if one["is_question"] else "Reject"
            offered = (
                any(re.match(rf"{yes}(,|$)", name) for name in card["buttons"]),
                no in buttons,
                "Comment" in buttons,
            )
            wanted = (one["can_decide"], one["can_reject"], one["can_talk"])
            self.checks += 1
            if offered != wanted:
                found.append(f"the buttons of {card['id']}: {card['buttons']}, wanted {wanted}")
            if one["why_not"] and one["why_not"] not in card["outcome"]:
                found.append(f"{card['id']} does not say {one['why_not']!r}: {card['outcome']!r}")
        return found

    async def compare_journal(self) -> None:
        """Check that the API's answer about each task agrees with the task's events."""
        ann = self.people["ann"]
        differences = list[str]()

        async def is_same() -> bool:
            differences.clear()
            for task in (await ann.get("/tasks", limit=40))["tasks"]:
                events = await self.journal.read(task["task_id"])
                wanted = state_of(events).value
                if task["state"] not in (wanted, "interrupted"):
                    differences.append(f"{task['task_id']} is {task['state']}, not {wanted}")
                total = sum(e.cost_usd or 0 for e in events if isinstance(e, ModelReplied))
                is_over = task["is_terminal"] and not is_fork(events)
                if is_over and abs((task["cost_usd"] or 0) - total) > 1e-9:
                    differences.append(f"{task['task_id']} costs {task['cost_usd']}, not {total}")
                self.checks += 2
            return not differences

        try:
            await until(is_same, SETTLE)
        except TimeoutError:
            for one in differences:
                self.fault(f"the API: {one}")

    async def compare_all(self) -> None:
        """Check that the calls did what people decided, and nothing else."""
        calls = Counter[str]()
        for record in await self.journal.find(100_000):
            events = await self.journal.read(record.task_id)
            asked = {e.request_id: e for e in events if isinstance(e, ApprovalRequested)}
            approved = Counter[str]()
            begin = next((e for e in events if isinstance(e, (TaskQueued, TaskStarted))), None)
            setup = {} if begin is None else begin.setup
            asker, shaped = name_of(record.user), set(setup.get(OTHER_AUTHORS_KEY, ()))
            copied = setup.get(COPIED, 0)  # what a fork took over was decided in another task
            before = dict[str, set[str]]()  # request → who had shaped it when it was made
            replayed = is_fork(events)
            for event in events:
                if isinstance(event, ApprovalRequested):
                    before[event.request_id] = {*shaped}
                if isinstance(event, ApprovalDecided) and event.request_id in asked:
                    request = asked[event.request_id]
                    if event.decision == "approved":
                        arguments = event.arguments or request.arguments
                        approved[call_text(request.action, arguments)] += 1
                        if event.seq <= copied or event.source != "person":
                            continue
                        by = {event.by, *event.others}
                        shapers = before[event.request_id]
                        if request.action in ("send", "pay"):
                            words = f"{request.action} of {record.task_id}, asked by {asker}"
                            self.check(not by & shapers, f"{by} of {shapers} approved {words}")
                            is_asker = request.action == "send" and asker in by
                            self.check(not is_asker, f"{by} approved {words}")
                            count = 1 if request.action == "send" else 2
                            self.check(len(by) == count, f"{by} approved {words}")
                    elif event.decision in ("edited", "changes_requested") or (
                        event.decision == "rejected" and event.reason not in (None, "", NO_REASON)
                    ):
                        shaped.add(event.by)
                        if event.decision == "edited" and request.action == "note":
                            approved[
                                call_text("note", {**request.arguments, **(event.arguments or {})})
                            ] += 1
                if (
                    isinstance(event, CallFinished)
                    and event.status == "ok"
                    and event.action in ("send", "pay", "note")
                    and not replayed
                ):
                    begun = next(
                        e
                        for e in events
                        if isinstance(e, CallStarted) and e.call_id == event.call_id
                    )
                    calls[call_text(event.action, begun.arguments)] += 1
                    if event.action in ("send", "pay"):
                        text = call_text(event.action, begun.arguments)
                        self.check(
                            approved[text] > 0, f"{text} of {record.task_id} without approval"
                        )
            ends = [e for e in events if isinstance(e, TaskFinished)]
            self.check(
                len(ends) <= 1 or record.state != "done", f"{record.task_id} has {len(ends)} ends"
            )
        did = self.office.did()
        for text, count in calls.items():
            self.check(
                did[text] >= count,
                f"{text} is recorded {count} times and was done {did[text]} times",
            )
        asked = Counter(
            one["request_id"]
            for one in self.notices.received
            if one["event"] == "approval_requested"
        )
        self.check(
            all(n == 1 for n in asked.values()),
            f"announced more than once: {[k for k, n in asked.items() if n > 1]}",
        )
        ended = Counter(
            one["task_id"] for one in self.notices.received if one["event"] == "task_finished"
        )
        self.check(
            all(n == 1 for n in ended.values()),
            f"ends announced more than once: {[k for k, n in ended.items() if n > 1]}",
        )

    # -- the whole ---------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        order = [*STEPS]
        self.chance.shuffle(order)
        while time.monotonic() < end:
            step = order.pop() if order else self.chance.choices([*STEPS], [*STEPS.values()])[0]
            who = self.chance.choice([*self.people.values()])
            await self.one(step, who)
        await self.compare_all()

    async def one(self, step: Step, who: Person) -> None:
        name = step.__name__
        self.now = f"{name} of {who.name} (step {sum(self.steps.values())})"
        self.steps[name] += 1
        try:
            async with asyncio.timeout(90):
                done = await step(self, who)
            if done is None:
                self.steps[f"{name}, nothing to do"] += 1
            else:
                self.now += f": {done}"
        except (BrowserError, AssertionError, httpx.HTTPError, TimeoutError) as error:
            self.failed[name] += 1
            self.fault(f"{type(error).__name__}: {error!s:.600}")
            place = self.office.folder / f"fault-{len(self.faults)}.png"
            with contextlib.suppress(BrowserError):
                await who.page.screenshot(path=place)
                await who.page.reload()
        for other in self.people.values():
            if self.chance.random() < 0.25:
                await self.wander(other)
            await self.compare(other)
            for text in other.wrong:
                self.fault(f"the console of {other.name}'s page: {text}")
            other.wrong.clear()
        await self.compare_journal()

    async def wander(self, who: Person) -> None:
        seen = [one["task_id"] for one in (await who.get("/tasks", limit=20))["tasks"]]
        place = self.chance.choice(["", "inbox", "inbox", *seen[:6]])
        await who.at(place)
        if place.startswith("task_"):
            await expect(who.page.locator(f'.meta code[title="{place}"]')).to_be_visible()

    async def ended(self, who: Person, *states: str) -> dict[str, Any] | None:
        """Return a task of a person that is over."""
        states = states or ("done",)
        own = [t for t in (await who.get("/tasks", limit=60))["tasks"] if t["state"] in states]
        return self.chance.choice(own) if own else None

    async def request(self, who: Person, right: str = "can_reject") -> dict[str, Any] | None:
        every = (await who.get("/approvals", limit=200))["approvals"]
        able = [one for one in every if one[right]]
        return self.chance.choice(able) if able else None

    async def show(self, who: Person, request: dict[str, Any]) -> Any:
        """Return the card of a request, in its task or in the inbox."""
        if self.chance.random() < 0.5 and (request["can_decide"] or request["can_reject"]):
            await who.at("inbox")
        else:
            await who.open(request["task_id"])
        card = who.card(request["request_id"])
        await expect(card).to_be_visible()
        return card


def words_of(task: dict[str, Any]) -> list[str]:
    """Return the words of the page for a task's state and for its group."""
    state = TaskState(task["state"])
    words = STATE_WORDS[state]
    if state is TaskState.WAITING and not task["waits_for_you"]:
        words = WAITING_FOR_OTHERS_WORDS
    text = f"{words.mark} {words.text}"
    is_group = state in (TaskState.WAITING, TaskState.RUNNING, TaskState.QUEUED)
    title = words.text if is_group else "earlier"
    return [text, title[0].upper() + title[1:]]


def money(usd: float | None) -> str:
    """Format an amount like the page, by code independent of it."""
    if usd is None:
        return "cost unknown"
    if usd == 0:
        return "$0"
    digits = 0
    while usd * 10**digits < 1 and digits < 12:
        digits += 1
    return f"${usd:.{max(2, min(8, digits + 1))}f}"


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def name_of(user: str | None) -> str:
    return "local" if user is None else user.partition(":")[0]


def call_text(action: str, arguments: Any) -> str:
    """Return the text that the tools record for a call."""
    full = dict(arguments)
    if action == "send":
        full = {"to": full["to"], "copies": full.get("copies", 1)}
    if action == "pay":
        full = {"to": full["to"], "euros": float(full["euros"])}
    return json.dumps([action, full])


def is_fork(events: Sequence[Event]) -> bool:
    return any(getattr(e, "message", "").startswith("forked from") for e in events)


# -- the steps --------------------------------------------------------------------------------


async def start_task(of: Journeys, who: Person) -> str:
    """Type a task into the box, and check that its card shows its answer or its failure."""
    of.number += 1
    to, copies = of.chance.choice(NAMES), of.chance.randint(1, 5)
    kinds = {
        "looks": "print((await look(3))['name'])",
        "sends": f"print(await send({to!r}, copies={copies}))",
        "pays": f"print(await pay({to!r}, {copies * 10}))",
        "notes": f"print(await note('note {of.number} of {who.name} ' + {to!r}))",
        "notes the same": "print(await note('always the same'))",
        "asks": "print(await ask('Which colour?', ['red', 'blue']))",
        "asks for a text": "print(await ask('What is the name?'))",
        "asks for a number": "print(await ask('How many?', answer='number') + 1)",
        "fails": f"await look({copies})\nraise ValueError('no such row {of.number}')",
        "writes": f"add_to_output_files('rows.csv', [{{'a': {copies}}}])\nprint('written')",
        "sends to many": "import asyncio\nprint(await asyncio.gather(*(send(f'many {n}') for n in range(3)), return_exceptions=True))",
        "catches": f"try:\n    await send({to!r})\nexcept Exception as no:\n    print('not sent', no)\nprint(await note('n{of.number}'))",
        "takes long": "import asyncio\nfor n in range(20):\n    print(n)\n    await asyncio.sleep(0.2)",
    }
    kind = of.chance.choice([*kinds])
    text = doing(f"Task {of.number} of {who.name} that {kind} for {to}", kinds[kind])
    await who.page.get_by_label("A task, in plain words").fill(text)
    before = await who.page.evaluate("location.hash")
    await who.page.get_by_role("button", name="Run", exact=True).click()
    await who.page.wait_for_function(
        "before => location.hash !== before && location.hash.startsWith('#/task_')", arg=before
    )
    task_id = (await who.page.evaluate("location.hash")).split("/")[1]
    of.tasks.append(task_id)
    await expect(who.page.locator(f'.meta code[title="{task_id}"]')).to_be_visible()
    await expect(who.page.locator(".state")).to_contain_text(
        re.compile("waiting|done|failed|running")
    )
    return f"{kind} {task_id}"


async def approve(of: Journeys, who: Person) -> str | None:
    request = await of.request(who, "can_decide")
    if request is None or request["is_question"]:
        return None
    card = await of.show(who, request)
    remembering = card.get_by_label("Remember")
    how = "once"
    if await remembering.count() and of.chance.random() < 0.3:
        how = of.chance.choice(["task call", "task action", "until_revoked call"])
        await remembering.select_option(how)
    async with answered(who, request):
        await card.get_by_role("button", name=re.compile("^Approve")).click()
    await decided(of, who, request, "approved")
    return f"{request['action']} {request['request_id']} of {request['task_id']} ({how})"


async def decided(of: Journeys, who: Person, request: dict[str, Any], wanted: str) -> None:
    """Check that everybody sees the decision, and that the request is no longer open."""
    for other in of.people.values():
        answered = await other.client.get(f"/approvals/{request['request_id']}")
        if answered.status_code == 404:
            of.check(other.name == "max", f"{other.name} does not see {request['request_id']}")
            continue
        now = answered.json()
        if now["state"] == "waiting":
            votes = [f for f in now["facts"] if f["kind"] == "vote"]
            of.check(
                wanted == "approved" and votes, f"{request['request_id']} is open after {wanted}"
            )
        else:
            of.check(
                now["state"] == wanted, f"{request['request_id']} is {now['state']}, not {wanted}"
            )
            of.check(
                now["decided"]["by"] == who.name,
                f"decided by {now['decided']['by']}, not {who.name}",
            )


async def reject(of: Journeys, who: Person) -> str | None:
    request = await of.request(who)
    if request is None or request["is_question"]:
        return None
    card = await of.show(who, request)
    await card.get_by_role("button", name="Reject…").click()
    reason = of.chance.choice(["", f"not {request['task_id'][-4:]} <i>now</i>"])
    await card.get_by_label("Reason").fill(reason)
    async with answered(who, request):
        await card.get_by_role("button", name="Reject", exact=True).click()
    await decided(of, who, request, "rejected")
    return f"{request['request_id']} ({reason})"


@contextlib.asynccontextmanager
async def answered(who: Person, request: dict[str, Any]) -> AsyncGenerator[None]:
    """Wait for the server's answer to the decision made within the block."""
    place = f"/approvals/{request['request_id']}"
    async with who.page.expect_response(
        lambda one: one.url.endswith(place) and one.request.method == "POST"
    ) as found:
        yield
    answer = await found.value
    assert answer.ok, f"{answer.status}: {await answer.text()}"


async def edit(of: Journeys, who: Person) -> str | None:
    request = await of.request(who, "can_decide")
    if request is None or request["is_question"]:
        return None
    card = await of.show(who, request)
    await card.get_by_role("button", name="Edit…").click()
    field = card.get_by_label(
        {"send": "to", "pay": "to", "note": "text"}[request["action"]], exact=True
    )
    await field.fill(f"edited by {who.name} {of.number}")
    async with answered(who, request):
        await card.get_by_role("button", name=re.compile("^(Approve as edited|Edit, for)")).click()
    await decided(of, who, request, "edited")
    return f"{request['action']} {request['request_id']}"


async def ask_changes(of: Journeys, who: Person) -> str | None:
    request = await of.request(who)
    if request is None or not request["takes_changes"]:
        return None
    card = await of.show(who, request)
    await card.get_by_role("button", name="Ask for changes…").click()
    code = f"print(await note('changed for {who.name} {of.number}'))"
    await card.get_by_label("Changes").fill(doing("otherwise", code))
    async with answered(who, request):
        await card.get_by_role("button", name="Ask for changes", exact=True).click()
    await decided(of, who, request, "changes_requested")
    return request["request_id"]


async def comment(of: Journeys, who: Person) -> str | None:
    request = await of.request(who, "can_talk")
    if request is None:
        return None
    await who.open(request["task_id"])
    card = who.card(request["request_id"])
    await card.get_by_role("button", name="Comment…").click()
    of.number += 1
    text = f"comment {of.number} <script>alert(1)</script> by {who.name}"
    await card.get_by_label("Comment").fill(text)
    await card.get_by_role("button", name="Comment", exact=True).click()
    await expect(card).to_contain_text(text)
    return request["request_id"]


async def assign(of: Journeys, who: Person) -> str | None:
    request = await of.request(who, "can_talk")
    if request is None:
        return None
    await who.open(request["task_id"])
    card = who.card(request["request_id"])
    await card.get_by_role("button", name="Assign…").click()
    able = (await who.get(f"/approvals/{request['request_id']}/assignable"))["people"]
    name = of.chance.choice(["", *able])
    await card.get_by_label("Assign to").select_option(name)
    await card.get_by_role("button", name="Assign", exact=True).click()
    await expect(card.get_by_label("Assign to")).to_have_count(0)
    known = await who.get(f"/approvals/{request['request_id']}")
    of.check((known["assignee"] or "") == name, f"assigned to {known['assignee']}, not {name}")
    return f"{request['request_id']} to {name}"


async def answer_question(of: Journeys, who: Person) -> str | None:
    every = (await who.get("/approvals", limit=200))["approvals"]
    able = [one for one in every if one["is_question"] and one["can_decide"]]
    if not able:
        return None
    request = of.chance.choice(able)
    card = await of.show(who, request)
    field = card.get_by_label("Answer", exact=True)
    asked = request["arguments"]
    given = (
        "blue"
        if asked.get("options")
        else "7"
        if asked.get("answer") == "number"
        else f"a <b>name</b> {of.number}"
    )
    await (field.select_option(given) if asked.get("options") else field.fill(given))
    async with answered(who, request):
        await card.get_by_role("button", name=re.compile("^Answer$")).click()
    await decided(of, who, request, "answered")
    return f"{request['request_id']}: {given}"


async def decide_at_once(of: Journeys, who: Person) -> str | None:
    """Let two people decide the same request concurrently; one of them gets an error."""
    one, other = of.chance.sample([*of.people.values()], 2)
    every = {
        r["request_id"]: r
        for r in (await one.get("/approvals", limit=200))["approvals"]
        if r["can_reject"]
    }
    able = [
        r
        for r in (await other.get("/approvals", limit=200))["approvals"]
        if r["can_reject"] and r["request_id"] in every and not r["is_question"]
    ]
    if not able:
        return None
    request = of.chance.choice(able)
    cards = list[Any]()
    for each in (one, other):
        await each.open(request["task_id"])
        card = each.card(request["request_id"])
        await card.get_by_role("button", name="Reject…").click()
        await card.get_by_label("Reason").fill(f"by {each.name}")
        cards.append(card)
    clicks = [card.get_by_role("button", name="Reject", exact=True) for card in cards]
    # The slower one may find the card decided already.
    await asyncio.gather(*(click.click(timeout=3000) for click in clicks), return_exceptions=True)

    async def is_over() -> bool:
        return (await one.get(f"/approvals/{request['request_id']}"))["state"] != "waiting"

    await until(is_over)
    now = await one.get(f"/approvals/{request['request_id']}")
    for card in cards:
        await expect(card.locator(".outcome")).to_contain_text(
            f"rejected by {now['decided']['by']}"
        )
    return request["request_id"]


async def many_at_once(of: Journeys, who: Person) -> str | None:
    """Select all similar requests in the inbox, and reject them."""
    await who.at("inbox")
    rows = who.page.locator(".inbox-row")
    if not await rows.count():
        return None
    await rows.first.get_by_role("button", name="Choose all like this").click()
    button = who.page.locator(".many").get_by_role("button", name=re.compile("^Reject"))
    words = await button.text_content()
    await button.click()
    await expect(who.page.locator(".many")).to_be_hidden()
    return words


async def stop_task(of: Journeys, who: Person) -> str | None:
    task = await of.ended(who, "waiting", "running", "queued")
    if task is None:
        return None
    await who.open(task["task_id"])
    await who.page.locator(".ways").get_by_role("button", name="Stop").click()
    await expect(who.page.locator(".state")).to_contain_text(re.compile("stopped|done|failed"))
    for one in (await who.get("/approvals", limit=200))["approvals"]:
        of.check(
            one["task_id"] != task["task_id"], f"{one['request_id']} waits after its task stopped"
        )
    return task["task_id"]


async def run_again(of: Journeys, who: Person) -> str | None:
    task = await of.ended(who, "done", "failed", "stopped")
    if task is None or task["task"].startswith("routine"):  # a routine asks no model
        return None
    await who.open(task["task_id"])
    page = who.page
    before = f"#/{task['task_id']}"
    if of.chance.random() < 0.5:
        await page.get_by_role("button", name="Run again", exact=True).click()
        await expect(page.locator(".kept")).to_contain_text("earlier task")
        await page.get_by_role("button", name="Run", exact=True).click()
        earlier = (await of.journal.read(task["task_id"]))[0]
        model = getattr(earlier, "setup", {}).get(MODEL) or "first"
    else:
        await page.get_by_label("Run again with another model").select_option("second")
        model = "second"
    await page.wait_for_function("before => !location.hash.startsWith(before)", arg=before)
    made = (await page.evaluate("location.hash")).split("/")[1]
    await expect(page.locator(f'.meta code[title="{made}"]')).to_be_visible()
    await expect(page.locator(".meta")).to_contain_text(f"model: {model}")
    first = (await of.journal.read(made))[0]
    whose = {name_of(first.user)}
    of.check(whose == {who.name}, f"{made} is done again by {who.name} and belongs to {whose}")
    return f"{task['task_id']} as {made} with {model}"


async def fork(of: Journeys, who: Person) -> str | None:
    task = await of.ended(who, "done", "failed")
    if task is None:
        return None
    await who.open(task["task_id"])
    page = who.page
    await expect(page.locator(".replay")).to_be_visible()
    before = f"#/{task['task_id']}"
    if of.chance.random() < 0.5:
        slider = page.get_by_role("slider", name="Replay")
        most = int(await slider.get_attribute("max") or 0)
        at = of.chance.randint(max(1, most // 2), most - 1)
        await slider.fill(str(at))
        await expect(page.locator(".state")).to_contain_text("then:")
        await page.get_by_role("button", name="Continue from here as a new task").click()
    else:
        change = page.get_by_role("button", name="Change the script…")
        if not await change.count():
            return None
        await change.click()
        await page.get_by_label("The script").fill(
            "print('another script', (await look(5))['name'])"
        )
        await page.get_by_role("button", name="Run this script").click()
    refused = page.locator(".failure:visible")
    await page.wait_for_function(
        "before => !location.hash.startsWith(before) || document.querySelector('.failure:not([hidden])')?.textContent",
        arg=before,
    )
    if (await page.evaluate("location.hash")).startswith(before):
        return f"{task['task_id']} cannot be forked there: {await refused.first.text_content()}"
    made = (await page.evaluate("location.hash")).split("/")[1]
    await expect(page.locator(f'.meta code[title="{made}"]')).to_be_visible()
    return f"{task['task_id']} as {made}"


async def replay(of: Journeys, who: Person) -> str | None:
    task = await of.ended(who, "done", "failed", "stopped")
    if task is None:
        return None
    await who.open(task["task_id"])
    slider = who.page.get_by_role("slider", name="Replay")
    most = int(await slider.get_attribute("max") or 0)
    await slider.fill(str(most // 2))
    await expect(who.page.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(who.page.locator(".ask .primary")).to_have_count(0)
    await slider.fill(str(most))
    await expect(who.page.locator(".state")).not_to_contain_text("then:")
    return task["task_id"]


async def search(of: Journeys, who: Person) -> str | None:
    seen = (await who.get("/tasks", limit=30))["tasks"]
    if not seen:
        return None
    task = of.chance.choice(seen)
    words = " ".join(task["task"].split()[:2])
    box = who.page.locator("#search")
    await box.fill(words)
    await expect(who.page.locator(".found")).to_be_visible()
    await expect(who.page.locator(f'.row[data-task="{task["task_id"]}"]')).to_be_visible()
    await who.page.get_by_role("button", name="Show all tasks").click()
    await expect(who.page.locator(".found")).to_be_hidden()
    return words


async def go_on(of: Journeys, who: Person) -> str | None:
    own = [
        t
        for t in (await who.get("/tasks", limit=60))["tasks"]
        if t["state"] == "done" and t["asked_by"] == who.name
    ]
    if not own:
        return None
    task = of.chance.choice(own)
    await who.open(task["task_id"])
    box = who.page.get_by_label("Go on in this conversation")
    if not await box.is_visible():
        return None
    of.number += 1
    await box.fill(doing(f"And then {of.number}", "print('went on')"))
    await who.page.get_by_role("button", name="Go on", exact=True).click()
    await expect(who.page.locator(".answer")).to_contain_text("went on")
    await expect(who.page.locator(".before")).to_contain_text("before this one")
    return task["task_id"]


async def remembered(of: Journeys, who: Person) -> str | None:
    await who.at("remembered")
    known = (await who.get("/remembered"))["remembered"]
    sections = who.page.locator(".remembered section")
    await expect(sections).to_have_count(len(known))
    if not known:
        return "none"
    await sections.first.get_by_role("button", name="Revoke").click()
    await expect(sections).to_have_count(len(known) - 1)
    of.check(
        len((await who.get("/remembered"))["remembered"]) == len(known) - 1,
        "a revoked decision is kept",
    )
    return known[0]["action"]


async def manage_people(of: Journeys, who: Person) -> str | None:
    """Invite a person as administrator, try their key, then change and remove them."""
    ann = of.people["ann"]
    page = ann.page
    await ann.at("people")
    of.number += 1
    name = f"guest{of.number}"
    await page.get_by_text("Add or change a person").click()
    form = page.locator(".invite form")
    await form.get_by_label("Name").fill(name)
    await form.get_by_label("decide", exact=True).uncheck()
    await form.get_by_role("button", name="Save").click()
    key = (await page.locator(".made code").text_content()) or ""
    async with httpx.AsyncClient(base_url=of.office.url, headers=bearer(key)) as guest:
        known = (await guest.get("/session")).json()
        of.check(
            (known["name"], known["scope"], "decide" in known["rights"]) == (name, "own", False),
            f"{known}",
        )
        of.check((await guest.get("/tasks")).json()["tasks"] == [], f"{name} sees tasks of others")
        row = page.locator(
            ".remembered > li", has=page.get_by_role("heading", name=name, exact=True)
        )
        await expect(row).to_contain_text("sees their own tasks")
        if of.chance.random() < 0.5:
            await row.get_by_role("button", name="Revoke key first").click()
            await expect(row.get_by_role("button", name="Revoke key first")).to_have_count(0)
        await row.get_by_role("button", name=f"Remove {name}").click()
        await expect(page.locator(".remembered > li", has_text=f"{name} removed")).to_be_visible()
        of.check(
            (await guest.get("/tasks")).status_code == 401, f"the key of {name} works after its end"
        )
    return name


async def audit(of: Journeys, who: Person) -> str:
    """Compare the page's list with the export, and with the decisions in the journal."""
    ann = of.people["ann"]
    rows = ann.page.locator("section[aria-label='Who did what'] tbody tr")

    async def is_same() -> bool:
        """Return True if page and API agree, or if entries were added meanwhile."""
        before = (await ann.get("/audit", limit=200))["entries"]
        await ann.at("sessions")
        await expect(rows).to_have_count(0)
        await ann.at("people")
        await expect(rows).not_to_have_count(0)
        shown = await rows.evaluate_all(
            "rows => rows.map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))"
        )
        entries = (await ann.get("/audit", limit=200))["entries"]
        return before != entries or shown == [
            [e["by"], e["what"], e["about"], e["via"]] for e in entries
        ]

    of.check(await is_same(), "the page's audit is another one than the API's")
    answered = await ann.client.get("/audit", params={"format": "csv"})
    exported = [*csv.DictReader(io.StringIO(answered.text))]
    by = Counter((row["what"], row["request_id"]) for row in exported if row["request_id"])
    for record in await of.journal.find_requests(waiting=False, limit=100_000):
        if record.decided is None or record.decided.source != "person":
            continue
        key = (str(record.decided.decision), record.requested.request_id)
        of.check(by[key] == 1, f"the audit has {key} {by[key]} times")
    return f"{len(exported)} entries"


async def schedule(of: Journeys, who: Person) -> str:
    """Add, view, pause, test and remove a schedule that starts a task for each new file."""
    page = who.page
    await who.at("schedules")
    of.number += 1
    name = f"files{of.number}"
    await page.get_by_text("Add a schedule").click()
    form = page.get_by_role("form", name="Add a schedule")
    await form.get_by_label("Name").fill(name)
    await form.get_by_label("Times").fill("* * * * * *")
    await form.get_by_label("Task", exact=True).fill(
        doing(f"Look at the new file of {who.name}", "print('seen', item)")
    )
    await form.get_by_label("For each new item of").fill('drop.list_files(path="data")')
    await form.get_by_role("button", name="Add").click()
    section = page.get_by_role("region", name=name, exact=True)
    await expect(section).to_contain_text('drop.list_files(path="data")')

    async def looks() -> list[dict[str, Any]]:
        past = (await who.get(f"/schedules/{name}/history"))["firings"]
        return [one for one in past if not one["test"]]

    async def has_looked() -> bool:
        return any(one["note"] for one in await looks())

    async def has_started() -> list[str]:
        return [task_id for one in await looks() for task_id in one["task_ids"]]

    await until(has_looked, 60)
    (of.office.folder / "data" / f"{name}.txt").write_text("new")
    started = await until(has_started, 60)
    of.check(len(started) == 1, f"one file started {started}")
    await section.get_by_role("button", name=f"Pause {name}").click()
    await expect(section).to_contain_text("paused; ")
    await section.get_by_text("History").click()
    await expect(section.locator(f'a[href="#/{started[0]}"]')).to_be_visible()
    first = (await of.journal.read(started[0]))[0]
    of.check(
        name_of(first.user) == who.name, f"{started[0]} of the schedule belongs to {first.user}"
    )
    others = [p for p in of.people.values() if p.name == "max" and who.name != "max"]
    for other in others:
        seen = [one["name"] for one in (await other.get("/schedules", limit=500))["schedules"]]
        of.check(name not in seen, f"{other.name} sees the schedule of {who.name}")
    await section.get_by_role("button", name=f"Remove {name}").click()
    await expect(section).to_have_count(0)
    return f"{name} started {started}"


async def webhook(of: Journeys, who: Person) -> str:
    """Send a message of another service three times, and check that it starts one task."""
    of.number += 1
    body = json.dumps({"number": of.number, "name": "<b>x</b>"}).encode()
    signed = signature(SECRET, f"msg-{of.number}", int(time.time()), body)
    async with httpx.AsyncClient(base_url=of.office.url) as client:
        headers = {**signed, "content-type": "application/json"}
        answers = await asyncio.gather(
            *(client.post("/hooks/order", content=body, headers=headers) for _ in range(3))
        )
    ids = {answered.json()["task_id"] for answered in answers}
    of.check(len(ids) == 1, f"one message started {ids}")
    (task_id,) = ids
    await who.open(task_id)
    await expect(who.page.locator(".answer")).to_contain_text(str(of.number))
    await expect(who.page.locator(".meta")).to_contain_text("asked by max")
    return task_id


async def notices(of: Journeys, who: Person) -> str:
    """Choose notices, and check that the choice survives a reload."""
    page = who.page
    await who.at("sessions")
    box = page.get_by_label("A task of mine has ended")
    await expect(box).to_be_visible()
    before = await box.is_checked()
    async with page.expect_response(
        lambda one: one.url.endswith("/notices") and one.request.method == "POST"
    ):
        await box.click()
    known = await who.get("/notices")
    of.check(("ended" in known["notices"]) != before, f"{known} after a click on {before}")
    await page.reload()
    await expect(box).to_be_visible()
    of.check(await box.is_checked() != before, "the choice is gone after a reload")
    return f"ended {not before}"


async def budget(of: Journeys, who: Person) -> str:
    """Compare the rest of the budget on the page, in the API and in the journal."""
    await who.page.reload()
    await expect(who.page.locator("#who")).to_contain_text("log out")
    known = (await who.get("/session"))["budgets"]
    (mine,) = [one for one in known if one["name"] == who.name]
    costs = 0.0
    for record in await of.journal.find(100_000):
        if name_of(record.user) != who.name:
            continue
        events = await of.journal.read(record.task_id)
        if not is_fork(events):
            costs += sum(e.cost_usd or 0 for e in events if isinstance(e, ModelReplied))
        else:
            costs += record.cost_usd or 0
    of.check(
        abs(mine["cost_usd"] - costs) < 0.02,
        f"the budget of {who.name} says {mine['cost_usd']}, the journal {costs}",
    )
    await expect(who.page.locator(".budgets")).to_contain_text(f"{who.name}: ")
    text = await who.page.locator(".budgets").text_content() or ""
    shown = float(re.search(r"\$([\d.]+) of", text).group(1))  # pyright: ignore[reportOptionalMemberAccess]
    of.check(abs(shown - mine["left_usd"]) < 0.02, f"the page says {text}, the API {mine}")
    return text


async def routine(of: Journeys, who: Person) -> str | None:
    """Save a task as a routine, and run it without a model."""
    looked = [
        t for t in (await who.get("/tasks", limit=60))["tasks"] if " that looks " in t["task"]
    ]
    looked = [t for t in looked if t["state"] == "done"]
    if not looked:
        return None
    task = of.chance.choice(looked)
    page = who.page
    await who.open(task["task_id"])
    await page.get_by_role("button", name="Keep as a routine").click()
    of.number += 1
    name = f"routine{of.number}"
    await page.get_by_label("name", exact=True).fill(name)
    await page.get_by_role("button", name="Show it", exact=True).click()
    await page.get_by_role("button", name="Save").click()
    form = page.get_by_role("form", name=f"Run {name}")
    await form.get_by_role("button", name="Run").click()
    await expect(page.locator(".state")).to_contain_text("done")
    result = (await who.get(f"/tasks/{task['task_id']}"))["result"]  # a fork has another script
    await expect(page.locator(".answer")).to_contain_text(result.strip())
    await expect(page.locator(".figures")).to_contain_text("$0 ")
    return f"{name} of {task['task_id']}"


async def log_out(of: Journeys, who: Person) -> str:
    await who.page.get_by_role("button", name="log out").click()
    await expect(who.page.get_by_label("API key")).to_be_visible()
    await expect(who.page.locator(".row")).to_have_count(0)
    await log_in(who)
    return "and in"


async def log_in(who: Person) -> None:
    await who.page.get_by_label("API key").fill(f"{who.name}-key")
    await who.page.get_by_role("button", name="Log in", exact=True).click()
    await expect(who.page.locator("#who")).to_contain_text("log out")


async def restart(of: Journeys, who: Person) -> str:
    """Kill the server; pages reconnect by themselves, and no waiting task is lost."""
    before = {
        one["request_id"]
        for one in (await of.people["ann"].get("/approvals", limit=200))["approvals"]
    }
    of.office.server.kill()
    of.office.server.wait()
    await of.office.serve()
    for other in of.people.values():
        await expect(other.page.locator("body")).not_to_have_class(
            re.compile("stale"), timeout=30_000
        )

    async def all_go_on() -> bool:
        return not (await of.people["ann"].get("/tasks", state="interrupted"))["tasks"]

    await until(all_go_on, 40)
    after = {
        one["request_id"]
        for one in (await of.people["ann"].get("/approvals", limit=200))["approvals"]
    }
    of.check(before <= after, f"requests lost by the restart: {before - after}")
    return f"{len(before)} requests waited"


STEPS: Final[dict[Step, int]] = {
    start_task: 24, approve: 14, reject: 6, edit: 6, ask_changes: 5, comment: 5, assign: 4,
    answer_question: 8, decide_at_once: 4, many_at_once: 2, stop_task: 3, run_again: 4, fork: 5,
    replay: 3, search: 3, go_on: 3, remembered: 2, manage_people: 2, audit: 2, schedule: 2,
    webhook: 3, notices: 2, budget: 3, routine: 2, log_out: 2, restart: 1,
}  # fmt: skip
"""The actions of people, with their frequencies."""


@contextlib.asynccontextmanager
async def opened(browser: Browser, office: Office) -> AsyncGenerator[dict[str, Person]]:
    """Open three people's browsers, each logged in."""
    async with contextlib.AsyncExitStack() as stack:
        people = dict[str, Person]()
        for name, width in (("max", 390), ("lea", 1280), ("ann", 1280)):
            context = await browser.new_context(viewport={"width": max(width, 900), "height": 800})
            stack.push_async_callback(context.close)
            client = httpx.AsyncClient(
                base_url=office.url, headers=bearer(f"{name}-key"), timeout=30
            )
            await stack.enter_async_context(client)
            page = await context.new_page()
            page.set_default_timeout(20_000)
            one = people[name] = Person(name, page, client)
            page.on("dialog", lambda dialog: dialog.accept())
            page.on("pageerror", lambda error, one=one: one.wrong.append(f"{error}"))
            await page.goto(office.url)
            await log_in(one)
        yield people


async def journey(folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Start all programs, let people work for some seconds, and return what was seen."""
    expect.set_options(timeout=20_000)
    with own_postgres(clock=False) as server, OpenAIServer(answer) as model:
        notices = Notices()
        office = Office(folder, server.url, model.base_url, notices.url)
        journal = SqlJournal(server.url)
        try:
            for name, scope, rights in (
                ("max", "own", EVERY[:3]),
                ("lea", "team", EVERY[:3]),
                ("ann", "all", EVERY),
            ):
                await journal.keep_person(
                    person(name, scope=scope, teams=TEAM, rights=rights), None
                )
            await office.serve()
            office.program("runner", "--concurrency", "2")
            program = find_program("chromium-headless-shell", "chromium", "chromium-browser")
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=program, args=["--no-sandbox"]
                )
                async with opened(browser, office) as people:
                    of = Journeys(office, people, notices, journal, seed)
                    await of.run(seconds)
                await browser.close()
        finally:
            office.end()
            notices.shutdown()
            notices.server_close()
            await journal.aclose()
        return {
            "steps": sum(n for name, n in of.steps.items() if "," not in name),
            "by_step": dict(of.steps.most_common()),
            "failed": dict(of.failed),
            "tasks": len(of.tasks),
            "checks": of.checks,
            "notices": len(notices.received),
            "faults": of.faults,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["XDG_DATA_HOME"] = str(folder / "data-home")
        found = asyncio.run(journey(folder, given.minutes * 60, given.seed))
    print(json.dumps({**found, "seconds": round(time.monotonic() - begun)}, indent=1))


if __name__ == "__main__":
    main()
