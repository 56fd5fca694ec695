"""Drafting a routine from a task: one script, tested against the task's recorded results."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from delf import Agent
from delf.errors import ConfigurationError
from delf.events import Event, TaskQueued, TaskStarted
from delf.protocols.connection import ConnectionLike
from delf.protocols.sandbox import Done, Failed
from delf.protocols.strategy import ScriptResult, StrategyHost, ToolDescription
from delf.trust.decisions import Trust
from delf_routines.bound import BoundRoutine
from delf_routines.cases import (
    UNSEEN,
    Case,
    LikeAgent,
    Recorded,
    answer_text,
    case_of,
    run_case,
    stand_ins,
)
from delf_routines.drift import named_actions
from delf_routines.repair import WRITER, OneScript, as_host
from delf_routines.routine import Routine, UsedAction
from delf_routines.saving import Scripts, actions_called, propose, scripts_of
from delf_routines.store import RoutineStore

_RETRIES: Final = 3
_MAX_CALLS: Final = 40
_LONGEST_RESULT: Final = 400
_MERGE: Final = """\
This task was done by several scripts, one after the other, with the variables of the earlier \
ones. Write it as one script that does all of it and prints the same answer. Make each call that \
changes something exactly once, with the same arguments. A call that reads may be left out where \
it is not needed; make no call that is not listed.

The task:
{task}

The scripts:
{scripts}

What the calls gave:
{calls}

The answer was:
{answer}"""


@dataclass(frozen=True, kw_only=True)
class BoundDraft:
    """An unsaved routine, drafted from a task by ``Routines.adraft``.

    Args:
        agent: The agent.
        store: The store of routines.
        routine: The draft.
        case: The recording of the task.
        before: The saved routine of the same name, which saving the draft replaces.
        differences: The differences between a replay of the draft and the task, one line each.
            A draft with differences cannot be saved.
        cost_usd: The cost of merging several scripts.
    """

    agent: Agent[Any]
    store: RoutineStore
    routine: Routine
    case: Case
    before: Routine | None = None
    differences: Sequence[str] = ()
    cost_usd: float | None = 0.0

    @classmethod
    async def of(
        cls,
        agent: Agent[Any],
        task_id: str,
        name: str,
        events: Sequence[Event],
        root: Path,
        trust: Trust,
        *,
        fixed: Sequence[str] = (),
    ) -> BoundDraft:
        """Draft a successful task. A model is asked only to merge several scripts.

        Args:
            agent: The agent of the task; similar agents run the script against the recording.
            task_id: The task.
            name: The routine's name.
            events: The events of the task.
            root: The folder of the agent's project.
            trust: The trust decisions for the folder.
            fixed: Proposed parameters that stay as they are in the script.

        Raises:
            ConfigurationError: If the task cannot become a routine.
            DelfError: If the scripts could not be merged.
        """
        store, like = RoutineStore(root, trust), like_agent(agent)
        tools = await describe_actions(agent.tools)
        before = store.find(name) if name in store.names() else None
        first_event = next((e for e in events if isinstance(e, (TaskQueued, TaskStarted))), None)
        if first_event is None:
            raise ConfigurationError("the task has not begun")
        scripts = scripts_of(events)

        async def proved(script: str, case: Case) -> tuple[Routine, Case, list[str]]:
            draft = propose(
                name, first_event.task, task_id, events, tools, script=script, fixed=fixed
            )
            case = replace(case, inputs=draft.values({}))
            return draft, case, await run_case(draft, case, like)

        cost: float | None = 0.0
        draft, case, different = await proved(scripts.code, case_of(events[scripts.begin :], {}))
        if scripts.earlier and (different or not scripts.is_whole):
            merging = _Merging(scripts, first_event.task, case_of(events, {}), events, tools)
            cost = await merging.ask(like)
            draft, case, different = await proved(merging.script, merging.case)
        return cls(
            agent=agent,
            store=store,
            routine=draft,
            case=case,
            before=before,
            differences=different,
            cost_usd=cost,
        )

    @property
    def change(self) -> str:
        """The text for review: the file, or a diff if it replaces one."""
        if self.before is None:
            return self.routine.text()
        return difference(self.before, self.routine) or "it is the same as it was\n"

    def keep(self) -> BoundRoutine:
        """Save the routine after its review.

        Raises:
            ConfigurationError: If the routine behaves differently from its task.
        """
        if self.differences:
            raise ConfigurationError(
                "the routine does not do the same with the task's own results: "
                + "; ".join(self.differences),
                hint="--fix NAME leaves a parameter as it is",
            )
        self.store.keep(self.routine, self.case.text())
        return BoundRoutine(self.agent, self.routine)


def difference(old: Routine, new: Routine) -> str:
    """Return the change of a routine as a unified diff."""
    lines = difflib.unified_diff(
        old.text().splitlines(keepends=True),
        new.text().splitlines(keepends=True),
        f"{old.name} now",
        f"{old.name} new",
    )
    return "".join(lines)


async def describe_actions(connections: Sequence[ConnectionLike]) -> list[ToolDescription]:
    """Return the actions of connections, under the names that scripts use."""
    return [
        ToolDescription(
            name=connection.name if connection.is_function else f"{connection.name}.{action.name}",
            summary=action.summary,
            effect=action.effect,
            asks=False,
            make_schema=action.schema or _any_object,
            parameters=action.parameters,
            returns=action.returns,
            returns_doc=action.returns_doc,
            notes=action.notes,
        )
        for connection in connections
        for action in await connection.actions()
    ]


def _any_object() -> dict[str, Any]:
    """Return a schema for an action without one."""
    return {"type": "object"}


class _Merging:
    """Lets a model merge several scripts into one, run against recorded results.

    This object is the strategy of the merging agent.
    """

    def __init__(
        self,
        scripts: Scripts,
        task: str,
        case: Case,
        events: Sequence[Event],
        tools: Iterable[ToolDescription],
    ) -> None:
        self._scripts = scripts
        self._whole = case
        codes = [*(code for code, _ in scripts.earlier), scripts.code]
        self._routine = Routine(
            name="one",
            title=task,
            task=task,
            script="\n".join(codes),
            actions=named_actions("\n\n".join(codes), tools, called=actions_called(events)),
        )
        self._recorded = Recorded(case)
        self.script = ""

    @property
    def case(self) -> Case:
        """The calls of the merged script, and its answer."""
        return replace(self._whole, calls=self._recorded.used)

    async def ask(self, like: LikeAgent) -> float | None:
        """Ask the model for a merged script, with retries.

        Returns:
            The cost in USD; None if unknown.

        Raises:
            ConfigurationError: If no script was equivalent.
        """
        tools = stand_ins(self._routine.actions, self._recorded)
        async with like(tools=tools, strategy=self) as agent:
            response = await agent.arun(self._routine.task)
        if not response.status or not self.script:
            raise ConfigurationError(
                f"the task took {len(self._scripts.earlier) + 1} scripts, and they could not be "
                f"written as one: {response.error}",
                hint="ask for the task again: one script may do it now",
            )
        return response.cost_usd

    async def solve(self, host: StrategyHost) -> str:
        """Write one equivalent script."""
        request = self._merge_request()
        writing = _OneOfMany(host, self._routine, request, self._recorded, self._whole)
        text = await host.strategy(WRITER).solve(as_host(writing))
        self.script = writing.script
        return text

    def _merge_request(self) -> str:
        """Return the request to the model to merge the scripts, with their calls' results."""
        parts = [*self._scripts.earlier, (self._scripts.code, "done")]
        scripts = [f"```python\n{code}\n```\nIts end: {end}" for code, end in parts]
        calls = [
            f"- {call.action}({_short(dict(call.arguments))}) "
            + (f"failed: {call.error}" if call.error else f"gave {_short(call.result)}")
            for call in self._whole.calls
        ]
        hidden_count = len(calls) - _MAX_CALLS
        lines = [
            *calls[:_MAX_CALLS],
            *([f"- and {hidden_count} more like these"] if hidden_count > 0 else []),
        ]
        return _MERGE.format(
            task=self._routine.task,
            scripts="\n\n".join(scripts),
            calls="\n".join(lines),
            answer=self._whole.answer,
        )


