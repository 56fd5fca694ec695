"""Short descriptions of columns for the prompt: shared values, formats, JSON keys.

A value is shown only if many rows share it, such as a state. Other texts are described by their
form: the format of a date, the pattern of a number, the keys of JSON.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from delf_sql.catalog import Column, Table
from delf_sql.gate import Statement
from delf_sql.render import quoted, relation_name
from delf_sql.target import Dialect

ROWS: Final = 300
"""The maximum number of rows to sample in each table."""
_MAX_VALUES: Final = 12
_MAX_VALUE_CHARS: Final = 24
# Values are shown only if each distinct value occurs in at least this many rows on average.
_MIN_ROWS_PER_VALUE: Final = 3
_MIN_TEXTS_PER_PATTERN: Final = 3
_MAX_NUMBERS: Final = 6
# The number of rows above which a few distinct integers count as an enumeration.
_MIN_ENUMERATION_ROWS: Final = 10
_MAX_DESCRIPTION_CHARS: Final = 300
_MAX_JSON: Final = 100
_MAX_KEYS: Final = 30
_MAX_PATTERNS: Final = 2
_MAX_DEPTH: Final = 4
# Matches JSON keys that can be field names. Other keys are data: an id, or a name that ends in a
# number of four or more digits.
_FIELD_NAME: Final = re.compile(r"[^\W\d][\w.-]{0,39}(?<!\d{4})")
_LARGE_TYPE: Final = re.compile(r"blob|binary|bytea|bytes|image|geometry|geography|vector")
# Matches names of columns with personal data or secrets, whose values are never shown.
_PERSONAL_NAME: Final = re.compile(
    r"(?:^|_)(?:name|names|(?:first|last|full|sur|user|nick|display|maiden)_?names?|e?_?mails?"
    r"|phones?|mobile|fax|address|street|iban|bic|ssn|passport|tax_?id|birth\w*|born|dob|login"
    r"|password|secret|token|key|hash|salt|person|customer|client|patient|employee|owner|author"
    r"|contact|manager|agent|driver|student|teacher|doctor|sender|recipient|user|actor"
    r"|(?:created|updated|changed|approved|signed|closed|opened|handled)_by)$"
)
# Matches names of columns that explain the codes of a lookup table.
_LABEL_NAME: Final = re.compile(
    r"(?:^|_)(?:label|title|description|meaning|caption|status|state|kind|type|category|text)$"
)
# Texts that stand for a missing value, in lower case.
_MISSING_VALUES: Final = frozenset({"", "-", "--", "n/a", "na", "none", "null", "unknown", "?"})
_MAX_LOOKUP_COLUMNS: Final = 4
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DATES: Final = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
_FORMATS: Final = (
    *_DATES,
    *(f"{date}{mark}{time}"
      for date in _DATES[:6]
      for mark in (" ", "T")
      for time in ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%SZ", "%H:%M:%S.%fZ", "%H:%M:%S%z")),
    "%Y-%m", "%m/%Y", "%H:%M", "%H:%M:%S", "%d %b %Y", "%b %d, %Y",
)  # fmt: skip
_EPOCHS: Final = (("s", 1), ("ms", 1_000))
_MIN_UNIX_SECONDS, _MAX_UNIX_SECONDS = 631_152_000, 2_524_608_000  # 1990 and 2050
_TIME_NAME: Final = re.compile(r"(?:^|_)(?:at|on|time|date|ts|timestamp|when|since|until|epoch)$")


def sampling_query(table: Table, dialect: Dialect, *, last_rows: bool) -> Statement | None:
    """Return a query for a table's first rows, or for its last rows in the order of its key.

    The result is None for views, which may take long, and for tables without a column to sample.
    It is also None if the last rows are wanted and the key is not a single column.
    """
    names = [quoted(column.name, dialect) for column in _sampled_columns(table)]
    keys = [quoted(column.name, dialect) for column in table.columns if column.primary_key]
    if table.relation.kind == "view" or not names:
        return None
    if last_rows and len(keys) != 1:
        return None
    order = f" ORDER BY {keys[0]} DESC" if last_rows else ""
    source = relation_name(table.relation, dialect)
    text = f"SELECT {', '.join(names)} FROM {source}{order} LIMIT {ROWS}"  # noqa: S608 - quoted names of the catalogue
    return Statement(text, ())


def _sampled_columns(table: Table) -> list[Column]:
    """Return the columns whose values are sampled.

    A primary key is among these columns only in a table with few columns.
    """
    is_small = len(table.columns) <= _MAX_LOOKUP_COLUMNS
    sampled: list[Column] = []
    for column in table.columns:
        if column.references or _LARGE_TYPE.search(column.type.lower()):
            continue
        if is_small or not column.primary_key:
            sampled.append(column)
    return sampled


def with_samples(
    table: Table, rows: Sequence[Sequence[Any]], is_shown: Callable[[str], bool]
) -> Table:
    """Return a table with descriptions of its column values, taken from some rows.

    Args:
        table: The table.
        rows: The rows that the query of :func:`sampling_query` returned, with a value for each
            sampled column.
        is_shown: Returns whether the prompt may describe a column.
    """
    # A small lookup table is described by whole rows, and so by the values of all columns.
    shows_all_columns = all(is_shown(column.name) for column in table.columns)
    notes = _describe_lookup_table(table, rows) if shows_all_columns else {}
    for number, column in enumerate(_sampled_columns(table)):
        if column.name in notes or column.primary_key or not is_shown(column.name):
            continue
        values = [row[number] for row in rows]
        if description := _describe_column(column, values):
            notes[column.name] = description
    columns = [
        replace(column, value_description=notes.get(column.name)) for column in table.columns
    ]
    return Table(table.relation, columns, table.broken)


def _describe_lookup_table(table: Table, rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Describe each label column of a small lookup table by all its values.

    Returns:
        A mapping from column name to description: ``{1: 'open', 2: 'closed'} by id``, where the
        numbers are values of the key ``id``. The mapping is empty for any other table.
    """
    columns = _sampled_columns(table)
    key_numbers = [number for number, column in enumerate(columns) if column.primary_key]
    has_few_rows = 1 < len(rows) <= _MAX_VALUES
    if not (has_few_rows and len(key_numbers) == 1 and _may_be_lookup_table(table, columns)):
        return {}
    (key_number,) = key_numbers
    key_name = columns[key_number].name
    notes: dict[str, str] = {}
    for number, column in enumerate(columns):
        if number == key_number or not _LABEL_NAME.search(_snake_case(column.name)):
            continue
        pairs = [(row[key_number], row[number]) for row in rows]
        if not all(_is_plain_label(key, text) for key, text in pairs):
            continue
        texts_by_key = ", ".join(f"{key!r}: {text!r}" for key, text in pairs)
        if len(texts_by_key) <= _MAX_DESCRIPTION_CHARS:
            notes[column.name] = f"{{{texts_by_key}}} by {key_name}"
    return notes


