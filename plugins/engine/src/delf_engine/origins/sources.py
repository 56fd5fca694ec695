"""The sources of a value in a script: actions, fields, and whole results of actions.

A source is a text. ``mail.send`` is an action whose results flow into the value, and ``.email`` a
field that the script reads on the way. ``mail.send.?`` says that the script may use all fields of
the action's results, as in ``str(record)``.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

UNKNOWN: Final = "?"
"""Stands for the source of a value, or for a field name, that the script does not show."""
FIELD: Final = "."
"""The prefix of a source that is a field, such as ``.email``.

A source without the prefix is an action, such as ``mail.send``, or the whole result of an action.
"""
# The suffix of a source that is the whole result of an action. When the script reads a field of a
# value with this source, the field takes the place of the source.
_WHOLE: Final = f"{FIELD}{UNKNOWN}"
# The suffix of a source that is a whole result inside another value, such as ``{"id": record}``.
# The field ``id`` of this value is the whole record, so the source stays when the script reads it.
_ENCLOSED_WHOLE: Final = f"{_WHOLE}!"


def result_of(action: str) -> set[str]:
    """Return the sources of the result of an action."""
    return {action, f"{action}{_WHOLE}"}


def field_of_value(sources: AbstractSet[str], fields: AbstractSet[str]) -> set[str]:
    """Return the sources of a field that the script reads of a value.

    Args:
        sources: The sources of the value.
        fields: The fields that the script reads; empty for an item of a list, which may be a whole
            record.
    """
    if not fields:
        return {*sources}
    return {source for source in sources if not _is_whole(source)} | fields


def enclosed(sources: AbstractSet[str]) -> set[str]:
    """Return the sources of a value that contains another value, such as ``{"id": record}``.

    Args:
        sources: The sources of the inner value.
    """
    return {
        f"{source.removesuffix(_WHOLE)}{_ENCLOSED_WHOLE}" if _is_whole(source) else source
        for source in sources
    }


def without_whole_results(sources: AbstractSet[str]) -> set[str]:
    """Return sources for a value that reveals no field of a result, such as the number of rows."""
    return {
        source for source in sources if not (_is_whole(source) or source.endswith(_ENCLOSED_WHOLE))
    }


def without_plain_whole_results(sources: AbstractSet[str]) -> set[str]:
    """Return sources for a test of whether a value is empty, which reveals no field of a result.

    A whole result inside the value, such as in ``"Bob" in str(record)``, stays among the sources.
    """
    return {source for source in sources if not _is_whole(source)}


def with_one_form_of_whole_results(sources: AbstractSet[str]) -> frozenset[str]:
    """Return sources in which whole results inside other values count as whole results."""
    enclosed = {source for source in sources if source.endswith(_ENCLOSED_WHOLE)}
    whole = {f"{source.removesuffix(_ENCLOSED_WHOLE)}{_WHOLE}" for source in enclosed}
    return frozenset(sources - enclosed | whole)


def action_of(source: str) -> str:
    """Return the action of a source that is an action or the whole result of an action.

    Empty for a field of unknown name.
    """
    return source.removesuffix(_WHOLE)


def actions_in(sources: AbstractSet[str]) -> AbstractSet[str]:
    """Return the actions among sources."""
    return {source for source in sources if not (source.startswith(FIELD) or _is_whole(source))}


def fields_in(sources: AbstractSet[str]) -> AbstractSet[str]:
    """Return the fields among sources, such as ``.email``."""
    return {source for source in sources if source.startswith(FIELD)}


def field_names_used(sources: AbstractSet[str], action: str) -> AbstractSet[str]:
    """Return the names of the fields of an action's results that flow into a value.

    Args:
        sources: The sources of the value.
        action: The action; another action's fields may be among the returned names.

    Returns:
        The names. ``UNKNOWN`` stands for any field, and is the only name if the script names no
        field.
    """
    names = {field.removeprefix(FIELD) for field in fields_in(sources)}
    uses_whole_result = f"{action}{_WHOLE}" in sources
    return {*names, UNKNOWN} if uses_whole_result or not names else names


def _is_whole(source: str) -> bool:
    return source.endswith(_WHOLE) and source != _WHOLE
