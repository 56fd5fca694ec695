"""Drafting a routine from a task: one script, tested against the task's recorded results."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from delf import Agent
from delf.errors import ConfigurationError, did_you_mean
from delf.events import Event, start_event
from delf.protocols.connection import ConnectionLike
from delf.protocols.sandbox import Done, Failed
from delf.protocols.strategy import ScriptResult, StrategyHost, ToolDescription
from delf.trust.decisions import Trust
from delf_engine.models.money import Ledger
from delf_routines.bound import BoundRoutine
from delf_routines.cases import (
    TRACELESS_OPTIONS,
    Case,
    MakeSimilarAgent,
    Recorded,
    answer_text,
    case_of,
    run_case,
    stand_ins,
)
from delf_routines.drift import named_actions
from delf_routines.remaining import remaining_values
from delf_routines.repair import WRITER, WholeScriptHost, as_host
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
    """An unsaved routine, created from a task by ``Routines.adraft``.

    Args:
        agent: The agent.
        store: The store of routines.
        routine: The routine.
        case: The recorded run of the task.
        before: The saved routine of the same name, which the draft replaces; None for a new name.
        differences: The differences between the routine's test run and the task, one line each. A
            draft with differences cannot be saved.
        cost_usd: The cost of merging several scripts, in US dollars.
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
        ledger: Ledger | None = None,
    ) -> BoundDraft:
        """Create a draft from a successful task. A model is called only to merge several scripts.

        Args:
            agent: The agent of the task. A similar agent tests the draft.
            task_id: The id of the task.
            name: The name of the routine.
            events: The events of the task.
            root: The folder of the agent's project.
            trust: The trust decisions for the folder.
            fixed: The names of proposed parameters that become constants of the script.
            ledger: Charged with the cost of merging; the agent's ledger when omitted.

        Raises:
            ConfigurationError: If the task cannot become a routine, or if ``fixed`` names a
                parameter that is not proposed.
            DelfError: If the scripts could not be merged.
        """
        store = RoutineStore(root, trust)
        before = store.find(name) if name in store.names() else None
        first_event = start_event(events)
        if first_event is None:
            raise ConfigurationError("the task has not begun")
        drafter = _Drafter(
            name=name,
            task=first_event.task,
            task_id=task_id,
            events=events,
            tools=await describe_actions(agent.tools),
            fixed=fixed,
            make_agent=maker_of_similar_agents(agent),
        )
        # Try the last script alone. If its test fails, or the script needs what earlier scripts
        # did, let a model merge all scripts.
        scripts = scripts_of(events)
        case_of_last_script = case_of(events[scripts.begin_index :], {})
        tested = await drafter.draft_and_test(scripts.code, case_of_last_script)
        cost: float | None = 0.0
        if scripts.earlier and (tested.differences or not scripts.last_suffices):
            tested, cost = await drafter.draft_of_merged(scripts, ledger or agent.ledger)
        for parameter in fixed:
            if parameter not in tested.fixed_names:
                proposed = [*tested.routine.parameters, *tested.fixed_names]
                raise ConfigurationError(
                    f"no parameter {parameter!r} is proposed{did_you_mean(parameter, proposed)}",
                    hint=f"proposed are: {', '.join(proposed) or 'none'}",
                )
        return cls(
            agent=agent,
            store=store,
            routine=tested.routine,
            case=tested.case,
            before=before,
            differences=tested.differences,
            cost_usd=cost,
        )

    @property
    def change(self) -> str:
        """The text to review: the routine's file, or a diff if the routine replaces another one."""
        if self.before is None:
            return self.routine.text()
        return difference(self.before, self.routine) or "it is the same as it was\n"

    @property
    def warnings(self) -> Sequence[str]:
        """The places of the script that still contain a parameter's default value.

        A person should check these places, because they do not change with the parameter.
        """
        return remaining_values(self.routine)

    def raise_if_replay_differs(self) -> None:
        """Check that the routine's test run did the same as the task.

        Raises:
            ConfigurationError: If the routine behaves differently.
        """
        if self.differences:
            raise ConfigurationError(
                "the routine behaves differently with the task's recorded results: "
                + "; ".join(self.differences),
                hint="--fix NAME leaves a parameter as it is",
            )

    def keep(self) -> BoundRoutine:
        """Save the routine, which a person has reviewed, with its test case: the recorded task.

        Raises:
            ConfigurationError: If the routine does not do the same as the task from which it was
                made, or if another routine was saved under its name since the draft was made.
        """
        self.raise_if_replay_differs()
        self._raise_if_outdated()
        self.store.keep(self.routine, self.case.text())
        return BoundRoutine(self.agent, self.routine)

    def _raise_if_outdated(self) -> None:
        """Check that the saved routine has not changed since the diff was made and reviewed.

        A saved routine that equals the draft is accepted, because the draft was then saved before.

        Raises:
            ConfigurationError: If another routine was saved since the draft was made.
        """
        name = self.routine.name
        saved_text = self.store.find(name).text() if name in self.store.names() else None
        reviewed_text = None if self.before is None else self.before.text()
        is_draft_saved_already = saved_text == self.routine.text()
        if saved_text != reviewed_text and not is_draft_saved_already:
            raise ConfigurationError(
                f"the file of the routine {name!r} has changed since this draft was made, so that "
                "nobody has reviewed what the draft would replace",
                hint="make the draft again, and review its change",
            )


