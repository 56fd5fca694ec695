"""Sandboxes side by side: start, calls, throughput, memory; in-process exec is the floor.

    python benchmarks/bench_sandboxes.py [--only local,docker,monty] [--quick]

Docker is measured on the engine of DOCKER_HOST with the base image of DELF_BENCH_BASE_IMAGE; both
transports. A sandbox that cannot be used here is left out, and said so.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from delf.errors import DelfError
from delf.protocols.sandbox import Limits, Unavailable
from delf_devkit.testing.scripts import RecordingScriptHost

MB = 2**20
LIMITS = Limits(cpu_seconds=600, frame_bytes=64 * MB)
PIECE = "x" * (10 * MB)
ROWS = (
    "cold start, ms",
    "of it the engine's own, ms",
    "warm start, ms",
    "call, sequential, µs",
    "call, gathered, µs",
    "100 MB of results, MB/s",
    "idle session, MB",
)


def make_host() -> RecordingScriptHost:
    """Tools that do nothing."""
    return RecordingScriptHost({"add": lambda a, b: a + b, "give": lambda: PIECE})


class Exec:
    """Runs scripts in this process: no sandbox, but what one can at best cost."""

    async def run(self, code: str, tools: dict[str, Any]) -> None:
        """Run a script."""
        compiled = compile(code, "<script>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(compiled, {"__name__": "__main__", "asyncio": asyncio, **tools})
        if inspect.isawaitable(result):
            await result


async def measure_exec(count: int) -> dict[str, float]:
    """The floor."""

    async def add(a: int, b: int) -> int:
        return a + b

    async def give() -> str:
        return PIECE

    run = Exec().run
    tools = {"add": add, "give": give}
    return {
        "warm start, ms": await best(lambda: run("print", tools)) * 1e3,
        "call, sequential, µs": await best(lambda: run(sequential(count), tools)) / count * 1e6,
        "call, gathered, µs": await best(lambda: run(gathered(count), tools)) / count * 1e6,
    }


async def measure(make: Callable[[int], Any], count: int, idle: int) -> dict[str, float]:
    """One backend's figures.

    Args:
        make: Makes a backend with a pool of this size.
        count: How many calls.
        idle: How many sessions to hold at once.
    """
    figures: dict[str, float] = {}
    backend = make(0)
    host = make_host()
    try:
        await (await backend.open(host.spec(limits=LIMITS))).aclose()  # builds, connects
        figures["cold start, ms"] = await first_bytes(backend, 5) * 1e3
        if hasattr(backend, "engine"):
            own = await backend.engine.run(engine_start, backend)
            figures["of it the engine's own, ms"] = own * 1e3
        session = await backend.open(host.spec(limits=LIMITS))

        async def run(code: str) -> None:
            outcome = await session.execute(code, host)
            assert type(outcome).__name__ == "Done", outcome
            host.calls.clear()

        await run(gathered(10))
        figures["call, sequential, µs"] = await best(lambda: run(sequential(count))) / count * 1e6
        figures["call, gathered, µs"] = await best(lambda: run(gathered(count))) / count * 1e6
        seconds = await best(lambda: run("for _ in range(10): await give()"))
        figures["100 MB of results, MB/s"] = 100 / seconds
        await session.aclose()
        figures["idle session, MB"] = await memory(backend, idle)
    finally:
        await backend.aclose()
    backend = make(2)
    try:
        figures["warm start, ms"] = await warm(backend) * 1e3
    finally:
        await backend.aclose()
    return figures


def sequential(count: int) -> str:
    """A script that calls one after another."""
    return f"for i in range({count}): await add(i, b=2)"


def gathered(count: int) -> str:
    """A script that calls all at once."""
    return f"import asyncio\nawait asyncio.gather(*[add(i, b=2) for i in range({count})])\nNone"


async def best(work: Callable[[], Awaitable[None]], times: int = 3) -> float:
    """The seconds of the best of some runs."""
    found: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        await work()
        found.append(time.perf_counter() - started)
    return min(found)


async def first_bytes(backend: Any, times: int) -> float:
    """Seconds from opening a session to the first byte that its script prints."""
    return statistics.median([await first_byte(backend) for _ in range(times)])


async def first_byte(backend: Any) -> float:
    """The same, once; the session is closed afterwards."""
    host = make_host()
    started = time.perf_counter()
    session = await backend.open(host.spec(limits=LIMITS))
    arrived: list[float] = []
    host.printed = lambda text: arrived.append(time.perf_counter())  # type: ignore[method-assign]
    await session.execute("print('first')", host)
    await session.aclose()
    return arrived[0] - started


def engine_start(backend: Any) -> float:
    """Seconds that the engine takes to make and start a container like ours that does nothing."""
    client, image = backend.engine.client(), backend._recipe(()).tag
    config = backend._confinement.host_config(client, LIMITS, None)
    found: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        made = client.create_container(
            image, entrypoint=["python3", "--version"], user="65534:65534", host_config=config
        )
        client.start(made["Id"])
        found.append(time.perf_counter() - started)
    return statistics.median(found)


async def warm(backend: Any) -> float:
    """Seconds to the first byte where a session waits."""
    found: list[float] = []
    for _ in range(5):
        await backend.warm_up(make_host().spec(limits=LIMITS))
        filling = getattr(backend, "_filling", None)
        if filling is not None:
            await filling
        found.append(await first_byte(backend))
    return statistics.median(found)


async def memory(backend: Any, count: int) -> float:
    """Megabytes of one of many idle sessions: what their processes have to themselves."""
    before = own_memory()
    host = make_host()
    sessions = [await backend.open(host.spec(limits=LIMITS)) for _ in range(count)]
    for session in sessions:
        await session.execute("print('ready')", host)
    used = own_memory() - before
    for session in sessions:
        await session.aclose()
    return used / count / MB


def own_memory() -> int:
    """Bytes of all processes of this machine, shared pages in parts (PSS)."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/smaps_rollup"):
        try:
            lines = path.read_text("ascii").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def backends() -> dict[str, Callable[[int], Any]]:
    """How to make each backend, by the heading of its column."""

    def local(pool: int) -> Any:
        from delf_sandbox_local.backend import LocalBackend

        return LocalBackend(pool_size=pool)

    def monty(pool: int) -> Any:
        from delf_sandbox_monty.backend import MontyBackend

        return MontyBackend()

    def docker(transport: Any) -> Callable[[int], Any]:
        def make(pool: int) -> Any:
            from delf_sandbox_docker.backend import DEFAULT_BASE, DockerBackend

            base = os.environ.get("DELF_BENCH_BASE_IMAGE", DEFAULT_BASE)
            return DockerBackend(base_image=base, pool_size=pool, transport=transport)

        return make

    return {
        "local": local,
        "monty": monty,
        "docker/socket": docker("socket"),
        "docker/stdio": docker("stdio"),
    }


async def main(only: str, count: int, idle: int) -> None:
    """Measure and print a table."""
    columns: dict[str, dict[str, float]] = {"exec": await measure_exec(count)}
    for name, make in backends().items():
        if only and name.partition("/")[0] not in only.split(","):
            continue
        try:
            probe = make(0)
            state = await probe.available()
            await probe.aclose()
            if isinstance(state, Unavailable):
                print(f"{name}: left out, {state.reason}")
                continue
            columns[name] = await measure(make, count, idle if name != "docker/stdio" else 2)
        except (DelfError, ImportError) as error:
            print(f"{name}: left out, {error}")
    print(f"{'':26}" + "".join(f"{name:>15}" for name in columns))
    for row in ROWS:
        cells = [
            f"{figures[row]:15,.2f}" if row in figures else f"{'-':>15}"
            for figures in columns.values()
        ]
        print(f"{row:26}" + "".join(cells))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of sandboxes, with commas")
    parser.add_argument("--quick", action="store_true", help="fewer calls and sessions")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.only, 300 if chosen.quick else 3000, 5 if chosen.quick else 50))
