"""Descriptions of columns for the prompt: types, examples, and notations of text."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeVar, cast

T = TypeVar("T")

_LONGEST: Final = 60
_MAX_CHOICES: Final = 24
_ALWAYS: Final = 8
"""The number of distinct texts that are always shown, however long."""
_CHOICES_ROOM: Final = 240
_ODD_TEXTS: Final = 3
"""The number of texts shown for a mostly numeric column."""
_ITEMS: Final = 20_000
_LONGEST_CHOICE: Final = 30
_MAX_KEYS: Final = 40
_FEWEST_NAMES: Final = 5
"""The number of alike records from which a dict counts as records by name."""
_ALIKE: Final = 0.5
"""The share of keys that alike records have on average, of all their keys."""
_DEEPEST: Final = 8
_NUMERIC_SHARE: Final = 0.6
"""The share of numbers, or dates, from which a column counts as such despite other values."""

_UNITS: Final = re.compile(r"^[€$£¥]\s*|\s*(?:[€$£¥%]|EUR|USD|GBP|CHF)$")
_PLAIN: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_COMMA: Final = re.compile(r"[+-]?(?:\d{1,3}(?:[.'\s\u00a0\u202f]\d{3})+|\d+)(?:,\d+)?")
_GROUPED: Final = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NOTATIONS: Final = {
    "": _PLAIN,
    "with decimal comma": _COMMA,
    "with commas between thousands": _GROUPED,
    "with ' between thousands": re.compile(r"[+-]?\d{1,3}(?:['’]\d{3})+(?:\.\d+)?"),
}
_POINTED: Final = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
"""A number whose point may be a decimal point, or stand between thousands."""
_NEGATIVE: Final = re.compile(r"^\(([^()]*\d[^()]*)\)$|^(\d[\d.,' ]*)-$")
_COMPACT: Final = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
_GROUP: Final = 3
_CODE: Final = re.compile(r"0\d+")
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)
_DAY: Final = re.compile(r"(\d{1,2})([./-])(\d{1,2})[./-](?:\d{4}|\d{2})(?:[ ,T].*)?")


class Column(NamedTuple):
    """A column, or a key of records."""

    name: str
    line: str
    """The types and examples of the column."""


def short(value: Any) -> str:
    """Write a value as a one-line Python literal; dates and decimals in readable form."""
    if isinstance(value, (dt.date, dt.time, Decimal, dt.timedelta)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value):,} bytes"
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]!r}…"
    text = repr(value)
    return text if len(text) <= 2 * _LONGEST else f"{text[: 2 * _LONGEST]}…"


def spread(values: Sequence[T], most: int) -> Sequence[T]:
    """Return at most ``most`` values, evenly spread over the sequence."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(number * step)] for number in range(most)]


def text_column(name: str, values: Sequence[str | None], *, whole: bool) -> Column:
    """Describe a column of text values, as in .csv files.

    Args:
        name: The column's name.
        values: All values or a sample; None for rows that are too short.
        whole: Whether the values are complete.
    """
    if not any(value and value.strip() for value in values):
        return Column(name, "always ''")
    return Column(name, _texts([value or "" for value in values], is_complete=whole))


def _texts(values: Sequence[str], *, is_complete: bool) -> str:
    """Describe texts: all distinct texts if there are few, else an example with its notation."""
    non_blank = [value for value in values if value.strip()]
    stripped = [value.strip() for value in non_blank]
    if not stripped:
        return short(values[0])
    facts = [*_describe_notation(stripped)]
    choices = list(dict.fromkeys(non_blank))  # unchanged, for comparisons in scripts
    example = short(non_blank[0])
    if not facts and _are_choices(choices, len(stripped)):
        example = _choices(choices, is_complete)
    if stripped != non_blank:
        facts.append("blanks around some: strip them")
    if len(stripped) < len(values):
        facts.append(f"'' in {len(values) - len(stripped):,} of {len(values):,}")
    return f"{example} ({', '.join(facts)})" if facts else example


def _are_choices(choices: Sequence[str], count: int) -> bool:
    """Return True if texts repeat like the values of an enumeration, and are short."""
    return (
        1 < len(choices) <= _MAX_CHOICES
        and count >= 2 * len(choices)
        and all(len(choice) <= _LONGEST_CHOICE for choice in choices)
        and (len(choices) <= _ALWAYS or sum(map(len, choices)) <= _CHOICES_ROOM)
    )


