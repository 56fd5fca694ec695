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

LikeAgent = Callable[..., Agent[Any]]
"""A function that makes a similar agent from tools, a strategy and configuration changes."""
UNSEEN: Final[Mapping[str, Any]] = {
    "journal": "none",
    "approvals": [],
    "prefilter_mode": "off",
    "flows": "off",
    "learn": False,
}
"""Configuration of an agent without journal, approvals and learning."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recorded run.

    Args:
        inputs: The values that the routine was run with.
        calls: The calls, in the order in which they began.
        answer: The answer.
    """

    inputs: Mapping[str, Any]
    calls: Sequence[PastCall]
    answer: str

    def text(self) -> str:
        """Return the case as the text of a file that people can read and edit."""
        table = {
            "inputs": dict(self.inputs),
            "calls": [vars(call) for call in self.calls],
            "answer": self.answer,
        }
        plain = json.loads(dumps(table))
        return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"

    def other_answer(self, answer: str) -> list[str]:
        """Return the difference between another answer and the recorded one as a line.

        An empty list if the answers are equal.
        """
        if answer.strip() == self.answer.strip():
            return []
        return [f"it answers {_short(answer)} in place of {_short(self.answer)}"]

    @classmethod
    def of_bytes(cls, content: bytes, place: str) -> Case:
        """Parse a case from its file; ``place`` is its name in messages.

        Raises:
            ConfigurationError: If the content is not a case.
        """
        try:
            table = from_jsonable(json.loads(content))
            calls = [PastCall(**call) for call in table["calls"]]
            return cls(inputs=dict(table["inputs"]), calls=calls, answer=str(table["answer"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ConfigurationError(f"{place} is not a recorded run: {error!r}") from None


def case_of(events: Sequence[Event], inputs: Mapping[str, Any]) -> Case:
    """Return the recorded run of a task.

    Args:
        events: The task's events.
        inputs: The values of the routine's parameters in this task.
    """
    return Case(inputs=inputs, calls=past_calls(events), answer=answer_of(events))


def answer_of(events: Iterable[Event]) -> str:
    """Return the answer of a task."""
    return next(
        (event.text for event in reversed([*events]) if isinstance(event, TaskFinished)), ""
    )


def answer_text(printed: str, value: object) -> str:
    """Return the answer of a script: its output, else its last value."""
    text = printed.strip("\n")
    return text if text.strip() or value is None else str(value)


@dataclass
class _StandIn:
    """A connection whose calls return recorded results, without side effects."""

    name: str
    is_function: bool
    found: list[Action] = field(default_factory=list[Action])
    summary: str = "recorded"
    allow: Permission = None
    confirm: Permission = False

    async def actions(self) -> Sequence[Action]:
        """Return the actions of the routine."""
        return self.found


class Recorded:
    """The calls of a recorded run as a script repeats them: used, unused, and different ones."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.begin()

    def begin(self) -> None:
        """Reset: mark all recorded calls as unused."""
        self.unused = list(self._case.calls)
        self.used: list[PastCall] = []
        self.differences: list[str] = []

    def answer(self, question: ApprovalRequest) -> Any:
        """Return the recorded answer to a question.

        Raises:
            ToolExecutionError: If the question was not recorded, or had no answer.
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
        what = f"it calls {action}({text[:300]}), which was not recorded"
        self.differences.append(what)
        raise ToolExecutionError(what)


class _Once:
    """A strategy that runs one script."""

    def __init__(self, code: str) -> None:
        self._code = code

    async def solve(self, host: StrategyHost) -> str:
        result = await host.execute(self._code)
        if isinstance(result.outcome, Done):
            return answer_text(host.output, result.outcome.value)
        message = getattr(result.outcome, "message", "it did not come to its end")
        raise ToolExecutionError(str(message))


async def run_case(routine: Routine, case: Case, make: LikeAgent) -> list[str]:
    """Run a routine against a recorded run, without services and side effects.

    Args:
        routine: The routine.
        case: The recorded run.
        make: Makes the agent, whose sandbox is used.

    Returns:
        The differences in calls, failures and answer, one line each; empty if there are none.
    """
    recorded = Recorded(case)
    tools = stand_ins(routine.actions, recorded)
    strategy = _Once(routine.code(case.inputs))
    own = {"llm": NO_MODEL, "tools": tools, "strategy": strategy, "on_ask": recorded.answer}
    async with make(**{**UNSEEN, **own}) as agent:
        response = await agent.arun(f"test {routine.name}", timeout=60)
    problems = list(recorded.differences)
    if not response.status and not problems:
        problems.append(f"it fails: {response.error}")
    problems += [f"it does not call {call.action} any more" for call in recorded.unused]
    if response.status:
        problems += case.other_answer(response.text)
    return problems


def stand_ins(actions: Mapping[str, UsedAction], recorded: Recorded) -> Sequence[ConnectionLike]:
    """Return connections with recorded results, without side effects."""
    stand_ins_by_name: dict[str, _StandIn] = {}
    for full in dict.fromkeys([*actions, *(call.action for call in recorded.unused)]):
        if full == ASK:
            continue  # answered by people, not by a connection
        connection, _, method = full.partition(".")
        stand_in = stand_ins_by_name.setdefault(connection, _StandIn(connection, not method))
        used = actions.get(full)
        texts = () if used is None else used.parameters
        action = Action(
            name=method or connection,
            permission=method or connection,
            effect="read",
            summary="recorded",
            parameters=tuple(map(_parameter, texts)),
            returns="Any" if used is None else used.returns,
            validate=dict,
            call=_caller(recorded, full),
        )
        stand_in.found.append(action)
    return list(stand_ins_by_name.values())


def _caller(recorded: Recorded, action: str) -> Any:
    async def call(**arguments: Any) -> Any:
        return recorded.take(action, arguments)

    return call


def _parameter(text: str) -> Parameter:
    name, _, rest = text.partition(":")
    kind, is_optional, default = rest.partition(" = ")
    default_text = default.strip() if is_optional else None
    return Parameter(name=name.strip(), type_text=kind.strip() or "Any", default_text=default_text)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 200 else f"{text[:199]}…")