def _may_be_lookup_table(table: Table, sampled_columns: Sequence[Column]) -> bool:
    """Return False for a table about people, or with references or large values."""
    has_references_or_large_values = len(sampled_columns) < len(table.columns)
    is_about_people = any(_is_personal(column.name) for column in table.columns)
    return not has_references_or_large_values and not is_about_people


def _describe_column(column: Column, values: Sequence[Any]) -> str:
    """Describe a column's values in a few words: ``open | paid | None`` if some rows have None."""
    present = [value for value in values if value is not None]
    description = _describe_values(column, present)
    if len(present) == len(values):
        return description
    if not present:
        return "None"
    return f"{description} | None" if description else "some None"


def _describe_values(column: Column, values: Sequence[Any]) -> str:
    """Describe a column's values in a few words; empty if the type says enough."""
    kinds = {type(value).__name__ for value in values}
    if kinds == {"str"}:
        # The type of an enumeration lists its values.
        is_listed = all(repr(value) in column.type for value in set(values))
        return "" if is_listed else _describe_texts(column.name, values)
    if kinds == {"int"}:
        return _describe_integers(column.name, values)
    if kinds and kinds <= {"dict", "list"}:
        return _cut(_nested_types(column.name, values[:_MAX_JSON]))
    if "str" in kinds:  # SQLite's columns accept any type
        return " or ".join(sorted(kinds))
    return ""


