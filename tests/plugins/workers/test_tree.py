"""Many workers under one parent: one budget, one inbox, one journal, also after a kill."""

import os
import signal
from collections import Counter

import pytest

from delf import Approved, tool
from delf import events as ev
from support.program import run


@pytest.mark.timeout(200)
async def test_fifty_workers_under_one_parent(bench):
    """Five leads with nine helpers each; every helper asks once, and all cost is one sum."""
    noted: list[int] = []

    @tool(effect="write")
    def note(n: int) -> int:
        """Note a number."""
        noted.append(n)
        return n

    bench.worker("lead", "connections: {workers: {allow_workers: [helper]}}\nbudget_usd: 0.5")
    bench.worker("helper", "connections: [note]\nbudget_usd: 0.05")
    for lead in range(5):
        helpers = ", ".join(f"workers.call('helper', 'note no {lead}{n}')" for n in range(9))
        code = f"print(sum(map(int, await asyncio.gather({helpers}))))"
        bench.answers(f"lead group {lead}", code, cost=0.01)
        for n in range(9):
            bench.answers(f"note no {lead}{n}", f"print(await note({10 * lead + n}))", cost=0.01)
    asked: Counter[str | None] = Counter()

    def person(request):
        asked[request.worker] += 1
        return Approved()

    calls = ", ".join(f"workers.call('lead', 'lead group {n}')" for n in range(5))
    code = f"print(sum(map(int, await asyncio.gather({calls}))))"
    bench.answers("the parent's task", code, cost=0.01)
    agent = bench.agent(note, on_confirm=person, budget_usd=1.0, max_children=9, timeout=150)
    async with agent:
        response = await agent.arun("the parent's task")
        assert agent.total_cost_usd == pytest.approx(0.51)
    expected = sorted(10 * lead + n for lead in range(5) for n in range(9))
    assert sorted(noted) == expected
    assert response.text == str(sum(expected)), response.error
    assert response.cost_usd == pytest.approx(0.51)
    assert asked == {"helper": 45}
    assert Counter(child.worker for child in bench.children) == {"lead": 5, "helper": 45}
    assert {e.worker for e in bench.of(ev.ApprovalRequested)} == {"helper"}


PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from delf import Agent, AlreadyDone
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script, USAGE
from delf.messages import ModelReply
from delf import tool
from delf_workers import Workers

done, kill_at = Path(sys.argv[1]), int(sys.argv[2])
CALLS = ", ".join(f"workers.call('noter', 'number {n} of ten')" for n in range(10))


@tool(effect="write", confirm=False)
def note(n: int) -> int:
    "Note."
    with done.open("a") as file:
        file.write(f"{n}\\n")
    if 0 < kill_at <= len(done.read_text().split()):  # threads may have noted at once
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def answer(request):
    said = request.messages[-1].text
    for n in range(10):
        if f"number {n} of ten" in said and "CALLS" not in said:
            code = f"print(await note({n}) + await note({n + 100}) + await note({n + 200}))"
            return ModelReply(text=script(code), model="scripted", usage=USAGE, cost_usd=0.25)
    code = f"print(sum(map(int, await asyncio.gather({CALLS}))))"
    return ModelReply(text=script(code), model="scripted", usage=USAGE, cost_usd=0.5)


def person(request):
    assert request.outcome_unknown and request.action == "note", request
    n = request.arguments["n"]
    return AlreadyDone(result=n) if str(n) in done.read_text().split() else True


async def main():
    host = TestHost.discover(environ=dict(os.environ))
    model = ScriptedModel(default=answer)
    host.provide(model.spec, lambda *_: model)
    workers = Workers(folders=[sys.argv[3]])
    agent = Agent(tools=[workers, note], llm="scripted", host=host, journal="sql",
                  on_confirm=person, timeout=150, budget_usd=50.0)
    async with agent:
        if len(sys.argv) > 4:
            response = await agent.aresume(sys.argv[4])
        else:
            response = await agent.arun("have it done", listeners=[
                lambda e: print(e.task_id, flush=True) if e.seq == 1 else None])
        print("END", response.text, response.cost_usd, agent.total_cost_usd, response.error)

asyncio.run(main())
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("kill_at", [1, 14, 30])
def test_a_killed_parent_with_ten_workers_goes_on_with_each(tmp_path, kill_at):
    """Nothing is noted twice, and the cost is what all model calls of both lives cost, once."""
    program, done = tmp_path / "program.py", tmp_path / "done"
    program.write_text(PROGRAM)
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers/noter.worker").write_text("---\nconnections: [note]\n---\nNote it.\n")
    database = f"sqlite:///{tmp_path / 'journal.db'}"
    environ = {**os.environ, "DELF_JOURNAL_SQL_URL": database}

    def work(kill, *more):
        command = [program, done, str(kill), tmp_path / "workers", *more]
        return run(command, cwd=tmp_path, env=environ, text=True, timeout=180)

    killed = work(kill_at)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    task_id = killed.stdout.split()[0]
    resumed = work(-1, task_id)
    total = sum(3 * n + 300 for n in range(10))
    assert f"END {total} 3.0 3.0 None" in resumed.stdout, resumed.stdout + resumed.stderr
    noted = sorted(map(int, done.read_text().split()))
    assert noted == sorted(n + more for n in range(10) for more in (0, 100, 200))
