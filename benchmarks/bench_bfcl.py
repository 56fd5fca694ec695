"""BFCL's multi-turn tasks through the strategy `stream`, in both notations: the final states.

Needs bfcl-eval without what it needs itself, in an environment of its own:

    uv venv .venv-bfcl && uv pip install -p .venv-bfcl --no-deps bfcl-eval==2026.3.23
    uv pip install -p .venv-bfcl mpmath -e core -e libs/model-providers -e libs/sandbox \
        -e plugins/devkit -e plugins/strategy-codegen -e plugins/strategy-stream \
        -e plugins/sandbox-local
    .venv-bfcl/bin/python benchmarks/bench_bfcl.py [--entries N]

No model is asked: a scripted one makes the gold calls of each turn, one after the other. An entry
is right when the state of its services is in the end that of the same calls made directly.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import importlib
import inspect
import json
import time
from collections import Counter
from importlib import resources
from typing import Any

try:
    from bfcl_eval.constants.executable_backend_config import (
        CLASS_FILE_PATH_MAPPING,
        STATELESS_CLASSES,
    )
except ImportError:
    print("bfcl-eval is not installed here; the head of this file says how")
    raise SystemExit from None

from delf import Agent, tool
from delf.messages import ModelReply, ToolCall
from delf.testing import ScriptedModel, TestHost
from delf_strategy_stream.strategy import StreamStrategy

KINDS = ("base", "long_context", "miss_func", "miss_param")


def entries(kind: str) -> list[tuple[dict[str, Any], list[list[str]]]]:
    data = resources.files("bfcl_eval") / "data"
    name = f"BFCL_v4_multi_turn_{kind}.json"
    asked = [json.loads(line) for line in (data / name).read_text().splitlines()]
    gold = (data / "possible_answer" / name).read_text().splitlines()
    known = {item["id"]: item["ground_truth"] for item in map(json.loads, gold)}
    return [(entry, known[entry["id"]]) for entry in asked]


def services(entry: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in entry["involved_classes"]:
        made[name] = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in STATELESS_CLASSES:
            config = copy.deepcopy(entry["initial_config"].get(name, {}))
            made[name]._load_scenario(config, long_context="long_context" in entry["id"])
    return made


def methods(made: dict[str, Any]) -> dict[str, Any]:
    return {
        name: method
        for service in made.values()
        for name, method in inspect.getmembers(service, inspect.ismethod)
        if not name.startswith("_")
    }


def read(text: str, known: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A gold call: its name and arguments by name."""
    call = ast.parse(text, mode="eval").body
    name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
    names = list(inspect.signature(known[name]).parameters)
    given = dict(zip(names, map(ast.literal_eval, call.args), strict=False))
    return name, given | {k.arg: ast.literal_eval(k.value) for k in call.keywords}


def directly(entry: dict[str, Any], gold: list[list[str]]) -> dict[str, Any]:
    made = services(entry)
    known = methods(made)
    for name, arguments in (read(text, known) for turn in gold for text in turn):
        try:
            known[name](**copy.deepcopy(arguments))
        except Exception as error:  # a gold call that fails, fails in both
            _ = error
    return made


async def through_delf(entry: dict[str, Any], gold: list[list[str]], notation: str) -> Any:
    made = services(entry)
    known = methods(made)
    left: list[tuple[str, dict[str, Any]]] = []

    def answer(request: Any) -> Any:
        if not left:
            return "Done."
        name, arguments = left.pop(0)
        if notation == "tools":
            call = ToolCall(id=f"c{len(left)}", name=name, arguments=json.dumps(arguments))
            return ModelReply(text="", model="scripted", calls=(call,), cost_usd=0.0)
        return f"<execute>{json.dumps([{'name': name, 'args': arguments}])}</execute>"

    model = ScriptedModel(default=answer)
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    problems: list[str] = []
    async with Agent(
        tools=[tool(confirm=False)(method) for method in known.values()],
        llm="scripted",
        host=host,
        strategy=StreamStrategy(notation=notation),
        approvals=[],
    ) as agent:
        for asked, turn in zip(entry["question"], gold, strict=True):
            left[:] = [read(text, known) for text in turn]
            task = " ".join(message["content"] for message in asked) or "Go on."
            response = await agent.arun(task, 60)
            problems += [] if response.status else [str(response.error)]
            calls = response.trace.tool_calls
            problems += [f"{c.name}: {c.error}" for c in calls if c.status != "ok"]
    return made, problems


def state(made: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: value for key, value in vars(service).items() if not key.startswith("_")}
        for name, service in made.items()
    }


def differences(one: Any, other: Any) -> list[str]:
    return [
        f"{name}.{key}: {other[name][key]!r:.80} and not {one[name][key]!r:.80}"
        for name in one
        for key in one[name]
        if one[name][key] != other[name][key] and repr(one[name][key]) != repr(other[name][key])
    ]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1000, help="how many of each kind")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    given = parser.parse_args()
    most = given.entries
    started = time.perf_counter()
    print("| entries | notation | calls | states as the gold ones |\n|---|---|---|---|")
    rest: Counter[str] = Counter()
    for kind in given.kinds:
        chosen = entries(kind)[:most]
        for notation in ("markers", "tools"):
            right = calls = 0
            for entry, gold in chosen:
                wanted = state(directly(entry, gold))
                made, problems = await through_delf(entry, gold, notation)
                wrong = differences(wanted, state(made))
                calls += sum(map(len, gold))
                right += not wrong
                if wrong:
                    rest[f"{entry['id']}: {'; '.join([*problems, *wrong])[:300]}"] += 1
            print(f"| {kind} | {notation} | {calls} | {right} of {len(chosen)} |", flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s; the rest, by how many notations:\n")
    for line, count in sorted(rest.items()):
        print(f"- {count}: {line}")


if __name__ == "__main__":
    asyncio.run(main())
