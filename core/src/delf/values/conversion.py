"""Conversion of data library values to plain data, for results, arguments and files.

The same file runs on the host and inside every sandbox, so it uses the standard library only, and
detects a library by the module of a type. ``docs/values.md`` describes the conversion of each type.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import operator
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from delf.values.encoding import PLAIN, UnsupportedValueError, dumps, kind_name

_LIBRARIES: Final = frozenset({"numpy", "pandas", "polars", "pyarrow", "duckdb", "_duckdb"})
_MAX_TEXT: Final = 10_000
_ROWS_AT_ONCE: Final = 10_000
MIN_LONG_INT: Final = 10**4300
"""The smallest integer with more digits than Python formats by default."""
_ONE_COLUMN: Final = "value"
# numpy's letters for kinds of columns, and its names of numbers wider than a float.
_DATES: Final = "Mm"
_STRUCTURE: Final = "V"
_WIDE_NUMBERS: Final = (
    "longdouble",
    "clongdouble",
    "float128",
    "complex256",
    "float96",
    "complex192",
)
# What numpy, pandas, polars and pyarrow raise for values that they cannot convert.
_CONVERSION_ERRORS: Final = (TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError)
Converter = Callable[[Any], Any]


class Table(NamedTuple):
    """A table of any library, as column names and rows of plain values."""

    columns: list[str]
    rows: Iterator[list[Any]]


def plain(value: Any, notes: dict[str, None] | None = None) -> Any:
    """Convert a value to plain data: numbers, text, bytes, dates, lists and dicts.

    A table becomes a list of dicts. A value of an unsupported type becomes its text.

    Args:
        value: Any value.
        notes: A dict to which the names of the types that were converted to text are added.
    """
    names: dict[str, None] = {} if notes is None else notes

    def convert_unsupported(part: Any) -> Any:
        names[kind_name(part)] = None  # a dict as a set that keeps the order
        return _text(part)

    try:
        return _plain(value, convert_unsupported)
    except RecursionError:
        names[kind_name(value)] = None
        return f"<{kind_name(value)}, nested too deeply>"


def plain_or_as_is(value: Any) -> Any:
    """Convert a value like :func:`plain`, but leave parts of unsupported types unchanged.

    A value that is nested too deeply is left unchanged, too.
    """
    try:
        return _plain(value, lambda part: part)
    except RecursionError:
        return value


def table_of(value: Any) -> Table | None:
    """Convert a data frame, series or similar object of a data library to a table.

    An index becomes columns, except for a default index, which has no name and only row numbers. A
    column name with several levels becomes one name. Missing cells, including NaN, become None.
    Return None for any other value, and for a column of pyarrow, which has neither a name nor an
    index.

    Args:
        value: Any value.
    """
    return _convert_to_table(value, convert_unsupported=_text)


def _plain(value: Any, convert_unsupported: Converter) -> Any:
    """Convert a value to plain data.

    The first case that fits counts: exact types of plain data, values of data libraries, types of
    the standard library and their subclasses, and last the methods of other libraries' types.

    Args:
        value: Any value.
        convert_unsupported: Converts a part of an unsupported type, or returns the part unchanged.
    """
    kind = cast("Any", type(value))
    if kind in PLAIN:
        is_too_long = kind is int and abs(value) >= MIN_LONG_INT
        return convert_unsupported(value) if is_too_long else value
    if kind is not list and kind is not dict:  # for speed: these two belong to no library
        converted = _convert_library_value(value, convert_unsupported)
        if converted is not _NOT_CONVERTED:
            return converted
    if isinstance(value, enum.Enum):
        return _plain(value.value, convert_unsupported)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {
            _key(key, convert_unsupported): _plain(item, convert_unsupported) for key, item in items
        }
    make: Any = getattr(kind, "_make", None)
    # A named tuple keeps its type, because the encoder needs the names of its fields.
    if isinstance(value, tuple) and make is not None:
        return make(_plain(item, convert_unsupported) for item in cast("Iterable[Any]", value))
    if isinstance(value, _LISTS):
        return [_plain(item, convert_unsupported) for item in cast("Iterable[Any]", value)]
    field_values = fields_of(value)
    if field_values is not None:
        return {name: _plain(item, convert_unsupported) for name, item in field_values.items()}
    if _can_be_encoded(value):
        return value
    return _plain_unencodable(value, convert_unsupported)


def _plain_unencodable(value: Any, convert_unsupported: Converter) -> Any:
    """Convert a value that cannot be encoded, and is neither a list nor a record, to plain data."""
    if isinstance(value, (set, frozenset)):  # with an item that cannot be encoded
        return [_plain(item, convert_unsupported) for item in cast("Collection[Any]", value)]
    # A subclass of a library, such as DatetimeWithNanoseconds.
    if isinstance(value, dt.datetime) and getattr(value, "nanosecond", 0):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        # A Decimal with too many digits or too large an exponent. The conversions below would make
        # it a float, which may be infinite.
        return convert_unsupported(value)
    for convert in _CONVERSIONS:
        try:
            data = convert(value)
        except _CONVERSION_ERRORS:
            continue
        # A conversion to the same type would be repeated without end.
        if type(data) is not type(value):
            return _plain(data, convert_unsupported)
    return convert_unsupported(value)


_LISTS: Final = (list, tuple, range, collections.deque, KeysView, ValuesView, ItemsView)


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, model, attrs object or database row; None for others."""
    kind = cast("Any", type(value))
    if isinstance(value, type) or kind in PLAIN:
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(kind, "model_fields") and callable(getattr(value, "model_dump", None)):
        dumped = value.model_dump()
        # A root model, such as one of a list, has no fields.
        return cast("dict[str, Any]", dumped) if isinstance(dumped, dict) else None
    attributes = getattr(kind, "__attrs_attrs__", None) or ()
    names = [field.name for field in attributes]
    if not names:
        names = list(getattr(kind, "__struct_fields__", ()))  # of msgspec
    if names:
        return {name: getattr(value, name) for name in names}
    if kind.__name__ in _ROW_TYPES and callable(getattr(value, "keys", None)):
        return {str(name): value[name] for name in value.keys()}  # noqa: SIM118 - no mapping
    return None


