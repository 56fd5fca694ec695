"""Requests for approval, and what other processes say to the one that asks."""

from __future__ import annotations

import asyncio
import re

import pytest

from delf import Agent, tool
from delf.errors import JournalUnavailableError, UnknownRequestError
from delf.events import ApprovalDecided, ApprovalRequested, TaskFinished, TaskStarted
from delf.protocols.approval import ApprovalRequest, Approved, Decider, Rejected
from delf.protocols.journal import SupportsRemembered
from delf.testing import script
from delf_engine.approvals.inbox import ANSWER_KIND, Inbox, answer_data
from delf_engine.approvals.pending import PendingRequests
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalError

ASKED = {"call_id": 1, "action": "pay", "effect": "write", "digest": "d"}


async def ask(journal, task_id, *names, at=1.0):
    await journal.append(TaskStarted(task_id=task_id, seq=1, at=at, task=f"do {task_id}"))
    for seq, name in enumerate(names, 2):
        event = ApprovalRequested(
            task_id=task_id, seq=seq, at=at, request_id=name, arguments={"n": seq}, **ASKED
        )
        await journal.append(event)


async def decide(journal, task_id, seq, name):
    decided = {"request_id": name, "decision": "approved", "by": "ann"}
    await journal.append(ApprovalDecided(task_id=task_id, seq=seq, at=2.0, **decided))


def opened(pending, request):
    """Open a request that the first answer decides."""
    return pending.open(request, lambda _: True, lambda *_: None)


def names(records):
    return [record.requested.request_id for record in records]


async def test_request_of_a_finished_or_ownerless_task_is_not_pending(journal_url, open_journal):
    journal, other = open_journal(journal_url), open_journal(journal_url)
    await ask(journal, "over", "req_1")
    end = {"status": False, "text": "", "duration_ms": 1.0}
    await journal.append(TaskFinished(task_id="over", seq=3, at=2.0, **end))
    await ask(journal, "left", "req_2")
    await journal.aclose()
    assert names(await other.find_requests(waiting=True)) == []
    states = [record.task.state for record in await other.find_requests()]
    assert states == ["failed", "interrupted"]


async def test_agent_without_its_journal_does_not_start(tmp_path, delf_host, scripted_model):
    (tmp_path / "file").write_text("no folder")
    url = str(tmp_path / "file" / "journal.db")
    agent = Agent(llm="scripted", host=delf_host, journal="sql")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(JournalUnavailableError):
        patch.setenv("DELF_JOURNAL_SQL_URL", url)
        await agent.astart()


# -- decisions that are remembered -------------------------------------------------------------


def require_remembered(task_id, seq, name, **more):
    given = {"decision": "approved", "by": "ann", "project": "/shop", **more}
    return ApprovalDecided(task_id=task_id, seq=seq, at=float(seq), request_id=name, **given)


async def test_remembered_approval_is_shared_and_revoked_across_processes(
    journal_url, open_journal
):
    journal, other = open_journal(journal_url), open_journal(journal_url)
    assert isinstance(journal, SupportsRemembered)
    await ask(journal, "a", "req_1", "req_2", "req_3", "req_4", "req_5")
    lasts = {"remember": "until_revoked"}
    await journal.append(
        require_remembered("a", 7, "req_1", covers="action", user="bob:1", **lasts)
    )
    await journal.append(require_remembered("a", 8, "req_2", remember="task"))
    await journal.append(require_remembered("a", 9, "req_3", decision="rejected", **lasts))
    message = {"reason": 'he wrote "until_revoked"', "remember": "no"}
    await journal.append(require_remembered("a", 10, "req_4", **message))
    await journal.append(require_remembered("a", 11, "req_5", **lasts))
    await journal.append(
        TaskFinished(task_id="a", seq=12, at=12.0, status=True, text="", duration_ms=1.0)
    )
    first, second = await other.remembered()
    assert (first.request_id, first.task_id, first.arguments) == ("req_1", "a", None)
    assert (first.by, first.user, first.project, first.at) == ("ann", "bob:1", "/shop", 7.0)
    assert (second.request_id, second.arguments, second.user) == ("req_5", {"n": 6}, None)
    with pytest.raises(UnknownRequestError):
        await other.revoke("req_2", "cli")
    assert await other.revoke("req_1", "cli") == first
    assert [d.request_id for d in await journal.remembered()] == ["req_5"]
    with pytest.raises(UnknownRequestError):
        await journal.revoke("req_1", "cli")


async def test_concurrent_revoke_succeeds_once(journal_url, open_journal):
    journals = [open_journal(journal_url) for _ in range(4)]
    await ask(journals[0], "a", "req_1")
    await journals[0].append(require_remembered("a", 3, "req_1", remember="until_revoked"))
    answers = await asyncio.gather(
        *(journal.revoke("req_1", "cli") for journal in journals),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if isinstance(answer, UnknownRequestError)]
    assert len(refused) == 3
    assert await journals[1].remembered() == []


# -- answers --------------------------------------------------------------------------------


def request(name="req_1", **changes):
    fields = {
        "request_id": name,
        "task_id": "a",
        "task": "do a",
        "action": "pay",
        "permission": "pay",
        "effect": "write",
        "arguments": {"n": 1, "to": "ada"},
        "description": None,
        "digest": "d",
    }
    return ApprovalRequest(**{**fields, **changes})


@pytest.fixture
async def waiting(journal_url, open_journal):
    """A pending request, with the journal of the other process."""
    journal, other = open_journal(journal_url), open_journal(journal_url)
    pending = PendingRequests()
    async with Inbox(journal, pending).watched():
        await ask(journal, "a", "req_1")
        yield opened(pending, request()), other, pending


