"""Tests of people's decisions when a task is resumed: kept, or asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import Field

from delf import (
    Agent,
    AlreadyDone,
    Approved,
    Connection,
    Edited,
    NeedsApproval,
    Rejected,
    action,
    tool,
)
from delf import events as ev
from delf.errors import (
    OutcomeUnknownError,
    UndecidedCallError,
)
from delf.protocols.approval import DecidedBy, Decider
from delf.protocols.connection import Allowed, Refused
from delf.specs import ApprovalSpec
from support.resuming import Bench, World, prints_of, recorded
from support.until import until

KEY = "sk-0123456789abcdefghijklmnopqrstuvwxyz"


async def test_resume_asks_again_if_a_person_edited_a_secret_into_the_arguments(
    bench: Bench,
) -> None:
    """The journal has a placeholder instead of the secret, so the edited arguments are lost."""
    bench.model.writes("print(await send('x'))")
    options = {"providers": {"openai": KEY}}
    world = World()
    async with bench.agent(world, lambda _: Edited(arguments={"text": KEY}), **options) as agent:
        task = (await agent.arun("Send.")).trace.task_id
    events = await bench.journal.read(task)
    place = next(i for i, e in enumerate(events) if isinstance(e, ev.ApprovalDecided))
    for end, again in ((place + 1, Edited(arguments={"text": KEY})), (place + 2, Approved())):
        world.writes.clear()
        await bench.journal.ended_after(events[:end])
        async with bench.agent(world, lambda _, again=again: again, **options) as agent:
            await agent.aresume(task)
        assert "sent [redacted]" not in world.writes


@pytest.mark.parametrize("answer", [AlreadyDone(result=1), Approved()])
async def test_unfinished_call_with_invalid_arguments_requires_approval(
    bench: Bench, answer: Any
) -> None:
    """The call began with arguments that the journal does not have."""
    made: list[str] = []

    @tool(effect="write")
    async def store(key: Annotated[str, Field(pattern="^(sk-|none)")]) -> int:
        """Store a key."""
        made.append(key)
        return 1

    bench.model.writes(
        "try:\n    print(await store('none'))\nexcept Exception as error:\n    print(error)"
    )
    options = {"providers": {"openai": KEY}, "more": [store]}
    async with bench.agent(World(), lambda _: Edited(arguments={"key": KEY}), **options) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    bench.asked.clear()
    await bench.journal.ended_after(events[:begun])
    async with bench.agent(World(), lambda _: answer, **options) as second:
        response = (await second.aresume(events[0].task_id)).raise_for_status()
    assert [(r.action, r.outcome_unknown, r.arguments) for r in bench.asked] == [
        ("store", True, {"key": "[redacted]"})
    ]
    assert bench.asked[0].returns == "int", "the type of the result that a person may state"
    assert made == [KEY], "it is not made again"
    settled = isinstance(answer, AlreadyDone)
    assert response.text == "1" if settled else "held a secret" in response.text


class Desk(Connection):
    """Colleagues who do their work in child tasks."""

    def __init__(self) -> None:
        super().__init__(name="desk", confirm=True)
        self.received: list[str] = []

    @action(effect="write", resumes=True)
    async def hand(self, text: str) -> str:
        """Give work to a colleague."""
        self.received.append(text)
        return "ok"


async def test_delegating_call_is_not_repeated_without_its_edited_secret(bench: Bench) -> None:
    desk = Desk()
    bench.model.writes(
        "try:\n    print(await desk.hand('x'))\nexcept Exception as error:\n    print(error)"
    )
    options = {"providers": {"openai": KEY}, "more": [desk]}
    async with bench.agent(World(), lambda _: Edited(arguments={"text": KEY}), **options) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    bench.asked.clear()
    await bench.journal.ended_after(events[:begun])
    async with bench.agent(World(), lambda _: Approved(), **options) as second:
        response = (await second.aresume(events[0].task_id)).raise_for_status()
    assert [request.outcome_unknown for request in bench.asked] == [True]
    assert desk.received == [KEY], "it is not made again"
    assert "held a secret" in response.text


async def test_request_is_closed_if_no_child_task_remains(bench: Bench) -> None:
    desk = Desk()
    bench.model.writes(
        "try:\n    print(await desk.hand('x'))\nexcept Exception as error:\n    print(error)"
    )
    async with bench.agent(World(), more=[desk]) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.ApprovalRequested))
    bench.asked.clear()
    desk.received.clear()
    await bench.journal.ended_after(events[:begun])
    async with bench.agent(World(), more=[desk], max_children=0) as second:
        response = (await second.aresume(events[0].task_id)).raise_for_status()
    assert "desk.hand is not made" in response.text
    assert (bench.asked, desk.received) == ([], [])
    after = await bench.journal.read(events[0].task_id)
    voided = [e for e in after if isinstance(e, ev.ApprovalDecided) and e.source == "changed"]
    assert [e.request_id for e in voided] == [events[begun - 1].request_id]


def sends_of(requests: Sequence[Any]) -> int:
    return sum(request.action == "send" for request in requests)


ASKING = """
print(await send("x"))
print(await send("x"))
print(await look(1))
"""


@pytest.mark.parametrize("remember", ["task", "until_revoked"])
async def test_remembered_decision_is_not_asked_again(bench: Bench, remember: Any) -> None:
    bench.model.writes(ASKING)

    def decide(_: Any) -> Any:
        return Approved(remember=remember)

    first = bench.agent(World(), decide)
    async with first:
        events = await recorded(bench, first)
    assert sends_of(bench.asked) == 1
    sent = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallFinished))
    await bench.journal.ended_after(events[:sent])
    async with bench.agent(World()) as second:
        response = await second.aresume(events[0].task_id)
    assert response.raise_for_status().text == "ok\nok\n10"
    assert sends_of(bench.asked) == 1, "nobody was asked again"


@pytest.mark.parametrize("remember", ["task", "until_revoked"])
async def test_approval_to_repeat_a_call_covers_only_that_call(bench: Bench, remember: Any) -> None:
    """This holds also for an older journal that recorded the approval as remembered."""
    bench.model.writes(ASKING)
    async with bench.agent(World()) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    bench.asked.clear()
    await bench.journal.ended_after(events[:begun])
    async with bench.agent(World(), lambda _: Approved(remember=remember)) as second:
        (await second.aresume(events[0].task_id)).raise_for_status()
    assert [r.outcome_unknown for r in bench.asked if r.action == "send"] == [True, False]
    events = await bench.journal.read(events[0].task_id)
    (question,) = (e for e in events if isinstance(e, ev.ApprovalRequested) and e.outcome_unknown)
    settled = next(
        n
        for n, e in enumerate(events)
        if isinstance(e, ev.ApprovalDecided) and e.request_id == question.request_id
    )
    assert events[settled].remember == "no"
    past = [*events[:settled], replace(events[settled], remember=remember)]
    bench.asked.clear()
    await bench.journal.ended_after(past)
    async with bench.agent(World()) as third:
        (await third.aresume(events[0].task_id)).raise_for_status()
    assert [r.outcome_unknown for r in bench.asked if r.action == "send"] == [True, False]


async def test_requests_of_a_submitted_task_are_pending_after_resume(bench: Bench) -> None:
    """The pending request keeps its id; later ones are pending, too: nobody else can be asked."""
    bench.model.writes(ASKING)

    def leave_it(_: Any) -> None:
        """Leave it to the next channel; there is none."""

    async with bench.agent(World(), leave_it) as first:
        task = await first.asubmit("x")
        (waiting,) = await waiting_requests(first)
        events = await bench.journal.read(task)
    await bench.journal.ended_after(events)
    async with bench.agent(World(), leave_it) as second:
        work = asyncio.ensure_future(second.aresume(task))
        (again,) = await waiting_requests(second)
        assert again.request_id == waiting.request_id
        second.approve(again.request_id, remember="task")
        (later,) = await waiting_requests(second, but=again.request_id)
        assert later.action == "look"
        second.approve(later.request_id)
        assert (await work).raise_for_status().text == "ok\nok\n10"


async def waiting_requests(agent: Agent, but: str = "") -> Sequence[ev.ApprovalRequest]:
    """Wait for pending requests, and return them."""
    return await until(lambda: [r for r in agent.get_pending_approvals() if r.request_id != but])


async def test_unanswerable_unfinished_call_keeps_the_task_interrupted(
    bench: Bench,
) -> None:
    bench.model.writes("print(await write('x'))")
    async with bench.agent(World()) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    await bench.journal.ended_after(events[:begun])
    world = World()
    async with bench.agent(world, lambda _: None) as nobody:
        for _ in range(2):
            left = await nobody.aresume(events[0].task_id)
            assert (left.state, type(left.exception)) == ("interrupted", UndecidedCallError)
            assert world.writes == []
        kept = await bench.journal.read(events[0].task_id)
        assert not any(isinstance(e, (ev.ApprovalDecided, ev.TaskFinished)) for e in kept)
        done = (await nobody.aresume(events[0].task_id, settle="again")).raise_for_status()
    assert (done.text, world.writes) == ("1", ["x"])


async def test_call_settled_as_done_is_not_repeated(bench: Bench) -> None:
    bench.model.writes("print(await write('x'))")
    async with bench.agent(World()) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    await bench.journal.ended_after(events[:begun])
    world = World()
    async with bench.agent(world) as second:
        done = await second.aresume(events[0].task_id, settle="done")
    assert (done.text, world.writes) == ("None", [])
    assert not bench.asked


async def test_rejected_repetition_leaves_a_possible_change(bench: Bench) -> None:
    bench.model.writes("print(await write('x'))")
    async with bench.agent(World()) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    await bench.journal.ended_after(events[:begun])
    async with bench.agent(World(), lambda _: False, retry_count=0) as second:
        response = await second.aresume(events[0].task_id)
    assert response.changes == ["write(text='x') (begun; may be done or not)"]


async def test_request_left_to_the_policy_is_renewed_for_a_person(
    bench: Bench,
) -> None:
    bench.model.writes("print(await send('x'))")
    async with bench.agent(World(), approval_mode="approve_all") as first:
        events = await recorded(bench, first)
    asked = next(e for e in events if isinstance(e, ev.ApprovalRequested))
    assert asked.by_policy
    await bench.journal.ended_after(events[: asked.seq])
    async with bench.agent(World(), lambda _: Approved()) as second:
        (await second.aresume(events[0].task_id)).raise_for_status()
    events = await bench.journal.read(events[0].task_id)
    requests = [e for e in events if isinstance(e, ev.ApprovalRequested)]
    assert [e.by_policy for e in requests] == [True, False]
    assert [request.request_id for request in bench.asked] == [requests[1].request_id]


class Bank:
    """A bank that pays, and whose first answer is lost."""

    def __init__(self, *, answers: bool = False) -> None:
        self.answers = answers
        self.paid: list[int] = []

    def tool(self) -> Any:
        @tool(effect="write", confirm=False)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            if not self.answers and len(self.paid) == 1:
                raise OutcomeUnknownError("lost")
            return "paid"

        return pay


PAYS_TWICE = """
for _ in range(2):
    try:
        print(await pay(10))
    except Exception as error:
        print(error)
