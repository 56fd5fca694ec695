"""The last step, learn: facts of a task that was done go into the memory store."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from delf.engine.approvals.identity import call_digest
from delf.engine.approvals.policy import TaskApprovals
from delf.engine.calls.call import Call
from delf.engine.task_run import TaskRun
from delf.engine.toolset import BoundAction
from delf.events import FactsLearned, Step
from delf.protocols.approval import Approved, Edited
from delf.protocols.memory import DoneTask
from delf.tools.function import tool


async def learn(run: TaskRun, answer: str) -> None:
    """Let the agent's memory learn from a task that was done; a failure is a warning."""
    if run.memory is None:
        return
    if any(isinstance(event, FactsLearned) for event in run.log.events):
        return  # before the process died that is resumed

    async def approve(facts: Sequence[str]) -> Sequence[str]:
        return await _ask(run.approvals, facts)

    safe = run.log.redactor.text
    done = DoneTask(
        task=safe(run.request.task),
        answer=safe(answer),
        known=run.context.facts,
        ask=functools.partial(run.ask, "learn"),
        approve=approve if run.config.learn == "ask" else None,
        trust="outside" if run.has_read_others else "own",
    )
    async with run.log.step(Step.LEARN), run.unharmed("nothing was learned"):
        facts = await run.memory.learn(done)
        if facts:
            await run.log.record(FactsLearned, facts=tuple(facts))


async def _ask(approvals: TaskApprovals, facts: Sequence[str]) -> list[str]:
    """Those that a person lets pass, perhaps in other words."""
    connection = tool(name="memory", effect="write", confirm=True)(_remember)
    (action,) = await connection.actions()
    bound = BoundAction(connection, action, "memory.save", asks=True)
    arguments = {"facts": list(facts)}
    why = "what was learned in this task"
    asked = Call(0, bound, arguments, why, call_digest(bound.name, arguments))
    answer = await approvals.decide(asked)
    match answer.decision:
        case Approved():
            return list(facts)
        case Edited(arguments=edited):
            return [str(fact) for fact in edited.get("facts", ())]
        case _:
            return []


def _remember(facts: list[str]) -> None:
    """Remember facts for later tasks."""
