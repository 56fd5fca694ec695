"""Files beneath roots: small reads through one script, a long list, an edit of a large file.

.venv/bin/python benchmarks/bench_filesystem.py
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from delf import Agent
from delf.testing import ScriptedModel, TestHost
from delf_filesystem import Filesystem

READS = 10_000
FILES = 100_000
LARGE = 50_000_000


class Clock:
    """Time from now on, on the wall and of this process's processor."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        """Seconds on the wall."""
        return time.perf_counter() - self._wall

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {time.process_time() - self._processor:.2f} s of processor"


SCRIPTS = {
    "read one after another": (
        f"for n in range({READS}): await disk.read_file(f'here/{{n % 100}}.txt')"
    ),
    "read 64 at once": (
        f"async def some(start):\n"
        f"    for n in range(start, {READS}, 64): await disk.read_file(f'here/{{n % 100}}.txt')\n"
        "await asyncio.gather(*(some(n) for n in range(64)))"
    ),
}


async def read(folder: Path) -> None:
    here = folder / "here"
    here.mkdir()
    for n in range(100):
        (here / f"{n}.txt").write_text(f"file {n}\n" * 10)
    for name, code in SCRIPTS.items():
        host, model = TestHost.discover(), ScriptedModel()
        host.provide(model.spec, model.factory)
        model.writes("await disk.read_file('here/1.txt')", code)
        tools = [Filesystem(name="disk", roots={"here": here})]
        agent = Agent(tools=tools, llm="scripted", host=host, journal="none", timeout=300)
        async with agent:
            await agent.arun("warm up")
            clock = Clock()
            (await agent.arun("read")).raise_for_status()
            print(f"{name}: {READS / clock.seconds:,.0f} a second; {clock}")


def list_many(folder: Path) -> None:
    many = folder / "many"
    for n in range(FILES):
        if n % 1000 == 0:
            (many / f"{n // 1000:03}").mkdir(parents=True)
        os.close(os.open(many / f"{n // 1000:03}" / f"{n}.txt", os.O_CREAT | os.O_WRONLY))
    disk = Filesystem(roots={"many": many})
    clock = Clock()
    found = disk.list_files("many", limit=FILES)
    print(f"list {len(found):,} files: {clock}")


def edit(folder: Path) -> None:
    with (folder / "large.txt").open("wb") as file:
        for _ in range(LARGE // 1_000_000):
            file.write(b"line of a large file, 40 bytes together\n" * 25_000)
        file.write(b"the end\n")
    root = {"root": folder, "mode": "rw", "max_file_bytes": 2 * LARGE, "write_approval": False}
    disk = Filesystem(roots={"here": root})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = Clock()
    disk.edit_file("here/large.txt", "the end", "THE END")
    told = str(clock)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    print(f"edit {LARGE / 1e6:.0f} MB: {told}, {more:.0f} MB more memory")


def main() -> None:
    with TemporaryDirectory() as name:
        edit(Path(name))
        list_many(Path(name))
        asyncio.run(read(Path(name)))


if __name__ == "__main__":
    main()
