"""The store on SQLite and PostgreSQL: by words alone, and with vectors."""

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

import numpy as np
import pytest
import sqlalchemy as sa

from delf.errors import (
    ConnectionUnavailableError,
    DelfError,
    LLMExecutionError,
    MemoryRetrievalError,
    MemorySetupError,
    PluginError,
)
from delf.notes import notes_of_call
from delf.protocols.context import PluginContext
from delf.testing import MemoryContract, PluginContract
from delf_memory_semantic import store as store_module
from delf_memory_semantic.database import ChangeCounters, FactDatabase
from delf_memory_semantic.nearest import VectorSearch
from delf_memory_semantic.store import SemanticStore
from support.meaning import Meaning
from support.until import until


@pytest.fixture
def meaning() -> Meaning:
    return Meaning(
        ("city", "town", "turin"), ("office", "work"), ("tea", "drink"), ("six", "close")
    )


@pytest.fixture
def context(tmp_path: Path, meaning: Meaning) -> PluginContext:
    return PluginContext(data_dir=tmp_path, embedder=lambda name: meaning)


QUERY = "Which office building in Turin has tea?"
"""Words and meanings that no fact has all of."""


class OnSQLite(MemoryContract):
    durable = True
    namespaces = True
    model: str | None = None

    @pytest.fixture
    def store(self, context: PluginContext) -> SemanticStore:
        return SemanticStore(context, embedding_model=self.model)

    @pytest.fixture
    def reopen(self, context: PluginContext) -> Any:
        return lambda: SemanticStore(context, embedding_model=self.model)

    @pytest.fixture
    def elsewhere(self, context: PluginContext) -> Any:
        return lambda name: SemanticStore(
            replace(context, namespace=name), embedding_model=self.model
        )

    @pytest.fixture
    def failing_store(self, context: PluginContext, tmp_path: Path) -> SemanticStore:
        (tmp_path / "file").write_text("no folder")
        return SemanticStore(context, url=f"sqlite:///{tmp_path}/file/facts.db")


class TestWordsOnSQLite(OnSQLite):
    model = "off"
    query = "Which office building is in Turin?"


class TestBothOnSQLite(OnSQLite):
    query = QUERY


@pytest.mark.services
class TestOnPostgreSQL(MemoryContract):
    durable = True
    namespaces = True
    query = QUERY

    @pytest.fixture
    def store(self, context: PluginContext, postgres_database: Any) -> SemanticStore:
        return SemanticStore(context, url=postgres_database.url)

    @pytest.fixture
    def reopen(self, context: PluginContext, postgres_database: Any) -> Any:
        return lambda: SemanticStore(context, url=postgres_database.url)

    @pytest.fixture
    def elsewhere(self, context: PluginContext, postgres_database: Any) -> Any:
        url = postgres_database.url
        return lambda name: SemanticStore(replace(context, namespace=name), url=url)

    @pytest.fixture
    def failing_store(self, context: PluginContext) -> SemanticStore:
        return SemanticStore(context, url="postgresql://nobody@127.0.0.1:1/none")


class TestPackage(PluginContract):
    name = "memory-semantic"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_database").url)
    return f"sqlite:///{tmp_path / 'facts.db'}"


async def test_meaning_search_finds_synonyms(context: PluginContext, url: str) -> None:
    store = SemanticStore(context, url)
    await store.save(["The office is in Turin.", "Ada drinks coffee."])
    found = await store.search("Which town?")
    assert [fact.content for fact in found] == ["The office is in Turin."]
    await store.aclose()