"""


@pytest.mark.parametrize(
    "decision",
    [Approved(), Rejected(reason="no"), AlreadyDone(result="it was there")],
    ids=["again", "rejected", "done"],
)
async def test_call_repeated_after_a_lost_answer_resumes_from_every_event(
    bench: Bench, decision: Any
) -> None:
    """A pending question is asked again, and an answered one is not."""
    bench.model.writes(PAYS_TWICE)
    async with bench.agent(World(), lambda _: decision, more=[Bank().tool()]) as first:
        events = await recorded(bench, first)
    text = prints_of(events)
    asked = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.ApprovalRequested))
    for end in range(asked - 1, len(events)):
        bench.asked.clear()
        bank = Bank(answers=True)
        await bench.journal.ended_after(events[:end])
        async with bench.agent(World(), lambda _: decision, more=[bank.tool()]) as second:
            response = await second.aresume(events[0].task_id)
        assert prints_of(response.events) == text, end
        is_paid = any(isinstance(e, ev.CallFinished) and e.status == "ok" for e in events[:end])
        assert len(bank.paid) == (isinstance(decision, Approved) and not is_paid), end
        is_answered = any(isinstance(e, ev.ApprovalDecided) for e in events[:end])
        last = events[end - 1]
        is_interrupted = isinstance(last, ev.CallStarted) and isinstance(decision, Approved)
        assert len(bench.asked) == (not is_answered or is_interrupted), end


class Till(Connection):
    """A till whose first answer is lost, and which may be shut."""

    def __init__(self, *, is_shut: bool = False) -> None:
        super().__init__(confirm=False)
        self.is_shut = is_shut
        self.paid: list[int] = []

    async def check(self, call: Any) -> Any:
        return Refused(message="the till is shut") if self.is_shut else Allowed()

    @action(effect="write")
    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        if len(self.paid) == 1:
            raise OutcomeUnknownError("lost")
        return "paid"


async def test_refused_repetition_leaves_no_question_open(bench: Bench) -> None:
    bench.model.writes(PAYS_TWICE.replace("pay(", "till.pay("))
    async with bench.agent(World(), more=[Till()]) as first:
        events = await recorded(bench, first)
    await bench.journal.ended_with(events[0].task_id, ev.ApprovalRequested)
    bench.asked.clear()
    till = Till(is_shut=True)
    async with bench.agent(World(), more=[till]) as second:
        response = await second.aresume(events[0].task_id)
    assert "the till is shut" in prints_of(response.events)
    assert (till.paid, bench.asked) == ([], [])
    after = await bench.journal.read(events[0].task_id)
    (request,) = [e for e in after if isinstance(e, ev.ApprovalRequested)]
    assert request.outcome_unknown
    (decided,) = [e for e in after if isinstance(e, ev.ApprovalDecided)]
    assert (decided.request_id, decided.source) == (request.request_id, "changed")


async def test_lost_answer_of_a_script_at_its_limit_is_known_after_a_resume(bench: Bench) -> None:
    """The script at its limit is not run again."""
    first_script = "try:\n    await pay(10)\nexcept Exception:\n    print('x' * 20_000)"
    options = {"sandbox_config": {"output_bytes": 1000}}
    bench.model.writes(first_script, "print(await pay(10))")
    async with bench.agent(World(), more=[Bank().tool()], **options) as first:
        events = await recorded(bench, first)
    limit = next(e for e in events if isinstance(e, ev.ScriptFinished))
    assert limit.status == "limit"
    await bench.journal.ended_after(events[: limit.seq])
    bench.asked.clear()
    bench.model.writes("print(await pay(10))")
    async with bench.agent(World(), more=[Bank(answers=True).tool()], **options) as second:
        (await second.aresume(limit.task_id)).raise_for_status()
    assert [request.outcome_unknown for request in bench.asked] == [True]


async def test_call_equal_to_an_abandoned_repetition_requires_approval(bench: Bench) -> None:
    """The interrupted call, which a person rejects, may have been done."""
    bench.model.writes(PAYS_TWICE)
    async with bench.agent(World(), more=[Bank(answers=True).tool()]) as first:
        events = await recorded(bench, first)
    begun = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    await bench.journal.ended_after(events[:begun])
    bank = Bank(answers=True)
    async with bench.agent(World(), lambda _: False, more=[bank.tool()]) as second:
        await second.aresume(events[0].task_id)
    assert [request.outcome_unknown for request in bench.asked] == [True, True]
    assert bank.paid == []


async def test_expired_request_ends_a_resumed_task_as_it_ended_the_first_run(bench: Bench) -> None:
    """The model is not asked for another script, which nobody would answer either."""
    bench.model.writes("print(await send('x'))")

    async def never(_: Any) -> None:
        await asyncio.Event().wait()

    async with bench.agent(World(), never, approval_timeout=0.1) as first:
        ended = await first.arun("x")
    decided = next(e for e in ended.events if isinstance(e, ev.ApprovalDecided))
    await bench.journal.ended_after(ended.events[: decided.seq])
    async with bench.agent(World(), never, approval_timeout=0.1) as second:
        resumed = await second.aresume(decided.task_id)
    assert "nobody answered within 0.1 s" in (ended.error or "")
    assert resumed.error == ended.error
    assert len(bench.model.requests) == 1


# -- a team's rules ---------------------------------------------------------------------------

FOUR_EYES = {"send": {"four_eyes": True}}
BO, CY = (Decider(name=name, user=f"{name}:1") for name in ("bo", "cy"))


class Answers:
    """A channel with answers of people whose names are known."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def decide(self, request: Any) -> Any:
        return self.answer(request)


