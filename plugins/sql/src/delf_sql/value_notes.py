"""One-line notes for the prompt about database values that surprise in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from delf_sql.catalog import Table
from delf_sql.target import Dialect


class _Note(NamedTuple):
    """A note about values of some column types.

    Args:
        types: Column types in lower case; None if the note applies to all results.
        text: The description.
    """

    types: re.Pattern[str] | None
    text: str


_DECIMALS: Final = re.compile(r"\b(?:numeric|decimal|dec|number|money)\b")
_TIMES: Final = re.compile(r"date|time")
_BOOLEANS: Final = re.compile(r"\bbool")
_JSON: Final = re.compile(r"\bjsonb?\b")
_INTERVALS: Final = re.compile(r"\binterval\b")
_UUIDS: Final = re.compile(r"\buuid\b")
_ZONES: Final = re.compile(r"with time zone|timestamptz")
_MIX: Final = "float(x) beside floats and for json"
_PLAIN_DECIMALS: Final = _Note(_DECIMALS, f"decimals are Decimal: {_MIX}")
_JSON_TEXT: Final = _Note(_JSON, "json is text: json.loads(x)")
_JSON_VALUE: Final = _Note(_JSON, "json is dict or list")
_ZONED: Final = _Note(_ZONES, "timestamptz is a datetime with its zone")
_INTERVAL: Final = _Note(_INTERVALS, "intervals are timedelta")
_UUID: Final = _Note(_UUIDS, "uuid is a UUID: str(x)")
_NOTES: Final[dict[Dialect, Sequence[_Note]]] = {
    "sqlite": (
        _Note(_TIMES, "dates and times are text as stored"),
        _Note(_BOOLEANS, "booleans are 1 and 0"),
        _JSON_TEXT,
        _Note(_DECIMALS, "decimals are float: round() what is shown"),
    ),
    "postgresql": (
        _Note(None, f"decimals, avg() and sums of bigint are Decimal: {_MIX}"),
        _ZONED,
        _INTERVAL,
        _UUID,
        _JSON_VALUE,
    ),
    "mysql": (
        _Note(None, f"decimals, sum() and avg() are Decimal: {_MIX}"),
        _JSON_TEXT,
        _Note(re.compile(r"\btime\b|\btime\("), "time is timedelta"),
        _Note(re.compile(r"\bbool|tinyint\(1\)"), "booleans are 1 and 0"),
        _Note(re.compile(r"\bbit\b"), "bit is bytes"),
    ),
    "duckdb": (_PLAIN_DECIMALS, _ZONED, _INTERVAL, _UUID, _JSON_VALUE),
}


def values_note(tables: Iterable[Table], dialect: Dialect) -> str:
    """Describe columns whose values have an unexpected Python type; empty if there are none.

    Args:
        tables: The tables shown to the model.
        dialect: The database's dialect.
    """
    types = {column.type.lower() for table in tables for column in table.columns}
    notes = _NOTES.get(dialect, (_PLAIN_DECIMALS,))
    lines = [
        note.text for note in notes if note.types is None or any(map(note.types.search, types))
    ]
    return "; ".join(lines)
