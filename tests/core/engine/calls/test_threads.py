"""Plain functions run in threads, from one line."""

import asyncio
import functools
import gc
import os
import threading
import weakref

import pytest

from delf.engine.calls.threads import ToolThreads


@pytest.fixture
def threads():
    made = ToolThreads(2)
    yield made
    made.close()


async def keep_busy(threads):
    """An event that ends what all threads do, and who waits for that.

    The thread for quick functions may be awake too late for one of them, which stays in the line.
    """
    held, began, running = threading.Event(), threading.Semaphore(0), 0

    def hold():
        began.release()
        return held.wait(60)

    busy = []
    while running < 3:
        busy.append(asyncio.create_task(threads.run(hold)))
        running += await asyncio.to_thread(began.acquire, timeout=1)
    return held, busy


async def test_functions_run_beside_the_loop_and_each_other(threads):
    meeting = threading.Barrier(2, timeout=10)

    def meet():
        meeting.wait()
        return threading.get_ident()

    seen = await asyncio.gather(threads.run(meet), threads.run(meet))
    assert len({*seen, threading.get_ident()}) == 3


async def test_no_more_run_at_once_than_it_has_threads(threads):
    """Two and one more, which takes those that are quick."""
    running, most, lock = set(), [], threading.Lock()

    def work():
        with lock:
            running.add(threading.get_ident())
            most.append(len(running))
        with lock:
            running.discard(threading.get_ident())

    await asyncio.gather(*(threads.run(work) for _ in range(200)))
    assert len(most) == 200
    assert max(most) <= 3


@pytest.mark.parametrize("error", [ValueError, KeyError, SystemExit, asyncio.CancelledError])
async def test_what_a_function_raises_is_raised(threads, error):
    def fail():
        raise error("no")

    with pytest.raises(error):
        await threads.run(fail)
    assert await threads.run(lambda: 1) == 1


async def test_a_stop_iteration_becomes_an_error_that_can_pass(threads):
    with pytest.raises(RuntimeError):
        await threads.run(lambda: next(iter(())))


async def test_a_function_that_was_given_up_before_it_began_is_never_called(threads):
    held, called = threading.Event(), []
    busy = [asyncio.create_task(threads.run(lambda: held.wait(10))) for _ in range(3)]
    late = asyncio.create_task(threads.run(lambda: called.append(1)))
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    held.set()
    assert await asyncio.gather(*busy) == [True] * 3
    assert await threads.run(lambda: 1) == 1
    assert not called


async def test_a_function_that_was_given_up_is_let_go_while_all_threads_are_busy(threads):
    """With what it was to be called with: a hanging tool would hold all that came after it."""
    held, busy = await keep_busy(threads)
    function = functools.partial(len, "given")
    left = weakref.ref(function)
    late = asyncio.create_task(threads.run(function))
    for _ in range(3):
        await asyncio.sleep(0)  # it is in the line then
    late.cancel()
    await asyncio.wait({late})
    del function, late
    gc.collect()
    assert left() is None
    held.set()
    assert all(await asyncio.gather(*busy))


async def test_nothing_begins_after_the_end(threads):
    held, busy = await keep_busy(threads)
    called = []
    late = asyncio.create_task(threads.run(lambda: called.append(1)))
    await asyncio.sleep(0)
    threads.close()
    held.set()
    await asyncio.wait(busy)
    assert not called
    with pytest.raises(RuntimeError):
        await threads.run(lambda: 1)
    late.cancel()


async def test_a_function_whose_turn_comes_after_the_end_says_so(threads, monkeypatch):
    monkeypatch.setattr("delf.engine.calls.threads._AT_ONCE", 60)  # both in one thread
    assert await threads.run(lambda: 1) == 1
    called = []
    together = (threads.run(threads.close), threads.run(lambda: called.append(1)))
    ends = await asyncio.wait_for(asyncio.gather(*together, return_exceptions=True), 10)
    assert ends[0] is None
    assert isinstance(ends[1], RuntimeError)
    assert not called


@pytest.mark.parametrize("alone", [True, False])
async def test_where_no_thread_can_be_started_a_function_fails(threads, monkeypatch, alone):
    def start(_thread):
        raise RuntimeError("can't start new thread")

    called = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        one = threads.run(lambda: called.append(1), alone=alone)
        with pytest.raises(RuntimeError, match="new thread"):
            await asyncio.wait_for(one, 10)
    assert await threads.run(lambda: 2, alone=alone) == 2
    assert not called