def of_people(bench: Bench, world: World, answer: Any, **options: Any) -> Agent:
    """Make an agent whose requests are answered by a channel of people."""
    spec = ApprovalSpec(name="people", summary="People.", factory="x:y")
    bench.host.provide(spec, lambda: Answers(answer))
    return bench.agent(world, lambda _: None, approvals=["people"], **options)


def edits_then_approves(request: Any) -> Any:
    """Let Bo edit the script's call, and Cy approve the edited call."""
    if request.arguments["text"] == "x":
        return DecidedBy(decision=Edited(arguments={"text": "y"}), who=BO)
    assert request.shaped_by == ("bo",)
    return DecidedBy(decision=Approved(), who=CY)


async def test_edit_under_a_team_rule_resumes_from_every_event(bench: Bench) -> None:
    bench.model.writes("print(await send('x'))")
    world = World()
    async with of_people(bench, world, edits_then_approves, approval_rules=FOUR_EYES) as agent:
        events = await recorded(bench, agent)
    assert [r.arguments["text"] for r in bench.asked] == ["x", "y"]
    assert len(world.writes) == 1
    begin = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.ApprovalRequested))
    started = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallStarted))
    for end in range(begin, started):
        bench.asked.clear()
        other = World()
        await bench.journal.ended_after(events[:end])
        async with of_people(bench, other, edits_then_approves, approval_rules=FOUR_EYES) as agent:
            (await agent.aresume(events[0].task_id)).raise_for_status()
        assert other.writes == world.writes, end
        decided = [e for e in events[:end] if isinstance(e, ev.ApprovalDecided)]
        texts = [r.arguments["text"] for r in bench.asked]
        assert texts == ["x", "y"][len(decided) :], end


