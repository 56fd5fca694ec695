"""Tests of unanswered calls: their order, cancellation, limits, and the end of a script."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from delf.protocols.sandbox import Crashed, Done
from delf_sandbox import calls as calls_module
from delf_sandbox.guest.frames import encode
from support.until import until

DONE: list[Any] = ["done", None, {}]


def call(number: Any, *args: Any, method: Any = "wait") -> Any:
    return ["call", number, "shop", method, list(args), {}, False, 0]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the calls that are served at a time to ten."""
    monkeypatch.setattr(calls_module, "MAX_SERVED", 10)


@pytest.fixture
def waiting(guest: Any) -> Any:
    """Return a tool that waits, with its calls in progress and its cancelled calls."""

    class Waiting:
        def __init__(self) -> None:
            self.inside: list[int] = []
            self.cancelled: list[int] = []
            self.release = asyncio.Event()

        async def __call__(self, number: Any) -> Any:
            self.inside.append(number)
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
            finally:
                self.inside.remove(number)
            return number

        async def until(self, count: Any) -> None:
            await until(lambda: len(self.inside) == count)

    tool = guest.host.tools["shop.wait"] = Waiting()
    return tool


async def ended(running: Any) -> Any:
    """Return how a script ended; fail if the session does not notice."""
    return await running


# -- given up ---------------------------------------------------------------------------------


async def test_cancelled_call_is_cancelled_on_the_host(guest: Any, waiting: Any) -> None:
    running = await guest.start()
    await guest.send(call(1, 1))
    await waiting.until(1)
    await guest.send(["cancel", 1], ["cancel", 1], ["cancel", 77])
    await until(lambda: waiting.cancelled == [1])
    await guest.send(DONE)
    assert isinstance(await running, Done)


async def test_calls_in_flight_are_cancelled_when_the_script_ends(guest: Any, waiting: Any) -> None:
    running = await guest.start()
    await guest.send(call(1, 1))
    await waiting.until(1)
    await guest.send(DONE)
    assert isinstance(await running, Done)
    await until(lambda: waiting.cancelled == [1])
    assert not waiting.inside


async def test_call_that_arrives_together_with_the_script_end_is_begun(
    guest: Any, waiting: Any
) -> None:
    """The same call in a message of its own would be begun, and a replay looks for the call."""
    running = await guest.start()
    await guest.send(call(1, 1), call(2, 2), ["cancel", 2], DONE)
    assert isinstance(await running, Done)
    assert [request.call_id for request in guest.host.calls] == [1, 2]
    await until(lambda: sorted(waiting.cancelled) == [1, 2])


async def test_calls_cancelled_before_their_first_step_are_released(
    guest: Any, waiting: Any
) -> None:
    """A task that is cancelled before its first step runs none of its code."""
    running = await guest.start()
    for first in range(0, 100, 20):
        numbers = range(first, first + 20)
        await guest.send(*(call(n, n) for n in numbers), *(["cancel", n] for n in numbers))
    await guest.send(DONE)
    assert isinstance(await running, Done)
    assert guest.session.calls.held_bytes == 0


async def test_second_cancel_does_not_interrupt_cleanup(guest: Any) -> None:
    cleaning, may_end, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await may_end.wait()
            cleaned.set()

    guest.host.tools["shop.wait"] = wait
    running = await guest.start()
    await guest.send(call(1))
    await guest.host.called.wait()
    await guest.send(["cancel", 1])
    await cleaning.wait()
    await guest.send(["cancel", 1], DONE)
    await running
    may_end.set()
    assert await cleaned.wait()


async def test_self_cancelled_call_is_answered_with_an_error(guest: Any) -> None:
    async def wait() -> None:
        raise asyncio.CancelledError

    guest.host.tools["shop.wait"] = wait
    running = await guest.start()
    await guest.send(call(1))
    kind, number, name, message = await guest.receive()
    assert (kind, number, name) == ("raise", 1, "ToolError")
    assert "cancelled" in message
    await guest.send(DONE)
    assert await running == Done()


# -- numbers ----------------------------------------------------------------------------------


async def test_duplicate_call_number_in_flight_crashes_the_session(guest: Any) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    guest.host.tools["shop.wait"] = wait
    running = await guest.start()
    await guest.send(
        ["call", 1, "shop", "wait", [], {}, False, 0], ["call", 1, "shop", "find", [], {}, False, 0]
    )
    assert isinstance(await running, Crashed)
    assert [call.method for call in guest.host.calls] in ([], ["wait"])


async def test_finished_call_number_can_be_reused(guest: Any) -> None:
    running = await guest.start()
    for value in ("a", "b"):
        await guest.send(["call", 1, "echo", "", [value], {}, False, 0])
        assert await guest.receive() == ["return", 1, [value, {}]]
    await guest.send(DONE)
    await running


