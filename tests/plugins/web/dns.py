"""A name server on loopback that may answer each question about a name differently."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

_HEADER = struct.Struct("!HHHHHH")
_A, _AAAA, _IN = 1, 28, 1


class NameServer(asyncio.DatagramProtocol):
    """Answers from a zone: for each name a list of answers, of which the last one is repeated.

    Args:
        zone: Names with their answers, each some addresses.
    """

    def __init__(self, zone: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._zone = zone
        self._asked: dict[tuple[str, int], int] = {}
        self.questions: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        number = _HEADER.unpack_from(data)[0]
        name, at = _read_name(data, _HEADER.size)
        kind = struct.unpack_from("!HH", data, at)[0]
        self.questions.append(name)
        turn = self._asked.get((name, kind), 0)
        self._asked[name, kind] = turn + 1
        answers = self._zone.get(name, ())
        addresses = answers[min(turn, len(answers) - 1)] if answers else ()
        wanted = 4 if kind == _A else 6
        found = [a for a in map(ipaddress.ip_address, addresses) if a.version == wanted]
        code = 0x8180 if answers else 0x8183
        reply = _HEADER.pack(number, code, 1, len(found), 0, 0) + data[_HEADER.size : at + 4]
        for address in found:
            reply += b"\xc0\x0c" + struct.pack("!HHIH", kind, _IN, 0, len(address.packed))
            reply += address.packed
        self._transport.sendto(reply, addr)


class Resolver:
    """Resolves as a machine does whose only name server is the one given.

    Args:
        port: Of the name server.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    async def __call__(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(socket.gaierror):
            numeric = socket.AI_NUMERICHOST
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
            return [str(entry[4][0]) for entry in found]
        answers = [await self._ask(host, kind) for kind in (_A, _AAAA)]
        if not any(answers):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [address for found in answers for address in found]

    async def _ask(self, host: str, kind: int) -> list[str]:
        loop = asyncio.get_running_loop()
        query = _HEADER.pack(7, 0x0100, 1, 0, 0, 0)
        for label in host.rstrip(".").lower().split("."):
            query += bytes([len(label)]) + label.encode()
        query += b"\0" + struct.pack("!HH", kind, _IN)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            await loop.sock_connect(asking, ("127.0.0.1", self._port))
            await loop.sock_sendall(asking, query)
            data = await asyncio.wait_for(loop.sock_recv(asking, 4096), 10)
        at = len(query)
        found: list[str] = []
        for _ in range(_HEADER.unpack_from(data)[3]):
            size = struct.unpack_from("!H", data, at + 10)[0]
            found.append(str(ipaddress.ip_address(data[at + 12 : at + 12 + size])))
            at += 12 + size
        return found


@contextlib.asynccontextmanager
async def name_server(
    zone: Mapping[str, Sequence[Sequence[str]]],
) -> AsyncIterator[tuple[NameServer, Resolver]]:
    """A running name server, and who asks it."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(zone), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server, Resolver(transport.get_extra_info("sockname")[1])
    finally:
        transport.close()


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    labels: list[str] = []
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode())
        at += size + 1
    return ".".join(labels).lower(), at + 1
