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
_WORDS: Final = ("title", "description", "examples", "$comment")
_BRACES: Final = re.compile(r"\{[^{}]*\}")
_ITEMS: Final = re.compile(r"\[.*\]")
_OF_NAMES: Final = ("properties", "$defs", "definitions", "patternProperties")


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A difference between an action now and when the routine was saved.

    Args:
        action: The action.
        what: The difference in words.
        matters: Whether the routine may behave differently, so that it must not run.
    """

    action: str
    what: str
    matters: bool

    def __str__(self) -> str:
        return f"{self.action}: {self.what}"


def used_action(tool: ToolDescription, *, empty: bool = True) -> UsedAction:
    """Return an action in the form in which a routine's header records it.

    Args:
        tool: The action.
        empty: Whether an empty result is normal.
    """
    return UsedAction(
        effect=tool.effect,
        parameters=tuple(map(str, tool.parameters)),
        returns=tool.returns,
        schema=schema_digest(tool.schema),
        empty=empty,
    )


def schema_digest(schema: Mapping[str, Any]) -> str:
    """Return a digest of a JSON Schema without its words for people."""
    text = json.dumps(_without_words(schema), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _without_words(schema: object, *, names: bool = False) -> object:
    """Return a schema without titles, descriptions and examples.

    Args:
        schema: The schema, or a part of it.
        names: Whether the keys of ``schema`` are the names of properties, which are all kept.
    """
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, object]", schema).items()
        return {
            key: _without_words(value, names=key in _OF_NAMES and not names)
            for key, value in fields
            if names or key not in _WORDS
        }
    if isinstance(schema, (list, tuple)):
        return [_without_words(item) for item in cast("Sequence[object]", schema)]
    return schema


def drift_of(routine: Routine, tools: Iterable[ToolDescription]) -> list[Drift]:
    """Compare the actions of a routine with the existing ones."""
    now = {tool.name: tool for tool in tools}
    return [each for name, item in routine.actions.items() for each in _drift(name, item, now)]


def _drift(name: str, before: UsedAction, now: Mapping[str, ToolDescription]) -> Iterator[Drift]:
    """Yield the differences between an action when saved and now."""
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
    # Changed parameters were reported above; the digest covers the rest of the schema.
    is_same = old == new
    if before.schema and is_same and after.schema != before.schema:
        yield Drift(action=name, what="the schema of its arguments is another one", matters=True)
    if after.returns != before.returns:
        what = f"it returned {before.returns}, and returns {after.returns} now"
        yield Drift(action=name, what=what, matters=_differs_in_kind(before.returns, after.returns))


def _differs_in_kind(before: str, after: str) -> bool:
    """Return True if a result type differs in kind.

    The keys of a dictionary are ignored, because connections learn them from answers; so are
    undeclared results.
    """
    kinds = [{part.strip() for part in _outer(text).split("|")} for text in (before, after)]
    unknown = {"Any", "None", "object"}
    return not (kinds[0] & kinds[1] or kinds[0] <= unknown or kinds[1] <= unknown)


def _outer(returns: str) -> str:
    """Return a type without dictionary keys and list items."""
    while (shorter := _BRACES.sub("dict", returns)) != returns:
        returns = shorter
    return _ITEMS.sub("", returns)


def _name(parameter: str) -> str:
    return parameter.partition(":")[0].strip(" *")


def _type(parameter: str) -> str:
    return parameter.partition(":")[2].partition("=")[0].strip()


def named_actions(
    script: str,
    tools: Iterable[ToolDescription],
    *,
    called: Collection[str] = (),
    never_empty: Collection[str] = (),
) -> dict[str, UsedAction]:
    """Return the actions named in a script, in the form of a routine's header.

    Args:
        script: The Python source.
        tools: The known tools.
        called: The names of further actions, which the script called.
        never_empty: The actions that always returned something.
    """
    names = names_in(script) | set(called)
    return {
        tool.name: used_action(tool, empty=tool.name not in never_empty)
        for tool in tools
        if tool.name in names and not tool.built_in
    }


def names_in(script: str) -> set[str]:
    """Return the names in a script that could be actions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names
