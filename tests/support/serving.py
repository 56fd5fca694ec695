"""Servers on loopback, in the process of the test, with an agent whose scripts a test writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from delf import Agent, tool
from delf.messages import ModelReply, Usage
from delf.protocols.people import Person, PersonKey, digest_of
from delf_cli.listening import address_of, bind
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script
from delf_serve.app import Application, make_app
from delf_serve.server import make_server
from support.until import until

KEYS = "ada:read+run+decide:ada-key,ben:read:ben-key,cy:read+run:cy-key,dee:read+decide:dee-key"


def people_of(keys: str) -> tuple[list[Person], str]:
    """The people of entries NAME:RIGHTS@SCOPE:KEY, and the other keys, which are the settings'."""
    people, others = list[Person](), list[str]()
    for text in filter(None, keys.split(",")):
        if text.count(":") < 2:
            others.append(text)
            continue
        name, rights, secret = text.split(":")
        allowed, _, scope = rights.partition("@")
        key = PersonKey(label="first", digest=digest_of(secret), made_at=1.0)
        more: Any = {"rights": tuple(allowed.split("+")), "scope": scope or "all"}
        people.append(Person(name=name, uid=f"{name}-uid", made_at=1.0, keys=(key,), **more))
    return people, ",".join(others)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def scripts_of(request: Any) -> str:
    """The script that a test's task is: all after its first line, or the task itself."""
    task = "\n".join(message.text for message in request.messages)
    return script(task.rpartition("```run\n")[2].partition("```")[0])


def doing(code: str, words: str = "do it") -> str:
    """A task whose script is written by the test."""
    return f"{words}\n```run\n{code}\n```"


@dataclass
class Outbox:
    """The effects of the tests' tools."""

    sent: list[tuple[str, int]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)


def tools_of(box: Outbox) -> list[Any]:
    @tool(confirm=True)
    async def send(to: str, copies: int = 1) -> str:
        """Send something to somebody."""
        box.sent.append((to, copies))
        return f"sent {copies} to {to}"

    @tool(confirm=True)
    async def note(orders: list[dict[str, Any]]) -> int:
        """Note orders down."""
        return len(orders)

    @tool(confirm=False)
    async def look(number: int = 0) -> dict[str, Any]:
        """Look something up."""
        return {"number": number, "name": f"thing {number}"}

    @tool(confirm=False)
    async def every() -> list[dict[str, Any]]:
        """Look everything up."""
        return [
            {"number": n, "name": f"thing {n}", "price": price} for n, price in enumerate((9.5, 12))
        ]

    @tool(confirm=False)
    async def hold() -> str:
        """Wait until the test says so."""
        await box.gate.wait()
        return "held"

    @tool(effect="read", confirm=False)
    async def mails(query: str = "") -> list[dict[str, Any]]:
        """List mails, the newest first."""
        return [{"id": query or "first", "subject": "hello"}]

    return [send, note, look, every, hold, mails]


@dataclass
class Served:
    """A server that runs."""

    app: Application
    url: str
    box: Outbox
    client: httpx.AsyncClient

    async def run(self, code: str, words: str = "do it", **more: Any) -> dict[str, Any]:
        answer = await self.client.post("/run", json={"task": doing(code, words), **more})
        assert answer.is_success, answer.text
        return answer.json()

    async def until(self, task_id: str, *states: str) -> dict[str, Any]:
        """The task once it is in one of these states."""

        async def view() -> dict[str, Any] | None:
            found = (await self.client.get(f"/tasks/{task_id}")).json()
            return found if found["state"] in states else None

        return await until(view)

    async def question(self, task_id: str) -> dict[str, Any]:
        """The question of a task."""
        await self.until(task_id, "waiting")
        asked = (await self.client.get("/approvals")).json()["approvals"]
        return next(item for item in asked if item["task_id"] == task_id)

    async def events(self, task_id: str, after: int = 0, until: str = "") -> list[dict]:
        """A task's events as they come, to its end, or to the first of a type."""
        found: list[dict] = []
        headers = {"last-event-id": str(after)} if after else {}
        async with self.client.stream("GET", f"/tasks/{task_id}/events", headers=headers) as answer:
            assert answer.status_code == 200, answer.status_code
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and line != "data: {}":
                    found.append(json.loads(line[6:]))
                if line == "event: end" or (found and found[-1]["type"] == until):
                    return found
        return found


Serve = Callable[..., Any]


@asynccontextmanager
async def serving(
    agent: Agent, box: Outbox, key: str = "", port: int = 0, **options: Any
) -> AsyncIterator[Served]:
    """A server of an agent on a free port of loopback."""
    options.setdefault("grace_seconds", 0)
    people, others = people_of(options.pop("api_key", ""))
    if others:
        options["api_key"] = others
    app = make_app(agent, options, {})
    listener = bind("127.0.0.1", port)
    server = make_server(app)
    work = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started or work.done())
        for one in people:  # another server of the same journal may know them
            await app.tasks.journal.keep_person(one, None)
        if people:
            await app.keys.reload(app.tasks.journal, at_once=True)
        url = address_of(listener)
        headers = bearer(key) if key else {}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=None) as client:
            yield Served(app, url, box, client)
    finally:
        server.should_exit = True
        await work
        listener.close()


def make_agent(
    place: str,
    box: Outbox,
    host: TestHost | None = None,
    cost_usd: float | None = None,
    reply_id: str | None = None,
    connections: tuple[Any, ...] = (),
    **options: Any,
) -> Agent:
    """An agent whose tasks are their scripts, each for a price where one is given."""
    host = host or TestHost.discover(environ={})

    def answer(request: Any) -> Any:
        text = scripts_of(request)
        if cost_usd is None:
            return text
        usage = Usage(input_tokens=100, output_tokens=10)
        more = {"usage": usage, "cost_usd": cost_usd, "reply_id": reply_id}
        return ModelReply(text=text, model="scripted", **more)

    model = ScriptedModel(default=answer)
    host.provide(model.spec, model.factory)
    given: dict[str, Any] = {"journal": "sql", "timeout": 60, "retry_count": 0, "llm": "scripted"}
    given |= {"sandbox": "local", **options}
    return Agent(tools=[*tools_of(box), *connections], host=host, **given)
