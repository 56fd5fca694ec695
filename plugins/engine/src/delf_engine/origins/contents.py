"""Classification of a call's values: values that decide its effect, and contents for people."""

from __future__ import annotations

import re
from typing import Final

from delf_engine.bound_action import BoundAction
from delf_engine.origins.values import names_in, parameter_of

CONTENTS: Final = frozenset(
    {"text", "body", "subject", "title", "description", "content", "message", "note"}
    | {"comment", "summary", "caption", "reason", "html", "markdown"}
)
"""Words in the names of parameters that hold contents, for actions that declare nothing."""
_DATA: Final = re.compile(r"[\d=:/@<&]")
"""Characters that do not occur in words of a language."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def is_content(bound: BoundAction, path: str, text: str) -> bool:
    """Return whether a value is content for people to read, and so does not decide the effect.

    The ``sinks`` or ``contents`` that the author declared decide first. Without a declaration, a
    text counts as content if its parameter or field has a name of contents, and the text is not
    data for machines.
    """
    action = bound.action
    if action.sinks is not None:
        return parameter_of(path) not in action.sinks
    if action.contents is not None:
        return parameter_of(path) in action.contents
    # What is sent out is sent whatever its name.
    return action.effect != "read" and _has_name_of_content(path) and not _is_data(text)


def _has_name_of_content(path: str) -> bool:
    """Return whether a field's name consists of words for contents, such as ``messageBody``.

    ``message_id`` does not, because of ``id``.
    """
    if path.endswith("]") and "[key " in path[path.rfind("[") :]:
        return False
    name = names_in(path)[-1:]
    words = [word.lower().removesuffix("s") for word in _WORDS.findall("".join(name))]
    return bool(words) and CONTENTS.issuperset(words)


def _is_data(text: str) -> bool:
    """Return whether each line of a text is a single token, such as a key, and not prose."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return bool(lines) and all(" " not in line and _DATA.search(line) is not None for line in lines)
