"""Many workers under one parent: one budget, one inbox, one journal."""

from collections import Counter
from typing import Any

import pytest

from delf import Approved, tool
from delf import events as ev


@pytest.mark.timeout(200)
async def test_fifty_workers_share_one_parent(bench: Any):
    """Five leads have nine helpers each; each helper asks once, and all costs form one sum."""
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

    def person(request: Any):
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
