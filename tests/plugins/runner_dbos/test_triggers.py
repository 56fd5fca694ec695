"""A webhook and a new mail each start a routine once, though two processes are killed meanwhile.

Each message comes while one of two servers, or of two runners, is killed with SIGKILL at a random
moment between its arrival and the end of its routine. ``DELF_TEST_TRIGGERS`` sets how many come.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path

import httpx
import pytest

from delf_serve.signatures import signature
from support.google.fixtures import USER, credentials, google
from support.google.server import GoogleServer
from support.program import DELF, delf, environment, start
from support.server import free_port
from support.until import until

from .fleet import Fleet, fleet
from .test_scheduled_routines import save

__all__ = ["credentials", "google"]
pytestmark = [pytest.mark.timeout(240), pytest.mark.chaos]

MESSAGES = int(os.environ.get("DELF_TEST_TRIGGERS", "4"))
LONGEST = 0.6
"""The most seconds between the arrival of a message and a kill."""
SECRET = "a-secret-of-the-hook"
STEPS = 4
SETTINGS = f"""
[plugins.serve]
grace_seconds = 0
[plugins.serve.hooks.job]
secret = "{SECRET}"
routine = "report"
inputs = {{ name = "/name" }}
"""


class Servers:
    """Two servers, and a service that repeats each message until one of them accepts it."""

    def __init__(self, one: Fleet) -> None:
        self._one = one
        self._ports = [free_port(), free_port()]

    async def begin(self) -> None:
        for place in range(2):
            self.restart(place)

    def restart(self, place: int) -> None:
        """Start a server in place of a dead one."""
        command = [DELF, "serve", "--port", str(self._ports[place]), "--tools", "tools.py"]
        with (self._one.folder / f"runner-server-{place}.log").open("ab") as log:
            served = start(
                command,
                cwd=self._one.folder,
                env=environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._one.runners.append(served)

    async def send(self, name: str) -> None:
        """Post a message to the servers in turn, like services that get no answer."""
        body = json.dumps({"name": name}).encode()
        turns = itertools.cycle(self._ports)
        async with httpx.AsyncClient(timeout=10) as client:

            async def is_taken_in() -> bool:
                signed = signature(SECRET, name, int(time.time()), body)
                url = f"http://127.0.0.1:{next(turns)}/hooks/job"
                try:
                    answer = await client.post(url, content=body, headers=signed)
                except httpx.TransportError:
                    return False
                assert answer.status_code in (200, 202), answer.text
                return True

            await until(is_taken_in, 60)


class Runners:
    """A mailbox, and two runners that check it for new mails."""

    def __init__(self, one: Fleet, google: GoogleServer) -> None:
        self._one, self._google = one, google

    async def begin(self) -> None:
        await self.send("known-before")
        each = ("--each", 'mail.search(query="in:inbox")', "--tools", "tools.py")
        call = ('report(name=item["subject"])', "--strategy", "routine")
        words = ("add", "mails", "* * * * * *", *call, *each)
        added = await asyncio.to_thread(delf, "schedule", *words, cwd=self._one.folder)
        assert added.returncode == 0, added.stderr
        for place in range(2):
            self.restart(place)
        await until(self._has_looked, 60)

    async def _has_looked(self) -> bool:
        words = ("schedule", "history", "mails", "--json")
        past = json.loads((await asyncio.to_thread(delf, *words, cwd=self._one.folder)).stdout)
        return any(one["note"] == "1 item known from now on" for one in past)

    def restart(self, place: int) -> None:
        _ = place
        self._one.start()

    async def send(self, name: str) -> None:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = "bob@example.com", USER, name
        message["Message-ID"] = f"<{name}@example.com>"
        message.set_content("a job")
        with self._google.lock:
            self._google.gmail.deliver(USER, message.as_bytes())


@asynccontextmanager
async def kept_in(
    folder: Path, url: str, google: GoogleServer, login: str
) -> AsyncGenerator[Fleet]:
    mail = f'[connections.mail]\ntype = "gmail"\nbase_url = "{google.url}"\n'
    more = f'{SETTINGS}\n{mail}oauth_credentials = "{login}"\n'
    async with fleet(folder, url, url, pause=0.05, more=more) as one:
        save(one)
        yield one


@pytest.mark.parametrize("kind", ["webhook", "mail"])
async def test_trigger_starts_its_routine_once_despite_killed_processes(
    tmp_path: Path, postgres_url: str, google: GoogleServer, credentials: str, kind: str
) -> None:
    chance = random.Random(os.environ.get("DELF_TEST_SEED", "20261127"))
    async with kept_in(tmp_path, postgres_url, google, credentials) as one:
        source = Servers(one) if kind == "webhook" else Runners(one, google)
        await source.begin()
        names = [f"job-{number}" for number in range(MESSAGES)]
        if kind == "webhook":
            await source.send(names[0])  # both work before the first is killed

        async def kill(place: int) -> None:
            process = one.runners[place]
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, chance.uniform(0, LONGEST))
            os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            source.restart(place)
            one.runners[place] = one.runners.pop()

        for number, name in enumerate(names):
            await asyncio.gather(source.send(name), kill(number % 2))

        async def all_are_there() -> bool:
            return (await one.states()).total() >= MESSAGES

        await until(all_are_there, 90)
        await one.all_over(90)
        if kind == "webhook":
            for name in names:
                await source.send(name)
        assert dict(await one.states()) == {"done": MESSAGES}, one.logs()
        assert one.marks() == {(name, step): 1 for name in names for step in range(STEPS)}
        assert one.model.requests == []