def _choices(choices: Sequence[str], is_complete: bool) -> str:
    return " | ".join([*map(repr, choices), *(() if is_complete else ("…",))])


def _describe_notation(filled: Sequence[str]) -> Iterable[str]:
    """Yield the notation of a column's numbers or dates, then exceptions; nothing for others."""
    if all(map(_ISO.fullmatch, filled)):
        return
    dates = [match for match in map(_DAY.fullmatch, filled) if match]
    if len(dates) >= _NUMERIC_SHARE * len(filled):
        yield _date_order(dates)
        yield from _mention_others([text for text in filled if not _DAY.fullmatch(text)])
        return
    if all(map(_COMPACT.fullmatch, filled)):
        yield "date as YYYYMMDD"
        return
    numbers = [_UNITS.sub("", _NEGATIVE.sub(r"\1\2", text)) for text in filled]
    if any(map(_CODE.fullmatch, numbers)) and all(text.isdigit() for text in numbers):
        yield "with leading zeros"
        return
    matches_by_notation = {kind: _match_notation(numbers, kind) for kind in _NOTATIONS}
    kind = max(matches_by_notation, key=lambda kind: sum(matches_by_notation[kind]))
    if sum(matches_by_notation[kind]) < _NUMERIC_SHARE * len(filled):
        return
    if _NOTATIONS[kind] is _COMMA:
        kind_text = _describe_commas(
            [text for text, fit in zip(numbers, matches_by_notation[kind], strict=True) if fit]
        )
    else:
        kind_text = kind or _describe_points([text for text in numbers if _PLAIN.fullmatch(text)])
    units = dict.fromkeys(match[0] for text in filled if (match := _UNITS.search(text)))
    listed_units = " or ".join(map(repr, list(units)[:3]))
    yield f"number {kind_text}".strip() + (
        f", with {listed_units} to take off" if listed_units else ""
    )
    negative = next(filter(_NEGATIVE.fullmatch, filled), None)
    if negative is not None:
        yield f"negative as {short(negative)}"
    yield from _mention_others(
        [text for text, fit in zip(filled, matches_by_notation[kind], strict=True) if not fit]
    )


def _match_notation(texts: Sequence[str], kind: str) -> list[bool]:
    """Return for each text whether it is a number in the notation ``kind``.

    Numbers that match ``_PLAIN`` fit every notation except the one with decimal commas.
    """
    pattern = _NOTATIONS[kind]
    return [
        bool(pattern.fullmatch(text) or (pattern is not _COMMA and _PLAIN.fullmatch(text)))
        for text in texts
    ]


def _describe_commas(numbers: Sequence[str]) -> str:
    """Describe numbers with commas: for thousands, for decimals, or unclear."""
    with_comma = [text for text in numbers if "," in text]
    without_comma = [text for text in numbers if text.isdigit()]
    if (
        with_comma
        and all(_GROUPED.fullmatch(text) for text in with_comma)
        and not any("." in t for t in numbers)
    ):
        no_leading_zero = not any(text.lstrip("+-").startswith("0") for text in with_comma)
        if no_leading_zero and without_comma and all(len(text) <= _GROUP for text in without_comma):
            return "with commas between thousands"
        return "with commas: for thousands or decimals, unclear"
    if any(re.search(r"\d\.\d{3}", text) for text in numbers):
        return "with decimal comma, points between thousands"
    if any(re.search(r"\d['\s\u00a0\u202f]\d{3}", text) for text in numbers):
        return "with decimal comma, gaps between thousands"
    return "with decimal comma"


def _describe_points(numbers: Sequence[str]) -> str:
    """Describe points that may separate thousands, because three digits follow each point."""
    with_point = [text for text in numbers if "." in text]
    without_point = [text.lstrip("+-") for text in numbers if "." not in text]
    if (
        not with_point
        or not all(map(_POINTED.fullmatch, with_point))
        or any(len(text) > _GROUP for text in without_point)
    ):
        return ""
    if without_point:
        return "with points: likely between thousands"
    return "with points: for thousands or decimals, unclear"


def _mention_others(others: Sequence[str]) -> Iterable[str]:
    if others:
        yield f"but also {', '.join(map(short, list(dict.fromkeys(others))[:3]))}"


def _date_order(days: Sequence[re.Match[str]]) -> str:
    # A number above twelve is no month; points are written by countries that put the day first.
    firsts, seconds = ({int(day[group]) for day in days} for group in (1, 3))
    if max(firsts) > 12 or days[0][2] == ".":
        return "day first"
    return "month first" if max(seconds) > 12 else "day or month first: unclear"


