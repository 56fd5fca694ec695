"""Tests of calls in a repeated script: each gets its answer in the recorded order."""

import asyncio
import random

import pytest

from delf import events as ev
from delf.errors import ReplayMismatch
from delf.messages import Usage
from delf_engine.journal.replay import Replay


def replay_of(calls, ends, status=None):
    """Return the replay of a script.

    Args:
        calls: The digests of its calls.
        ends: The numbers of the calls that ended.
        status: The status with which the script ended, if it ended.
    """
    head = {"task_id": "t", "action": "look"}
    script = ev.ScriptGenerated(task_id="t", seq=1, at=1.0, code="x", attempt=1)
    start = {"arguments": {}, "effect": "read"}
    made = [
        ev.CallStarted(seq=n, at=1.0, call_id=n, digest=digest, **start, **head)
        for n, digest in enumerate(calls, 1)
    ]
    end = {"status": "ok", "duration_ms": 1.0}
    ended = [ev.CallFinished(seq=n, at=1.0, call_id=n, result=n, **end, **head) for n in ends]
    finished = {"task_id": "t", "seq": 1, "at": 1.0, "duration_ms": 1.0, "attempt": 1}
    over = [ev.ScriptFinished(status=status, **finished)] if status else []
    replay = Replay([script, *made, *ended, *over])
    assert replay.begin_script(1) is not None
    return replay


async def answers(replay, *digests):
    """Make some calls together; return their numbers in the order of their answers."""
    order = []

    async def call(digest):
        past = await replay.wait_for_turn(digest)
        order.append(None if past is None else past.call_id)

    await asyncio.gather(*map(call, digests))
    return order


async def test_replay_answers_calls_in_recorded_order():
    numbers = list(range(1, 2001))
    ends = random.Random(1).sample(numbers, len(numbers))
    replay = replay_of(map(str, numbers), ends)
    assert await answers(replay, *map(str, random.Random(2).sample(numbers, 2000))) == ends


async def test_identical_calls_are_answered_in_recorded_order():
    assert await answers(replay_of("aba", [3, 1, 2]), "a", "a", "b") == [3, 1, 2]


async def test_unanswered_calls_continue_after_all_recorded_answers():
    replay = replay_of("abc", [3, 2])
    first = asyncio.ensure_future(answers(replay, "new", "a", "b", "c"))
    assert await first == [3, 2, 1, None]


async def test_new_calls_wait_for_recorded_unanswered_calls():
    replay = replay_of("ab", [])
    new = asyncio.ensure_future(replay.wait_for_turn("new"))
    assert (await replay.wait_for_turn("a")).call_id == 1
    assert not new.done()
    assert (await replay.wait_for_turn("b")).call_id == 2
    assert await new is None


async def test_new_calls_wait_while_the_first_recorded_call_is_missing():
    replay = replay_of("ab", [])
    new = asyncio.ensure_future(replay.wait_for_turn("new"))
    await asyncio.sleep(0)
    assert (await replay.wait_for_turn("b")).call_id == 2
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not new.done()
    assert (await replay.wait_for_turn("a")).call_id == 1
    assert await new is None


async def test_abandoned_replayed_call_does_not_block_other_calls():
    replay = replay_of("ab", [2, 1])
    waiting = asyncio.ensure_future(replay.wait_for_turn("a"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await replay.wait_for_turn("b")).call_id == 2


async def test_new_calls_do_not_wait_for_the_answer_of_an_abandoned_call():
    replay = replay_of("ab", [2, 1])
    waiting = asyncio.ensure_future(replay.wait_for_turn("a"))
    await asyncio.sleep(0)
    assert (await replay.wait_for_turn("b")).call_id == 2
    waiting.cancel()
    assert await replay.wait_for_turn("new") is None


async def test_call_at_the_end_of_a_finished_script_waits_for_the_end():
    """The recorded script made the call, too, but ended before the call was recorded."""
    replay = replay_of("a", [1], status="failed")
    assert (await replay.wait_for_turn("a")).call_id == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(replay.wait_for_turn("new"), 0.01)
    assert replay.timeout_mismatch() is None
    replay.end_script("failed", "")


async def test_further_call_of_a_finished_script_is_a_mismatch():
    replay = replay_of("a", [1], status="failed")
    assert (await replay.wait_for_turn("a")).call_id == 1
    waiting = asyncio.ensure_future(replay.wait_for_turn("new"))
    await asyncio.sleep(0)
    assert "a script that was 'failed' makes a further call" in replay.timeout_mismatch().message
    with pytest.raises(ReplayMismatch, match="makes a further call"):
        await replay.wait_for_turn("newer", blocks_script=True)
    waiting.cancel()


async def test_blocked_replay_calls_wait_until_the_task_timeout():
    replay = replay_of("abc", [3, 2])
    waiting = [asyncio.ensure_future(replay.wait_for_turn(digest)) for digest in ("a", "b", "new")]
    await asyncio.sleep(0)
    assert "before the replay reached look (call 3)" in replay.timeout_mismatch().message
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert replay.timeout_mismatch() is None


async def test_single_mismatching_call_fails_the_replay_at_once():
    replay = replay_of("ab", [2, 1])
    with pytest.raises(ReplayMismatch, match=r"makes look \(call 1\) .* has look \(call 2\)"):
        await replay.wait_for_turn("a", blocks_script=True)


def test_partial_answer_is_used_only_without_the_complete_one():
    head = {"task_id": "t", "at": 1.0, "purpose": "generate"}
    asked = ev.ModelCalled(seq=1, model="m", **head)
    wrote = ev.ModelWrote(seq=2, text="par", **head)
    whole = {"text": "part", "usage": Usage(), "cost_usd": None, "duration_ms": 1.0}
    replied = ev.ModelReplied(seq=3, model="m", **whole, **head)

    def answers_of(*events):
        replay = Replay(events)
        return [reply.text for reply in iter(lambda: replay.next_reply("generate"), None)]

    assert answers_of(asked, wrote) == ["par"]
    assert answers_of(asked, wrote, replied) == ["part"]
    assert answers_of(asked, replied, wrote) == ["part"]
    assert answers_of(asked, replied, wrote, asked, wrote) == ["part", "par"]
