"""Users of one agent, each of whom a program keeps in a ContextVar, and what parts of delf see."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from delf import Agent, CallContext, Connection, action, tool
from delf.events import Event, TaskQueued, TaskStarted
from delf.protocols.approval import ApprovalRequest, Approved
from delf.protocols.connection import Allowed, ProposedCall, Verdict
from delf.protocols.sandbox import (
    Available,
    CallRequest,
    Done,
    Outcome,
    Returned,
    ScriptHost,
    SessionSpec,
)
from delf.protocols.strategy import StrategyHost
from delf.specs import ApprovalSpec, ObserverSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel

__all__ = ["office"]
USERS = 50
NAMED = re.compile(r"user-\d+")


class User:
    """Somebody who is logged in; no more than a name that can be referred to weakly."""

    def __init__(self, name: str) -> None:
        self.name = name


NOBODY = User("nobody")
user: contextvars.ContextVar[User] = contextvars.ContextVar("user", default=NOBODY)


def named_in(text: object) -> str:
    """The last user that a text names; texts here name none but the task's own."""
    return NAMED.findall(str(text))[-1]


@dataclass
class Sightings:
    """Each user whom a part of delf should have seen, and whom it saw."""

    all: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    def note(self, part: str, text: object) -> None:
        """Note the present user, in a part that works for the user whom a text names, if any."""
        if NAMED.search(str(text)) is None:
            return
        self.all.append((part, named_in(text), user.get().name))

    @property
    def strangers(self) -> Counter[str]:
        """Count by part how often another user than the task's own was seen."""
        return Counter(part for part, own, seen in self.all if own != seen)

    @property
    def parts(self) -> set[str]:
        """The parts that saw somebody."""
        return {part for part, _, _ in self.all}


class Bank(Connection):
    """The bank."""

    sightings: Sightings

    async def context(self, task: str) -> str:
        self.sightings.note("context", task)
        return ""

    async def check(self, call: ProposedCall) -> Verdict:
        self.sightings.note("async check", call.arguments)
        return Allowed()

    @action(effect="read")
    async def salary(self, name: str) -> str:
        """The salary of a user."""
        self.sightings.note("async action", name)
        await asyncio.sleep(0)
        self.sightings.note("async action, later", name)
        return f"salary of {user.get().name}"

    @action(effect="write")
    async def pay(self, name: str, context: CallContext) -> str:
        """Pay a user."""
        context.say(f"paying {name}")
        self.sightings.note("approved action", name)
        return user.get().name


class Desk(Connection):
    """The desk."""

    sightings: Sightings

    def check(self, call: ProposedCall) -> Verdict:
        self.sightings.note("plain check", call.arguments)
        return Allowed()

    @action(effect="write")
    def file(self, name: str) -> str:
        """File something of a user."""
        self.sightings.note("plain action", name)
        user.set(User("left by an earlier call in its thread"))
        return name


class Facts:
    """A memory that knows nothing."""

    def __init__(self, sightings: Sightings) -> None:
        self._sightings = sightings

    async def search(self, query: str, top_k: int = 5, threshold: float = 0.3) -> Sequence[Any]:
        self._sightings.note("memory", query)
        return ()

    async def save(self, facts: Sequence[str]) -> None: ...

    async def all(self, *_: Any, **__: Any) -> Sequence[Any]:
        return ()

    async def delete(self, *_: Any) -> int:
        return 0

    async def clear(self) -> int:
        return 0

    async def aclose(self) -> None: ...


@dataclass
class Witness:
    """An approval channel that says yes, and an observer."""

    sightings: Sightings
    approves: bool = True
    tasks: dict[str, str] = field(default_factory=dict[str, str])

    async def decide(self, request: ApprovalRequest) -> Approved | None:
        self.sightings.note("channel", request.arguments)
        return Approved() if self.approves else None

    async def observe(self, event: Event) -> None:
        if isinstance(event, TaskStarted | TaskQueued):
            self.tasks[event.task_id] = event.task
        self.sightings.note(f"observer of {type(event).__name__}", self.tasks[event.task_id])
        await asyncio.sleep(0)
        self.sightings.note("observer, later", self.tasks[event.task_id])

    async def aclose(self) -> None: ...


