"""``recall``: past conversations, by meaning and by words, as far as they are still kept."""

import asyncio
import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, Chat
from delf.errors import ConnectionUnavailableError, LLMExecutionError, ToolRefusedError
from delf.notes import notes_of_call
from delf.protocols.context import PluginContext
from delf.protocols.conversation import ChatMessage
from delf.protocols.shared_journal import SharedJournal
from delf.testing import Call, ConnectionContract, ScriptedModel, ScriptedTask, TestHost
from delf_journal_sql import SqlJournal
from delf_memory_semantic import Recall
from delf_memory_semantic import recall as recall_module

DAY = 86_400.0
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC).timestamp()
TEXT = {
    "trip": ["Book a flight to Turin.", "Your seat is 12A, at the window."],
    "shop": ["What did the lamps cost?", "The lamps cost 40 euros."],
}


class Meaning:
    """An embedder for which an aircraft and a flight mean the same."""

    model = "meaning"
    dimension = 2
    batch_size = 3

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fails = False
        self.refused = "never refused"

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> Any:
        if self.fails:
            raise ConnectionUnavailableError("the embedder is gone")
        self.texts += texts
        if any(self.refused in text for text in texts):
            raise ToolRefusedError(f"a text is too long: {texts}")
        topics = ("flight", "aircraft")
        return [[1.0, 0.0] if any(t in x.lower() for t in topics) else [0.0, 1.0] for x in texts]


@pytest.fixture
def meaning() -> Meaning:
    return Meaning()


@pytest.fixture
async def journal(tmp_path: Path) -> Any:
    journal = SqlJournal(url=str(tmp_path / "journal.db"))
    for day, (name, texts) in enumerate(TEXT.items()):
        messages = [
            ChatMessage(
                role="assistant" if n else "user",
                content=text,
                at=NOON + day * DAY,
                task_id=f"task of {name}",
            )
            for n, text in enumerate(texts)
        ]
        await journal.conversations("default").append(name, messages)
    yield journal
    await journal.aclose()


@pytest.fixture
def context(tmp_path: Path, meaning: Meaning, journal: SharedJournal) -> PluginContext:
    return PluginContext(
        data_dir=tmp_path,
        embedder=lambda name: meaning,
        conversations=lambda url: SqlJournal(url=str(tmp_path / "journal.db")),
    )


@pytest.fixture
async def recall(context: PluginContext) -> Any:
    made = Recall()
    made.use_context(context)
    yield made
    await made.aclose()


async def test_recall_finds_messages_by_words(recall: Recall, journal: SharedJournal) -> None:
    (found,) = await recall.recall("lamp of 40 euros", limit=1)
    assert found["text"] == "The lamps cost 40 euros."
    assert (found["conversation"], found["role"]) == ("shop", "assistant")
    assert found["at"].timestamp() == NOON + DAY


async def test_meaning_search_finds_synonyms(recall: Recall) -> None:
    (found,) = await recall.recall("the aircraft", limit=1)
    assert found["text"] == "Book a flight to Turin."


@pytest.mark.parametrize(
    ("since", "until", "conversations"),
    [
        (None, None, {"trip", "shop"}),
        (NOON + DAY / 2, None, {"shop"}),
        (None, NOON + DAY / 2, {"trip"}),
        (NOON + 2 * DAY, None, set[str]()),
    ],
)
async def test_time_range_narrows_recall(
    recall: Recall, since: float | None, until: float | None, conversations: set[str]
) -> None:
    begin, end = (None if at is None else dt.datetime.fromtimestamp(at) for at in (since, until))
    found = await recall.recall("Turin lamps flight", begin, end, limit=20)
    assert {item["conversation"] for item in found} == conversations


@pytest.mark.parametrize("zone", [None, *(dt.timezone(dt.timedelta(hours=h)) for h in (-12, 12))])
async def test_whole_calendar_is_a_time_range(recall: Recall, zone: dt.tzinfo | None) -> None:
    begin, end = (at.replace(tzinfo=zone) for at in (dt.datetime.min, dt.datetime.max))
    found = await recall.recall("Turin lamps flight", begin, end, limit=20)
    assert {item["conversation"] for item in found} == {"trip", "shop"}


