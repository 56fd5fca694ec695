"""The contract of connections, and of packages."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from delf.testing import Call, ConnectionContract, PluginContract
from delf_web import Web
from support.raw_http import Reply, Seen, threaded_server

FEED = b"""<rss version="2.0"><channel><title>News</title>
<item><title>One</title><link>http://a.test/1</link></item></channel></rss>"""
PAGE = b"""<html><head><title>Lamps</title></head><body><p>All about lamps, large and small ones.</p>
<a href="/b">b</a><table><tr><td>1</td><td>2</td></tr></table></body></html>"""


def answer(seen: Seen) -> Reply:
    if seen.path == "/slow":
        threading.Event().wait(1)
    found = {"/page": (PAGE, "text/html"), "/feed": (FEED, "application/rss+xml")}
    body, kind = found.get(seen.path, (b"", "text/plain"))
    return Reply(200 if body else 404, body, {"Content-Type": kind})


@pytest.mark.slow
class TestWeb(ConnectionContract):
    slow_call = Call("scrape", url="-")
    calls_to_refuse = (Call("links", url="file:///etc/passwd"),)

    @pytest.fixture
    def connection(self) -> Iterator[Web]:
        with threaded_server(answer) as server:
            page = f"{server.url}/page"
            actions = ("scrape", "links", "tables")
            feed = Call("feed", url=f"{server.url}/feed")
            self.calls = (*(Call(name, url=page) for name in actions), feed)
            gone = Call("scrape", url=f"{server.url}/gone")
            self.failing_calls = (gone, Call("links", url="file:///x"), Call("feed", url=page))
            self.slow_call = Call("scrape", url=f"{server.url}/slow")
            yield Web(private=["127.0.0.1"], ports=[], rate=0)


class TestPackage(PluginContract):
    name = "web"
    offers: Any = {"connection": ["web", "websearch"]}
    vendors = ("trafilatura", "httpx", "httpcore", "feedparser", "lxml", "pypdf")