async def test_a_function_that_is_waited_for_in_place_holds_nobody_for_long(threads):
    """Its end depends on what the loop does meanwhile, so a loop that waited for it would hang."""
    for _ in range(3):
        assert await threads.run(lambda: 1, alone=True) == 1
    held = threading.Event()
    asyncio.get_running_loop().call_later(0.01, held.set)
    assert await threads.run(lambda: held.wait(10), alone=True)
    assert await threads.run(lambda: 2, alone=True) == 2


async def test_what_a_function_raises_that_is_waited_for_in_place_is_raised(threads):
    def fail():
        raise ValueError("no")

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            await threads.run(fail, alone=True)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux: processors by name")
async def test_a_function_may_run_on_every_processor(threads):
    everywhere = os.sched_getaffinity(0)
    for _ in range(20):
        seen = await threads.run(functools.partial(os.sched_getaffinity, 0), alone=True)
        assert seen == everywhere


@pytest.mark.parametrize("error", [AttributeError, ImportError, OSError])
async def test_a_system_that_has_no_places_for_threads_will_do(threads, monkeypatch, error):
    def refuse(self):
        raise error

    monkeypatch.setattr("delf.engine.calls.threads._Place.__init__", refuse)
    assert await asyncio.wait_for(threads.run(lambda: 7, alone=True), 30) == 7


async def test_a_slow_function_holds_up_none_that_came_after_quick_ones():
    threads = ToolThreads(8)
    await asyncio.gather(*(threads.run(lambda: 1) for _ in range(50)))
    meeting = threading.Barrier(8, timeout=10)
    try:
        slow = [asyncio.create_task(threads.run(meeting.wait)) for _ in range(8)]
        quick = [asyncio.create_task(threads.run(lambda: 1)) for _ in range(50)]
        assert sorted(await asyncio.gather(*slow)) == list(range(8))
        assert await asyncio.gather(*quick) == [1] * 50
    finally:
        threads.close()


async def test_functions_of_one_turn_end_each_by_itself(threads):
    began = []

    def work(number):
        began.append(number)
        if number % 10 == 7:
            raise ValueError(number)
        return number

    many = (threads.run(functools.partial(work, number)) for number in range(100))
    ends = await asyncio.gather(*many, return_exceptions=True)
    assert sorted(began) == list(range(100))
    assert [number for number in ends if isinstance(number, int)] == [
        number for number in range(100) if number % 10 != 7
    ]
    assert [str(end) for end in ends if isinstance(end, ValueError)] == [
        str(number) for number in range(7, 100, 10)
    ]


async def test_one_of_a_turn_that_was_given_up_is_never_called(threads):
    called = []
    calls = [asyncio.create_task(threads.run(functools.partial(called.append, n))) for n in "abc"]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.wait(calls)
    assert sorted(called) == ["a", "c"]
    assert calls[1].cancelled()


def test_several_loops_share_the_threads():
    threads, ends = ToolThreads(2), []

    async def many(base):
        for turn in range(20):
            first = base + 50 * turn
            numbers = range(first, first + 50)
            calls = (threads.run(functools.partial(abs, -number)) for number in numbers)
            assert await asyncio.gather(*calls) == list(numbers)
        ends.append(base)

    loops = [threading.Thread(target=asyncio.run, args=(many(base),)) for base in (1, 10_000)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(60)
    threads.close()
    assert sorted(ends) == [1, 10_000]


async def test_functions_that_are_waited_for_in_place_by_many_at_once():
    threads = ToolThreads(4)

    async def call(number):
        for step in range(200):
            pair = functools.partial(divmod, 10 * step + number, 10)
            assert await threads.run(pair, alone=True) == (step, number)
            if step % 50 == 49:
                slow = functools.partial(threading.Event().wait, 0.002)
                assert await threads.run(slow, alone=True) is False

    try:
        await asyncio.gather(*(call(number) for number in range(8)))
    finally:
        threads.close()


async def test_nothing_stays_open_after_the_end():
    before, running = len(os.listdir("/dev/fd")), {*threading.enumerate()}
    for _ in range(20):
        threads = ToolThreads(2)
        for number in range(3):
            assert await threads.run(functools.partial(abs, -number), alone=True) == number
        threads.close()
    for thread in {*threading.enumerate()} - running:
        await asyncio.to_thread(thread.join, 10)
    assert len(os.listdir("/dev/fd")) <= before
