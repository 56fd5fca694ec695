"""A task that ended at its timeout or budget goes on, and nothing is done twice."""

import asyncio
import json
from pathlib import Path

import pytest

from delf import Agent, CallContext, tool
from delf.errors import BudgetExceededError, TaskTimeoutError
from delf.messages import ModelReply
from support.program import delf, write_recording

TOOLS = '''
import time
from pathlib import Path
from delf import tool

@tool(effect="write", confirm=False)
def write(n: int) -> int:
    """Write a line."""
    with open("written.txt", "a") as file:
        file.write(f"{n}\\n")
    return n

@tool(effect="read", confirm=False)
async def look() -> str:
    """Look; the first time it takes long."""
    import asyncio
    first = not Path("looked.txt").exists()
    Path("looked.txt").touch()
    if first:
        await asyncio.Event().wait()
    return "seen"
'''
TWELVE = """
for n in range(12):
    await write(n)
    print("wrote", n)
print(await look())
await write(12)
"""
LINES = [str(n) for n in range(13)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def run(here: Path, *flags: str, scripts=(TWELVE,), **reply: object):
    llm = write_recording(here / "answers.jsonl", *scripts, **reply)
    flags = ("--tools", "tools.py", "--llm", llm, "--json", *flags)
    return json.loads(delf("run", "write twelve", *flags, cwd=here).stdout)


def written(here: Path) -> list[str]:
    return (here / "written.txt").read_text().splitlines()


def test_task_resumes_after_its_timeout(here):
    failed = run(here, "--timeout", "6")
    task = failed["trace"]["task_id"]
    assert failed["state"] == "failed"
    assert written(here) == LINES[:12]
    again = delf("resume", task, cwd=here)
    assert again.returncode == 1
    assert "Timeout" in again.stderr
    assert "delf resume ID --timeout SECONDS" in again.stderr
    assert written(here) == LINES[:12], "without more time nothing goes on"
    done = delf("resume", task, "--timeout", "60", cwd=here)
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, ["wrote 11", "seen"]), (
        done.stderr
    )
    assert written(here) == LINES
    listed = json.loads(delf("runs", "list", "--json", cwd=here).stdout)
    assert [task["state"] for task in listed] == ["done"]
    once_more = delf("resume", task, "--timeout", "60", cwd=here)
    assert (once_more.returncode, once_more.stdout) == (0, done.stdout)
    assert written(here) == LINES


@pytest.mark.parametrize("setting", ["agent.timeout=60", "timeout=60"])
def test_task_resumes_after_a_second_timeout(here, setting):
    failed = run(here, "--timeout", "6")
    task = failed["trace"]["task_id"]
    (here / "looked.txt").unlink()
    again = delf("resume", task, "--timeout", "2", cwd=here)
    assert again.returncode == 1
    done = delf("resume", task, "--set", setting, cwd=here)
    assert done.returncode == 0, done.stderr
    assert written(here) == LINES


FIRST = "for n in range(12):\n    await write(n)\nraise ValueError('not yet')"
SECOND = "print(await write(12))"


def test_task_resumes_after_its_budget_is_raised(here):
    failed = run(here, "--budget", "0.01", scripts=(FIRST, SECOND), cost_usd=0.01)
    assert "budget" in failed["error"]
    assert written(here) == LINES[:12]
    task = failed["trace"]["task_id"]
    unchanged = delf("resume", task, cwd=here)
    assert unchanged.returncode == 1
    write_recording(here / "answers.jsonl", SECOND, cost_usd=0.01)  # a new process begins it again
    done = delf("resume", task, "--budget", "1", "--json", cwd=here)
    assert json.loads(done.stdout)["cost_usd"] == pytest.approx(0.02)
    assert written(here) == LINES


def test_write_interrupted_by_a_timeout_requires_approval_on_resume(here):
    tools = TOOLS.replace('effect="read"', 'effect="write"')
    (here / "tools.py").write_text(tools)
    failed = run(here, "--timeout", "6")
    task = failed["trace"]["task_id"]
    asked = delf("resume", task, "--timeout", "60", cwd=here)
    assert asked.returncode == 3
    assert written(here) == LINES[:12]
    done = delf("resume", task, "--timeout", "60", "--settle", "again", cwd=here)
    assert done.returncode == 0, done.stderr
    assert written(here) == LINES


class TestAgent:
    def test_program_can_resume_its_timed_out_task(self, scripted_model, delf_host):
        written, looks = [], []

        @tool(effect="write", confirm=False)
        def write(n: int) -> None:
            """Write."""
            written.append(n)

        @tool(effect="read", confirm=False)
        async def look() -> str:
            """Look; the first time it takes long."""
            import asyncio

            looks.append(1)
            if len(looks) == 1:
                await asyncio.Event().wait()
            return "seen"

        scripted_model.writes("for n in range(12):\n    await write(n)\nprint(await look())")
        with Agent(tools=[write, look], llm="scripted", sandbox="local", host=delf_host) as agent:
            failed = agent.run("write", timeout=6)
            assert isinstance(failed.exception, TaskTimeoutError)
            cost = agent.total_cost_usd
            task = failed.trace.task_id
            assert isinstance(agent.resume(task).exception, TaskTimeoutError)
            done = agent.resume(task, timeout=60)
            assert (done.status, done.text, done.state) == (True, "seen", "done")
            assert agent.poll(task).state == "done"
            assert agent.total_cost_usd == cost
        assert written == list(range(12))

    def test_program_can_raise_the_budget_and_resume(self, scripted_model, delf_host):
        written = []

        @tool(effect="write", confirm=False)
        def write(n: int) -> None:
            """Write."""
            written.append(n)

        scripts = "await write(1)\nraise ValueError('not yet')", "print('done')"
        texts = [f"```python\n{script}\n```" for script in scripts]
        scripted_model.says(
            *(ModelReply(text=text, model="scripted", cost_usd=0.01) for text in texts)
        )
        options = {"llm": "scripted", "sandbox": "local", "host": delf_host}
        with Agent(tools=[write], budget_usd=0.01, **options) as agent:
            failed = agent.run("write")
            assert isinstance(failed.exception, BudgetExceededError)
            done = agent.resume(failed.trace.task_id, budget_usd=1)
            assert done.text == "done"
        assert written == [1]

    def test_child_task_resumes_with_its_parent(self, scripted_model, delf_host):
        written, looks = [], []

        @tool(effect="write", confirm=False)
        async def write(n: int) -> None:
            """Write; the third time it takes long."""
            written.append(n)

        @tool(effect="read", confirm=False)
        async def look() -> str:
            """Look; the first time it takes long."""
            looks.append(1)
            if len(looks) == 1:
                await asyncio.Event().wait()
            return "seen"

        @tool(effect="write", confirm=False)
        async def hand_over(context: CallContext) -> str:
            """Have it done by a child task."""
            return (await context.delegate("write and look", tools=[write, look])).text

        child = "for n in range(3):\n    await write(n)\nprint(await look())"
        scripted_model.writes("await write(7)\nprint(await hand_over())", child)
        options = {"llm": "scripted", "sandbox": "local", "host": delf_host}
        with Agent(tools=[write, hand_over], timeout=6, **options) as agent:
            failed = agent.run("do it")
            assert isinstance(failed.exception, TaskTimeoutError)
            done = agent.resume(failed.trace.task_id, timeout=60)
            assert (done.error, done.text) == (None, "seen")
        assert written == [7, 0, 1, 2]
