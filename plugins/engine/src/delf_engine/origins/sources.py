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


def result_of(action: str) -> set[Source]:
    """Return the sources of the result of an action.

    The action stays a source of all that the script makes of the result. The whole result stands
    for all fields, and is dropped when the script reads a field by its name.
    """
    return {Source("action", action), Source("whole result", action)}


def field_of_value(sources: Sources, fields: Sources) -> set[Source]:
    """Return the sources of a field that the script reads of a value.

    If the value is a whole result, the script now uses only the named fields, which therefore take
    the place of the whole result. If the value contains a whole result, the field may be that
    result, which therefore stays.

    Args:
        sources: The sources of the value.
        fields: The fields that the script reads; empty for an item of a list, which may be a whole
            record.
    """
    if not fields:
        return {*sources}
    return without_plain_whole_results(sources) | fields


def enclosed(sources: Sources) -> set[Source]:
    """Return the sources of a value that contains another value, such as ``{"id": record}``.

    Args:
        sources: The sources of the inner value.
    """
    return {
        Source("enclosed result", source.name) if source.kind == "whole result" else source
        for source in sources
    }


def without_whole_results(sources: Sources) -> set[Source]:
    """Return sources for a value that reveals no field of a result, such as the number of rows.

    A whole result stands for all of its fields, also inside another value (``enclosed result``).
    What remains are the actions, and the fields that the script read by name.
    """
    return {source for source in sources if source.kind not in ("whole result", "enclosed result")}


def without_plain_whole_results(sources: Sources) -> set[Source]:
    """Return sources without the results that are the value itself; results inside of it stay.

    A test such as ``if record:`` reveals no field of the record, but a test such as
    ``if "Bob" in str(record):``, where the text encloses the record, may reveal one.
    """
    return {source for source in sources if source.kind != "whole result"}


def with_one_form_of_whole_results(sources: Sources) -> frozenset[Source]:
    """Return sources in which a whole result takes the place of each enclosed result.

    Both mean that a value may use all fields of an action's results. Only while a script is
    analysed does it matter whether the value is the result or contains it. Afterwards, one form is
    enough, so that the sources of an argument in a script and of a planned argument can be equal.
    """
    return frozenset(
        Source("whole result", source.name) if source.kind == "enclosed result" else source
        for source in sources
    )


def uses_named_fields(sources: Sources) -> bool:
    """Return whether a script reads a field on the way to a value."""
    return any(source.kind == "field" for source in sources)


def field_names_used(sources: Sources, action: str) -> AbstractSet[str]:
    """Return the names of the fields of an action's results that flow into a value.

    Args:
        sources: The sources of the value.
        action: The action; another action's fields may be among the returned names.

    Returns:
        The names. ``UNKNOWN_FIELD`` stands for any field, and is the only name if the script names
        no field.
    """
    names = {source.name for source in sources if source.kind == "field"}
    uses_whole_result = Source("whole result", action) in sources
    if uses_whole_result or not names:
        names.add(UNKNOWN_FIELD)
    return names
