"""Streams of other protocols whose client disconnects while the server sends."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from support.serving import doing

WORK = doing("print(await hold())")
SENT = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": WORK}]}
MESSAGES = [{"id": "m1", "role": "user", "content": WORK}]
CALL = {"method": "SendStreamingMessage", "params": {"message": SENT}}
STREAMS = {
    "/a2a": {"jsonrpc": "2.0", "id": 1, **CALL},
    "/ag-ui": {"threadId": "t", "runId": "r", "messages": MESSAGES},
    "/v1/chat/completions": {"model": "delf", "messages": MESSAGES, "stream": True},
    "/v1/responses": {"model": "delf", "input": WORK, "stream": True},
}


@contextmanager
def collected_generators() -> Generator[set[str]]:
    """Note the generators of the server that the garbage collector has to close."""
    names: set[str] = set()
    finalize_as_before = sys.get_asyncgen_hooks().finalizer
    assert finalize_as_before is not None

    def finalize(generator: AsyncGenerator[Any]) -> None:
        if "delf_serve" in generator.ag_code.co_filename:
            names.add(generator.__qualname__)
        finalize_as_before(generator)

    sys.set_asyncgen_hooks(finalizer=finalize)
    yield names
    gc.collect()
    sys.set_asyncgen_hooks(finalizer=finalize_as_before)


@pytest.mark.parametrize("path", STREAMS)
async def test_stream_of_a_gone_client_is_closed_with_its_request(serve: Any, path: str) -> None:
    if path == "/a2a":
        pytest.importorskip("a2a")
    server = await serve()
    body = json.dumps(STREAMS[path]).encode()
    incoming = asyncio.Queue[dict[str, Any]]()
    incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
    is_gone = False

    async def send(message: dict[str, Any]) -> None:
        """Wait with the frame about the call, as for a client that reads no more."""
        nonlocal is_gone
        if b"hold" in message.get("body", b"") and not is_gone:
            is_gone = True
            incoming.put_nowait({"type": "http.disconnect"})
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    headers = {b"host": b"localhost", b"content-type": b"application/json", b"a2a-version": b"1.0"}
    scope |= {"headers": [*headers.items(), (b"content-length", b"%d" % len(body))]}
    scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "scheme": "http"}
    scope |= {"server": ("localhost", 80), "root_path": "", "http_version": "1.1"}
    with collected_generators() as names:
        await server.app(scope, incoming.get, send)
    assert is_gone
    # The library of A2A closes its own generators, but not the one that it reads.
    assert names <= {"A2ATasks.on_message_send_stream"}
