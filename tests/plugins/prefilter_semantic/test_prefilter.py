"""Words, vectors, steps, and what is kept between runs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delf.errors import LLMExecutionError, PluginError
from delf.protocols.context import PluginContext
from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.testing import PluginContract, PrefilterContract
from delf.tools.steps import short_steps_of, steps_of
from delf_prefilter_semantic import prefilter as prefilter_module
from delf_prefilter_semantic.prefilter import SemanticPrefilter
from support.meaning import Meaning
from support.until import until

CATALOG = Catalog(
    [
        CatalogEntry(name="mail.send", summary="Send an email."),
        CatalogEntry(name="mail.find", summary="Find emails.", parameters=(("sender", ""),)),
        CatalogEntry(name="bank.invoices", summary="Invoices by state."),
        CatalogEntry(name="zoo.feed", summary="Feed an animal."),
    ]
)


async def ask(question: str) -> str:
    raise AssertionError("it asks no model")


@pytest.fixture
def meaning() -> Meaning:
    topics = (("bill", "invoice", "state"), ("lion", "animal", "feed"), ("mail", "email"))
    return Meaning(*topics, batch_size=2)


@pytest.fixture
def context(tmp_path: Path, meaning: Meaning) -> PluginContext:
    return PluginContext(data_dir=tmp_path, embedder=lambda name: meaning)


@pytest.fixture
def without(tmp_path: Path) -> PluginContext:
    return PluginContext(data_dir=tmp_path)


class TestWords(PrefilterContract):
    asks = False

    @pytest.fixture
    def prefilter(self, without: PluginContext) -> SemanticPrefilter:
        return SemanticPrefilter(without, limit=3)


class TestPackage(PluginContract):
    name = "prefilter-semantic"


def one_less(context: PluginContext, **options: Any) -> SemanticPrefilter:
    """Return a prefilter that must leave at least one action out."""
    return SemanticPrefilter(context, limit=len(CATALOG) - 1, **options)


async def chosen(prefilter: SemanticPrefilter, task: str) -> frozenset[str]:
    selection = await prefilter.select(task, CATALOG, ask)
    await prefilter.aclose()
    return frozenset(selection.names)


async def test_names_summaries_and_parameters_are_searched(without: PluginContext) -> None:
    assert await chosen(one_less(without), "feed it") == {"zoo.feed"}
    assert await chosen(one_less(without), "the sender, please") == {"mail.find"}


async def test_vector_search_finds_synonyms(context: PluginContext) -> None:
    prefilter = SemanticPrefilter(context, limit=1)
    assert await chosen(prefilter, "Which bills are late?") == {"bank.invoices"}


async def test_prefilter_chooses_tools_for_each_step(without: PluginContext) -> None:
    prefilter = SemanticPrefilter(without, limit=3)
    task = "Look for invoices by their state, then send an email about them, and feed every animal twice."
    assert {"bank.invoices", "mail.send", "zoo.feed"} <= await chosen(prefilter, task)


@pytest.mark.parametrize(
    ("task", "steps"),
    [
        ("Feed the animal.", 1),
        ("Find the late invoice of Ada, then send an email to her boss.", 3),
        ("Send it to a@b.com and c.d@e.org", 3),
        ("Yes, and no.", 1),
    ],
)
def test_steps_of_splits_a_task(task: str, steps: int) -> None:
    assert steps_of(task)[0] == task
    assert len(steps_of(task)) == steps


async def test_unrelated_task_gets_no_tool(without: PluginContext) -> None:
    assert await chosen(one_less(without), "Quo vadis?") == frozenset()


def test_short_steps_are_separated() -> None:
    assert short_steps_of("Create the deployment nightly, and pause it.") == ["pause it"]
    assert short_steps_of("Pause it") == []


async def test_filter_keeps_all_tools_that_fit(context: PluginContext, meaning: Meaning) -> None:
    prefilter = SemanticPrefilter(context, limit=len(CATALOG))
    assert await chosen(prefilter, "Quo vadis?") == {entry.name for entry in CATALOG}
    assert meaning.texts == []


async def test_vectors_are_cached(context: PluginContext, meaning: Meaning) -> None:
    await chosen(one_less(context), "bills")
    made = len(meaning.texts)
    assert made == len(CATALOG) + 1
    await chosen(one_less(context), "bills")
    assert len(meaning.texts) == made + 1


async def test_task_of_many_steps_is_embedded_once(
    context: PluginContext, meaning: Meaning
) -> None:
    task = "Look for bills by their state, then send an email about them, and feed the lion twice."
    assert len(steps_of(task)) > 2
    prefilter = one_less(context)
    assert {"bank.invoices", "mail.send", "zoo.feed"} <= await chosen(prefilter, task)
    assert meaning.texts[len(CATALOG) :] == [task]


@pytest.mark.parametrize("damage", [b"", b"not numpy", b"\x93NUMPY\x01\x00"])
async def test_damaged_vector_cache_is_rebuilt(
    damage: bytes, context: PluginContext, tmp_path: Path
) -> None:
    await chosen(one_less(context), "bills")
    (kept,) = (tmp_path / "prefilter-semantic").glob("*.npy")
    kept.write_bytes(damage)
    assert "bank.invoices" in await chosen(one_less(context), "bills")
    assert kept.read_bytes() != damage


async def test_task_does_not_wait_for_vectors(context: PluginContext, meaning: Meaning) -> None:
    release = asyncio.Event()
    embed = meaning.embed

    async def slow(texts: Sequence[str], kind: str = "passage") -> Any:
        await release.wait()
        return await embed(texts, kind)

    meaning.embed = slow
    prefilter = one_less(context, wait_seconds=0.01)
    assert (await prefilter.select("feed it", CATALOG, ask)).names == ("zoo.feed",)
    release.set()

    async def happened() -> bool:
        return "bank.invoices" in (await prefilter.select("bills", CATALOG, ask)).names

    await until(happened)
    await prefilter.aclose()


async def test_task_that_waits_for_vectors_chooses_by_words_after_a_close(
    context: PluginContext, meaning: Meaning
) -> None:
    has_started = asyncio.Event()

    async def embed_forever(texts: Sequence[str], kind: str = "passage") -> Any:
        has_started.set()
        await asyncio.Event().wait()

    meaning.embed = embed_forever
    prefilter = one_less(context, wait_seconds=60.0)
    selection = asyncio.ensure_future(prefilter.select("feed it", CATALOG, ask))
    await has_started.wait()
    await prefilter.aclose()
    assert (await selection).names == ("zoo.feed",)


async def test_word_search_is_used_if_the_embedder_fails(
    context: PluginContext, meaning: Meaning
) -> None:
    meaning.fails = True
    assert await chosen(one_less(context), "feed it") == {"zoo.feed"}


async def test_refused_text_costs_only_the_vector_of_its_action(
    context: PluginContext, meaning: Meaning
) -> None:
    meaning.refused = "Feed an animal"
    for _ in range(2):
        prefilter = SemanticPrefilter(context, limit=1)
        assert await chosen(prefilter, "Which bills are late?") == {"bank.invoices"}
    assert await chosen(SemanticPrefilter(context, limit=1), "feed it") == {"zoo.feed"}
    assert meaning.texts.count("mail find: Find emails.") == 1, "the vectors are cached"


async def test_failure_for_one_text_is_not_cached(
    context: PluginContext, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = meaning.embed

    async def fail_for_one_text(texts: Sequence[str], kind: str = "passage") -> Any:
        if any("animal" in text for text in texts):
            raise LLMExecutionError("the server failed", status=500)
        return await embed(texts, kind)

    with monkeypatch.context() as patch:
        patch.setattr(meaning, "embed", fail_for_one_text)
        prefilter = SemanticPrefilter(context, limit=1)
        assert await chosen(prefilter, "Which bills are late?") == {"bank.invoices"}
    assert await chosen(SemanticPrefilter(context, limit=1), "the lion") == {"zoo.feed"}


async def test_vectors_are_computed_again_after_a_failure(
    context: PluginContext, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefilter_module, "PAUSE_SECONDS", 0)
    prefilter = SemanticPrefilter(context, limit=1)
    meaning.fails = True
    await prefilter.select("the lion", CATALOG, ask)
    meaning.fails = False
    assert await chosen(prefilter, "the lion") == {"zoo.feed"}


async def test_missing_named_embedder_raises(without: PluginContext) -> None:
    with pytest.raises(PluginError):
        SemanticPrefilter(without, embedding_model="nothing")