def difference(old: Routine, new: Routine) -> str:
    """Return a unified diff of two versions of a routine."""
    lines = difflib.unified_diff(
        old.text().splitlines(keepends=True),
        new.text().splitlines(keepends=True),
        f"{old.name} now",
        f"{old.name} new",
    )
    return "".join(lines)


async def describe_actions(connections: Sequence[ConnectionLike]) -> list[ToolDescription]:
    """Describe the actions of connections, under the names that scripts use."""
    descriptions: list[ToolDescription] = []
    for connection in connections:
        for action in await connection.actions():
            full_name = f"{connection.name}.{action.name}"
            description = ToolDescription(
                name=connection.name if connection.is_function else full_name,
                summary=action.summary,
                effect=action.effect,
                asks=False,
                make_schema=action.schema or _any_object,
                parameters=action.parameters,
                returns=action.returns,
                returns_doc=action.returns_doc,
                notes=action.notes,
            )
            descriptions.append(description)
    return descriptions


def _any_object() -> dict[str, Any]:
    """Return the JSON Schema of any object."""
    return {"type": "object"}


class _TestedRoutine(NamedTuple):
    """A routine, its test case, and the differences between its test run and the task.

    Args:
        routine: The routine.
        fixed_names: The names in ``fixed`` that are names of proposed parameters. The values of
            these parameters stay literals.
        case: The test case.
        differences: The differences between the test run and the task, in words.
    """

    routine: Routine
    fixed_names: frozenset[str]
    case: Case
    differences: list[str]


@dataclass(frozen=True, kw_only=True)
class _Drafter:
    """Drafts routines from the scripts of a task, and tests them with the task's recorded results.

    Args:
        name: The name of the routine.
        task: The text of the task.
        task_id: The id of the task.
        events: The events of the task.
        tools: The tools of the task's agent.
        fixed: The names of proposed parameters that become constants of the script.
        make_agent: Makes the agent that tests a draft or merges scripts.
    """

    name: str
    task: str
    task_id: str
    events: Sequence[Event]
    tools: Sequence[ToolDescription]
    fixed: Sequence[str]
    make_agent: MakeSimilarAgent

    async def draft_and_test(self, script: str, case: Case) -> _TestedRoutine:
        """Draft a routine with a script, and test the routine.

        Args:
            script: The script.
            case: The recorded run of the task, without the inputs of the routine.
        """
        draft, fixed_names = propose(
            self.name,
            self.task,
            self.task_id,
            self.events,
            self.tools,
            script=script,
            fixed=self.fixed,
        )
        # The default values of the parameters are their values in the task.
        case = replace(case, inputs=draft.values({}))
        differences = await run_case(draft, case, self.make_agent)
        return _TestedRoutine(draft, fixed_names, case, differences)

    async def draft_of_merged(
        self, scripts: Scripts, ledger: Ledger
    ) -> tuple[_TestedRoutine, float | None]:
        """Let a model merge the scripts; return the tested draft, and the cost in US dollars."""
        whole_case = case_of(self.events, {})
        merger = _ScriptMerger(scripts, self.task, whole_case, self.events, self.tools)
        cost = await merger.ask(self.make_agent, ledger)
        return await self.draft_and_test(merger.script, merger.case), cost