class Wallet(Connection):
    """A wallet that wants an approval of large payments only."""

    def __init__(self) -> None:
        super().__init__(confirm=False)
        self.paid: list[int] = []

    async def check(self, call: Any) -> Any:
        if call.arguments["amount"] > 100:
            return NeedsApproval(reason="it is much")
        return Allowed()

    @action(effect="irreversible")
    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        return "paid"


@pytest.mark.parametrize("answer", [Approved(), Rejected(reason="not to them")])
@pytest.mark.parametrize("kind", [ev.ApprovalRequested, ev.ApprovalDecided])
async def test_resume_leaves_an_edited_call_to_its_other_approver(
    bench: Bench, kind: type[ev.Event], answer: Any
) -> None:
    def decide(request: Any) -> Any:
        if request.arguments["amount"] == 250:
            return DecidedBy(decision=Edited(arguments={"amount": 20}), who=BO)
        return DecidedBy(decision=answer, who=CY)

    bench.model.writes("print(await wallet.pay(250))")
    rules = {"wallet.pay": {"four_eyes": True}}
    options = {"approval_rules": rules, "retry_count": 0}
    first = Wallet()
    async with of_people(bench, World(), decide, more=[first], **options) as agent:
        events = await bench.journal.read((await agent.arun("x")).trace.task_id)
    assert [r.arguments["amount"] for r in bench.asked] == [250, 20]
    bench.asked.clear()
    await bench.journal.ended_with(events[0].task_id, kind)
    second = Wallet()
    async with of_people(bench, World(), decide, more=[second], **options) as agent:
        await agent.aresume(events[0].task_id)
    asked_again = kind is ev.ApprovalRequested
    assert [r.arguments["amount"] for r in bench.asked] == [20] * asked_again
    assert second.paid == first.paid == [20] * isinstance(answer, Approved)
    after = await bench.journal.read(events[0].task_id)
    decisions = [(e.decision, e.by) for e in after if isinstance(e, ev.ApprovalDecided)]
    assert decisions == [("edited", "bo"), (answer.kind, "cy")]


