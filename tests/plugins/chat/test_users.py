"""Conversations of many users of one agent, each of whom a program keeps in a ContextVar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from delf import Chat
from delf_devkit.testing.models import ScriptedModel
from support.users import *  # noqa: F403 - the fixture office
from support.users import NAMED, PARTS, Office, all_at_once, answer, confirming


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_concurrent_users_of_one_chat_are_kept_apart(
    office: Office, scripted_model: ScriptedModel, tmp_path: Any
) -> None:
    sightings = office.sightings

    def transform(messages: Sequence[Any]) -> Sequence[Any]:
        if messages:
            sightings.note("history_transform", messages[-1].content)
        return messages

    written = answer(sightings, "script")

    def complete(request: Any) -> str:
        if request.purpose == "summarize":
            sightings.note("summary", request.messages[-1].text)
            return "talked"
        return written(request)

    scripted_model.default = complete
    chat = Chat(keep=1, history_transform=transform, persist=True, path=str(tmp_path / "chat.db"))
    confirm = confirming(sightings, plain=True)
    async with office.open(chat=chat, on_confirm=confirm) as agent:

        async def two_turns(name: str) -> None:
            for _ in range(2):
                response = await agent.arun(f"Pay {name}.", conversation_id=name)
                response.raise_for_status()
                assert set(NAMED.findall(response.text)) == {name}

        await all_at_once(two_turns, 20)
    assert sightings.strangers == {}
    assert sightings.parts >= {*PARTS, "history_transform", "summary"} - {"listener"}
