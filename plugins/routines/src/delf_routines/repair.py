"""Repair: a model rewrites the script of a routine, which runs in the same task."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from delf.messages import Message, user
from delf.protocols.sandbox import Done, Failed
from delf.protocols.strategy import CallGuard, ScriptResult, StrategyHost, ToolDescription
from delf_engine.past_calls import PastCall
from delf_routines.cases import Case
from delf_routines.guard import Made, RoutineGuard
from delf_routines.routine import Parameter, Routine, Value

WRITER: Final = "codegen"
"""The strategy that writes scripts with a model and retries."""

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


class OneScript:
    """A host of scripts that are whole routines, used as a :class:`StrategyHost`."""

    def __init__(
        self,
        host: StrategyHost,
        routine: Routine,
        given: Mapping[str, Value],
        words: str,
        tools: Sequence[ToolDescription],
    ) -> None:
        self._host = host
        self._routine = routine
        self._given = given
        self._words = words
        self.tools = tools
        self.task = routine.task
        self.is_conversation = False
        self.rerun_count = 0
        self.script = ""
        """The last script that ran."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def begin(self, rules: str) -> tuple[Message, ...]:
        """Return the start of the conversation, with the repair request instead of the task."""
        return (*self._host.begin(rules)[:-1], user(self._words))

    async def execute(self, code: str, guard: CallGuard | None = None) -> ScriptResult:
        """Run a script with the routine's parameters assigned first.

        A script that assigns to the parameters itself is not run.
        """
        problem = parameters_in(code, self._routine.parameters)
        if problem is not None:
            return ScriptResult(outcome=Failed(kind="ParameterError", message=problem))
        self.script = code
        result = await self.run(self._routine.code(self._given, code))
        # The next script is a whole routine again, without variables of this one.
        return replace(result, variables_alive=False, changes=())

    async def run(self, code: str) -> ScriptResult:
        """Run a script whose parameters are already assigned."""
        return await self._host.execute(code)


class Repairing(OneScript):
    """A host of scripts that repair a routine."""

    def __init__(
        self,
        host: StrategyHost,
        routine: Routine,
        given: Mapping[str, Value],
        reason: str,
        earlier: Sequence[Made],
    ) -> None:
        words = _REPAIR.format(
            task=routine.task,
            parameters=parameters_text(routine, given),
            script=routine.script,
            reason=reason,
        )
        own = {name.partition(".")[0] for name in routine.actions}
        # A repair sees only the routine's connections.
        tools = [t for t in host.tools if t.built_in or t.name.partition(".")[0] in own]
        super().__init__(host, routine, given, words, tools)
        self._earlier = list(earlier)
        self.guard = RoutineGuard(routine, self._earlier)

    async def run(self, code: str) -> ScriptResult:
        """Run a script under the header's rules, reusing results of changes already made."""
        self.guard = RoutineGuard(self._routine, self._earlier)
        result = await self._host.execute(code, self.guard)
        if not isinstance(result.outcome, Done):
            self._earlier = self.guard.earlier
        return result


def as_host(host: OneScript) -> StrategyHost:
    """Cast the host to the protocol that a strategy expects."""
    return cast("StrategyHost", host)


def parameters_text(routine: Routine, given: Mapping[str, Value]) -> str:
    """Describe the parameters and their values to a model; also if there are none."""
    values = routine.values(given).items()
    lines = [f"{name} = {value!r}  # {routine.parameters[name].type}" for name, value in values]
    return "\n".join(lines) or "(it has none)"


def parameters_in(code: str, parameters: Mapping[str, Parameter]) -> str | None:
    """Return a script's misuse of its parameters; None if all are used unchanged.

    Args:
        code: The script; a syntax error is reported when it runs.
        parameters: The routine's parameters.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    written = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for name in parameters:
        if name in written:
            return f"{name} has its value already: do not assign it"
        if name not in read:
            return f"the script does not use {name}, which each run gives another value"
    return None


def case_of_calls(made: Sequence[Made], inputs: Mapping[str, Any], answer: str) -> Case:
    """Return the recorded run of a script."""
    calls = [
        PastCall(
            action=call.name,
            arguments=dict(call.arguments),
            result=getattr(came, "value", None),
            error=getattr(came, "message", None),
        )
        for call, came in made
    ]
    return Case(inputs=inputs, calls=calls, answer=answer)