class _OneOfMany(OneScript):
    """A strategy host whose scripts must make the recorded calls and give the recorded answer."""

    def __init__(
        self, host: StrategyHost, routine: Routine, words: str, recorded: Recorded, case: Case
    ) -> None:
        super().__init__(host, routine, {}, words, host.tools)
        self._recorded = recorded
        self._case = case

    async def run(self, code: str) -> ScriptResult:
        """Run a script against the recording, and describe the differences."""
        self._recorded.begin()
        result = await super().run(code)
        if not isinstance(result.outcome, Done):
            return result
        text = answer_text(result.printed, result.outcome.value)
        problems = [*self._recorded.differences, *self._case.other_answer(text)]
        problems += [
            f"it does not call {call.action}({_short(dict(call.arguments))})"
            for call in self._recorded.unused
            if call.error is None and _changes(self._routine.actions, call.action)
        ]
        if not problems:
            return result
        return replace(result, outcome=Failed(kind="Difference", message="; ".join(problems)))


def _changes(actions: Mapping[str, UsedAction], name: str) -> bool:
    used = actions.get(name)
    return used is None or used.effect != "read"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_RESULT else f"{text[: _LONGEST_RESULT - 1]}…"


def like_agent(agent: Agent[Any]) -> LikeAgent:
    """Make agents with another agent's configuration, without journal and learning."""

    def make(**given: Any) -> Agent[Any]:
        options: dict[str, Any] = {**UNSEEN, "retry_count": _RETRIES, **given}
        return Agent(agent.config, host=agent.plugins, project=agent.project, **options)

    return make