_ROW_TYPES: Final = frozenset({"Row"})  # of sqlite3


def _key(key: Any, convert_unsupported: Converter) -> Any:
    """Convert a key of a mapping to plain data; to text if the plain data cannot be a key."""
    converted = _plain(key, convert_unsupported)
    if isinstance(key, tuple) and isinstance(converted, list):  # a list cannot be a key
        converted = tuple(cast("list[Any]", converted))
    try:
        mapping = {converted: None}
    except TypeError:  # not hashable, such as the dict of a dataclass's fields
        return _text(key)
    return converted if _can_be_encoded(mapping) else _text(key)


def _can_be_encoded(value: Any) -> bool:
    try:
        dumps(value)
    except (UnsupportedValueError, TypeError):
        return False
    return True


def _text(value: Any) -> str:
    try:
        return str(value)[:_MAX_TEXT]
    except Exception as error:
        return f"<{kind_name(value)}, which cannot be shown: {type(error).__name__}>"


def _item_of_scalar(value: Any) -> Any:
    """Convert a scalar with a ``dtype``, as scalars of numpy have; raise for any other value."""
    if not hasattr(value, "dtype"):  # other objects have a method item(), too
        raise TypeError("not a scalar")
    return value.item()


# Conversions to try for a value of an unknown library, in this order.
_CONVERSIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    _item_of_scalar,
    lambda value: value.to_dict("records"),  # a table that is like one of pandas
    lambda value: value.to_dicts(),
    lambda value: value.tolist(),  # an array
    lambda value: value.to_list(),
    lambda value: value.model_dump(),  # a root model of pydantic
    operator.index,
    float,
)

# -- the libraries ----------------------------------------------------------------------------

_NOT_CONVERTED: Final[Any] = object()


def _library(value: Any) -> str | None:
    """Return the data library that defines a value's type or one of its base classes, or None.

    A base class decides for a type of another package, such as a GeoDataFrame.
    """
    for base in type(value).__mro__[:-1]:  # without ``object``
        root = base.__module__.partition(".")[0]
        if root in _LIBRARIES:
            return root
    return None


