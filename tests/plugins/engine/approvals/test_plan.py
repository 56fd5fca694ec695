"""``confirm_mode="plan"``: one request for a whole script."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest

from delf import Agent, Connection, action, tool
from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallStarted,
    Event,
    ModelReplied,
    ScriptGenerated,
)
from delf.protocols.approval import ApprovalRequest, Approved, Decision, Edited, Rejected
from delf.specs import JournalSpec
from delf.testing import ScriptedApprovals, ScriptedModel, TestHost
from delf_engine.calls.call import call_digest
from support.cut_journal import CutJournal
from support.gates import gate_bench

E = TypeVar("E", bound=Event)


class Shop(Connection):
    """A shop."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.made: list[tuple[str, int]] = []

    @action(effect="read")
    async def find(self) -> list[int]:
        """Find orders."""
        return [1, 2]

    @action(effect="write")
    async def close(self, number: int) -> str:
        """Close an order."""
        self.made.append(("close", number))
        return "closed"

    @action(effect="irreversible")
    async def refund(self, number: int) -> str:
        """Pay back."""
        self.made.append(("refund", number))
        return "paid"


class Bench:
    def __init__(
        self, host: TestHost, model: ScriptedModel, person: ScriptedApprovals, **options: Any
    ) -> None:
        self.shop = Shop(name="shop")
        self.model = model
        self.person = person
        options = {"confirm_mode": "plan", "approvals": ["scripted"], **options}
        self.agent = Agent(tools=[self.shop], llm="scripted", host=host, **options)

    async def run(self, *scripts: str) -> Any:
        self.model.writes(*scripts)
        self.seen: list[Event] = []
        async with self.agent:
            return await self.agent.arun("x", listeners=[self.seen.append])

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in self.seen if isinstance(event, kind)]


@pytest.fixture
def bench(
    delf_host: TestHost, scripted_model: ScriptedModel, scripted_approvals: ScriptedApprovals
) -> Callable[..., Bench]:
    return partial(Bench, delf_host, scripted_model, scripted_approvals)


CLOSE_ALL = "for n in await shop.find():\n    await shop.close(n)\nprint('ok')"


