"""Tests that response bodies are decompressed within their size limit."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from functools import cache

import httpx
import pytest

from delf.errors import DelfError
from delf.llm import LLMConfig
from delf.messages import ModelRequest, user
from delf.network.bodies import BodyEncodingError, BodyTooLargeError, Inflater, pieces, read_body
from delf.protocols.context import PluginContext
from delf_model_http.model import HttpModel
from delf_openapi import APITool
from delf_openapi.sources import read
from delf_web import Web, WebSearch
from support.raw_http import Reply, raw_server, threaded_server

MAX = 1_000_000
BOMB_SIZE = 300_000_000


@cache
def bomb() -> bytes:
    return gzip.compress(b"0" * BOMB_SIZE, 1)


def answer(body: bytes, encoding: str | None = None, cut: int = 0) -> httpx.Response:
    """Return a response whose body arrives in pieces."""
    size = cut or max(len(body), 1)
    parts = [body[start : start + size] for start in range(0, len(body), size)]

    async def come() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    headers = {} if encoding is None else {"Content-Encoding": encoding}
    return httpx.Response(200, headers=headers, content=come())


def raw(text: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(text) + machine.flush()


@contextmanager
def little_memory(most: int = 40_000_000) -> Generator[None]:
    """Check that the block never allocates more bytes than the limit, even for a moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak:,} bytes"


TEXT = bytes(range(256)) * 3000


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        (None, bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("X-GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw),
    ],
)
@pytest.mark.parametrize("cut", [0, 1000])
async def test_body_equals_the_sent_bytes(
    encoding: str | None, pack: Callable[[bytes], bytes], cut: int
) -> None:
    assert await read_body(answer(pack(TEXT), encoding, cut), MAX) == TEXT


async def test_body_of_exactly_the_limit_is_read() -> None:
    assert await read_body(answer(gzip.compress(TEXT), "gzip"), len(TEXT)) == TEXT
    with pytest.raises(BodyTooLargeError):
        await read_body(answer(gzip.compress(TEXT), "gzip"), len(TEXT) - 1)


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", raw)])
@pytest.mark.slow
async def test_decompression_bomb_stays_under_the_memory_limit(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = pack(b"0" * BOMB_SIZE)
    with little_memory(4 * MAX), pytest.raises(BodyTooLargeError):
        await read_body(answer(body, encoding), MAX)


@pytest.mark.slow
async def test_pieces_of_an_unpacked_body_are_small() -> None:
    seen = [len(piece) async for piece in pieces(answer(bomb(), "gzip"), BOMB_SIZE)]
    assert max(seen) <= 65_536
    assert sum(seen) == BOMB_SIZE


async def test_compressed_bytes_without_content_count_against_the_limit() -> None:
    nothing = b"\x00\x00\x00\xff\xff" * 300_000  # stored blocks of no bytes
    with pytest.raises(BodyTooLargeError):
        await read_body(answer(nothing, "deflate", cut=10_000), MAX)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "deflate, gzip", "br", "zstd", "compress"])
async def test_unrequested_content_encoding_is_refused(encoding: str) -> None:
    with pytest.raises(BodyEncodingError, match="compressed"):
        await read_body(answer(gzip.compress(gzip.compress(TEXT)), encoding), MAX)


async def test_broken_compression_raises() -> None:
    with pytest.raises(BodyEncodingError, match="broken"):
        await read_body(answer(b"no gzip", "gzip"), MAX)
    with pytest.raises(BodyEncodingError, match="broken"):
        list(Inflater(httpx.Headers({"content-encoding": "deflate"}), MAX).feed(b"\xff" * 9))


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw)]
)
async def test_truncated_compressed_body_raises(encoding, pack):
    for missing in (1, 300):
        with pytest.raises(BodyEncodingError, match="truncated"):
            await read_body(answer(pack(TEXT)[:-missing], encoding), MAX)
    assert await read_body(answer(b"", encoding), MAX) == b""


