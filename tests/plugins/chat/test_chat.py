"""``Chat`` by itself: a list of messages with a summary."""

from __future__ import annotations

import asyncio

import pytest

from delf import (
    Chat,
    ChatMessage,
    ConfigurationError,
    LLMExecutionError,
    OptionalDependencyError,
    PluginError,
)
from delf_chat.summary import ConversationCompressionError
from delf_devkit.testing.hosts import TestHost
from delf_engine.agent_context import AgentContext


def filled(*texts, **options):
    chat = Chat(**options)
    for number, text in enumerate(texts):
        chat.append("assistant" if number % 2 else "user", text)
    return chat


@pytest.fixture
def summarised(delf_host):
    """Makes chats whose model is the scripted one."""

    def make(*texts, **options):
        chat = filled(*texts, summarizer_llm="scripted", **options)
        chat.attach(AgentContext.of(host=delf_host))
        return chat

    return make


class TestMessages:
    def test_chat_is_indexed_sliced_and_iterated(self):
        chat = filled("a", "b", "c")
        assert (chat[0].content, chat[-1].content) == ("a", "c")
        assert [message.content for message in chat[1:]] == ["b", "c"]
        assert [message.position for message in chat] == [1, 2, 3]
        assert isinstance(chat[0], ChatMessage)
        with pytest.raises(IndexError):
            chat[3]

    def test_by_role_selects_messages(self):
        chat = filled("a", "b", "c")
        assert [message.content for message in chat.by_role("user")] == ["a", "c"]
        assert chat.by_role("system") == []

    def test_history_window_limits_the_shown_messages(self):
        chat = filled(*"abcdef", history_window=2)
        assert [message.content for message in chat] == ["e", "f"]

    async def test_chat_methods_work_inside_an_event_loop(self):
        chat = Chat()
        await chat.aappend("user", "a")
        chat.append("user", "b")
        assert len(chat) == 2
        await chat.aclear()
        assert len(chat) == 0


class TestConversations:
    def test_switch_changes_the_conversation(self):
        chat = filled("a")
        chat.switch("other")
        assert len(chat) == 0
        chat.append("user", "b")
        assert sorted(r.conversation for r in chat.conversations()) == ["default", "other"]
        chat.switch("default")
        assert chat.messages == [{"role": "user", "content": "a"}]
        assert chat.conversation_id == "default"

    def test_clear_by_id_removes_another_conversation(self):
        chat = filled("a")
        chat.switch("other")
        chat.append("user", "b")
        chat.clear("default")
        assert [r.conversation for r in chat.conversations()] == ["other"]

    def test_old_conversations_are_removed(self):
        chat = filled("a")
        chat.switch("new")
        chat.append("user", "b")
        assert chat.prune(older_than=60) == []
        assert [r.conversation for r in chat.prune(keep=1, dry_run=True)] == ["default"]
        assert [r.conversation for r in chat.prune(keep=1)] == ["default"]
        assert [r.conversation for r in chat.prune(older_than=0)] == ["new"]
        assert len(chat) == 0

    @pytest.mark.parametrize("name", ["\ud800", "a\x00", "x" * 251, 3])
    def test_invalid_conversation_id_is_refused(self, name):
        chat = Chat()
        for use in (chat.switch, chat.conversation_for, chat.clear):
            with pytest.raises(ConfigurationError, match="conversation_id must"):
                use(name)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"keep": -1}, "keep must be a whole number from 0, not -1"),
            ({"keep": True}, "keep must be a whole number"),
            ({"history_window": 0}, "history_window must be a whole number from 1"),
            ({"namespace": " "}, "namespace must be a text"),
            ({"conversation_id": ""}, "conversation_id must be a text"),
            ({"conversation_id": "ann|diary"}, "conversation_id cannot contain '|'"),
            ({"path": "x.db"}, "only if it persists"),
            ({"history_transform": 3}, "must be a function"),
        ],
    )
    def test_invalid_option_of_a_chat_is_refused(self, options, says):
        with pytest.raises(ConfigurationError, match=says):
            Chat(**options)

    def test_error_names_the_missing_journal_package(self, monkeypatch):
        chat = Chat(persist=True)
        chat.attach(AgentContext.of(host=TestHost([])))
        with pytest.raises(OptionalDependencyError) as error:
            chat.append("user", "x")
        assert error.value.package == "delf-plugin-journal-sql"
        assert error.value.code == "ERR-REQ-001"
        chat.close()

    def test_disabled_journal_plugin_is_reported(self):
        chat = Chat(persist=True)
        chat.attach(AgentContext.of(host=TestHost.discover(no_plugins=True)))
        with pytest.raises(PluginError, match="--no-plugins"):
            len(chat)
        chat.close()


