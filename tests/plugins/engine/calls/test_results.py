"""Results of calls on their way to a script, above all large ones."""

import dataclasses
import datetime as dt

import pytest

from delf.values.encoding import UnsupportedValueError, loads
from delf_engine.calls.results import Results
from delf_engine.redact import REDACTED, Redactor

SECRET = "sk-a-secret-of-the-host-4f1c"
SLICE = 180_000
LARGE_ROWS = [{"id": i, "name": f"row {i}", "note": "a\nb"} for i in range(20_000)]


@pytest.fixture
def results():
    return Results(Redactor([SECRET]), 10_000_000)


@pytest.mark.parametrize("before", [0, SLICE - 14, SLICE - 1, SLICE, 2 * SLICE - 3])
async def test_secret_is_redacted_anywhere_in_a_large_text(results, before):
    text = "y " * (before // 2) + "-" * (before % 2) + SECRET + " y" * SLICE
    taken, encoded, _ = await results.take({"found": [text]})
    assert SECRET.encode() not in encoded
    assert taken["found"][0].count(REDACTED) == 1
    assert (loads(encoded) == taken) is True


@pytest.mark.parametrize("before", [0, SLICE - 14, 3 * SLICE])
async def test_secret_is_redacted_in_large_bytes(results, before):
    taken, encoded, _ = await results.take(b"y" * before + SECRET.encode() + b"z" * SLICE * 2)
    assert SECRET.encode() not in taken
    assert (loads(encoded) == taken) is True


async def test_large_result_over_the_limit_is_refused():
    with pytest.raises(UnsupportedValueError, match=r"too large: 4,\d{3},\d{3} bytes, and"):
        await Results(Redactor(), 1_000_000).take(["x" * 400_000] * 10)


class Number:
    """A number of some library."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value

    def __str__(self):
        return f"mpf({self.value})"


class Integer:
    def __index__(self):
        return 7


class Scalar:
    dtype = "int64"

    def item(self):
        return 5


class Table:
    def to_dict(self, orient):
        assert orient == "records"
        return [{"n": Scalar()}, {"n": None}]


@dataclasses.dataclass
class Record:
    where: object


NOT_PLAIN = {
    "a number": ([1, {"x": Number(2.5)}], [1, {"x": 2.5}], None),
    "an integer": ((Integer(), "y"), [7, "y"], None),
    "a scalar": ({"n": Scalar()}, {"n": 5}, None),
    "a table": (Table(), [{"n": 5}, {"n": None}], None),
    "an integer of too many digits": (
        10**5000,
        "<int, which cannot be shown: ValueError>",
        "passed as text: int",
    ),
    "a key": ({Scalar(): 1, Ellipsis: 2}, {5: 1, "Ellipsis": 2}, "passed as text: ellipsis"),
    "a field": (Record(...), {"where": "Ellipsis"}, "passed as text: ellipsis"),
    "a set": ({...}, ["Ellipsis"], "passed as text: ellipsis"),
    "large": (
        [*range(100_000), Number(0.5), ...],
        [*range(100_000), 0.5, "Ellipsis"],
        "passed as text: ellipsis",
    ),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
async def test_unusual_result_is_converted_to_the_closest_plain_value(results, name):
    given, expected, note = NOT_PLAIN[name]
    taken, encoded, message = await results.take(given)
    assert (taken == expected, loads(encoded) == expected, message) == (True, True, note)


async def test_scientific_scalars_arrays_and_tables_are_converted(results):
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    table = pd.DataFrame({"n": [1, 2], "at": [pd.Timestamp("2026-01-02"), pd.NaT]})
    value = {"a": np.int64(1), "b": np.arange(3), "c": table, "d": pd.NA, "e": np.bool_(True)}
    _, encoded, message = await results.take(value)
    assert message is None
    rows = [{"n": 1, "at": dt.datetime(2026, 1, 2)}, {"n": 2, "at": None}]
    assert loads(encoded) == {"a": 1, "b": [0, 1, 2], "c": rows, "d": None, "e": True}


async def test_secret_is_redacted_in_converted_text(results):
    class Client:
        def __repr__(self):
            return f"Client(key={SECRET})"

    taken, encoded, message = await results.take({"client": Client()})
    assert (taken, message) == ({"client": f"Client(key={REDACTED})"}, "passed as text: Client")
    assert SECRET.encode() not in encoded


async def test_small_result_over_the_limit_is_refused():
    with pytest.raises(UnsupportedValueError, match="too large: 1,002 bytes, and at most 1,000 "):
        await Results(Redactor(), 1_000).take("x" * 1_000)