# -- every client ---------------------------------------------------------------------------


async def _web(url: str) -> None:
    web = Web(private=["127.0.0.1"], ports=[], rate=0)
    try:
        await web.scrape(url)
    finally:
        await web.aclose()


async def _websearch(url: str) -> None:
    search = WebSearch(searxng=url)
    await search.search("lamps")


async def _openapi(url: str) -> None:
    document = {
        "openapi": "3.0.3",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/x": {"get": {"operationId": "x", "responses": {"200": {"description": "."}}}}},
    }
    api = APITool(document, name="api", max_response_bytes=MAX)
    try:
        (action,) = await api.actions()
        await action.call()
    finally:
        await api.aclose()


async def _model(url: str, *, stream: bool = False) -> None:
    config = LLMConfig("m", base_url=f"{url}/v1", api_key="k", provider="openai")
    model = HttpModel(PluginContext(environ={}), config)
    request = ModelRequest(messages=(user("hello"),))
    try:
        if stream:
            async for _ in model.stream(request):
                pass
        else:
            await model.complete(request)
    finally:
        await model.aclose()


async def _model_stream(url: str) -> None:
    await _model(url, stream=True)


@pytest.mark.parametrize("ask", [_web, _websearch, _openapi, _model, _model_stream])
@pytest.mark.slow
async def test_http_client_stops_at_a_decompression_bomb(ask: Callable[..., object]) -> None:
    # Made here, because its making takes more memory than the block may take.
    reply = Reply(200, bomb(), {"Content-Type": "text/html", "Content-Encoding": "gzip"})
    async with raw_server(lambda _: reply) as server:
        with little_memory(), pytest.raises(DelfError):
            await ask(server.url)  # pyright: ignore[reportGeneralTypeIssues]
        assert server.last.header("accept-encoding") == "gzip, deflate"


@pytest.mark.parametrize("ask", [_web, _websearch, _openapi])
async def test_http_client_refuses_a_truncated_body(ask):
    headers = {"Content-Type": "text/html", "Content-Encoding": "gzip"}
    async with raw_server(lambda _: Reply(200, gzip.compress(b"[]")[:-1], headers)) as server:
        with pytest.raises(DelfError, match="truncated"):
            await ask(server.url)


def test_specification_download_refuses_a_truncated_body():
    headers = {"Content-Encoding": "gzip"}
    with (
        threaded_server(lambda _: Reply(200, gzip.compress(b"{}")[:-1], headers)) as server,
        pytest.raises(DelfError, match="BodyTruncatedError"),
    ):
        read(f"{server.url}/openapi.json", MAX)


@pytest.mark.slow
def test_specification_download_stops_at_a_decompression_bomb() -> None:
    # Made here, because its making takes more memory than the block may take.
    reply = Reply(200, bomb(), {"Content-Type": "text/html", "Content-Encoding": "gzip"})
    with threaded_server(lambda _: reply) as server:
        with little_memory(), pytest.raises(DelfError, match="too large"):
            read(f"{server.url}/openapi.json", MAX)
        assert server.last.header("accept-encoding") == "gzip, deflate"


@pytest.mark.parametrize("end", [b"", bytes(9), b"\x1f", b"some\x1f\x8b"])
def test_all_members_of_a_gzip_body_are_read(end):
    body = gzip.compress(b"one,") + gzip.compress(b"") + gzip.compress(b"two") + end
    for split in range(len(body)):
        inflater = Inflater(httpx.Headers({"content-encoding": "gzip"}), MAX)
        pieces = [*inflater.feed(body[:split]), *inflater.feed(body[split:])]
        assert b"".join(pieces) == b"one,two"


def test_body_of_empty_members_is_read_in_time():
    inflater = Inflater(httpx.Headers({"content-encoding": "gzip"}), 10_000_000)
    members = gzip.compress(b"") * 200_000
    began = time.process_time()
    assert b"".join(inflater.feed(members)) == b""
    assert time.process_time() - began < 3
