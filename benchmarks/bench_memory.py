"""Memory: how quick a search is among many facts, and how well it finds.

    python benchmarks/bench_memory.py [EMBEDDER] [--facts 1000,10000,100000] [--texts 3000]

EMBEDDER as for ``bench_tool_search.py``. The texts are docstrings of the Python installation and
the packages in it, read from the source files.

Quality: a fact is the first paragraph after the summary line of a docstring, its query that line;
a query's only right fact is its own. ``--texts`` facts are asked 500 such queries, by words alone,
by vectors alone and by both.

Time: stores of so many different paragraphs, asked the same lines; vectors of the facts beyond
``--texts`` are those of others, disturbed, since only the time counts there. ``search`` is without
the embedder's own time for the query, which is told apart; ``open`` is the first search of a fresh
store, with what it reads. Vectors are kept in the user's cache.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import hashlib
import random
import re
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_openapi import _peak as peak_megabytes
from bench_tool_search import embedder_of
from platformdirs import user_cache_path

from delf.protocols.context import PluginContext
from delf_memory_semantic.database import FactDatabase
from delf_memory_semantic.store import SemanticStore

QUERIES = 500
AT = (1, 5, 10)
MOST = 120_000
"""Paragraphs that are looked for."""


def docstrings() -> Iterator[str]:
    """The docstrings of all modules, in the order of their paths."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                yield ast.get_docstring(node) or ""


def texts() -> tuple[list[tuple[str, str]], list[str]]:
    """Queries with their facts, and other paragraphs; each text once, in an order of chance."""
    pairs: dict[str, str] = {}
    others: dict[str, None] = {}
    for text in docstrings():
        query, *rest = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
        fact = rest[0] if rest else ""
        if 30 <= len(query) <= 200 and 60 <= len(fact) <= 800 and ">>>" not in fact:
            pairs.setdefault(fact, query)
        others.update(dict.fromkeys(part for part in rest if 40 <= len(part) <= 800))
        if len(others) > MOST:
            break
    found = [(query, fact) for fact, query in pairs.items()]
    random.Random(7).shuffle(found)
    return found, [text for text in others if text not in pairs]


class Known:
    """An embedder of which all vectors are made already."""

    model = "known"
    batch_size = 10_000

    def __init__(self, vectors: dict[str, Any]) -> None:
        self._vectors = vectors
        self.dimension = len(next(iter(vectors.values())))

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> Any:
        """The vectors."""
        return np.stack([self._vectors[text] for text in texts])


async def vectors_of(texts: Sequence[str], kind: str, embedder: Any) -> Any:
    """The vectors of texts, from the user's cache where they were made before."""
    digest = hashlib.sha256("\0".join((embedder.model, kind, *texts)).encode()).hexdigest()[:24]
    path = user_cache_path("delf") / "benchmarks" / f"{digest}.npy"
    if not path.exists():
        rows = [
            await embedder.embed(texts[start : start + 64], kind)
            for start in range(0, len(texts), 64)
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.concatenate(rows).astype("float32"))
    return np.load(path)


async def quality(pairs: Sequence[tuple[str, str]], known: Known | None, folder: Path) -> None:
    """What is found, by words, by vectors and by both."""
    context = PluginContext(data_dir=folder, embedder=lambda name: known)  # type: ignore[arg-type]
    store = SemanticStore(context, embedding_model=None if known else "off")
    await store.save([fact for _, fact in pairs])
    honest = FactDatabase.with_words
    cases = {"words": "off", "both": None, "vectors": None} if known else {"words": "off"}
    for case, model in cases.items():
        if case == "vectors":
            FactDatabase.with_words = lambda self, query, limit: {}  # type: ignore[method-assign]
        searching = SemanticStore(context, embedding_model=model)
        places: list[int] = []
        for query, fact in pairs[:QUERIES]:
            found = [f.content for f in await searching.search(query, max(AT), 0.0)]
            places.append(found.index(fact) if fact in found else max(AT))
        await searching.aclose()
        recall = "  ".join(
            f"@{k} {100 * sum(p < k for p in places) / len(places):5.1f}" for k in AT
        )
        print(f"{len(pairs):6} facts  {case:8}{recall}", flush=True)
    FactDatabase.with_words = honest
    await store.aclose()


async def speed(facts: Sequence[str], asked: Sequence[str], known: Known | None, url: str) -> None:
    """How long searches take among so many facts, and a first one."""
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
    for query in asked[:200]:
        started = time.perf_counter()
        await store.search(query)
        times.append((time.perf_counter() - started) * 1000)
    started = time.perf_counter()
    await asyncio.gather(*(store.search(query) for query in asked[:10]))
    ten = (time.perf_counter() - started) * 1000
    held = peak_megabytes() - before
    await store.aclose()
    print(
        f"{len(facts):6} facts  search {statistics.median(times):6.2f} ms (95 % within "
        f"{statistics.quantiles(times, n=20)[-1]:6.2f})  ten at once {ten:6.1f} ms  "
        f"open {opened:5.2f} s  {held:5.0f} MB more  saved in {saved:5.1f} s",
        flush=True,
    )


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("embedder", nargs="?")
    parser.add_argument("--facts", default="1000,10000,100000")
    parser.add_argument("--texts", type=int, default=3000)
    given = parser.parse_args()
    pairs, others = texts()
    pairs = pairs[: given.texts]
    asked = [query for query, _ in pairs[:QUERIES]]
    facts = [*(fact for _, fact in pairs), *others]
    known = None
    if given.embedder:
        embedder = embedder_of(given.embedder)
        rows = await vectors_of([fact for _, fact in pairs], "passage", embedder)
        chance = np.random.default_rng(7)
        more = rows[chance.integers(len(rows), size=len(others))]
        more = more + chance.normal(scale=0.03, size=more.shape).astype("float32")
        more /= np.linalg.norm(more, axis=1, keepdims=True)
        vectors = dict(zip(facts, [*rows, *more], strict=True))
        made = await vectors_of(asked, "query", embedder)
        known = Known({**vectors, **dict(zip(asked, made, strict=True))})
        started = time.perf_counter()
        for query in asked[:50]:
            await embedder.embed([query], "query")
        took = (time.perf_counter() - started) / 50 * 1000
        print(f"the embedder: {took:.1f} ms a query", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        await quality(pairs, known, Path(folder))
    for count in map(int, given.facts.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            await speed(facts[:count], asked, known, f"sqlite:///{folder}/facts.db")


if __name__ == "__main__":
    asyncio.run(main())
