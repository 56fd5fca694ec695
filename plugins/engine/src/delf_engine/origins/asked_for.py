"""Compare a call with the outline of the task: does the task itself ask for its values?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from delf_engine.origins.origin import ReadCall
from delf_engine.origins.outline import Outline, Planned, PlannedCall, PlannedField
from delf_engine.origins.texts import Words
from delf_engine.origins.values import (
    fields_at,
    letters_of_name,
    names_in,
    parameter_of,
    same_text,
    texts_in,
)


class AskedFor:
    """Tells whether the user's words ask for a value of a call.

    Args:
        is_own: Tells whether a text is in the words of the user or of a clean script.
        calls: The calls of the task so far.
    """

    def __init__(self, is_own: Callable[[str], bool], calls: Mapping[int, ReadCall]) -> None:
        self._is_own = is_own
        self._calls = calls
        self.outline = Outline()
        """The calls that the task itself asks for; none before a model was asked about them."""

    def first_unasked(
        self,
        action: str,
        values: Sequence[tuple[str, str]],
        deciding: Sequence[tuple[str, str]],
        *,
        in_text: bool,
    ) -> str | None:
        """Return the path of the first value that no call of the outline has; None if one has all.

        A word in the text of a field may go along with a name that the outline states for the
        same call.

        Args:
            action: What is called.
            values: The values that nothing else allows, with their paths.
            deciding: All values that decide what the call does.
            in_text: A word in the text of a field is enough in any case.
        """
        if not values:
            return None
        missing: list[str] = []
        for planned in self.outline.calls_of(action):
            is_named = in_text or any(
                _is_stated(planned, path, text) and any(map(str.isalpha, text))
                for path, text in deciding
            )
            unasked = (
                path
                for path, text in values
                if not self._has(planned, path, text, in_text=is_named)
            )
            path = next(unasked, None)
            if path is None:
                return None
            missing.append(path)
        return missing[0] if missing else values[0][0]

    def states(self, action: str, values: Sequence[tuple[str, str]]) -> bool:
        """Return whether some call of the outline states literals, and all of these are given."""
        for planned in self.outline.calls_of(action):
            stated = {
                name: {*map(same_text, argument.literals)}
                for name, argument in planned.arguments.items()
                if argument.literals
            }
            for path, text in values:
                stated.get(letters_of_name(parameter_of(path)), set[str]()).discard(same_text(text))
            if stated and not any(stated.values()):
                return True
        return False

    def is_stated(self, action: str, path: str, text: str) -> bool:
        """Return whether some call of the outline states a value for its parameter."""
        return any(_is_stated(call, path, text) for call in self.outline.calls_of(action))

    def has_call(self, action: str) -> bool:
        """Return whether the user's words ask for a call of an action."""
        return bool(self.outline.calls_of(action))

    def sources_of(self, action: str, parameter: str) -> frozenset[str]:
        """Return the actions whose results the user's words ask for in a parameter."""
        calls = self.outline.calls_of(action)
        return frozenset[str]().union(*(call.argument(parameter).sources for call in calls))

    def _has(self, call: PlannedCall, path: str, text: str, *, in_text: bool) -> bool:
        parameter, *inner = names_in(path)
        return self._fits(call.argument(parameter), text, inner, in_text=in_text)

    def _fits(
        self, planned: Planned, text: str, inner: Sequence[str] = (), *, in_text: bool = False
    ) -> bool:
        return same_text(text) in map(same_text, planned.literals) or any(
            self._holds(field, text, inner, in_text=in_text) for field in planned.fields
        )

    def _holds(
        self, field: PlannedField, text: str, inner: Sequence[str], *, in_text: bool
    ) -> bool:
        """Return whether a field of a call that was made has a value, whole or in its text."""
        if tuple(inner[: len(field.at)]) != field.at:
            return False
        wanted = same_text(text)
        for call in self._calls.values():
            if not self._is_call(field.call, call):
                continue
            for item in fields_at(call.result, (*field.path, *inner[len(field.at) :])):
                if wanted in map(same_text, _texts_of(item)):
                    return True
                if in_text and isinstance(item, str) and Words(item).mention(text):
                    return True
        return False

    def _is_call(self, planned: PlannedCall, made: ReadCall) -> bool:
        """Return whether a call is the one of the outline: as stated, and narrowed by nobody."""
        if made.action != planned.action or made.result is None:
            return False
        given = {letters_of_name(name): value for name, value in made.arguments.items()}
        for name, argument in planned.arguments.items():
            if not (argument.literals or argument.fields):
                given.pop(name, None)  # the model makes it up
            elif name.isdecimal():
                if not any(self._is_stated(argument, value) for value in given.values()):
                    return False
            elif name not in given or not self._is_stated(argument, given.pop(name)):
                return False
        named = [*planned.arguments]
        rest = [] if any(map(str.isdecimal, named)) else [*given.values()]
        return all(not isinstance(value, str) or self._is_own(value) for value in rest)

    def _is_stated(self, argument: Planned, value: Any) -> bool:
        return all(self._fits(argument, text) for text in texts_in(value))


def _is_stated(call: PlannedCall, path: str, text: str) -> bool:
    literals = call.argument(parameter_of(path)).literals
    return same_text(text) in map(same_text, literals)


def _texts_of(item: Any) -> Iterator[str]:
    """Return the values that a field is.

    A text or number, or the keys of a record that are no names.
    """
    if isinstance(item, Mapping):
        keys = cast("Mapping[Any, Any]", item)
        return (key for key in keys if isinstance(key, str) and not key.isidentifier())
    return texts_in(item)
