"""Variables of a conversation: read when a task ends, and given to the next task's scripts.

Only plain data is kept. delf reads and restores variables by small scripts of its own, which work
in every sandbox and make no calls. The restored values are journalled, so that a resumed task gets
the same values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from delf.events import ModelCalled, VariablesRestored
from delf.protocols.conversation import KeptVariables
from delf.protocols.sandbox import Done, SandboxSession, ScriptHost
from delf_engine.task_run import TaskRun
from delf_engine.variables import MAX_TOTAL_LENGTH, described, is_plain, is_variable

# The maximum number of variables stored for a conversation's next task, newest first.
_MAX_VARIABLES: Final = 50
_TIMEOUT_SECONDS: Final = 5.0
_IMPORTS: Final = "import datetime\nfrom decimal import Decimal\nfrom uuid import UUID\n"


async def load_variables(run: TaskRun) -> None:
    """Load the variables that the conversation's last task stored."""
    conversation = run.request.conversation
    if conversation is None or not conversation.keeps_variables:
        return
    events = run.log.events
    recorded = next((event for event in events if isinstance(event, VariablesRestored)), None)
    if recorded is not None:
        run.conversation_variables = KeptVariables(
            values=dict(recorded.variables), trust=recorded.trust
        )
    # If the model of a resumed task was called without variables, the task goes on without them.
    elif not any(isinstance(event, ModelCalled) for event in events):
        run.conversation_variables = variables = conversation.variables()
        if variables.values:
            await run.log.record(
                VariablesRestored, variables=variables.values, trust=variables.trust
            )
    kinds = {name: described(value) for name, value in run.conversation_variables.values.items()}
    run.context = replace(run.context, variables=kinds)


async def restore_variables(session: SandboxSession, variables: Mapping[str, Any]) -> str | None:
    """Restore variables into a fresh session; return the error, if any."""
    lines = [f"{name} = {value!r}" for name, value in variables.items()]
    outcome = await session.execute(_IMPORTS + "\n".join(lines), ScriptHost())
    if isinstance(outcome, Done):
        return None
    return "variables could not be given to the scripts"


async def keep_variables(
    run: TaskRun, session: SandboxSession, type_names: Mapping[str, str]
) -> None:
    """Store the variables that a task's scripts assigned, if their values are plain data.

    Args:
        run: The task.
        session: The session that ran the scripts.
        type_names: A mapping from the name of each variable to the names of its types, separated by
            spaces.
    """
    conversation = run.request.conversation
    if conversation is None or not conversation.keeps_variables:
        return
    variables: dict[str, Any] = {}
    left_out: list[str] = []
    size = 0
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        newest_names = [*type_names][::-1][:_MAX_VARIABLES]
        for name in newest_names:
            if not is_variable(name):
                continue
            outcome = await session.execute(f'{{"kept": {name}}}', ScriptHost())
            outcome_value: Any = outcome.value if isinstance(outcome, Done) else None
            if not isinstance(outcome_value, dict) or not is_plain(outcome_value):
                continue
            value = cast("dict[str, Any]", outcome_value)["kept"]
            if type(value).__name__ not in type_names[name].split():
                # A session returns a text in place of a value that it cannot transfer, such as a
                # function.
                continue
            length = len(repr(value))
            if size + length > MAX_TOTAL_LENGTH:
                left_out.append(name)
                continue
            size += length
            variables[name] = value
    values = dict(reversed(variables.items()))
    conversation.keep_variables(KeptVariables(values=values, trust=run.trust))
    if left_out:
        await run.warn(f"too large to be kept for the next task: {', '.join(left_out)}")
