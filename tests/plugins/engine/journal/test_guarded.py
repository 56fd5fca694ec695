"""Tests that a journal's own exceptions become delf's errors, which name the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from delf import Agent
from delf.errors import DelfError, JournalFailedError
from delf.protocols.approval import RememberedDecision
from delf.specs import JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.journal.guarded import guarded
from delf_engine.journal.in_process import InProcessJournal
from support.chains import every_text_of


class Redis(InProcessJournal):
    """A journal whose server does not answer some methods."""

    away: frozenset[str] = frozenset()

    def _ask(self, method: str) -> None:
        if method in self.away:
            raise ConnectionError("Error 111 connecting to localhost:6379")

    async def append(self, event: Any) -> None:
        self._ask("append")
        await super().append(event)

    async def read(self, task_id: str, after: int = 0) -> Any:
        self._ask("read")
        return await super().read(task_id, after)

    async def remembered(self) -> Any:
        self._ask("remembered")
        return await super().remembered()

    async def revoke(self, request_id: str, by: str) -> RememberedDecision:
        self._ask("revoke")
        return await super().revoke(request_id, by)

    async def subscribe(self, task_id: str | None = None) -> AsyncIterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._ask("subscribe")
        async for event in super().subscribe(task_id):
            yield event


WAYS: dict[str, Callable[[Agent], Any]] = {
    "append": lambda agent: agent.run("x"),
    "read": lambda agent: agent.poll("task_1"),
    "remembered": lambda agent: agent.get_remembered_approvals(),
    "revoke": lambda agent: agent.revoke("req_1"),
}


@pytest.mark.parametrize("method", WAYS)
def test_client_error_names_journal_and_method(
    delf_host: TestHost, scripted_model: ScriptedModel, method: str
) -> None:
    journal = Redis()
    delf_host.provide(JournalSpec(name="redis", summary="x", factory="x:x"), lambda **_: journal)
    scripted_model.default = "```python\nprint(1)\n```"
    with Agent(llm="scripted", journal="redis", host=delf_host) as agent:
        assert agent.run("x").text == "1"
        journal.away = frozenset({method})
        with pytest.raises(JournalFailedError) as raised:
            WAYS[method](agent)
    assert f"the journal 'redis' failed in {method}()" in raised.value.message
    assert "ConnectionError: Error 111" in raised.value.message
    assert isinstance(raised.value.__cause__, ConnectionError)


class ClientError(Exception):
    """An error of a database's client."""


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (ConnectionError("refused"), True),
        (TimeoutError(), True),
        (ClientError("away"), True),
        (TypeError("an argument is missing"), False),
        (KeyError("seq"), False),
        (AttributeError("no such attribute"), False),
    ],
)
async def test_bug_of_a_journal_is_no_outage(error: Exception, is_outage: bool) -> None:
    class Failing(InProcessJournal):
        async def read(self, task_id: str, after: int = 0) -> Any:
            raise error

        async def subscribe(self, task_id: str | None = None) -> AsyncIterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
            if task_id is None:
                raise error
            yield  # makes this an async generator

    journal = guarded(Failing(), "redis")
    for way in (journal.read("task_1"), anext(journal.subscribe())):
        with pytest.raises(JournalFailedError) as raised:
            await way
        assert raised.value.is_outage is is_outage


async def test_failed_subscription_names_the_journal() -> None:
    journal = guarded(Redis(), "redis")
    journal.away = frozenset({"subscribe"})
    with pytest.raises(JournalFailedError, match=r"'redis' failed in subscribe\(\)"):
        await anext(journal.subscribe())


async def test_guarded_journal_keeps_its_class_and_own_errors() -> None:
    journal = Redis()
    assert guarded(guarded(journal, "redis"), "redis") is journal
    assert isinstance(journal, Redis)
    with pytest.raises(DelfError) as raised:
        await journal.read("task_none")
    assert not isinstance(raised.value, JournalFailedError)


def test_password_in_a_url_of_the_journal_is_not_shown() -> None:
    class Remote(InProcessJournal):
        url = "redis://ann:hunter2@10.0.0.1:6379/0"

        def __repr__(self) -> str:
            return f"Remote({self.url})"

        async def read(self, task_id: str, after: int = 0) -> Any:
            raise ConnectionError(f"cannot reach {self.url}")

    journal = guarded(Remote(), "remote")
    with pytest.raises(JournalFailedError) as raised:
        asyncio.run(journal.read("task_1"))
    assert "redis://ann:***@10.0.0.1" in str(raised.value)
    assert "hunter2" not in every_text_of(raised.value)
    assert repr(journal) == "Remote(redis://ann:***@10.0.0.1:6379/0)"
