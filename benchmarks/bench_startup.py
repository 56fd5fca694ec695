"""Start-up: imports and the quickest commands, as whole processes.

    python benchmarks/bench_startup.py [COUNT]

Byte code is compiled first, as an installation does. Milliseconds of wall time; the bare
interpreter is the floor.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

DELF = str(Path(sys.executable).with_name("delf"))
CASES = {
    "bare interpreter": [sys.executable, "-c", "pass"],
    "import delf": [sys.executable, "-c", "import delf"],
    "from delf import Agent, tool, LLMConfig": [
        sys.executable,
        "-c",
        "from delf import Agent, tool, LLMConfig",
    ],
    "delf --version": [DELF, "--version"],
    "delf --help": [DELF, "--help"],
    "delf plugins": [DELF, "plugins"],
}


def milliseconds(command: list[str]) -> float:
    """Return the wall time of a process in milliseconds."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environ)
    return (time.perf_counter() - started) * 1000


def main(count: int) -> None:
    """Measure and print."""
    floor = 0.0
    for name, command in CASES.items():
        milliseconds(command)
        times = [milliseconds(command) for _ in range(count)]
        low, middle = min(times), statistics.median(times)
        floor = floor or low
        print(
            f"{name:<40} min {low:7.1f} ms   median {middle:7.1f} ms   over bare {low - floor:6.1f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
