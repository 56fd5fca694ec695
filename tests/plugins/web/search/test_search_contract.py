"""The contract of connections."""

import json
import threading
from collections.abc import Iterator

import pytest

from delf.testing import Call, ConnectionContract
from delf_web import WebSearch
from plugins.web.search.conftest import OPENAI
from support.raw_http import Reply, Seen, threaded_server


def answer(seen: Seen) -> Reply:
    if b"slow" in seen.body:
        threading.Event().wait(1)
    if b"refused" in seen.body:
        return Reply(401, b'{"error": {"message": "the key key-5ecret-77 is unknown"}}')
    return Reply(200, json.dumps(OPENAI).encode())


class TestWebSearch(ConnectionContract):
    calls = (Call("search", query="the largest lakes"),)
    failing_calls = (Call("search", query=""), Call("search", query="refused"))
    slow_call = Call("search", query="slow")
    logs_in = False
    secrets = ("key-5ecret-77",)

    @pytest.fixture
    def connection(self) -> Iterator[WebSearch]:
        with threaded_server(answer) as server:
            yield WebSearch(llm="gpt-5.5", api_key="key-5ecret-77", base_url=f"{server.url}/v1")