def _convert_library_value(value: Any, convert_unsupported: Converter) -> Any:
    """Convert a value of a data library to plain data; return ``_NOT_CONVERTED`` for others."""
    library = _library(value)
    if library is None:
        return _NOT_CONVERTED
    if kind_name(value) in _MISSING:
        return None
    if library == "numpy":
        return _numpy_value(value, convert_unsupported)
    if library == "pandas":
        converted = _pandas_value(value, convert_unsupported)
        if converted is not _NOT_CONVERTED:
            return converted
    elif kind_name(value) in _COLUMNS:  # of polars or pyarrow
        return [_plain(item, convert_unsupported) for item in _arrow_or_polars_cells(value)]
    elif hasattr(value, "as_py"):  # a scalar of pyarrow
        return _plain(_arrow_scalar(value), convert_unsupported)
    # Neither a column nor a scalar: a table, or a type that is not converted here.
    table = _convert_to_table(value, convert_unsupported)
    if table is None:
        return _NOT_CONVERTED
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


_MISSING: Final = frozenset({"NAType", "NaTType", "MaskedConstant"})
_COLUMNS: Final = frozenset({"Series", "ChunkedArray"})


def _convert_to_table(value: Any, convert_unsupported: Converter) -> Table | None:
    """Convert a data frame or similar object to a table; return None for any other value.

    Args:
        value: Any value.
        convert_unsupported: Converts a cell, or a part of a cell, of an unsupported type.
    """
    match _library(value):
        case "pandas":
            return _pandas_table(value, convert_unsupported)
        case "polars":
            return _polars_table(value, convert_unsupported)
        case "pyarrow":
            return _arrow_table(value, convert_unsupported)
        case "duckdb" | "_duckdb":
            return _duckdb_table(value, convert_unsupported)
        case "numpy":
            return _numpy_table(value, convert_unsupported)
        case _:
            return None


def _convert_rows(
    rows: Iterable[Iterable[Any]], convert_unsupported: Converter
) -> Iterator[list[Any]]:
    for row in rows:
        yield [_cell(cell, convert_unsupported) for cell in row]


def _convert_records(
    records: Iterable[Any], names: Iterable[str], convert_unsupported: Converter
) -> Iterator[list[Any]]:
    for record in records:
        yield [_cell(record[name], convert_unsupported) for name in names]


def _table_of_chunks(
    names: Iterable[Any],
    chunks: Iterable[Collection[Iterable[Any]]],
    convert_unsupported: Converter,
) -> Table:
    """Make a table from chunks of columns, such as ``[[1, 2], ["a", "b"]]`` for two rows."""
    rows = chain.from_iterable(zip(*chunk, strict=True) for chunk in chunks)
    columns = unique_names(map(_column_name, names))
    return Table(columns, _convert_rows(rows, convert_unsupported))


def unique_names(names: Iterable[str], fold: Callable[[str], str] = str) -> list[str]:
    """Append a number to each repeated name: ``["a", "a"]`` becomes ``["a", "a_2"]``.

    A numbered name is never one of the given names. The time is linear in the number of names.

    Args:
        names: Column names.
        fold: Returns the form in which two names count as equal, such as ``str.lower``.
    """
    all_names = list(names)
    given_names = set(map(fold, all_names))
    next_numbers: dict[str, int] = {}  # for each name so far, the number of its next repeat
    unique: list[str] = []
    for name in all_names:
        key = fold(name)
        number = next_numbers.get(key)
        if number is None:  # the first of this name
            next_numbers[key] = 2
            unique.append(name)
            continue
        while fold(f"{name}_{number}") in given_names:
            number += 1
        next_numbers[key] = number + 1
        unique.append(f"{name}_{number}")
    return unique


def _column_name(name: Any) -> str:
    """Convert a column's name to a string, joining the levels of a tuple."""
    if isinstance(name, tuple):
        parts = [_column_name(part) for part in cast("tuple[Any, ...]", name)]
        return "_".join(part for part in parts if part)
    # pandas has times for days, so a time at midnight is a day: "2026-10-31".
    if isinstance(name, dt.datetime) and name.time() == dt.time() and name.tzinfo is None:
        return name.date().isoformat()
    if isinstance(name, (dt.datetime, dt.date)):
        return name.isoformat()
    return str(name)


def _cell(value: Any, convert_unsupported: Converter) -> Any:
    """Convert a table cell; NaN counts as a missing value."""
    converted = _plain(value, convert_unsupported)
    is_nan = type(converted) is float and math.isnan(converted)
    return None if is_nan else converted


# -- pandas -----------------------------------------------------------------------------------


