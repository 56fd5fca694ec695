"""A guest that a test controls: the other end of a session's wire."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from delf.protocols.sandbox import Crashed, Limits, Outcome
from delf.values.encoding import loads
from delf_sandbox.guest.frames import FrameReader, encode
from delf_sandbox.session import WireSession
from support.scripting import NotingHost

LIMITS = Limits(frame_bytes=100_000, output_bytes=10_000, file_bytes=5_000, total_file_bytes=8_000)


class FakeProcess:
    """A guest process without a process; see :class:`delf_sandbox.process.GuestProcess`."""

    cpu_seconds = 0.0

    def __init__(self) -> None:
        self.kills = 0
        self.closed = False

    def kill(self) -> None:
        self.kills += 1

    async def exit_outcome(self) -> Outcome:
        return Crashed(message="it ended")

    async def aclose(self) -> None:
        self.closed = True


class FakeGuest:
    """The guest's end of the wire, controlled by a test."""

    def __init__(self, session: WireSession, process: FakeProcess, wire: socket.socket) -> None:
        self.session = session
        self.process = process
        self.host = NotingHost()
        self._wire = wire
        self._reader = FrameReader(2**30)
        self._frames: list[list[Any]] = []

    async def send(self, *frames: list[Any]) -> None:
        """Send frames in one piece."""
        await self.send_bytes(b"".join(encode(frame, 2**30) for frame in frames))

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._wire, data)

    async def send_payload(self, payload: bytes) -> None:
        await self.send_bytes(struct.pack(">I", len(payload)) + payload)

    async def receive(self) -> list[Any]:
        """The next frame of the host."""
        while not self._frames:
            data = await asyncio.get_running_loop().sock_recv(self._wire, 2**16)
            assert data, "the host closed the wire"
            self._frames += [loads(payload) for payload in self._reader.feed(data)]
        return self._frames.pop(0)

    async def start(self, code: str = "code") -> asyncio.Task[Outcome]:
        """Start a script on the host, and return once the guest has received it."""
        running = asyncio.create_task(self.session.execute(code, self.host))
        frame = await self.receive()
        assert frame[0] == "exec"
        return running

    def close(self) -> None:
        self._wire.close()
