"""Origins: what finding out where values came from costs a call, and a task of many calls.

    python benchmarks/bench_origins.py [CALLS]

First, one call with 2 kB of arguments after 1 MB of results, and what taking these in costs. Then
a task of CALLS calls and 10 kB of results for each of them: every second call reads mails, and the
others change something with a value and a text of what was read. That is processor time of the
host, the least of some rounds in which each setting has its turn.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from delf import tool
from delf.events import CallFinished, ModelCalled, ScriptGenerated
from delf_engine.origins.fold import Origins
from delf_engine.origins.values import values_of
from support import script_agent

RANDOM = random.Random(7)
ROUNDS = 8
WORDS = ["".join(RANDOM.choices("etaoinshrdlucm", k=RANDOM.randint(2, 10))) for _ in range(3000)]
SEEN: dict[str, Any] = {"task_id": "t", "seq": 0, "at": 0.0}
CODE = """for number in range({pairs}):
    rows = read()
    change(rows[7]["id"], rows[3]["body"][:200])
"""


def text(size: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=size // 4))[:size]


def mail() -> dict[str, Any]:
    return {
        "id": f"m-{RANDOM.randrange(10**8)}",
        "sender": f"{RANDOM.choice(WORDS)}{RANDOM.randrange(99)}@firm.example",
        "subject": text(40),
        "body": text(900),
        "amount": RANDOM.randrange(10**6) / 100,
    }


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def of_a_call() -> None:
    """Measure a call after 1 MB of results."""
    results = [[mail() for _ in range(100)] for _ in range(10)]
    events = [
        CallFinished(**SEEN, call_id=n, action="read", status="ok", result=result, duration_ms=1)
        for n, result in enumerate(results)
    ]
    started = [
        ModelCalled(**SEEN, purpose="generate", model="instant"),
        ScriptGenerated(**SEEN, code=CODE.format(pairs=500), attempt=1),
    ]
    origins = Origins("Pay the bill of 250 euros", list, lambda _: None)
    origins.follow([*started, *events])

    def of(arguments: dict[str, Any]) -> None:
        for _, value in values_of(arguments):
            origins.find(value)

    taken = seconds(lambda: of({"to": "nobody@nowhere.example"}))
    print(f"taking in 1 MB of results                    {taken * 1e3:8.1f} ms")
    row = results[5][50]
    for name, arguments in {
        "one text of 2 kB that is nowhere": {"body": text(2000)},
        "one text of 2 kB, half of a result": {"body": row["body"] + text(1000)},
        "ten fields that are nowhere": {
            **{f"field{n}": f"{text(150)} R-{RANDOM.randrange(10**6)}" for n in range(8)},
            "to": "nobody@nowhere.example",
            "phone": "+49 170 1234567",
        },
        "ten fields of results": {f"field{n}": results[n][n]["body"][:200] for n in range(10)},
    }.items():
        times = [seconds(partial(of, arguments)) for _ in range(20)]
        print(f"{name:<44} {statistics.median(times) * 1e3:8.2f} ms")


async def of_a_task(calls: int) -> None:
    """Measure a task of many calls, with each setting in turns."""
    mails = [[mail() for _ in range(20)] for _ in range(50)]
    pages = count()

    @tool(effect="read", confirm=False, trust={"id": "own", "*": "outside"})
    def read() -> list[dict[str, Any]]:
        """Read the next mails."""
        number = next(pages)
        return [{**row, "id": f"m-{number}-{n}"} for n, row in enumerate(mails[number % 50])]

    @tool(effect="write", confirm=False, sinks=["mail_id"])
    def change(mail_id: str, note: str) -> str:
        """Change a mail."""
        return "changed"

    code = CODE.format(pairs=calls // 2)
    times: dict[str, list[float]] = {"off": [], "show": [], "guard": []}
    for _ in range(ROUNDS):
        for flows, found in times.items():
            async with script_agent(tools=[read, change], flows=flows) as (agent, run):
                await run(agent, "print(1)")
                started = time.process_time()
                await run(agent, code)
                found.append(time.process_time() - started)
    for flows, found in times.items():
        more = (min(found) / min(times["off"]) - 1) * 100
        print(f"{calls:,} calls, flows={flows:<30} {min(found):8.3f} s ({more:+.1f} %)")


if __name__ == "__main__":
    of_a_call()
    asyncio.run(of_a_task(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
