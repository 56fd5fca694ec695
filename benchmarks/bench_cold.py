"""One task from a cold start, against a model server on loopback that answers at once.

    python benchmarks/bench_cold.py [COUNT] [--smolagents PYTHON] [--delfhos PYTHON]

Whole processes, from their start to their end: ``delf run`` with model-http and with model-litellm,
and the same task in the other frameworks, each by the interpreter of an environment of its own.
Prints a table: the quickest and the median run, the memory, and how many bare interpreters the
quickest takes. A script that prints 42 is what every model answers.
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
ANSWER = "Thought: multiply.\n```python\nprint(6 * 7)\n```"
FINAL = "Thought: multiply.\n<code>\nfinal_answer(6 * 7)\n</code>"


def run(command: list[str], folder: str) -> tuple[float, int, str]:
    """Seconds, kilobytes at most, and what a process said."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ |= {"HOME": folder, "OPENAI_API_KEY": "k", "NO_COLOR": "1"}
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    said = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    return time.perf_counter() - started, usage.ru_maxrss, said


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=5)
    parser.add_argument("--smolagents", metavar="PYTHON")
    parser.add_argument("--delfhos", metavar="PYTHON")
    options = parser.parse_args()
    with (
        OpenAIServer(lambda _: Reply(text=ANSWER)) as server,
        OpenAIServer(lambda _: Reply(text=FINAL)) as other,
        tempfile.TemporaryDirectory() as folder,
    ):
        delf = [str(Path(sys.executable).with_name("delf")), "run", "How much is 6 * 7?"]
        delf += ["--base-url", server.base_url, "--no-journal"]
        cases = {
            "bare Python": [sys.executable, "-c", "print(42)"],
            "delf, model-http": [*delf, "--llm", "gpt-4o-mini"],
            "delf, model-litellm": [*delf, "--llm", "litellm/gpt-4o-mini"],
        }
        if options.smolagents:
            code = SMOLAGENTS.format(url=other.base_url)
            cases["smolagents"] = [options.smolagents, "-c", code]
        if options.delfhos:
            code = DELFHOS.format(url=server.base_url)
            cases["Delfhos"] = [options.delfhos, "-c", code]
        print("| | quickest | median | memory | bare interpreters |\n|---|---|---|---|---|")
        floor = 0.0
        for name, command in cases.items():
            run(command, folder)
            runs = [run(command, folder) for _ in range(options.count)]
            wrong = [said for *_, said in runs if "42" not in said]
            if wrong:
                print(f"| {name} | failed: {' '.join(wrong[0].split())[-200:]} | | | |")
                continue
            times, sizes = [seconds for seconds, *_ in runs], [size for _, size, _ in runs]
            floor = floor or min(times)
            print(
                f"| {name} | {min(times):.2f} s | {statistics.median(times):.2f} s "
                f"| {max(sizes) // 1024} MB | {min(times) / floor:.0f} |"
            )


if __name__ == "__main__":
    main()
