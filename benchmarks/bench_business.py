"""Input tokens of the four business tasks of a published benchmark of agent frameworks.

Needs a checkout of the public repository DavidFraifer/BenchmarkDelfhos:

    python benchmarks/bench_business.py CHECKOUT

Its tasks and its tools are taken as they are; Delfhos in them is delf. No model is asked: the
scripted one answers with a script at once, as a good model does, and what it was sent is counted
as ``bench_prompt.py`` counts.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from bench_prompt import counter

import delf
from support import REQUESTS, SCRIPTS, script_agent

TASKS = {
    1: ("categorize_expenses",),
    2: ("calculate_quarterly_roi", "generate_executive_summary"),
    3: ("analyze_headcount", "generate_workforce_report"),
    4: ("parse_and_sort_tickets", "generate_action_plan"),
}
"""The tools of each task, in the published runner."""


def published(checkout: Path) -> tuple[ModuleType, ModuleType]:
    """Return the modules with tasks and tools from a checkout."""
    sys.path.insert(0, str(checkout))
    sys.modules["delfhos"] = delf
    config: Any = ModuleType("benchmark.config")  # the real one wants keys
    config.MODEL, config.NUM_RUNS = "instant", 1
    sys.modules["benchmark.config"] = config
    tasks = importlib.import_module("benchmark.tasks")
    return tasks, importlib.import_module("benchmark.run_delfhos")


async def main(checkout: Path) -> None:
    """Measure and print."""
    tasks, runner = published(checkout)
    how, count = counter()
    total = 0
    for number, names in TASKS.items():
        tools = [getattr(runner, name) for name in names]
        async with script_agent(tools=tools) as (agent, _run):
            SCRIPTS.append("print(1)")
            before = len(REQUESTS)
            (await agent.arun(getattr(tasks, f"TASK{number}_PROMPT"))).raise_for_status()
        sent = [message.text for request in REQUESTS[before:] for message in request.messages]
        tokens = sum(map(count, sent))
        total += tokens
        print(f"{getattr(tasks, f'TASK{number}_NAME'):30} {tokens:6} tokens ({how})")
    print(f"{'all four':30} {total:6}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("there is no checkout of the benchmark here; the head of this file says how")
        raise SystemExit
    asyncio.run(main(Path(sys.argv[1])))
