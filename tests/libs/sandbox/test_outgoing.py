"""Tests that a session writes whole frames in order, even large ones and to a slow guest."""

import asyncio

import pytest

MEGABYTES = 2**20


@pytest.fixture
def open_roomy(open_guest):
    """Return a function that opens sessions with room for large frames, and a tool for these."""

    async def large(size):
        return "x" * size

    async def made(**limits):
        guest = await open_guest(**{"frame_bytes": 100 * MEGABYTES, **limits})
        guest.host.tools["large"] = large
        return guest

    return made


@pytest.fixture
async def roomy(open_roomy):
    return await open_roomy()


def call(number, name, *args):
    return ["call", number, name, "", list(args), {}, False, 0]


async def test_large_frame_arrives_whole_and_in_order(roomy):
    running = await roomy.start()
    sizes = [5, 3 * MEGABYTES, 7, 300_000, 20 * MEGABYTES, 1]
    await roomy.send(*(call(number, "large", size) for number, size in enumerate(sizes)))
    for number, size in enumerate(sizes):
        kind, of, value = await roomy.receive()
        assert (kind, of, len(value)) == ("return", number, size)
    await roomy.send(["done", None, {}])
    await running


@pytest.mark.slow
async def test_large_frame_write_lets_other_tasks_run(roomy):
    running = await roomy.start()
    await roomy.send(call(1, "large", 50 * MEGABYTES))
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(other())
    await roomy.receive()
    assert turns > 20
    counting.cancel()
    await roomy.send(["done", None, {}])
    await running


async def test_unread_large_answers_exceed_the_memory_limit(open_roomy):
    roomy = await open_roomy(frame_bytes=10 * MEGABYTES, memory_bytes=MEGABYTES)
    running = await roomy.start()
    await roomy.send(*(call(number, "large", 8 * MEGABYTES) for number in range(4)))
    outcome = await running
    assert outcome.limit == "memory"


async def test_oversized_frame_is_replaced_by_an_error(roomy):
    running = await roomy.start()
    await roomy.send(call(1, "large", 101 * MEGABYTES), call(2, "large", 2))
    first, second = await roomy.receive(), await roomy.receive()
    assert first[0] == "raise"
    assert "too large" in first[3]
    assert second == ["return", 2, "xx"]
    await roomy.send(["done", None, {}])
    await running
