"""Scripts that misbehave: each ends in its limit with a clear error, and the host goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delf import Agent, tool
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel

INTERNALS = "import re\nposix = re.enum.sys.modules['posix']\n"

SCRIPTS = {
    "busy loop": ("while True: pass", "CPU time"),
    "busy loop that yields": ("while True: await asyncio.sleep(0)", "CPU time"),
    "catches everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "CPU time",
    ),
    "too much memory": ("data = b'x' * 3_000_000_000", "memory"),
    "memory bit by bit": ("data = []\nwhile True: data.append(bytearray(10_000_000))", "memory"),
    "fork loop": (INTERNALS + "while True: posix.fork()", "not permitted"),
    "other programs": (INTERNALS + "posix.execv('/bin/sh', ['sh'])", "not permitted"),
    "100 MB of prints": ("for _ in range(1000): print('x' * 100_000)", "printed more than"),
    "one huge print": ("print('x' * 100_000_000)", "printed more than"),
    "deep recursion": ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
    "SystemExit": ("raise SystemExit", "printed nothing"),
    "SystemExit in a task": (
        "async def stop(): raise SystemExit(3)\nawait asyncio.gather(stop())",
        "the script ended itself: 3",
    ),
    "CancelledError": ("raise asyncio.CancelledError()", "cancelled itself"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "its own BaseException": ("class Odd(BaseException): pass\nraise Odd('why')", "Odd: why"),
    "leaves the process": (INTERNALS + "posix._exit(0)", "ended by itself"),
    "closes the wire": (INTERNALS + "posix.closerange(3, 60)\nprint(1)", "sandbox"),
    "garbage on the wire": (
        INTERNALS + "for fd in range(3, 20):\n"
        "    try: posix.write(fd, b'\\xff' * 64)\n"
        "    except OSError: pass\n"
        "await asyncio.sleep(5)",
        "sandbox",
    ),
    "crashes the interpreter": (INTERNALS + "posix.abort()", "SIGABRT"),
    "a huge file": ("add_to_output_files('big', b'x' * 60_000_000)", "at most"),
    "leaves the output folder": ("add_to_output_files('../big', b'x')", "cannot be an output"),
}


@tool(confirm=False)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def agent(delf_host: TestHost, scripted_model: ScriptedModel) -> Iterator[Agent]:
    limits = {"cpu_seconds": 0.5, "memory_bytes": 256 * 1024 * 1024}
    with Agent(
        tools=[add],
        llm="scripted",
        host=delf_host,
        sandbox="local",
        sandbox_config=limits,
        retry_count=0,
    ) as agent:
        yield agent


@pytest.mark.parametrize(("code", "error"), SCRIPTS.values(), ids=SCRIPTS.keys())
def test_it_ends_in_its_limit(
    agent: Agent, scripted_model: ScriptedModel, code: str, error: str
) -> None:
    scripted_model.writes(code, "print(await add(40, b=2))")
    response = agent.run("misbehave", timeout=20)
    assert not response.status
    assert error in (response.error or "")
    assert agent.run("the next task", timeout=20).text == "42"


def test_a_sleeping_script_ends_at_the_timeout(agent: Agent, scripted_model: ScriptedModel) -> None:
    scripted_model.writes("import time\ntime.sleep(1e9)", "print(await add(40, b=2))")
    response = agent.run("sleep", timeout=1)
    assert (response.error or "").startswith("Timeout")
    assert agent.run("the next task", timeout=20).text == "42"


def test_many_short_prints_arrive_complete(agent: Agent, scripted_model: ScriptedModel) -> None:
    scripted_model.writes("for i in range(200_000): print(i)")
    response = agent.run("print", timeout=20)
    assert response.text.split() == [str(i) for i in range(200_000)]


@pytest.mark.parametrize("count", [0, 10, 3000])
@pytest.mark.parametrize("how", ["sequential", "gathered"])
def test_every_call_is_in_the_trace(
    delf_host: TestHost, scripted_model: ScriptedModel, count: int, how: str
) -> None:
    codes = {
        "sequential": f"total = 0\nfor i in range({count}): total += await quick(i)\nprint(total)",
        "gathered": f"print(sum(await asyncio.gather(*(quick(i) for i in range({count})))))",
    }
    scripted_model.writes(codes[how])
    with Agent(tools=[quick], llm="scripted", host=delf_host, sandbox="local") as other:
        response = other.run("call", timeout=55).raise_for_status()
    odd = [n for n in range(count) if n % 7 != 3]
    assert response.text == str(sum(odd) + -1 * (count - len(odd)))
    calls = response.trace.tool_calls
    assert len(calls) == count
    by_argument = {call.arguments["n"]: call for call in calls}
    assert set(by_argument) == set(range(count))
    assert [n for n, call in by_argument.items() if call.status != "ok"] == []
    assert all(by_argument[n].result == (-1 if n % 7 == 3 else n) for n in range(count))


def test_a_tool_that_raised_is_no_success(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    @tool(confirm=False)
    async def shaky(n: int) -> int:
        """Fail for odd numbers."""
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n

    scripted_model.writes(
        "results = await asyncio.gather(*(shaky(i) for i in range(1000)), return_exceptions=True)\n"
        "print(sum(isinstance(r, ToolError) for r in results))"
    )
    with Agent(tools=[shaky], llm="scripted", host=delf_host, sandbox="local") as other:
        response = other.run("call", timeout=30).raise_for_status()
    assert response.text == "500"
    statuses = {c.arguments["n"]: (c.status, c.error) for c in response.trace.tool_calls}
    assert len(statuses) == 1000
    assert all(
        statuses[n] == (("error", f"ValueError: {n} is odd") if n % 2 else ("ok", None))
        for n in range(1000)
    )


@tool(confirm=False)
async def quick(n: int) -> int:
    """The number, or -1 for some."""
    return -1 if n % 7 == 3 else n
