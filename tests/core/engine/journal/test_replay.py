"""Calls of a script that runs once more: each is answered when it was, however many wait."""

import asyncio
import random

import pytest

from delf import events as ev
from delf.engine.journal.replay import Replay
from delf.errors import ReplayMismatch
from delf.messages import Usage


def replay_of(calls, ends, patience=10.0, came=None, before=()):
    """A script's replay.

    Args:
        calls: The digests of its calls.
        ends: The numbers of those that ended.
        patience: As of the replay.
        came: When each call came, as Unix time.
        before: Events between the script and its calls.
    """
    calls = [*calls]
    head = {"task_id": "t", "action": "look"}
    script = ev.ScriptGenerated(task_id="t", seq=1, at=1.0, code="x", attempt=1)
    start = {"arguments": {}, "effect": "read"}
    made = [
        ev.CallStarted(seq=n, at=at, call_id=n, digest=digest, **start, **head)
        for n, (digest, at) in enumerate(zip(calls, came or [1.0] * len(calls), strict=True), 1)
    ]
    end = {"status": "ok", "duration_ms": 1.0}
    ended = [ev.CallFinished(seq=n, at=1.0, call_id=n, result=n, **end, **head) for n in ends]
    replay = Replay([script, *before, *made, *ended], patience)
    assert replay.begin_script(1) is not None
    return replay


async def answers(replay, *digests):
    """The numbers of calls that are made together, in the order of their answers."""
    order = []

    async def call(digest):
        past = await replay.call(digest)
        order.append(None if past is None else past.call_id)

    async with asyncio.timeout(10):
        await asyncio.gather(*map(call, digests))
    return order


async def test_many_calls_are_answered_in_the_order_in_which_they_were():
    numbers = list(range(1, 2001))
    ends = random.Random(1).sample(numbers, len(numbers))
    replay = replay_of(map(str, numbers), ends)
    assert await answers(replay, *map(str, random.Random(2).sample(numbers, 2000))) == ends


async def test_equal_calls_are_answered_in_the_order_in_which_they_came():
    assert await answers(replay_of("aba", [3, 1, 2]), "a", "a", "b") == [3, 1, 2]


async def test_unanswered_calls_go_on_after_all_answers_and_new_ones_after_all_calls():
    replay = replay_of("abc", [3, 2])
    first = asyncio.ensure_future(answers(replay, "new", "a", "b", "c"))
    assert await first == [3, 2, 1, None]


async def test_new_calls_wait_for_recorded_ones_without_an_answer():
    replay = replay_of("ab", [])
    new = asyncio.ensure_future(replay.call("new"))
    assert (await replay.call("a")).call_id == 1
    assert not new.done()
    assert (await replay.call("b")).call_id == 2
    assert await new is None


async def test_a_call_that_was_given_up_while_it_waited_wakes_nobody():
    replay = replay_of("ab", [2, 1], patience=0.01)
    waiting = asyncio.ensure_future(replay.call("a"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await replay.call("b")).call_id == 2


async def test_all_that_wait_are_told_when_nothing_happens():
    replay = replay_of("abc", [3, 2], patience=0.01)
    calls = [replay.call(digest) for digest in ("a", "b", "new")]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, ReplayMismatch) for outcome in outcomes)
    assert [outcome.message for outcome in outcomes] == [
        f"the script makes {made} where the journal has look (call 3)"
        for made in ("look (call 1)", "look (call 2)", "a call that is not recorded")
    ]


async def test_a_script_may_take_as_long_once_more_as_it_took():
    """It slept, while each of the calls beside that took only a part of the time."""
    replay = replay_of("abc", [1, 3, 2], patience=0.0, came=[1.0, 26.0, 51.0])
    before = asyncio.gather(replay.call("a"), replay.call("b"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not before.done()
    assert (await replay.call("c")).call_id == 3
    assert [past.call_id for past in await before] == [1, 2]


@pytest.mark.parametrize(
    "began",
    [
        ev.TaskResumed(task_id="t", seq=2, at=9000.0),
        ev.SandboxOpened(task_id="t", seq=2, at=9000.0, backend="b", isolation="process"),
        ev.StepStarted(task_id="t", seq=2, at=9000.0, step="execute"),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_time_in_which_it_did_not_run_does_not_count(began):
    replay = replay_of("abc", [3, 2], patience=0.01, came=[9000.0] * 3, before=[began])
    with pytest.raises(ReplayMismatch, match=r"the journal has look \(call 1\), look \(call 3\)"):
        await asyncio.wait_for(replay.call("b"), 10)


async def test_a_call_that_is_alone_is_told_at_once():
    replay = replay_of("ab", [2, 1])
    with pytest.raises(ReplayMismatch, match=r"makes look \(call 1\) .* has look \(call 2\)"):
        await replay.call("a", alone=True)


def test_what_was_written_of_an_answer_counts_only_where_the_whole_is_not_there():
    head = {"task_id": "t", "at": 1.0, "purpose": "generate"}
    asked = ev.ModelCalled(seq=1, model="m", **head)
    wrote = ev.ModelWrote(seq=2, text="par", **head)
    whole = {"text": "part", "usage": Usage(), "cost_usd": None, "duration_ms": 1.0}
    replied = ev.ModelReplied(seq=3, model="m", **whole, **head)

    def answers_of(*events):
        replay = Replay(events, 10.0)
        return [reply.text for reply in iter(lambda: replay.reply("generate"), None)]

    assert answers_of(asked, wrote) == ["par"]
    assert answers_of(asked, wrote, replied) == ["part"]
    assert answers_of(asked, replied, wrote) == ["part"]
    assert answers_of(asked, replied, wrote, asked, wrote) == ["part", "par"]
