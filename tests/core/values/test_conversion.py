"""Tests of the conversion of data library values in ``docs/values.md``, on host and sandboxes."""

import dataclasses
import datetime as dt
import sqlite3
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pydantic import BaseModel

from delf.values.conversion import plain, plain_or_as_is, table_of
from delf.values.encoding import UnsupportedValueError, dumps, loads

SALES = pd.DataFrame({"region": ["north", "south", "north"], "sales": [1, 2, 3]})
BY_REGION = SALES.groupby("region")[["sales"]].sum()
REGIONS = [{"region": "north", "sales": 4}, {"region": "south", "sales": 2}]
UTC = dt.UTC


class Model(BaseModel):
    n: Decimal


@dataclasses.dataclass
class Item:
    frame: object


def rows_of_sqlite():
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    found = database.execute("SELECT 1 AS a, 'x' AS b").fetchall()
    database.close()
    return found


CASES = {
    "a table": (SALES[:1], [{"region": "north", "sales": 1}]),
    "an index with a name": (BY_REGION, REGIONS),
    "a series with one": (BY_REGION["sales"], REGIONS),
    "an index of two levels": (
        SALES.set_index(["region", "sales"]).assign(x=1)[:1],
        [{"region": "north", "sales": 1, "x": 1}],
    ),
    "an index of two levels without names": (
        pd.Series([7], index=pd.MultiIndex.from_tuples([("a", 1)])),
        [{"level_0": "a", "level_1": 1, "value": 7}],
    ),
    "what is left of the numbers of rows": (
        SALES[SALES.sales > 2],
        [{"index": 2, "region": "north", "sales": 3}],
    ),
    "labels": (pd.Series([7], index=["a"], name="n"), [{"index": "a", "n": 7}]),
    "columns of two levels": (
        SALES.groupby("region").agg({"sales": ["sum", "max"]})[:1],
        [{"region": "north", "sales_sum": 4, "sales_max": 3}],
    ),
    "columns of one name": (
        pd.DataFrame([[1, 2, 3]], columns=["a", "a", "a_2"]),
        [{"a": 1, "a_3": 2, "a_2": 3}],
    ),
    "columns that are numbers": (pd.DataFrame([[1, 2]]), [{"0": 1, "1": 2}]),
    "an index that has the name of a column": (
        SALES[:1].set_index("region", drop=False),
        [{"region": "north", "region_2": "north", "sales": 1}],
    ),
    "a table without columns": (pd.DataFrame(index=["a"]), [{"index": "a"}]),
    "a series of values": (SALES["sales"], [1, 2, 3]),
    "missing cells": (
        pd.DataFrame(
            {
                "f": [1.5, None],
                "i": pd.array([1, None], dtype="Int64"),
                "b": pd.array([True, None], dtype="boolean"),
                "t": pd.to_datetime(["2026-01-02 03:04", None]),
                "c": pd.Categorical(["x", None]),
                "s": ["y", None],
            }
        ),
        [
            {"f": 1.5, "i": 1, "b": True, "t": dt.datetime(2026, 1, 2, 3, 4), "c": "x", "s": "y"},
            dict.fromkeys("fibtcs"),
        ],
    ),
    "a time zone": (
        pd.Series(pd.to_datetime(["2026-01-02T03:04+01:00"], utc=True)),
        [dt.datetime(2026, 1, 2, 2, 4, tzinfo=UTC)],
    ),
    "decimals and bytes": (
        pd.DataFrame({"d": [Decimal("1.10")], "b": [b"\xff"]}),
        [{"d": Decimal("1.10"), "b": b"\xff"}],
    ),
    "durations, periods, intervals": (
        pd.DataFrame(
            {
                "t": pd.to_timedelta([90], unit="s"),
                "p": pd.period_range("2026-01", periods=1, freq="M"),
                "i": [pd.Interval(0, 1)],
            }
        ),
        [{"t": dt.timedelta(seconds=90), "p": "2026-01", "i": "(0, 1]"}],
    ),
    "nanoseconds": (pd.Timestamp(1), "1970-01-01T00:00:00.000000001"),
    "nanoseconds in a list": ([pd.Timestamp(1)], ["1970-01-01T00:00:00.000000001"]),
    "a moment of pandas": ([pd.Timestamp("2026-01-02")], [dt.datetime(2026, 1, 2)]),
    "nothing": ([pd.NA, pd.NaT], [None, None]),
    "an index": (pd.Index([1, 2]), [1, 2]),
    "an array of pandas": (pd.array([1, None]), [1, None]),
    "a scalar": ([np.int64(3), np.float32(1.5), np.bool_(True)], [3, 1.5, True]),
    "texts and bytes of numpy": ([np.str_("x"), np.bytes_(b"x")], ["x", b"x"]),
    "a long number": (np.longdouble(1.5), 1.5),
    "an array": (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "a large array": (np.arange(2000), list(range(2000))),
    "an array of one": (np.array(5), 5),
    "masked": (np.ma.array([1, 2], mask=[0, 1]), [1, None]),
    "a structure": (
        np.array([(1, "x")], dtype=[("a", "i4"), ("b", "U1")]),
        [{"a": 1, "b": "x"}],
    ),
    "moments of numpy": (
        np.array(["2026-01-02T03:04", "NaT"], dtype="M8[ns]"),
        [dt.datetime(2026, 1, 2, 3, 4), None],
    ),
    "what Python has no date for": (np.datetime64("20000-01-01"), "20000-01-01"),
    "durations of numpy": (
        [np.timedelta64(90, "s"), np.timedelta64(3, "Y"), np.timedelta64(1, "ns")],
        [dt.timedelta(seconds=90), "3 years", "1 nanoseconds"],
    ),
    "polars": (
        pl.DataFrame({"a": [1, None], "f": [float("nan"), 1.5], "s": [{"x": [1]}, None]}),
        [{"a": 1, "f": None, "s": {"x": [1]}}, {"a": None, "f": 1.5, "s": None}],
    ),
    "polars, lazy": (pl.LazyFrame({"a": [Decimal("1.10")]}), [{"a": Decimal("1.10")}]),
    "a column of polars": (pl.Series("a", [dt.date(2026, 1, 2)]), [dt.date(2026, 1, 2)]),
    "nanoseconds of polars": (
        pl.Series([1], dtype=pl.Datetime("ns")),
        ["1970-01-01 00:00:00.000000001"],
    ),
    "Arrow": (
        pa.table({"a": [1, None], "b": [b"x", None]}),
        [{"a": 1, "b": b"x"}, {"a": None, "b": None}],
    ),
    "what Python has no date for, of Arrow": (
        pa.table({"t": pa.array([0], type=pa.timestamp("s")), "s": ["x"]}),
        [{"t": dt.datetime(1970, 1, 1), "s": "x"}],
    ),
    "a batch": (pa.RecordBatch.from_pylist([{"a": 1}]), [{"a": 1}]),
    "a column of Arrow": (pa.chunked_array([[1], [2]]), [1, 2]),
    "a scalar of Arrow": (pa.scalar(Decimal("1.1")), Decimal("1.1")),
    "DuckDB": (duckdb.sql("SELECT 1 AS a, 'x' AS b"), [{"a": 1, "b": "x"}]),
    "rows of SQLite": (rows_of_sqlite(), [{"a": 1, "b": "x"}]),
    "a dataclass": (Item(BY_REGION), {"frame": REGIONS}),
    "a model": ([Model(n="1.10")], [{"n": Decimal("1.10")}]),
    "a dict of all": (
        {np.int64(1): BY_REGION, ("a", np.int64(2)): np.int64(3)},
        {1: REGIONS, ("a", 2): 3},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_type_becomes_plain_data(case):
    value, expected = CASES[case]
    message = {}
    made = plain(value, message)
    assert made == expected
    assert not message
    assert plain_or_as_is(value) == expected
    assert loads(dumps(made)) == expected
    try:
        direct = loads(dumps(value))
    except UnsupportedValueError:
        return
    assert direct == expected, "what needs no conversion to cross comes out the same"


def test_timestamp_beyond_python_turns_its_column_into_text():
    column = pa.array([10**13, 0], type=pa.timestamp("s"))
    assert all(isinstance(cell, str) for cell in plain(pa.table({"t": column}).column("t")))


def test_unconvertible_value_becomes_text_with_a_note():
    message = {}
    assert plain([1, ...], message) == [1, "Ellipsis"]
    assert message == {"ellipsis": None}


@dataclasses.dataclass(frozen=True)
class Place:
    x: int


@pytest.mark.parametrize("key", [Place(1), (Place(1),), frozenset([...])])
def test_key_that_is_not_hashable_as_data_becomes_text(key):
    assert plain({key: 1}) == {str(key): 1}
    assert plain_or_as_is({Place(1): ...}) == {str(Place(1)): ...}


def test_decimal_too_large_for_a_float_becomes_text():
    message = {}
    large = Decimal("1E100000000")
    assert plain([large], message) == ["1E+100000000"]
    assert list(message) == ["Decimal"]
    assert plain_or_as_is(large) is large


def test_table_is_read_in_parts():
    table = table_of(pd.DataFrame({"n": range(25_000)}))
    assert table.columns == ["n"]
    assert next(table.rows) == [0]
    assert sum(1 for _ in table.rows) == 24_999


@pytest.mark.parametrize("value", [[{"a": 1}], {"a": 1}, "x", 1, None, np.arange(3)])
def test_table_of_returns_none_for_other_values(value):
    assert table_of(value) is None
