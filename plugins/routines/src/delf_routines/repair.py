"""Repair: a model rewrites the script of a routine, which runs in the same task."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from delf.bindings import name_bound_by
from delf.messages import Message, user
from delf.protocols.sandbox import Failed
from delf.protocols.strategy import CallGuard, ScriptResult, StrategyHost, ToolDescription
from delf_engine.past_calls import PastCall
from delf_routines.cases import Case
from delf_routines.guard import CallMade, RoutineGuard
from delf_routines.routine import Parameter, Routine, Value

WRITER: Final = "codegen"
"""The name of the strategy that writes scripts with a model."""

_REPAIR: Final = """\
A routine is a script that was reviewed by a person and runs again and again with other values. \
This one does not work any more. Write its whole script again, with the tools as they are now. \
Change as little as possible, and let it do the same.

It was written for this task:
{task}

Its variables are there already; use them, and do not assign them:
{parameters}

The script:
```python
{script}
```

Why it does not work: {reason}

Write all of it, also calls that were made before: a call that changed something is not made \
again where its arguments are the same, and gives what it gave."""


class WholeScriptHost:
    """A strategy host in which each script does the whole task from the beginning.

    With another host, a script continues with the variables of the script before.

    Args:
        host: The host of the task.
        routine: The routine.
        values: The values of parameters.
        prompt: The prompt, in place of the task.
        tools: The tools that scripts may use.
    """

    def __init__(
        self,
        host: StrategyHost,
        routine: Routine,
        values: Mapping[str, Value],
        prompt: str,
        tools: Sequence[ToolDescription],
    ) -> None:
        self._host = host
        self._routine = routine
        self._values = values
        self._prompt = prompt
        self.tools = tools
        self.task = routine.task
        self.is_conversation = False
        self.rerun_count = 0
        self.script = ""
        """The last script that was run, without the parameters' values."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def begin(self, rules: str) -> tuple[Message, ...]:
        """Return the first messages of the conversation.

        The prompt of this host replaces the last message, which has the task's text.

        Args:
            rules: Instructions for the model about its work.
        """
        *other_messages, _task_message = self._host.begin(rules)
        return (*other_messages, user(self._prompt))

    async def execute(self, code: str, guard: CallGuard | None = None) -> ScriptResult:
        """Run a script after assigning the routine's parameters.

        A script that assigns to a parameter, or does not use each parameter, fails without being
        run.
        """
        problem = parameter_misuse(code, self._routine.parameters)
        if problem is not None:
            return ScriptResult(outcome=Failed(kind="ParameterError", message=problem))
        self.script = code
        result = await self.run(self._routine.code(self._values, code))
        # The next script is a whole routine again, without variables of this one.
        return replace(result, variables_alive=False, changes=())

    async def run(self, code: str) -> ScriptResult:
        """Run a script whose parameters are already assigned."""
        return await self._host.execute(code)


class Repairing(WholeScriptHost):
    """Replaces the task's host while a model repairs a failed routine; runs the model's scripts.

    Args:
        host: The host of the task.
        routine: The routine.
        values: The values of parameters.
        error_message: The error of the routine.
        earlier_calls: The calls that the routine's script made before it failed.
    """

    def __init__(
        self,
        host: StrategyHost,
        routine: Routine,
        values: Mapping[str, Value],
        error_message: str,
        earlier_calls: Sequence[CallMade],
    ) -> None:
        prompt = _REPAIR.format(
            task=routine.task,
            parameters=parameters_text(routine, values),
            script=routine.script,
            reason=error_message,
        )
        # A repair may use only the connections that the routine uses.
        connections = set(map(_connection_of, routine.actions))
        tools = [
            tool for tool in host.tools if tool.built_in or _connection_of(tool.name) in connections
        ]
        super().__init__(host, routine, values, prompt, tools)
        self._earlier_calls = list(earlier_calls)
        self.guard = RoutineGuard(routine, self._earlier_calls)

    async def run(self, code: str) -> ScriptResult:
        """Run a script under the rules of the routine's header.

        A change that an earlier script made is not made again: the script gets the earlier result.
        """
        self.guard = RoutineGuard(self._routine, self._earlier_calls)
        result = await self._host.execute(code, self.guard)
        # Even a script that succeeds may be followed by another one, if its answer is refused.
        self._earlier_calls = self.guard.calls_so_far
        return result


def as_host(host: WholeScriptHost) -> StrategyHost:
    """Cast a host to ``StrategyHost``, the protocol that strategies expect.

    ``WholeScriptHost`` implements the protocol by delegation, which type checkers cannot see.
    """
    return cast("StrategyHost", host)


def parameters_text(routine: Routine, given: Mapping[str, Value]) -> str:
    """Describe a routine's parameters and their values for a prompt."""
    values = routine.values(given).items()
    lines = [f"{name} = {value!r}  # {routine.parameters[name].type}" for name, value in values]
    return "\n".join(lines) or "(it has none)"


def _connection_of(tool_name: str) -> str:
    return tool_name.partition(".")[0]


def parameter_misuse(code: str, parameters: Mapping[str, Parameter]) -> str | None:
    """Describe how a script misuses the routine's parameters; None if it uses them correctly.

    A script must use each parameter, and must not assign to it.

    Args:
        code: The script. Syntax errors are ignored, because they are reported when the script runs.
        parameters: The routine's parameters by name.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    used_names = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    # An ``ast.arg`` is ``region`` in ``def total(region)``: a variable of the function, which
    # leaves the routine's parameter ``region`` unchanged.
    assigned_names = {name_bound_by(node) for node in nodes if not isinstance(node, ast.arg)}
    for name in parameters:
        if name in assigned_names:
            return f"{name} has its value already: do not assign it"
        if name not in used_names:
            return f"the script does not use {name}, which each run gives another value"
    return None


def case_of_calls(calls_made: Sequence[CallMade], inputs: Mapping[str, Any], answer: str) -> Case:
    """Convert the calls and the answer of a script to a test case.

    Args:
        calls_made: The calls, each with its result or error.
        inputs: The values of the routine's parameters.
        answer: The answer that the script gave.
    """
    calls = [
        PastCall(
            action=call.name,
            arguments=dict(call.arguments),
            result=getattr(outcome, "value", None),
            error=getattr(outcome, "message", None),
        )
        for call, outcome in calls_made
    ]
    return Case(inputs=inputs, calls=calls, answer=answer)