@pytest.mark.parametrize(
    ("scope", "user", "conversations"),
    [
        ("person", None, {"trip", "shop"}),
        ("person", "ada:1", {"trip"}),
        ("person", "bob:2", {"pay"}),
        ("person", "eve:3", set[str]()),
        ("agent", "eve:3", {"trip", "shop", "ada:1|trip", "bob:2|pay"}),
    ],
)
@pytest.mark.parametrize("embedder", [None, "off"])
async def test_recall_finds_conversations_of_the_person_who_asks(
    context: PluginContext,
    journal: SharedJournal,
    scope: str,
    user: str | None,
    conversations: set[str],
    embedder: str | None,
) -> None:
    store = journal.conversations("default")
    for name in ("ada:1|trip", "bob:2|pay"):
        await store.append(name, [ChatMessage(role="user", content="The flight lamps.", at=NOON)])
    recall = Recall(scope=scope, embedding_model=embedder)
    recall.use_context(context)
    asking = replace(ScriptedTask().context(connection="recall"), user=user)
    found = await recall.recall("flight lamps", limit=20, context=asking)
    assert {item["conversation"] for item in found} == conversations
    await recall.aclose()


async def test_recall_in_a_task_knows_its_person(tmp_path: Path, journal: SharedJournal) -> None:
    message = ChatMessage(role="user", content="My salary is 5,000 euros.", at=NOON)
    await journal.conversations("default").append("ada:1|pay", [message])
    script = "for found in await recall('salary'):\n    print(found['text'])\nprint('end')"
    model = ScriptedModel()
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    past = Recall(url=str(tmp_path / "journal.db"), embedding_model="off")
    answers: list[str] = []
    async with Agent(tools=[past], llm="scripted", host=host, sandbox="local") as agent:
        for user in ("ada:1", "bob:2"):
            model.says(f"```python\n{script}\n```")
            task = await agent.asubmit("What do I earn?", user=user)
            answers.append((await task).raise_for_status().text)
    assert [answer.split("\n") for answer in answers] == [
        ["My salary is 5,000 euros.", "end"],
        ["end"],
    ]


async def test_recall_follows_added_and_deleted_conversations(
    recall: Recall, journal: SharedJournal, tmp_path: Path, meaning: Meaning
) -> None:
    await recall.recall("lamps")
    store = journal.conversations("default")
    await store.append("shop", [ChatMessage(role="user", content="A zebra, please.", at=NOON)])
    assert (await recall.recall("zebra", limit=1))[0]["text"] == "A zebra, please."
    await store.clear("shop")
    found = await recall.recall("zebra lamps", limit=20)
    assert {item["conversation"] for item in found} <= {"trip"}
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("recall.db*"))
    assert b"zebra" not in kept


async def test_closed_recall_finds_the_same_messages_when_it_is_used_again(recall: Recall) -> None:
    found = await recall.recall("lamps")
    assert found
    await recall.aclose()
    assert await recall.recall("lamps") == found


async def test_long_messages_are_cut_around_the_match(
    recall: Recall, journal: SharedJournal
) -> None:
    text = "nothing here. " * 500 + "The zebra is striped. " + "nor here. " * 500
    store = journal.conversations("default")
    await store.append("long", [ChatMessage(role="user", content=text, at=NOON)] * 30)
    found = await recall.recall("zebra", limit=20)
    assert len(found) == 20
    assert all(len(item["text"]) < 610 and "zebra is striped" in item["text"] for item in found)


@pytest.mark.parametrize("query", ['"', "'; DROP TABLE messages; --", "NEAR(a b)", "* OR col:x"])
async def test_query_text_is_never_parsed_as_syntax(recall: Recall, query: str) -> None:
    await recall.recall(query)
    assert await recall.recall("lamps")


async def test_vectors_are_cached_and_a_broken_cache_is_rebuilt(
    recall: Recall, context: PluginContext, meaning: Meaning, tmp_path: Path
) -> None:
    await recall.recall("lamps")
    await recall.aclose()
    made = len(meaning.texts)

    async def again() -> int:
        other = Recall()
        other.use_context(context)
        assert await other.recall("aircraft", limit=1)
        await other.aclose()
        return len(meaning.texts)

    assert await again() == made + 1  # the query alone
    (tmp_path / "recall.db").write_bytes(b"no database" * 1000)
    assert await again() > made + 2


