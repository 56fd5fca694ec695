"""Requests that reach a server while it ends, or after: they come again, and start nothing."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import httpx
import pytest

from delf_serve.app import make_app
from delf_serve.server import fewer_garbage_collections
from support.serving import Outbox, make_agent


@pytest.fixture
async def app(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{tmp_path / 'journal.db'}")
    made = make_app(make_agent(str(tmp_path), Outbox()), {"grace_seconds": 0}, {})
    await made.start()
    yield made
    await made.stop()


def client(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_request_failing_because_of_shutdown_gets_503(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closed(*_: Any, **__: Any) -> Any:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(app.tasks.views, "view", closed)
    async with client(app) as asking:
        before = await asking.get("/tasks/task_1/events")
        app.begin_stop()
        after = await asking.get("/tasks/task_1/events")
    assert before.status_code == 500
    assert (after.status_code, after.headers["retry-after"]) == (503, "5")
    assert after.json()["detail"] == "the server ends"


async def test_request_after_shutdown_starts_no_agent(app: Any) -> None:
    await app.stop()
    async with client(app) as asking:
        late = await asking.post("/run", json={"task": "Do it."})
    assert late.status_code == 503
    assert not app.agent.started


async def test_restarted_server_uses_the_journal_of_its_restarted_agent(app: Any) -> None:
    await app.stop()
    await app.start()
    assert app.tasks.journal is app.agent.journal


async def test_request_cancelled_by_shutdown_gets_503(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, sent = asyncio.Event(), list[dict[str, Any]]()

    async def view(*_: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    monkeypatch.setattr(app.tasks.views, "view", view)
    path = "/tasks/task_1/events"
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
    scope |= {"headers": [(b"host", b"localhost")], "query_string": b"", "client": ("127.0.0.1", 1)}
    scope |= {"scheme": "http", "server": ("localhost", 80), "root_path": ""}
    request = asyncio.create_task(app(scope, asyncio.Event().wait, send))
    await reached.wait()
    app.begin_stop()
    request.cancel()
    await asyncio.wait({request})
    assert request.cancelled()
    assert [message.get("status") for message in sent] == [503, None]


def test_garbage_collection_settings_are_restored_at_shutdown() -> None:
    before = gc.get_threshold()
    gc.set_threshold(700)
    try:
        with fewer_garbage_collections():
            assert gc.get_threshold()[0] > 700
            assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == 700
    finally:
        gc.set_threshold(*before)
