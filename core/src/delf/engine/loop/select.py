"""Step 2, select: which tools the model is shown."""

from __future__ import annotations

from delf.engine.task import TaskState
from delf.errors import PrefilterError
from delf.events import ToolsSelected, Warned
from delf.messages import ModelRequest, user
from delf.protocols.prefilter import Ask


async def select(task: TaskState) -> None:
    """Let the prefilter choose; without one, or when it fails, all tools stay."""
    past = task.replay.selected()
    chosen_by = "all"
    if past is not None:
        task.tools = task.tools.only(frozenset(past.actions))
    elif task.prefilter is not None:
        async with task.log.step("select"):
            try:
                catalog, words = task.tools.catalog(), task.request.task
                selection = await task.prefilter.select(words, catalog, _ask(task))
            except PrefilterError as error:
                await task.log.record(Warned, message=f"all tools are shown: {error.message}")
            else:
                task.tools = task.tools.only(selection.names)
                chosen_by = "prefilter"
    names = tuple(bound.name for bound in task.tools.actions if not bound.built_in)
    await task.log.record(ToolsSelected, actions=names, by=chosen_by)


def _ask(task: TaskState) -> Ask:
    async def ask(question: str) -> str:
        request = ModelRequest(messages=(user(question),), purpose="prefilter")
        return (await task.models.ask(task.config.quick_llm, request)).text

    return ask
