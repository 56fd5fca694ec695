"""Running of routines: their scripts are treated like any other script, without a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from delf.errors import (
    ApprovalRejectedError,
    DelfError,
    LLMExecutionError,
    SandboxExecutionError,
    SandboxLimitError,
    TaskLimitError,
    ToolExecutionError,
)
from delf.llm import LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest
from delf.protocols.context import PluginContext
from delf.protocols.sandbox import Done, Failed, LimitReached, Rerun
from delf.protocols.strategy import ScriptResult, StrategyHost
from delf.settings import current_folder, current_trust
from delf_cli.routine_calls import RoutineCall
from delf_routines.cases import answer_text
from delf_routines.drift import drift_of, named_actions, names_in
from delf_routines.guard import CallMade, RoutineGuard
from delf_routines.repair import WRITER, Repairing, as_host, case_of_calls
from delf_routines.routine import Routine, Value, shape_of
from delf_routines.store import RoutineStore

_PLACE: Final = "the routine of this task"


class RoutineDriftError(DelfError):
    """A routine was not run, because the actions that it uses are missing or have changed."""

    code = "ERR-ROUTINE-001"
    default_hint = (
        "name missing tools with --tools FILE.py or -c NAME. If the actions have changed, do the "
        "task again with a model, and save it again; `delf routines accept NAME` takes the actions "
        "as they are now"
    )


class RoutineStrategy:
    """Runs the routine that a task calls. Implements :class:`delf.protocols.strategy.Strategy`.

    The task is a call with values: ``monthly_report(month="2026-10")``.

    Args:
        store: The store of routines; None for that of the current project.
    """

    def __init__(self, store: RoutineStore | None = None) -> None:
        self._store = store or RoutineStore(current_folder(), current_trust())

    async def solve(self, host: StrategyHost) -> str:
        """Run the routine that the task calls.

        Raises:
            ConfigurationError: If the task is not a valid call of a routine.
            RoutineDriftError: If a used action has changed. No call was made then.
            DelfError: If the script fails.
        """
        call = RoutineCall.read(host.task)
        name, arguments = call.routine, call.values
        # The text is recorded, because the file may have changed when the task is resumed.
        file_text = await host.note("routine", lambda: self._text(name))
        routine = Routine.of_text(name, file_text, _PLACE)
        code = routine.code(arguments)
        # A resumed task that has made calls continues without this check: to refuse it now would
        # leave the task half done.
        problem: str | None = None
        if not host.used_tools:
            problem = await self._find_incompatibility(host, routine)
        if problem is not None:
            if routine.on_failure != "repair":
                raise RoutineDriftError(f"the routine {name} is not run: {problem}")
            return await self._repair(host, routine, arguments, RoutineDriftError(problem), [])
        guard = RoutineGuard(routine)
        result = await host.execute(code, guard)
        if isinstance(result.outcome, Done):
            answer = answer_text(host.output, result.outcome.value)
            await _warn_of_unexpected_results(host, routine, guard, answer)
            return answer
        if result.refused is not None:
            raise result.refused
        error = _as_error(name, result)
        error.__cause__ = result.cause
        # Another script would not change a person's rejection.
        is_final = isinstance(error, ApprovalRejectedError) or not result.can_retry
        if routine.on_failure != "repair" or is_final:
            raise error
        return await self._repair(host, routine, arguments, error, guard.calls_made)

    async def _text(self, name: str) -> str:
        """Return the text of the routine's file.

        The caller, :meth:`solve`, records the text in the journal, so that a resumed task runs the
        same version of the routine.
        """
        return self._store.find(name).text()

    async def _find_incompatibility(self, host: StrategyHost, routine: Routine) -> str | None:
        """Return why a routine cannot run with the current tools; None if it can.

        Differences that do not matter become warnings.
        """
        drifts = drift_of(routine, host.tools)
        for drift in drifts:
            if not drift.matters:
                await host.warn(f"since the routine {routine.name} was saved, {drift}")
        problems = [str(drift) for drift in drifts if drift.matters]
        actions = {tool.name for tool in host.tools if not tool.built_in}
        called_actions = actions & names_in(routine.script)
        unlisted = sorted(called_actions - routine.actions.keys())
        problems += [f"its header does not name {name}, which it calls" for name in unlisted]
        return "; ".join(problems) or None

    async def _repair(
        self,
        host: StrategyHost,
        routine: Routine,
        arguments: Mapping[str, Value],
        error: DelfError,
        calls_made: Sequence[CallMade],
    ) -> str:
        """Let a model rewrite and run the script, and store the new script as a proposal.

        Returns:
            The answer of the new script.

        Raises:
            DelfError: If the repair fails: the routine's error if the model fails or writes no
                script, else the last script's error.
        """
        name = routine.name
        await host.warn(f"a model repairs the routine {name}: {error.message}")
        repair_host = Repairing(host, routine, arguments, error.message, calls_made)
        try:
            answer = await host.strategy(WRITER).solve(as_host(repair_host))
        except LLMExecutionError as failure:
            await host.warn(f"the routine could not be repaired: {failure.message}")
            raise error from failure
        if not repair_host.script:  # the model answered without a script
            raise error
        calls_of_repair = repair_host.guard.calls_made
        # The actions whose results were never empty when the routine was saved.
        never_empty = {action for action, used in routine.actions.items() if not used.empty}
        proposed = replace(
            routine,
            script=repair_host.script.strip("\n"),
            actions=named_actions(
                repair_host.script,
                host.tools,
                called={call_made.call.name for call_made in calls_of_repair},
                never_empty=never_empty,
            ),
        )
        test_case = case_of_calls(calls_of_repair, routine.values(arguments), answer)
        await asyncio.to_thread(self._store.propose, proposed, test_case.text())
        await _warn_of_unexpected_results(host, routine, repair_host.guard, answer)
        hint = f"delf routines diff {name}, then accept or reject"
        await host.warn(f"the repaired script did this task and is proposed: {hint}")
        return answer


async def _warn_of_unexpected_results(
    host: StrategyHost, routine: Routine, guard: RoutineGuard, answer: str
) -> None:
    """Warn of signs that a routine no longer does what it did when it was saved.

    The signs are empty results, calls that were not made again in a repair, and an answer of
    another shape.
    """
    for action in guard.unexpectedly_empty:
        await host.warn(f"{action} gave nothing, and gave something when {routine.name} was saved")
    # The repaired script asked for these write calls again, and got the failed script's results.
    if guard.reused_change_count:
        await host.warn(
            f"calls from before the repair that were not repeated: {guard.reused_change_count}"
        )
    shape = shape_of(answer)
    if routine.answer and shape != routine.answer:
        await host.warn(f"the answer is {shape}, and was {routine.answer}")


class NoModel:
    """A placeholder for a missing model. Implements :class:`delf.protocols.model.Model`."""

    def __init__(self, context: PluginContext, config: LLMConfig) -> None:
        self._name = config.model

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Raise an error, because there is no model.

        Raises:
            LLMExecutionError: Always.
        """
        raise LLMExecutionError(
            f"a model was needed for {request.purpose!r}, and none is configured",
            hint="routines need no model; set llm in delf.toml for a script that calls llm",
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Raise an error, because there is no model.

        Raises:
            LLMExecutionError: Always.
        """
        # complete() always raises. The ``yield`` makes this method an asynchronous generator.
        yield await self.complete(request)

    async def aclose(self) -> None:
        """Do nothing."""


def _as_error(name: str, result: ScriptResult) -> DelfError:
    """Convert the result of a script that did not succeed to an error."""
    hint = (
        "let a model do the task again, and save that task as the routine; "
        f"delf routines show {name} shows the task"
    )
    match result.outcome:
        case LimitReached(message=message, limit=limit):
            return SandboxLimitError(message, limit=limit, hint="sandbox_config sets the limits")
        case Failed(message=message) if result.rejected:
            return ApprovalRejectedError(message)
        case Failed(kind=kind, message=message, line=line, source=source):
            where = f" (line {line}: {source})" if line else ""
            error_class: type[DelfError] = SandboxExecutionError
            if kind == "TaskLimitError":
                error_class = TaskLimitError
            elif kind.startswith("Tool"):
                error_class = ToolExecutionError
            return error_class(f"the routine {name} failed: {kind}: {message}{where}", hint=hint)
        case Rerun():
            return SandboxExecutionError(
                f"the routine {name} asked for another script, and has no model", hint=hint
            )
        case _:
            return SandboxExecutionError(f"the routine {name} did not end as expected", hint=hint)
