"""Removal of parts of lists that are nested too deeply for the client library.

The library refuses a whole message if one value in it is nested too deeply. Without such parts, it
reads the list, and :class:`delf_mcp.listing.InvalidItemFilter` leaves out the items that had them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any, Final, cast

LIST_METHODS: Final = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
"""A mapping from the key of a list in a result to the method with this result."""
_MAX_LEVELS: Final = 200  # of a message that the client library can read
# Matches a string, also without its end, or a bracket. Its quantifiers do not backtrack, so that
# the time is linear in the length of the text.
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{\]}]', re.DOTALL)
# _CUT_PART is the text that replaces a part that was cut out. _CUT_ITEM is the key of an item that
# replaces an item with a cut part. Servers can guess neither text.
_CUT_PART: Final = f"delf/{secrets.token_hex(8)}/part"
_CUT_ITEM: Final = f"delf/{secrets.token_hex(8)}/item"


def may_have_deep_items(text: str) -> bool:
    """Return True if a message is nested too deeply and may list tools or resources."""
    may_have_list = any(f'"{key}"' in text for key in LIST_METHODS)
    return may_have_list and next(_spans_of_deep_parts(text), None) is not None


def without_deep_parts(text: str) -> str:
    """Replace each part of a JSON text that is nested too deeply by a mark."""
    pieces: list[str] = []
    kept_from = 0
    for start, end in _spans_of_deep_parts(text):
        pieces += [text[kept_from:start], json.dumps(_CUT_PART)]
        kept_from = end
    return "".join([*pieces, text[kept_from:]])


def replace_cut_items(message: dict[str, Any]) -> None:
    """Keep only the name of each tool or resource in which :func:`without_deep_parts` cut parts."""
    result = message.get("result")
    if not isinstance(result, dict):
        return
    fields = cast("dict[str, Any]", result)
    for key in LIST_METHODS:
        items: Any = fields.get(key)
        if not isinstance(items, list):
            continue
        for index, item in enumerate(cast("list[Any]", items)):
            if is_cut(json.dumps(item)):
                items[index] = {"name": _name_of(item), _CUT_ITEM: True}


def is_cut(text: str) -> bool:
    """Return True if :func:`without_deep_parts` has cut a part out of a JSON text."""
    return _CUT_PART in text


def is_too_deep(item: Any) -> bool:
    """Return True if a listed tool or resource was replaced by :func:`replace_cut_items`."""
    return isinstance(item, dict) and _CUT_ITEM in item


def _name_of(item: Any) -> str | None:
    name = cast("dict[str, Any]", item).get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


def _spans_of_deep_parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each outermost part that is nested too deeply."""
    levels = 0
    start = 0
    for token in _TOKEN.finditer(text):
        match token.group()[0]:
            case "{" | "[":
                levels += 1
                if levels == _MAX_LEVELS + 1:
                    start = token.start()
            case "}" | "]":
                if levels == _MAX_LEVELS + 1:
                    yield start, token.end()
                levels -= 1
            case _:  # a string, whose brackets do not count
                pass
