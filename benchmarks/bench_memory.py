"""Memory: how well a search finds, and how quick it is among many facts.

    python benchmarks/bench_memory.py [EMBEDDER] [--facts 1000,10000,100000] [--texts 3000]
        [--weights 0.2,0.4,0.6] [--prepare]

EMBEDDER as for ``bench_tool_search.py``.

Quality: a fact is the first paragraph of a docstring or of a manual page's description, its query
the summary line above it; a query's only right fact is its own. 500 queries for ``--texts`` facts
of each kind, and the same among as many facts as the largest of ``--facts``. Where
``../shared/data/tools`` is there, also requests that people made for one tool, whose fact is the
tool's name with its description. Words alone, vectors alone, both fused by their places (reciprocal
rank fusion), both as the plugin fuses them, and so with other weights for words.

Time: stores of so many facts, asked the same lines. ``search`` is without the embedder's own time
for the query, measured apart; ``processor`` is the mean of all threads' processor time, which
says more than the clock where a machine is busy; ``open`` is the first search of a fresh store,
with what it reads.

Vectors are kept in the user's cache; ``--prepare`` makes them and measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import texts
from bench_tool_search import DATA, embedder_of

from delf.machine.folders import user_folder
from delf.protocols.context import PluginContext
from delf.tools.ranking import plain_name
from delf_memory_semantic import fusion
from delf_memory_semantic import store as store_module
from delf_memory_semantic.database import FactDatabase
from delf_memory_semantic.store import SemanticStore

QUERIES = 500
AT = (1, 5, 10)
BATCH = 64


class Known:
    """An embedder that returns precomputed vectors."""

    model = "known"
    batch_size = 10_000

    def __init__(self, passages: dict[str, Any], queries: dict[str, Any]) -> None:
        self._vectors = {"passage": passages, "query": queries}
        self.dimension = len(next(iter(queries.values())))

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> Any:
        """Return the precomputed vectors of texts."""
        return np.stack([self._vectors[kind][text] for text in texts])


def peak_megabytes() -> float:
    """Return this process's peak memory so far in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


async def vectors_of(texts: Iterable[str], kind: str, embedder: Any) -> dict[str, Any]:
    """Return the vectors of texts, computing those that are not in the user's cache.

    Texts of one length are embedded together: a batch takes as long as its longest.
    """
    path = user_folder("cache") / "benchmarks" / "vectors.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = {text: digest_of(f"{embedder.model}\0{kind}\0{text}") for text in texts}
    with contextlib.closing(sqlite3.connect(path)) as kept:
        kept.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")
        found = {
            text: kept.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
            for text, key in keys.items()
        }
        missing = sorted((text for text, row in found.items() if row is None), key=len)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            rows = np.asarray(await embedder.embed(batch, kind), dtype="<f4")
            made = {text: (row.tobytes(),) for text, row in zip(batch, rows, strict=True)}
            found |= made
            with kept:
                pairs = [(keys[text], vector) for text, (vector,) in made.items()]
                kept.executemany("INSERT INTO vectors VALUES (?, ?)", pairs)
            if start // BATCH % 16 == 15:
                print(f"embedded {start + len(batch)} of {len(missing)}", flush=True)
    return {text: np.frombuffer(row[0], dtype="<f4") for text, row in found.items()}


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def by_places(
    _query: str, words: Mapping[int, float], likeness: Mapping[int, float], _text_of: Any
) -> dict[int, float]:
    """Return the scores of both rankings by reciprocal rank fusion."""
    scores: dict[int, float] = {}
    for ranking in words, dict(sorted(likeness.items(), key=lambda item: -item[1])):
        for place, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (60 + place)
    return {number: scores[number] for number in sorted(scores, key=lambda n: -scores[n])}


def weighed(weight: float) -> Callable[..., dict[int, float]]:
    """Return the plugin's fusion function with another weight."""
    honest = fusion.fuse_rankings

    def fused(*given: Any) -> dict[int, float]:
        with mock.patch.object(fusion, "_WORD_WEIGHT", weight):
            return honest(*given)

    return fused


async def quality(
    title: str,
    pairs: Sequence[tuple[str, str]],
    others: Sequence[str],
    known: Known | None,
    weights: Sequence[float],
) -> None:
    """Print how many facts are found by words, by vectors and by both."""
    cases: dict[str, Any] = {"words": None}
    if known:
        none = mock.patch.object(FactDatabase, "with_words", return_value={})
        cases["vectors"] = none
        cases["places"] = mock.patch.object(store_module, "fuse_rankings", by_places)
        cases["both"] = contextlib.nullcontext()
        cases |= {
            f"both, {weight}": mock.patch.object(store_module, "fuse_rankings", weighed(weight))
            for weight in weights
        }
    with tempfile.TemporaryDirectory() as folder:
        context = PluginContext(data_dir=Path(folder), embedder=lambda name: known)  # type: ignore[arg-type]
        store = SemanticStore(context, embedding_model=None if known else "off")
        facts = list(dict.fromkeys([*(fact for _, fact in pairs), *others]))
        for start in range(0, len(facts), 10_000):
            await store.save(facts[start : start + 10_000])
        for case, patch in cases.items():
            searching = SemanticStore(context, embedding_model="off" if patch is None else None)
            places: list[int] = []
            with patch or contextlib.nullcontext():
                for query, fact in pairs[:QUERIES]:
                    found = [f.content for f in await searching.search(query, max(AT), 0.0)]
                    places.append(found.index(fact) if fact in found else max(AT))
            await searching.aclose()
            recall = "  ".join(
                f"@{k} {100 * sum(p < k for p in places) / len(places):5.1f}" for k in AT
            )
            print(f"{title:14} {len(facts):6} facts  {case:10} {recall}", flush=True)
        await store.aclose()


