"""Bytes to a server on loopback, as no HTTP client would send them."""

from __future__ import annotations

import asyncio
import contextlib


async def raw(url: str, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send bytes to a server; return its output until it has answered or closes."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
    except ConnectionError:
        pass  # it was closed while it was still sent; the response before that can be read
    try:
        while chunk := await reader.read(65_536):
            got += chunk
            if b"\r\n\r\n" in got and b"HTTP/1.1 1" not in got:
                break
    except ConnectionError:
        return got
    finally:
        writer.close()
    return got


async def dripping(
    url: str, head: bytes, body: bytes, *, pause: float, to_the_end: bool = False
) -> bytes:
    """Send a body byte by byte, until the server answers; return its output.

    Args:
        url: The server.
        head: Sent at once.
        body: Sent byte by byte.
        pause: Seconds between the bytes.
        to_the_end: Continue until the server has closed the connection.
    """
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head)

    async def drip() -> None:
        for byte in body:
            writer.write(bytes([byte]))
            await asyncio.sleep(pause)

    drips = asyncio.create_task(drip())
    got = b""
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(65_536):
            got += chunk
            if not to_the_end:
                break
    drips.cancel()
    writer.close()
    return got