def _pandas_table(value: Any, convert_unsupported: Converter) -> Table | None:
    """Convert a data frame or series of pandas to a table; None for any other value.

    An index other than row numbers becomes leading columns.
    """
    if not (hasattr(value, "index") and hasattr(value, "iloc")):
        return None
    if hasattr(value, "columns"):
        frame = value
    else:  # a series
        frame = value.to_frame(_ONE_COLUMN if value.name is None else value.name)
    index_names = [] if _is_default_index(frame.index) else _index_names(frame.index)
    chunks = _pandas_chunks(frame, len(index_names))
    return _table_of_chunks([*index_names, *frame.columns], chunks, convert_unsupported)


def _index_names(index: Any) -> list[Any]:
    """Return the names of a pandas index's levels, with pandas's own names for unnamed levels."""
    names: list[Any] = []
    for n, name in enumerate(index.names):
        if name is not None:
            names.append(name)
        else:
            names.append("index" if index.nlevels == 1 else f"level_{n}")
    return names


def _pandas_chunks(frame: Any, index_levels: int) -> Iterator[list[list[Any]]]:
    """Yield the columns of each chunk of rows, those of the index first."""
    for start in range(0, len(frame), _ROWS_AT_ONCE):
        part = frame.iloc[start : start + _ROWS_AT_ONCE]
        columns = [part.index.get_level_values(n) for n in range(index_levels)]
        columns += [part.iloc[:, n] for n in range(part.shape[1])]
        yield [_pandas_cells(column) for column in columns]


def _is_default_index(index: Any) -> bool:
    """Return True if a pandas index is unnamed and has only row numbers from 0."""
    return (
        kind_name(index) == "RangeIndex"
        and index.name is None
        and index.start == 0
        and index.step == 1
    )


def _pandas_cells(column: Any) -> list[Any]:
    # Iterating over a sparse column would yield a mix of numpy's scalars and Python's.
    if kind_name(column.dtype) == "SparseDtype":
        return list(column.astype(object))
    return [*column]


def _pandas_value(value: Any, convert_unsupported: Converter) -> Any:
    """Convert a value of pandas that is not a table: a column, an index, an array or a scalar.

    Return ``_NOT_CONVERTED`` for any other type, and for a column whose index has a name or holds
    anything but row numbers.
    """
    if hasattr(value, "iloc"):
        if hasattr(value, "columns") or not _is_default_index(value.index):
            return _NOT_CONVERTED
        return [_cell(item, convert_unsupported) for item in _pandas_cells(value)]
    if hasattr(value, "dtype") and hasattr(value, "__iter__"):  # an index, an extension array
        return [_cell(item, convert_unsupported) for item in value]
    return _pandas_scalar(value)


