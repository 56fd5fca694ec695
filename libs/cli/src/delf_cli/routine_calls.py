"""The text of a task that calls a routine, such as ``monthly_report(month="2026-10")``."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from delf.errors import ConfigurationError
from delf.records import dataclass
from delf_cli.routines import call_text
from delf_engine.one_call import parse_call

ITEM: Final = "item"
"""The script variable with the current item, if a schedule starts one task for each new item."""


@dataclass(frozen=True)
class _ItemPath:
    """The keys that lead to a value in an item: ``("a", 0)`` for ``item["a"][0]``."""

    keys: Sequence[str | int]


@dataclass(frozen=True, kw_only=True)
class RoutineCall:
    """The call of a routine as a task's text, such as ``enter(mail=item["id"], year=2026)``.

    Args:
        routine: The name of the routine.
        values: A mapping from parameter to literal value, which the routine has yet to validate.
        item_paths: A mapping from parameter to the keys that lead to the parameter's value in the
            item that triggers the task, such as ``("id",)`` for ``item["id"]``.
    """

    routine: str
    values: Mapping[str, Any]
    item_paths: Mapping[str, Sequence[str | int]]

    @classmethod
    def read(cls, task: str, *, with_item: bool = False) -> Self:
        """Parse a task's text: a call with named arguments, or only the routine's name.

        Args:
            task: The text.
            with_item: Whether an argument may be a value of the item, such as ``item["id"]``.

        Raises:
            ConfigurationError: If the text is not a call of a routine.
        """
        text = task.strip()
        if text.isidentifier():
            text += "()"
        hint = 'a task that runs a routine is written as report(month="2026-10")'
        if with_item:
            hint += f', or report(mail={ITEM}["id"]) for each item'
        not_a_call = ConfigurationError(f"{task[:80]!r} is not a call of a routine", hint=hint)
        read_value = _read_value if with_item else ast.literal_eval
        try:
            name, arguments = parse_call(text, read_value)
        except ConfigurationError:
            raise not_a_call from None
        if not name.isidentifier():
            raise not_a_call
        values: dict[str, Any] = {}
        item_paths: dict[str, Sequence[str | int]] = {}
        for parameter, value in arguments.items():
            if isinstance(value, _ItemPath):
                item_paths[parameter] = value.keys
            else:
                values[parameter] = value
        return cls(routine=name, values=values, item_paths=item_paths)

    def text_for(self, item: Any) -> str:
        """Return the text of the call for one item of the list over which the routine runs.

        Args:
            item: The item. Its values at ``item_paths`` become arguments of the call.

        Raises:
            ConfigurationError: If a value in the item is missing, or is neither text nor a number.
        """
        values = {**self.values}
        for name, keys in self.item_paths.items():
            value = _value_at(item, keys)
            is_nan_or_infinite = isinstance(value, float) and not math.isfinite(value)  # no literal
            is_text_or_number = isinstance(value, (str, int, float)) and not isinstance(value, bool)
            if is_nan_or_infinite or not is_text_or_number:
                key_path = "".join(f"[{key!r}]" for key in keys)
                raise ConfigurationError(f"the item has no text or number at {ITEM}{key_path}")
            values[name] = value
        return call_text(self.routine, values)


def _value_at(item: Any, keys: Sequence[str | int]) -> Any:
    """Return the value inside an item to which keys and indices lead; None if it is missing."""
    value = item
    try:
        for key in keys:
            value = value[key]
    except (LookupError, TypeError):
        return None
    return value


def _read_value(node: ast.expr) -> Any:
    """Return a literal's value, or an :class:`_ItemPath` for a node such as ``item["a"][0]``."""
    keys: list[str | int] = []
    item: ast.expr = node
    while isinstance(item, ast.Subscript):  # the outermost subscript has the last key
        key = ast.literal_eval(item.slice)
        if not isinstance(key, (str, int)):
            raise TypeError(key)
        keys.append(key)
        item = item.value
    if isinstance(item, ast.Name) and item.id == ITEM:
        return _ItemPath(tuple(reversed(keys)))
    return ast.literal_eval(node)
