"""Attempts to reach the own network, from `attempts.txt`. None may succeed."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from delf.errors import DelfError, ToolExecutionError, ToolRefusedError
from delf_web import Web
from support.raw_http import Reply, Seen

LINES = (Path(__file__).parent / "attempts.txt").read_text(encoding="utf-8").splitlines()
ATTEMPTS = [line for line in LINES if line and not line.startswith("#")]
SECRET = "inner-9f31c7"
PUBLIC = "127.0.0.2"
"""Stands for the public internet: the only address that the connection may reach."""


class Zone:
    """A resolver with a list of answers for each name, the last of which is repeated."""

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._left = {name: list(answers) for name, answers in names.items()}

    async def __call__(self, host: str, port: int) -> list[str]:
        with contextlib.suppress(socket.gaierror):
            loop = asyncio.get_running_loop()
            numeric = socket.AI_NUMERICHOST
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
            return [str(entry[4][0]) for entry in found]
        answers = self._left.get(host.rstrip(".").lower())
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return list(answers.pop(0) if len(answers) > 1 else answers[0])


class Inner:
    """The inner server; each connection to it is an attack that succeeded."""

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        body = SECRET.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.close()


@contextlib.asynccontextmanager
async def inner_server() -> AsyncGenerator[Inner]:
    inner = Inner()
    server = await asyncio.start_server(inner.serve, "127.0.0.1", 0)
    inner.port = server.sockets[0].getsockname()[1]
    servers = [server]
    with contextlib.suppress(OSError):  # where there is IPv6
        servers.append(await asyncio.start_server(inner.serve, "::1", inner.port))
    try:
        yield inner
    finally:
        for each in servers:
            each.close()


def page_of(kind: str, target: str, seen: Seen) -> Reply:
    """Return the public server's answer."""
    if kind == "hops" and "again" not in parse_qs(seen.query):
        return Reply(302, b"", {"Location": "/?again=1"})
    if kind in ("redirect", "hops"):
        return Reply(302, b"", {"Location": target})
    if kind == "body":
        return Reply(200, target.encode(), {"Content-Type": "application/rss+xml"})
    link = f'<link rel="alternate" type="application/rss+xml" href="{target}">'
    page = f"<html><head>{link if kind == 'link' else ''}</head><body>outer</body></html>"
    return Reply(200, page.encode(), {"Content-Type": "text/html"})


@contextlib.asynccontextmanager
async def public_server(kind: str, target: str) -> AsyncGenerator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            parts = urlsplit(head.split(" ")[1])
            asked = f"{parts.path or '/'}?{parts.query}"
            reply = page_of(kind, target, Seen("GET", asked, [], b""))
            fields = {
                **reply.headers,
                "Content-Length": str(len(reply.body)),
                "Connection": "close",
            }
            lines = [
                f"HTTP/1.1 {reply.status} S",
                *(f"{k}: {v}" for k, v in fields.items()),
                "",
                "",
            ]
            writer.write("\r\n".join(lines).encode() + reply.body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, PUBLIC, 0)
    try:
        yield str(server.sockets[0].getsockname()[1])
    finally:
        server.close()


@pytest.mark.parametrize("line", ATTEMPTS)
async def test_private_network_attempts_are_refused(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, _, rest = line.partition(" ")
    async with inner_server() as inner:
        target = rest.replace("{port}", str(inner.port))
        zone = {
            "localhost": [["127.0.0.1"]],
            "public.test": [[PUBLIC]],
            "inner.test": [["127.0.0.1"]],
            "named.test": [rest.split()],
            "rebound.test": [[address] for address in rest.split()],
        }
        if kind == "proxy":
            monkeypatch.setenv(rest, f"http://127.0.0.1:{inner.port}")
        async with public_server(kind, target) as port:
            own = str(inner.port)
            address = {
                "url": target,
                "name": f"http://named.test:{own}/",
                "rebind": f"http://rebound.test:{port}/",
            }.get(kind, f"http://public.test:{port}/")
            options = {"private": [PUBLIC], "ports": [], "rate": 0}
            web = Web(resolve=Zone(zone), **options)
            results: list[object] = []
            for ask in (web.scrape, web.feed, web.links):
                with contextlib.suppress(DelfError):
                    results.append(await ask(address))
                if kind in ("url", "name"):
                    with pytest.raises((ToolRefusedError, ToolExecutionError)) as caught:
                        await ask(address)
                    assert "cannot be reached" not in caught.value.message
                    assert "did not answer" not in caught.value.message
            await web.aclose()
            assert inner.connections == 0
            assert SECRET not in str(results)
            assert "root:" not in str(results)


async def test_permitted_private_server_is_reachable() -> None:
    async with inner_server() as inner:
        web = Web(private=["127.0.0.0/8"], ports=[], rate=0)
        page = await web.scrape(f"http://2130706433:{inner.port}/")
        assert SECRET in page["text"]
        assert inner.connections == 1
        await web.aclose()


def test_attack_list_has_more_than_sixty_attempts() -> None:
    assert len(set(ATTEMPTS)) > 60