def test_vectors_whose_loading_failed_are_loaded_by_the_next_search() -> None:
    class FailingDatabase:
        is_failing = False

        def change_counters(self) -> ChangeCounters:
            return ChangeCounters(2, 1)

        def vectors(self, _model: str, after: int = 0) -> Iterator[list[tuple[int, bytes]]]:
            for number in range(after + 1, 4):
                yield [(number, vector.tobytes())]
                if self.is_failing:
                    raise OSError("the disk is gone")

    vector = np.ones(1, dtype="<f4")
    database = FailingDatabase()
    search = VectorSearch(cast("FactDatabase", database))
    assert len(search.find(vector, "m", 9)) == 3
    search.close()
    database.is_failing = True
    with pytest.raises(OSError, match="gone"):
        search.find(vector, "m", 9)
    database.is_failing = False
    assert len(search.find(vector, "m", 9)) == 3


async def test_word_search_finds_exact_names(context: PluginContext, url: str) -> None:
    store = SemanticStore(context, url)
    await store.save(["Invoice 4711 is paid.", "Invoice 4712 is open."])
    found = await store.search("4712")
    assert [fact.content for fact in found] == ["Invoice 4712 is open."]
    await store.aclose()


_Form = Literal["NFC", "NFD"]


@pytest.mark.parametrize("query", ["\u00f6sterreich", "\u00d6STERREICH", "\u0130stanbul"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("form_of_query", ["NFC", "NFD"])
async def test_word_search_ignores_case_and_form_of_accented_letters(
    context: PluginContext, url: str, query: str, form: _Form, form_of_query: _Form
) -> None:
    store = SemanticStore(context, url, embedding_model="off")
    fact = unicodedata.normalize(form, "Ada: \u00d6sterreich, \u0130stanbul.")
    query = unicodedata.normalize(form_of_query, query)
    await store.save([fact, "Bob comes from Italien."])
    assert [fact.content[:3] for fact in await store.search(query)] == ["Ada"]
    await store.aclose()


async def test_equal_fact_replaces_the_old_one(context: PluginContext, url: str) -> None:
    store = SemanticStore(context, url)
    await store.save(["Ada likes lamps."], source="task 1")
    await store.save(["  ada likes the lamp "], source="task 2")
    await store.save(["Ada does not like lamps.", "Invoice 1 is paid.", "Invoice 2 is paid."])
    facts = await store.all()
    assert next(fact.content for fact in facts) == "  ada likes the lamp "
    assert facts[0].source == "task 2"
    assert len(facts) == 4
    await store.aclose()


DIFFERENT = [
    ("A flight from Rome to Oslo.", "A flight to Rome from Oslo."),
    ("He writes C++.", "He writes C."),
    ("The balance is -5.", "The balance is 5."),
    ("The share is 50 %.", "The share is 50 €."),
    ("The limit is 1.5.", "The limit is 15."),
    ("The switch is on.", "The switch is in."),
    ("All is well.", "It is well."),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
async def test_different_fact_replaces_no_other(
    context: PluginContext, url: str, first: str, second: str
) -> None:
    store = SemanticStore(context, url, embedding_model="off")
    await store.save([first, second])
    assert [fact.content for fact in await store.all()] == [first, second]
    await store.aclose()


async def test_composed_and_decomposed_accents_are_equal(context: PluginContext, url: str) -> None:
    store = SemanticStore(context, url, embedding_model="off")
    await store.save(["Zo\u00eb likes lamps."])
    await store.save(["Zoe\u0308 likes lamps"])
    assert len(await store.all()) == 1
    await store.aclose()


async def test_characters_that_databases_refuse_are_replaced(
    context: PluginContext, url: str
) -> None:
    store = SemanticStore(context, url)
    await store.save(["A half \ud83d lamp.", "A \0 lamp.", "A whole lamp."], source="\udcff.md")
    contents = [fact.content for fact in await store.all()]
    assert contents == ["A half ? lamp.", "A \ufffd lamp.", "A whole lamp."]
    assert len(await store.search("a \ud83d lamp \0")) == 3
    await store.aclose()


async def test_store_sees_facts_of_another_process(context: PluginContext, url: str) -> None:
    one, two = SemanticStore(context, url), SemanticStore(context, url)
    await one.save(["The office is in Turin."])
    assert len(await two.search("town")) == 1
    await one.save(["Rome is a city."])
    assert len(await two.search("town")) == 2
    await one.delete(["The office is in Turin."])
    assert [f.content for f in await two.search("town")] == ["Rome is a city."]
    await one.aclose()
    await two.aclose()


async def test_first_search_embeds_earlier_facts(context: PluginContext, url: str) -> None:
    store = SemanticStore(context, url, embedding_model="off")
    await store.save(["The office is in Turin."])
    await store.aclose()
    store = SemanticStore(context, url)
    assert len(await store.search("town")) == 1
    await store.aclose()


async def test_facts_of_another_model_are_embedded_again_during_search(
    context: PluginContext, meaning: Meaning, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "VECTOR_SECONDS", 0)
    store = SemanticStore(context, url, embedding_model="off")
    await store.save([f"The office number {n} is in a town." for n in range(7)])
    await store.aclose()
    meaning.model = "another"
    store = SemanticStore(context, url)
    assert await store.search("office")

    async def all_are_found() -> bool:
        return len(await store.search("city", top_k=10)) == 7

    await until(all_are_found)
    await store.aclose()


async def test_failing_embedder_loses_no_fact(
    context: PluginContext, meaning: Meaning, url: str
) -> None:
    store = SemanticStore(context, url)
    meaning.fails = True
    await store.save(["The office is in Turin."])
    assert len(await store.search("office")) == 1
    meaning.fails = False
    await store.stop_embedding()
    assert await store.fill() == 1
    assert len(await store.search("town")) == 1
    await store.aclose()


async def test_fact_gets_vector_after_search_during_its_save(
    context: PluginContext, meaning: Meaning, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = SemanticStore(context)
    assert await store.search("town") == []
    (file,) = tmp_path.rglob("*.db")
    has_failed = asyncio.Event()

    async def fail(texts: object, kind: str) -> None:
        has_failed.set()
        raise ConnectionUnavailableError("the embedder is gone")

    with closing(sqlite3.connect(file, isolation_level=None)) as other_process:
        other_process.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as patch:
            patch.setattr(meaning, "embed", fail)
            saving = asyncio.create_task(store.save(["The office is in Turin."]))
            await has_failed.wait()
        assert await store.search("town") == []
        other_process.execute("ROLLBACK")
    await saving
    assert len(await store.search("town")) == 1
    await store.aclose()


FACTS = [
    "Tea is ready at six.",
    "Endless: a protocol of the works council.",
    "Endless: a list of all chairs.",
    *(f"The office number {n} is in Turin." for n in range(7)),
]
"""Facts of which an embedder refuses the endless ones."""


@pytest.mark.parametrize("is_saved_before", [False, True], ids=["saved", "saved before"])
async def test_refused_text_costs_only_its_own_vector(
    context: PluginContext,
    meaning: Meaning,
    url: str,
    caplog: pytest.LogCaptureFixture,
    is_saved_before: bool,
) -> None:
    meaning.refused = "Endless"
    store = SemanticStore(context, url, embedding_model="off" if is_saved_before else None)
    await store.save(FACTS)
    await store.aclose()
    store = SemanticStore(context, url)
    assert len(await store.search("town", top_k=20)) == 7
    assert len(await store.search("drink")) == 1
    assert len(await store.search("endless chairs")) == 2
    refused = [fact for fact in await store.all() if "Endless" in fact.content]
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == len(refused) == 2
    for fact, warning in zip(refused, warnings, strict=True):
        assert f"the fact {fact.id} " in warning
        assert "Endless" not in warning
    asked = [*meaning.texts]
    assert await store.fill() == 0
    assert meaning.texts == asked, "a refused text is not tried again"
    await store.aclose()


async def test_search_adds_missing_vectors_after_the_embedder_failed_again(
    context: PluginContext, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SemanticStore(context, embedding_model="off")
    await store.save(FACTS)
    await store.aclose()
    store = SemanticStore(context)
    embed = meaning.embed

    async def answer_queries_only(texts: Any, kind: str = "passage") -> Any:
        meaning.fails = kind == "passage"
        return await embed(texts, kind)

    with monkeypatch.context() as patch:
        patch.setattr(meaning, "embed", answer_queries_only)
        assert not await store.search("town")
    meaning.fails = False
    assert await store.search("town")
    await store.aclose()


async def test_text_that_exceeds_the_rate_limit_gets_its_vector_later(
    context: PluginContext,
    meaning: Meaning,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A text that exceeds the tokens left in this minute gets its vector later."""
    store = SemanticStore(context, embedding_model="off")
    await store.save(FACTS)
    await store.aclose()
    store = SemanticStore(context)
    embed = meaning.embed

    async def embed_short_texts(texts: Any, kind: str = "passage") -> Any:
        if sum(map(len, texts)) > 10:
            raise LLMExecutionError("too many tokens a minute", status=429)
        return await embed(texts, kind)

    with monkeypatch.context() as patch:
        patch.setattr(meaning, "embed", embed_short_texts)
        assert not await store.search("town")
    assert "refused" not in caplog.text
    assert len(await store.search("town", top_k=20)) == 7
    await store.aclose()


@pytest.mark.parametrize(
    "error",
    [
        LLMExecutionError("the request timed out"),
        LLMExecutionError("the server failed", status=500),
        ConnectionUnavailableError("the connection was lost"),
    ],
    ids=str,
)
async def test_failure_for_one_text_costs_its_vector_until_the_next_search(
    context: PluginContext,
    meaning: Meaning,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: DelfError,
) -> None:
    store = SemanticStore(context, embedding_model="off")
    await store.save([*FACTS, "Slow: the office has moved to Turin."])
    await store.aclose()
    store = SemanticStore(context)
    embed = meaning.embed

    async def fail_for_one_text(texts: Any, kind: str = "passage") -> Any:
        if any("Slow" in text for text in texts):
            raise error
        return await embed(texts, kind)

    with monkeypatch.context() as patch:
        patch.setattr(meaning, "embed", fail_for_one_text)
        assert len(await store.search("town", top_k=20)) == 7
    assert "refused" not in caplog.text
    assert len(await store.search("town", top_k=20)) == 8
    await store.aclose()


async def test_stopped_embedding_keeps_the_vectors_it_has_added(
    context: PluginContext, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    meaning.refused = "Endless"
    store = SemanticStore(context, embedding_model="off")
    batch = [f"The office number {n} is in Turin." for n in range(256)]
    await store.save([*batch, "Endless: the last protocol."])
    await store.aclose()
    store = SemanticStore(context)
    embed = meaning.embed
    may_answer = asyncio.Event()
    is_at_last_fact = asyncio.Event()

    async def hang_at_last_fact(texts: Any, kind: str = "passage") -> Any:
        if kind == "passage":
            await may_answer.wait()
        if "Endless: the last protocol." in texts:
            is_at_last_fact.set()
            await asyncio.Event().wait()
        return await embed(texts, kind)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "VECTOR_SECONDS", 0)
        patch.setattr(meaning, "embed", hang_at_last_fact)
        assert not await store.search("town")
        may_answer.set()
        await is_at_last_fact.wait()
        await store.stop_embedding()
    assert len(await store.search("town", top_k=20)) == 20
    await store.aclose()


async def test_search_adds_missing_vectors_after_they_were_stopped(
    context: PluginContext, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SemanticStore(context, embedding_model="off")
    await store.save(FACTS)
    await store.aclose()
    store = SemanticStore(context)
    embed = meaning.embed

    async def hang_on_passages(texts: Any, kind: str = "passage") -> Any:
        if kind == "passage":
            await asyncio.Event().wait()
        return await embed(texts, kind)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "VECTOR_SECONDS", 0)
        patch.setattr(meaning, "embed", hang_on_passages)
        assert not await store.search("town")
        await store.stop_embedding()
    assert await store.search("town")
    await store.aclose()


async def test_vectors_of_another_length_are_ignored(
    kept: Path, context: PluginContext, meaning: Meaning
) -> None:
    with closing(sqlite3.connect(kept)) as database, database:
        row = (1, meaning.model, b"\0" * 8)
        database.execute("INSERT INTO delf_memory_vectors VALUES (?, ?, ?)", row)
    store = SemanticStore(context)
    assert len(await store.search("office")) == 1
    await store.aclose()


@pytest.mark.parametrize(
    "query", ['"', 'a" OR content:x', "NEAR(a b)", "* ^ - +", "a & b | !c", ":*", "\\", "NOT"]
)
async def test_query_text_is_never_parsed_as_syntax(
    query: str, context: PluginContext, url: str
) -> None:
    store = SemanticStore(context, url, embedding_model="off")
    await store.save(["The office is in Turin."])
    found = await store.search(query)
    assert {fact.content for fact in found} <= {"The office is in Turin."}
    assert len(await store.all()) == 1
    await store.aclose()


@pytest.mark.slow
async def test_very_long_fact_in_any_script_is_stored_and_found(
    context: PluginContext, url: str
) -> None:
    store = SemanticStore(context, url)
    large = "Die Zauberflöte 🦊 日本語 " * 30_000 + "needle"
    await store.save([large])
    (fact,) = await store.all()
    assert fact.content == large
    assert len(await store.search("Zauberflöte")) == 1
    await store.aclose()


@pytest.mark.slow
async def test_save_accepts_more_facts_than_one_statement_holds(context: PluginContext) -> None:
    def limit(connection: sqlite3.Connection, _: object) -> None:  # 32,766 and more by default
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 10_100)

    facts = [f"room {number}" for number in range(10_200)]
    sa.event.listen(sa.Engine, "connect", limit)
    try:
        store = SemanticStore(context, embedding_model="off")
        await store.save(facts)
        await store.save(facts)  # each takes the place of itself
        assert len(await store.all()) == len(facts)
        assert await store.delete(facts) == len(facts)
        await store.aclose()
    finally:
        sa.event.remove(sa.Engine, "connect", limit)


@pytest.mark.slow
async def test_searches_continue_during_saves(context: PluginContext, url: str) -> None:
    store, other = SemanticStore(context, url), SemanticStore(context, url)
    towns = [f"Town number {n}." for n in range(40)]

    async def save() -> None:
        for town in towns:
            await other.save([town])

    async def search() -> None:
        for _ in towns:
            await store.search("city")

    await asyncio.gather(save(), *(search() for _ in range(4)))
    assert len(await store.search("city", top_k=50)) == len(towns)
    await store.aclose()
    await other.aclose()


async def test_concurrent_writers_of_equal_facts_do_not_deadlock(
    context: PluginContext, url: str
) -> None:
    facts = [f"Town number {n}." for n in range(40)]
    stores = [SemanticStore(context, url) for _ in range(4)]
    orders = [facts, facts[::-1], facts[20:] + facts[:20], sorted(facts)]
    await asyncio.gather(*(store.save(order) for store, order in zip(stores, orders, strict=True)))
    assert len(await stores[0].all()) == 40
    assert len(await stores[0].search("town", top_k=100)) == 40
    for store in stores:
        await store.aclose()


async def test_search_uses_vectors_stored_by_another_process(
    context: PluginContext, meaning: Meaning, url: str
) -> None:
    one, two = SemanticStore(context, url), SemanticStore(context, url)
    assert await two.search("town") == []
    meaning.fails = True
    await one.save(["The office is in Turin."])
    assert await two.search("town") == []
    meaning.fails = False
    assert await two.search("town") == []
    assert await one.fill() == 1
    assert len(await two.search("town")) == 1
    await one.aclose()
    await two.aclose()


SAVING = """
import asyncio, sys
from pathlib import Path
from delf.protocols.context import PluginContext
from delf_memory_semantic import store as store_module
from delf_memory_semantic.store import SemanticStore

async def main():
    store = SemanticStore(PluginContext(data_dir=Path(sys.argv[1])), embedding_model="off")
    for batch in range(1000):
        await store.save([f"batch {batch} fact {n}" for n in range(10)])
        print(batch, flush=True)

asyncio.run(main())
"""


async def test_killed_writer_leaves_only_complete_batches(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SAVING, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.stdout.close()
    process.wait()
    message = int(rest[-1]) if rest else 4
    store = SemanticStore(PluginContext(data_dir=tmp_path), embedding_model="off")
    facts = await store.all()
    assert len(facts) % 10 == 0
    assert len(facts) >= 10 * (message + 1)
    for batch in range(len(facts) // 10):
        assert len(await store.search(f"batch {batch} fact 9", top_k=1, threshold=0.9)) == 1
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "memory.db")) as connection, connection:
        check = "INSERT INTO delf_memory_words(delf_memory_words) VALUES ('integrity-check')"
        connection.execute(check)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data/memory.db", b"not a database" * 100, "not a database"),
        ("data/memory.db/in the way", b"", "unable to open"),
        ("data", b"a file in its place", "cannot be created"),
    ],
)
async def test_non_database_is_reported(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
    store = SemanticStore(PluginContext(data_dir=tmp_path / "data"), embedding_model="off")
    with pytest.raises(MemorySetupError, match=message):
        await store.save(["a fact"])
    with pytest.raises((MemorySetupError, MemoryRetrievalError)):
        await store.search("a fact")
    await store.aclose()


@pytest.mark.parametrize(
    ("url", "message"),
    [("mysql://a/b", "cannot be kept in mysql"), ("nonsense", "cannot be understood")],
)
def test_store_refuses_another_database(url: str, message: str, context: PluginContext) -> None:
    with pytest.raises(MemorySetupError, match=message):
        SemanticStore(context, url, embedding_model="off")


@pytest.fixture
async def kept(context: PluginContext, tmp_path: Path) -> Any:
    """A database with one fact."""
    store = SemanticStore(context, embedding_model="off")
    await store.save(["The office is in Turin."])
    await store.aclose()
    return tmp_path / "memory.db"


async def test_locked_store_is_reported(
    kept: Path, context: PluginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delf_memory_semantic.database.BUSY_MS", 20)
    store = SemanticStore(context, embedding_model="off")
    other = sqlite3.connect(kept, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(MemorySetupError, match="locked"):
        await store.save(["another"])
    assert len(await store.search("office")) == 1, "who reads does not wait for who writes"
    other.execute("ROLLBACK")
    other.close()
    await store.save(["another"])
    assert len(await store.all()) == 2
    await store.aclose()


async def test_read_only_store_is_reported(
    kept: Path, context: PluginContext, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    monkeypatch.chdir(empty)
    url = f"sqlite:///file:{kept}?mode=ro&uri=true"
    store = SemanticStore(context, url, embedding_model="off")
    assert len(await store.search("office")) == 1
    with pytest.raises(MemorySetupError, match="readonly"):
        await store.save(["another"])
    with pytest.raises(MemorySetupError, match="readonly"):
        await store.delete(["The office is in Turin."])
    assert len(await store.all()) == 1
    await store.aclose()
    assert not list(empty.iterdir()), "the URL is no path of a file to create"


@pytest.mark.filterwarnings("ignore:Query string argument")
@pytest.mark.parametrize("template", ["file:{}?uri=true", "file:{}?uri=1&mode=rwc", "{}?mode=ro"])
async def test_store_creates_a_private_file_for_any_spelling_of_its_url(
    context: PluginContext, tmp_path: Path, template: str
) -> None:
    file = tmp_path / "a folder" / "facts.db"
    is_uri = template.startswith("file:")
    url = f"sqlite:///{template.format(quote(str(file)) if is_uri else file)}"
    store = SemanticStore(context, url, embedding_model="off")
    await store.save(["The office is in Turin."])
    await store.aclose()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_full_disk_is_reported(kept: Path, context: PluginContext) -> None:
    def small(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 30")

    sa.event.listen(sa.Engine, "connect", small)
    try:
        store = SemanticStore(context, embedding_model="off")
        with pytest.raises(MemorySetupError, match="full"):
            await store.save(["short", "long " * 100_000])
        assert [fact.content for fact in await store.all()] == ["The office is in Turin."]
        assert len(await store.search("office")) == 1
        await store.aclose()
    finally:
        sa.event.remove(sa.Engine, "connect", small)


SCRIPTS = {
    "Chinese": ("下次会议在周五上午十点举行", "会议什么时候开？"),
    "Japanese": ("次の会議は金曜日の午前十時です", "会議はいつですか"),
    "Korean": ("다음 회의는 금요일 오전 열 시입니다", "회의가 언제예요?"),
    "Thai": ("การประชุมครั้งต่อไปคือวันศุกร์", "ประชุมวันไหน"),
    "Russian": ("Следующая встреча в пятницу в десять", "Когда встреча"),
}


async def test_search_finds_words_in_every_writing_system(context: PluginContext, url: str) -> None:
    """In scripts without spaces between words, each pair of letters counts as a word."""
    store = SemanticStore(context, url, embedding_model="off")
    await store.save([fact for fact, _ in SCRIPTS.values()])
    for fact, query in SCRIPTS.values():
        assert [found.content for found in await store.search(query)] == [fact]
    assert await store.search("nothing of that") == []
    assert await store.delete([fact for fact, _ in SCRIPTS.values()]) == len(SCRIPTS)
    await store.aclose()


async def test_extra_query_word_does_not_hide_matches(context):
    store = SemanticStore(context, embedding_model="off")
    await store.save(
        [
            "Primary contact: Alice Chen, alice@acme.com",
            "Preferred contact: email, not Slack",
            "The office closes at six",
            "Company: Acme Corp, Enterprise tier",
        ]
    )
    query = "Draft a {}check-in email to our primary contact"
    plain = await store.search(query.format(""))
    assert len(plain) == 2
    for word in ("short ", "short, friendly "):
        assert await store.search(query.format(word)) == plain
    assert await store.search("Write a haiku about rain") == []
    await store.aclose()


async def test_missing_embedder_is_reported_in_each_task(context):
    def none(_name: object) -> Any:
        raise PluginError("no embedder is installed")

    store = SemanticStore(replace(context, embedder=none))
    with notes_of_call() as first:
        await store.search("anything")
    with notes_of_call() as second:
        await store.search("anything")
    assert list(first) == ["facts are found by words alone: no embedder is installed"]
    assert list(second) == list(first)
    await store.aclose()


async def test_save_does_not_wait_for_a_hanging_embedder(context, meaning, monkeypatch):
    monkeypatch.setattr(store_module, "FIRST_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(store_module, "SLOW_SECONDS", 0.0)

    async def hang(*_: object) -> None:
        asked.append(1)
        await asyncio.Event().wait()

    asked: list[int] = []
    monkeypatch.setattr(meaning, "embed", hang)
    store = SemanticStore(context)
    with notes_of_call() as notes:
        await store.save(["The office is in Turin."])
        await store.save(["Tea at six."])
        assert len(await store.search("office Turin")) == 1
    assert list(notes) == ["facts are found by words alone, the embedder failed: no answer in time"]
    assert asked == [1]
    await store.aclose()
