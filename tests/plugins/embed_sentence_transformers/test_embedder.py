"""Real weights of MiniLM, the prefixes of model families, and models that are not there."""

import asyncio
import gc
import importlib
import threading
import weakref
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from delf.errors import ConfigurationError
from delf.testing import EmbedderContract, PluginContract
from delf_embed_sentence_transformers.embedder import SentenceTransformersEmbedder
from delf_embed_sentence_transformers.prefixes import prefix_of
from support.until import until

from .minilm import minilm_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import torch before the tests, because the import takes as long as all of them."""
    importlib.import_module("sentence_transformers")
    importlib.import_module("torch").set_num_threads(1)  # several wait for each other by turning


class TestMiniLM(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> SentenceTransformersEmbedder:
        return SentenceTransformersEmbedder(minilm_path(), device="cpu")

    @pytest.fixture
    def failing_embedder(self, tmp_path: Path) -> SentenceTransformersEmbedder:
        return SentenceTransformersEmbedder(str(tmp_path), device="cpu")  # without weights


class TestPackage(PluginContract):
    name = "embed-sentence-transformers"


async def test_model_is_loaded_once_and_freed_with_its_last_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = importlib.import_module("sentence_transformers")
    load, models = library.SentenceTransformer, list[weakref.ref[Any]]()

    def counted(*args: Any, **options: Any) -> Any:
        model = load(*args, **options)
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr(library, "SentenceTransformer", counted)
    one, other = (SentenceTransformersEmbedder(minilm_path(), device="cpu") for _ in range(2))
    await asyncio.gather(one.embed(["a"]), other.embed(["b"]))
    await one.aclose()
    await other.embed(["c"])
    assert [model() is not None for model in models] == [True]
    await other.aclose()

    def is_gone() -> bool:
        gc.collect()
        return models[0]() is None

    await until(is_gone)


async def test_embedding_does_not_block_the_event_loop() -> None:
    embedder = SentenceTransformersEmbedder(minilm_path(), device="cpu")
    threads: set[str] = set()
    working = asyncio.ensure_future(embedder.embed(["a long text " * 50] * 16))
    turns = 0
    while not working.done():
        turns += 1
        threads.update(thread.name for thread in threading.enumerate())
        await asyncio.sleep(0.01)
    assert turns > 2
    assert any(name.startswith("delf-embed") for name in threads)
    await embedder.aclose()


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("BAAI/bge-small-en-v1.5", "Represent this sentence", ""),
        ("BAAI/bge-m3", "", ""),
        ("thenlper/gte-base", "", ""),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
    ],
)
def test_model_families_use_their_query_and_passage_prefixes(
    model: str, query: str, passage: str
) -> None:
    assert prefix_of(model, "query", {}).startswith(query)
    assert bool(prefix_of(model, "query", {})) is bool(query)
    assert prefix_of(model, "passage", {}) == passage
    assert prefix_of(model, "query", {"query": "own: "}) == "own: "
    assert prefix_of(model, "passage", {"document": "own: "}) == "own: "


async def test_missing_model_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigurationError, match="nobody/nothing") as error:
        await SentenceTransformersEmbedder("nobody/nothing").embed(["a"])
    assert "hf download" in str(error.value.hint)


async def test_unusable_device_is_named_by_the_error() -> None:
    with pytest.raises(ConfigurationError, match=r"Expected one of cpu, .*: gpu") as error:
        await SentenceTransformersEmbedder(minilm_path(), device="gpu").embed(["a"])
    assert "setting device" in str(error.value.hint)


async def test_model_availability_is_checked_without_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    there = SentenceTransformersEmbedder(minilm_path())
    await there.check()
    assert there.dimension is None
    await SentenceTransformersEmbedder(download=True).check()
    for name, whole in (
        ("nobody/nothing", "nobody/nothing"),
        ("tiny", "sentence-transformers/tiny"),
    ):
        with pytest.raises(ConfigurationError, match=name) as error:
            await SentenceTransformersEmbedder(name).check()
        assert f"hf download {whole}," in str(error.value.hint)
    snapshot = tmp_path / "models--sentence-transformers--tiny" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("1")
    await SentenceTransformersEmbedder("tiny").check()
