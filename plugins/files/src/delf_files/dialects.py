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
    declaration = _NAMED.match(text)
    start = declaration.end() if declaration is not None else 0
    sample = text[start:]
    if declaration is not None:
        separators = declaration[1]
    else:
        separators = "\t" if ending in (".tsv", ".tab") else _SEPARATORS
    lines = _complete_lines(sample)
    if '"' in lines and all(_is_one_column(Dialect(separator), lines) for separator in separators):
        return Dialect(separators[0], start=start)
    candidates = [
        (_score(dialect, lines), -order, dialect)
        for order, dialect in enumerate(Dialect(separator, start=start) for separator in separators)
    ]
    # A variant, with other quotes or escapes, must score clearly higher than a usual dialect.
    candidates += [
        (_score(other, lines) * 0.99, -len(candidates), other)
        for _, _, dialect in list(candidates)
        for other in _variants(dialect, lines)
    ]
    best = max(candidates, key=lambda candidate: candidate[:2])[2]
    return _confirm_quote(best, sample)


def _complete_lines(text: str) -> str:
    sample = text[:_SAMPLE_CHARS]
    if len(sample) < len(text) and "\n" in sample:
        sample = sample[: sample.rfind("\n") + 1]
    return sample


def _variants(dialect: Dialect, sample: str) -> list[Dialect]:
    """Return variants of the dialect, with other quotes that occur in the text."""
    separator, start = dialect.separator, dialect.start
    fault, has_line_break = _first_fault(dialect, sample)
    others = [Dialect(separator, None, start=start)] if fault or has_line_break else []
    if '\\"' in sample:
        others.append(Dialect(separator, '"', backslash=True, start=start))
    is_clear = not fault and re.search(rf'{_begin(separator)}"', sample, re.MULTILINE)
    if not is_clear and _uses_apostrophes(sample, separator):
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
    rows, penalty = _first_rows(dialect, sample)
    if not rows:
        return 0.0
    width, usual_rows = Counter(map(len, rows)).most_common(1)[0]
    if width < 2:
        return 0.0
    cells = [cell for row in rows for cell in row if cell]
    odd_cells = sum(1 for cell in cells if _is_odd(cell, dialect))
    plainness = 1 - odd_cells / max(len(cells), 1)
    evenness = usual_rows / len(rows) * penalty
    return evenness * (_WHOLE_SHARE + (1 - _WHOLE_SHARE) * plainness) + min(width, 99) / 10_000


def _is_odd(cell: str, dialect: Dialect) -> bool:
    """Return whether a cell has quotes around its text, or another separator within a word."""
    if cell[0] == cell[-1] == '"' and len(cell) > 1 and dialect.quote != '"':
        return True
    return bool(_JOINED.search(cell)) and not _NUMBER.fullmatch(cell)


def _first_rows(dialect: Dialect, sample: str) -> tuple[list[list[str]], float]:
    """Return the first rows, and a factor for their score: below 1 if they violate the dialect."""
    rows: list[list[str]] = []
    try:
        for row in itertools.islice(dialect.rows(sample), _SAMPLE_ROWS):
            rows.append(row)  # noqa: PERF402 - those before an error count
    except csv.Error as error:
        if _UNCLOSED not in str(error):  # else the sample was cut in a quoted cell
            lenient = filter(None, dialect.reader(io.StringIO(sample, newline="")))
            return list(itertools.islice(lenient, _SAMPLE_ROWS)), _ODD_SHARE
    return rows, 1.0


def _uses_apostrophes(text: str, separator: str) -> bool:
    """Return True if cells begin and end with apostrophes."""
    opened = closed = 0
    for line in text.split("\n")[:_SAMPLE_ROWS]:
        for cell in line.rstrip("\r").split(separator):
            word = cell.strip()
            opened += word.startswith("'")
            closed += word.endswith("'") and word != "'"
    return opened == closed >= _FEWEST_QUOTED


def _confirm_quote(dialect: Dialect, text: str) -> Dialect:
    """Check the quotes of a dialect against the whole text; return the dialect that fits."""
    if dialect.quote != '"' or '"' not in text:
        return dialect
    plain = Dialect(dialect.separator, None, start=dialect.start)
    fault, has_line_break = _first_fault(dialect, text)
    if fault == _UNCLOSED and dialect.separator != "\t":
        return dialect  # reading it reports the unclosed quote
    if not dialect.backslash and '\\"' in text and (fault or '""' not in text):
        escaped = Dialect(dialect.separator, '"', backslash=True, start=dialect.start)
        if not _first_fault(escaped, text)[0] and _score(escaped, text) >= _score(dialect, text):
            return escaped
    if not fault and not (has_line_break and dialect.separator == "\t"):
        return dialect
    return plain if _is_even(plain, text) else dialect


def _first_fault(dialect: Dialect, text: str) -> tuple[str, bool]:
    """Return the first quoting fault of a text, and whether a cell contains line breaks."""
    has_line_break = False
    try:
        for row in dialect.rows(text):
            has_line_break = has_line_break or any("\n" in cell for cell in row)
    except csv.Error as error:
        return _UNCLOSED if _UNCLOSED in str(error) else "misplaced", has_line_break
    return "", has_line_break


def _is_even(dialect: Dialect, text: str) -> bool:
    """Return True if all rows have the same number of cells, and more than one."""
    try:
        widths = {len(row) for row in dialect.rows(text)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths != {1}


def has_unclear_escapes(text: str, dialect: Dialect) -> bool:
    r"""Return True if the text has ``\"`` but no quoted cell in which it clearly is an escape."""
    if '\\"' not in text or dialect.quote != '"':
        return False
    escaped = rf'{_begin(dialect.separator)}"(?:[^"\\]|""|\\[^"])*+\\"'
    return not re.search(escaped, text, re.MULTILINE)


def line_of_odd_quote(text: str, dialect: Dialect) -> int | None:
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
    folded_names: set[str] = set()
    unique: list[str] = []
    for original in names:
        name, number = original, 1
        while name.lower() in folded_names:
            number += 1
            name = f"{original}_{number}"
        folded_names.add(name.lower())
        unique.append(name)
    return unique
