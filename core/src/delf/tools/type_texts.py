"""Types in stub notation as trees, which are shortened by depth before names are dropped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

NameTest = Callable[[str], bool]
"""A function that returns True for a key or value that the text of a task mentions."""

_KEY: Final = re.compile(r'\??"(?:[^"\\]|\\.)*": ?')
_STRING: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_LITERAL: Final = "Literal["
_LIST: Final = "list["
_ITEMS: Final = "*"
_ELLIPSIS: Final = "..."
_DEEPEST: Final = 12
_MAX_GROUP_LEVELS: Final = 36
# The maximum number of keys of an envelope, a record such as ``{"data": …, "next": …}``.
_MAX_ENVELOPE_KEYS: Final = 3
# For a type, the beginnings of the types that include it: a record is a dict, and a float may be an
# int. Any type not listed here is included only by itself.
_INCLUDING_TYPES: Final = {
    "dict": ("{", "dict"),
    "list": ("list",),
    "int": ("int", "float", "Decimal"),
}
# The limits to try, from long to short: the depth of nested records, and the number of keys.
_SHORTENING_STEPS: Final = ((_DEEPEST, 80), (4, 60), (3, 60), (2, 60))
# The numbers of keys to try after these, if only the outermost records are shown.
_KEYS_OF_OUTERMOST: Final = (60, 30)


def values_in(text: str) -> list[str]:
    """Return the keys of records and the values of ``Literal`` in a type, for searching.

    Args:
        text: A type in stub notation.
    """
    return [literal[0].strip("\"'") for literal in _STRING.finditer(text)]


class _KeyOrValue(NamedTuple):
    """A key of a record type with the type of its value, or a value of a ``Literal``.

    Args:
        key: The key or the value, without quotes.
        head: The key with its mark and colon, such as ``?"name": ``; empty for a value of a
            ``Literal``.
        parts: The type, as texts, record types and ``Literal`` types in order.
    """

    key: str
    head: str
    parts: tuple[str | _RecordOrLiteral, ...]


class _RecordOrLiteral(NamedTuple):
    """A part of a type text that can be shortened: a record or a ``Literal``.

    Args:
        is_record: True for a record, False for a ``Literal``.
        items: The keys of the record, or the values of the ``Literal``.
        is_shortened: Whether the parsed text has ``...`` in place of further keys or values.
    """

    is_record: bool
    items: tuple[_KeyOrValue, ...]
    is_shortened: bool


_Parts = tuple[str | _RecordOrLiteral, ...]


class _Limits(NamedTuple):
    """The limits within which a type is formatted.

    Args:
        depth: The number of nested record levels.
        max_keys: The maximum number of keys of each record.
        max_values: The maximum number of values of each ``Literal``.
        is_in_envelopes_only: Whether all enclosing records are envelopes. An envelope, such as
            ``{"data": ...}``, only wraps the result and does not count as a level.
    """

    depth: int
    max_keys: int
    max_values: int
    is_in_envelopes_only: bool = True


_UNLIMITED: Final = _Limits(1_000, 1_000_000, 1_000_000)


def shorten(
    text: str, limit: int, is_mentioned: NameTest, outermost_keys: int = 60, max_values: int = 12
) -> str:
    """Shorten a type to a number of characters, as far as possible.

    ``{"id": int, "owner": {"name": str}}`` becomes ``{"id": int, "owner": dict}``, and then
    ``{"id": int, ...}``. Keys and values that the task's text mentions always stay.

    Args:
        text: A type in stub notation.
        limit: The maximum number of characters.
        is_mentioned: Returns True for a key or value that the text of the task mentions.
        outermost_keys: The number of keys that the outermost records keep, even beyond the limit,
            once all inner records are ``dict``.
        max_values: The maximum number of values of each ``Literal``.
    """
    if len(text) <= limit:
        return text
    try:
        parts = _TypeParser(text).parse_type(ends="")
    except ValueError:
        return text
    # The last steps write only the outermost records, with depth 1.
    last_steps = [(1, min(keys, outermost_keys)) for keys in _KEYS_OF_OUTERMOST]
    for depth, keys in (*_SHORTENING_STEPS, *last_steps):
        short_text = _format_type(parts, _Limits(depth, keys, max_values), is_mentioned)
        if len(short_text) <= limit:
            return short_text
    return _format_type(parts, _Limits(1, outermost_keys, max_values), is_mentioned)


def with_types(text: str, types_by_path: Iterable[tuple[Sequence[str], str]]) -> str:
    """Return a declared type, extended by types of values that the declaration does not allow.

    Args:
        text: A type in stub notation.
        types_by_path: Pairs of a path and the type of the value there, such as ``None``. A path is
            a sequence of keys, with ``*`` for list items. Unknown paths are ignored.
    """
    # Sorted, so that the result does not depend on the order of a set.
    for path, kind in sorted((tuple(path), kind) for path, kind in types_by_path):
        try:
            parts = _TypeParser(text).parse_type(ends="")
        except ValueError:  # a type that cannot be parsed stays as it is
            break
        text = _complete_text(_with_type(parts, path, kind))
    return text


def _complete_text(parts: _Parts) -> str:
    """Format a parsed type, without shortening it."""
    # Without limits, nothing is left out, so no name has to stay because a task mentions it.
    return _format_type(parts, _UNLIMITED, mentions_no_name)


def _with_type(parts: _Parts, path: Sequence[str], added_type: str) -> _Parts:
    """Add a type to a value inside a parsed type.

    With the path ``owner``, ``name`` and the type ``None``, ``{"owner": {"name": str}}`` becomes
    ``{"owner": {"name": str | None}}``.

    Args:
        parts: The texts, records and Literals of the type in order.
        path: The keys that lead to the value, with ``_ITEMS`` for the items of a list.
        added_type: The type to add.
    """
    if not path:
        text = _complete_text(parts)
        if added_type.startswith(f"{text} ("):  # the more exact "str (a date)" replaces "str"
            return (added_type,)
        if _admits(text, added_type):
            return parts
        return (*parts, f" | {added_type}")
    key, rest = path[0], path[1:]
    if key == _ITEMS:
        return _with_type_in_list(parts, rest, added_type)
    changed_parts: list[str | _RecordOrLiteral] = []
    for part in parts:  # of a union, every record may have the key
        if isinstance(part, _RecordOrLiteral) and part.is_record:
            changed_parts.append(_with_type_in_record(part, key, rest, added_type))
        else:
            changed_parts.append(part)
    return tuple(changed_parts)


def _with_type_in_record(
    record: _RecordOrLiteral, key: str, rest: Sequence[str], added_type: str
) -> _RecordOrLiteral:
    """Return a record type that also allows ``added_type`` at the path ``rest`` inside ``key``."""
    fields: list[_KeyOrValue] = []
    for field in record.items:
        if field.key == key:
            changed_type = _with_type(field.parts, rest, added_type)
            fields.append(field._replace(parts=changed_type))
        else:
            fields.append(field)
    return record._replace(items=tuple(fields))


def _admits(text: str, kind: str) -> bool:
    """Return True if a type, such as ``int | None``, already includes a type, such as ``int``."""
    members = text.split(" | ")
    if "Any" in members:
        return True
    # Such as ("{", "dict") for ``dict``, because a record, which begins with "{", is a dict, too.
    beginnings = _INCLUDING_TYPES.get(kind, (kind,))
    # A member may go on after the beginning, as in ``list[int]`` and ``str (a date)``. The whole
    # text is tested, too, because ``kind`` may be a union, such as ``int | str``.
    return any(type_text.startswith(beginnings) for type_text in (text, *members))


def _with_type_in_list(parts: _Parts, path: Sequence[str], added_type: str) -> _Parts:
    """Add a type at a path inside the items of the first list in a parsed type.

    Args:
        parts: The texts, records and Literals of the type in order: ``list[{"id": int}] | None``
            has the parts ``list[``, the record, and ``] | None``.
        path: The path within the items.
        added_type: The type to add.
    """
    for index, part in enumerate(parts):
        if not isinstance(part, str) or _LIST not in part:
            continue
        before_list, _, after_opening = part.partition(_LIST)
        parts_after_opening = (after_opening, *parts[index + 1 :])
        items, after_items = _split_at_closing_bracket(parts_after_opening)
        if not after_items:  # the list is not closed
            return parts
        new_items = _with_type(items, path, added_type)
        return (*parts[:index], before_list + _LIST, *new_items, *after_items)
    return parts


def _split_at_closing_bracket(parts: _Parts) -> tuple[_Parts, _Parts]:
    """Split the parts after ``list[`` at the bracket that closes the list.

    ``list[int]] | None`` is split into ``list[int]`` and ``] | None``. If the bracket is missing,
    all parts are in the first result.
    """
    open_brackets = 1  # the bracket of ``list[``, which comes before these parts
    for part_index, part in enumerate(parts):
        if isinstance(part, _RecordOrLiteral):
            continue
        for char_index, char in enumerate(part):
            if char == "[":
                open_brackets += 1
            elif char == "]":
                open_brackets -= 1
            if open_brackets == 0:
                inside = (*parts[:part_index], part[:char_index])
                outside = (part[char_index:], *parts[part_index + 1 :])
                return inside, outside
    return parts, ()


def mentions_no_name(_name: str) -> bool:
    """Return False for any name: a ``NameTest`` for types that are formatted without a task."""
    return False


class _TypeParser:
    """A recursive parser of types in stub notation.

    Args:
        text: The type.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at: int = 0

    def parse_type(self, ends: str, level: int = 0) -> _Parts:
        """Parse a type up to one of the characters in ``ends``; to the end if ``ends`` is empty.

        Args:
            ends: The characters at which the type ends.
            level: The number of groups (records and ``Literal`` types) around the type.

        Returns:
            Texts and groups in turn; the first part and the last one are texts.

        Raises:
            ValueError: If brackets do not match or nest too deeply.
        """
        if level > _MAX_GROUP_LEVELS:
            raise ValueError("nested too deeply")
        parts: list[str | _RecordOrLiteral] = []
        plain_letters: list[str] = []
        open_brackets = 0
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            # Brackets and commas in strings are plain text.
            if char in "\"'" and (string := _STRING.match(text, self._at)):
                plain_letters.append(string[0])
                self._at = string.end()
                continue
            is_literal = char == "L" and text.startswith(_LITERAL, self._at)
            if char == "{" or is_literal:
                # _record_or_literal() moves self._at behind the group.
                parts += ["".join(plain_letters), self._record_or_literal(is_literal, level)]
                plain_letters.clear()
                continue
            if open_brackets == 0 and char in ends:
                break
            if char in "[(":
                open_brackets += 1
            elif char in "])":
                open_brackets -= 1
            if open_brackets < 0:
                raise ValueError("a bracket too many")
            plain_letters.append(char)
            self._at += 1
        is_at_end_of_text = self._at >= len(text)
        if ends and is_at_end_of_text:
            raise ValueError("a bracket is missing")
        return (*parts, "".join(plain_letters))

    def _record_or_literal(self, is_literal: bool, level: int) -> _RecordOrLiteral:
        """Parse a record or ``Literal``, such as ``{"id": int, ...}`` or ``Literal[1, 2]``."""
        self._at += len(_LITERAL) if is_literal else 1
        closing = "]" if is_literal else "}"
        items: list[_KeyOrValue] = []
        is_shortened = False
        while True:
            while self._text[self._at : self._at + 1] == " ":
                self._at += 1
            head = "" if is_literal else self._parse_head()  # such as ``?"name": ``
            # A value of a Literal is read as a type of one part, which is the value's text.
            item_parts = self.parse_type(f",{closing}", level + 1)
            if head:
                quoted_key = head.strip("?: ")
                items.append(_KeyOrValue(quoted_key.strip("\"'"), head, item_parts))
            elif item_parts == (_ELLIPSIS,):  # further items were left out
                is_shortened = True
            else:
                value = str(item_parts[0])
                items.append(_KeyOrValue(value.strip("\"'"), head, item_parts))
            end = self._text[self._at]  # parse_type() stopped at a comma or the closing bracket
            self._at += 1
            if end == closing:
                return _RecordOrLiteral(not is_literal, tuple(items), is_shortened)

    def _parse_head(self) -> str:
        """Parse a key with its mark and colon; return an empty string if no key follows."""
        head = _KEY.match(self._text, self._at)
        if head is None:
            return ""
        self._at = head.end()
        return head[0]


