import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from delf_sandbox.session import WireSession
from support.guests import LIMITS, FakeGuest, FakeProcess
from support.scripting import session_spec


@pytest.fixture
async def guest() -> AsyncIterator[FakeGuest]:
    """A session whose guest is the test; ``init`` was sent and taken."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    process = FakeProcess()
    loop = asyncio.get_running_loop()
    _, session = await loop.create_connection(
        lambda: WireSession(process, LIMITS.frame_bytes), sock=ours
    )
    fake = FakeGuest(session, process, theirs)
    await fake.send(["ready"])
    await session.ready(5)
    spec = session_spec(
        frame_bytes=LIMITS.frame_bytes,
        output_bytes=LIMITS.output_bytes,
        file_bytes=LIMITS.file_bytes,
        total_file_bytes=LIMITS.total_file_bytes,
    )
    session.initialise(spec, "/scratch", ["/data/a.csv"])
    assert (await fake.receive())[0] == "init"
    yield fake
    await session.aclose()
    fake.close()
    assert process.closed
