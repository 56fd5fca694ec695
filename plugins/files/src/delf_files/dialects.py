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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from _csv import Reader

_SEPARATORS: Final = ",;\t|"
_SAMPLE_CHARS: Final = 64_000
_SAMPLE_ROWS: Final = 50
LARGEST_CELL: Final = 2**26
"""The maximum number of characters of a cell.

Otherwise, a cell whose quote is not closed would take the memory of the whole file several times.
"""
_SEPARATOR_LINE: Final = re.compile(r"sep=(.)\r?\n")
_SEPARATOR_IN_WORD: Final = re.compile(r"[^\s,;|][,;\t|][^\s,;|]")
_NUMBER: Final = re.compile(r"[-+]?[\d. ']*\d(?:[,.]\d+)?\s?[%€$]?")
_MIN_SPLIT_FACTOR: Final = 0.5
UNCLOSED: Final = "unexpected end"
"""A part of the message of ``csv.Error`` for a quote that is not closed."""
TOO_LARGE: Final = "field larger"
"""A part of the message of ``csv.Error`` for a cell that is larger than :data:`LARGEST_CELL`."""
_MISPLACED_QUOTE_FACTOR: Final = 0.95
_VARIANT_FACTOR: Final = 0.99
_MIN_QUOTED_CELLS: Final = 2


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of separated values.

    Args:
        separator: The character between cells.
        quote: The character around cells; None if there are no quotes.
        backslash: Whether quotes in cells may be escaped with a backslash instead of doubled.
        start: The number of characters before the first row.
    """

    separator: str = ","
    quote: str | None = '"'
    backslash: bool = False
    start: int = 0

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> Reader:
        """Return a CSV reader for lines.

        Args:
            lines: The lines, with their line ends.
            strict: Whether a quote inside a quoted cell raises an error.
        """
        # The limit holds for the whole process: raise it to LARGEST_CELL, but never lower it.
        csv.field_size_limit(max(csv.field_size_limit(), LARGEST_CELL))
        options: dict[str, Any] = {"skipinitialspace": self.separator in ",;"}  # as in "a, b"
        if self.quote is None:
            options["quoting"] = csv.QUOTE_NONE
        else:
            options |= {"quotechar": self.quote, "doublequote": True}
            if self.backslash:
                options["escapechar"] = "\\"  # in addition to doubled quotes
        return csv.reader(lines, delimiter=self.separator, strict=strict, **options)

    def rows(self, text: str) -> Iterator[list[str]]:
        """Yield the non-empty rows of a text.

        Raises:
            csv.Error: If a quoted cell contains a quote or is not closed.
        """
        return filter(None, self.reader(io.StringIO(text, newline=""), strict=True))


def dialect_of(text: str, ending: str) -> Dialect:
    """Find the dialect of a text.

    Args:
        text: The content of the file, or its first rows.
        ending: The file's extension; for ``.tsv`` and ``.tab``, the separator is the tab.
    """
    separators = "\t" if ending in (".tsv", ".tab") else _SEPARATORS
    start = 0
    declaration = _SEPARATOR_LINE.match(text)
    if declaration is not None:
        separators = declaration[1]
        start = declaration.end()
    table_text = text[start:]
    sample = _complete_lines(table_text)  # a text with the first lines
    # If every separator is within quotes, the file has one column, and any separator fits.
    has_one_column = '"' in sample and all(
        _is_one_column(Dialect(separator), sample) for separator in separators
    )
    if has_one_column:
        return Dialect(separators[0], start=start)
    usual_dialects = [Dialect(separator, start=start) for separator in separators]
    variants = [variant for dialect in usual_dialects for variant in _variants(dialect, sample)]
    scored = [(_score(dialect, sample), dialect) for dialect in usual_dialects]
    # A variant wins only if it scores clearly higher than the usual dialects.
    scored += [(_score(variant, sample) * _VARIANT_FACTOR, variant) for variant in variants]
    # Of equal scores, max returns the first.
    best = max(scored, key=lambda candidate: candidate[0])[1]
    # The whole text may show that the quotes of the dialect are wrong.
    return _with_checked_quotes(best, table_text)


def _complete_lines(text: str) -> str:
    sample = text[:_SAMPLE_CHARS]
    if len(sample) < len(text) and "\n" in sample:
        sample = sample[: sample.rfind("\n") + 1]
    return sample


def _variants(dialect: Dialect, sample: str) -> list[Dialect]:
    """Return dialects that may fit better: with another quote, no quotes, or backslash escapes."""
    separator = dialect.separator
    start = dialect.start
    quoting_error = _first_quoting_error(dialect, sample)
    variants: list[Dialect] = []
    # What looks like a quote may be an ordinary character if it breaks the rules for quotes, or if
    # a cell between quotes has a line break.
    if quoting_error or _has_cell_with_line_break(dialect, sample):
        variants.append(Dialect(separator, None, start=start))
    if '\\"' in sample:
        variants.append(Dialect(separator, '"', backslash=True, start=start))
    has_quoted_cell = re.search(rf'{_cell_start_pattern(separator)}"', sample, re.MULTILINE)
    may_use_other_quote = quoting_error or not has_quoted_cell
    if may_use_other_quote and _uses_apostrophes(sample, separator):
        variants.append(Dialect(separator, "'", start=start))
    return variants


def _cell_start_pattern(separator: str) -> str:
    return rf"(?:^|{re.escape(separator)}) *"


def _is_one_column(dialect: Dialect, sample: str) -> bool:
    """Return True if each row has a single cell: all separators are within quotes."""
    try:
        return all(len(row) == 1 for row in itertools.islice(dialect.rows(sample), _SAMPLE_ROWS))
    except csv.Error:
        return False


def _score(dialect: Dialect, sample: str) -> float:
    """Return a score from 0 to about 1 of how well a dialect fits a text."""
    rows, has_misplaced_quote = _first_rows(dialect, sample)
    if not rows:
        return 0.0
    width, rows_of_width = Counter(map(len, rows)).most_common(1)[0]
    if width < 2:
        return 0.0
    score = rows_of_width / len(rows)
    if has_misplaced_quote:
        score *= _MISPLACED_QUOTE_FACTOR
    cells = [cell for cell in itertools.chain.from_iterable(rows) if cell]
    wrong_cells = sum(1 for cell in cells if _looks_wrongly_split(cell, dialect))
    correct_share = 1 - wrong_cells / max(len(cells), 1)
    # If all cells are wrongly split, the score is only halved.
    score *= _MIN_SPLIT_FACTOR + (1 - _MIN_SPLIT_FACTOR) * correct_share
    # Of dialects that fit almost equally, the one with more columns wins.
    return score + min(width, 99) / 10_000


def _looks_wrongly_split(cell: str, dialect: Dialect) -> bool:
    """Return True if a cell still has its quotes, or has another separator within a word."""
    is_in_quotes = cell[0] == cell[-1] == '"' and len(cell) > 1
    if is_in_quotes and dialect.quote != '"':
        return True
    return bool(_SEPARATOR_IN_WORD.search(cell)) and not _NUMBER.fullmatch(cell)


def _first_rows(dialect: Dialect, sample: str) -> tuple[list[list[str]], bool]:
    """Return the first rows of a sample, and whether a quote in them is misplaced."""
    rows: list[list[str]] = []
    try:
        # dialect.rows() raises an error for a misplaced quote.
        for row in itertools.islice(dialect.rows(sample), _SAMPLE_ROWS):
            # list() would lose the rows before an error.
            rows.append(row)  # noqa: PERF402
    except csv.Error as error:
        is_misplaced = UNCLOSED not in str(error)
        if is_misplaced:
            # Unless strict, the reader takes a misplaced quote as a character of the cell.
            lenient_rows = filter(None, dialect.reader(io.StringIO(sample, newline="")))
            return list(itertools.islice(lenient_rows, _SAMPLE_ROWS)), True
        # An unclosed quote may only mean that the sample ends inside a cell.
    return rows, False


def _uses_apostrophes(text: str, separator: str) -> bool:
    """Return True if the cells of a text are probably quoted with apostrophes.

    The number of cells that begin with an apostrophe then equals the number of cells that end with
    an apostrophe. Unquoted cells such as ``'tis so`` make the two numbers differ.
    """
    opened = closed = 0
    for line in text.split("\n")[:_SAMPLE_ROWS]:
        for cell in line.rstrip("\r").split(separator):
            word = cell.strip()
            opened += word.startswith("'")
            # A lone apostrophe is no quoted cell, so it is not counted as both start and end.
            closed += word.endswith("'") and word != "'"
    return opened == closed and closed >= _MIN_QUOTED_CELLS


def _with_checked_quotes(dialect: Dialect, text: str) -> Dialect:
    """Return the dialect, or a variant with other quoting that fits the whole text better.

    The first variant that fits is returned:

    - A variant in which backslashes escape quotes, unless the text has doubled quotes.
    - A variant in which quotes are plain characters. This is tried if a quote is misplaced. In a
      tab-separated text, it is also tried if a quote is unclosed or a cell has a line break.
    """
    if dialect.quote != '"' or '"' not in text:
        return dialect
    error = _first_quoting_error(dialect, text)
    is_tab_separated = dialect.separator == "\t"
    if error == "unclosed" and not is_tab_separated:
        return dialect  # reading the file reports the unclosed quote
    doubles_quotes = error is None and '""' in text  # as in "a ""b"" c"
    if not doubles_quotes:
        escaped = replace(dialect, backslash=True)
        if _fits_with_backslashes(escaped, dialect, text):
            return escaped
    # Programs that write tab-separated values often do not quote cells. A pair of quotes around a
    # line break may then be two plain characters.
    if error is not None or (is_tab_separated and _has_cell_with_line_break(dialect, text)):
        unquoted = replace(dialect, quote=None, backslash=False)
        if _has_even_rows(unquoted, text):
            return unquoted
    return dialect


def _fits_with_backslashes(escaped: Dialect, dialect: Dialect, text: str) -> bool:
    r"""Return True if a text escapes quotes in cells with backslashes, as in ``"a \"b\" c"``.

    Args:
        escaped: The variant of the dialect with backslashes.
        dialect: The dialect.
        text: The text.
    """
    if '\\"' not in text or dialect.backslash:
        return False
    has_error = _first_quoting_error(escaped, text) is not None
    return not has_error and _score(escaped, text) >= _score(dialect, text)


def _first_quoting_error(dialect: Dialect, text: str) -> Literal["unclosed", "misplaced"] | None:
    """Return the fault of the first quote that is misplaced or unclosed; None if all are right."""
    try:
        for _ in dialect.rows(text):
            pass
    except csv.Error as error:
        return "unclosed" if UNCLOSED in str(error) else "misplaced"
    return None


def _has_cell_with_line_break(dialect: Dialect, text: str) -> bool:
    """Return True if a cell of a text without quoting errors has a line break."""
    return any("\n" in cell for row in dialect.rows(text) for cell in row)


def _has_even_rows(dialect: Dialect, text: str) -> bool:
    """Return True if all rows have the same number of cells, at least two."""
    try:
        widths = {len(row) for row in dialect.rows(text)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths != {1}


def has_unclear_escapes(text: str, dialect: Dialect) -> bool:
    r"""Return True if the text has ``\"``, but never inside a quoted cell such as ``"a \"b\""``.

    The backslash may then be a plain character.
    """
    if '\\"' not in text or dialect.quote != '"':
        return False
    # Matches a quoted cell up to its first ``\"``. Before that may be plain characters, doubled
    # quotes, and backslashes with any other character. The possessive ``*+`` prevents backtracking.
    cell_up_to_escape = rf'{_cell_start_pattern(dialect.separator)}"(?:[^"\\]|""|\\[^"])*+\\"'
    return not re.search(cell_up_to_escape, text, re.MULTILINE)
