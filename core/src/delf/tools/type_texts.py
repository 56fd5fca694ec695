"""Types in stub notation as trees, which are shortened by depth before names are dropped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

Named = Callable[[str], bool]
"""A function that returns True for a key or value that the text of a task mentions."""

_KEY: Final = re.compile(r'\??"(?:[^"\\]|\\.)*": ?')
_STRING: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_LITERAL: Final = "Literal["
_LIST: Final = "list["
_ITEMS: Final = "*"
_MORE: Final = "..."
_DEEPEST: Final = 12
# The maximum number of keys of an envelope, a record such as ``{"data": …, "next": …}``.
_MAX_ENVELOPE_KEYS: Final = 3
# The limits to try, from long to short: the depth of nested records, and the number of keys.
_SHORTENING_STEPS: Final = ((_DEEPEST, 80), (4, 60), (3, 60), (2, 60), (1, 60), (1, 30))


def values_in(text: str) -> list[str]:
    """Return the keys of records and the values of ``Literal`` in a type, for searching.

    Args:
        text: A type in stub notation.
    """
    return [literal[0].strip("\"'") for literal in _STRING.finditer(text)]


class _Item(NamedTuple):
    """A key of a record with its type, or a value of a ``Literal``."""

    key: str
    head: str
    parts: tuple[str | _Group, ...]


class _Group(NamedTuple):
    """A part of a type text that can be shortened: a record or a ``Literal``.

    Args:
        is_record: True for a record, False for a ``Literal``.
        items: The keys of the record, or the values of the ``Literal``.
        is_cut: Whether the type text itself omits keys or values.
    """

    is_record: bool
    items: tuple[_Item, ...]
    is_cut: bool


_Parts = tuple[str | _Group, ...]


class _Limits(NamedTuple):
    """The limits within which a type is formatted.

    Args:
        depth: The number of nested record levels.
        names: The maximum number of keys of each record.
        values: The maximum number of values of each ``Literal``.
        is_outer: Whether all enclosing records are envelopes. An envelope does not count as a
            level.
    """

    depth: int
    names: int
    values: int
    is_outer: bool = True


_UNLIMITED: Final = _Limits(1_000, 1_000_000, 1_000_000)


def shorten(text: str, limit: int, task_names: Named, names: int = 60, values: int = 12) -> str:
    """Shorten a type to a number of characters, as far as possible.

    First, inner records become ``dict``; then further keys become ``...``. The first ``names`` keys
    of the outermost records stay even beyond the limit. Keys and values that the task names always
    stay.

    Args:
        text: A type in stub notation.
        limit: The maximum number of characters.
        task_names: Returns True for a key or value that the text of the task mentions.
        names: The maximum number of keys of the outermost records.
        values: The maximum number of values of each ``Literal``.
    """
    if len(text) <= limit:
        return text
    try:
        parts = _Reader(text).parts("")
    except ValueError:
        return text
    short_text = text
    for depth, max_names in (*_SHORTENING_STEPS, (1, names)):
        limits = _Limits(depth, min(max_names, names) if depth == 1 else max_names, values)
        short_text = _format_type(parts, limits, task_names)
        if len(short_text) <= limit:
            break
    return short_text


def with_types(text: str, types_by_path: Iterable[tuple[Sequence[str], str]]) -> str:
    """Return a declared type, extended by types of values that the declaration does not allow.

    Args:
        text: A type in stub notation.
        types_by_path: Pairs of a path and the type of the value there, such as ``None``. A path is
            a sequence of keys, with ``*`` for list items. Unknown paths are ignored.
    """
    for path, kind in sorted((tuple(path), kind) for path, kind in types_by_path):
        try:
            parts = _Reader(text).parts("")
        except ValueError:
            break
        text = _format_type(_with_type(parts, path, kind), _UNLIMITED, _never)
    return text


def _with_type(parts: _Parts, path: Sequence[str], kind: str) -> _Parts:
    """Return a parsed type in which the value at a path may also be of a type ``kind``."""
    if not path:
        text = _format_type(parts, _UNLIMITED, _never)
        if kind.startswith(f"{text} ("):  # the same type with a remark, as "str (a date)"
            return (kind,)
        return parts if _admits(text, kind) else (*parts, f" | {kind}")
    key, rest = path[0], path[1:]
    if key == _ITEMS:
        return _with_type_in_list(parts, rest, kind)
    return tuple(
        _with_type_in_record(part, key, rest, kind)
        if isinstance(part, _Group) and part.is_record
        else part
        for part in parts
    )


def _with_type_in_record(record: _Group, key: str, rest: Sequence[str], kind: str) -> _Group:
    """Return a record type that also allows ``kind`` at the path ``rest`` inside ``key``."""
    items = (
        item._replace(parts=_with_type(item.parts, rest, kind)) if item.key == key else item
        for item in record.items
    )
    return record._replace(items=tuple(items))


def _admits(text: str, kind: str) -> bool:
    """Return True if a type, such as ``int | None``, already includes a type, such as ``int``."""
    prefixes = {"dict": ("{", "dict"), "list": ("list",), "int": ("int", "float", "Decimal")}
    members = [text, *text.split(" | ")]
    return "Any" in members or any(each.startswith(prefixes.get(kind, (kind,))) for each in members)


def _with_type_in_list(parts: _Parts, path: Sequence[str], kind: str) -> _Parts:
    """Return a type that also allows ``kind`` at ``path`` inside the items of its first list.

    A type without a list is returned unchanged.
    """
    begin = next((n for n, p in enumerate(parts) if isinstance(p, str) and _LIST in p), None)
    if begin is None:
        return parts
    before, _, first = str(parts[begin]).partition(_LIST)
    # The type of the items ends at the bracket that closes the list.
    inner: list[str | _Group] = []
    depth = 1
    for number, part in enumerate((first, *parts[begin + 1 :]), begin):
        if isinstance(part, _Group):
            inner.append(part)
            continue
        for at, char in enumerate(part):
            depth += (char == "[") - (char == "]")
            if not depth:
                item_parts = _with_type((*inner, part[:at]), path, kind)
                return (
                    *parts[:begin],
                    before + _LIST,
                    *item_parts,
                    part[at:],
                    *parts[number + 1 :],
                )
        inner.append(part)
    return parts


def _never(_name: str) -> bool:
    return False


class _Reader:
    """A recursive parser of types in stub notation.

    Args:
        text: The type.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at: int = 0

    def parts(self, ends: str, level: int = 0) -> _Parts:
        """Parse a type up to one of the characters in ``ends``; to the end if ``ends`` is empty.

        Raises:
            ValueError: If brackets do not match or nest too deeply.
        """
        if level > 3 * _DEEPEST:
            raise ValueError("nested too deeply")
        parts: list[str | _Group] = []
        plain_letters: list[str] = []
        depth = 0
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in "\"'" and (string := _STRING.match(text, self._at)):
                plain_letters.append(string[0])
                self._at = string.end()
                continue
            is_literal = char == "L" and text.startswith(_LITERAL, self._at)
            if char == "{" or is_literal:
                parts += ["".join(plain_letters), self._group(is_literal, level)]
                plain_letters.clear()
                continue
            if not depth and char in ends:
                break
            depth += (char in "[(") - (char in "])")
            if depth < 0:
                raise ValueError("a bracket too many")
            plain_letters.append(char)
            self._at += 1
        else:
            if ends:
                raise ValueError("a bracket is missing")
        return (*parts, "".join(plain_letters))

    def _group(self, is_literal: bool, level: int) -> _Group:
        """Parse a record or a ``Literal``, from its opening bracket to its end."""
        self._at += len(_LITERAL) if is_literal else 1
        closing = "]" if is_literal else "}"
        items: list[_Item] = []
        is_cut = False
        while True:
            while self._text[self._at : self._at + 1] == " ":
                self._at += 1
            head = None if is_literal else _KEY.match(self._text, self._at)
            if head is not None:
                self._at = head.end()
            parts = self.parts(f",{closing}", level + 1)
            name = "" if head is None else head[0]
            key = name.strip("?: ") if name else str(parts[0])
            if not name and parts == (_MORE,):
                is_cut = True
            else:
                items.append(_Item(key.strip("\"'"), name, parts))
            self._at += 1
            if self._text[self._at - 1] == closing:
                return _Group(not is_literal, tuple(items), is_cut)


