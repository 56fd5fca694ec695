"""The last step, learn: facts of a task that was done go into the memory store."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from delf.engine.approvals.identity import call_digest
from delf.engine.approvals.policy import TaskApprovals
from delf.engine.task import TaskState
from delf.engine.toolset import BoundAction
from delf.errors import DelfError
from delf.events import FactsLearned, Warned
from delf.messages import ModelRequest, user
from delf.protocols.approval import Approved, Edited
from delf.protocols.memory import DoneTask
from delf.tools.function import tool

_log = logging.getLogger(__name__)


async def learn(task: TaskState, approvals: TaskApprovals, answer: str) -> None:
    """Let the agent's memory learn from a task; a failure is a warning.

    Args:
        task: The task, which was done.
        approvals: Who is asked what may be remembered.
        answer: What the user is told.
    """
    if task.memory is None:
        return
    if any(isinstance(event, FactsLearned) for event in task.log.events):
        return  # before the process died that is resumed

    async def ask(question: str) -> str:
        request = ModelRequest(messages=(user(question),), purpose="learn")
        return (await task.models.ask(task.config.quick_llm, request)).text

    async def approve(facts: Sequence[str]) -> Sequence[str]:
        return await _ask(approvals, facts)

    safe = task.log.redactor.text
    done = DoneTask(
        task=safe(task.request.task),
        answer=safe(answer),
        known=task.context.facts,
        ask=ask,
        approve=approve if task.config.learn == "ask" else None,
    )
    async with task.log.step("learn"):
        try:
            facts = await task.memory.learn(done)
            if facts:
                await task.log.record(FactsLearned, facts=tuple(facts))
        except DelfError as error:
            await _warn(task, error.message)
        except Exception as error:
            task.log.redactor.log_failure(_log, "the step learn failed", error)
            await _warn(task, f"an unexpected {type(error).__name__}")


async def _warn(task: TaskState, why: str) -> None:
    await task.log.record(Warned, message=f"nothing was learned: {why}")


async def _ask(approvals: TaskApprovals, facts: Sequence[str]) -> list[str]:
    """Those that a person lets pass, perhaps in other words."""
    connection = tool(name="memory", effect="write", confirm=True)(_remember)
    (action,) = await connection.actions()
    bound = BoundAction(connection, action, "memory.save", asks=True)
    arguments = {"facts": list(facts)}
    digest = call_digest(bound.name, arguments)
    why = "what was learned in this task"
    match await approvals.decide(bound, arguments, digest, 0, why):
        case Approved():
            return list(facts)
        case Edited(arguments=edited):
            return [str(fact) for fact in edited.get("facts", ())]
        case _:
            return []


def _remember(facts: list[str]) -> None:
    """Remember facts for later tasks."""
