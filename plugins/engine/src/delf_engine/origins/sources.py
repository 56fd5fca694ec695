"""The sources of a value in a script: actions, fields, and whole results of actions."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple, TypeAlias


class Source(NamedTuple):
    """A source of a value in a script.

    Args:
        kind: The kind of source:

            ``action``
                The results of an action flow into the value.
            ``field``
                The script reads the value from this field of a result, such as ``email``.
            ``whole result``
                The script may use all fields of an action's results, as in ``str(record)``. When
                the script reads a field of the value, the field takes the place of this source.
            ``enclosed result``
                A whole result is inside the value, as in ``{"id": record}``. The field ``id`` of
                this value is the whole record, so this source stays when the script reads a field.
            ``unknown``
                The script does not show where the value comes from.
        name: The name of the action or field; :data:`UNKNOWN_FIELD` for a field whose name the
            script does not show. Empty for an unknown source.
    """

    kind: Literal["action", "field", "whole result", "enclosed result", "unknown"]
    name: str

    @property
    def action(self) -> str | None:
        """The action whose results flow into the value; None for a field or unknown source."""
        return None if self.kind in ("field", "unknown") else self.name


Sources: TypeAlias = AbstractSet[Source]

UNKNOWN: Final = Source("unknown", "")
UNKNOWN_FIELD: Final = "?"
"""The name of a field whose name the script does not show."""


def sources_of_action_result(action: str) -> set[Source]:
    """Return the sources of what an action returns: the action, and its whole result."""
    return {Source("action", action), Source("whole result", action)}


def sources_of_field(sources: Sources, fields: Sources) -> set[Source]:
    """Return the sources of a field of a value, such as ``record["email"]``.

    The source ``field email`` replaces the source ``whole result`` of ``record``.

    Args:
        sources: The sources of the value.
        fields: The fields that the script reads; empty for an item of a list.
    """
    if not fields:  # an item such as ``rows[0]`` may be a whole record, so nothing is replaced
        return set(sources)
    return without_whole_results(sources) | fields


def as_enclosed(sources: Sources) -> set[Source]:
    """Turn the sources of ``record`` into those of ``{"id": record}``.

    Each ``whole result`` becomes an ``enclosed result``. When a script then reads the field ``id``,
    :func:`sources_of_field` keeps the source, because this field is still the whole record.
    """
    return {
        Source("enclosed result", source.name) if source.kind == "whole result" else source
        for source in sources
    }


def without_results(sources: Sources) -> set[Source]:
    """Remove whole and enclosed results; keep actions and named fields.

    For example, ``len(rows)`` depends on the action that returned ``rows``, but on no field.
    """
    return {source for source in sources if source.kind not in ("whole result", "enclosed result")}


def without_whole_results(sources: Sources) -> set[Source]:
    """Remove sources of the kind ``whole result``; keep enclosed results (:func:`as_enclosed`).

    A script that reads ``record["id"]``, or tests ``if record``, does not use all fields.
    """
    return {source for source in sources if source.kind != "whole result"}


def with_enclosed_as_whole_results(sources: Sources) -> frozenset[Source]:
    """Return sources in which each ``enclosed result`` is replaced by a ``whole result``.

    For a comparison of a script's argument with a planned argument: ``find()`` and ``str(find())``
    then have equal sources, because both use all fields of the results.
    """
    return frozenset(
        Source("whole result", source.name) if source.kind == "enclosed result" else source
        for source in sources
    )


def uses_named_fields(sources: Sources) -> bool:
    """Return whether a script reads a field on the way to a value: ``mail`` in ``find().mail``."""
    return any(source.kind == "field" for source in sources)


def field_names_used(sources: Sources, action: str) -> AbstractSet[str]:
    """Return the names of all fields of an action's results that may flow into a value.

    The names may include fields of other actions' results, because a source of the kind ``field``
    does not name the action.

    Args:
        sources: The sources of the value.
        action: The action.

    Returns:
        The names. ``UNKNOWN_FIELD`` is among the names if the script uses a whole result of the
        action, or names no field: any field may then flow into the value.
    """
    names = {source.name for source in sources if source.kind == "field"}
    uses_whole_result = Source("whole result", action) in sources
    if uses_whole_result or not names:
        names.add(UNKNOWN_FIELD)
    return names