def _format_type(parts: _Parts, limits: _Limits, is_mentioned: NameTest) -> str:
    return "".join(
        part if isinstance(part, str) else _text_of_record_or_literal(part, limits, is_mentioned)
        for part in parts
    )


def _text_of_record_or_literal(
    type_part: _RecordOrLiteral, limits: _Limits, is_mentioned: NameTest
) -> str:
    """Format a record or a ``Literal`` within the limits.

    Items that the text of the task mentions always stay.
    """
    kept_items = _kept_items(type_part, limits, is_mentioned)
    if not kept_items and type_part.is_record:
        return "dict"
    inner_limits = _limits_inside(type_part, limits)
    item_texts: list[str] = []
    for item in kept_items:
        item_limits = inner_limits
        if type_part.is_record and is_mentioned(item.key):
            # A record under a key that the task names shows its keys, even beyond the depth limit.
            item_limits = inner_limits._replace(depth=max(inner_limits.depth, 1))
        item_texts.append(item.head + _format_type(item.parts, item_limits, is_mentioned))
    if type_part.is_shortened or len(kept_items) < len(type_part.items):
        item_texts.append(_ELLIPSIS)
    text = ", ".join(item_texts)
    return f"{{{text}}}" if type_part.is_record else f"{_LITERAL}{text}]"


