import asyncio
import threading

from delf_approval_terminal.terminal_lock import TerminalLock
from support.until import until


async def test_lock_is_granted_in_order():
    lock, order = TerminalLock(), []
    gate = asyncio.Event()

    async def ask(number: int) -> None:
        async with lock.hold():
            await gate.wait()
            order.append((number, lock.waiting_count))

    tasks = [asyncio.create_task(ask(n)) for n in range(4)]
    await until(lambda: lock.waiting_count == 3)
    gate.set()
    await asyncio.gather(*tasks)
    assert order == [(0, 3), (1, 2), (2, 1), (3, 0)]


async def test_lock_granted_to_a_cancelled_waiter_is_passed_on():
    lock, order = TerminalLock(), []

    async def ask(number: int) -> None:
        async with lock.hold():
            order.append(number)

    async with lock.hold():
        second, third = asyncio.create_task(ask(2)), asyncio.create_task(ask(3))
        await until(lambda: lock.waiting_count == 2)
    second.cancel()  # the lock is granted to this task, which has not noticed yet
    await asyncio.wait({second, third})
    assert (order, lock.waiting_count) == ([3], 0)


def test_lock_is_shared_across_event_loops():
    lock, inside, most = TerminalLock(), 0, 0

    async def ask() -> None:
        nonlocal inside, most
        for _ in range(20):
            async with lock.hold():
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    async def several() -> None:
        await asyncio.gather(*(ask() for _ in range(5)))

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert (inside, most, lock.waiting_count) == (0, 1, 0)


def test_closed_event_loop_does_not_hold_the_lock():
    lock, gone = TerminalLock(), asyncio.new_event_loop()
    waits = gone.create_task(lock.hold().__aenter__())

    async def hold_twice() -> list[int]:
        async with lock.hold():
            await asyncio.to_thread(gone.run_until_complete, until(lambda: lock.waiting_count == 1))
            gone.close()
            counts = [lock.waiting_count]
        async with lock.hold():
            return [*counts, lock.waiting_count]

    assert asyncio.run(hold_twice()) == [1, 0]
    assert not waits.done()
