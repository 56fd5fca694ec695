"""Questions of scripts to people: their text, the ones that are asked, and their time limits."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import pytest

from delf import Agent, Edited, Rejected, tool
from delf import events as ev
from delf.protocols.approval import ApprovalRequest
from delf.protocols.sandbox import Raised, Returned
from delf.testing import ScriptedModel, TestHost, request_for
from delf_engine.approvals.channels import CallbackChannel, NamedChannel
from support.gates import gate_bench
from support.until import until


@tool(effect="write")
async def pay(to: str, amount: list[int]) -> str:
    """Pay."""
    return f"paid {to} {sum(amount)}"


Decide = Callable[[ApprovalRequest], Any]
E = TypeVar("E", bound=ev.Event)


def approve(_request: ApprovalRequest) -> bool:
    return True


class Bench:
    def __init__(self, host: TestHost, model: ScriptedModel) -> None:
        self.host, self.model = host, model
        self.asked: list[ApprovalRequest] = []
        self.seen: list[ev.Event] = []

    async def run(
        self, *scripts: str, decide: Decide, timeout: float | None = None, **options: Any
    ) -> Any:
        self.model.writes(*scripts)

        async def person(request: ApprovalRequest) -> Any:
            self.asked.append(request)
            answer = decide(request)
            return await answer if asyncio.iscoroutine(answer) else answer

        options = {"llm": "scripted", "host": self.host, "on_confirm": person, **options}
        async with Agent(tools=[pay], **options) as agent:
            return await agent.arun("x", timeout, listeners=[self.seen.append])

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in self.seen if isinstance(event, kind)]


@pytest.fixture
def bench(delf_host: TestHost, scripted_model: ScriptedModel) -> Bench:
    return Bench(delf_host, scripted_model)


# -- a copy is shown ------------------------------------------------------------------------------


async def test_callback_cannot_mutate_the_call() -> None:
    def meddles(request: Any) -> Any:
        request.arguments["amount"].append(999_799)
        request.arguments["to"] = "eve"
        return True

    bench = await gate_bench(pay, decide=meddles)
    assert await bench.call("pay", "ann", [200]) == Returned("paid ann 200")
    (asked,) = [event for event in bench.events if isinstance(event, ev.ApprovalRequested)]
    assert asked.arguments == {"to": "ann", "amount": [200]}


async def test_channel_gets_no_mapping_of_the_request_itself() -> None:
    request = request_for("pay", amount=[200])
    names = [f.name for f in fields(request) if isinstance(getattr(request, f.name), Mapping)]
    request = replace(request, **{name: {"key": "value"} for name in names})

    async def meddle(shown: ApprovalRequest) -> None:
        for name in names:
            getattr(shown, name)["key"] = "another"

    await NamedChannel("meddler", CallbackChannel(meddle)).ask(request)
    assert len(names) >= 6
    assert all(getattr(request, name) == {"key": "value"} for name in names)


async def test_listed_approvals_cannot_mutate_a_call(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    scripted_model.writes("print(await pay('ann', [200]))")
    async with Agent(tools=[pay], llm="scripted", host=delf_host) as agent:
        task = await agent.asubmit("x")
        waiting = await until(agent.get_pending_approvals)
        waiting[0].arguments["amount"].append(999_799)
        agent.approve(waiting[0].request_id)
        response = await task
    assert response.text == "paid ann 200"


async def test_plain_callback_is_asked_one_request_at_a_time(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    """It may read its answer from a terminal, which has one line for all of them."""
    asking, most = 0, 0

    def person(request: ApprovalRequest) -> Any:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        time.sleep(0.005)  # while a person thinks
        asking -= 1
        return True

    scripted_model.writes(
        "r = await asyncio.gather(*(pay('a', [n]) for n in range(9)))\nprint(len(r))"
    )
    options: dict[str, Any] = {"llm": "scripted", "host": delf_host, "on_confirm": person}
    async with Agent(tools=[pay], **options) as agent:
        response = await agent.arun("x")
    assert (response.text, most) == ("9", 1)


# -- which are asked ------------------------------------------------------------------------------


async def test_unawaited_calls_require_approval_and_are_made(bench: Bench) -> None:
    script = "import asyncio\nfor n in range(3):\n    asyncio.ensure_future(pay('a', [n]))\n"
    response = await bench.run(f"{script}print('done')", decide=approve)
    assert response.text == "done"
    assert len(bench.asked) == 3
    assert [call.status for call in bench.events(ev.CallFinished)] == ["ok"] * 3


async def test_rejected_unawaited_call_fails_the_task(bench: Bench) -> None:
    script = "import asyncio\nasyncio.ensure_future(pay('a', [1]))\nprint('done')"
    response = await bench.run(script, decide=lambda r: Rejected(reason="not her"))
    assert not response.status
    assert "not her" in response.error


async def test_refused_call_is_not_asked_again_by_a_later_script(bench: Bench) -> None:
    response = await bench.run(
        "print(await pay('ann', [1]))",
        "try:\n    await pay('ann', [1])\nexcept ApprovalRejected as e:\n    print(e)\n"
        "print(await pay('bob', [1]))",
        decide=lambda r: r.arguments["to"] == "bob" or Rejected(reason="not her"),
    )
    assert [r.arguments["to"] for r in bench.asked] == ["ann", "bob"]
    assert "not her (refused before in this task, and not asked again)" in response.text


async def test_unanswered_call_can_be_asked_again() -> None:
    answers = [None, True]
    bench = await gate_bench(pay, decide=lambda r: answers.pop(0))
    answer = await bench.call("pay", "ann", [1])
    assert isinstance(answer, Raised)
    assert answer.kind == "ApprovalRejected"
    assert await bench.call("pay", "ann", [1]) == Returned("paid ann 1")


# -- what it says ---------------------------------------------------------------------------------


async def test_request_states_script_number_reason_and_earlier_changes(bench: Bench) -> None:
    response = await bench.run(
        "print(await pay('ann', [1]))\nawait pay('bob', [2])",
        "print(await pay('ann', [1]))",
        decide=lambda r: r.arguments["to"] == "ann" or Rejected(reason="not him"),
    )
    assert response.status
    first, second, third = bench.asked
    assert (first.script, first.because, first.changes, first.made_before) == (1, None, (), None)
    assert second.changes == ("pay(to='ann', amount=[1])",)
    assert third.script == 2
    assert (third.because or "").startswith(
        "the one before failed: ApprovalRejected: pay was rejected"
    )
    assert third.made_before == 1
    assert response.trace.scripts[1]


async def test_edited_call_equal_to_an_earlier_call_is_marked(bench: Bench) -> None:
    await bench.run(
        "await pay('ann', [200])\nawait pay('ann', [20])",
        decide=lambda r: Edited(arguments={"to": "ann", "amount": [20]}),
    )
    assert bench.asked[1].made_before == 1


# -- what time it takes ---------------------------------------------------------------------------


async def test_task_timeout_excludes_waiting_for_a_person(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, thought = asyncio.get_running_loop(), 0.0
    time_of_loop = loop.time
    monkeypatch.setattr(loop, "time", lambda: time_of_loop() + thought)

    def thinks_for_a_minute(request: Any) -> Any:
        nonlocal thought
        thought += 60.0
        return True

    response = await bench.run(
        "for n in range(4):\n    print(await pay('ann', [n]))",
        decide=thinks_for_a_minute,
        timeout=30,
        approval_timeout=90,
    )
    assert response.status, response.error
    assert len(bench.asked) == 4


@pytest.mark.parametrize(
    ("decision", "scripts"),
    [(False, 1), (Rejected(), 1), (Rejected(reason=""), 1), (Rejected(reason="ask Bo"), 2)],
    ids=["False", "no reason", "an empty one", "a reason"],
)
async def test_rejection_without_a_reason_does_not_ask_the_model_again(
    bench: Bench, decision: Any, scripts: Any
) -> None:
    written = ("print(await pay('ann', [1]))", "print('another way')")
    response = await bench.run(*written, decide=lambda _: decision, retry_count=1)
    assert len(response.trace.scripts) == scripts
    assert response.status is (scripts == 2)
    if scripts == 1:
        assert response.error == "pay was rejected: no reason was given"
