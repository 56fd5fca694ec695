"""Limits of one client: bytes, time, connections, streams, and space for files."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace

import pytest

from delf.protocols.people import PersonKey, digest_of
from plugins.serve.test_people import add, person
from support.serving import KEYS, bearer, doing
from support.until import until

from .raw import dripping, raw

HEAD = b"GET /tasks HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"x: " + b"a" * 300_000,
        HEAD + b"x: " + b"a" * 70_000 + b"\r\n\r\n",
        HEAD + b"a: b\r\n" * 30_000,
        b"GET /" + b"a" * 300_000,
    ],
    ids=["endless", "whole", "many", "address"],
)
async def test_request_head_size_is_limited(serve, head):
    server = await serve(api_key=KEYS)
    assert (await raw(server.url, head)).startswith(b"HTTP/1.1 431")


async def test_endless_request_heads_do_not_block_others(serve):
    server = await serve(key="ada-key", api_key=KEYS)
    floods = [
        asyncio.create_task(raw(server.url, HEAD + b"x: ", *[b"a" * 1_000_000] * 20))
        for _ in range(2)
    ]
    begun = time.monotonic()
    for _ in range(20):
        assert (await server.client.get("/tasks")).status_code == 200
    assert time.monotonic() - begun < 15
    await asyncio.gather(*floods)


@pytest.mark.parametrize(
    "rest",
    [b"2;", b"2\r\n{}\r\n0\r\nx: "],
    ids=["extension", "trailer"],
)
async def test_chunked_body_overhead_has_a_size_limit(serve, rest):
    server = await serve()
    pieces = [b"a" * 300_000] * 4
    assert (await raw(server.url, CHUNKED + rest, *pieces)).startswith(b"HTTP/1.1 400")
    assert (await server.client.get("/tasks")).status_code == 200


async def test_trailers_are_not_treated_as_request_headers(serve):
    server = await serve(api_key=KEYS)
    smuggled = CHUNKED + b"2\r\n{}\r\n0\r\nauthorization: Bearer ada-key\r\n\r\n"
    assert (await raw(server.url, smuggled))[9:12] in (b"400", b"401")


async def test_body_of_a_refused_request_is_not_awaited(serve, monkeypatch):
    monkeypatch.setattr("delf_serve.server.UNREAD_BODY_SECONDS", 0.2)
    server = await serve(api_key=KEYS)
    head = POST + b"content-length: 10000\r\n\r\n"
    got = await dripping(server.url, head, b"{" * 10_000, pause=0.02, to_the_end=True)
    assert got.startswith(b"HTTP/1.1 401")


async def test_pipelined_requests_are_limited(serve):
    server = await serve(api_key=KEYS)
    whole = HEAD + b"\r\n"
    assert (await raw(server.url, whole * 10)).startswith(b"HTTP/1.1 401")
    assert await raw(server.url, whole * 1000) == b""
    assert (await server.client.get("/health")).status_code == 200


async def test_open_connections_are_limited(serve):
    server = await serve(connections=16)
    host, port = server.url.removeprefix("http://").split(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(40)]
    await until(lambda: sum(reader.at_eof() for reader, _ in opened) == 40 - 16)
    for _, writer in opened:
        writer.close()
    assert (await server.client.get("/tasks")).status_code == 200


async def test_streams_and_waits_are_limited_per_user(serve):
    server = await serve(key="ada-key", api_key=KEYS, streams=5, user_streams=3)
    ada, ben = server.client, bearer("ben-key")
    async with ada.stream("GET", "/events"), ada.stream("GET", "/events"):
        order = {"task": doing("await hold()"), "wait": 30}
        waits = asyncio.create_task(ada.post("/run", json=order))

        async def happened() -> bool:
            return len((await ada.get("/tasks")).json()["tasks"]) >= 1

        await until(happened)
        refused = await ada.get("/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert (await ada.post("/run", json=order)).status_code == 429
        async with ada.stream("GET", "/events", headers=ben) as first:
            assert first.status_code == 200
            async with ada.stream("GET", "/events", headers=ben) as second:
                assert second.status_code == 200
                full = await ada.get("/events", headers=ben)
                assert full.status_code == 503
        server.box.gate.set()
        assert (await waits).status_code == 200
        assert (await ada.get("/tasks")).status_code == 200


async def test_person_and_key_of_one_name_have_separate_limits(serve):
    server = await serve(api_key="ada:settings-key", open_tasks=1, user_streams=1, rate=5)
    other = PersonKey(label="ci", digest=digest_of("ci-key"), made_at=1.0)
    ada = person("ada", scope="all")
    await add(server, replace(ada, keys=(*ada.keys, other)))

    async def begins(key: str) -> int:
        order = {"task": doing("await hold()")}
        answer = await server.client.post("/run", json=order, headers=bearer(key))
        return answer.status_code

    assert [await begins(key) for key in ("ada-key", "settings-key", "ci-key")] == [202, 202, 429]
    statuses = [
        (await server.client.get("/session", headers=bearer(key))).status_code
        for key in [*["ada-key"] * 20, "settings-key"]
    ]
    assert 429 in statuses[:-1]
    assert statuses[-1] == 200
    async with server.client.stream("GET", "/events", headers=bearer("settings-key")) as one:
        assert one.status_code == 200
        again = await server.client.get("/events", headers=bearer("settings-key"))
        assert "of your streams and waits" in again.text
    server.box.gate.set()


async def test_head_request_does_not_count_as_a_stream(serve):
    server = await serve(user_streams=1)
    for _ in range(3):
        answer = await server.client.head("/events")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")


async def test_files_have_quotas_per_user_and_in_total(serve, tmp_path):
    limits = {"file_bytes": 40_000, "user_file_bytes": 60_000, "all_file_bytes": 90_000}
    server = await serve(api_key=KEYS, **limits)

    async def send(key, size):
        params = {"name": "a.txt"}
        content = b"x" * size
        return await server.client.post(
            "/files", params=params, content=content, headers=bearer(key)
        )

    assert (await send("ada-key", 50_000)).status_code == 413
    assert (await send("ada-key", 40_000)).status_code == 201
    over = await send("ada-key", 40_000)
    assert (over.status_code, over.headers["content-type"]) == (413, "application/problem+json")
    assert "60,000" in over.json()["detail"]
    assert (await send("cy-key", 40_000)).status_code == 201
    full = await send("cy-key", 15_000)
    assert full.status_code == 507
    assert len([file for file in (tmp_path / "files").rglob("*") if file.is_file()]) == 2


async def test_empty_files_count_against_the_limit(serve):
    server = await serve(user_file_bytes=30_000)
    sent = [
        (await server.client.post("/files", params={"name": "a"}, content=b"")).status_code
        for _ in range(9)
    ]
    assert sent == [201] * 7 + [413] * 2


async def test_concurrent_uploads_share_the_quota(serve):
    server = await serve(user_file_bytes=100_000)
    answers = await asyncio.gather(
        *(
            server.client.post("/files", params={"name": "a"}, content=b"x" * 40_000)
            for _ in range(10)
        )
    )
    assert [answer.status_code for answer in answers].count(201) <= 2


async def test_old_files_are_removed(serve, tmp_path):
    first = await serve()
    await first.client.post("/files", params={"name": "a"}, content=b"x")
    await serve(file_days=1e-9)
    await until(lambda: not any(file.is_file() for file in (tmp_path / "files").rglob("*")))
    assert (await first.client.get("/files")).json()["files"] == []


async def test_partial_upload_of_a_killed_server_is_removed(serve, tmp_path):
    first = await serve()
    await first.client.post("/files", params={"name": "a"}, content=b"x")
    (folder,) = (tmp_path / "files").iterdir()
    for name, hours in (("left", 2), ("comes", 0)):
        half = folder / f"coming_file_{name}" / "b"
        half.parent.mkdir()
        half.write_bytes(b"half")
        at = time.time() - hours * 3600
        os.utime(half, (at, at))
        os.utime(half.parent, (time.time() - 7200,) * 2)
    await serve()
    await until(lambda: not (folder / "coming_file_left").exists())
    assert (folder / "coming_file_comes/b").read_bytes() == b"half"
    assert len((await first.client.get("/files")).json()["files"]) == 1
