"""Find the texts that the user's words order to follow, such as the to-dos of a colleague's mail.

A record's author is a field that its service vouches for. A text that names its author itself is
nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

from delf.records import dataclass
from delf_engine.origins.outline import Order
from delf_engine.origins.texts import Words
from delf_engine.origins.values import text_of

_MOST_FOLLOWED: Final = 3
"""Texts that one task may order to follow."""
_LONGEST_FOLLOWED: Final = 20_000
"""Characters of a text that the model is asked about."""
_MOST_STEPS: Final = 200_000
"""Values of a result that are walked through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoredResult:
    """A call's result whose author the service vouches for.

    Args:
        action: What was called.
        author: The field of its records with the author; where no record has it, the argument.
        arguments: The call's arguments.
        result: What it returned.
    """

    action: str
    author: str
    arguments: Mapping[str, Any]
    result: Any


def followed_texts(
    orders: Sequence[Order],
    results: Iterable[AuthoredResult],
    is_own: Callable[[str], bool],
) -> Sequence[str]:
    """Find the texts that some orders mean, among results that have an author.

    Args:
        orders: The orders to do what a text says.
        results: Those results, in the order of their calls.
        is_own: Tells whether a value stands in the user's words.
    """
    found: dict[str, None] = {}
    for result in results:
        for order in orders:
            if order.action != result.action:
                continue
            told = [text for text in order.literals if is_own(text)]
            for record in _records_by(is_own, result):
                held = Words(f"{record}\n{text_of(result.arguments)}")
                if all(map(held.mention, told)):
                    found.setdefault(record[:_LONGEST_FOLLOWED])
    return list(islice(found, _MOST_FOLLOWED))


def _records_by(is_named: Callable[[str], bool], given: AuthoredResult) -> Iterator[str]:
    """The records of a result whose author is one of those that are named, each as a text.

    Args:
        is_named: Tells of an author.
        given: The result.
    """
    todo, steps, has_field = [given.result], 0, False
    while todo and steps < _MOST_STEPS:
        item, steps = todo.pop(), steps + 1
        if isinstance(item, Mapping):
            fields = cast("Mapping[str, Any]", item)
            if given.author not in fields:
                todo += [*fields.values()][::-1]
                continue
            has_field, whose = True, fields[given.author]
            if isinstance(whose, str) and is_named(whose):
                yield text_of(fields)
        elif isinstance(item, (list, tuple)):
            todo += reversed(cast("Sequence[Any]", item))
    whose = given.arguments.get(given.author)
    if not has_field and isinstance(whose, str) and is_named(whose):
        yield text_of(given.result)
