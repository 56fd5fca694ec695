"""Descriptions of columns for the prompt: types, examples, and notations of numbers and dates."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain, compress, islice
from typing import Any, Final, NamedTuple, TypeVar, cast

T = TypeVar("T")

_MAX_TEXT_CHARACTERS: Final = 60
_MAX_CHOICES: Final = 24
# The number of choices up to which their total length does not matter.
_MAX_LONG_CHOICES: Final = 8
_MAX_CHOICES_CHARACTERS: Final = 240
_MAX_MIXED_TEXTS: Final = 3
_MAX_ITEMS: Final = 20_000
_MAX_CHOICE_CHARACTERS: Final = 30
_MAX_FIELDS: Final = 40
_MIN_RECORDS: Final = 5
# Records are similar if a record has at least this share of all fields on average.
_SIMILAR_SHARE: Final = 0.5
_MAX_DEPTH: Final = 8
# The minimum share of numbers in a column of numbers, and of dates in a column of dates.
_NUMERIC_SHARE: Final = 0.6

_UNITS: Final = re.compile(r"^[€$£¥]\s*|\s*(?:[€$£¥%]|EUR|USD|GBP|CHF)$")
_PLAIN: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?(?:\d{1,3}(?:[.'\s\u00a0\u202f]\d{3})+|\d+)(?:,\d+)?")
_GAP: Final = re.compile(r"\d['\s\u00a0\u202f]\d{3}")
_COMMA_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_PLAIN_NOTATION: Final = ""
# A mapping from the description of a notation to a pattern of its numbers.
_NOTATIONS: Final = {
    _PLAIN_NOTATION: _PLAIN,
    "with decimal comma": _DECIMAL_COMMA,
    "with commas between thousands": _COMMA_THOUSANDS,
    "with ' between thousands": re.compile(r"[+-]?\d{1,3}(?:['’]\d{3})+(?:\.\d+)?"),
}
# Matches a number such as 1.234, which may be 1234 or a fraction.
_AMBIGUOUS_POINT: Final = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_UNUSUAL_NEGATIVE: Final = re.compile(r"^\(([^()]*\d[^()]*)\)$|^(\d[\d.,' ]*)-$")
_COMPACT_DATE: Final = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
_THOUSANDS_DIGITS: Final = 3
_LEADING_ZERO: Final = re.compile(r"0\d+")
_ISO_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)
_NUMERIC_DATE: Final = re.compile(r"(\d{1,2})([./-])(\d{1,2})[./-](?:\d{4}|\d{2})(?:[ ,T].*)?")


class Column(NamedTuple):
    """The description of a table's column, or of a key of the dicts in a list."""

    name: str
    line: str
    """The types and examples of the column, as one line."""


def short(value: Any) -> str:
    """Format a value as a Python literal on one line.

    Dates, times, durations and decimals have their usual form. For bytes, only the number is shown:
    ``1,024 bytes``. Long values are truncated.
    """
    if isinstance(value, (dt.date, dt.time, Decimal, dt.timedelta)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value):,} bytes"
    if isinstance(value, str) and len(value) > _MAX_TEXT_CHARACTERS:
        return f"{value[:_MAX_TEXT_CHARACTERS]!r}…"
    text = repr(value)
    limit = 2 * _MAX_TEXT_CHARACTERS
    return text if len(text) <= limit else f"{text[:limit]}…"