@pytest.mark.parametrize(
    "data",
    [
        {"request_id": "req_2", "digest": "d", "decision": "approved", "remember": "no"},
        {"request_id": "req_1", "digest": "other", "decision": "approved", "remember": "no"},
        {"request_id": "req_1", "digest": "d", "decision": "approved", "remember": "forever"},
        {"request_id": "req_1", "digest": "d", "decision": "edited", "arguments": [1]},
        {"request_id": "req_1", "digest": "d", "decision": "maybe"},
        {"request_id": "req_1", "decision": "approved", "remember": "no"},
        {"request_id": "req_2", "decision": "approved", "teams": None},
        {"request_id": "req_2", "decision": "approved", "teams": 7},
        {},
    ],
)
async def test_invalid_note_leaves_a_request_waiting(waiting, data):
    answer, other, pending = waiting
    await other.post("a", ANSWER_KIND, data)
    await other.post("a", "something else", {})
    await other.post(
        "a", ANSWER_KIND, answer_data("req_1", "d", Rejected(reason="last"), Decider(name="cli"))
    )
    assert (await answer).decision == Rejected(reason="last")
    assert pending.list() == []


class Lossy(SqlJournal):
    """A database that loses its connection once while notes are awaited.

    Args:
        place: The database.
        seen: The number of notes before the loss.
    """

    def __init__(self, place: str, seen: int) -> None:
        super().__init__(place)
        self.lost = asyncio.Event()
        self._seen = seen

    def subscribe_notes(self, task_id=None, after=None):
        notes = super().subscribe_notes(task_id, after)
        return notes if self.lost.is_set() else self._until_lost(notes)

    async def _until_lost(self, notes):
        for _ in range(self._seen):
            yield await anext(notes)
        self.lost.set()
        raise JournalError("the connection was lost")


@pytest.mark.parametrize("seen", [0, 1])
async def test_answers_arrive_after_a_reconnect(journal_url, open_journal, seen, caplog):
    other, pending = open_journal(journal_url), PendingRequests()
    await ask(other, "a", "req_1", "req_2")
    await other.post("a", "earlier", {})
    journal = Lossy(journal_url, seen)
    async with Inbox(journal, pending).watched():
        answers = [opened(pending, request(name)) for name in ("req_1", "req_2")]
        await journal.find()  # so that the subscription has begun
        await other.post(
            "a", ANSWER_KIND, answer_data("req_1", "d", Approved(), Decider(name="cli"))
        )
        await journal.lost.wait()
        await other.post(
            "a", ANSWER_KIND, answer_data("req_2", "d", Rejected(reason="no"), Decider(name="cli"))
        )
        settled = await asyncio.gather(*answers)
    await journal.aclose()
    assert [answer.decision for answer in settled] == [Approved(), Rejected(reason="no")]
    loss, recovery = caplog.messages
    assert loss == "answers of other processes come late (failure 1): the connection was lost"
    assert recovery.startswith("answers of other processes come late: works again after 1 failure")


async def test_answer_given_before_the_task_resumes_counts(
    tmp_path, journal_url, open_journal, delf_host, scripted_model, monkeypatch
):
    paid: list[int] = []

    @tool
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    def agent():
        given = {"llm": "scripted", "host": delf_host, "journal": "sql", "wait_approvals": True}
        return Agent(tools=[pay], **given)

    scripted_model.writes("print(await pay(1))")
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "killed.db"))
    killed = open_journal(str(tmp_path / "killed.db"))
    live = killed.subscribe()
    async with agent() as first:
        name = await first.asubmit("pay")
        asked = await anext(event async for event in live if isinstance(event, ApprovalRequested))
        events = [event for event in await killed.read(name) if event.seq <= asked.seq]
    left = open_journal(journal_url)
    for event in events:
        await left.append(event)
    for message in (Rejected(reason="whoever said so was told that nobody heard it"), Approved()):
        answer = answer_data(asked.request_id, asked.digest, message, Decider(name="cli"))
        position = await left.post(name, ANSWER_KIND, answer)
    await left.aclose()
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", journal_url)
    async with agent() as second:
        response = await second.aresume(name)
    assert (response.text, paid) == ("paid 1", [1])
    (decided,) = [e for e in await left.read(name) if isinstance(e, ApprovalDecided)]
    assert (decided.request_id, decided.by, decided.note) == (asked.request_id, "cli", position)


# -- many -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_tasks_waiting_for_approval_do_not_block_other_tasks(
    sqlite_place, open_journal, delf_host, scripted_model, monkeypatch
):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", sqlite_place)
    paid: list[int] = []

    @tool
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    def answer(model_request):
        found = re.search(r"pay number (\d+)", model_request.messages[-1].text)
        return script(f"print(await pay({found[1]}))" if found else "print('free')")

    scripted_model.default = answer
    agent = Agent(tools=[pay], llm="scripted", host=delf_host, journal="sql", max_tasks=8)
    other = open_journal(sqlite_place)
    live = other.subscribe()
    async with agent:
        asking = [await agent.asubmit(f"pay number {n}") for n in range(40)]
        asked = []
        while len(asked) < 40:
            event = await asyncio.wait_for(anext(live), 60)
            if isinstance(event, ApprovalRequested):
                asked.append(event)
        free = await asyncio.gather(*(agent.arun("say it") for _ in range(40)))
        assert {response.text for response in free} == {"free"}
        assert paid == []
        assert len(await other.find_requests(waiting=True)) == 40
        for event in asked:
            data = answer_data(event.request_id, event.digest, Approved(), Decider(name="cli"))
            await other.post(event.task_id, ANSWER_KIND, data)
        done = await asyncio.gather(*asking)
    assert [response.text for response in done] == [f"paid {n}" for n in range(40)]
    assert sorted(paid) == list(range(40))
