"""Step 2, select: which tools the model is shown."""

from __future__ import annotations

from delf.engine.task import TaskRun
from delf.errors import PrefilterError
from delf.events import ToolsSelected, Warned
from delf.messages import ModelRequest, user
from delf.protocols.prefilter import Ask


async def select(run: TaskRun) -> None:
    """Let the prefilter choose; without one, or when it fails, all tools stay."""
    past = run.replay.selected()
    chosen_by = "all"
    if past is not None:
        run.tools = run.tools.only(frozenset(past.actions))
    elif run.prefilter is not None:
        async with run.step("select"):
            try:
                selection = await run.prefilter.select(run.task, run.tools.catalog(), _ask(run))
            except PrefilterError as error:
                await run.log.record(Warned, message=f"all tools are shown: {error.message}")
            else:
                run.tools = run.tools.only(selection.names)
                chosen_by = "prefilter"
    names = tuple(bound.name for bound in run.tools.actions if not bound.built_in)
    await run.log.record(ToolsSelected, actions=names, by=chosen_by)


def _ask(run: TaskRun) -> Ask:
    async def ask(question: str) -> str:
        request = ModelRequest(messages=(user(question),), purpose="prefilter")
        return (await run.asker.ask(run.config.quick_llm, request)).text

    return ask