def typed_column(name: str, values: Sequence[Any], declared: str = "", *, whole: bool) -> Column:
    """Describe a column by the types of its values.

    Args:
        name: The column's name.
        values: Some of its values.
        declared: The declared type, if any.
        whole: Whether the values are complete.
    """
    kinds = described(values, whole=whole)
    return Column(name, f"{declared}: {kinds}" if declared and values else declared or kinds)


def record_columns(records: Sequence[Mapping[str, Any]], *, whole: bool) -> list[Column]:
    """Describe the keys of records such as those of .json files.

    Args:
        records: All records or a sample.
        whole: Whether the records are complete.
    """
    keys = dict.fromkeys(key for record in records for key in record)
    columns: list[Column] = []
    for key in keys:
        values = [record[key] for record in records if key in record]
        line = described(values, 1, whole=whole)
        if len(values) < len(records):
            line += f" (missing in {len(records) - len(values):,} of {len(records):,})"
        columns.append(Column(str(key), line))
    return columns


def described(values: Sequence[Any], depth: int = 0, *, whole: bool) -> str:
    """Describe values: types with an example each, and records by their keys.

    Args:
        values: All values or a sample.
        depth: The number of enclosing lists and records.
        whole: Whether the values are complete.
    """
    kinds: dict[str, list[Any]] = {}
    for value in values:
        kinds.setdefault(type(value).__name__, []).append(value)
    if not kinds:
        return "nothing"
    is_mixed = len(kinds.keys() - {"NoneType"}) > 1
    parts = [
        _describe_kind(kind, values_of_kind, depth, whole, is_mixed=is_mixed)
        for kind, values_of_kind in kinds.items()
        if kind != "NoneType"
    ]
    return " | ".join([*parts, "None"] if "NoneType" in kinds else parts)


def _describe_kind(
    kind: str, values: list[Any], depth: int, is_complete: bool, *, is_mixed: bool
) -> str:
    """Describe the values of one type."""
    first = values[0]
    if kind == "dict":
        return _describe_record(cast("list[dict[str, Any]]", values), depth, is_complete)
    if kind == "list":
        items = list(islice(chain.from_iterable(values), _ITEMS))
        if not items or depth >= _DEEPEST:
            return "list" if items else "[]"
        return f"[{described(items, depth + 1, whole=is_complete)}, …]"
    if kind == "str" and is_mixed:
        odd = list(dict.fromkeys(values))
        more = " | …" if len(odd) > _ODD_TEXTS else ""
        return " | ".join(map(short, odd[:_ODD_TEXTS])) + more
    if kind == "str":
        return _texts(values, is_complete=is_complete)
    return kind if kind == "bool" else f"{kind} {short(first)}"


def is_by_name(values: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the keys of dicts are data, such as ids, and not names of fields.

    Very many keys count as data, and so do keys whose values are similar records.

    Args:
        values: The dicts.
    """
    keys = {key for value in values for key in value}
    if len(keys) > _MAX_KEYS:
        return True
    inner = [item for value in values for item in islice(value.values(), _MAX_KEYS)]
    if len(keys) < _FEWEST_NAMES or not all(isinstance(item, dict) for item in inner):
        return False
    records = cast("list[dict[str, Any]]", inner)
    known = {key for record in records for key in record}
    return sum(map(len, records)) >= _ALIKE * len(known) * len(records) > 0


def _describe_record(values: list[dict[str, Any]], depth: int, is_complete: bool) -> str:
    """Describe dicts by their keys, or by a sample of values if the keys are data."""
    keys = list(dict.fromkeys(key for value in values for key in value))
    if not keys or depth >= _DEEPEST:
        return "dict" if keys else "{}"
    if is_by_name(values):
        inner = [item for value in values for item in value.values()]
        sample = spread(inner, _ITEMS)
        kinds = described(sample, depth + 1, whole=is_complete and sample is inner)
        return f"{{{len(keys):,} keys such as {short(keys[0])}: {kinds}}}"
    parts: list[str] = []
    for key in keys:
        field_values = [value[key] for value in values if key in value]
        mark = "?" if len(field_values) < len(values) else ""
        parts.append(f"{mark}{short(key)}: {described(field_values, depth + 1, whole=is_complete)}")
    return f"{{{', '.join(parts)}}}"
