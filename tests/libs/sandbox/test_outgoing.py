"""What a session writes: whole frames in order, however large some are and slow the guest is."""

import asyncio

import pytest

from support.until import until

MEGABYTES = 2**20


@pytest.fixture
def open_roomy(open_guest):
    """Opens sessions of guests to which large frames can be sent, with tools that give some."""

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


async def until_held(guest):
    """Until something waits that the guest has not taken."""
    await until(lambda: guest.session._out.unread_bytes)


def call(number, name, *args):
    return ["call", number, name, "", list(args), {}]


async def test_a_large_frame_arrives_whole_and_small_ones_keep_their_places(roomy):
    running = await roomy.start()
    sizes = [5, 3 * MEGABYTES, 7, 300_000, 20 * MEGABYTES, 1]
    await roomy.send(*(call(number, "large", size) for number, size in enumerate(sizes)))
    for number, size in enumerate(sizes):
        kind, of, value = await roomy.receive()
        assert (kind, of, len(value)) == ("return", number, size)
    await roomy.send(["done", None, {}])
    await running


async def test_what_comes_while_a_large_frame_is_held_is_behind_it(roomy):
    running = await roomy.start()
    await roomy.send(call(1, "large", 30 * MEGABYTES))
    await until_held(roomy)
    await roomy.send(call(2, "large", 3))
    assert [len((await roomy.receive())[2]) for _ in range(2)] == [30 * MEGABYTES, 3]
    await roomy.send(["done", None, {}])
    await running


@pytest.mark.slow
async def test_others_have_their_turns_while_a_large_frame_is_written(roomy):
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


async def test_large_answers_that_nobody_reads_count_as_unread(open_roomy):
    roomy = await open_roomy(frame_bytes=10 * MEGABYTES, memory_bytes=MEGABYTES)
    running = await roomy.start()
    await roomy.send(*(call(number, "large", 8 * MEGABYTES) for number in range(4)))
    outcome = await running
    assert outcome.limit == "memory"
    assert not roomy.session._out.unread_bytes


async def test_many_small_answers_that_nobody_reads_are_not_left_to_the_transport(roomy):
    """It would add up the lengths of all of them at each further one."""
    running = await roomy.start()
    await roomy.send(call(0, "large", MEGABYTES))
    await until_held(roomy)
    for number in range(1, 3_001):
        await roomy.send(call(number, "large", 300))
        if number % 100 == 0:
            await asyncio.sleep(0)
    await until(lambda: roomy.session._out.unread_bytes >= 900_000)
    assert roomy.session._transport.get_write_buffer_size() < 300_000
    for number in range(3_001):
        assert (await roomy.receive())[1] == number
    await roomy.send(["done", None, {}])
    await running


async def test_nothing_is_held_for_a_guest_that_was_ended(roomy):
    running = await roomy.start()
    await roomy.send(call(1, "large", 50 * MEGABYTES))
    await until_held(roomy)
    roomy.session.kill()
    assert not roomy.session._out.unread_bytes
    roomy.session.resume_writing()
    await running


async def test_a_frame_over_the_limit_is_not_begun(roomy):
    running = await roomy.start()
    await roomy.send(call(1, "large", 101 * MEGABYTES), call(2, "large", 2))
    first, second = await roomy.receive(), await roomy.receive()
    assert first[0] == "raise"
    assert "too large" in first[3]
    assert second == ["return", 2, "xx"]
    await roomy.send(["done", None, {}])
    await running
