"""Conversations in the journal's database."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from delf import Agent, Chat
from delf.errors import ConfigurationError
from delf.events import TaskStarted
from delf.protocols.conversation import ChatMessage
from delf.protocols.shared_journal import SharedJournal
from delf.testing import ConversationContract
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import ConnectionLostError, JournalError
from delf_journal_sql.postgresql import PostgresConnection
from delf_journal_sql.sqlite import SqliteConnection
from support.program import start


class TestContract(ConversationContract):
    @pytest.fixture
    def conversations(self, journal_url, open_journal):
        return open_journal(journal_url).conversations("default")


def user(text):
    return ChatMessage(role="user", content=text, at=time.time())


async def test_conversation_namespaces_are_separate(journal_url, open_journal):
    journal = open_journal(journal_url)
    assert isinstance(journal, SharedJournal)
    await journal.conversations("a").append("c", [user("x")])
    assert await journal.conversations("b").find() == []
    assert (await journal.conversations("b").load("c")).last == 0


async def test_deleted_conversation_remains_are_removed_after_a_day(
    journal_url, open_journal, monkeypatch
):
    from delf_journal_sql import conversations

    journal = open_journal(journal_url)
    store, other = journal.conversations("a"), journal.conversations("b")
    for one in (store, other):
        await one.append("c", [ChatMessage(role="user", content="x", at=1.0)])
    await store.prune(2.0)
    assert ((await store.load("c")).last, (await other.load("c")).unsummarized_count) == (1, 1)
    monkeypatch.setattr(conversations, "REMEMBERED_SECONDS", -60.0)
    await store.prune(2.0)
    assert ((await store.load("c")).last, (await other.load("c")).unsummarized_count) == (0, 1)


async def test_conversation_in_use_is_not_deleted(journal_url, open_journal):
    store = open_journal(journal_url).conversations("a")
    gate, begun = threading.Event(), threading.Event()
    read = store.run_read

    async def read_then_wait(function):  # a prune that has chosen, and comes to act later
        found = await read(function)
        begun.set()
        await asyncio.to_thread(gate.wait, 20)
        return found

    await store.append("c", [ChatMessage(role="user", content="x", at=1.0)])
    store.run_read = read_then_wait
    work = asyncio.create_task(store.prune(2.0))
    await asyncio.to_thread(begun.wait, 20)
    store.run_read = read
    await store.append("c", [user("again")])
    gate.set()
    assert await work == []
    assert [m.content for m in (await store.load("c")).messages] == ["x", "again"]


@pytest.mark.parametrize("kept", [True, False], ids=["after", "before"])
async def test_append_retried_over_a_broken_connection_is_stored_once(
    journal_url, open_journal, monkeypatch, kept
):
    store = open_journal(journal_url).conversations("a")
    other = open_journal(journal_url).conversations("a")
    await store.append("c", [user("first")])
    kind = SqliteConnection if "postgresql" not in journal_url else PostgresConnection
    commit, broken = kind.commit, []

    def break_once(self):
        if broken:
            commit(self)
            return
        broken.append(self)
        if kept:
            commit(self)
        raise ConnectionLostError(JournalError("the connection broke"))

    monkeypatch.setattr(kind, "commit", break_once)
    assert await store.append("c", [user("ask"), user("answer")]) == 3
    assert broken
    await other.append("c", [user("ask")])
    texts = [message.content for message in (await store.load("c")).messages]
    assert texts == ["first", "ask", "answer", "ask"]


async def test_conversation_stores_any_text(journal_url, open_journal):
    store = open_journal(journal_url).conversations("a")
    odd = "a\x00b\ud800c"
    await store.append("c", [user(odd), user("'; DROP TABLE delf_messages; --")])
    messages = (await store.load("c")).messages
    assert [m.content for m in messages] == ["a\ufffdb?c", "'; DROP TABLE delf_messages; --"]


WRITER = """
import asyncio, sys, time
from delf.events import TaskStarted
from delf.protocols.conversation import ChatMessage
from delf_journal_sql import SqlJournal

async def main(url, name, turns):
    journal = SqlJournal(url)
    for conversation in ("shared", name):
        for turn in range(turns):
            pair = [
                ChatMessage(role="user", content=f"ask {name} {turn}", at=time.time()),
                ChatMessage(role="assistant", content=f"answer {name} {turn}", at=time.time()),
            ]
            await journal.conversations("default").append(conversation, pair)
    await journal.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.timeout(90)
async def test_concurrent_appends_to_a_conversation_lose_nothing(journal_url, open_journal):
    turns, names = 25, ["p0", "p1", "p2"]
    commands = [[sys.executable, "-c", WRITER, journal_url, name, str(turns)] for name in names]
    processes = [start(command) for command in commands]
    for process in processes:
        assert await asyncio.to_thread(process.wait, 80) == 0
    store = open_journal(journal_url).conversations("default")
    shared = (await store.load("shared")).messages
    assert [m.position for m in shared] == list(range(1, 2 * turns * len(names) + 1))
    texts = [m.content for m in shared]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    assert all(a.removeprefix("ask") == b.removeprefix("answer") for a, b in pairs)
    for name in names:
        mine = [a for a, _ in pairs if a.split()[1] == name]
        assert mine == [f"ask {name} {turn}" for turn in range(turns)]
        assert (await store.load(name)).last == 2 * turns


# -- a chat that persists -------------------------------------------------------------------------