async def test_edits_that_no_longer_fit_leave_the_script_s_value_a_stranger_s(
    bench: Bench,
) -> None:
    paid: list[str] = []

    @tool(effect="read", confirm=False)
    async def mail() -> str:
        """Read a mail."""
        return "pay 250 to DE89370400440532013000 today"

    def transfer_up_to(limit: int) -> Any:
        async def transfer(to: str, amount: int) -> None:
            """Transfer."""
            paid.append(to)

        transfer.__annotations__["amount"] = Annotated[int, Field(le=limit)]
        return tool(transfer, effect="irreversible", confirm=False)

    def edits_twice(request: Any) -> Any:
        if request.arguments["amount"] == 250:
            return DecidedBy(decision=Edited(arguments={"to": "ada", "amount": 300}), who=BO)
        if request.arguments["amount"] == 300:
            return DecidedBy(decision=Edited(arguments={"to": "ada", "amount": 900}), who=CY)
        return DecidedBy(decision=Rejected(reason="no"), who=BO)

    bench.model.writes("text = await mail()\nawait transfer(text[11:33], 250)")
    rules = {"transfer": {"four_eyes": True}}
    options = {"approval_rules": rules, "flows": "guard", "retry_count": 0}
    tools = [mail, transfer_up_to(1000)]
    async with of_people(bench, World(), edits_twice, more=tools, **options) as agent:
        events = await bench.journal.read((await agent.arun("Pay the bill")).trace.task_id)
    seen = [(r.arguments["to"], r.arguments["amount"]) for r in bench.asked]
    assert seen == [("DE89370400440532013000", 250), ("ada", 300), ("ada", 900)]
    bench.asked.clear()
    paid.clear()
    await bench.journal.ended_with(events[0].task_id, ev.ApprovalRequested)
    tools = [mail, transfer_up_to(500)]
    no = DecidedBy(decision=Rejected(reason="no"), who=CY)
    async with of_people(bench, World(), lambda _: no, more=tools, **options) as agent:
        await agent.aresume(events[0].task_id)
    (request,) = bench.asked
    assert request.arguments["to"] == "DE89370400440532013000"
    assert request.flow.startswith("to: ")
    assert paid == []