def _format_type(parts: _Parts, limits: _Limits, task_names: Named) -> str:
    return "".join(
        part if isinstance(part, str) else _group_text(part, limits, task_names) for part in parts
    )


def _group_text(group: _Group, limits: _Limits, task_names: Named) -> str:
    """Format a record or a ``Literal`` within the limits; items that the task names always stay."""
    max_items = limits.values
    if group.is_record:
        max_items = limits.names if limits.depth > 0 else 0
    ranked_items = group.items if group.is_record else sorted(group.items, key=_is_path)
    first_ids = {id(item) for item in ranked_items[:max_items]}
    kept_items = [
        item for item in group.items if id(item) in first_ids or _is_named(item, task_names)
    ]
    if not kept_items and group.is_record:
        return "dict"
    is_envelope = limits.is_outer and group.is_record and _is_envelope(group)
    depth = limits.depth if is_envelope else limits.depth - 1
    item_texts: list[str] = []
    for item in kept_items:
        is_named = group.is_record and task_names(item.key)
        inner = limits._replace(depth=max(depth, int(is_named)), is_outer=is_envelope)
        item_texts.append(item.head + _format_type(item.parts, inner, task_names))
    if group.is_cut or len(kept_items) < len(group.items):
        item_texts.append(_MORE)
    text = ", ".join(item_texts)
    return f"{{{text}}}" if group.is_record else f"{_LITERAL}{text}]"


def _is_envelope(group: _Group) -> bool:
    """Return True if a record has few keys, and exactly one of them holds a large record."""
    large = [
        item
        for item in group.items
        if any(
            isinstance(part, _Group) and part.is_record and len(part.items) > _MAX_ENVELOPE_KEYS
            for part in item.parts
        )
    ]
    return len(group.items) <= _MAX_ENVELOPE_KEYS and len(large) == 1


def _is_path(item: _Item) -> bool:
    """Return True for a key that is a path into nested records, such as ``assignee.name``."""
    return "." in item.key


def _is_named(item: _Item, task_names: Named) -> bool:
    """Return True if the task names an item or a part of it."""
    if task_names(item.key):
        return True
    groups = [part for part in item.parts if isinstance(part, _Group)]
    return any(_is_named(inner, task_names) for group in groups for inner in group.items)