def requests(most: int) -> Iterator[tuple[str, list[tuple[str, str]], list[str]]]:
    """Yield per data file: title, requests with the tool for each, and a sample of all tools."""
    for path in sorted(DATA.glob("tools/*.json")):
        data = json.loads(path.read_text())
        facts = {
            tool["id"]: f"{plain_name(tool['name'])}: {tool['description']}"
            for tool in data["tools"]
        }
        requests_with_tool = [
            (q["text"], facts[q["ids"][0]]) for q in data["queries"] if len(q["ids"]) == 1
        ]
        random.Random(7).shuffle(requests_with_tool)
        chance = random.Random(7)
        sampled_tools = chance.sample(list(facts.values()), min(most, len(facts)))
        yield path.stem.partition("-")[0], requests_with_tool[:QUERIES], sampled_tools


async def speed(facts: Sequence[str], asked: Sequence[str], known: Known | None, url: str) -> None:
    """Print the times of searches among many facts, and of the first search."""
    folder = Path(url.removeprefix("sqlite:///")).parent
    context = PluginContext(data_dir=folder, embedder=lambda name: known)  # type: ignore[arg-type]
    model = None if known else "off"
    store = SemanticStore(context, url, embedding_model=model)
    started = time.perf_counter()
    for start in range(0, len(facts), 10_000):
        await store.save(facts[start : start + 10_000])
    saved = time.perf_counter() - started
    await store.aclose()
    before = peak_megabytes()
    store = SemanticStore(context, url, embedding_model=model)
    started = time.perf_counter()
    await store.search(asked[0])
    opened = time.perf_counter() - started
    times: list[float] = []
    used = time.process_time()
    for query in asked[:200]:
        started = time.perf_counter()
        await store.search(query)
        times.append((time.perf_counter() - started) * 1000)
    used = (time.process_time() - used) / len(times) * 1000
    started = time.perf_counter()
    await asyncio.gather(*(store.search(query) for query in asked[:10]))
    ten = (time.perf_counter() - started) * 1000
    held = peak_megabytes() - before
    await store.aclose()
    print(
        f"{len(facts):6} facts  search {statistics.median(times):6.2f} ms (95 % within "
        f"{statistics.quantiles(times, n=20)[-1]:6.2f}, processor {used:6.2f})  "
        f"ten at once {ten:6.1f} ms  open {opened:5.2f} s  {held:5.0f} MB more  "
        f"saved in {saved:5.1f} s",
        flush=True,
    )


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("embedder", nargs="?")
    parser.add_argument("--facts", default="1000,10000,100000")
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--weights", default="")
    parser.add_argument("--prepare", action="store_true")
    options = parser.parse_args()
    counts = [int(count) for count in options.facts.split(",")]
    weights = [float(weight) for weight in options.weights.split(",") if weight]
    of_code, other_docstrings = texts.pairs_of(texts.docstrings())
    of_manuals, other_paragraphs = texts.pairs_of(texts.manuals())
    sets = [("docstrings", of_code[: options.texts], [])]
    sets += [("manuals", of_manuals[: options.texts], []), *requests(options.texts)]
    mixed_pairs = [*of_code[: QUERIES // 2], *of_manuals[: QUERIES // 2]]
    all_facts = [fact for _, found, _ in sets[:2] for _, fact in found]
    rest = (fact for _, fact in (*of_code[options.texts :], *of_manuals[options.texts :]))
    all_facts = list(dict.fromkeys([*all_facts, *rest, *other_docstrings, *other_paragraphs]))[
        : max(counts)
    ]
    mixed_queries = [query for query, _ in mixed_pairs]
    precomputed = None
    if options.embedder:
        embedder = embedder_of(options.embedder)
        queries = [*mixed_queries, *(query for _, found, _ in sets for query, _ in found[:QUERIES])]
        of_queries = await vectors_of(queries, "query", embedder)
        of_facts: dict[str, Any] = {}
        for _, found, distractors in sets:
            needed_texts = [*(fact for _, fact in found), *distractors]
            of_facts |= await vectors_of(needed_texts, "passage", embedder)
        of_facts |= await vectors_of(all_facts, "passage", embedder)
        precomputed = Known(of_facts, of_queries)
        if options.prepare:
            return
        started, used = time.perf_counter(), time.process_time()
        for query in mixed_queries[:50]:
            await embedder.embed([query], "query")
        took, used = time.perf_counter() - started, time.process_time() - used
        print(f"the embedder: {took * 20:.1f} ms a query, processor {used * 20:.1f}", flush=True)
    for title, pairs, distractors in sets:
        await quality(title, pairs, distractors, precomputed, weights)
    await quality("all", mixed_pairs, all_facts, precomputed, weights)
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            await speed(
                all_facts[:count], mixed_queries, precomputed, f"sqlite:///{folder}/facts.db"
            )


if __name__ == "__main__":
    asyncio.run(main())
