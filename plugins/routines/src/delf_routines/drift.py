"""Drift: changes of the actions that a routine uses."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from delf.protocols.strategy import ToolDescription
from delf.tools.action import EFFECTS
from delf_routines.routine import Routine, UsedAction

_DIGITS: Final = 16
_DESCRIPTION_KEYS: Final = ("title", "description", "examples", "$comment")
_BRACES: Final = re.compile(r"\{[^{}]*\}")
_ITEMS: Final = re.compile(r"\[[^\[\]]*\]")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NAMED_SCHEMA_KEYS: Final = ("properties", "$defs", "definitions", "patternProperties")


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A difference between an action's current form and the form that a routine recorded.

    Args:
        action: The full name of the action.
        what: A description of the difference.
        matters: Whether the routine may behave differently. Such a routine must not run.
    """

    action: str
    what: str
    matters: bool

    def __str__(self) -> str:
        return f"{self.action}: {self.what}"


def used_action(tool: ToolDescription, *, may_be_empty: bool = True) -> UsedAction:
    """Convert a tool's description to the form that a routine's header records.

    Args:
        tool: The description.
        may_be_empty: Whether an empty result is normal.
    """
    return UsedAction(
        effect=tool.effect,
        parameters=tuple(map(str, tool.parameters)),
        returns=tool.returns,
        schema=schema_digest(tool.schema),
        empty=may_be_empty,
    )


def schema_digest(schema: Mapping[str, Any]) -> str:
    """Return a digest of a JSON Schema that ignores descriptions."""
    text = json.dumps(_without_descriptions(schema), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _without_descriptions(schema: object, *, is_name_mapping: bool = False) -> object:
    """Return a JSON Schema without titles, descriptions and examples.

    Args:
        schema: The schema, or a part of it.
        is_name_mapping: Whether the keys of ``schema`` are property names, which are all kept.
    """
    if isinstance(schema, Mapping):
        kept: dict[str, object] = {}
        for key, value in cast("Mapping[str, object]", schema).items():
            is_keyword = not is_name_mapping
            if is_keyword and key in _DESCRIPTION_KEYS:
                continue
            has_names = is_keyword and key in _NAMED_SCHEMA_KEYS
            kept[key] = _without_descriptions(value, is_name_mapping=has_names)
        return kept
    if isinstance(schema, (list, tuple)):
        return [_without_descriptions(item) for item in cast("Sequence[object]", schema)]
    return schema


def drift_of(routine: Routine, tools: Iterable[ToolDescription]) -> list[Drift]:
    """Compare the recorded actions of a routine with the current tools."""
    tools_by_name = {tool.name: tool for tool in tools}
    return [
        drift
        for name, action in routine.actions.items()
        for drift in _compare_action(name, action, tools_by_name)
    ]


def _compare_action(
    name: str, before: UsedAction, tools_by_name: Mapping[str, ToolDescription]
) -> Iterator[Drift]:
    """Yield the differences between a recorded action and the current tool of that name.

    Args:
        name: The full name of the action.
        before: The recorded action.
        tools_by_name: The current tools by name.
    """
    tool = tools_by_name.get(name)
    if tool is None:
        yield Drift(action=name, what="no such action is there", matters=True)
        return
    after = used_action(tool)
    if after.effect != before.effect:
        is_stricter = EFFECTS.index(after.effect) > EFFECTS.index(before.effect)
        what = f"its effect was {before.effect}, and is {after.effect}"
        yield Drift(action=name, what=what, matters=is_stricter)
    old = {_name(text): text for text in before.parameters}
    new = {_name(text): text for text in after.parameters}
    yield from _compare_parameters(name, old, new)
    # ``schema`` is a digest of the parameters and more. If the parameters are the same, report that
    # something else in the schema has changed.
    if before.schema and old == new and after.schema != before.schema:
        yield Drift(action=name, what="the schema of its arguments has changed", matters=True)
    if after.returns != before.returns:
        what = f"it returned {before.returns}, and returns {after.returns} now"
        yield Drift(action=name, what=what, matters=_differs_in_kind(before.returns, after.returns))


def _compare_parameters(
    action: str, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[Drift]:
    """Yield the differences between the parameters of a recorded action and of the current one.

    Args:
        action: The full name of the action.
        old: The recorded parameters, by name, as text with type and default.
        new: The current parameters.
    """
    for name, text in old.items():
        if name not in new:
            yield Drift(action=action, what=f"it has no parameter {text} any more", matters=True)
        elif new[name] != text:
            what = f"its parameter {text} is {new[name]} now"
            yield Drift(action=action, what=what, matters=_type(text) != _type(new[name]))
    for name, text in new.items():
        if name not in old:
            is_required = "=" not in _QUOTED.sub("", text)
            kind = "a new required parameter" if is_required else "a new parameter"
            yield Drift(action=action, what=f"it has {kind} {text}", matters=is_required)


def _differs_in_kind(before: str, after: str) -> bool:
    """Return True if a script cannot use the new result type like the old one.

    Keys of dictionaries are ignored, because connections learn them from responses. Undeclared
    results match every type.
    """
    old = {kind.strip() for kind in _outer_type(before).split("|")}
    new = {kind.strip() for kind in _outer_type(after).split("|")}
    undeclared = {"Any", "None", "object"}
    is_undeclared = old <= undeclared or new <= undeclared
    has_common_type = bool(old & new)
    return not is_undeclared and not has_common_type


def _outer_type(returns: str) -> str:
    """Return the outer type: ``list`` for ``list[int]``, ``dict`` for ``{'id': int}``.

    Of a union, return the outer types: ``list | dict`` for ``list[int] | dict[str, int]``.
    """
    outer = _QUOTED.sub("", returns)  # the texts of a Literal may have brackets of their own
    while True:  # each round replaces the innermost braces and brackets
        shorter = _ITEMS.sub("", _BRACES.sub("dict", outer))
        if shorter == outer:
            return outer
        outer = shorter


def _name(parameter: str) -> str:
    """Return the name of a parameter: ``limit`` for ``limit: int = 50``."""
    return parameter.partition(":")[0].strip(" *")


def _type(parameter: str) -> str:
    """Return the type of a parameter: ``int`` for ``limit: int = 50``."""
    _, _, type_and_default = parameter.partition(":")
    # Mask the texts of a Literal, which may contain "=", without changing their lengths.
    masked = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), type_and_default)
    masked_type, _, _ = masked.partition("=")
    return type_and_default[: len(masked_type)].strip()


def named_actions(
    script: str,
    tools: Iterable[ToolDescription],
    *,
    called: Collection[str] = (),
    never_empty: Collection[str] = (),
) -> dict[str, UsedAction]:
    """Return the tools that a script names or calls, in the form that a routine's header records.

    Args:
        script: The Python source.
        tools: The known tools.
        called: The names of the tools that the script called when it ran.
        never_empty: The names of tools that always returned data.

    Returns:
        A mapping from full name to recorded action.
    """
    names = names_in(script) | set(called)
    return {
        tool.name: used_action(tool, may_be_empty=tool.name not in never_empty)
        for tool in tools
        if tool.name in names and not tool.built_in
    }


def names_in(script: str) -> set[str]:
    """Return the names and dotted names in a script, each of which could be an action."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names
