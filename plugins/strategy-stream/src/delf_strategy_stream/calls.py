"""A call as a model wrote it: JSON, repaired only where there is one way to read it."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from delf_strategy_stream.events import Called, Misread

_ARGUMENTS: Final = ("args", "arguments", "parameters", "input")
_TRAILING: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def read_call(text: str) -> Called | Misread:
    """The call that a text is.

    Read as well: line breaks within texts, a comma too many at the end, entities for all quotes,
    a literal of Python that JSON can say, arguments that are JSON in a text.

    Args:
        text: ``{"name": …, "args": {…}}``.
    """
    for value in _readings(text):
        return _call(value, text)
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", "it is nested too deeply")
        return Misread(text, f"it is not JSON: {why}")
    return Misread(text, "it is no object")


def _readings(text: str) -> Iterator[dict[str, Any]]:
    ways: tuple[Callable[[str], Any], ...] = (
        lambda t: json.loads(t, strict=False),
        lambda t: json.loads(_TRAILING.sub(lambda m: m.group(1) or "", t), strict=False),
        lambda t: json.loads(html.unescape(t), strict=False),
        lambda t: json.loads(json.dumps(ast.literal_eval(t))),
    )
    for way in ways:
        try:
            value = way(text)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, dict):
            yield cast("dict[str, Any]", value)


def _call(value: dict[str, Any], text: str) -> Called | Misread:
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return Misread(text, 'it has no "name"')
    given = [key for key in _ARGUMENTS if key in value]
    if len(given) > 1 or (not given and len(value) > 1):
        return Misread(text, 'its arguments are to stand in "args"')
    arguments: Any = value[given[0]] if given else {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", strict=False)
        except (ValueError, RecursionError):
            return Misread(text, '"args" is no object')
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return Misread(text, '"args" is no object')
    named = cast("dict[Any, Any]", arguments)
    return Called(name, {str(key): item for key, item in named.items()})