def evenly_spaced(values: Sequence[T], most: int) -> Sequence[T]:
    """Return at most ``most`` values, evenly spread over the sequence; ``most`` is 2 or more."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(number * step)] for number in range(most)]


def text_column(name: str, values: Sequence[str | None], *, is_complete: bool) -> Column:
    """Describe a column of text values, as in .csv files.

    Args:
        name: The column's name.
        values: The values, with None for each row that is too short to have a value.
        is_complete: Whether ``values`` has all values of the column, and not a sample.
    """
    if not any(value and value.strip() for value in values):
        return Column(name, "always ''")
    return Column(name, _describe_texts([value or "" for value in values], is_complete=is_complete))


def _describe_texts(values: Sequence[str], *, is_complete: bool) -> str:
    """Describe a column's texts: list the distinct texts if they are few, else show an example.

    The description mentions empty texts, blanks around texts, and the notation of numbers or dates.

    Args:
        values: The texts.
        is_complete: Whether ``values`` are all texts of the column.
    """
    non_blank = [value for value in values if value.strip()]
    stripped = [value.strip() for value in non_blank]
    if not stripped:
        return short(values[0])
    facts = [*_describe_notation(stripped)]
    # Choices keep their blanks, because scripts compare the exact texts.
    choices = list(dict.fromkeys(non_blank))
    example = short(non_blank[0])
    if not facts and _are_choices(choices, len(stripped)):
        example = _joined_choices(choices, is_complete)
    if stripped != non_blank:
        facts.append("blanks around some: strip them")
    if len(stripped) < len(values):
        facts.append(f"'' in {len(values) - len(stripped):,} of {len(values):,}")
    return f"{example} ({', '.join(facts)})" if facts else example


def _are_choices(choices: Sequence[str], count: int) -> bool:
    """Return True if distinct texts are short and repeat like the values of an enumeration.

    Args:
        choices: The distinct texts.
        count: The number of texts, with repetitions.
    """
    has_few_choices = 1 < len(choices) <= _MAX_CHOICES
    repeats_choices = count >= 2 * len(choices)  # each text occurs at least twice on average
    if not has_few_choices or not repeats_choices:
        return False
    if any(len(choice) > _MAX_CHOICE_CHARACTERS for choice in choices):
        return False
    # The prompt lists all choices: either a few, which may be long, or more that are short.
    has_very_few_choices = len(choices) <= _MAX_LONG_CHOICES
    return has_very_few_choices or sum(map(len, choices)) <= _MAX_CHOICES_CHARACTERS


def _joined_choices(choices: Sequence[str], is_complete: bool) -> str:
    shown = [repr(choice) for choice in choices]
    if not is_complete:
        shown.append("…")
    return " | ".join(shown)


def _describe_notation(texts: Sequence[str]) -> Iterable[str]:
    """Yield remarks on how a column writes its numbers or dates, and on its other values.

    Yield nothing if the column has neither numbers nor dates, or only ISO dates.
    """
    if all(map(_ISO_DATE.fullmatch, texts)):
        return
    dates = [match for match in map(_NUMERIC_DATE.fullmatch, texts) if match]
    if len(dates) >= _NUMERIC_SHARE * len(texts):
        yield _date_order(dates)
        yield from _mention_others([text for text in texts if not _NUMERIC_DATE.fullmatch(text)])
        return
    if all(map(_COMPACT_DATE.fullmatch, texts)):
        yield "date as YYYYMMDD"
        return
    yield from _describe_numbers(texts)


def _describe_numbers(texts: Sequence[str]) -> Iterable[str]:
    """Yield remarks on how a column writes its numbers; nothing if too few texts are numbers.

    Remarks are, for example, ``number with decimal comma`` and ``but also 'n/a'``.

    Args:
        texts: The cells of the column that are not empty.
    """
    numbers = list(map(_without_sign_and_unit, texts))
    has_leading_zero = any(map(_LEADING_ZERO.fullmatch, numbers))
    if has_leading_zero and all(map(str.isdigit, numbers)):
        yield "with leading zeros"
        return
    fits_by_notation = {each: _fits_notation(numbers, each) for each in _NOTATIONS}
    notation = max(_NOTATIONS, key=lambda each: sum(fits_by_notation[each]))  # fits most numbers
    are_numbers = fits_by_notation[notation]
    if sum(are_numbers) < _NUMERIC_SHARE * len(texts):
        return
    description = _describe_separators(list(compress(numbers, are_numbers)), notation)
    yield f"number {description}".strip() + _describe_units(texts)
    negative = next(filter(_UNUSUAL_NEGATIVE.fullmatch, texts), None)
    if negative is not None:
        yield f"negative as {short(negative)}"
    others = [text for text, fits_it in zip(texts, are_numbers, strict=True) if not fits_it]
    yield from _mention_others(others)


def _without_sign_and_unit(text: str) -> str:
    """Remove the sign in an unusual place, as in ``(1.50)`` and ``1.50-``, and then the unit."""
    return _UNITS.sub("", _UNUSUAL_NEGATIVE.sub(r"\1\2", text))


def _describe_separators(numbers: Sequence[str], notation: str) -> str:
    """Describe how points and commas are used in numbers, which all fit ``notation``."""
    if _NOTATIONS[notation] is _DECIMAL_COMMA:
        return _describe_commas(numbers)
    if notation == _PLAIN_NOTATION:
        return _describe_points(numbers)
    return notation  # each key of _NOTATIONS is also its description


def _describe_units(texts: Sequence[str]) -> str:
    """Return a remark on the units of numbers; empty if the numbers have no unit.

    For ``12 EUR``, the remark is ``, with ' EUR' to strip``.
    """
    matches = filter(None, map(_UNITS.search, texts))
    units = list(dict.fromkeys(match[0] for match in matches))
    return f", with {' or '.join(map(repr, units[:3]))} to strip" if units else ""


def _fits_notation(texts: Sequence[str], notation: str) -> list[bool]:
    """Return for each text whether the text is a number in a notation.

    Numbers that match ``_PLAIN`` fit every notation except the one with decimal commas.
    """
    patterns = [_NOTATIONS[notation]]
    if _NOTATIONS[notation] is not _DECIMAL_COMMA:
        patterns.append(_PLAIN)
    return [any(pattern.fullmatch(text) for pattern in patterns) for text in texts]


def _describe_commas(numbers: Sequence[str]) -> str:
    """Describe the commas in numbers: between thousands, before decimals, or unclear.

    Args:
        numbers: Numbers that may have a decimal comma, such as 1.234,5 and 1,234.
    """
    # If points or gaps separate thousands, commas do not.
    if any("." in text for text in numbers):
        return "with decimal comma, points between thousands"
    with_comma = [text for text in numbers if "," in text]
    if any(map(_GAP.search, numbers)):
        decimals = "decimal comma, " if with_comma else ""
        return f"with {decimals}gaps between thousands"
    has_fraction = any(text.lstrip("+-").startswith("0,") for text in with_comma)
    if has_fraction or not all(map(_COMMA_THOUSANDS.fullmatch, with_comma)):
        return "with decimal comma"
    # If 999 is the longest number without a comma, the comma of 1,234 separates thousands. Beside a
    # number such as 1000, the meaning of the comma is unclear.
    without_comma = [text for text in numbers if text.isdigit()]
    if without_comma and all(len(text) <= _THOUSANDS_DIGITS for text in without_comma):
        return "with commas between thousands"
    return "with commas: for thousands or decimals, unclear"


def _describe_points(numbers: Sequence[str]) -> str:
    """Return a remark if points in numbers may separate thousands, as in 1.234; empty otherwise."""
    with_point = [text for text in numbers if "." in text]
    without_point = [text.lstrip("+-") for text in numbers if "." not in text]
    if not with_point:
        return ""
    if not all(map(_AMBIGUOUS_POINT.fullmatch, with_point)):  # such as 1.5
        return ""
    if any(len(text) > _THOUSANDS_DIGITS for text in without_point):
        return ""  # 5678 has no point, so 1.234 has a decimal point
    if without_point:
        # A column with three decimals, such as 1.234, would have 567.000 and not 567.
        return "with points: likely between thousands"
    return "with points: for thousands or decimals, unclear"


def _mention_others(others: Sequence[str]) -> Iterable[str]:
    """Yield a remark such as ``but also 'n/a'`` on the texts that are neither number nor date."""
    if others:
        distinct_texts = list(dict.fromkeys(others))
        yield f"but also {', '.join(map(short, distinct_texts[:3]))}"  # long texts are truncated


def _date_order(dates: Sequence[re.Match[str]]) -> str:
    """Return ``day first``, ``month first`` or that the order in the numeric dates is unclear."""
    first_numbers = {int(date[1]) for date in dates}
    second_numbers = {int(date[3]) for date in dates}
    separator = dates[0][2]
    # A number above 12 is a day. Dates with points, such as 3.4.2025, begin with the day.
    if max(first_numbers) > 12 or separator == ".":
        return "day first"
    if max(second_numbers) > 12:
        return "month first"
    return "day or month first: unclear"


def typed_column(
    name: str, values: Sequence[Any], declared: str = "", *, is_complete: bool
) -> Column:
    """Describe a column by the types of its values.

    Args:
        name: The column's name.
        values: All values of the column, or a sample.
        declared: The declared type; empty if no type is declared.
        is_complete: Whether ``values`` has all values of the column, and not a sample.
    """
    found_types = describe_values(values, is_complete=is_complete)
    if not declared:
        return Column(name, found_types)
    return Column(name, f"{declared}: {found_types}" if values else declared)


def record_columns(records: Sequence[Mapping[str, Any]], *, is_complete: bool) -> list[Column]:
    """Describe each key of records, such as those of .json files, as a column.

    Args:
        records: All records, or a sample.
        is_complete: Whether ``records`` has all records, and not a sample.
    """
    keys = dict.fromkeys(key for record in records for key in record)
    columns: list[Column] = []
    for key in keys:
        values = [record[key] for record in records if key in record]
        line = describe_values(values, depth=1, is_complete=is_complete)
        if len(values) < len(records):
            line += f" (missing in {len(records) - len(values):,} of {len(records):,})"
        columns.append(Column(str(key), line))
    return columns


def describe_values(values: Sequence[Any], depth: int = 0, *, is_complete: bool) -> str:
    """Describe values by their types, each with an example; records by their keys.

    Args:
        values: All values, or a sample.
        depth: The number of lists and records that enclose the values.
        is_complete: Whether ``values`` has all values, and not a sample.
    """
    values_by_type: dict[str, list[Any]] = {}
    for value in values:
        values_by_type.setdefault(type(value).__name__, []).append(value)
    if not values_by_type:
        return "nothing"
    has_none = values_by_type.pop("NoneType", None) is not None
    is_mixed = len(values_by_type) > 1
    parts = [
        _describe_kind(kind, values_of_kind, depth, is_complete, is_mixed=is_mixed)
        for kind, values_of_kind in values_by_type.items()
    ]
    if has_none:
        parts.append("None")
    return " | ".join(parts)


def _describe_kind(
    kind: str, values: list[Any], depth: int, is_complete: bool, *, is_mixed: bool
) -> str:
    """Describe values of one type.

    Args:
        kind: The name of the type.
        values: The values of the type, or a sample.
        depth: The number of lists and records that enclose the values.
        is_complete: Whether ``values`` are all values of the type, and not a sample.
        is_mixed: Whether there are also values of other types.
    """
    if kind == "dict":
        return _describe_record(cast("list[dict[str, Any]]", values), depth, is_complete)
    if kind == "list":
        items = list(islice(chain.from_iterable(values), _MAX_ITEMS + 1))
        if not items:
            return "[]"
        if depth >= _MAX_DEPTH:
            return "list"
        sample = items[:_MAX_ITEMS]
        has_all_items = is_complete and len(sample) == len(items)
        return f"[{describe_values(sample, depth + 1, is_complete=has_all_items)}, …]"
    if kind == "str" and is_mixed:
        distinct_texts = list(dict.fromkeys(values))
        more = " | …" if len(distinct_texts) > _MAX_MIXED_TEXTS else ""
        return " | ".join(map(short, distinct_texts[:_MAX_MIXED_TEXTS])) + more
    if kind == "str":
        return _describe_texts(values, is_complete=is_complete)
    if kind == "bool":
        return kind
    return f"{kind} {short(values[0])}"


def has_data_keys(values: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the keys of dicts are data, such as ids, and not names of fields.

    More than 40 keys count as data, and so do a few keys whose values are similar records.

    Args:
        values: The dicts.
    """
    keys = set[str]().union(*values)
    if len(keys) > _MAX_FIELDS:
        return True
    if len(keys) < _MIN_RECORDS:
        return False
    items: list[Any] = []
    for value in values:
        items += islice(value.values(), _MAX_FIELDS)
    if not all(isinstance(item, dict) for item in items):
        return False
    records = cast("list[dict[str, Any]]", items)
    fields = set[str]().union(*records)
    # Records are similar if a table of them, with a column for each field, has few empty cells.
    cells = len(fields) * len(records)
    filled_cells = sum(map(len, records))
    return cells > 0 and filled_cells >= _SIMILAR_SHARE * cells


def _describe_record(values: list[dict[str, Any]], depth: int, is_complete: bool) -> str:
    """Describe dicts by their keys, or by a sample of values if the keys are data, such as ids.

    Args:
        values: The dicts.
        depth: The number of lists and records that enclose the dicts.
        is_complete: Whether ``values`` has all dicts, and not a sample.
    """
    keys = list(dict.fromkeys(chain.from_iterable(values)))
    if not keys:
        return "{}"
    if depth >= _MAX_DEPTH:
        return "dict"
    if has_data_keys(values):
        items: list[Any] = []
        for value in values:
            items += value.values()
        sample = evenly_spaced(items, _MAX_ITEMS)
        has_all_items = is_complete and len(sample) == len(items)
        kinds = describe_values(sample, depth + 1, is_complete=has_all_items)
        return f"{{{len(keys):,} keys such as {short(keys[0])}: {kinds}}}"
    parts: list[str] = []
    for key in keys:
        field_values = [value[key] for value in values if key in value]
        optional_mark = "?" if len(field_values) < len(values) else ""
        kinds = describe_values(field_values, depth + 1, is_complete=is_complete)
        parts.append(f"{optional_mark}{short(key)}: {kinds}")
    return f"{{{', '.join(parts)}}}"
