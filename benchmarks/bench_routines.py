"""A task the second time: asked again, run as a routine, and done again by other frameworks.

    python benchmarks/bench_routines.py [--others PYTHON] [--seconds 1.0] [--count 3]

The model is a server on loopback that answers after ``--seconds``: delf gets a script, the others
the calls that the same task takes. ``PYTHON`` is of an environment with ``langchain``,
``langchain-openai`` and ``pydantic-ai-slim[openai]``. Seconds are medians; tokens are the letters
of requests and answers divided by four.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from routine_tasks import TASKS

from delf import Agent, LLMConfig, tool

_LETTERS_OF_A_TOKEN = 4


class ModelServer(ThreadingHTTPServer):
    """Answers requests of chat completions for the tasks, as a good model does."""

    def __init__(self, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seconds = seconds
        self.letters: dict[str, int] = {}
        self.asked: dict[str, int] = {}

    @property
    def url(self) -> str:
        """Its address for clients of OpenAI."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def tokens(self, model: str) -> int:
        """The tokens of a model since they were asked for last."""
        self.asked.pop(model, None)
        return self.letters.pop(model, 0) // _LETTERS_OF_A_TOKEN


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer with a script, the next call, or the answer."""
        server = self.server
        assert isinstance(server, ModelServer)
        raw = self.rfile.read(int(self.headers["content-length"]))
        given: dict[str, Any] = json.loads(raw)
        name, _, kind = given["model"].partition("/")
        task = TASKS[name]
        done = sum(message["role"] == "tool" for message in given["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": task.answer}
        reason = "stop"
        if kind == "script":
            message["content"] = f"```python\n{task.script}\n```"
        elif done < len(task.calls):
            called, arguments = task.calls[done]
            function = {"name": called, "arguments": json.dumps(arguments)}
            call = {"id": f"call_{done}", "type": "function", "function": function}
            message, reason = (
                {"role": "assistant", "content": None, "tool_calls": [call]},
                "tool_calls",
            )
        time.sleep(server.seconds)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": given["model"]}
        body = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
        letters = len(raw) + len(json.dumps(message))
        server.letters[given["model"]] = server.letters.get(given["model"], 0) + letters
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Say nothing."""


@contextmanager
def serving(seconds: float) -> Generator[ModelServer]:
    """A server in a thread of its own."""
    with ModelServer(seconds) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def median(count: int, run: Callable[[], Any]) -> float:
    """The median of the seconds that something takes."""
    seconds: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def measured(server: ModelServer, name: str, count: int) -> list[str]:
    """Ask for a task, save it, and run it with other values."""
    task, model = TASKS[name], f"{name}/script"
    llm = LLMConfig(model=model, base_url=server.url, api_key="k", provider="openai")
    tools = [tool(effect="read", confirm=False)(function) for function in task.tools]
    with Agent(tools=tools, llm=llm, sandbox="local", allow_unpriced=True) as agent:
        agent.run(task.words).raise_for_status()
        server.tokens(model)
        asked = median(count, lambda: agent.run(task.words).raise_for_status())
        tokens = server.tokens(model) // count
        response = agent.run(task.words)
        routine = agent.save_routine(response.trace.task_id, name.replace(" ", "_"))
        server.tokens(model)
        named = {item.default: key for key, item in routine.routine.parameters.items()}
        inputs = {named[value]: other for value, other in task.other.items()}
        saved = median(count, lambda: routine(**inputs).raise_for_status())
        return [f"{asked:.2f} s", f"{tokens}", f"{saved:.3f} s", f"{server.tokens(model)}"]


def others(server: ModelServer, python: str, framework: str, count: int) -> dict[str, list[str]]:
    """The same tasks done again by another framework."""
    program = Path(__file__).with_name("other_frameworks.py")
    command = [python, str(program), framework, server.url, str(count + 1)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, seconds = json.loads(line)
        tokens = server.tokens(f"{name}/calls") // (count + 1)
        found[name] = [f"{statistics.median(seconds[1:]):.2f} s", f"{tokens}"]
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--others")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=3)
    given = parser.parse_args()
    heads = ["task", "delf, asked", "tokens", "routine", "tokens"]
    with tempfile.TemporaryDirectory() as folder, serving(given.seconds) as server:
        here = Path.cwd()
        rows = {name: [name] for name in TASKS}
        for framework in ("langchain", "pydantic-ai") if given.others else ():
            for name, cells in others(server, given.others, framework, given.count).items():
                rows[name] += cells
        os.environ["DELF_TRUST"] = os.path.realpath(folder)
        os.chdir(folder)
        Path("delf.toml").write_text("", encoding="utf-8")
        for name, row in rows.items():
            row[1:1] = measured(server, name, given.count)
        os.chdir(here)
    if given.others:
        heads += ["LangChain", "tokens", "pydantic-ai", "tokens"]
    for row in (heads, ["---"] * len(heads), *rows.values()):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