async def test_plan_mode_asks_once_per_script(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.person.says(True)
    assert (await b.run(CLOSE_ALL)).text == "ok"
    (request,) = b.person.requests
    assert (request.action, request.code, request.actions) == ("script", CLOSE_ALL, ("shop.close",))
    assert (request.effect, request.arguments) == ("write", {})
    assert request.digest == call_digest("script", {"code": CLOSE_ALL})
    assert request.message == "script(shop.close)"
    (asked,) = b.events(ApprovalRequested)
    assert (asked.code, asked.actions, asked.call_id) == (CLOSE_ALL, ("shop.close",), 0)
    assert len(b.events(ApprovalDecided)) == 1
    assert b.shop.made == [("close", 1), ("close", 2)]


async def test_plan_mode_runs_nothing_before_approval(bench: Callable[..., Bench]) -> None:
    b = bench()

    def unless_late(_request: ApprovalRequest) -> Decision:
        return Approved() if b.shop.made == [] else Rejected(reason="too late")

    b.person.says(unless_late)
    await b.run("print(await shop.find(), await shop.close(1))")
    order = [type(event) for event in b.seen]
    assert order.index(ScriptGenerated) < order.index(ApprovalDecided) < order.index(CallStarted)


async def test_plan_without_calls_requires_no_approval(bench: Callable[..., Bench]) -> None:
    b = bench()
    await b.run("print(await shop.find())")
    assert b.person.requests == []


@pytest.mark.parametrize(
    "script",
    [
        "await shop.close(1)\nawait getattr(shop, 're' + 'fund')(7)",
        "await shop.close(1)\ns = shop\nawait s.refund(7)",
        "await shop.close(1)\nx = [shop]\nawait x[0].refund(7)",
    ],
    ids=["getattr", "alias", "in a list"],
)
async def test_call_outside_the_plan_requires_approval(
    bench: Callable[..., Bench], script: str
) -> None:
    b = bench(retry_count=0)
    b.person.says(True, "no refund")
    response = await b.run(script)
    assert not response.status
    assert b.person.actions == ["script", "shop.refund"]
    assert b.shop.made == [("close", 1)]


async def test_plan_approval_is_per_connection(
    delf_host: TestHost, scripted_model: ScriptedModel, scripted_approvals: ScriptedApprovals
) -> None:
    one, other = Shop(name="one"), Shop(name="other")
    scripted_model.writes("await one.close(1)\nx = [other]\nawait x[0].close(2)")
    scripted_approvals.says(True, "not there")
    options: dict[str, Any] = {"llm": "scripted", "host": delf_host, "retry_count": 0}
    more: dict[str, Any] = {"approvals": ["scripted"], "confirm_mode": "plan"}
    async with Agent(tools=[one, other], **options, **more) as agent:
        await agent.arun("x")
    assert scripted_approvals.actions == ["script", "other.close"]
    assert (one.made, other.made) == ([("close", 1)], [])


async def test_rejected_plan_returns_to_the_model_with_its_reason(
    bench: Callable[..., Bench],
) -> None:
    b = bench()
    b.person.says("close the second only", True)
    response = await b.run(CLOSE_ALL, "print(await shop.close(2))")
    assert response.text == "closed"
    words = str(b.model.requests[1].messages[-1])
    assert "the script was not run: it was rejected: close the second only" in words
    assert b.shop.made == [("close", 2)]
    assert b.person.actions == ["script", "script"]


async def test_plan_approval_covers_only_its_script(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.person.says(True, "not this one", True)
    await b.run("await shop.close(1)\nrerun('seen', 'close 2')", "await shop.close(2)", "print(3)")
    assert b.person.actions == ["script", "script"]
    assert b.shop.made == [("close", 1)]


RERUN = "\nrerun('read', 'close order 1')"
LEFT_BEHIND = {
    "print": "import asyncio\ndef print(*a, **k):\n    s.close(666)\ns = shop",
    "alias": "s = shop\ndef str(x):\n    return s.close(666)",
    "class with __format__": (
        "s = shop\nclass Sneaky:\n    def __format__(self, spec):\n"
        "        return s.close(666)\nnumber = Sneaky()"
    ),
    "class with __add__": (
        "s = shop\nclass Sneaky:\n    def __radd__(self, other):\n"
        "        return s.close(666)\nnumber = Sneaky()"
    ),
    "class with __del__": (
        "s = shop\nclass Sneaky:\n    def __del__(self):\n        s.close(666)\nnumber = Sneaky()"
    ),
    "generator": "s = shop\ndef g():\n    yield s.close(666)\nnumber = g()",
    "patched module": "import json\ns = shop\njson.dumps = lambda x: s.close(666)",
    "shadowed connection": (
        "s = shop\nclass Shop:\n    def close(self, number):\n"
        "        return s.close(666)\nshop = Shop()"
    ),
    "task": (
        "import asyncio\ns = shop\nasync def later():\n    await asyncio.sleep(0.01)\n"
        "    await s.close(666)\nt = asyncio.ensure_future(later())"
    ),
    "exit handler": "import contextlib\ns = shop\nstack = contextlib.ExitStack()\n"
    "stack.callback(lambda: s.close(666))",
    "nothing": "orders = await shop.find()",
}
ACTS = """import asyncio, json
done = await shop.close(1)
print(str(1), json.dumps(1))
try:
    print(f"{number:>3}", '' + number, *number)
except (NameError, TypeError):
    pass
number = None
try:
    stack.close()
except NameError:
    pass
await asyncio.sleep(0.05)
print(done)"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [RERUN, "\n1 / 0"], ids=["rerun", "error"])
@pytest.mark.parametrize("first", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
async def test_calls_require_approval_one_by_one_after_an_unapproved_script(
    bench: Callable[..., Bench], first: str, ending: str
) -> None:
    b = bench(retry_count=1)

    def is_about_order_1(request: ApprovalRequest) -> bool:
        return request.arguments in ({"number": 1}, {})

    for _ in range(5):  # a person who lets order 1 be closed, by whatever they are shown
        b.person.says(is_about_order_1)
    await b.run(first + ending, ACTS)
    assert set(b.person.actions) == {"shop.close"}, "no script as a whole"
    assert b.shop.made in ([("close", 1)], [])


async def test_plan_is_asked_once_after_an_approved_script(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.person.says(True, True)
    first = "n = 5\nawait shop.close(n)\nrerun('closed', 'close the next')"
    await b.run(first, "await shop.close(n + 1)")
    assert b.person.actions == ["script", "script"]
    assert b.shop.made == [("close", 5), ("close", 6)]


@pytest.mark.slow
async def test_plan_approval_is_requested_again_in_a_new_sandbox(
    bench: Callable[..., Bench],
) -> None:
    b = bench(retry_count=1)
    b.person.says(True)
    await b.run("x = 'a'\nwhile True:\n    x += x", "print(await shop.close(1))")
    assert b.person.actions == ["script"]
    assert b.shop.made == [("close", 1)]


async def test_plan_approval_ends_with_its_script(bench: Callable[..., Bench]) -> None:
    b = bench(retry_count=0)
    b.person.says(True, True, "no")
    first = "async def later():\n    await shop.refund(9)\nrerun('defined', 'go on')"
    await b.run(first, "await shop.close(1)\nawait later()")
    assert b.person.actions == ["script", "script", "shop.refund"]
    assert b.shop.made == [("close", 1)]


FIELDS: dict[str, Any] = {"task_id": "task_1", "seq": 1, "at": 0.0}


def asked_before(code: str, *actions: str, name: str = "req_1") -> ApprovalRequested:
    return ApprovalRequested(
        request_id=name,
        call_id=0,
        action="script",
        arguments={},
        effect="write",
        digest=call_digest("script", {"code": code}),
        description=None,
        code=code,
        actions=actions,
        **FIELDS,
    )


APPROVED = ApprovalDecided(request_id="req_1", decision="approved", by="bob", **FIELDS)
ONE = "await shop.close(1)"


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        (asked_before(ONE, "shop.close"), True),
        (asked_before("await shop.close(2)", "shop.close"), False),
        (asked_before(ONE, "shop.find"), False),
        (asked_before(ONE), False),
        (asked_before(ONE, "shop.close", "shop.refund"), False),
        (asked_before(ONE, "shop.close", name="req_2"), False),
    ],
    ids=["it", "another script", "another action", "fewer", "more", "a request after that"],
)
async def test_recorded_plan_decision_applies_only_to_the_same_plan(
    asked: ApprovalRequested, counts: bool
) -> None:
    bench = await gate_bench(Shop(name="shop"), decide=deny)
    close = bench.tools.find("shop", "close")
    digests = {name: bench.tools.find(*name.split(".")).digest for name in asked.actions}
    asked = replace(asked, action_digest=call_digest("script", digests))
    answer = await bench.approvals.decide_script(ONE, 1, [close], (asked, APPROVED))
    assert isinstance(answer.decision, Approved if counts else Rejected)
    assert len(bench.asked) == (0 if counts else 1)


def deny(_request: ApprovalRequest) -> Decision:
    return Rejected(reason="no")


async def test_plan_cannot_be_edited(bench: Callable[..., Bench]) -> None:
    b = bench(retry_count=0)
    b.person.says(Edited(arguments={"code": "print(1)"}))
    response = await b.run(CLOSE_ALL)
    assert "a script cannot be edited" in response.error
    assert b.shop.made == []


async def test_on_confirm_receives_the_plan(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    asked: list[str | None] = []
    shop = Shop(name="shop")
    scripted_model.writes(CLOSE_ALL)

    def confirm(request: ApprovalRequest) -> bool:
        asked.append(request.code)
        return True

    agent = Agent(
        tools=[shop],
        llm="scripted",
        host=delf_host,
        confirm_mode="plan",
        on_confirm=confirm,
    )
    async with agent:
        assert (await agent.arun("x")).status
    assert asked == [CLOSE_ALL]


@pytest.mark.parametrize(
    ("mode", "made"), [("approve_all", [("close", 1), ("close", 2)]), ("strict", [])]
)
async def test_modes_except_plan_decide_at_each_call(
    bench: Callable[..., Bench], mode: str, made: list[tuple[str, int]]
) -> None:
    b = bench(approval_mode=mode, retry_count=0)
    await b.run(CLOSE_ALL)
    assert b.shop.made == made
    assert {event.action for event in b.events(ApprovalRequested)} == {"shop.close"}


async def test_resumed_plan_is_not_asked_again(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    @tool(effect="read", confirm=True)
    async def look(n: int) -> int:
        """Look at something."""
        return n

    journal = CutJournal()
    delf_host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: journal)
    scripts = ("print(await look(999))", "print(await look(1))")
    asked: list[str | None] = []

    def decide(request: ApprovalRequest) -> bool:
        asked.append(request.request_id)
        return "999" not in (request.code or "")

    options: dict[str, Any] = {"llm": "scripted", "journal": "test", "confirm_mode": "plan"}
    agent = Agent(tools=[look], host=delf_host, on_confirm=decide, **options)
    scripted_model.writes(*scripts)
    assert (await agent.arun("x")).text == "1"
    names = list(asked)
    (record,) = await journal.find()
    events = list(await journal.read(record.task_id))
    for cut in range(1, len(events)):
        asked.clear()
        await journal.ended_after(events[:cut])
        replied = sum(isinstance(event, ModelReplied) for event in events[:cut])
        decided = sum(isinstance(event, ApprovalDecided) for event in events[:cut])
        requested = sum(isinstance(event, ApprovalRequested) for event in events[:cut])
        scripted_model.replies.clear()
        scripted_model.writes(*scripts[replied:])
        response = await agent.aresume(record.task_id)
        assert (response.status, response.text) == (True, "1"), cut
        assert len(asked) == 2 - decided
        assert asked[: requested - decided] == names[decided:requested], "its id stays"
    await agent.astop()


@pytest.mark.slow
async def test_resumed_task_requires_approval_for_each_call_after_an_unapproved_script(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    shop = Shop(name="shop")

    journal = CutJournal()
    delf_host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: journal)
    scripts = (
        "s = shop\ndef print(*_):\n    s.close(666)\nrerun('defined', 'close order 1')",
        "await shop.close(1)\nprint('ok')",
    )

    def decide(request: ApprovalRequest) -> bool:
        return request.code is None and request.arguments["number"] == 1

    options: dict[str, Any] = {
        "llm": "scripted",
        "journal": "test",
        "confirm_mode": "plan",
        "retry_count": 0,
    }
    async with Agent(tools=[shop], host=delf_host, on_confirm=decide, **options) as agent:
        scripted_model.writes(*scripts)
        await agent.arun("x")
        assert shop.made == [("close", 1)]
        (record,) = await journal.find()
        events = list(await journal.read(record.task_id))
        for cut in range(1, len(events)):
            await journal.ended_after(events[:cut])
            shop.made.clear()
            replied = sum(isinstance(event, ModelReplied) for event in events[:cut])
            scripted_model.replies.clear()
            scripted_model.writes(*scripts[replied:])
            await agent.aresume(record.task_id)
            assert ("close", 666) not in shop.made, cut