def _describe_texts(name: str, values: Sequence[str]) -> str:
    """Describe the texts of a column.

    The description is the first of these that applies: the structure of JSON texts, a date format,
    the distinct texts (if few texts repeat in many rows), patterns. Texts for a missing value, such
    as "n/a", are listed beside a date format or patterns.
    """
    if all(value.lstrip().startswith(("{", "[")) for value in values):
        with contextlib.suppress(ValueError, RecursionError):
            parsed = [json.loads(value) for value in values[:_MAX_JSON]]
            return f"JSON {_cut(_nested_types(name, parsed))}"
    if form := _date_format(values):
        return form
    if shared := _shared_values(name, values):
        return shared
    missing = {value for value in values if value.strip().lower() in _MISSING_VALUES}
    present = [value for value in values if value not in missing]
    if present and 0 < len(missing) <= _MAX_PATTERNS:
        form = _date_format(present) or _patterns_of(present)
        if form:
            alternatives = [form, *map(repr, sorted(missing))]
            return " | ".join(alternatives)
    return _patterns_of(values)


def _patterns_of(values: Sequence[str]) -> str:
    """Return a phrase such as "as AB-00 or CD-0", with one or two patterns that cover all texts.

    In a pattern, 0 stands for any digit. The result is empty if the texts have more than two
    patterns, if a pattern has no digit, or if there are too few texts for the patterns.
    """
    # Patterns that differ only in the length of their numbers count as one.
    patterns_by_shape: dict[str, str] = {}
    for pattern in sorted({_pattern_of(value) for value in values}):
        shape = re.sub("0+", "0", pattern)
        patterns_by_shape.setdefault(shape, pattern)
    patterns = list(patterns_by_shape.values())
    has_few_patterns = len(patterns) <= _MAX_PATTERNS
    has_digits = all("0" in pattern for pattern in patterns)
    has_many_texts = len(set(values)) >= _MIN_TEXTS_PER_PATTERN * len(patterns)
    is_useful = has_few_patterns and has_digits and has_many_texts
    return f"as {' or '.join(patterns)}" if is_useful else ""


def _shared_values(name: str, values: Sequence[str]) -> str:
    """Return the distinct texts of a column, or of a key in JSON, such as ``'new' | 'paid'``.

    The result is empty if the texts are many, do not repeat, or may be private.
    """
    counts = Counter(values)
    has_few_texts = len(counts) <= _MAX_VALUES
    repeats_texts = len(values) >= _MIN_ROWS_PER_VALUE * len(counts)
    if not (has_few_texts and repeats_texts):
        return ""
    if _is_personal(name) or not all(map(_is_plain, counts)):
        return ""
    return " | ".join(map(repr, sorted(counts)))


def _nested_types(name: str, values: Sequence[Any], depth: int = 0) -> str:
    """Describe nested values by their types, including the keys of dicts and frequent texts."""
    present = [value for value in values if value is not None]
    types = _types_of_present(name, present, depth)
    return f"{types} | None" if len(present) < len(values) else types


def _types_of_present(name: str, values: Sequence[Any], depth: int) -> str:
    """Describe values that are not None by their types."""
    kinds = {type(value).__name__ for value in values}
    if kinds == {"str"}:
        return _shared_values(name, values) or "str"
    if kinds == {"list"} and depth < _MAX_DEPTH:
        items = list(itertools.chain.from_iterable(values))
        return f"list[{_nested_types(name, items, depth + 1)}]"
    if kinds == {"dict"} and depth < _MAX_DEPTH:
        keys = list(dict.fromkeys(itertools.chain.from_iterable(values)))
        # Keys that cannot be field names are data, perhaps private, such as the names of people.
        are_field_names = all(_FIELD_NAME.fullmatch(str(key)) for key in keys)
        if len(keys) <= _MAX_KEYS and are_field_names:
            return _types_by_field(keys, values, depth)
    return " | ".join(sorted(kinds)) or "Any"


