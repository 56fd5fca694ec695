"""Detection of the row with column names, because sheets often begin with a title."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

LOOKED_AT: Final = 30
_NEARLY: Final = 0.8
_FEWEST: Final = 2
_NUMBER: Final = re.compile(r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?")
_DATE: Final = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:$|[ T])")
_YEARS: Final = range(1800, 2200)


def header_of(rows: Sequence[tuple[int, Sequence[Any]]]) -> int:
    """Return the index of the row that probably names the columns, among non-empty rows.

    A title fills fewer cells than the rows below, or repeats one text in all cells, as merged cells
    do.

    Args:
        rows: The first rows with their numbers.
    """
    sample = rows[:LOOKED_AT]
    if len(sample) < _FEWEST:
        return 0
    width = _usual_width([len(_filled(row)) for _, row in sample])
    if width < _FEWEST:
        return 0
    for index, (_, row) in enumerate(sample):
        cells = _filled(row)
        is_names = all(isinstance(cell, str) and not _is_number(cell) for cell in cells)
        if is_names and len(set(cells)) >= _NEARLY * width and len(cells) >= _FEWEST:
            return index
    return 0


def is_headless(rows: Sequence[tuple[int, Sequence[Any]]]) -> bool:
    """Return whether no row names the columns, because the first row looks like data.

    Numbers and dates indicate data, except years and consecutive numbers, which may be names.

    Args:
        rows: The first rows with their numbers.
    """
    sample = [row for _, row in rows[:LOOKED_AT]]
    if len(sample) < _FEWEST + 1 or header_of(rows):
        return False
    first, others = sample[0], sample[1:]
    if not all(_filled([cell]) for cell in first):
        return False
    matching_columns = 0
    numbers: list[float] = []
    for index, cell in enumerate(first):
        kinds = [_kind(row[index]) for row in others if index < len(row) and _filled([row[index]])]
        kind, usual = _kind(cell), Counter(kinds).most_common(1)
        if not usual or usual[0][1] < _NEARLY * len(kinds) or usual[0][0] == "text":
            continue
        if kind != usual[0][0]:
            return False
        matching_columns += 1
        if kind == "number":
            numbers.append(float(str(cell).replace(",", "")))
    are_years = len(numbers) == matching_columns and all(_is_year(number) for number in numbers)
    are_consecutive = len(numbers) > 1 and all(b - a == 1 for a, b in pairwise(numbers))
    return matching_columns > 0 and not are_years and not are_consecutive


def _kind(cell: Any) -> str:
    if isinstance(cell, (dt.date, dt.time, dt.timedelta)):
        return "date"
    if isinstance(cell, (int, float, Decimal)) and not isinstance(cell, bool):
        return "number"
    text = str(cell).strip()
    if _DATE.match(text):
        return "date"
    return "number" if _NUMBER.fullmatch(text) else "text"


def _is_year(number: float) -> bool:
    return number.is_integer() and number in _YEARS


def _usual_width(widths: Sequence[int]) -> int:
    """Return the most common number of filled cells per row; the largest of equally common ones."""
    counted = Counter(widths)
    return max(counted, key=lambda width: (counted[width], width))


def _filled(row: Sequence[Any]) -> list[Any]:
    return [cell for cell in row if cell is not None and str(cell).strip()]


def _is_number(text: str) -> bool:
    return text.strip().replace(",", "").replace(".", "").lstrip("+-").isdigit()