class TestCompression:
    def test_compression_is_needed_beyond_the_keep_limit(self):
        chat = filled("a", "b", keep=2)
        assert not chat.needs_compression()
        chat.append("user", "c")
        assert chat.needs_compression()
        assert filled("a", keep=0).needs_compression()

    def test_messages_beyond_the_window_are_summarised(self, summarised, scripted_model):
        scripted_model.says("a to c")
        chat = summarised("a", "b", "c", "d", keep=10, history_window=1)
        assert chat.needs_compression()
        assert chat.compress()
        assert [message.content for message in chat] == ["d"]

    def test_compress_keeps_the_newest_messages(self, summarised, scripted_model):
        scripted_model.says("They greeted each other.")
        chat = summarised("hello", "hi", "how much?", "42", keep=2)
        assert chat.compress()
        assert [message.content for message in chat] == ["how much?", "42"]
        assert chat.summary == "They greeted each other."
        assert not chat.needs_compression()
        assert not chat.compress()
        (asked,) = scripted_model.prompts
        assert '{"user": "hello"}\n{"assistant": "hi"}' in asked
        assert "how much" not in asked
        assert scripted_model.requests[0].purpose == "summarize"

    def test_long_history_is_compressed_in_several_calls(self, summarised, scripted_model):
        scripted_model.says("one", "two", "three")
        chat = summarised(*map(str, range(210)), keep=2)
        chat.compress()
        assert len(chat) == 2
        assert len(scripted_model.requests) == 3
        assert "Summary so far:\none" in scripted_model.prompts[1]
        assert '{"user": "0"}' not in scripted_model.prompts[1]

    @pytest.mark.parametrize("answer", [LLMExecutionError("down"), "  "])
    def test_failed_compression_keeps_all_messages(self, summarised, scripted_model, answer):
        scripted_model.says(answer)
        chat = summarised("a", "b", "c", keep=1)
        with pytest.raises(ConversationCompressionError) as error:
            chat.compress()
        assert error.value.code == "ERR-LLM-004"
        assert [message.content for message in chat] == ["a", "b", "c"]
        assert chat.summary is None

    def test_missing_model_is_reported(self):
        chat = filled("a", "b", keep=1)
        with pytest.raises(ConversationCompressionError, match="no model to summarise") as error:
            chat.compress()
        assert error.value.hint == "Chat(summarizer_llm=…)"
        chat.close()

    async def test_message_added_during_compression_stays(self, summarised, scripted_model):
        began, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        async def answer(_request):
            loop.call_soon_threadsafe(began.set)
            await go_on.wait()
            return "summary"

        scripted_model.says(answer)
        chat = summarised("a", "b", keep=1)
        work = asyncio.create_task(chat.acompress())
        await began.wait()
        chat.append("user", "c")
        go_on.set()
        scripted_model.says("again")
        assert await work
        assert [message.content for message in chat] == ["c"]
        assert chat.summary == "again"

    async def test_conversation_cleared_during_compression_stays_empty(
        self, summarised, scripted_model
    ):
        chat = summarised("a", "b", keep=1)

        async def answer(_request):
            await chat.aclear()
            return "what was"

        scripted_model.says(answer)
        assert not await chat.acompress()
        assert (len(chat), chat.summary) == (0, None)