async def test_journals_of_one_namespace_keep_their_vectors_apart(
    context: PluginContext, meaning: Meaning, tmp_path: Path
) -> None:
    other_place = str(tmp_path / "other.db")
    other_journal = SqlJournal(url=other_place)
    message = ChatMessage(role="user", content="A train to Oslo.", at=NOON)
    await other_journal.conversations("default").append("rail", [message])
    await other_journal.aclose()
    other_context = PluginContext(
        data_dir=tmp_path,
        embedder=lambda name: meaning,
        conversations=lambda url: SqlJournal(url=other_place),
    )
    for each in (context, other_context, context, other_context):
        recall = Recall()  # as in another process
        recall.use_context(each)
        await recall.recall("where")
        await recall.aclose()
    stored_messages = ["A train to Oslo.", *TEXT["shop"], *TEXT["trip"]]
    assert [meaning.texts.count(text) for text in stored_messages] == [1] * 5


async def test_word_search_is_used_if_the_embedder_fails(recall: Recall, meaning: Meaning) -> None:
    meaning.fails = True
    assert (await recall.recall("lamps"))[0]["conversation"] == "shop"


async def test_word_search_is_used_if_the_embedder_does_not_answer(
    recall: Recall, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = meaning.embed

    async def hang_for_queries(texts: Sequence[str], kind: str = "passage") -> Any:
        if kind == "query":
            await asyncio.Event().wait()
        return await embed(texts, kind)

    monkeypatch.setattr(meaning, "embed", hang_for_queries)
    monkeypatch.setattr(recall_module, "FIRST_ANSWER_SECONDS", 0.01)
    with notes_of_call() as notes:
        assert (await recall.recall("lamps"))[0]["conversation"] == "shop"
    assert list(notes) == [
        "messages are found by words alone, the embedder failed: no answer in time"
    ]


async def test_refused_message_costs_only_its_own_vector(
    recall: Recall, meaning: Meaning, caplog: pytest.LogCaptureFixture
) -> None:
    meaning.refused = "Your seat"
    for _ in range(2):
        (found,) = await recall.recall("the aircraft", limit=1)
        assert found["text"] == "Book a flight to Turin."
    assert (await recall.recall("window seat"))[0]["conversation"] == "trip"
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "in the conversation 'trip' is found by words alone" in warning
    assert "seat" not in warning


async def test_failure_for_one_message_costs_its_vector_until_the_next_search(
    recall: Recall, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = meaning.embed

    async def fail_for_one_text(texts: Sequence[str], kind: str = "passage") -> Any:
        if any("flight" in text for text in texts):
            raise LLMExecutionError("the server failed", status=500)
        return await embed(texts, kind)

    with monkeypatch.context() as patch:
        patch.setattr(meaning, "embed", fail_for_one_text)
        await recall.recall("the aircraft")
    (found,) = await recall.recall("the aircraft", limit=1)
    assert found["text"] == "Book a flight to Turin."


async def test_refused_query_is_reported_and_finds_messages_by_words(
    recall: Recall, meaning: Meaning
) -> None:
    meaning.refused = "40 euros?"
    with notes_of_call() as notes:
        assert (await recall.recall("lamps for 40 euros?"))[0]["conversation"] == "shop"
    (message,) = notes
    assert "messages are found by words alone" in message


def test_task_recalls_an_earlier_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    script = "found = await recall('seat on the plane')\nprint(found[0]['text'])"
    model = ScriptedModel()
    model.says("```python\nprint('Your seat is 12A.')\n```").says(f"```python\n{script}\n```")
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    path = tmp_path / "chats.db"
    message: dict[str, Any] = {"host": host, "llm": "scripted", "sandbox": "local"}
    chat = Chat(persist=True, path=path, conversation_id="one")
    with Agent(chat=chat, **message) as agent:
        agent.run("Which seat did I book?")
    past = Recall(url=str(path), embedding_model="off")
    with Agent(tools=[past], **message) as agent:
        response = agent.run("Where do I sit?")
    assert "seat" in response.raise_for_status().text
    assert "recall(query: str" in str(model.requests[1])


class TestRecall(ConnectionContract):
    calls = (Call("recall", query="lamps"), Call("recall", query="flight", since="2026-02-01"))
    failing_calls = (Call("recall", query=" "),)

    @pytest.fixture
    def connection(self, recall: Recall) -> Recall:
        return recall
