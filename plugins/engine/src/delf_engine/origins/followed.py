"""Find the texts that the user's words order to follow, such as the to-dos of a colleague's mail.

The author of a record is a field that its service guarantees. A text that names its own author has
none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

from delf_engine.origins.origin import ReadCall
from delf_engine.origins.scripts import dotted
from delf_engine.origins.texts import mentions
from delf_engine.origins.values import text_of

_MOST_FOLLOWED: Final = 3
"""The most texts that one task may order to follow."""
_LONGEST_FOLLOWED: Final = 20_000
"""The most characters of a text about which the model is asked."""
_QUOTES: Final = re.compile(
    r"^\s*>|forwarded|wrote:|\bcomments?\b|^\s*from:\s*\S+@", re.IGNORECASE | re.MULTILINE
)
"""Marks that a text quotes somebody else."""
_MOST_STEPS: Final = 200_000
"""The most values of a result that are examined."""


def followed_texts(
    orders: Sequence[ast.Call],
    calls: Iterable[ReadCall],
    is_own: Callable[[str], bool],
) -> Sequence[str]:
    """Find the texts to follow among results with a known author.

    Args:
        orders: The calls that read texts which the user's words order to follow.
        calls: The calls of the task, in their order.
        is_own: Returns whether a value occurs in the user's words.
    """
    found: dict[str, None] = {}
    for call in calls:
        for order in orders:
            if dotted(order.func) != call.action or call.wording.author is None:
                continue
            stated = (each.value for each in ast.walk(order) if isinstance(each, ast.Constant))
            own_texts = [text for text in map(str, stated) if is_own(text)]
            for record in _records_by(is_own, call, call.wording.author):
                held = f"{record}\n{text_of(call.arguments)}"
                is_quoting = _QUOTES.search(record.replace(f"{call.wording.author}: ", ""))
                if not is_quoting and all(mentions(held, text) for text in own_texts):
                    found.setdefault(record[:_LONGEST_FOLLOWED])
    return list(islice(found, _MOST_FOLLOWED))


def _records_by(is_named: Callable[[str], bool], call: ReadCall, author: str) -> Iterator[str]:
    """Yield, as texts, the records of a result whose author the user named.

    Args:
        is_named: Returns whether the user named an author.
        call: The call with the result.
        author: The field with the author; if no record has the field, the argument of that name.
    """
    todo, steps, has_field = [call.result], 0, False
    while todo and steps < _MOST_STEPS:
        item, steps = todo.pop(), steps + 1
        if isinstance(item, Mapping):
            fields = cast("Mapping[str, Any]", item)
            if author not in fields:
                todo += [*fields.values()][::-1]
                continue
            has_field, whose = True, fields[author]
            if isinstance(whose, str) and is_named(whose):
                yield text_of(fields)
        elif isinstance(item, (list, tuple)):
            todo += reversed(cast("Sequence[Any]", item))
    whose = call.arguments.get(author)
    if not has_field and isinstance(whose, str) and is_named(whose):
        yield text_of(call.result)
