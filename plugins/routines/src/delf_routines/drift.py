"""Drift: what became of the actions that a routine was written for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from delf.protocols.strategy import ToolDescription
from delf.tools.action import EFFECTS
from delf_routines.routine import Routine, UsedAction


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A difference between an action and what a routine was written for.

    Args:
        action: The action.
        what: The difference in words.
        matters: Whether the routine could do something else by it, so that it is not run.
    """

    action: str
    what: str
    matters: bool

    def __str__(self) -> str:
        return f"{self.action}: {self.what}"


def used_action(tool: ToolDescription) -> UsedAction:
    """An action as a routine remembers it."""
    parameters = tuple(map(str, tool.parameters))
    return UsedAction(effect=tool.effect, parameters=parameters, returns=tool.returns)


def drift_of(routine: Routine, tools: Iterable[ToolDescription]) -> list[Drift]:
    """Compare the actions of a routine with those that there are.

    Args:
        routine: The routine.
        tools: The tools that there are now.
    """
    now = {tool.name: tool for tool in tools}
    return [each for name, item in routine.actions.items() for each in _drift(name, item, now)]


def _drift(name: str, before: UsedAction, now: Mapping[str, ToolDescription]) -> Iterator[Drift]:
    tool = now.get(name)
    if tool is None:
        yield Drift(action=name, what="it is not there any more", matters=True)
        return
    after = used_action(tool)
    if after.effect != before.effect:
        grew = EFFECTS.index(after.effect) > EFFECTS.index(before.effect)
        what = f"its effect was {before.effect}, and is {after.effect}"
        yield Drift(action=name, what=what, matters=grew)
    old = {_name(text): text for text in before.parameters}
    new = {_name(text): text for text in after.parameters}
    for parameter, text in old.items():
        if parameter not in new:
            yield Drift(action=name, what=f"it has no parameter {text} any more", matters=True)
        elif new[parameter] != text:
            what = f"its parameter {text} is {new[parameter]} now"
            yield Drift(action=name, what=what, matters=_type(text) != _type(new[parameter]))
    for parameter, text in new.items():
        if parameter not in old:
            needed = "=" not in text
            kind = "a new required parameter" if needed else "a new parameter"
            yield Drift(action=name, what=f"it has {kind} {text}", matters=needed)
    if after.returns != before.returns:
        what = f"it returned {before.returns}, and returns {after.returns} now"
        yield Drift(action=name, what=what, matters=True)


def _name(parameter: str) -> str:
    return parameter.partition(":")[0].strip(" *")


def _type(parameter: str) -> str:
    return parameter.partition(":")[2].partition("=")[0].strip()


def named_actions(script: str, tools: Iterable[ToolDescription]) -> dict[str, UsedAction]:
    """The actions whose names stand in a script, as a routine remembers them.

    Args:
        script: Python.
        tools: The tools that there are.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return {tool.name: used_action(tool) for tool in tools if tool.name in names}