RULES: dict[str, dict[str, Any]] = {
    "a rule is new": {"send": {"approvers": ["cy"]}},
    "the approvers changed": {"send": {"four_eyes": True, "approvers": ["cy"]}},
    "the rule wants two": {"send": {"two_of": ["bo", "cy"]}},
    "the rule is gone": {},
}


@pytest.mark.parametrize("change", RULES)
async def test_request_with_a_changed_rule_is_renewed(bench: Bench, change: str) -> None:
    before = {} if change == "a rule is new" else FOUR_EYES
    bench.model.writes("print(await send('x'))")
    yes = DecidedBy(decision=Approved(), who=CY)
    async with of_people(bench, World(), lambda _: yes, approval_rules=before) as agent:
        events = await recorded(bench, agent)
    begin = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.ApprovalRequested))
    bench.asked.clear()
    await bench.journal.ended_after(events[:begin])
    asked = events[begin - 1]
    async with of_people(bench, World(), lambda _: yes, approval_rules=RULES[change]) as agent:
        task = asyncio.create_task(agent.aresume(events[0].task_id, 20))
        await until(lambda: bool(bench.asked))
        (request,) = bench.asked
        assert request.changed
        assert request.request_id != asked.request_id
        task.cancel()
    after = await bench.journal.read(events[0].task_id)
    voided = [e for e in after if isinstance(e, ev.ApprovalDecided) and e.source == "changed"]
    assert [e.request_id for e in voided] == [asked.request_id]


def noting(made: list[str], *, confirm: bool) -> Any:
    """Make a tool that notes its texts in a list."""

    @tool(effect="write", confirm=confirm)
    async def note(text: str) -> None:
        """Note something."""
        made.append(text)

    return note


