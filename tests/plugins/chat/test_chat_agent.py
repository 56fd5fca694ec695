"""An agent that continues a conversation."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from delf import (
    Agent,
    Chat,
    ChatMessage,
    ConfigurationError,
    LLMExecutionError,
    UnrecordedEventError,
    tool,
)
from delf.errors import JournalUnavailableError
from delf.events import ModelReplied, TaskFinished, Warned
from delf.messages import ModelReply, Usage
from delf_journal_sql.conversations import SqlConversations
from delf_journal_sql.errors import JournalError
from delf_journal_sql.journal import SqlJournal

SUMMARY = "Summary of this conversation so far:\n"


@tool(confirm=False)
async def hold() -> str:
    """Wait until the test goes on."""
    hold_began.set()
    await asyncio.Event().wait()
    return "never"


hold_began = asyncio.Event()


@tool(confirm=False, effect="write")
def keep() -> None:
    """Keep something."""


@pytest.fixture
def make_agent(delf_host):
    made = []

    def make(chat, *tools, **options):
        options = {"llm": "scripted", "sandbox": "local", "host": delf_host, **options}
        made.append(Agent(chat=chat, tools=tools, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


def turns(chat):
    return [(message.role, message.content) for message in chat]


def roles(request):
    return [message.role for message in request.messages]


def conversation_of(request):
    """Return the messages between the rules and the task."""
    return [message.text for message in request.messages[1:-1]]


class TestTurns:
    def test_task_and_its_answer_become_messages(self, make_agent, scripted_model):
        chat = Chat()
        scripted_model.writes("print('hello Ada')", "print('Ada')")
        agent = make_agent(chat)
        first = agent.run("I am Ada.")
        agent.run("Who am I?")
        assert turns(chat) == [
            ("user", "I am Ada."),
            ("assistant", "hello Ada"),
            ("user", "Who am I?"),
            ("assistant", "Ada"),
        ]
        assert {message.task_id for message in chat[:2]} == {first.trace.task_id}
        assert roles(scripted_model.requests[1]) == ["system", "user", "assistant", "user"]
        assert conversation_of(scripted_model.requests[1]) == ["I am Ada.", "hello Ada"]

    def test_prompt_prefix_stays_identical_after_compression(self, make_agent, scripted_model):
        scripted_model.writes(*(f"print({n})" for n in range(8)))
        chat = Chat(keep=4, summarizer_llm="scripted:summary")
        scripted_model.replies.insert(3, "a summary")
        agent = make_agent(chat)
        for number in range(4):
            agent.run(f"task {number}")
        heads = {r.messages[0].text for r in scripted_model.requests if r.purpose == "generate"}
        assert len(heads) == 1
        before, after = scripted_model.requests[1].messages, scripted_model.requests[2].messages
        assert after[: len(before) - 1] == before[:-1]

    def test_failed_task_is_kept_with_output_and_error(self, make_agent, scripted_model):
        chat = Chat()
        scripted_model.writes("print('half')\n1 / 0", "print('whole')")
        agent = make_agent(chat, retry_count=0)
        assert not agent.run("Do it.").status
        agent.run("Again.")
        (asked, answered) = conversation_of(scripted_model.requests[1])
        assert asked == "Do it."
        assert answered.startswith("half\n\n(This task was not completed: ")
        assert "ZeroDivisionError" in answered
        assert len(chat) == 4

    async def test_cancelled_task_leaves_a_note_in_the_chat(self, make_agent, scripted_model):
        chat = Chat()
        hold_began.clear()
        scripted_model.writes("await hold()")
        async with make_agent(chat, hold) as agent:
            work = asyncio.create_task(agent.arun("Wait."))
            await hold_began.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        assert turns(chat) == [
            ("user", "Wait."),
            ("assistant", "(This task was not completed: the task was stopped)"),
        ]

    async def test_concurrent_tasks_keep_question_and_answer_adjacent(
        self, make_agent, scripted_model
    ):
        chat = Chat(summarize=False)
        scripted_model.default = lambda request: (
            f"```python\nprint('answer to', {request.messages[-1].text.split()[-1]!r})\n```"
        )
        async with make_agent(chat) as agent:
            await asyncio.gather(*(agent.arun(f"question {n}") for n in range(12)))
        found = [message.content for message in chat]
        pairs = list(zip(found[::2], found[1::2], strict=True))
        assert sorted(pairs) == sorted((f"question {n}", f"answer to {n}") for n in range(12))

    def test_background_task_stays_with_its_conversation(self, make_agent, scripted_model):
        chat = Chat()
        scripted_model.writes("print('one')")
        agent = make_agent(chat)
        task = agent.submit("first")
        chat.switch("second")
        agent.wait(task, 20)
        assert len(chat) == 0
        chat.switch("default")
        assert len(chat) == 2

    async def test_one_agent_serves_several_conversations(self, make_agent, scripted_model):
        chat = Chat(summarize=False)
        scripted_model.default = lambda request: f"```python\nprint({len(request.messages)})\n```"
        async with make_agent(chat) as agent:
            for _ in range(2):
                await asyncio.gather(
                    *(agent.arun("go on", conversation_id=f"user {n}") for n in range(5))
                )
            await (await agent.asubmit("go on", conversation_id="user 0"))
            async for _ in agent.stream("go on", conversation_id="user 1"):
                pass
        assert len(chat) == 0
        counts = {}
        for number in range(5):
            chat.switch(f"user {number}")
            counts[number] = [message.content for message in chat.by_role("assistant")]
        assert counts[0] == counts[1] == ["2", "4", "6"]
        assert counts[2] == counts[3] == counts[4] == ["2", "4"]

    def test_conversation_id_without_a_chat_is_refused(self, make_agent):
        with pytest.raises(ConfigurationError, match="no chat"):
            make_agent(None).run("go on", conversation_id="x")

    def test_long_messages_are_cut_only_in_the_prompt(self, make_agent, scripted_model):
        chat = Chat()
        chat.append("user", "x" * 100_000)
        chat.append("assistant", "ok")
        scripted_model.writes("print(1)")
        make_agent(chat).run("go on")
        shown = conversation_of(scripted_model.requests[0])[0]
        assert len(shown) < 9_000
        assert shown.endswith("(cut, 100,000 characters)")
        assert len(chat[0].content) == 100_000

    def test_chat_stores_no_secret(self, make_agent, scripted_model):
        key = "sk-planted-0123456789abcdef"
        chat = Chat()
        scripted_model.writes(f"print('the key is {key}')")
        make_agent(chat, providers={"openai": key}).run(f"say {key}")
        assert turns(chat) == [("user", "say [redacted]"), ("assistant", "the key is [redacted]")]

    def test_summary_prompt_has_no_secret(self, make_agent, scripted_model, monkeypatch):
        key, password = "sk-planted-0123456789abcdef", "pLanted-55"
        monkeypatch.setenv("SHOP_URL", f"postgresql://u:{password}@127.0.0.1/shop")
        chat = Chat(keep=0)
        chat.append("user", f"The key is {key}, the password {password}.")
        scripted_model.says(f"A key, {key}.")
        agent = make_agent(chat, providers={"openai": key})
        agent.start()
        assert chat.compress()
        assert "The key is [redacted], the password [redacted]." in scripted_model.prompts[0]
        assert not any(
            key in text or password in text for text in (*scripted_model.prompts, str(chat.summary))
        )

    async def test_resumed_task_is_added_once_after_summarising(self, delf_host):
        chat = Chat(keep=0)
        store = chat.store()
        await chat.conversation_for().keep("do it", "done", "task_1", trust="own", is_resumed=False)
        await store.append("default", [ChatMessage(role="user", content="x")])
        await store.summarize("default", "It was done.", 1, expected_upto=0)
        await chat.conversation_for().keep("do it", "done", "task_1", trust="own", is_resumed=True)
        assert [message.content for message in chat] == ["done", "x"]

    def test_empty_answer_is_shown_to_the_model_as_nothing(self, make_agent, scripted_model):
        chat = Chat()
        scripted_model.writes("await keep()", "print(1)")
        agent = make_agent(chat, keep)
        agent.run("be quiet")
        agent.run("go on")
        assert conversation_of(scripted_model.requests[1]) == ["be quiet", "(nothing)"]
        assert chat[1].content == ""

    def test_lone_surrogates_do_not_break_later_tasks(self, make_agent, scripted_model):
        chat = Chat()
        scripted_model.writes("print('a' + chr(0xD800))", "print(1)")
        agent = make_agent(chat)
        agent.run("say \udc00 it")
        assert agent.run("go on").status
        texts = conversation_of(scripted_model.requests[1])
        assert texts[0] == "say ? it"
        assert all(text.encode() for text in texts)


async def pieces(messages):
    yield messages


class TestWhatIsShown:
    def test_history_window_limits_the_messages_of_a_task(self, make_agent, scripted_model):
        chat = Chat(history_window=2, summarize=False)
        for number in range(6):
            chat.append("assistant" if number % 2 else "user", str(number))
        scripted_model.writes("print(1)")
        make_agent(chat).run("go on")
        assert conversation_of(scripted_model.requests[0]) == ["4", "5"]

    def test_prompt_starts_with_a_user_message_after_the_system(self, make_agent, scripted_model):
        chat = Chat()
        chat.append("system", "Be brief.")
        chat.append("assistant", "Yes.")
        scripted_model.writes("print(1)")
        make_agent(chat).run("go on")
        shown = roles(scripted_model.requests[0])
        assert shown == ["system", "system", "user", "assistant", "user"]

    def test_consecutive_messages_of_one_speaker_are_merged(self, make_agent, scripted_model):
        chat = Chat()
        chat.append("user", "one")
        chat.append("user", "two")
        scripted_model.writes("print(1)")
        make_agent(chat).run("go on")
        assert conversation_of(scripted_model.requests[0]) == ["one\n\ntwo"]

    @pytest.mark.parametrize("kind", ["plain", "async", "dicts"])
    def test_history_transform_changes_the_messages_of_a_task(
        self, make_agent, scripted_model, kind
    ):
        def plain(messages):
            return [m for m in messages if "secret" not in m.content]

        async def later(messages):
            return plain(messages)

        def dicts(messages):
            return [{"role": m.role, "content": m.content} for m in plain(messages)]

        transform = {"plain": plain, "async": later, "dicts": dicts}[kind]
        chat = Chat(history_transform=transform)
        chat.append("user", "my secret")
        chat.append("user", "my name")
        scripted_model.writes("print(1)")
        make_agent(chat).run("go on")
        assert conversation_of(scripted_model.requests[0]) == ["my name"]
        assert chat[0].content == "my secret"

    @pytest.mark.parametrize(
        ("transform", "says"),
        [
            (lambda messages: 1 / 0, "ZeroDivisionError"),
            (lambda messages: "text", "returned str"),
            (lambda messages: [3], "returned a int"),
            (lambda messages: [{"role": "bot", "content": ""}], "no role 'bot'"),
            (lambda messages: [ChatMessage(role="tool", content="")], "no role 'tool'"),
            (lambda messages: [ChatMessage(role="user", content=None)], "is text, not NoneType"),
            (lambda messages: (1 / 0 for _ in messages), "failed: ZeroDivisionError"),
            (pieces, "returned async_generator"),
        ],
    )
    def test_failing_history_transform_fails_the_task(
        self, make_agent, scripted_model, transform, says
    ):
        chat = Chat(history_transform=transform)
        chat.append("user", "secret")
        response = make_agent(chat).run("go on")
        assert says in response.error
        assert scripted_model.requests == []

    async def test_slow_history_transforms_do_not_block_other_work(
        self, make_agent, scripted_model
    ):
        go_on, waiting = threading.Event(), threading.Semaphore(0)

        def slow(messages):
            waiting.release()
            go_on.wait(50)
            return messages

        scripted_model.default = "```python\nprint(1)\n```"
        async with make_agent(Chat(history_transform=slow), max_tasks=60) as agent:
            work = [asyncio.create_task(agent.arun("x")) for _ in range(40)]
            for _ in work:
                await asyncio.to_thread(waiting.acquire, timeout=20)
            assert await asyncio.to_thread(lambda: "a thread is free") == "a thread is free"
            go_on.set()
            assert all(response.status for response in await asyncio.gather(*work))


class TestSummaries:
    def priced(self, text, cost=0.25):
        usage = Usage(input_tokens=10, output_tokens=5)
        return ModelReply(text=text, model="scripted", usage=usage, cost_usd=cost)

    def filled(self, **options):
        chat = Chat(keep=2, **options)
        for number in range(4):
            chat.append("assistant" if number % 2 else "user", f"message {number}")
        return chat

    async def test_concurrent_tasks_make_one_summary(self, make_agent, scripted_model):
        chat = self.filled()
        both = asyncio.Event()

        async def answer(request):
            if request.purpose == "summarize":
                await both.wait()
                return "It began."
            both.set()
            return "```python\nprint(1)\n```"

        scripted_model.default = answer
        async with make_agent(chat) as agent:
            await asyncio.gather(agent.arun("a"), agent.arun("b"))
        purposes = [request.purpose for request in scripted_model.requests]
        assert purposes.count("summarize") == 1
        assert len(chat) == 6

    def test_summary_is_made_before_the_task_and_priced(self, make_agent, scripted_model):
        chat = self.filled()
        scripted_model.says(self.priced("It began."))
        scripted_model.writes("print('done')")
        agent = make_agent(chat)
        response = agent.run("go on")
        asked, task = scripted_model.requests
        assert (asked.purpose, task.purpose) == ("summarize", "generate")
        assert conversation_of(task) == ["message 2", "message 3"]
        assert task.messages[-1].text.startswith(f"{SUMMARY}It began.\n\n")
        assert task.messages[-1].text.endswith("Task:\ngo on")
        assert chat.summary == "It began."
        assert [call.purpose for call in response.trace.model_calls] == ["summarize", "generate"]
        assert response.cost_usd == pytest.approx(0.25)
        assert agent.total_cost_usd == pytest.approx(0.25)
        assert agent.usage.input_tokens == 110

    @pytest.mark.parametrize(
        ("chat_model", "models", "expected"),
        [
            ("scripted:own", {"llm": "scripted:main"}, "scripted:own"),
            (None, {"light_llm": "scripted:light", "heavy_llm": "scripted:main"}, "scripted:light"),
            (None, {"llm": "scripted:main"}, "scripted:main"),
        ],
    )
    def test_summaries_use_the_configured_model(
        self, delf_host, scripted_model, chat_model, models, expected
    ):
        scripted_model.says("It began.").writes("print(1)")
        events = []
        chat = self.filled(summarizer_llm=chat_model)
        with Agent(host=delf_host, sandbox="local", chat=chat, **models) as agent:
            asyncio.run(agent.arun("go on", listeners=[events.append]))
        replied = [event for event in events if isinstance(event, ModelReplied)]
        assert [(e.model, e.purpose) for e in replied] == [
            (expected, "summarize"),
            ("scripted:main", "generate"),
        ]

    @pytest.mark.parametrize("answer", [LLMExecutionError("no quota"), "", RuntimeError("odd")])
    def test_failed_summary_is_a_warning(self, make_agent, scripted_model, answer):
        chat = self.filled()
        scripted_model.says(answer).writes("print('done')")
        events = []
        agent = make_agent(chat)
        with agent:
            response = asyncio.run(agent.arun("go on", listeners=[events.append]))
        assert response.status
        (warned,) = [event for event in events if isinstance(event, Warned)]
        assert warned.message.startswith("the conversation was not summarised, and nothing of it")
        assert isinstance(events[-1], TaskFinished)
        assert len(conversation_of(scripted_model.requests[1])) == 4
        assert (len(chat), chat.summary) == (6, None)

    def test_budget_includes_summaries(self, make_agent, scripted_model):
        chat = self.filled()
        scripted_model.says(self.priced("It began.", cost=1.0))
        response = make_agent(chat, budget_usd=0.5).run("go on")
        assert "budget" in response.error
        assert len(scripted_model.requests) == 1
        assert chat.summary == "It began."


class TestChatSetLater:
    @pytest.mark.parametrize("started", [False, True], ids=["new", "started"])
    def test_chat_assigned_later_applies_to_later_tasks(self, make_agent, scripted_model, started):
        scripted_model.writes(*["print('one')"] * 3)
        agent = make_agent(None)
        if started:
            agent.run("before the chat")
        agent.chat = Chat()
        agent.run("I am Ada.")
        agent.run("Who am I?")
        assert conversation_of(scripted_model.requests[-1]) == ["I am Ada.", "one"]
        assert [text for _, text in turns(agent.chat)] == ["I am Ada.", "one", "Who am I?", "one"]

    def test_chats_have_separate_conversations(self, make_agent, scripted_model):
        scripted_model.writes(*["print('one')"] * 3)
        first = Chat()
        agent = make_agent(first)
        agent.run("of the first")
        agent.chat = {"keep": 3}
        agent.run("of the second")
        assert conversation_of(scripted_model.requests[-1]) == []
        agent.chat = None
        agent.run("of none")
        assert conversation_of(scripted_model.requests[-1]) == []
        assert [text for _, text in turns(first)] == ["of the first", "one"]

    def test_chat_set_on_an_existing_agent_uses_the_agents_model_for_summaries(
        self, make_agent, scripted_model
    ):
        scripted_model.writes(*["print('one')"] * 3)
        scripted_model.replies.insert(2, "a summary")
        agent = make_agent(None)
        agent.run("started")
        agent.chat = Chat(keep=0)
        agent.run("I am Ada.")
        agent.run("Who am I?")
        assert agent.chat.summary == "a summary"

    def test_run_chat_without_a_chat_remembers_earlier_turns(
        self, make_agent, scripted_model, monkeypatch
    ):
        scripted_model.writes("print('hello Ada')", "print('Ada')")
        reading, writing = os.pipe()
        os.write(writing, b"I am Ada.\nWho am I?\n")
        os.close(writing)
        agent = make_agent(None)
        with os.fdopen(reading) as typed:
            monkeypatch.setattr("sys.stdin", typed)
            agent.run_chat()
        assert conversation_of(scripted_model.requests[1]) == ["I am Ada.", "hello Ada"]
        assert len(agent.chat) == 4


def test_journal_of_a_chat_is_used_on_one_event_loop(
    make_agent, scripted_model, tmp_path, monkeypatch
):
    """The agent's tasks, the program's own loop and the synchronous methods use one chat."""
    loops = set()
    for kind, method in (
        *((SqlConversations, name) for name in ("append", "load", "summarize", "find")),
        (SqlJournal, "aclose"),
    ):
        original = getattr(kind, method)

        async def spied(*arguments, _original=original, **named):
            loops.add(asyncio.get_running_loop())
            return await _original(*arguments, **named)

        monkeypatch.setattr(kind, method, spied)
    scripted_model.default = lambda request: (
        "summary" if request.purpose == "summarize" else "```python\nprint('yes')\n```"
    )
    chat = Chat(keep=1, persist=True, path=str(tmp_path / "chat.db"))
    agent = make_agent(chat, journal="none")
    assert agent.run("first").text == "yes"
    asyncio.run(chat.aappend("user", "second"))
    assert asyncio.run(chat.acompress())
    chat.append("user", "third")
    assert agent.run("fourth").text == "yes"
    assert [record.conversation for record in chat.conversations()] == ["default"]
    assert len(loops) == 1
    agent.stop()
    chat.close()
    assert len(loops) == 1
    chat.append("user", "after closing")
    assert chat[-1].content == "after closing"
    assert len(loops) == 2, "the chat opens the journal again, on its next loop"
    chat.close()


@pytest.mark.parametrize(
    "error", [JournalError("away"), JournalUnavailableError("away"), ConnectionError("away")]
)
async def test_task_whose_conversation_cannot_be_read_is_resumed(
    make_agent, scripted_model, tmp_path, monkeypatch, error
):
    """The journal's database is away for a moment."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    scripted_model.writes("print('done')")
    agent = make_agent(Chat(persist=True), journal="sql")
    load = SqlConversations.load
    errors = [error]

    async def fail_once(self, conversation, limit=None):
        if errors:
            raise errors.pop()
        return await load(self, conversation, limit)

    monkeypatch.setattr(SqlConversations, "load", fail_once)
    stopped = await agent.arun("Do it.")
    assert isinstance(stopped.exception, UnrecordedEventError)
    assert (stopped.error or "").startswith("the journal failed: ")
    assert (stopped.error or "").endswith("away")
    assert (await agent.aresume(stopped.trace.task_id)).text == "done"


async def test_task_whose_journal_has_a_bug_fails(
    make_agent, scripted_model, tmp_path, monkeypatch
):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    agent = make_agent(Chat(persist=True), journal="sql")

    async def load(_self, _conversation, _limit=None):
        raise TypeError("an argument is missing")

    monkeypatch.setattr(SqlConversations, "load", load)
    events = []
    failed = await agent.arun("Do it.", listeners=[events.append])
    message = "the journal 'sql' failed in load(): TypeError: an argument is missing"
    assert failed.error == message
    assert isinstance(events[-1], TaskFinished)
