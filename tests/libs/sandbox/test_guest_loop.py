"""Tests that the guest's loop only reports waiting if nothing else can happen."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delf_sandbox.guest.loop import GuestLoop


@pytest.fixture(params=[False, True], ids=["alone", "with threads"])
def loop(request: pytest.FixtureRequest) -> Iterator[GuestLoop]:
    wire, other = socket.socketpair()
    made = GuestLoop()
    made.open(threads=request.param)
    made.watch_wire(wire.fileno(), lambda: None)
    yield made
    made.close()
    wire.close()
    other.close()


def waits_only_for_host(loop: GuestLoop, before: Callable[[], object] = lambda: None) -> bool:
    async def ask() -> bool:
        kept = before()
        try:
            return loop.waits_only_for_host()
        finally:
            del kept

    return loop.run_until_complete(ask())


def test_only_waits_is_true_for_a_single_task(loop: GuestLoop):
    assert waits_only_for_host(loop)


def test_only_waits_is_false_outside_of_a_task(loop: GuestLoop):
    assert not loop.waits_only_for_host()


OTHERS: dict[str, Callable[[GuestLoop], object]] = {
    "a callback is ready": lambda loop: loop.call_soon(lambda: None),
    "another task can run": lambda loop: loop.create_task(asyncio.sleep(0)),
    "a timer runs": lambda loop: loop.call_later(60, lambda: None),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_only_waits_is_false_while_other_work_is_pending(
    loop: GuestLoop, other: Callable[[GuestLoop], object]
):
    assert not waits_only_for_host(loop, lambda: other(loop))


def test_only_waits_is_true_while_another_task_waits_for_it(loop: GuestLoop):
    async def scene() -> bool:
        gate = asyncio.Event()
        other = loop.create_task(gate.wait())
        await asyncio.sleep(0)
        text = loop.waits_only_for_host()
        gate.set()
        await other
        return text

    assert loop.run_until_complete(scene())


@pytest.mark.parametrize("loop", [True], indirect=True)
def test_only_waits_is_false_while_a_thread_is_running(loop: GuestLoop):
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    assert not waits_only_for_host(loop, thread.start)
    over.set()
    thread.join()


def test_handled_signal_wakes_the_loop(loop: GuestLoop):
    async def scene() -> None:
        came = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, came.set)
        assert not loop.waits_only_for_host()
        os.kill(os.getpid(), signal.SIGUSR1)
        await came.wait()
        loop.remove_signal_handler(signal.SIGUSR1)

    loop.run_until_complete(scene())
    assert waits_only_for_host(loop)


def test_stored_answers_reach_a_script_that_is_never_idle(loop: GuestLoop):
    delivered: list[object] = []
    loop.attach(
        lambda: None, lambda _: None, lambda: delivered.append("all"), lambda clock: clock()
    )
    loop.begin([])

    async def spin() -> None:
        for _ in range(1_100):
            await asyncio.sleep(0)

    loop.run_until_complete(spin())
    assert delivered


def test_guest_loop_opens_no_descriptor_before_use():
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    made = GuestLoop()
    after = os.listdir("/proc/self/fd") if before else []
    made.close()
    assert len(after) == len(before)


def test_only_waits_is_false_while_a_descriptor_is_watched(loop: GuestLoop):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not waits_only_for_host(loop, lambda: loop.add_reader(ours.fileno(), lambda: None))
        loop.remove_reader(ours.fileno())


def test_only_waits_is_false_while_the_task_is_cancelled(loop: GuestLoop):
    async def scene() -> bool:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        text = loop.waits_only_for_host()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        return text

    assert not loop.run_until_complete(scene())


def test_only_waits_is_false_with_a_custom_task_factory(loop: GuestLoop):
    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coroutine, loop=loop)

    loop.set_task_factory(make_task)
    assert not waits_only_for_host(loop)


def test_replayed_timers_fire_in_recorded_order_without_delay(loop: GuestLoop):
    async def work() -> list[str]:
        order: list[str] = []

        async def sleep(seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(f"{seconds}")

        await asyncio.gather(*map(sleep, (0.4, 0.2, 0.6)))
        return order

    loop.begin(())
    assert loop.run_until_complete(work()) == ["0.2", "0.4", "0.6"]
    notes = loop.event_log.take_new_recording()
    assert notes[1::2] == [-2, -1, -3]
    loop.begin(notes)
    before = time.monotonic()
    assert loop.run_until_complete(work()) == ["0.2", "0.4", "0.6"]
    assert loop.event_log.take_new_recording() == []
    assert time.monotonic() - before < 0.6


def test_set_of_tasks_keeps_creation_order(loop: GuestLoop) -> None:
    """By memory address, the order would differ when the script runs again."""

    async def main() -> bool:
        kept: list[object] = []
        tasks: list[asyncio.Task[None]] = []
        for size in range(40):
            kept.append(bytearray(size * 100))
            tasks.insert(0, asyncio.create_task(asyncio.sleep(0), name=f"{size}"))
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done] == [str(size) for size in range(40)]

    assert loop.run_until_complete(main())


def test_replayed_timers_keep_their_order_after_the_last_recorded_clock_read(
    loop: GuestLoop,
) -> None:
    """A script has more timers than recorded clock reads if it sleeps in a long loop."""

    async def work() -> list[str]:
        order: list[str] = []
        asyncio.get_running_loop().call_later(0.1, order.append, "limit")
        for number in range(3):
            await asyncio.sleep(0.04)
            order.append(f"step {number}")
        return order

    loop.attach(lambda: None, lambda _: None, lambda: None, lambda clock: clock())
    loop.begin(())
    recorded = loop.run_until_complete(work())
    assert len(recorded) == 4
    loop.begin(loop.event_log.take_new_recording())
    assert loop.run_until_complete(work()) == recorded
