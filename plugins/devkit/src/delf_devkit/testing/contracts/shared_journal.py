"""Further duties of a journal that several processes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from delf.errors import DelfError, TaskStoppedError, UnknownRequestError, UnknownTaskError
from delf.events import ApprovalDecided, ApprovalRequested, TaskPostponed, TaskQueued
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_devkit.testing.contracts.base import Contract, fail_without, needs, open_with
from delf_devkit.testing.contracts.journal import finished, printed, started

_MANY = 4
_ROUNDS = 10


def asked(task_id: str, seq: int, request_id: str) -> ApprovalRequested:
    """Return a request for approval."""
    return ApprovalRequested(
        task_id=task_id,
        seq=seq,
        at=float(seq),
        request_id=request_id,
        call_id=seq,
        action="bank.pay",
        arguments={"amount": seq},
        effect="irreversible",
        digest="ab" * 32,
    )


def decided(task_id: str, seq: int, request_id: str, **changes: Any) -> ApprovalDecided:
    """Return the event of a decision: approved by ``ann``, unless ``changes`` say otherwise."""
    fields: dict[str, Any] = {"decision": "approved", "by": "ann", **changes}
    return ApprovalDecided(task_id=task_id, seq=seq, at=float(seq), request_id=request_id, **fields)


async def _ask_three_and_reject_the_first(journal: Any) -> None:
    await journal.append(started("a"))
    for seq, request_id in enumerate(("req_1a", "req_2b", "req_2c"), 2):
        await journal.append(asked("a", seq, request_id))
    await journal.append(decided("a", 5, "req_1a", decision="rejected"))


class SharedJournalContract(Contract):
    """Tests for a shared journal; needs a fixture ``reopen``, which opens the same journal again.

    The journal starts empty. Each journal that ``reopen`` returns stands for a process. Set the
    class attribute ``upkeep`` to False if the journal has no backups to test. See
    :class:`delf.testing.JournalContract` for the tests of a single process.
    """

    upkeep: ClassVar[bool] = True

    @pytest.fixture
    def reopen(self) -> Callable[[], Any]:
        """A function that opens the journal under test."""
        fail_without(self, "a fixture `reopen`")

    @pytest_asyncio.fixture(name="two_journals")
    async def _open_two(self, reopen: Callable[[], Any]) -> Any:
        """Open the journal twice, as two processes would."""
        journals = [await open_with(reopen), await open_with(reopen)]
        yield journals
        for journal in journals:
            await journal.aclose()

    async def test_journal_satisfies_the_shared_protocol(self, two_journals: Sequence[Any]) -> None:
        assert isinstance(two_journals[0], SharedJournal), "it is not a SharedJournal"
        await two_journals[0].open()
        assert two_journals[0].place.strip()
        await two_journals[0].check()

    async def test_secrets_are_never_shown(self, two_journals: Sequence[Any]) -> None:
        journal, _ = two_journals  # opened twice; one of them is enough here
        # check() reads the whole journal, so its logs, errors or result could show a secret.
        await self.check_no_secret_is_shown(journal, use=journal.check)

    async def test_process_sees_events_of_another(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        await one.append(started("a"))
        stream = other.subscribe("a")
        numbers = {event.seq for event in await other.read("a")}
        await one.append(printed("a", 2))
        while numbers != {1, 2}:
            numbers.add((await anext(stream)).seq)
        assert (await other.task("a")).state == TaskState.RUNNING
        await stream.aclose()

    async def test_find_filters_by_state_text_and_time(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        for number, name in enumerate(("ann 50%_", "bob", "cleo"), 1):
            await one.append(started(name, at=float(number)))
        await one.append(finished("bob", 2))
        assert await self._task_ids(other, state=TaskState.DONE) == ["bob"]
        assert await self._task_ids(other, state=TaskState.RUNNING) == ["cleo", "ann 50%_"]
        assert await self._task_ids(other, text="DO CLEO") == ["cleo"]
        assert await self._task_ids(other, text="50%_") == ["ann 50%_"]
        assert await self._task_ids(other, text="5%") == [], (
            "the wildcards % and _ of SQL's LIKE are searched as text"
        )
        assert await self._task_ids(other, since=2.0) == ["cleo", "bob"]
        assert await self._task_ids(other, limit=1, since=1.0) == ["cleo"]
        assert dict(await other.count()) == {"running": 2, "done": 1}

    async def test_find_filters_by_fields(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        for name in ("day", "night"):
            queued = TaskQueued(task_id=name, seq=1, at=1.0, task=name, timeout=30, queue=name)
            await one.append(queued)
        assert await self._task_ids(other, fields={"queue": "night"}) == ["night"]
        assert await self._task_ids(other, fields={"queue": "noon"}) == []

    async def test_list_continues_after_a_cursor(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        # Two tasks each begin at the same time: "a" and "b", "c" and "d".
        for number, name in enumerate("abcde"):
            await one.append(started(name, at=float(number // 2)))
        first = await other.find(2)
        assert [task.task_id for task in first] == ["e", "d"]
        cursor = first[-1].place  # the start time and the id of the task "d"
        assert await self._task_ids(other, 2, after=cursor) == ["c", "b"]
        assert await self._task_ids(other, after=cursor, state=TaskState.RUNNING) == ["c", "b", "a"]
        await one.append(finished("d", 2))
        await one.append(started("new", at=9.0))
        await other.remove(["d"])
        remaining = await self._task_ids(other, after=cursor)
        # A journal may omit "c", which began at the same time as the removed task.
        assert remaining in (["c", "b", "a"], ["b", "a"]), (
            "a list ends, or begins again, once the last task of the page before was removed"
        )
        cursor_after_oldest_task = (-1.0, "a")
        assert await self._task_ids(other, after=cursor_after_oldest_task) == []

    async def test_task_id_can_be_abbreviated(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        for name, user in (("task_ab1", "ada"), ("task_ab2", "bo"), ("task_c", None)):
            await one.append(started(name, user=user))
        assert await other.resolve("task_c") == "task_c"
        assert await other.resolve("task_ab2", ["ada", "bo"]) == "task_ab2"
        assert await other.resolve("task_ab", ["ada"]) == "task_ab1"
        for text in ("task_ab", "nowhere", "task%"):
            with pytest.raises(UnknownTaskError):
                await other.resolve(text)
        for text in ("task_ab1", "task_c", "task_"):
            for other_users in (["eve"], []):
                with pytest.raises(UnknownTaskError):
                    await other.resolve(text, other_users)
        with pytest.raises(UnknownTaskError):
            await other.task("nowhere")

    async def test_remove_deletes_ended_tasks_and_keeps_running_ones(
        self, two_journals: Sequence[Any]
    ) -> None:
        one, other = two_journals
        for name in ("old", "older", "runs"):
            await one.append(started(name))
        for name in ("old", "older"):
            await one.append(finished(name, 2))
        plan = await other.prune(dry_run=True)
        assert set(plan.tasks) == {"old", "older"}
        assert plan.events == 4
        assert len(await other.find()) == 3, "a dry run removes nothing"
        removed = await other.remove(["older", "runs", "nowhere"])
        assert (set(removed.tasks), removed.events) == ({"older"}, 2)
        with pytest.raises(UnknownTaskError):
            await one.read("older")
        assert list((await other.prune(older_than=1e12)).tasks) == []  # no task is that old
        assert list((await other.prune(keep=5)).tasks) == []
        # The minimum age in seconds by state: the only ended task is done, and not that old.
        min_ages = {TaskState.FAILED: 0.0, TaskState.STOPPED: 0.0, TaskState.DONE: 1e12}
        assert list((await other.prune(min_ages)).tasks) == []
        assert list((await other.prune({TaskState.FAILED: 0.0})).tasks) == []
        assert list((await other.prune()).tasks) == ["old"]
        assert await self._task_ids(one) == ["runs"]

    async def test_task_has_one_owner(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        await one.append(started("t"))
        await _check_refused(
            other.claim("t"), "a second process claims a task that runs in the first"
        )
        await one.release("t")
        assert (await other.task("t")).state == TaskState.INTERRUPTED
        await other.claim("t")
        await other.append(printed("t", 2))
        assert (await one.task("t")).state == TaskState.RUNNING
        await _check_refused(
            one.append(printed("t", 3)), "a process appends to a task that it lost"
        )
        assert [event.seq for event in await other.read("t")] == [1, 2], (
            "a process that had lost the task stored an event of the task: the new owner would "
            "repeat the calls of the process"
        )
        with pytest.raises(UnknownTaskError):
            await other.claim("nowhere")
        await other.release("nowhere")

    async def test_closed_journal_owns_no_task(self, two_journals: Sequence[Any]) -> None:
        closed, other = two_journals
        await closed.append(started("running"))
        submitted = TaskQueued(task_id="submitted", seq=1, at=1.0, task="do it", timeout=30)
        await closed.append(submitted)
        await closed.append(replace(submitted, task_id="queued", queue="night"))
        await closed.aclose()
        state = (await other.task("submitted")).state
        assert state == TaskState.INTERRUPTED, (
            f"a submitted task without a queue is {state!r} when its owner has closed the journal: "
            "no runner takes the task, and nobody learns that it has to be resumed"
        )
        assert (await other.task("queued")).state == TaskState.QUEUED, (
            "a runner would not take the task"
        )
        (outcome,) = await _results_of(other.claim("running"))
        assert not isinstance(outcome, Exception), (
            f"a closed journal keeps its tasks, so that nobody can resume them: {outcome!r}; "
            "release them in `aclose`"
        )

    async def test_postponed_task_waits_for_another_attempt(
        self, two_journals: Sequence[Any]
    ) -> None:
        one, other = two_journals
        queued = TaskQueued(task_id="p", seq=1, at=1.0, task="do p", timeout=30, queue="night")
        await one.append(queued)
        await one.append(replace(started("p"), seq=2))
        postponed = TaskPostponed(
            task_id="p", seq=3, at=3.0, error="it is busy", code="ERR", tries=2, not_before=99.0
        )
        await one.append(postponed)
        record = await other.task("p")
        assert (record.state, record.tries, record.not_before) == ("queued", 2, 99.0), (
            f"a postponed task is {record.state!r} until {record.not_before!r} after "
            f"{record.tries} attempts: nobody would try it again at its time"
        )

    async def test_concurrent_claims_succeed_once(self, reopen: Callable[[], Any]) -> None:
        first = await open_with(reopen)
        others = [await open_with(reopen) for _ in range(_MANY)]
        for name in map(str, range(_ROUNDS)):
            await first.append(started(name))
            await first.release(name)
            outcomes = await _results_of(*(journal.claim(name) for journal in others))
            holders = [outcome for outcome in outcomes if not isinstance(outcome, DelfError)]
            assert len(holders) == 1, (
                f"{len(holders)} of {_MANY} processes hold a task that all claimed at once: "
                "its calls would be made twice, or by nobody"
            )
        for journal in (first, *others):
            await journal.aclose()

    async def test_notes_reach_another_process_in_order(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        await one.append(started("a"))
        await one.append(started("b"))
        first = await other.post("a", "before", {"n": 0})
        live = one.subscribe_notes("a")
        assert [note.kind for note in await one.notes()] == ["before"]
        await other.post("b", "approval", {"n": 1})
        second = await other.post("a", "approval", {"n": 2, "x": "ä 🦊"})
        assert second > first
        note = await anext(live)
        # A journal may also yield the note that was posted just before the subscription.
        while note.position <= first:
            note = await anext(live)
        assert (note.task_id, note.kind, dict(note.data)) == (
            "a",
            "approval",
            {"n": 2, "x": "ä 🦊"},
        )
        assert [note.data["n"] for note in await one.notes()] == [0, 1, 2]
        assert [note.data["n"] for note in await one.notes("a", after=first)] == [2]
        again = one.subscribe_notes("a", after=0)
        kinds = [(await anext(again)).kind for _ in range(2)]
        assert kinds == ["before", "approval"]
        with pytest.raises(UnknownTaskError):
            await other.post("nowhere", "approval", {})
        for stream in (live, again):
            await stream.aclose()

    async def test_inbox_lists_pending_requests(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        await _ask_three_and_reject_the_first(one)
        assert await self._request_ids(other) == ["req_1a", "req_2b", "req_2c"]
        assert await self._request_ids(other, waiting=True) == ["req_2b", "req_2c"]
        (record, *_) = await other.find_requests("req_1a")
        assert record.decided is not None
        assert record.decided.decision == "rejected"
        assert not record.waits
        assert record.task.task == "do a"
        await one.append(replace(asked("a", 6, "req_3d"), by_policy=True))
        assert await self._request_ids(other, waiting=True) == ["req_2b", "req_2c"], (
            "the policy has decided the request: it waits for nobody"
        )
        await one.append(finished("a", 7))
        assert await self._request_ids(other, waiting=True) == [], "its task is over: nobody waits"

    async def test_inbox_finds_requests_by_the_start_of_their_id(
        self, two_journals: Sequence[Any]
    ) -> None:
        one, other = two_journals
        await _ask_three_and_reject_the_first(one)
        assert await self._request_ids(other, start="req_2c") == ["req_2c"]
        assert await self._request_ids(other, start="2") == ["req_2b", "req_2c"], (
            "the start may be given without the prefix req_"
        )
        assert await self._request_ids(other, start="req%") == [], (
            "the wildcards % and _ of SQL's LIKE are searched as text"
        )

    async def test_inbox_is_limited_to_the_newest_requests(
        self, two_journals: Sequence[Any]
    ) -> None:
        one, other = two_journals
        await _ask_three_and_reject_the_first(one)
        assert await self._request_ids(other, limit=1) == ["req_2c"]
        assert await self._request_ids(other, limit=0) == []
        assert await self._task_ids(other, limit=0) == []

    async def test_another_process_can_stop_a_task(self, two_journals: Sequence[Any]) -> None:
        one, other = two_journals
        for name in ("works", "died", "ended"):
            await one.append(started(name))
        await one.append(finished("ended", 2))
        await one.release("died")
        assert await other.stop("died", "ann")
        assert (await one.task("died")).state == TaskState.STOPPED
        assert not await other.stop("ended", "ann")
        with pytest.raises(UnknownTaskError):
            await other.stop("nowhere", "ann")
        # The first process still works on this task: stop() waits until that process ends it.
        stopping = asyncio.ensure_future(other.stop("works", "ann"))
        while not await one.asked_to_stop(["works", "ended"]):
            assert not stopping.done(), (
                "stop() returned before the process that works on the task ended the task"
            )
            await asyncio.sleep(0.01)
        end = replace(finished("works", 2, has_succeeded=False), code=TaskStoppedError.code)
        await one.append(end)
        assert await stopping

    async def test_remembered_decisions_last_until_revoked(
        self, two_journals: Sequence[Any]
    ) -> None:
        one, other = two_journals
        await one.append(started("a"))
        until_revoked = {"remember": "until_revoked", "project": "/shop"}
        for seq, name in enumerate(("of_action", "for_task", "rejected", "of_call"), 2):
            await one.append(asked("a", seq, name))
        await one.append(decided("a", 6, "of_action", covers="action", user="bob", **until_revoked))
        await one.append(decided("a", 7, "for_task", remember="task"))
        await one.append(decided("a", 8, "rejected", decision="rejected", **until_revoked))
        await one.append(decided("a", 9, "of_call", **until_revoked))
        of_action, of_call = await other.remembered()
        assert of_action.request_id == "of_action"
        # A decision about an action covers all calls of the action, with any arguments.
        assert (of_action.arguments, of_action.user) == (None, "bob")
        assert of_call.request_id == "of_call"
        assert dict(of_call.arguments) == dict(asked("a", 5, "of_call").arguments)
        with pytest.raises(UnknownRequestError):
            await other.revoke("for_task", "ann")
        outcomes = await _results_of(
            one.revoke("of_action", "ann"), other.revoke("of_action", "bob")
        )
        assert sum(isinstance(outcome, UnknownRequestError) for outcome in outcomes) == 1, (
            "two revoked one decision at once: the later one raises UnknownRequestError"
        )
        assert [each.request_id for each in await one.remembered()] == ["of_call"]

    @needs("upkeep")
    async def test_size_counts_events(self, two_journals: Sequence[Any]) -> None:
        journal = two_journals[0]
        await journal.append(started("a"))
        size = await journal.size()
        assert size.events == 1
        assert size.place.strip(), "the file or address of the journal is not known"
        assert size.bytes >= size.free_bytes >= 0
        assert all(retention_seconds > 0 for retention_seconds in journal.keep.values())

    @needs("upkeep")
    async def test_read_all_is_a_snapshot(self, two_journals: Sequence[Any]) -> None:
        journal = two_journals[0]
        await journal.append(started("a"))
        await journal.append(started("b"))
        # read_all() yields the events of one task after the other. The events that are recorded
        # during the iteration must not appear.
        snapshot = journal.read_all()
        histories = [await anext(snapshot)]
        await journal.append(printed("b", 2))
        await journal.append(started("c"))
        histories += [events async for events in snapshot]
        assert [(e[0].task_id, len(e)) for e in histories] == [("a", 1), ("b", 1)], (
            "read_all does not show the journal as of one moment"
        )

    @needs("upkeep")
    async def test_restore_undoes_changes(
        self, two_journals: Sequence[Any], tmp_path: Path
    ) -> None:
        one, other = two_journals
        for name in ("a", "b"):
            await one.append(started(name))
        await one.append(printed("b", 2))
        copy = tmp_path / "copy"
        (outcome,) = await _results_of(one.back_up(copy))
        if isinstance(outcome, DelfError):
            return  # a journal on a server may refuse, because the server has its own backups
        assert copy.exists(), f"there is no copy: {outcome!r}"
        with pytest.raises(DelfError):  # a restore is refused while tasks have an owner
            await other.restore(copy)
        # After these changes, no task has an owner.
        await one.release("a")
        await other.remove(["a"])
        await one.append(finished("b", 3))
        await other.prune()
        restored_task_count = await other.restore(copy)
        assert restored_task_count == 2
        assert [event.seq for event in await one.read("b")] == [1, 2]

    async def _task_ids(self, journal: Any, limit: int = 100, **wanted: Any) -> list[str]:
        records = await journal.find(limit, **wanted)
        return [record.task_id for record in records]

    async def _request_ids(self, journal: Any, start: str = "", **wanted: Any) -> list[str]:
        records = await journal.find_requests(start, **wanted)
        return [record.requested.request_id for record in records]


async def _check_refused(work: Any, what: str) -> None:
    (outcome,) = await _results_of(work)
    assert isinstance(outcome, DelfError), f"{what}, and no error of delf is raised: {outcome!r}"


async def _results_of(*work: Any) -> list[Any]:
    return list(await asyncio.gather(*work, return_exceptions=True))
