"""Requests for approval: who may answer, and what happens to them."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from delf.errors import ConfigurationError, DelfError, UnknownRequestError, UnrecordedEventError
from delf.events import ApprovalDecided, ApprovalRequested, Event
from delf.protocols.approval import (
    AlreadyDone,
    ApprovalRequest,
    Approved,
    ChangesRequested,
    Decider,
    Decision,
    Edited,
    Expired,
    Rejected,
)
from delf.tools.function import tool
from delf_engine.approvals.channels import CallbackChannel, NamedChannel
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.pending import PendingRequests
from delf_engine.approvals.policy import TaskApprovals
from delf_engine.approvals.shared import Approvals
from delf_engine.calls.call import Call, call_digest
from delf_engine.config import AgentConfig
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest
from delf_engine.toolset import Toolset, load_toolset
from delf_engine.waiting import Permit, TaskClock
from support.until import until

E = TypeVar("E", bound=Event)


@tool(effect="write")
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


class Bench:
    """A task's approvals with all that they need."""

    def __init__(
        self, tools: Toolset, channels: Any = (), seen: Any = None, **options: Any
    ) -> None:
        self.pending = PendingRequests()
        self.journal = InProcessJournal()
        self.log = TaskLog("task_1", self.journal, [seen or self._seen])
        self.asked: asyncio.Queue[ApprovalRequested] = asyncio.Queue()
        self.decided: asyncio.Queue[ApprovalDecided] = asyncio.Queue()
        self.permit = Permit(options.pop("places", None) or asyncio.Semaphore(5))
        options.setdefault("approval_timeout", 5.0)
        takes_changes = options.pop("takes_changes", False)
        config = AgentConfig(**options)
        shared = Approvals(config=config, channels=tuple(channels), pending_requests=self.pending)
        order = TaskRequest(task="a task", timeout=60)
        clock = TaskClock(60)
        self.approvals = TaskApprovals(
            shared, order, self.log, self.permit, clock, can_request_changes=takes_changes
        )
        (self.bound,) = tools.actions

    def _seen(self, event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            self.asked.put_nowait(event)
        elif isinstance(event, ApprovalDecided):
            self.decided.put_nowait(event)

    def decide(self, n: int) -> asyncio.Task[Decision]:
        digest = call_digest("pay", {"n": n})
        return asyncio.create_task(self._decision(n, digest))

    async def _decision(self, n: int, digest: str) -> Decision:
        self.call = Call(1, self.bound, {"n": n}, None, digest)
        return (await self.approvals.decide(self.call)).decision

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in self.log.events if isinstance(event, kind)]


@pytest.fixture
async def tools() -> Toolset:
    return await load_toolset([pay])


async def test_request_without_channels_is_rejected_at_once(tools: Toolset) -> None:
    rejection = await Bench(tools).decide(1)
    assert isinstance(rejection, Rejected)
    assert "nobody could be asked; run it on a terminal" in rejection.reason


async def test_request_with_wait_approvals_stays_pending(tools: Toolset) -> None:
    bench = Bench(tools, wait_approvals=True)
    work = bench.decide(1)
    name = (await bench.asked.get()).request_id
    bench.pending.submit(name, Answer(Approved(), Decider(name="cli"), 7))
    assert await work == Approved()
    (decided,) = bench.events(ApprovalDecided)
    assert (decided.request_id, decided.by, decided.note) == (name, "cli", 7)


async def await_what_is_cancelled(request: ApprovalRequest) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


class Broken:
    decide = staticmethod(await_what_is_cancelled)


class Yes:
    async def decide(self, request: ApprovalRequest) -> Any:
        return Approved()


class Down:
    async def decide(self, request: ApprovalRequest) -> None:
        raise ConnectionRefusedError("connection refused")


async def test_rejection_names_the_channels_that_failed(tools: Toolset) -> None:
    bench = Bench(tools, [NamedChannel("webask", Down()), NamedChannel("pager", Down())])
    rejected = await bench.decide(1)
    assert isinstance(rejected, Rejected)
    message = "nobody could be asked (webask failed: connection refused; pager failed: connection"
    assert message in rejected.reason


@pytest.mark.parametrize("callback", [await_what_is_cancelled])
async def test_unreachable_person_behind_a_callback_rejects(
    tools: Toolset, callback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tools, [NamedChannel("on_confirm", CallbackChannel(callback))])
    message = await bench.decide(1)
    assert isinstance(message, Rejected)
    assert "nobody could be asked" in message.reason
    (decided,) = bench.events(ApprovalDecided)
    assert (decided.decision, decided.by) == ("rejected", "nobody")
    assert "approval channel" in caplog.text


