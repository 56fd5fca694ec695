"""Comparison of a call with the calls that the user's words ask for, value by value."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from delf_engine.origins.origin import ReadCall, Wording
from delf_engine.origins.outline import CHOOSE, Outline, PlannedField
from delf_engine.origins.scripts import arguments_of, dotted, is_constant
from delf_engine.origins.texts import is_only_one
from delf_engine.origins.values import (
    fields_at,
    fields_of,
    items_of,
    letters_of_name,
    names_in,
    plain_text,
    same_text,
    whole,
)

IsFree = Callable[[str, str], bool]
"""Decides whether a value, given by path and text, is content for people to read."""
_LEFT_OUT: Final = object()


class Planned:
    """The calls that the user's words ask for, by the outline and by clean scripts.

    Args:
        calls: The calls of the task so far.
        wording_of: Returns the known facts about an action's results.
        stated: Returns an action's calls that clean scripts write with constants only.
        is_named: Returns whether others' words mention a value.
        is_answer: Returns whether a person gave a value as the answer to a question, which fits
            wherever the plan states no other value.
    """

    def __init__(
        self,
        calls: Mapping[int, ReadCall],
        wording_of: Callable[[str], Wording],
        stated: Callable[[str], Iterable[ast.Call]],
        is_named: Callable[[str], bool],
        is_answer: Callable[[str], bool],
    ) -> None:
        self._calls = calls
        self._wording_of = wording_of
        self._stated = stated
        self._is_named = is_named
        self._is_answer = is_answer
        self.outline = Outline()
        """The calls of the outline; empty until a model was asked."""
        self._made: dict[tuple[str, ...], list[ReadCall]] = defaultdict(list)
        self._counted: Counter[str] = Counter()
        self._passed: Counter[tuple[str, ...]] = Counter()

    def misfits(
        self,
        action: str,
        arguments: Mapping[str, Any],
        is_free: IsFree,
        *,
        is_alone: bool = False,
        names: Iterable[str] | None = None,
    ) -> Sequence[str] | None:
        """Return how a call differs from the closest planned call; None if none is planned.

        Args:
            action: The called action.
            arguments: The arguments by name.
            is_free: Returns whether a value is left to the model.
            is_alone: Whether free values alone do not match: the plan must state at least one
                value.
            names: The compared parameters; all if None.

        Returns:
            The paths of values that the plan has otherwise or not at all, of the call that
            fits best; empty if one fits.
        """
        found: list[list[str]] = []
        for call in self._planned(action):
            is_bare = is_alone and not any(map(is_constant, self._given(call).values()))
            found.append([*self._misfits(call, arguments, _is_none if is_bare else is_free, names)])
        return min(found, key=len, default=None)

    def states(self, action: str, path: str, value: Any) -> bool:
        """Return whether a planned call states exactly this argument."""
        nodes = (self._given(call).get(letters_of_name(path)) for call in self._planned(action))
        return any(
            is_constant(node) and self._fits(node, value, path, _is_any) for node in nodes if node
        )

    def sources_of(self, action: str, parameter: str) -> frozenset[str]:
        """Return the actions whose results the user's words want in a parameter."""
        nodes = (
            self._given(call).get(letters_of_name(parameter)) for call in self._planned(action)
        )
        inner = (each for node in nodes if node for each in ast.walk(node))
        return frozenset(dotted(each.func) for each in inner if isinstance(each, ast.Call))

    def is_planned(self, made: ReadCall) -> bool:
        """Return whether the user's words ask for a call that was made."""
        return any(self._is_call(call, made) for call in self._planned(made.action))

    def uses_up(self, action: str, arguments: Mapping[str, Any], is_free: IsFree) -> bool:
        """Record a planned call; return whether it was already made as often as planned."""

        def key_of(given: Mapping[str, Any]) -> tuple[str, ...]:
            leaves = (leaf for name, item in given.items() for leaf in whole(item, name))
            return (action, *(f"{path} {text}" for path, text in leaves if not is_free(path, text)))

        every = [call for call in self._calls.values() if call.action == action]
        for call in every[self._counted[action] :]:
            self._made[key_of(call.arguments)].append(call)
        self._counted[action] = len(every)
        key = key_of(arguments)
        misfits = (self._misfits(call, arguments, is_free) for call in self._planned(action))
        planned = sum(next(paths, None) is None for paths in misfits)
        made = self._made[key]
        used = max(len(made), self._passed[key]) - sum(call.has_failed for call in made)
        self._passed[key] += used < planned
        return used >= planned

    def _planned(self, action: str) -> Sequence[ast.Call]:
        return [*self.outline.calls_of(action), *self._stated(action)]

    def _given(self, call: ast.Call) -> Mapping[str, ast.expr]:
        return arguments_of(call, self._wording_of(dotted(call.func)).parameters)

    def _misfits(
        self,
        call: ast.Call,
        arguments: Mapping[str, Any],
        is_free: IsFree,
        names: Iterable[str] | None = None,
    ) -> Iterator[str]:
        planned = self._given(call)
        defaults = self._wording_of(dotted(call.func)).defaults
        given = {letters_of_name(name): (name, value) for name, value in defaults.items()}
        given |= {letters_of_name(name): (name, value) for name, value in arguments.items()}
        wanted = {*planned, *given} if names is None else {*map(letters_of_name, names)}
        for letters in sorted(wanted):
            name, value = given.get(letters, (letters, _LEFT_OUT))
            node = planned.get(letters)
            is_default = value is _LEFT_OUT or (name in defaults and value == defaults[name])
            if is_default and (node is None or not (is_constant(node) or value is _LEFT_OUT)):
                continue  # what nobody gives takes nothing from others
            if node is None:
                yield from (path for path, text in whole(value, name) if not is_free(path, text))
            elif value is _LEFT_OUT:
                yield from () if _is_open(node) else (name,)
            else:
                yield from self._differing(node, value, name, is_free)

    def _differing(self, node: ast.expr, value: Any, path: str, is_free: IsFree) -> Iterator[str]:
        """Yield the paths of values that differ from the plan."""
        match node:
            case ast.List(elts=nodes) | ast.Tuple(elts=nodes) | ast.Set(elts=nodes):
                items = [*items_of(value)]
                for at, item in enumerate(items):
                    if not any(self._fits(each, item, f"{path}[{at}]", is_free) for each in nodes):
                        yield f"{path}[{at}]"
                if all(map(is_constant, nodes)) and len(items) > len(nodes):
                    yield path
                for each in filter(is_constant, nodes):
                    if not any(self._fits(each, item, path, is_free) for item in items):
                        yield path
            case ast.Dict(keys=keys, values=nodes) if (held := fields_of(value)) is not None:
                planned = dict(
                    zip([getattr(key, "value", None) for key in keys], nodes, strict=True)
                )
                for name in {**planned, **held}:
                    item, inner = held.get(name), f"{path}.{name}"
                    if name in planned:
                        yield from self._differing(planned[name], item, inner, is_free)
                    elif item is not None:
                        yield inner
            case ast.Call(func=ast.Name(id=name), args=choices) if name == CHOOSE:
                if not any(self._fits(each, value, path, is_free) for each in choices):
                    yield path
            case _ if is_constant(node):
                literal, leaves = ast.literal_eval(node), [*whole(value, path)]
                is_text = all(is_free(*leaf) for leaf in leaves)
                if not (is_text and plain_text(str(literal)) == plain_text(str(value))):
                    items = [*items_of(value)]
                    if not _is_same(literal, items[0] if len(items) == 1 else value):
                        yield path
            case _:
                field = PlannedField.of(node)
                for inner, text in whole(value, path):
                    place = names_in(inner.removeprefix(path))
                    is_given = is_free(inner, text) or self._is_answer(text)
                    if not (is_given or (field and self._holds(field, text, place))):
                        yield inner

    def _fits(self, node: ast.expr, value: Any, path: str, is_free: IsFree) -> bool:
        return next(self._differing(node, value, path, is_free), None) is None

    def _holds(self, field: PlannedField, text: str, inner: Sequence[str]) -> bool:
        """Return whether a field of an earlier call contains a value.

        The value is the whole field, or the only word of its kind in the field's text. Among
        several records, those named by others do not count.
        """
        held: set[str] = set()
        for made in self._calls.values():
            if made.action == dotted(field.call.func) and self._is_call(field.call, made):
                items = fields_at(made.result, (*field.path, *inner))
                held.update(each for item in items for _, each in whole(item, ""))
        if same_text(text) in map(same_text, held):
            return len(held) == 1 or not self._is_named(text)
        return any(is_only_one(text, each) for each in held)

    def _is_call(self, planned: ast.Call, made: ReadCall) -> bool:
        """Return whether a call matches a planned call without further restrictions by others."""
        if made.has_failed or made.result is None:
            return False
        # A clean script may say more than the plan, and a person or the plan let a change pass.
        is_free = _is_any if made.is_clean or made.changes else _is_none
        return next(self._misfits(planned, made.arguments, is_free), None) is None


def _is_any(_path: str, _text: str) -> bool:
    return True


def _is_none(_path: str, _text: str) -> bool:
    return False


def _is_open(node: ast.expr) -> bool:
    """Return whether an argument is left to the model."""
    return isinstance(node, ast.Constant) and node.value is ...


def _is_same(literal: Any, value: Any) -> bool:
    """Return whether a value equals the planned one, ignoring number formats and spaces."""
    wanted = [(path, same_text(text)) for path, text in whole(literal, "")]
    return wanted == [(path, same_text(text)) for path, text in whole(value, "")]
