"""Types in stub notation as trees: shortening drops deeply nested records first, then keys."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

NameTest = Callable[[str], bool]
"""A function that returns True for a key or value that the text of a task mentions."""

# Matches the key of an item of a record. A question mark marks a key that may be missing.
_KEY: Final = re.compile(r'\??"(?:[^"\\]|\\.)*": ?')
_STRING: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
# Matches the next token: a string, the opening of a group, a word, or another character.
_TOKEN: Final = re.compile(
    rf"{_STRING.pattern}|(?P<opening>\{{|(?:Literal|list)\[)|\w+|.", re.DOTALL
)
_RECORD: Final = "{"
_LITERAL: Final = "Literal["
_LIST: Final = "list["
_CLOSING: Final = {_RECORD: "}", _LITERAL: "]", _LIST: "]"}
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
# The numbers of keys to try last, when only the outermost records are shown.
_KEYS_OF_OUTERMOST: Final = (60, 30)


def values_in(text: str) -> list[str]:
    """Return the keys of records and the values of ``Literal`` in a type, for searching.

    Args:
        text: A type in stub notation.
    """
    return [literal[0].strip("\"'") for literal in _STRING.finditer(text)]


class _Item(NamedTuple):
    """An item of a group.

    Args:
        key: The key of a record, the value of a ``Literal`` without quotes, or ``*`` for the items
            of a list.
        head: The key of a record with its mark and colon, such as ``?"name": ``; otherwise empty.
        parts: The type of the key's value or of the list's items, or the text of the ``Literal``'s
            value.
    """

    key: str
    head: str
    parts: _Parts


class _Group(NamedTuple):
    """A part of a type text that has parts of its own: a record, a ``Literal`` or a list.

    Args:
        opening: The text before the items, such as ``{``, which tells the kind of the group.
        items: The keys of the record, the values of the ``Literal``, or the type of the list's
            items.
        is_shortened: Whether the parsed text has ``...`` in place of further items.
    """

    opening: str
    items: tuple[_Item, ...]
    is_shortened: bool


_Parts = tuple["str | _Group", ...]


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
        outermost_keys: The maximum number of keys of an outermost record in the shortest form of
            the type, in which all inner records are ``dict``. This form may still exceed ``limit``.
        max_values: The maximum number of values of each ``Literal``.
    """
    if len(text) <= limit:
        return text
    try:
        parts = _parse(text)
    except ValueError:
        return text
    # The last steps write only the outermost records, with depth 1.
    last_steps = [(1, min(keys, outermost_keys)) for keys in _KEYS_OF_OUTERMOST]
    shortest_form = (1, outermost_keys)
    short_text = text
    for depth, keys in (*_SHORTENING_STEPS, *last_steps, shortest_form):
        short_text = _format_type(parts, _Limits(depth, keys, max_values), is_mentioned)
        if len(short_text) <= limit:
            break
    return short_text


def with_types(text: str, types_by_path: Iterable[tuple[Sequence[str], str]]) -> str:
    """Add types to a declared type, for values that the declaration does not allow.

    With ``(("id",), "None")``, ``{"id": int}`` becomes ``{"id": int | None}``.

    Args:
        text: A type in stub notation.
        types_by_path: Pairs of a path and the type of the value there, such as ``None``. A path is
            a sequence of keys, with ``*`` for list items. Unknown paths are ignored.
    """
    # Sorted, so that the result does not depend on the order of a set.
    for path, added_type in sorted((tuple(path), kind) for path, kind in types_by_path):
        try:
            parts = _parse(text)
        except ValueError:  # a type that cannot be parsed stays as it is
            break
        text = _complete_text(_with_type(parts, path, added_type))
    return text


def _complete_text(parts: _Parts) -> str:
    """Format a parsed type, without shortening it."""
    # Without limits, nothing is left out, whatever names the task mentions.
    return _format_type(parts, _UNLIMITED, mentions_no_name)


def _with_type(parts: _Parts, path: Sequence[str], added_type: str) -> _Parts:
    """Add a type to a value inside a parsed type.

    With the path ``("owner", "name")`` and the type ``None``, ``{"owner": {"name": str}}`` becomes
    ``{"owner": {"name": str | None}}``.

    Args:
        parts: The texts and groups of the type in order.
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
    return tuple(
        part if isinstance(part, str) else _with_type_in_group(part, path, added_type)
        for part in parts
    )


def _with_type_in_group(group: _Group, path: Sequence[str], added_type: str) -> _Group:
    """Add a type to the value at a path in a record or list; return a ``Literal`` unchanged."""
    if group.opening == _LITERAL:
        return group
    key, *rest = path
    items = (
        item._replace(parts=_with_type(item.parts, rest, added_type)) if item.key == key else item
        for item in group.items
    )
    return group._replace(items=tuple(items))


def _admits(declared_type: str, added_type: str) -> bool:
    """Return True if a declared type, such as ``int | None``, already includes ``added_type``."""
    members = declared_type.split(" | ")
    if "Any" in members:
        return True
    # For ``dict``, these are "{" and "dict", because a record, such as ``{"id": int}``, is a dict.
    beginnings = _INCLUDING_TYPES.get(added_type, (added_type,))
    # ``list[int]`` admits ``list``, and ``str (a date)`` admits ``str``: compare the beginnings.
    # If ``added_type`` is a union, such as ``int | str``, only the whole declared type can match.
    return any(type_text.startswith(beginnings) for type_text in (declared_type, *members))


def mentions_no_name(_name: str) -> bool:
    """Return False for any name: no text of a task is given that could mention the name.

    Callers without a task pass this function as the ``NameTest``.
    """
    return False


@functools.lru_cache(256)
def _parse(text: str) -> _Parts:
    """Parse a type in stub notation.

    Returns:
        Texts and groups in turn; the first part and the last one are texts.

    Raises:
        ValueError: If brackets do not match or nest too deeply.
    """
    return _TypeParser(text).parse_type(ends="")


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
            level: The number of groups around the type.
        """
        if level > _MAX_GROUP_LEVELS:
            raise ValueError("nested too deeply")
        parts: list[str | _Group] = []
        tokens_after_group: list[str] = []
        open_brackets = 0  # except those of groups: as in ``dict[str, int]``
        while (token := _TOKEN.match(self._text, self._at)) is not None:
            if open_brackets == 0 and token[0] in ends:
                break
            self._at = token.end()
            group_opening = token["opening"]
            if group_opening:
                group = self._parse_group(group_opening, level)
                parts += ["".join(tokens_after_group), group]
                tokens_after_group.clear()
                continue
            if token[0] in ("[", "("):
                open_brackets += 1
            elif token[0] in ("]", ")"):
                open_brackets -= 1
            if open_brackets < 0:
                raise ValueError("a bracket too many")
            tokens_after_group.append(token[0])
        is_at_end_of_text = token is None
        if is_at_end_of_text and ends:
            raise ValueError("a bracket is missing")
        return (*parts, "".join(tokens_after_group))

    def _parse_group(self, opening: str, level: int) -> _Group:
        """Parse the rest of a group, such as ``"id": int, ...}`` after its opening."""
        closing = _CLOSING[opening]
        ends = closing if opening == _LIST else f",{closing}"
        items: list[_Item] = []
        is_shortened = False
        end = ""
        while end != closing:
            while self._text.startswith(" ", self._at):
                self._at += 1
            head = self._parse_head() if opening == _RECORD else ""  # such as ``?"name": ``
            parts = self.parse_type(ends, level + 1)
            if parts == (_ELLIPSIS,) and not head:  # further items were left out
                is_shortened = True
            else:
                items.append(_Item(_key(opening, head, parts), head, parts))
            end = self._text[self._at]  # parse_type() stopped at a comma or the closing bracket
            self._at += 1
        return _Group(opening, tuple(items), is_shortened)

    def _parse_head(self) -> str:
        """Parse the key of a record's next item, as ``?"name": ``; return "" if no key follows."""
        head = _KEY.match(self._text, self._at)
        if head is None:
            return ""
        self._at = head.end()
        return head[0]


def _key(opening: str, head: str, parts: _Parts) -> str:
    """Return the key of an item of a group, such as ``name`` for ``?"name": str`` in a record.

    Args:
        opening: The text that opens the group.
        head: For an item of a record, the text before its type, such as ``?"name": ``; else empty.
        parts: The parsed type of the item.
    """
    if opening == _LIST:
        return _ITEMS
    if head:
        return head.strip("?: ").strip("\"'")
    # The value of a ``Literal`` was read as a type of one part, the value's text.
    return str(parts[0]).strip("\"'")


def _format_type(parts: _Parts, limits: _Limits, is_mentioned: NameTest) -> str:
    return "".join(
        part if isinstance(part, str) else _format_group(part, limits, is_mentioned)
        for part in parts
    )


def _format_group(group: _Group, limits: _Limits, is_mentioned: NameTest) -> str:
    """Format a group within the limits; items that the text of the task mentions always stay."""
    kept_items = _kept_items(group, limits, is_mentioned)
    is_record = group.opening == _RECORD
    if not kept_items and is_record:
        return "dict"
    inner_limits = _limits_inside(group, limits)
    item_texts: list[str] = []
    for item in kept_items:
        item_limits = inner_limits
        if is_record and is_mentioned(item.key):
            # A record under a key that the task names shows its keys, even beyond the depth limit.
            item_limits = inner_limits._replace(depth=max(inner_limits.depth, 1))
        item_texts.append(item.head + _format_type(item.parts, item_limits, is_mentioned))
    if group.is_shortened or len(kept_items) < len(group.items):
        item_texts.append(_ELLIPSIS)
    return f"{group.opening}{', '.join(item_texts)}{_CLOSING[group.opening]}"


def _limits_inside(group: _Group, limits: _Limits) -> _Limits:
    """Return the limits for the items of a group: usually one level less."""
    # The depth is that of nested records, so neither a list nor an outermost envelope such as
    # ``{"data": {…}}``, which only wraps the data, counts as a level.
    if group.opening == _LIST:
        return limits
    if limits.is_in_envelopes_only and _is_envelope(group):
        return limits
    return limits._replace(depth=max(limits.depth - 1, 0), is_in_envelopes_only=False)


def _kept_items(group: _Group, limits: _Limits, is_mentioned: NameTest) -> Sequence[_Item]:
    """Return the items within the limits and the items that the task names, in given order."""
    if group.opening == _LIST:
        return group.items
    if group.opening == _RECORD:
        ranked_items: Sequence[_Item] = group.items
        max_items = limits.max_keys if limits.depth > 0 else 0
    else:
        # If the values are the names of fields, omit the paths of nested fields first, such as
        # "assignee.name".
        ranked_items = sorted(group.items, key=lambda item: "." in item.key)
        max_items = limits.max_values
    # By id, because hashing an item would hash all types inside the item.
    ids_within_limit = {id(item) for item in ranked_items[:max_items]}
    return [
        item
        for item in group.items
        if id(item) in ids_within_limit or _is_named(item, is_mentioned)
    ]


def _is_envelope(group: _Group) -> bool:
    """Return True for a record that only wraps another, as ``{"data": {...}, "next": str}`` does.

    An envelope has at most ``_MAX_ENVELOPE_KEYS`` keys. Exactly one of these keys holds a record
    with more keys than that: the data.
    """
    if group.opening != _RECORD or len(group.items) > _MAX_ENVELOPE_KEYS:
        return False
    largest_sizes = [max(_record_sizes(item.parts), default=0) for item in group.items]
    data_records = [size for size in largest_sizes if size > _MAX_ENVELOPE_KEYS]
    return len(data_records) == 1


def _record_sizes(parts: _Parts) -> Iterator[int]:
    """Yield the number of keys of each record in a type, also in lists of records."""
    for part in parts:
        if isinstance(part, str):
            continue
        if part.opening == _RECORD:
            yield len(part.items)
        elif part.opening == _LIST:
            for item in part.items:
                yield from _record_sizes(item.parts)


def _is_named(item: _Item, is_mentioned: NameTest) -> bool:
    """Return True if the task names an item or a part of it."""
    if is_mentioned(item.key):
        return True
    groups = (part for part in item.parts if isinstance(part, _Group))
    return any(_is_named(inner, is_mentioned) for group in groups for inner in group.items)
