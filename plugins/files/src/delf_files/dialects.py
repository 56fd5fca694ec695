"""The dialect of separated values: separator, quote and escape, found together.

A separator with the wrong quote shifts cells. So each pair is tried, and scored by the evenness of
rows and by how few cells contain another separator.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _csv import Reader

_SEPARATORS: Final = ",;\t|"
_SAMPLE_CHARS: Final = 64_000
_SAMPLE_ROWS: Final = 50
LARGEST_CELL: Final = 2**31 - 1
_NAMED: Final = re.compile(r"sep=(.)\r?\n")
_JOINED: Final = re.compile(r"[^\s,;|][,;\t|][^\s,;|]")
_NUMBER: Final = re.compile(r"[-+]?[\d. ']*\d(?:[,.]\d+)?\s?[%€$]?")
_WHOLE_SHARE: Final = 0.5
_UNCLOSED: Final = "unexpected end"
_ODD_SHARE: Final = 0.95
_FEWEST_QUOTED: Final = 2


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of separated values.

    Args:
        separator: The character between cells.
        quote: The character around cells; None if there are no quotes.
        backslash: Whether quotes in cells are escaped with a backslash; otherwise they are doubled.
        start: The offset of the first row.
    """

    separator: str = ","
    quote: str | None = '"'
    backslash: bool = False
    start: int = 0

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> Reader:
        """Return a CSV reader for lines.

        Args:
            lines: The lines with line ends.
            strict: Whether a quote inside a quoted cell raises an error.
        """
        csv.field_size_limit(max(csv.field_size_limit(), LARGEST_CELL))
        options: dict[str, Any] = {"quotechar": self.quote or '"', "doublequote": True}
        if self.quote is None:
            options = {"quoting": csv.QUOTE_NONE}
        elif self.backslash:
            options["escapechar"] = "\\"  # in addition to doubled quotes
        spaced = self.separator in ",;"  # as in "a, b"
        return csv.reader(
            lines, delimiter=self.separator, skipinitialspace=spaced, strict=strict, **options
        )

    def rows(self, text: str) -> Iterator[list[str]]:
        """Yield the non-empty rows of a text.

        Raises:
            csv.Error: If a quoted cell contains a quote or is not closed.
        """
        return filter(None, self.reader(io.StringIO(text, newline=""), strict=True))


def dialect_of(text: str, ending: str) -> Dialect:
    """Find the dialect of a text.

    Args:
        text: The file, or its first rows.
        ending: The file's extension: ``.tsv`` means tabs.
    """
    named = _NAMED.match(text)
    start = named.end() if named is not None else 0
    sample = text[start:]
    if named is not None:
        separators = named[1]
    else:
        separators = "\t" if ending in (".tsv", ".tab") else _SEPARATORS
    short = _cut(sample)
    if '"' in short and all(_is_one_column(Dialect(one), short) for one in separators):
        return Dialect(separators[0], start=start)
    found = [
        (_score(dialect, short), -order, dialect)
        for order, dialect in enumerate(Dialect(one, start=start) for one in separators)
    ]
    found += [
        (_score(other, short) * 0.99, -len(found), other)
        for _, _, dialect in list(found)
        for other in _others(dialect, short)
    ]
    best = max(found, key=lambda one: one[:2])[2]
    return _with_quote(best, sample)


def _cut(text: str) -> str:
    sample = text[:_SAMPLE_CHARS]
    if len(sample) < len(text) and "\n" in sample:
        sample = sample[: sample.rfind("\n") + 1]
    return sample


def _others(dialect: Dialect, sample: str) -> list[Dialect]:
    """Return the dialect with other quotes that occur in the text."""
    separator, start = dialect.separator, dialect.start
    failed, has_long = _first_fault(dialect, sample)
    others = [Dialect(separator, None, start=start)] if failed or has_long else []
    if '\\"' in sample:
        others.append(Dialect(separator, '"', backslash=True, start=start))
    is_clear = not failed and re.search(rf'{_begin(separator)}"', sample, re.MULTILINE)
    if not is_clear and _is_quoted_by_one(sample, separator):
        others.append(Dialect(separator, "'", start=start))
    return others


def _begin(separator: str) -> str:
    """Return a pattern for the beginning of a cell."""
    return rf"(?:^|{re.escape(separator)}) *"


def _is_one_column(dialect: Dialect, sample: str) -> bool:
    """Return whether each row is one cell, because all separators are within quotes."""
    try:
        return all(len(row) == 1 for row in itertools.islice(dialect.rows(sample), _SAMPLE_ROWS))
    except csv.Error:
        return False


