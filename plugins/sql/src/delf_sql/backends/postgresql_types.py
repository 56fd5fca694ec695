"""Loading of PostgreSQL values, as text where Python has no equivalent."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from delf.values.json_reader import JSONReader
from delf_sql.values import AsText

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import Loader

# psycopg counts a month as 30 days and a year as 365: the same interval added to a date would give
# another day than in the database.
_CALENDAR_WORDS: Final = (b"mon", b"year")
_RANGES: Final = ("int4", "int8", "num", "ts", "tstz", "date")
# Operators are written with their schema, here and elsewhere, because a user can put another ``=``
# first in the search path. Types with a number below 16384 are PostgreSQL's own.
_USER_DEFINED_TYPES: Final = """
SELECT t.oid::pg_catalog.int8, t.typname::text, t.typarray::pg_catalog.int8,
       t.typtype OPERATOR(pg_catalog.=) 'd', t.typbasetype::pg_catalog.int8
FROM pg_catalog.pg_type t
WHERE t.typtype OPERATOR(pg_catalog.=) ANY ('{e,d}') AND t.typarray OPERATOR(pg_catalog.<>) 0
  AND t.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
"""


def register_texts(driver: psycopg.Connection[Any]) -> None:
    """Make psycopg return values without a Python equivalent as text: infinity, years BC, 24:00."""
    from psycopg.types.string import TextLoader

    for name, loader in _loaders().items():
        driver.adapters.register_loader(name, loader)
    for name in _RANGES:
        driver.adapters.register_loader(f"{name}range", TextLoader)
        driver.adapters.register_loader(f"{name}multirange", TextLoader)


class JSONNotes:
    """A JSON loader for one connection that collects notes about values that Python cannot hold.

    Args:
        driver: The connection.
    """

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        from psycopg.adapt import Loader

        self._reader = _new_json_reader()
        parse_json = self._parse_json  # in the class below, self is a loader

        # A loader of this connection only: psycopg's set_json_loads() keeps each function forever.
        class JSONLoader(Loader):
            def load(self, data: Any) -> Any:
                return parse_json(bytes(data).decode())

        for name in ("json", "jsonb"):
            driver.adapters.register_loader(name, JSONLoader)

    def _parse_json(self, text: str) -> Any:
        return self._reader.value(text)

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes since the last call of this method."""
        notes = self._reader.notes()
        self._reader = _new_json_reader()
        return tuple(notes)


def _new_json_reader() -> JSONReader:
    return JSONReader("its JSON")  # the result's JSON, as the subject of the notes


@cache
def _loaders() -> dict[str, type[Loader]]:
    """Return loaders of dates and times, which return a text for a value outside Python's range."""
    import psycopg.types.datetime as datetime_loaders

    return {
        "date": _with_text_fallback(datetime_loaders.DateLoader),
        "timestamp": _with_text_fallback(datetime_loaders.TimestampLoader),
        "timestamptz": _with_text_fallback(datetime_loaders.TimestamptzLoader),
        "time": _with_text_fallback(datetime_loaders.TimeLoader),
        "timetz": _with_text_fallback(datetime_loaders.TimetzLoader),
        # A timedelta has no years and months.
        "interval": _with_text_fallback(
            datetime_loaders.IntervalLoader, words_without_equivalent=_CALENDAR_WORDS
        ),
    }


def _with_text_fallback(
    loader_class: type[Loader], words_without_equivalent: tuple[bytes, ...] = ()
) -> type[Loader]:
    """Make a loader class that returns the text of a value that its base class cannot load.

    Args:
        loader_class: The base class.
        words_without_equivalent: Words such as ``year``, which the Python type cannot express; a
            value with such a word is always returned as text.
    """
    import psycopg

    def load(loader: Any, data: Any) -> Any:
        raw = bytes(data)
        has_python_equivalent = not any(word in raw for word in words_without_equivalent)
        if has_python_equivalent:
            with contextlib.suppress(psycopg.Error, ValueError, OverflowError):
                return loader_class.load(loader, data)
        return AsText(raw.decode("utf-8", "replace"))

    return type(f"Tolerant{loader_class.__name__}", (loader_class,), {"load": load})


def register_user_types(driver: psycopg.Connection[Any]) -> None:
    """Make psycopg load domains as their base types, and arrays of enums or domains as lists."""
    from psycopg.pq import Format
    from psycopg.types import TypeInfo

    adapters = driver.adapters
    rows = driver.execute(_USER_DEFINED_TYPES).fetchall()
    for oid, name, array_oid, is_domain, base_oid in rows:
        if adapters.types.get(array_oid) is not None:
            continue  # an earlier statement on this connection has registered the type
        if is_domain:
            # psycopg looks up the loader of the domain's own oid. Without this loader, a domain
            # over numeric would come as text.
            loader = adapters.get_loader(base_oid, Format.TEXT)
            if loader is not None:
                adapters.register_loader(oid, loader)
        TypeInfo(name, oid, array_oid).register(driver)
