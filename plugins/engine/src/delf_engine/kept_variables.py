"""Variables of a conversation: read when a task ends, and given to the next task's scripts.

Only plain data is kept. delf reads and restores variables by small scripts of its own, which work
in every sandbox and make no calls. The restored values are journalled, so that a resumed task gets
the same values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, cast

from delf.events import Event, ModelCalled, VariablesRestored
from delf.protocols.conversation import KeptVariables
from delf.protocols.sandbox import Done, SandboxSession, ScriptHost
from delf_engine.task_run import TaskRun
from delf_engine.variables import MAX_TOTAL_LENGTH, is_plain, is_variable, type_for_model

# The maximum number of variables stored for a conversation's next task, newest first.
_MAX_VARIABLES: Final = 50
_TIMEOUT_SECONDS: Final = 5.0
_NOT_PLAIN: Final[Any] = object()
_IMPORTS: Final = "import datetime\nfrom decimal import Decimal\nfrom uuid import UUID\n"


async def load_variables(run: TaskRun) -> None:
    """Load the variables that the conversation's last task stored.

    A new task records the variables in the journal; a resumed task takes the recorded variables.
    Scripts get the values, and the model's prompt gets only a description of each value.
    """
    conversation = run.request.conversation
    if conversation is None or not conversation.keeps_variables:
        return
    recorded = _recorded_variables(run.log.events)
    variables = conversation.variables() if recorded is None else recorded
    run.conversation_variables = variables
    if recorded is None and variables.values:
        await run.log.record(VariablesRestored, variables=variables.values, trust=variables.trust)
    kinds = {name: type_for_model(value) for name, value in variables.values.items()}
    run.context = replace(run.context, variables=kinds)


def _recorded_variables(events: Sequence[Event]) -> KeptVariables | None:
    """Return the variables that a resumed task started with; None for a task that starts now."""
    for event in events:
        if isinstance(event, VariablesRestored):
            return KeptVariables(values=dict(event.variables), trust=event.trust)
    has_asked_model = any(isinstance(event, ModelCalled) for event in events)
    if has_asked_model:
        return KeptVariables(values={})  # the task started without variables
    return None


async def restore_variables(session: SandboxSession, variables: Mapping[str, Any]) -> str | None:
    """Restore variables into a fresh session; return the error, if any."""
    lines = [f"{name} = {value!r}" for name, value in variables.items()]
    # The repr of a date or a Decimal needs the imports.
    outcome = await session.execute(_IMPORTS + "\n".join(lines), ScriptHost())
    if isinstance(outcome, Done):
        return None
    return "variables could not be given to the scripts"


async def _plain_value(session: SandboxSession, name: str) -> Any:
    """Return the value of a variable; ``_NOT_PLAIN`` if the value is no plain data."""
    # The value of the script ``{"kept": rows}`` is a dict even if ``rows`` is None.
    script = f'{{"kept": {name}}}'
    outcome = await session.execute(script, ScriptHost())
    result: Any = outcome.value if isinstance(outcome, Done) else None
    if not isinstance(result, dict) or not is_plain(result):
        return _NOT_PLAIN
    return cast("dict[str, Any]", result)["kept"]


async def keep_variables(
    run: TaskRun, session: SandboxSession, type_names: Mapping[str, str]
) -> None:
    """Store the variables that a task's scripts assigned, if their values are plain data.

    Args:
        run: The task.
        session: The session that ran the scripts.
        type_names: The names of the types that each variable may have, such as
            ``{"rows": "list", "n": "int bool"}`` if ``n`` may be an ``int`` or a ``bool``. The last
            assigned variable comes last.
    """
    conversation = run.request.conversation
    if conversation is None or not conversation.keeps_variables:
        return
    variables: dict[str, Any] = {}
    left_out: list[str] = []
    size = 0
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        # If not all fit, the newest variables are kept: the next task most likely needs these.
        newest_first = reversed(list(type_names))
        for name in islice(newest_first, _MAX_VARIABLES):
            if not is_variable(name):
                continue
            value = await _plain_value(session, name)
            # For a value that is no data, such as a function, the session returns a text instead.
            possible_types = type_names[name].split()
            is_substitute = type(value).__name__ not in possible_types
            if value is _NOT_PLAIN or is_substitute:
                continue
            length = len(repr(value))
            if size + length > MAX_TOTAL_LENGTH:
                left_out.append(name)
                continue
            size += length
            variables[name] = value
    oldest_first = dict(reversed(variables.items()))
    conversation.keep_variables(KeptVariables(values=oldest_first, trust=run.trust))
    if left_out:
        await run.warn(f"too large to be kept for the next task: {', '.join(left_out)}")