async def test_cancelled_call_number_can_be_reused(guest: Any, waiting: Any) -> None:
    """A late end of the first call is not taken for the end of the second one."""
    running = await guest.start()
    await guest.send(call(1, "first"))
    await waiting.until(1)
    for turns in range(1, 5):
        guest.session.data_received(encode(["cancel", 1], 1000))
        await until(lambda: not waiting.inside)
        guest.session.data_received(encode(call(1, f"after {turns}"), 1000))
        for _ in range(turns):
            await asyncio.sleep(0)
        await waiting.until(1)
        assert len(guest.session.calls.open) == 1
    waiting.release.set()
    assert await guest.receive() == ["return", 1, "after 4"]
    await guest.send(DONE)
    await running


async def test_late_answer_of_a_previous_script_is_dropped(guest: Any) -> None:
    release = asyncio.Event()

    async def wait() -> Any:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return "late"

    guest.host.tools["shop.wait"] = wait
    running = await guest.start()
    await guest.send(call(1))
    await guest.host.called.wait()
    await guest.send(DONE)
    await running
    running = await guest.start()
    release.set()
    await guest.send(call(1, "new", method="find"))
    assert await guest.receive() == ["return", 1, ["new", {}]]
    await guest.send(DONE)
    await running


# -- many -------------------------------------------------------------------------------------


async def test_pending_tool_calls_start_in_order_within_a_limit(
    few: Any, guest: Any, waiting: Any
) -> None:
    running = await guest.start()
    await guest.send(*(call(n, n) for n in range(500)))
    await waiting.until(10)
    assert waiting.inside == [*range(10)]
    waiting.release.set()
    answers = [await guest.receive() for _ in range(500)]
    assert [frame[2] for frame in answers] == [*range(500)]
    assert [request.call_id for request in guest.host.calls] == [*range(500)]
    await guest.send(DONE)
    assert isinstance(await running, Done)


async def test_script_end_is_read_while_many_calls_are_open(
    few: Any, guest: Any, waiting: Any
) -> None:
    running = await guest.start()
    for number in range(50):
        await guest.send(call(number, number))
    await waiting.until(10)
    await guest.send(["print", "on"])
    await guest.host.spoke.wait()
    await guest.send(DONE)
    assert await ended(running) == Done()
    await waiting.until(0)
    assert waiting.cancelled == [*range(10)]
    assert len(guest.host.calls) == 10


async def test_queued_calls_can_be_cancelled(few: Any, guest: Any, waiting: Any) -> None:
    running = await guest.start()
    for number in range(50):
        await guest.send(call(number, number))
    await waiting.until(10)
    for number in range(1, 49):
        await guest.send(["cancel", number])
    await waiting.until(2)
    assert waiting.inside == [0, 49]
    assert len(guest.host.calls) == 11
    waiting.release.set()
    assert {(await guest.receive())[1] for _ in range(2)} == {0, 49}
    await guest.send(DONE)
    await running
    assert guest.session.calls.held_bytes == 0


async def test_duplicate_number_of_a_queued_call_crashes_the_session(
    few: Any, guest: Any, waiting: Any
) -> None:
    running = await guest.start()
    await guest.send(*(call(n, n) for n in range(12)), call(11, 11))
    assert isinstance(await ended(running), Crashed)


# -- large ------------------------------------------------------------------------------------


async def test_queued_call_arguments_are_bounded_in_memory(open_guest: Any) -> None:
    guest = await open_guest(memory_bytes=10**6)
    release = asyncio.Event()

    async def wait(_: str) -> None:
        await release.wait()

    guest.host.tools["shop.wait"] = wait
    running = await guest.start()

    async def calls() -> None:
        for number in range(60):
            await guest.send(["call", number, "shop", "wait", ["x" * 90_000], {}, False, 0])

    sending = asyncio.create_task(calls())
    await until(lambda: guest.session.is_paused)
    assert 10 <= len(guest.host.calls) <= 14
    release.set()
    answers = [await guest.receive() for _ in range(60)]
    await sending
    assert {answer[1] for answer in answers} == set(range(60))
    await guest.send(DONE)
    assert isinstance(await running, Done)


async def test_output_of_a_paused_sandbox_is_read_again_after_its_script_ends(
    open_guest: Any,
) -> None:
    guest = await open_guest(memory_bytes=10**6)
    release = asyncio.Event()

    async def wait(_: Any) -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    guest.host.tools["shop.wait"] = wait
    running = await guest.start()
    frames = [call(number, "x" * 90_000) for number in range(12)]
    guest.session.data_received(b"".join(encode(frame, 10**5) for frame in [*frames, DONE]))
    assert isinstance(await ended(running), Done)
    running = await guest.start()
    await guest.send(["print", "second"], DONE)
    assert await ended(running) == Done()
    assert guest.host.text == "second"
    release.set()
