"""Set-up of connections by a model, once before their first task."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from dataclasses import replace

from delf.events import Step
from delf.llm import LLMConfig
from delf.machine.contexts import awaited_in
from delf.messages import Message, ModelReply, ModelRequest
from delf.protocols.connection import SetupAsk, SupportsSetup
from delf_engine.task_run import TaskRun


async def set_up_connections(run: TaskRun) -> None:
    """Set up the connections that still need it; a failure becomes a warning.

    Concurrent tasks wait until the set-up is done. If a task is cancelled during the set-up, the
    next task continues with the connections that are left.
    """
    shared = run.agent_tools
    if shared.awaiting_setup:
        async with shared.lock:
            await _set_up_remaining(run)
    # The task may have started with the tools from before the set-up.
    run.tools = shared.tools.with_builtins_of(run.tools)


async def _set_up_remaining(run: TaskRun) -> None:
    """Set up the connections that no other task has set up meanwhile."""
    remaining = run.agent_tools.awaiting_setup
    if not remaining:
        return
    async with run.log.step(Step.SETUP):
        while remaining:
            await _set_up(run, remaining[0])
            del remaining[0]  # only now: if this task is cancelled, the next task sets it up


async def _set_up(run: TaskRun, connection: SupportsSetup) -> None:
    """Set up a connection, and reload its tools if the set-up changed anything or failed.

    A failure becomes a warning.
    """
    problem = f"{connection.name} is not wholly set up"
    may_have_changed = True  # also if the set-up fails halfway
    async with run.failures_as_warnings(problem):
        # Use an empty context, because all tasks share what the connection opens here.
        may_have_changed = await awaited_in(Context(), _run_setup(connection, _build_ask(run)))
    if not may_have_changed:
        return
    async with run.failures_as_warnings(problem):
        run.agent_tools.tools = await run.agent_tools.tools.with_reloaded(connection)


async def _run_setup(connection: SupportsSetup, ask: SetupAsk) -> bool:
    """Call ``setup`` inside a coroutine, so that all of ``setup`` runs in the coroutine's context.

    ``setup`` may be a plain function that returns an awaitable. If the caller itself called this
    function, only the awaitable would run in the coroutine's context.
    """
    return await connection.setup(ask)


def _build_ask(run: TaskRun) -> SetupAsk:
    """Return the function by which a connection asks a model during its set-up."""
    asker = replace(run.models, stream=False)  # its pieces would mix with those of the answer

    async def ask(messages: Sequence[Message], llm: str | LLMConfig | None) -> ModelReply:
        config = run.config.quick_llm if llm is None else run.chosen_llm(llm)
        request = ModelRequest(messages=tuple(messages), purpose="setup")
        # The connection calls this function in an empty contextvars context. The call of the model
        # needs the context of the task.
        return await awaited_in(run.log.context, asker.ask(config, request))

    return ask