class _ScriptMerger:
    """Lets a model merge several scripts into one, which is run with recorded results.

    An instance is the strategy of a temporary agent whose only task is the merging.

    Args:
        scripts: The scripts to merge.
        task: The text of the task.
        case: The recorded run of the task.
        events: The events of the task.
        tools: The known tools.
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
        # The calls and answers of all scripts: a merged script must make the same calls.
        self._recorded_run = case
        earlier_codes = [code for code, _outcome in scripts.earlier]
        all_code = "\n".join([*earlier_codes, scripts.code])
        # A routine of all scripts one after the other, which has the actions that a merged script
        # may call. This routine is never saved, so its name does not matter.
        self._routine = Routine(
            name="unmerged",
            title=task,
            task=task,
            script=all_code,
            actions=named_actions(all_code, tools, called=actions_called(events)),
        )
        # Gives a merged script the results of the recorded run, and notes the calls of that script
        # which were not recorded.
        self._replay = Recorded(case)
        self.script = ""

    @property
    def case(self) -> Case:
        """The recorded run with only those calls that the merged script makes again."""
        return replace(self._recorded_run, calls=self._replay.used)

    async def ask(self, make_similar_agent: MakeSimilarAgent, ledger: Ledger) -> float | None:
        """Let an agent merge the task's scripts into one, and store that script in ``self.script``.

        Args:
            make_similar_agent: Creates an agent with the configuration of the task's agent.
            ledger: Charged with the cost. The temporary agent has a budget of its own.

        Returns:
            The cost of the merging in US dollars; None if unknown.

        Raises:
            ConfigurationError: If no script behaved like the recorded run.
        """
        tools = stand_ins(self._routine.actions, self._replay)
        # This object is the agent's strategy, so the agent calls solve(), which stores the script.
        async with make_similar_agent(
            tools=tools, strategy=self, on_ask=self._replay.answer
        ) as agent:
            merging_task = await agent.asubmit(self._routine.task, ledger=ledger)
            response = await merging_task
        has_succeeded: bool = response.status
        if not has_succeeded or not self.script:
            script_count = len(self._scripts.earlier) + 1
            raise ConfigurationError(
                f"the task took {script_count} scripts, and they could not be "
                f"written as one: {response.error}",
                hint="ask for the task again: one script may do it now",
            )
        return response.cost_usd

    async def solve(self, host: StrategyHost) -> str:
        """Let the model write one script that behaves like the recorded run.

        The script is stored in ``self.script``.

        Returns:
            The answer of this script.
        """
        request = self._merge_request()
        merging_host = _MergingHost(host, self._routine, request, self._replay, self._recorded_run)
        answer = await host.strategy(WRITER).solve(as_host(merging_host))
        self.script = merging_host.script
        return answer

    def _merge_request(self) -> str:
        """Return the prompt that asks the model to merge the scripts."""
        code_with_outcome = [*self._scripts.earlier, (self._scripts.code, "done")]
        scripts = [
            f"```python\n{code}\n```\nOutcome: {outcome}" for code, outcome in code_with_outcome
        ]
        calls = self._recorded_run.calls
        call_lines: list[str] = []
        for call in calls[:_MAX_CALLS]:
            outcome = f"failed: {call.error}" if call.error else f"gave {_short(call.result)}"
            call_lines.append(f"- {call.action}({_short(dict(call.arguments))}) {outcome}")
        hidden_count = len(calls) - len(call_lines)
        if hidden_count > 0:
            call_lines.append(f"- and {hidden_count} more like these")
        return _MERGE.format(
            task=self._routine.task,
            scripts="\n\n".join(scripts),
            calls="\n".join(call_lines),
            answer=self._recorded_run.answer,
        )


class _MergingHost(WholeScriptHost):
    """A strategy host that runs merged scripts with recorded results.

    A script whose calls or answer differ from the recorded run fails.

    Args:
        host: The host of the merging agent.
        routine: A routine with all scripts of the task, and without parameters.
        prompt: Asks the model to merge the scripts.
        recorded: Answers calls with the recorded results.
        case: The recorded run of the task.
    """

    def __init__(
        self, host: StrategyHost, routine: Routine, prompt: str, recorded: Recorded, case: Case
    ) -> None:
        super().__init__(host, routine, values={}, prompt=prompt, tools=host.tools)
        self._recorded = recorded
        self._case = case

    async def run(self, code: str) -> ScriptResult:
        """Run a script; the outcome is ``Failed`` if it differs from the recorded run."""
        self._recorded.begin()
        result = await super().run(code)
        if not isinstance(result.outcome, Done):
            return result
        text = answer_text(result.printed, result.outcome.value)
        problems = [*self._recorded.differences, *self._case.answer_differences(text)]
        # The script need not repeat the recorded reads and failed calls.
        for call in self._recorded.unused:
            if call.error is None and _changes(self._routine.actions, call.action):
                arguments = _short(dict(call.arguments))
                problems.append(f"it does not call {call.action}({arguments})")
        if not problems:
            return result
        return replace(result, outcome=Failed(kind="Difference", message="; ".join(problems)))


def _changes(actions: Mapping[str, UsedAction], name: str) -> bool:
    used = actions.get(name)
    return used is None or used.effect != "read"


def _short(value: object) -> str:
    text = repr(value)
    if len(text) <= _LONGEST_RESULT:
        return text
    return f"{text[: _LONGEST_RESULT - 1]}…"


def maker_of_similar_agents(agent: Agent[Any]) -> MakeSimilarAgent:
    """Return a function that creates agents with another agent's configuration.

    The created agents have no journal, no approvals and no learning.
    """

    def make(**overrides: Any) -> Agent[Any]:
        options: dict[str, Any] = {**TRACELESS_OPTIONS, "retry_count": _RETRIES, **overrides}
        return Agent(agent.config, host=agent.plugins, project=agent.project, **options)

    return make