def _score(dialect: Dialect, sample: str) -> float:
    """Score the evenness of rows and the plainness of cells; 0 if there is no table."""
    rows, share = _first_rows(dialect, sample)
    if not rows:
        return 0.0
    width, times = Counter(map(len, rows)).most_common(1)[0]
    if width < 2:
        return 0.0
    cells = [cell for row in rows for cell in row if cell]
    odd = sum(1 for cell in cells if _is_odd(cell, dialect))
    plain = 1 - odd / max(len(cells), 1)
    even = times / len(rows) * share
    return even * (_WHOLE_SHARE + (1 - _WHOLE_SHARE) * plain) + min(width, 99) / 10_000


def _is_odd(cell: str, dialect: Dialect) -> bool:
    """Return whether a cell has quotes around its text, or another separator within a word."""
    if cell[0] == cell[-1] == '"' and len(cell) > 1 and dialect.quote != '"':
        return True
    return bool(_JOINED.search(cell)) and not _NUMBER.fullmatch(cell)


def _first_rows(dialect: Dialect, sample: str) -> tuple[list[list[str]], float]:
    """Return the first rows, and the factor for violations of the dialect."""
    rows: list[list[str]] = []
    try:
        for row in itertools.islice(dialect.rows(sample), _SAMPLE_ROWS):
            rows.append(row)  # noqa: PERF402 - those before an error count
    except csv.Error as error:
        if _UNCLOSED not in str(error):  # else the sample was cut in a quoted cell
            lenient = filter(None, dialect.reader(io.StringIO(sample, newline="")))
            return list(itertools.islice(lenient, _SAMPLE_ROWS)), _ODD_SHARE
    return rows, 1.0


def _is_quoted_by_one(text: str, separator: str) -> bool:
    """Return whether apostrophes enclose cells, at both ends of each."""
    opened = closed = 0
    for line in text.split("\n")[:_SAMPLE_ROWS]:
        for cell in line.rstrip("\r").split(separator):
            word = cell.strip()
            opened += word.startswith("'")
            closed += word.endswith("'") and word != "'"
    return opened == closed >= _FEWEST_QUOTED


def _with_quote(dialect: Dialect, text: str) -> Dialect:
    """Return the dialect with quotes confirmed by the whole text."""
    if dialect.quote != '"' or '"' not in text:
        return dialect
    plain = Dialect(dialect.separator, None, start=dialect.start)
    failed, has_long = _first_fault(dialect, text)
    if failed == _UNCLOSED and dialect.separator != "\t":
        return dialect  # reading it reports the unclosed quote
    if not dialect.backslash and '\\"' in text and (failed or '""' not in text):
        escaped = Dialect(dialect.separator, '"', backslash=True, start=dialect.start)
        if not _first_fault(escaped, text)[0] and _score(escaped, text) >= _score(dialect, text):
            return escaped
    if not failed and not (has_long and dialect.separator == "\t"):
        return dialect
    return plain if _is_even(plain, text) else dialect


def _first_fault(dialect: Dialect, text: str) -> tuple[str, bool]:
    """Return the first quoting fault of a text, and whether a cell contains line breaks."""
    has_long = False
    try:
        for row in dialect.rows(text):
            has_long = has_long or any("\n" in cell for cell in row)
    except csv.Error as error:
        return _UNCLOSED if _UNCLOSED in str(error) else "misplaced", has_long
    return "", has_long


def _is_even(dialect: Dialect, text: str) -> bool:
    try:
        widths = {len(row) for row in dialect.rows(text)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths != {1}


def has_unclear_escapes(text: str, dialect: Dialect) -> bool:
    """Return whether quotes follow backslashes, and never in a quoted cell, which would decide."""
    if '\\"' not in text or dialect.quote != '"':
        return False
    escaped = rf'{_begin(dialect.separator)}"(?:[^"\\]|""|\\[^"])*+\\"'
    return not re.search(escaped, text, re.MULTILINE)


def odd_quotes(text: str, dialect: Dialect) -> int | None:
    """Return the line of the first quote inside a quoted cell; None if there is none."""
    reader = dialect.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for _ in reader:
            pass
    except csv.Error as error:
        return None if _UNCLOSED in str(error) else reader.line_num
    return None


def unique_folded(names: Sequence[str]) -> list[str]:
    """Make names unique without regard to case, as SQL needs."""
    seen: set[str] = set()
    found: list[str] = []
    for own in names:
        name, number = own, 1
        while name.lower() in seen:
            number += 1
            name = f"{own}_{number}"
        seen.add(name.lower())
        found.append(name)
    return found