class Keeper:
    """One task, begun for whoever came first, that does the work of all who come."""

    def __init__(self) -> None:
        self._work: asyncio.Queue[tuple[Awaitable[Any], asyncio.Future[Any]]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._each: set[asyncio.Task[None]] = set()

    async def do(self, work: Awaitable[Any]) -> Any:
        if self._task is None:
            self._task = asyncio.create_task(self._keep())
        done = asyncio.get_running_loop().create_future()
        await self._work.put((work, done))
        return await done

    async def _keep(self) -> None:
        while True:
            work = asyncio.create_task(self._one(*await self._work.get()))
            self._each.add(work)
            work.add_done_callback(self._each.discard)

    async def _one(self, work: Awaitable[Any], done: asyncio.Future[Any]) -> None:
        try:
            result = await work
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


class CarelessSandbox:
    """A plugin's sandbox that serves every script from a task which the first one began."""

    isolation = "vm"

    def __init__(self) -> None:
        self._keeper = Keeper()
        self.alive = True

    async def available(self) -> Available:
        return Available()

    def visible_path(self, path: str) -> str:
        return path

    async def open(self, spec: SessionSpec) -> CarelessSandbox:
        return self

    async def execute(self, code: str, host: ScriptHost) -> Outcome:
        return await self._keeper.do(self._run(code, host))

    async def _run(self, code: str, host: ScriptHost) -> Outcome:
        """Make the calls that stand in a script, one after another."""
        found = re.findall(r"(bank|desk|plain|later)\.?(\w*)\((.*?)\)", code)
        for number, (connection, method, given) in enumerate(found):
            kwargs = {"name": given.partition("=")[2].strip("'\"")}
            request = CallRequest(
                call_id=number, connection=connection, method=method, args=(), kwargs=kwargs
            )
            answer = await host.call(request)
            assert isinstance(answer, Returned), answer
            host.printed(f"{answer.value}\n")
        return Done()

    async def aclose(self) -> None:
        """End a session, and not the keeper: it is the next one's, too."""


class CarelessStrategy:
    """A plugin's strategy that makes every call from a task which the first one began."""

    def __init__(self) -> None:
        self._keeper = Keeper()

    async def solve(self, host: StrategyHost) -> str:
        return await self._keeper.do(self._solve(host))

    async def _solve(self, host: StrategyHost) -> str:
        name = named_in(host.task)
        await host.ask(host.begin("Say something."))
        for called in ("bank.salary", "bank.pay", "desk.file", "plain", "later"):
            answer = await host.call(called, {"name": name})
            assert isinstance(answer, Returned), answer
            host.say(str(answer.value))
        return host.output


SCRIPT = """
import asyncio
mine = await asyncio.gather(bank.salary(name={0!r}), plain(name={0!r}), later(name={0!r}))
print(mine)
print(bank.pay(name={0!r}))
print(desk.file(name={0!r}))
"""
CALLS = ("bank.salary", "plain", "later", "bank.pay", "desk.file")


@dataclass
class Office:
    """An agent of many users, and what its parts saw."""

    host: TestHost
    sightings: Sightings
    witness: Witness
    options: dict[str, Any]
    agent: Agent | None = None

    def open(self, *more: Any, **options: Any) -> Agent:
        bank, desk = Bank(), Desk()
        bank.sightings = desk.sightings = sightings = self.sightings

        @tool(confirm=False)
        def plain(name: str) -> str:
            """Look in a thread."""
            sightings.note("plain function", name)
            return user.get().name

        @tool(confirm=False)
        async def later(name: str) -> str:
            """Look on the loop."""
            sightings.note("async function", name)
            return user.get().name

        given = {"llm": "scripted", "host": self.host, "timeout": 50}
        given |= {"approvals": ["witness"], "approval_timeout": 20}
        self.agent = Agent(
            tools=[bank, desk, plain, later, *more],
            memory=Facts(sightings),
            **{**given, **self.options, **options},
        )
        return self.agent


def answer(sightings: Sightings, notation: str) -> Callable[[Any], str]:
    """A model that writes what a strategy wants, for the user whom the task names."""

    def complete(request: Any) -> str:
        task = next(m.text for m in reversed(request.messages) if NAMED.search(m.text))
        sightings.note("model", task)
        name = named_in(task)
        if notation == "script":
            return f"```python\n{SCRIPT.format(name)}\n```"
        if any(message.role == "assistant" for message in request.messages):
            return f"done for {name}"
        calls = [{"name": called, "args": {"name": name}} for called in CALLS]
        return f"<execute>{json.dumps(calls)}</execute>"

    return complete


@pytest.fixture
def office(delf_host: TestHost, scripted_model: ScriptedModel) -> Any:
    """Makes agents whose parts look who the user is."""
    sightings = Sightings()
    witness = Witness(sightings)
    watching = ObserverSpec(name="witness", summary="W.", factory="x:y")
    delf_host.provide(watching, lambda: witness)
    asking = ApprovalSpec(name="witness", summary="W.", factory="x:y", needs_presence=False)
    delf_host.provide(asking, lambda: witness)
    scripted_model.default = answer(sightings, "script")
    office = Office(delf_host, sightings, witness, {"sandbox": "local"})
    yield office
    if office.agent is not None:
        office.agent.stop()


PARTS = {
    "async action",
    "async action, later",
    "approved action",
    "plain action",
    "async check",
    "plain check",
    "plain function",
    "async function",
    "context",
    "memory",
    "model",
    "channel",
    "on_confirm",
    "listener",
    "observer, later",
}


def confirming(sightings: Sightings, *, plain: bool) -> Callable[[ApprovalRequest], Any]:
    """``on_confirm`` that looks who the user is, and leaves the decision to the channel."""

    def confirm(request: ApprovalRequest) -> None:
        sightings.note("on_confirm", request.arguments)

    async def confirm_later(request: ApprovalRequest) -> None:
        confirm(request)

    return confirm if plain else confirm_later


async def all_at_once(one: Callable[[str], Awaitable[None]], users: int = USERS) -> None:
    """Do something for each user in a context of its own, ten of them at a time.

    Args:
        one: What is done for the user with a name, who is logged in.
        users: How many there are.
    """

    async def logged_in(name: str) -> None:
        user.set(User(name))
        await one(name)

    await logged_in(f"user-{users}")  # what this one's task makes serves those who come next
    for start in range(0, users, 10):
        async with asyncio.TaskGroup() as group:
            for number in range(start, start + 10):
                group.create_task(logged_in(f"user-{number}"))