def _types_by_field(keys: Sequence[str], values: Sequence[dict[str, Any]], depth: int) -> str:
    """Describe dicts by the types of their fields, such as ``{"id": int, "tags": list[str]}``."""
    fields: list[str] = []
    for key in keys:
        values_of_key = [value[key] for value in values if key in value]
        fields.append(f'"{key}": {_nested_types(key, values_of_key, depth + 1)}')
    return f"{{{', '.join(fields)}}}"


def _cut(text: str) -> str:
    if len(text) <= _MAX_DESCRIPTION_CHARS:
        return text
    return f"{text[: _MAX_DESCRIPTION_CHARS - 1]}…"


def _is_personal(name: str) -> bool:
    return _PERSONAL_NAME.search(_snake_case(name)) is not None


def _snake_case(name: str) -> str:
    return _CAMEL.sub("_", name).lower()


def _is_plain_label(key: Any, text: Any) -> bool:
    """Return True for a key and its label that may both be shown."""
    if not isinstance(key, (int, str)) or not isinstance(text, str):
        return False
    return _is_plain(text) and _is_plain(str(key))


def _is_plain(value: str) -> bool:
    """Return True for a short value on one line, without e-mail address or long number."""
    return (
        len(value) <= _MAX_VALUE_CHARS
        and value.isprintable()
        and "@" not in value
        and re.search(r"\d{6}", value) is None
    )


def _may_be_date(value: str) -> bool:
    """Return True if the length and the first character of a text are possible for a date.

    This check is much cheaper than ``strptime()``.
    """
    return len(value) <= 32 and value[:1].isalnum()


def _date_format(values: Sequence[str]) -> str:
    """Return the ``strptime`` format that all texts have; empty if there is none.

    If each day is below 13, the order of day and month is unclear: the result is then two formats,
    such as ``%d/%m/%Y or %m/%d/%Y``.
    """
    if not all(map(_may_be_date, values)):
        return ""
    fitting: Sequence[str] = _FORMATS
    for value in dict.fromkeys(values):
        fitting = [form for form in fitting if _fits(value, form)]
    if not fitting:
        return ""
    best = fitting[0]
    month_first = [form for form in fitting if form.startswith("%m/%d")]
    if best.startswith("%d/%m") and month_first:
        return f"{best} or {month_first[0]}"
    return best


def _fits(value: str, form: str) -> bool:
    """Return True if a text is a date or time in a format of ``strptime``."""
    try:
        moment = dt.datetime.strptime(value, form)  # noqa: DTZ007 - the zone does not matter
    except ValueError:
        return False
    is_time_without_date = form.startswith("%H")
    if is_time_without_date:
        return True
    # strptime() needs no leading zeros: for %Y-%m-%d %H:%M, it accepts 2024-1-1 1:1. A usual date,
    # such as 2024-01-01 01:01, is longer than its format.
    is_too_short = len(value) < len(form)
    return not is_too_short and 1900 <= moment.year <= 2100


def _pattern_of(value: str) -> str:
    """Return the pattern of a text, such as ``Aa-000``: letters as A or a, digits as 0."""
    if len(value) > _MAX_VALUE_CHARS:
        return ""
    masked = re.sub(r"[^\W\d_]", lambda match: "A" if match[0].isupper() else "a", value)
    return re.sub(r"\d", "0", masked)


def _describe_integers(name: str, values: Sequence[int]) -> str:
    """Describe a column of integers as Unix time, or by its few distinct values; else empty."""
    if _TIME_NAME.search(_snake_case(name)):
        for unit, per_second in _EPOCHS:
            earliest = _MIN_UNIX_SECONDS * per_second
            latest = _MAX_UNIX_SECONDS * per_second
            if all(earliest <= value <= latest for value in values):
                return f"unix time in {unit}"
    counts = Counter(values)
    has_few_values = 1 < len(counts) <= _MAX_NUMBERS
    repeats_values = len(values) >= _MIN_ROWS_PER_VALUE * len(counts)
    has_many_rows = len(values) > _MIN_ENUMERATION_ROWS
    is_enumeration = has_few_values and repeats_values and has_many_rows
    return " | ".join(map(str, sorted(counts))) if is_enumeration else ""
