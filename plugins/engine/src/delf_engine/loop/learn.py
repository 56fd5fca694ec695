"""The last step, learn: store facts of a finished task in the memory store."""

from __future__ import annotations

import functools

from delf.events import FactsLearned, Step
from delf.protocols.memory import DoneTask
from delf_engine.task_run import TaskRun


async def learn(run: TaskRun, answer: str) -> None:
    """Let the agent's memory learn facts from a finished task; a failure becomes a warning."""
    if run.memory is None:
        return
    if any(isinstance(event, FactsLearned) for event in run.log.events):
        return  # learned before the process died
    redact = run.log.redactor.redact_text
    done_task = DoneTask(
        task=redact(run.request.task),
        answer=redact(answer),
        recalled_facts=run.context.facts,
        ask=functools.partial(run.ask, "learn"),
        trust=run.trust,
    )
    async with run.log.step(Step.LEARN), run.failures_as_warnings("nothing was learned"):
        facts = await run.memory.learn(done_task)
        if facts:
            await run.log.record(FactsLearned, facts=tuple(facts))
