"""One task from a cold start, against a model server on loopback that answers at once.

    python benchmarks/bench_cold.py [COUNT] [--delf PYTHON] [--litellm PYTHON]
                                    [--smolagents PYTHON] [--delfhos PYTHON]

Whole processes, from their start to their end: ``delf run`` with model-http and with model-litellm,
and the same task in the other frameworks, each by the interpreter of an environment of its own;
delf's is this one, when omitted. All take turns, so that what else the machine does meets them
alike. Prints a table: the quickest and the median run, processor time with that of children, the
memory of the largest process, and how many bare interpreters the quickest takes. A script that
prints 42 is what every model answers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.openai_server import OpenAIServer, Reply

SMOLAGENTS = """
from smolagents import CodeAgent, OpenAIModel
model = OpenAIModel(model_id="gpt-4o-mini", api_base={url!r}, api_key="k")
print(CodeAgent(tools=[], model=model, verbosity_level=0).run("How much is 6 * 7?"))
"""
DELFHOS = """
import delfhos
config = delfhos.LLMConfig(model="gpt-4o-mini", base_url={url!r}, api_key="k")
agent = delfhos.Agent(tools=[], llm=config)
print(agent.run("How much is 6 * 7?"))
"""
MODEL = "gpt-4o-mini"
ANSWER = "Thought: multiply.\n```python\nprint(6 * 7)\n```"
FINAL = "Thought: multiply.\n<code>\nfinal_answer(6 * 7)\n</code>"


class Run(NamedTuple):
    """The time and memory that a process took, and its output."""

    seconds: float
    processor: float
    kilobytes: int
    message: str


def run(command: list[str], folder: str) -> Run:
    """Start a process, and wait for its end."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ |= {"HOME": folder, "OPENAI_API_KEY": "k", "NO_COLOR": "1"}
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    message = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    seconds = time.perf_counter() - started
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, message)


def row(name: str, runs: list[Run], floor: float) -> str:
    """Format a line of the table."""
    wrong = [run.message for run in runs if "42" not in run.message]
    if wrong:
        return f"| {name} | failed: {' '.join(wrong[0].split())[-200:]} | | | | |"
    quickest = min(run.seconds for run in runs)
    return (
        f"| {name} | {quickest:.2f} s | {statistics.median(r.seconds for r in runs):.2f} s "
        f"| {statistics.median(r.processor for r in runs):.2f} s "
        f"| {max(run.kilobytes for run in runs) // 1024} MB | {quickest / floor:.0f} |"
    )


def delf_in(python: str) -> list[str]:
    """Return the command that runs ``delf`` in an environment."""
    return [str(Path(python).with_name("delf"))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=5)
    parser.add_argument("--delf", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--litellm", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--smolagents", metavar="PYTHON")
    parser.add_argument("--delfhos", metavar="PYTHON")
    options = parser.parse_args()
    with (
        OpenAIServer(lambda _: Reply(text=ANSWER)) as server,
        OpenAIServer(lambda _: Reply(text=FINAL)) as other,
        tempfile.TemporaryDirectory() as folder,
    ):
        task = ["run", "How much is 6 * 7?", "--base-url", server.base_url, "--journal", "none"]
        cases: dict[str, list[str]] = {
            "bare Python": [options.delf, "-c", "print(42)"],
            "delf, model-http": [*delf_in(options.delf), *task, "--llm", MODEL],
            "delf, model-litellm": [
                *delf_in(options.litellm),
                *task,
                "--llm",
                "litellm/gpt-4o-mini",
            ],
        }
        if options.smolagents:
            code = SMOLAGENTS.format(url=other.base_url)
            cases["smolagents"] = [options.smolagents, "-c", code]
        if options.delfhos:
            code = DELFHOS.format(url=server.base_url)
            cases["Delfhos"] = [options.delfhos, "-c", code]
        for command in cases.values():
            run(command, folder)
        turns = [{name: run(cases[name], folder) for name in cases} for _ in range(options.count)]
        floor = min(turn["bare Python"].seconds for turn in turns)
        print("| | quickest | median | processor | memory | bare interpreters |")
        print("|---|---|---|---|---|---|")
        for name in cases:
            print(row(name, [turn[name] for turn in turns], floor))


if __name__ == "__main__":
    main()