@pytest.fixture
def make_agent(delf_host):
    made = []

    def make(chat, **options):
        given = {"llm": "scripted", "sandbox": "local", "host": delf_host, **options}
        made.append(Agent(chat=chat, **given))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


def test_chat_continues_in_another_program(make_agent, scripted_model, journal_url):
    scripted_model.writes("print('hello Ada')", "print('Ada')")
    make_agent(Chat(persist=True, path=journal_url)).run("I am Ada.")
    with Chat(persist=True, path=journal_url) as later:
        assert [message.content for message in later] == ["I am Ada.", "hello Ada"]
        make_agent(later).run("Who am I?")
        assert later.messages[-1] == {"role": "assistant", "content": "Ada"}
    assert "hello Ada" in scripted_model.prompts[1]


def test_conversations_default_to_the_journal_database(
    make_agent, scripted_model, sqlite_place, monkeypatch
):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", sqlite_place)
    scripted_model.writes("print(1)")
    chat = Chat(persist=True, namespace="mine", conversation_id="x")
    make_agent(chat, journal="sql").run("go on")
    found = asyncio.run(SqlJournal(sqlite_place).conversations("mine").find())
    assert [(r.conversation, r.messages, r.title) for r in found] == [("x", 2, "go on")]
    assert len(asyncio.run(SqlJournal(sqlite_place).find())) == 1
    chat.close()


def test_unstorable_turn_is_a_warning(make_agent, scripted_model, sqlite_place):
    chat = Chat(persist=True, path=sqlite_place)
    chat.append("user", "one")

    def break_it(_request):
        import sqlite3

        with closing(sqlite3.connect(sqlite_place)) as connection, connection:
            connection.execute("DROP TABLE delf_messages")
        return "```python\nprint('done')\n```"

    scripted_model.says(break_it)
    response = make_agent(chat).run("go on")
    assert (response.status, response.text) == (True, "done")
    (warning,) = response.trace.warnings
    assert warning.startswith("the conversation may lack this task: the journal")
    chat.close()


def test_unreadable_conversation_raises(make_agent, scripted_model, tmp_path):
    place = tmp_path / "broken.db"
    place.write_bytes(b"this is not a database, " * 100)
    chat = Chat(persist=True, path=place)
    with pytest.raises(ConfigurationError, match="damaged, or no SQLite file"):
        make_agent(chat).run("go on")
    assert scripted_model.requests == []
    chat.close()


# -- what it costs --------------------------------------------------------------------------------


@contextmanager
def counting(monkeypatch) -> Iterator[list[int]]:
    """Count the rows returned by each statement about conversations."""
    rows: list[int] = []

    def count(kind):
        execute = kind.execute

        def counted(self, sql, parameters=None):
            found = execute(self, sql, parameters)
            if "delf_messages" in sql or "delf_conversations" in sql:
                rows.append(len(found))
            return found

        patch.setattr(kind, "execute", counted)

    with monkeypatch.context() as patch:
        count(SqliteConnection)
        count(PostgresConnection)
        yield rows


@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", [{"summarize": False}, {"keep": 10}], ids=["plain", "summary"])
@pytest.mark.slow
async def test_turn_cost_is_independent_of_conversation_length(
    make_agent, scripted_model, journal_url, monkeypatch, options
):
    """PostgreSQL runs fewer turns, because the limits are set above the database."""
    turns = 40 if journal_url.startswith("postgres") else 80
    chat = Chat(persist=True, path=journal_url, history_window=20, **options)

    def answer(request):
        if request.purpose == "summarize":
            return f"summary {len(scripted_model.requests)}"
        return "```python\nprint('answer')\n```"

    scripted_model.default = answer
    costs, shown = [], []
    async with make_agent(chat) as agent:
        with counting(monkeypatch) as rows:
            for turn in range(turns):
                before = len(rows), sum(rows)
                response = await agent.arun(f"turn {turn}")
                assert response.status, response.error
                costs.append((len(rows) - before[0], sum(rows) - before[1]))
                shown.append(len(scripted_model.requests[-1].messages))
                if "keep" in options:
                    state = await chat.astate()
                    assert len(state.messages) <= 10 + 2
    steady = costs[20:]
    assert len(set(steady)) == 1, sorted(set(steady))
    statements, loaded = steady[0]
    assert statements <= 15
    assert loaded <= (35 if "keep" in options else 25)
    assert max(shown) <= 2 + 20
    assert len(set(shown[20:])) == 1
    await chat.aclose()


async def test_journal_lists_its_conversation_namespaces(journal_url, open_journal):
    journal = open_journal(journal_url)
    assert isinstance(journal, SharedJournal)
    assert await journal.namespaces() == []
    for namespace, name in [("b", "1"), ("a", "1"), ("b", "2")]:
        await journal.conversations(namespace).append(name, [user("x")])
    assert await journal.namespaces() == ["a", "b"]


async def test_records_tell_the_folder_of_the_newest_message(journal_url, open_journal):
    journal = open_journal(journal_url)
    store = journal.conversations("a")
    for name in ("/old", "/new"):
        start = TaskStarted(task_id=name, seq=1, at=1.0, task="x", setup={"folder": name})
        await journal.append(start)
        await store.append("c", [ChatMessage(role="user", content="x", task_id=name)])
    await store.append("removed", [ChatMessage(role="user", content="x", task_id="gone")])
    await store.append("without a task", [user("x")])
    folders = {record.conversation: record.folder for record in await store.find()}
    assert folders == {"c": "/new", "removed": None, "without a task": None}
