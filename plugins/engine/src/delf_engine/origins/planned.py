"""Comparison of a call with the calls that the user's words ask for, value by value."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from delf_engine.bound_action import BoundAction
from delf_engine.origins.origin import ReadCall
from delf_engine.origins.outline import CHOOSE, FOLLOW, calls_in, calls_of, field_of
from delf_engine.origins.scripts import arguments_of, dotted, is_constant, letters_of_name
from delf_engine.origins.texts import is_only_one, plain_text, same_text
from delf_engine.origins.values import (
    fields_at,
    fields_of,
    items_of,
    leaves_of,
    names_in,
    values_of,
)

IsFree = Callable[[str, str], bool]
"""Decides whether a value, given by path and text, is content for people to read."""


class Planned:
    """The calls of the task's outline.

    Args:
        made: The calls of the task so far, by action.
        tool_of: Returns an action by its name.
        is_named: Returns whether others' words name a record.
        is_answer: Returns whether a person gave a value as the answer to a question, which fits
            wherever the outline states no other value.
    """

    def __init__(
        self,
        made: Mapping[str, Sequence[ReadCall]],
        tool_of: Callable[[str], BoundAction | None],
        is_named: Callable[[str], bool],
        is_answer: Callable[[str], bool],
    ) -> None:
        self._made = made
        self._tool_of = tool_of
        self._is_named = is_named
        self._is_answer = is_answer
        self._calls: list[ast.Call] = []
        self.orders: Sequence[ast.Call] = ()
        """The calls that read texts which the user's words order to follow."""
        self.answers = 0
        """The model's answers to the question for an outline."""
        self._passed: Counter[tuple[str, ...]] = Counter()

    def add(self, answer: str) -> None:
        """Add the calls of a model's answer; only the first answer may order to follow texts."""
        for call in calls_of(answer):
            inner = [each for each in calls_in(call) if dotted(each.func) != FOLLOW]
            self._calls += inner
            if dotted(call.func) == FOLLOW and not self.answers:
                self.orders = [*self.orders, *inner]
        self.answers += 1

    def misfits(
        self,
        action: str,
        arguments: Mapping[str, Any],
        is_free: IsFree,
        *,
        is_alone: bool = False,
        names: Iterable[str] | None = None,
    ) -> Sequence[Sequence[str]]:
        """Return for each planned call of an action the parameters in which a call differs.

        Compares all parameters, or only ``names``. With ``is_alone``, values that are left to the
        model match only a planned call that states some value.
        """
        found: list[Sequence[str]] = []
        for call in self._planned(action):
            is_bare = is_alone and not any(map(is_constant, self._given(call).values()))
            found.append([*self._misfits(call, arguments, _is_none if is_bare else is_free, names)])
        return found

    def sources_of(self, action: str, name: str) -> frozenset[str]:
        """Return the actions whose results the outline wants in a parameter."""
        wanted = (each for node in self._wanted(action, name) for each in calls_in(node))
        return frozenset(dotted(each.func) for each in wanted)

    def states(self, action: str, name: str, value: Any) -> bool:
        """Return whether the outline states exactly this argument."""
        nodes = filter(is_constant, self._wanted(action, name))
        return any(self._fits(node, value, name, _is_any) for node in nodes)

    def is_planned(self, made: ReadCall) -> bool:
        """Return whether the outline has a call that was made."""
        return any(self.is_call(call, made) for call in self._planned(made.action))

    def uses_up(
        self, action: str, arguments: Mapping[str, Any], is_free: IsFree, planned: int
    ) -> bool:
        """Count a planned call; return whether the call was already made as often as planned."""

        def key_of(given: Mapping[str, Any]) -> tuple[str, ...]:
            leaves = (
                f"{path} {text}" for path, text in values_of(given) if not is_free(path, text)
            )
            return (action, *leaves)

        key, made = key_of(arguments), self._made.get(action, ())
        for call in made:
            call.key = call.key or key_of(call.arguments)
        same = [call for call in made if call.key == key]
        used = max(len(same), self._passed[key]) - sum(call.has_failed for call in same)
        self._passed[key] += used < planned
        return used >= planned

    def is_call(self, planned: ast.Call, made: ReadCall) -> bool:
        """Return whether a successful call matches a planned call in every argument."""
        if made.has_failed or made.result is None or made.action != dotted(planned.func):
            return False
        # A clean script may say more than the plan, and a person or the plan let a change pass.
        is_free = _is_any if made.is_clean or made.changes else _is_none
        return next(self._misfits(planned, made.arguments, is_free), None) is None

    def _planned(self, action: str) -> Sequence[ast.Call]:
        return [call for call in self._calls if dotted(call.func) == action]

    def _wanted(self, action: str, name: str) -> Sequence[ast.expr]:
        given = (self._given(call).get(letters_of_name(name)) for call in self._planned(action))
        return [node for node in given if node is not None]

    def _given(self, call: ast.Call) -> Mapping[str, ast.expr]:
        tool = self._tool_of(dotted(call.func))
        return arguments_of(call, [each.name for each in tool.action.parameters] if tool else ())

    def _misfits(
        self,
        call: ast.Call,
        arguments: Mapping[str, Any],
        is_free: IsFree,
        names: Iterable[str] | None = None,
    ) -> Iterator[str]:
        planned, tool = self._given(call), self._tool_of(dotted(call.func))
        defaults: Mapping[str, Any] = tool.action.defaults if tool else {}
        values = {**defaults, **arguments}
        given = {letters_of_name(name): name for name in values}
        for letters in sorted({*planned, *given} if names is None else map(letters_of_name, names)):
            name, node = given.get(letters, letters), planned.get(letters)
            value = values.get(name)
            # What nobody gives takes nothing from others.
            is_default = name in defaults and value == defaults[name]
            if name not in values:
                is_fitting = node is None or _is_open(node)
            elif node is None:
                is_fitting = is_default or all(is_free(*leaf) for leaf in leaves_of(value, name))
            else:
                is_open = is_default and not is_constant(node)
                is_fitting = is_open or self._fits(node, value, name, is_free)
            if not is_fitting:
                yield name

    def _fits(self, node: ast.expr, value: Any, path: str, is_free: IsFree) -> bool:
        """Return whether a value is the planned value of its argument."""
        items = [*items_of(value)]
        match node:
            case ast.List(elts=nodes) | ast.Tuple(elts=nodes) | ast.Set(elts=nodes):
                pairs = {
                    (at, number)
                    for at, item in enumerate(items)
                    for number, each in enumerate(nodes)
                    if self._fits(each, item, path, is_free)
                }
                stated = {number for number, each in enumerate(nodes) if is_constant(each)}
                has_room = len(items) <= len(nodes) or len(stated) < len(nodes)
                are_planned = {at for at, _ in pairs} == {*range(len(items))}
                return has_room and are_planned and stated <= {number for _, number in pairs}
            case ast.Dict(keys=keys, values=nodes) if (held := fields_of(value)) is not None:
                names = (getattr(key, "value", None) for key in keys)
                planned = dict(zip(names, nodes, strict=True))
                return all(
                    self._fits(planned[name], held.get(name), f"{path}.{name}", is_free)
                    if name in planned
                    else held[name] is None
                    for name in {**planned, **held}
                )
            case ast.Call(func=ast.Name(id=name), args=choices) if name == CHOOSE:
                return any(self._fits(each, value, path, is_free) for each in choices)
            case _ if is_constant(node):
                literal = ast.literal_eval(node)
                is_text = all(is_free(*leaf) for leaf in leaves_of(value, path))
                is_alike = is_text and plain_text(str(literal)) == plain_text(str(value))
                return is_alike or _is_same(literal, items[0] if len(items) == 1 else value)
            case _:
                field = field_of(node)
                return all(
                    is_free(inner, text)
                    or self._is_answer(text)
                    or (field and self._holds(*field, text, names_in(inner.removeprefix(path))))
                    for inner, text in leaves_of(value, path)
                )

    def _holds(self, call: ast.Call, path: Sequence[str], text: str, inner: Sequence[str]) -> bool:
        """Return whether a field of an earlier call's result contains a value.

        The value is the whole field, or the only word of its kind in the field's text. Among
        several records, those named by others do not count.
        """
        made = [each for each in self._made.get(dotted(call.func), ()) if self.is_call(call, each)]
        items = (item for each in made for item in fields_at(each.result, (*path, *inner)))
        held = {each for item in items for _, each in leaves_of(item)}
        if same_text(text) in map(same_text, held):
            return len(held) == 1 or not self._is_named(text)
        return any(is_only_one(text, each) for each in held)


def _is_any(_path: str, _text: str) -> bool:
    return True


def _is_none(_path: str, _text: str) -> bool:
    return False


def _is_open(node: ast.expr) -> bool:
    """Return whether an argument is left to the model."""
    return isinstance(node, ast.Constant) and node.value is ...


def _is_same(literal: Any, value: Any) -> bool:
    """Return whether a value equals the planned one, ignoring number formats and spaces."""
    wanted = [(path, same_text(text)) for path, text in leaves_of(literal)]
    return wanted == [(path, same_text(text)) for path, text in leaves_of(value)]
