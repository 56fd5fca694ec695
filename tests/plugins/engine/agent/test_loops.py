"""Event loops that end, processes that fork: nothing is left behind, nothing hangs."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from delf import Agent, tool
from delf_devkit.testing.models import ScriptedModel

MakeAgent = Callable[..., Agent]

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture(autouse=True)
def quick_templates() -> None:
    """Every child counts here, so that templates start as they do for users."""


def children() -> set[int]:
    own = Path(f"/proc/{os.getpid()}/task")
    return {int(pid) for task in own.glob("*/children") for pid in task.read_text().split()}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@needs_proc
class TestClosedLoops:
    def test_loop_that_ends_takes_the_runtime_along(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.default = "```python\nprint(1)\n```"
        before = children()
        agent = make_agent()
        assert asyncio.run(agent.arun("x")).text == "1"
        assert children() == before
        open_files = descriptors()
        for _ in range(3):
            assert asyncio.run(agent.arun("x")).text == "1"
        gc.collect()
        assert descriptors() <= open_files
        agent.stop()
        assert children() == before


def test_forked_process_has_a_runtime_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from delf import Agent
from delf.testing import ScriptedModel, TestHost

model = ScriptedModel()
model.default = "```python\\nprint(1)\\n```"
host = TestHost.discover()
host.provide(model.spec, model.factory)
agent = Agent(llm="scripted", sandbox="local", host=host)
assert agent.run("x").text == "1"
child = os.fork()
if child == 0:
    print("child", agent.run("x").text, flush=True)
    agent.stop()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("parent", agent.run("x").text, flush=True)
agent.stop()
"""
    )
    result = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=40, check=False
    )
    assert (result.stdout, result.stderr) == ("child 1\nparent 1\n", "")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, pytest.fail.Exception])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_tool_that_raises_what_ends_programs_fails_like_any_other(
    make_agent: MakeAgent,
    scripted_model: ScriptedModel,
    kind: type[BaseException],
    is_async: bool,
) -> None:
    @tool(confirm=False)
    def plain() -> None:
        """Press Ctrl-C."""
        raise kind

    @tool(name="plain", confirm=False)
    async def waiting() -> None:
        """Press Ctrl-C."""
        raise kind

    scripted_model.writes("try:\n    await plain()\nexcept ToolError as e:\n    print(e)")
    agent = make_agent(waiting if is_async else plain, timeout=10)
    assert agent.run("x").text.startswith(kind.__name__)
