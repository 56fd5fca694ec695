"""Every specification of a folder: time, memory, actions and prompt; with a flag, conformance.

    python benchmarks/bench_openapi.py [FOLDER] [--conformance] [--rounds N]

Each is compiled whole (``allow=True``) in a process of its own: ``cold`` is without the cache,
from the file to actions; ``cached`` from the cache; ``cpu`` is the processor's part of either,
which a busy machine disturbs less; ``MB`` what the process grew by at its peak;
``stubs`` the tokens of all its stubs as a prompt has them, and ``first 100`` without ``allow``
(four characters a token). ``valid`` is the share of generated requests, two or more for each
operation, that openapi-core accepts; ``unfit`` counts those that no values were found for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT.parent / "shared/data/openapi"
SPEC = re.compile(rb"""(?:^|[{,"'\s])(?:openapi|swagger)["']?\s*:\s*["']?[23]\.""")


def _peak() -> float:
    """Megabytes. What getrusage says would be the parent's, where that was larger."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


async def _load(spec: str, **settings: Any) -> tuple[tuple[float, float], Any, Any]:
    from delf_openapi import APITool

    tool = APITool(spec, name="api", base_url="http://127.0.0.1:9", **settings)
    started = time.perf_counter(), time.process_time()
    actions = await tool.actions()
    taken = time.perf_counter() - started[0], time.process_time() - started[1]
    return taken, tool, actions


async def _stubs(tool: Any) -> int:
    from delf.engine.toolset import load_toolset
    from delf.tools.stubs import render_stubs

    return len(render_stubs(bound.describe() for bound in await load_toolset([tool]))) // 4


async def measure(spec: str) -> dict[str, Any]:
    """One specification, in this process."""
    import delf_openapi.loading  # noqa: F401 - imports are not what is measured

    before = _peak()
    cold, tool, actions = await _load(spec, allow=True)
    memory = _peak() - before
    found = tool.inspect()
    result = {
        "actions": len(actions),
        "operations": found["total"] + len(found["warnings"]),
        "skipped": found["warnings"],
        "cold": cold[0],
        "cold_cpu": cold[1],
        "memory": memory,
        "all": await _stubs(tool),
    }
    _, tool, _ = await _load(spec)
    result["some"] = await _stubs(tool)
    with tempfile.TemporaryDirectory() as folder:
        kept = {"cache": True, "cache_dir": folder, "allow": True}
        await _load(spec, **kept)
        del tool, actions
        times = [(await _load(spec, **kept))[0] for _ in range(5)]
        result["cached"], result["cached_cpu"] = map(min, zip(*times, strict=True))
    return result


def row(spec: Path) -> dict[str, Any]:
    """One specification, in a process of its own; the best of three."""
    best: dict[str, Any] = {}
    for _ in range(3):
        command = [sys.executable, __file__, "--one", str(spec)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1]}
        found = json.loads(done.stdout)
        if best:
            for key in ("cold", "cold_cpu", "cached", "cached_cpu", "memory"):
                found[key] = min(found[key], best[key])
        best = found
    return best


def conformance(spec: Path, rounds: int) -> str:
    """The share of valid requests, and why others are not."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.openapi_conformance import judge_spec

    try:
        verdict = asyncio.run(judge_spec(str(spec), rounds=rounds))
    except Exception as error:  # references to other files, for one
        return f"unknown: the judge cannot read it: {type(error).__name__}: {error}"
    lines = [
        f"{verdict.valid}/{verdict.requests} = {verdict.percent:.2f} %, unfit {len(verdict.unfit)}"
    ]
    lines += [f"      {name}: {reason[:160]}" for name, reason in verdict.failures[:5]]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--conformance", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.one:
        print(json.dumps(asyncio.run(measure(str(options.one)))))
        return
    if not options.folder.is_dir():
        print(f"{options.folder} is not here")
        return
    specs = sorted(p for p in options.folder.rglob("*") if p.suffix in (".json", ".yaml"))
    specs = [p for p in specs if SPEC.search(data := p.read_bytes()) and b"paths" in data]
    heads = ("actions", "skipped", "stubs", "first 100")
    wide = " ".join(f"{head:>9}" for head in heads)
    times = f"{'cold s':>7} {'cpu':>6} {'cached ms':>9} {'cpu':>6}"
    print(f"{'specification':34} {times} {'MB':>5} {wide}")
    for spec in specs:
        found = row(spec)
        if "error" in found:
            print(f"{spec.name:34} {found['error'][:100]}")
            continue
        counts = (found["actions"], len(found["skipped"]), found["all"], found["some"])
        wide = " ".join(f"{count:9}" for count in counts)
        times = f"{found['cold']:7.3f} {found['cold_cpu']:6.3f} "
        times += f"{found['cached'] * 1000:9.1f} {found['cached_cpu'] * 1000:6.1f}"
        print(f"{spec.name[:34]:34} {times} {found['memory']:5.0f} {wide}")
        for reason in found["skipped"][:3]:
            print(f"      {reason[:140]}")
        if options.conformance:
            print(f"      valid {conformance(spec, options.rounds)}")
    print("targets: GitHub cold 0.5 s, cached 30 ms; Stripe YAML 2 s")


if __name__ == "__main__":
    main()
