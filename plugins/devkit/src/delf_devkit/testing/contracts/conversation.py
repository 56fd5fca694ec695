"""Duties of every store of conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from delf.protocols.conversation import (
    ChatMessage,
    ConversationRecord,
    ConversationState,
    ConversationStore,
)
from delf_devkit.testing.contracts.base import Contract, fail_without

_WRITERS = 20
_PAIRS = 5


def messages_of(*texts: str, at: float = 1.0, task_id: str | None = None) -> list[ChatMessage]:
    """Return messages of a user with the given texts."""
    return [ChatMessage(role="user", content=text, at=at, task_id=task_id) for text in texts]


def texts(messages: Sequence[ChatMessage]) -> list[str]:
    """Return the texts of messages."""
    return [message.content for message in messages]


class ConversationContract(Contract):
    """Tests for a conversation store; needs a fixture ``conversations``, an empty store.

    The suite does not close the store. With ``drops_summarised_messages = True``, the store drops
    messages that a summary covers.
    """

    drops_summarised_messages: ClassVar[bool] = False

    @pytest.fixture
    def conversations(self) -> ConversationStore:
        """The store under test."""
        fail_without(self, "a fixture `conversations`")

    async def test_unwritten_conversation_is_empty(self, conversations: ConversationStore) -> None:
        assert await conversations.load("none") == ConversationState()
        assert list(await conversations.read("none", 0, 9)) == []
        assert list(await conversations.find()) == []
        await conversations.clear("none")
        assert not await conversations.summarize("none", "s", 1, expected_upto=0)
        assert await conversations.append("none", []) == 0

    async def test_messages_are_kept_unchanged(self, conversations: ConversationStore) -> None:
        first = ChatMessage(role="user", content="a\nüñ 🎈 'x' \"y\"", at=1.5, task_id="task_1")
        second = ChatMessage(role="assistant", content="", at=2.5)
        third = ChatMessage(role="assistant", content="own", at=3.5, trust="own")
        assert await conversations.append("c", [first, second, third]) == 3
        state = await conversations.load("c")
        assert list(state.messages) == [
            replace(message, position=number)
            for number, message in enumerate((first, second, third), 1)
        ]
        assert list(await conversations.read("c", 0, 9)) == list(state.messages)
        assert (state.summary, state.summarized_upto, state.last) == (None, 0, 3)

    async def test_load_returns_newest_messages_and_read_those_after_a_position(
        self, conversations: ConversationStore
    ) -> None:
        await conversations.append("c", messages_of("a", "b", "c", "d"))
        assert texts((await conversations.load("c", 2)).messages) == ["c", "d"]
        assert (await conversations.load("c", 0)).messages == ()
        assert (await conversations.load("c", 0)).unsummarized_count == 4
        assert texts(await conversations.read("c", after=1, limit=2)) == ["b", "c"]

    async def test_summary_replaces_covered_messages(
        self, conversations: ConversationStore
    ) -> None:
        await conversations.append("c", messages_of("a", "b", "c"))
        # expected_upto=0: no message is summarised yet.
        assert await conversations.summarize("c", "a and b", upto=2, expected_upto=0, trust="own")
        state = await conversations.load("c")
        assert (texts(state.messages), state.summary) == (["c"], "a and b")
        assert state.summary_trust == "own"
        assert (state.summarized_upto, state.last, state.unsummarized_count) == (2, 3, 1)
        kept_texts = texts(await conversations.read("c", 0, 9))
        assert kept_texts == (["c"] if self.drops_summarised_messages else ["a", "b", "c"])

    async def test_outdated_summary_changes_nothing(self, conversations: ConversationStore) -> None:
        await conversations.append("c", messages_of("a", "b", "c"))
        assert await conversations.summarize("c", "first", upto=2, expected_upto=0)
        # The second summary is outdated: it was made when no message was summarised yet
        # (expected_upto=0), but since then the first summary covers 2 messages.
        assert not await conversations.summarize(
            "c", "second", upto=1, expected_upto=0, trust="own"
        )
        state = await conversations.load("c")
        assert (state.summary, state.summary_trust) == ("first", "outside")
        await conversations.clear("c")
        assert not await conversations.summarize("c", "third", upto=3, expected_upto=2)
        assert (await conversations.load("c")).summary is None

    async def test_clear_removes_one_conversation_only(
        self, conversations: ConversationStore
    ) -> None:
        await conversations.append("a", messages_of("one", "two"))
        await conversations.append("b", messages_of("other"))
        await conversations.clear("a")
        assert (await conversations.load("a")).unsummarized_count == 0
        assert [record.conversation for record in await conversations.find()] == ["b"]
        await conversations.append("a", messages_of("three"))
        state = await conversations.load("a")
        assert (texts(state.messages), state.unsummarized_count) == (["three"], 1)
        assert texts((await conversations.load("a", 5)).messages) == ["three"]

    async def test_conversations_are_listed_newest_first(
        self, conversations: ConversationStore
    ) -> None:
        await conversations.append("old", messages_of("how do  I\nbegin?", "x", at=5.0))
        await conversations.append("new", messages_of("hello", at=9.0))
        records = await conversations.find()
        assert [(r.conversation, r.messages, r.updated_at) for r in records] == [
            ("new", 1, 9.0),
            ("old", 2, 5.0),
        ]
        assert records[1].title.startswith("how do")
        assert [record.conversation for record in await conversations.find(1)] == ["new"]

    async def test_fully_summarised_conversation_stays_listed(
        self, conversations: ConversationStore
    ) -> None:
        await conversations.append("c", messages_of("a", "b", at=5.0))
        # The summary covers the messages up to position 2, and replaces no earlier summary.
        assert await conversations.summarize("c", "all", upto=2, expected_upto=0)
        (record,) = await conversations.find()
        assert (record.messages, record.updated_at, record.title) == (2, 5.0, "a")

    async def test_old_conversations_are_removed(self, conversations: ConversationStore) -> None:
        for name, at in (("b", 20.0), ("a", 10.0), ("d", 40.0), ("c", 30.0)):
            await conversations.append(name, messages_of(f"in {name}", at=at))
        await conversations.summarize("a", "all", 1, expected_upto=0)

        def names(records: Sequence[ConversationRecord]) -> list[str]:
            return [record.conversation for record in records]

        assert names(await conversations.prune(35.0, dry_run=True)) == ["a", "b", "c"]
        assert names(await conversations.find()) == ["d", "c", "b", "a"]  # nothing is removed yet
        assert names(await conversations.prune(35.0, keep=3)) == ["a"]  # keep b, c and d
        assert names(await conversations.prune(30.0)) == ["b"]  # c is not older than 30.0
        assert names(await conversations.find()) == ["d", "c"]
        state = await conversations.load("a")
        assert (state.messages, state.summary, state.unsummarized_count) == ((), None, 0)
        is_summarized = await conversations.summarize("b", "late", 1, expected_upto=0)
        assert not is_summarized  # the conversation was removed
        assert names(await conversations.prune(None)) == ["c", "d"]  # all, whatever their age
        await conversations.append("a", messages_of("again", at=50.0))
        state = await conversations.load("a")
        assert texts(state.messages) == ["again"]
        # Position 1 had the removed message: a position is never used for a second message.
        assert state.messages[0].position == 2

    async def test_messages_appended_together_stay_adjacent(
        self, conversations: ConversationStore
    ) -> None:
        async def write(number: int) -> None:
            for turn in range(_PAIRS):
                name = f"{number}.{turn}"
                await conversations.append("c", messages_of(f"ask {name}", f"answer {name}"))

        await asyncio.gather(*map(write, range(_WRITERS)))
        state = await conversations.load("c")
        assert [m.position for m in state.messages] == list(range(1, 2 * _PAIRS * _WRITERS + 1))
        found_texts = texts(state.messages)
        pairs = list(zip(found_texts[::2], found_texts[1::2], strict=True))
        assert all(a.removeprefix("ask") == b.removeprefix("answer") for a, b in pairs)
        assert len(set(pairs)) == _PAIRS * _WRITERS
