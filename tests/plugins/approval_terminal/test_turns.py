import asyncio
import threading

from delf_approval_terminal.turns import Turns
from support.until import until


async def test_turns_are_granted_in_order():
    turns, order = Turns(), []
    gate = asyncio.Event()

    async def ask(number: int) -> None:
        async with turns.turn():
            await gate.wait()
            order.append((number, turns.waiting))

    tasks = [asyncio.create_task(ask(n)) for n in range(4)]
    await until(lambda: turns.waiting == 3)
    gate.set()
    await asyncio.gather(*tasks)
    assert order == [(0, 3), (1, 2), (2, 1), (3, 0)]


async def test_turn_granted_to_a_cancelled_waiter_is_passed_on():
    turns, order = Turns(), []

    async def ask(number: int) -> None:
        async with turns.turn():
            order.append(number)

    async with turns.turn():
        second, third = asyncio.create_task(ask(2)), asyncio.create_task(ask(3))
        await until(lambda: turns.waiting == 2)
    second.cancel()  # its turn has come, and it has not seen that yet
    async with asyncio.timeout(10):
        await asyncio.wait({second, third})
    assert (order, turns.waiting) == ([3], 0)


def test_turns_are_shared_across_event_loops():
    turns, inside, most = Turns(), 0, 0

    async def ask() -> None:
        nonlocal inside, most
        for _ in range(20):
            async with turns.turn():
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
        thread.join(20)
    assert (inside, most, turns.waiting) == (0, 1, 0)


def test_closed_event_loop_does_not_hold_a_turn():
    turns, gone = Turns(), asyncio.new_event_loop()
    waits = gone.create_task(turns.turn().__aenter__())

    async def take_two_turns() -> list[int]:
        async with turns.turn():
            await asyncio.to_thread(gone.run_until_complete, until(lambda: turns.waiting == 1))
            gone.close()
            counts = [turns.waiting]
        async with asyncio.timeout(10), turns.turn():
            return [*counts, turns.waiting]

    assert asyncio.run(take_two_turns()) == [1, 0]
    assert not waits.done()
