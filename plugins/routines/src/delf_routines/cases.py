"""A recorded run of a routine: its calls' results, for running it again without services."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delf import Agent
from delf.errors import ConfigurationError, ToolExecutionError
from delf.events import ASK, Event, TaskFinished
from delf.protocols.approval import ApprovalRequest
from delf.protocols.connection import ConnectionLike
from delf.protocols.sandbox import Done
from delf.protocols.strategy import StrategyHost
from delf.tools.action import Action
from delf.tools.signature import Parameter
from delf.types import Permission
from delf.values.encoding import dumps, from_jsonable
from delf_engine.past_calls import PastCall, is_same, past_calls
from delf_routines.routine import NO_MODEL, Routine, UsedAction

# The maximum number of characters of an answer in a message.
_MAX_SHOWN_LENGTH: Final = 200
MakeSimilarAgent = Callable[..., Agent[Any]]
"""Function that creates an agent with another agent's configuration and the given changes."""
TRACELESS_OPTIONS: Final[Mapping[str, Any]] = {
    "journal": "none",
    "approvals": [],
    "prefilter_mode": "off",
    "flows": "off",
    "learn": False,
}
"""Options of an agent that leaves no traces: no journal, no approvals and no learning."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recorded run of a routine, as a test case.

    Args:
        inputs: The values of the parameters.
        calls: The tool calls, in the order in which they began.
        answer: The answer.
    """

    inputs: Mapping[str, Any]
    calls: Sequence[PastCall]
    answer: str

    def text(self) -> str:
        """Return the text of the test case's file, which people can read and edit."""
        table = {
            "inputs": dict(self.inputs),
            "calls": [vars(call) for call in self.calls],
            "answer": self.answer,
        }
        # dumps() also encodes values that json cannot encode, but does not indent the text.
        jsonable_table = json.loads(dumps(table))
        return json.dumps(jsonable_table, indent=2, ensure_ascii=False) + "\n"

    def answer_differences(self, answer: str) -> list[str]:
        """Describe how an answer differs from the recorded answer; an empty list if both agree."""
        if answer.strip() == self.answer.strip():
            return []
        return [f"it answers {_short(answer)} in place of {_short(self.answer)}"]

    @classmethod
    def of_bytes(cls, content: bytes, place: str) -> Case:
        """Parse a test case from the content of its file.

        Args:
            content: The content.
            place: The name of the file, for error messages.

        Raises:
            ConfigurationError: If the content is not a test case.
        """
        try:
            table = from_jsonable(json.loads(content))
            calls = [PastCall(**call) for call in table["calls"]]
            return cls(inputs=dict(table["inputs"]), calls=calls, answer=str(table["answer"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ConfigurationError(f"{place} is not a recorded run: {error!r}") from None


def case_of(events: Sequence[Event], inputs: Mapping[str, Any]) -> Case:
    """Convert the events of a task to a test case.

    Args:
        events: The events of the task.
        inputs: The values of the routine's parameters in this task.
    """
    return Case(inputs=inputs, calls=past_calls(events), answer=answer_of(events))


def answer_of(events: Iterable[Event]) -> str:
    """Return the answer of a task."""
    return next(
        (event.text for event in reversed([*events]) if isinstance(event, TaskFinished)), ""
    )


def answer_text(printed: str, value: object) -> str:
    """Return the answer of a script: its printed text or, if there is none, its last value."""
    text = printed.strip("\n")
    if text.strip() or value is None:
        return text
    return str(value)


@dataclass
class _RecordedConnection:
    """A connection whose calls return recorded results."""

    name: str
    is_function: bool
    recorded_actions: list[Action] = field(default_factory=list[Action])
    summary: str = "recorded"
    allow: Permission = None
    confirm: Permission = False

    async def actions(self) -> Sequence[Action]:
        """Return the actions of the routine."""
        return self.recorded_actions


class Recorded:
    """A recorded run. When its script runs again, the calls get the recorded results.

    ``used`` has the recorded calls that the new run has made, and ``unused`` the others.
    ``differences`` describes the calls of the new run that are not in the recording.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self.begin()

    def begin(self) -> None:
        """Mark all recorded calls as unused."""
        self.unused = list(self._case.calls)
        self.used: list[PastCall] = []
        self.differences: list[str] = []

    def answer(self, question: ApprovalRequest) -> Any:
        """Return the recorded answer to a question.

        Raises:
            ToolExecutionError: If the question was not recorded, or has no answer.
        """
        return self.take(ASK, question.arguments)

    def take(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """Return the recorded result of a call.

        Raises:
            ToolExecutionError: If the call was not recorded, or failed in the recording.
        """
        for number, call in enumerate(self.unused):
            if call.action == action and is_same(call.arguments, arguments):
                del self.unused[number]
                self.used.append(call)
                if call.error is not None:
                    raise ToolExecutionError(call.error)
                return call.result
        text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        difference = f"it calls {action}({text[:300]}), which was not recorded"
        self.differences.append(difference)
        raise ToolExecutionError(difference)


class _SingleScript:
    """A strategy that runs one given script."""

    def __init__(self, code: str) -> None:
        self._code = code

    async def solve(self, host: StrategyHost) -> str:
        result = await host.execute(self._code)
        if isinstance(result.outcome, Done):
            return answer_text(host.output, result.outcome.value)
        message = getattr(result.outcome, "message", "the script did not end")
        raise ToolExecutionError(str(message))


async def run_case(routine: Routine, case: Case, make_similar_agent: MakeSimilarAgent) -> list[str]:
    """Run a routine with the recorded results of a test case, without any service.

    Args:
        routine: The routine.
        case: The test case.
        make_similar_agent: Creates the agent, in whose sandbox the routine runs.

    Returns:
        The differences in calls, failures and answer, one line each; empty if there are none.
    """
    recorded = Recorded(case)
    tools = stand_ins(routine.actions, recorded)
    strategy = _SingleScript(routine.code(case.inputs))
    async with make_similar_agent(
        **TRACELESS_OPTIONS,
        llm=NO_MODEL,
        tools=tools,
        strategy=strategy,
        on_ask=recorded.answer,
    ) as agent:
        response = await agent.arun(f"test {routine.name}", timeout=60)
    has_succeeded: bool = response.status
    problems = list(recorded.differences)
    if not has_succeeded and not problems:
        problems.append(f"it fails: {response.error}")
    problems += [f"it does not call {call.action} any more" for call in recorded.unused]
    if has_succeeded:
        problems += case.answer_differences(response.text)
    return problems


def stand_ins(actions: Mapping[str, UsedAction], recorded: Recorded) -> Sequence[ConnectionLike]:
    """Return connections whose actions return recorded results.

    Args:
        actions: The routine's actions, by full name.
        recorded: The recorded run.
    """
    connections: dict[str, _RecordedConnection] = {}
    recorded_names = [call.action for call in recorded.unused]  # some may not be in ``actions``
    for full_name in dict.fromkeys([*actions, *recorded_names]):
        if full_name == ASK:
            continue  # answered by people, not by a connection
        name, _, method = full_name.partition(".")
        is_function = not method  # a tool without a connection, such as ``add``
        connection = connections.setdefault(
            name, _RecordedConnection(name, is_function=is_function)
        )
        action_in_header = actions.get(full_name)
        parameters = () if action_in_header is None else action_in_header.parameters
        action = Action(
            name=method or name,
            permission=method or name,
            effect="read",  # so that nobody has to approve the call
            summary="recorded",
            parameters=tuple(map(_parameter, parameters)),
            returns="Any" if action_in_header is None else action_in_header.returns,
            validate=dict,  # accepts all arguments
            call=_caller(recorded, full_name),
        )
        connection.recorded_actions.append(action)
    return list(connections.values())


def _caller(recorded: Recorded, action: str) -> Any:
    async def call(**arguments: Any) -> Any:
        return recorded.take(action, arguments)

    return call


def _parameter(text: str) -> Parameter:
    """Parse a parameter of an action, as a routine's header has it: ``limit: int = 50``."""
    name, _, rest = text.partition(":")
    kind, equals_sign, default = rest.partition(" = ")
    default_text = default.strip() if equals_sign else None
    return Parameter(name=name.strip(), type_text=kind.strip() or "Any", default_text=default_text)


def _short(text: str) -> str:
    """Return the beginning of a text, in quotes and on one line."""
    line = " ".join(text.split())
    if len(line) > _MAX_SHOWN_LENGTH:
        line = f"{line[:_MAX_SHOWN_LENGTH]}…"
    return repr(line)
