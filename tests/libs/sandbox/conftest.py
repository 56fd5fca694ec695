import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from delf_sandbox.session import WireSession
from support.scripting import session_spec

from .guests import LIMITS, FakeGuest, FakeProcess


@asynccontextmanager
async def session_of_a_test(**limits: int) -> AsyncIterator[FakeGuest]:
    """Open a session with these limits whose guest is the test, up to the end of ``init``."""
    allowed = replace(LIMITS, **limits)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    process = FakeProcess()
    loop = asyncio.get_running_loop()
    _, session = await loop.create_connection(
        lambda: WireSession(process, allowed.frame_bytes), sock=ours
    )
    fake = FakeGuest(session, process, theirs)
    await fake.send(["ready"])
    await session.ready(5)
    session.initialise(replace(session_spec(), limits=allowed), "/scratch", ["/data/a.csv"])
    assert (await fake.receive())[0] == "init"
    yield fake
    await session.aclose()
    fake.close()
    assert process.closed


@pytest.fixture
async def open_guest() -> AsyncIterator[Callable[..., Awaitable[FakeGuest]]]:
    """Return a function that opens sessions with given limits; close them after the test."""
    async with AsyncExitStack() as opened:
        yield lambda **limits: opened.enter_async_context(session_of_a_test(**limits))


@pytest.fixture
async def guest(open_guest: Callable[..., Awaitable[FakeGuest]]) -> FakeGuest:
    return await open_guest()
