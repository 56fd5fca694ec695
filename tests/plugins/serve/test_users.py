"""delf mounted in a web program that knows who is logged in: by a ContextVar, and by structlog's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import uvicorn

from delf_cli.listening import address_of, bind
from delf_serve.app import make_app
from support.until import until
from support.users import *  # noqa: F403 - the fixture office
from support.users import NAMED, PARTS, Office, User, all_at_once, user

structlog = pytest.importorskip("structlog")


class LoggedIn:
    """A web program around an application, which sets the current user for each request."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope["headers"])[b"x-user"].decode()
        user.set(User(name))
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(user=name)
        await self._app(scope, receive, send)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_concurrent_web_users_are_kept_apart(
    office: Office, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All users send requests concurrently, over shared connections."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{tmp_path / 'journal.db'}")
    sightings = office.sightings
    seen = sightings.note

    def note(part: str, text: object) -> None:
        seen(part, text)
        bound = structlog.contextvars.get_contextvars().get("user", "nobody")
        sightings.all.append((f"structlog in {part}", NAMED.findall(str(text))[-1], bound))

    monkeypatch.setattr(sightings, "note", note)
    agent = office.open(journal="sql")
    web = LoggedIn(make_app(agent, {"grace_seconds": 0}, {}))
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(
        # A busy machine may leave a connection idle for longer than the usual five seconds.
        uvicorn.Config(
            web, lifespan="off", log_level="error", access_log=False, timeout_keep_alive=60
        )
    )
    work = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started or work.done())
        async with httpx.AsyncClient(base_url=address_of(listener), timeout=50) as client:

            async def one(name: str) -> None:
                headers, task = {"x-user": name}, {"task": f"Pay {name}."}
                sent = await client.post("/run", json=task, headers=headers)
                place = f"/tasks/{sent.json()['task_id']}"

                async def ended() -> Any:
                    found = (await client.get(place, headers=headers)).json()
                    return found if found["state"] in ("done", "failed") else None

                done = await until(ended)
                assert done["state"] == "done", done
                assert set(NAMED.findall(str(done))) == {name}

            await all_at_once(one)
    finally:
        server.should_exit = True
        await work
        listener.close()
        await agent.astop()
    assert sightings.strangers == {}
    assert sightings.parts >= PARTS - {"listener", "on_confirm"}
    assert "structlog in plain action" in sightings.parts