class Sure(Approved):
    """A yes of another kind, which nobody here knows."""


def fails(_request: ApprovalRequest) -> None:
    raise ConnectionError("the pager is down")


async def waits(_request: ApprovalRequest) -> None:
    await asyncio.get_running_loop().create_future()


def _any(value: Any) -> Any:
    return value


NO_DECISION: dict[str, Callable[[ApprovalRequest], Any]] = {
    "it fails": fails,
    "it waits": waits,
    "one": lambda _: 1,
    "a word": lambda _: "approved",
    "data": lambda _: {"decision": "approved"},
    "a class": lambda _: Approved,
    "another kind": lambda _: Sure(),
    "forever": lambda _: Approved(remember=_any("forever")),
    "everything": lambda _: Approved(covers=_any("everything")),
    "edited to nothing": lambda _: Edited(arguments=_any(None)),
    "edited to a list": lambda _: Edited(arguments=_any([("n", 1)])),
    "edited to numbers": lambda _: Edited(arguments=_any({1: 2})),
    "done already": lambda _: AlreadyDone(result=1),
}


def says_true(_request: ApprovalRequest) -> Any:
    return True


class Says:
    """A channel with one answer."""

    def __init__(self, answer: Callable[[ApprovalRequest], Any]) -> None:
        self._answer = answer

    async def decide(self, request: ApprovalRequest) -> Any:
        answer = self._answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest.mark.parametrize("answer", [*NO_DECISION.values(), says_true], ids=[*NO_DECISION, "true"])
async def test_undecided_channel_approves_nothing(
    tools: Toolset, answer: Callable[[ApprovalRequest], Any]
) -> None:
    bench = Bench(tools, [NamedChannel("pager", Says(answer))], approval_timeout=0.2)
    decision = await bench.decide(1)
    assert isinstance(decision, (Rejected, Expired))
    (decided,) = bench.events(ApprovalDecided)
    assert decided.decision in ("rejected", "expired")


@pytest.mark.parametrize("answer", NO_DECISION.values(), ids=NO_DECISION)
async def test_on_confirm_approves_only_with_true(
    tools: Toolset, answer: Callable[[ApprovalRequest], Any]
) -> None:
    channel = NamedChannel("on_confirm", CallbackChannel(answer))
    decision = await Bench(tools, [channel], approval_timeout=0.2).decide(1)
    assert isinstance(decision, (Rejected, Expired))


@pytest.mark.parametrize("remember", ["forever", "session", True, None])
def test_approval_with_an_unknown_duration_is_refused(remember: Any) -> None:
    with pytest.raises(ConfigurationError, match="remember of Approved"):
        Approved(remember=remember)


def request(**changes: Any) -> ApprovalRequest:
    fields: dict[str, Any] = {
        "request_id": "req_1",
        "task_id": "task_1",
        "task": "a task",
        "action": "pay",
        "permission": "pay",
        "effect": "write",
        "arguments": {"n": 1},
        "description": None,
        "digest": "d",
    }
    return ApprovalRequest(**{**fields, **changes})


def opened(pending: PendingRequests, request: ApprovalRequest) -> asyncio.Future[Answer]:
    """Open a request that the first answer decides."""
    return pending.open(request, lambda _: True, lambda *_: None)


async def test_answer_for_other_arguments_is_refused(tools: Toolset) -> None:
    pending = PendingRequests()
    answer = opened(pending, request())
    with pytest.raises(DelfError, match="is for another call"):
        pending.submit("req_1", Answer(Approved()), digest="other")
    assert pending.find("req_1") is not None
    pending.submit("req_1", Answer(Approved()), digest="d")
    assert (await answer).decision == Approved()


async def test_edited_answer_to_a_script_request_is_refused() -> None:
    pending = PendingRequests()
    opened(pending, request(code="print(1)"))
    with pytest.raises(DelfError, match="a script cannot be edited") as caught:
        pending.submit("req_1", Answer(Edited(arguments={})))
    assert "reject it" in (caught.value.hint or "")
    assert pending.find("req_1") is not None


@pytest.mark.parametrize(
    ("outcome_unknown", "decision", "message"),
    [
        (True, Edited(arguments={}), "an interrupted call cannot be changed"),
        (False, AlreadyDone(result=1), "only an interrupted call can be settled"),
    ],
)
async def test_unsupported_answer_leaves_the_request_pending(
    outcome_unknown: bool, decision: Decision, message: str
) -> None:
    pending = PendingRequests()
    opened(pending, request(outcome_unknown=outcome_unknown))
    with pytest.raises(DelfError, match=message):
        pending.submit("req_1", Answer(decision))
    assert pending.find("req_1") is not None