def _limits_inside(type_part: _RecordOrLiteral, limits: _Limits) -> _Limits:
    """Return the limits for the items of a record or a ``Literal``: usually one level less."""
    # An outermost record such as ``{"data": {…}}`` only wraps the data, and is no level.
    may_be_envelope = limits.is_in_envelopes_only and type_part.is_record
    if may_be_envelope and _is_envelope(type_part):
        return limits
    return limits._replace(depth=max(limits.depth - 1, 0), is_in_envelopes_only=False)


def _kept_items(
    type_part: _RecordOrLiteral, limits: _Limits, is_mentioned: NameTest
) -> list[_KeyOrValue]:
    """Return the items within the limits and the items that the task names, in given order."""
    if type_part.is_record:
        ranked_items: Sequence[_KeyOrValue] = type_part.items
        max_items = limits.max_keys if limits.depth > 0 else 0
    else:
        # If the values are the names of fields, omit the paths of nested fields first, such as
        # "assignee.name".
        ranked_items = sorted(type_part.items, key=_is_path)
        max_items = limits.max_values
    ids_within_limit = {id(item) for item in ranked_items[:max_items]}
    return [
        item
        for item in type_part.items
        if id(item) in ids_within_limit or _is_named(item, is_mentioned)
    ]


def _is_envelope(group: _RecordOrLiteral) -> bool:
    """Return True if a record has few keys, and exactly one of them holds a large record."""
    if len(group.items) > _MAX_ENVELOPE_KEYS:
        return False
    items_with_large_record = [
        item for item in group.items if any(map(_is_large_record, item.parts))
    ]
    return len(items_with_large_record) == 1


def _is_large_record(part: str | _RecordOrLiteral) -> bool:
    """Return True for a record with too many keys for an envelope.

    An envelope, such as ``{"data": {...}, "next": str}``, has few keys, and wraps the record with
    the data. A record with more keys is taken for the data.
    """
    if isinstance(part, str) or not part.is_record:
        return False
    return len(part.items) > _MAX_ENVELOPE_KEYS


def _is_path(item: _KeyOrValue) -> bool:
    """Return True for a key that is a path into nested records, such as ``assignee.name``."""
    return "." in item.key


def _is_named(item: _KeyOrValue, is_mentioned: NameTest) -> bool:
    """Return True if the task names an item or a part of it."""
    if is_mentioned(item.key):
        return True
    inner_items: list[_KeyOrValue] = []
    for part in item.parts:
        if isinstance(part, _RecordOrLiteral):
            inner_items += part.items
    return any(_is_named(inner, is_mentioned) for inner in inner_items)