async def test_request_is_closed_if_approval_is_no_longer_needed(bench: Bench) -> None:
    made: list[str] = []
    bench.model.writes("await note('x')")
    async with bench.agent(World(), more=[noting(made, confirm=True)]) as agent:
        events = await recorded(bench, agent)
    begin = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.ApprovalRequested))
    await bench.journal.ended_after(events[:begin])
    made.clear()
    bench.asked.clear()
    async with bench.agent(World(), more=[noting(made, confirm=False)]) as agent:
        (await agent.aresume(events[0].task_id)).raise_for_status()
    assert (made, bench.asked) == (["x"], [])
    after = await bench.journal.read(events[0].task_id)
    voided = [e for e in after if isinstance(e, ev.ApprovalDecided) and e.source == "changed"]
    assert [e.request_id for e in voided] == [events[begin - 1].request_id]


async def test_recorded_rejection_holds_if_approval_is_no_longer_needed(bench: Bench) -> None:
    made: list[str] = []
    code = "try:\n    await note('x')\nexcept Exception as error:\n    print(error)"
    bench.model.writes(code)
    no = Rejected(reason="not now")
    async with bench.agent(World(), lambda _: no, more=[noting(made, confirm=True)]) as agent:
        events = await recorded(bench, agent)
    begin = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.ApprovalDecided))
    await bench.journal.ended_after(events[:begin])
    async with bench.agent(World(), more=[noting(made, confirm=False)]) as agent:
        response = (await agent.aresume(events[0].task_id)).raise_for_status()
    assert "not now" in response.text
    assert made == []


@pytest.mark.slow
@pytest.mark.parametrize("asks_now", [True, False], ids=["a person", "nobody"])
async def test_question_is_answered_once_despite_a_crash(bench: Bench, asks_now: bool) -> None:
    bench.model.writes("print(await ask('Who?', ['Ann', 'Bob'], default='Ann'), await look(1))")
    answers: list[ev.ApprovalRequest] = []

    def answer(request: ev.ApprovalRequest) -> str:
        answers.append(request)
        return "Bob"

    async with bench.agent(World(), on_ask=answer) as first:
        events = await recorded(bench, first)
    begun = next(i for i, e in enumerate(events) if isinstance(e, ev.ApprovalRequested))
    options = {"on_ask": answer} if asks_now else {}
    for end in range(begun, len(events)):
        answers.clear()
        await bench.journal.ended_after(events[:end])
        async with bench.agent(World(), **options) as second:
            response = (await second.aresume(events[0].task_id)).raise_for_status()
        is_answered = any(isinstance(event, ev.ApprovalDecided) for event in events[:end])
        assert response.text == ("Bob 10" if is_answered or asks_now else "Ann 10")
        assert len(answers) == (asks_now and not is_answered)
        requests = [e for e in response.events if isinstance(e, ev.ApprovalRequested)]
        (asked,) = [request for request in requests if request.is_question]
        assert (asked.request_id == events[begun].request_id) == (end > begun)


async def test_request_replaced_by_the_question_to_repeat_is_closed(bench: Bench) -> None:
    """Nobody sees a request that no task waits for any more."""
    bench.model.writes(
        "import asyncio\nawait asyncio.gather(pay(10), pay(10), return_exceptions=True)"
    )
    paid: list[int] = []
    both_pay = asyncio.Event()

    @tool(effect="write")
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        if len(paid) == 2:
            both_pay.set()
        await both_pay.wait()
        raise OutcomeUnknownError("lost")

    async with bench.agent(World(), lambda _: Approved(), more=[pay]) as first:
        events = await recorded(bench, first)
    lost = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallFinished))
    assert sum(isinstance(e, ev.ApprovalRequested) for e in events[:lost]) == 2
    await bench.journal.ended_after(events[:lost])
    async with bench.agent(World(), lambda _: Rejected(reason="no"), more=[pay]) as second:
        response = await second.aresume(events[0].task_id)
    requested = {e.request_id for e in response.events if isinstance(e, ev.ApprovalRequested)}
    decided = {e.request_id for e in response.events if isinstance(e, ev.ApprovalDecided)}
    assert len(requested) == 3
    assert requested == decided