async def test_first_of_two_answers_counts() -> None:
    pending = PendingRequests()
    answer = opened(pending, request())
    pending.submit("req_1", Answer(Approved(), Decider(name="one")))
    with pytest.raises(UnknownRequestError, match="any more: answered"):
        pending.submit("req_1", Answer(Rejected(reason="no"), Decider(name="two")))
    assert (await answer).who.name == "one"


async def test_accepted_answer_decides_the_request(tools: Toolset) -> None:
    """Even if the request expires in the same moment: the person has a confirmation."""

    class Late:
        async def decide(self, request: ApprovalRequest) -> None:
            bench.pending.submit(request.request_id, Answer(Approved(), Decider(name="cli")))
            await asyncio.Event().wait()

    bench = Bench(tools, [NamedChannel("late", Late())], approval_timeout=1e-9)
    assert await bench.decide(1) == Approved()
    (decided,) = bench.events(ApprovalDecided)
    assert (decided.decision, decided.by) == ("approved", "cli")


# -- the moment in which a request is seen ------------------------------------------------


async def test_request_can_be_answered_as_soon_as_it_is_visible(tools: Toolset) -> None:
    def answer_at_once(event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            bench.pending.submit(event.request_id, Answer(Approved(), Decider(name="bob")))

    bench = Bench(tools, seen=answer_at_once, wait_approvals=True)
    assert await bench.decide(1) == Approved()
    kinds = [type(event) for event in bench.log.events]
    assert kinds == [ApprovalRequested, ApprovalDecided]


async def test_request_that_cannot_be_journalled_fails_at_once(tools: Toolset) -> None:
    bench = Bench(tools, wait_approvals=True)

    async def full(event: Event) -> None:
        raise OSError("the disk is full")

    bench.journal.append = full
    with pytest.raises(UnrecordedEventError, match="full"):
        await bench.decide(1)
    assert bench.pending.list() == []


async def pending_name(bench: Bench) -> str:
    name = (await bench.asked.get()).request_id
    await until(lambda: bench.pending.find(name) is not None)
    return name


async def ended(work: asyncio.Task[Decision]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_decision_is_journalled_before_the_permit_is_reacquired(tools: Toolset) -> None:
    places = asyncio.Semaphore(1)
    bench = Bench(tools, wait_approvals=True, places=places)
    async with bench.permit:
        work = bench.decide(1)
        name = await pending_name(bench)
        await places.acquire()  # another task runs meanwhile
        bench.pending.submit(name, Answer(Approved(remember="task"), Decider(name="bob")))
        decided = await bench.decided.get()
        assert (decided.decision, decided.by) == ("approved", "bob")
        assert not work.done()
        places.release()
        assert await work == Approved(remember="task")
        assert len(bench.events(ApprovalDecided)) == 1
        assert await bench.decide(1) == Approved(reason="remembered")


@pytest.mark.parametrize(("abandoned", "source"), [(False, "sandbox_died"), (True, "abandoned")])
async def test_unanswered_request_states_its_reason(
    tools: Toolset, abandoned: bool, source: str
) -> None:
    bench = Bench(tools, wait_approvals=True)
    work = bench.decide(1)
    name = await pending_name(bench)
    bench.call.abandoned = abandoned
    work.cancel()
    await ended(work)
    (decided,) = bench.events(ApprovalDecided)
    assert (decided.decision, decided.source) == ("expired", source)
    assert decided.reason == "the call was given up before anybody answered"
    with pytest.raises(UnknownRequestError, match="any more: cancelled"):
        bench.pending.submit(name, Answer(Approved()))


async def test_answer_after_the_timeout_learns_that_the_request_expired(tools: Toolset) -> None:
    bench = Bench(tools, wait_approvals=True, approval_timeout=0.01)
    await bench.decide(1)
    (asked,) = bench.events(ApprovalRequested)
    with pytest.raises(UnknownRequestError, match="any more: expired"):
        bench.pending.submit(asked.request_id, Answer(Approved()))


async def test_answer_after_requested_changes_learns_of_these(tools: Toolset) -> None:
    bench = Bench(tools, wait_approvals=True, takes_changes=True)
    work = bench.decide(1)
    name = await pending_name(bench)
    bench.pending.submit(name, Answer(ChangesRequested(reason="send less")))
    await work
    with pytest.raises(UnknownRequestError, match="any more: changes requested"):
        bench.pending.submit(name, Answer(Approved()))