def _pandas_scalar(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat() if value.nanosecond else value.to_pydatetime()  # type: ignore[attr-defined]
    if isinstance(value, dt.timedelta):
        return str(value) if value.nanoseconds else value.to_pytimedelta()  # type: ignore[attr-defined]
    if kind_name(value) in ("Period", "Interval"):
        return str(value)
    return _NOT_CONVERTED


# -- numpy ------------------------------------------------------------------------------------


def _numpy_table(value: Any, convert_unsupported: Converter) -> Table | None:
    """Convert an array of records to a table; None for any other value of numpy."""
    names = value.dtype.names if getattr(value, "ndim", 0) == 1 else None
    if not names:
        return None
    return Table(unique_names(names), _convert_records(value, names, convert_unsupported))


def _numpy_value(value: Any, convert_unsupported: Converter) -> Any:
    """Convert a numpy array or scalar; return ``_NOT_CONVERTED`` for any other value."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not hasattr(value, "item"):
        return _NOT_CONVERTED
    has_no_dimensions = value.shape == ()
    if has_no_dimensions:
        is_array = hasattr(value, "__array_finalize__")
        scalar = value[()] if is_array else value  # np.array(5)[()] is the scalar 5
        return _numpy_scalar(scalar, dtype, convert_unsupported)
    is_bool_number_or_text = dtype.kind in "biufcSU"
    # tolist() converts the items quickly, but keeps wide numbers as scalars of numpy.
    if is_bool_number_or_text and dtype.name not in _WIDE_NUMBERS:
        return value.tolist()
    return [_plain(item, convert_unsupported) for item in value]


def _numpy_scalar(value: Any, dtype: Any, convert_unsupported: Converter) -> Any:
    """Convert a numpy scalar; to text if Python has no equivalent.

    Args:
        value: The scalar; or an object of any type, the content of a zero-dimensional array.
        dtype: The data type of the scalar or array.
        convert_unsupported: Converts a part of an unsupported type, or returns the part unchanged.
    """
    # First convert the types for which item() returns no plain data, or loses data.
    if kind_name(value) in _MISSING:
        return None
    if dtype.kind in _DATES:
        return _numpy_moment(value)
    if dtype.kind == _STRUCTURE and dtype.names:
        return {name: _plain(value[name], convert_unsupported) for name in dtype.names}
    if dtype.name in _WIDE_NUMBERS:
        return complex(value) if dtype.kind == "c" else float(value)
    if not hasattr(value, "item"):  # an object of another library
        return _plain(value, convert_unsupported)
    converted = value.item()
    # item() returns a numpy scalar unchanged if Python has no equivalent.
    return _text(value) if type(converted) is type(value) else converted


def _numpy_moment(value: Any) -> Any:
    """Convert a numpy date or duration; to text if Python has no equivalent."""
    if value != value:  # noqa: PLR0124 - NaT
        return None
    converted = value.item()
    if not isinstance(converted, int):
        return converted
    # Python's types have no nanoseconds, so item() returned an int. Try it in microseconds.
    try:
        in_microseconds = value.astype(f"{value.dtype.kind}8[us]")
        converted = in_microseconds.item()
        is_exact = in_microseconds == value
        if is_exact and not isinstance(converted, int):  # still an int if out of Python's range
            return converted
    except _CONVERSION_ERRORS:
        pass
    return str(value)


# -- polars, Arrow and DuckDB -----------------------------------------------------------------


def _polars_table(value: Any, convert_unsupported: Converter) -> Table | None:
    """Convert a data frame or series of polars to a table; None for any other value."""
    frame = value
    if kind_name(value) == "LazyFrame":
        frame = value.collect()
    elif kind_name(value) == "Series":
        frame = value.to_frame(value.name or _ONE_COLUMN)
    if not hasattr(frame, "iter_slices"):
        return None
    return _table_of_chunks(frame.columns, _polars_chunks(frame), convert_unsupported)


def _arrow_table(value: Any, convert_unsupported: Converter) -> Table | None:
    """Convert a table, batch or reader of Arrow to a table; None for any other value."""
    table = value.read_all() if kind_name(value) == "RecordBatchReader" else value
    if not hasattr(table, "column_names"):
        return None
    return _table_of_chunks(table.column_names, _arrow_chunks(table), convert_unsupported)


def _duckdb_table(value: Any, convert_unsupported: Converter) -> Table | None:
    """Convert a relation or result of DuckDB to a table; None for any other value."""
    if not hasattr(value, "fetchall"):
        return None
    rows = value.fetchall()
    return Table(unique_names(map(str, value.columns)), _convert_rows(rows, convert_unsupported))


def _polars_chunks(frame: Any) -> Iterator[list[list[Any]]]:
    """Yield the columns of each chunk of rows of a data frame."""
    for part in frame.iter_slices(_ROWS_AT_ONCE):
        yield [_arrow_or_polars_cells(column) for column in part.get_columns()]


def _arrow_chunks(table: Any) -> Iterator[list[list[Any]]]:
    """Yield the columns of each chunk of rows of an Arrow table."""
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        part = table.slice(start, _ROWS_AT_ONCE)
        yield [_arrow_or_polars_cells(column) for column in part.columns]


def _arrow_or_polars_cells(column: Any) -> list[Any]:
    """Return a column's cells as Python values; as text if Python has no equivalent."""
    is_arrow = hasattr(column, "to_pylist")
    if is_arrow:
        try:
            return column.to_pylist()
        except _CONVERSION_ERRORS:
            return column.cast("string").to_pylist()
    # In polars, times and durations have a unit.
    if getattr(column.dtype, "time_unit", None) == "ns":
        return _polars_nanosecond_cells(column)
    return column.to_list()


def _polars_nanosecond_cells(column: Any) -> list[Any]:
    """Return the cells of a polars column with times or durations in nanoseconds.

    Python's types hold only whole microseconds. If any cell has a fraction of a microsecond, all
    cells of the column become text.
    """
    nanoseconds = column.to_physical()  # the cells as integers
    are_inexact = (nanoseconds % 1000) != 0
    if are_inexact.any():
        return column.dt.to_string("iso").to_list()
    return column.to_list()


def _arrow_scalar(value: Any) -> Any:
    try:
        return value.as_py()
    except _CONVERSION_ERRORS:
        return str(value)
