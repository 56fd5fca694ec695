"""The values of a call that decide what happens, and those that are contents for people to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from delf_engine.origins.values import MOST_LEAVES, leaves_of, names_in
from delf_engine.toolset import BoundAction

CONTENTS: Final = frozenset(
    {"text", "body", "subject", "title", "description", "content", "message", "note"}
    | {"comment", "summary", "caption", "reason", "html", "markdown"}
)
"""The words of a parameter's name that is for people to read, where its author declares nothing."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def deciding_values(bound: BoundAction, arguments: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return the values that decide what a call does, each with its path, at any depth.

    The author's ``sinks`` or ``contents`` say which they are. Without these each text or number
    decides that is not in a parameter or field with a name of contents, and so does each key.
    There may be one more than are looked for.
    """
    return [*islice(_values(bound, arguments), MOST_LEAVES + 1)]


def _values(bound: BoundAction, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    action = bound.action
    if action.sinks is not None:
        chosen = {name: item for name, item in arguments.items() if name in action.sinks}
        return leaves_of(chosen, has_keys=True)
    if action.contents is not None:
        chosen = {name: item for name, item in arguments.items() if name not in action.contents}
        return leaves_of(chosen, has_keys=True)
    if action.effect == "read":  # what is sent out is sent whatever its name
        return leaves_of(arguments, has_keys=True)
    values = leaves_of(arguments, has_keys=True)
    return ((path, text) for path, text in values if not is_content(path))


def is_content(path: str) -> bool:
    """Return whether a value is contents by the name of its field, as ``messageBody`` is.

    ``message_id`` is none: each word has to be one of contents.
    """
    if path.endswith("]") and "[key " in path[path.rfind("[") :]:
        return False
    name = names_in(path)[-1:]
    words = [word.lower().removesuffix("s") for word in _WORDS.findall("".join(name))]
    return bool(words) and CONTENTS.issuperset(words)
