"""Calls of a script that runs once more: each is answered when it was, however many wait."""

import asyncio
import random

import pytest

from delf import events as ev
from delf.engine.replay import Replay
from delf.errors import ReplayMismatch


def replay_of(calls, ends, patience=10.0):
    """A script's replay: the digests of its calls, and the numbers of those that ended."""
    head = {"task_id": "t", "at": 1.0, "action": "look"}
    script = ev.ScriptGenerated(task_id="t", seq=1, at=1.0, code="x", attempt=1)
    made = [
        ev.CallStarted(seq=n, call_id=n, arguments={}, effect="read", digest=digest, **head)
        for n, digest in enumerate(calls, 1)
    ]
    ended = [
        ev.CallFinished(seq=n, call_id=n, status="ok", duration_ms=1.0, result=n, **head)
        for n in ends
    ]
    replay = Replay([script, *made, *ended], patience)
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


async def test_a_call_that_is_alone_is_told_at_once():
    replay = replay_of("ab", [2, 1])
    with pytest.raises(ReplayMismatch, match=r"makes look \(call 1\) .* has look \(call 2\)"):
        await replay.call("a", alone=True)
