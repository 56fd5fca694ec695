"""Results of calls on their way to a script, above all large ones."""

import asyncio
from pathlib import PurePath

import pytest

from delf.engine.calls.results import Results
from delf.engine.secrets.redaction import REDACTED, Redactor
from delf.values import UnsupportedValueError, loads

SECRET = "sk-a-secret-of-the-host-4f1c"
SLICE = 180_000
LARGE_ROWS = [{"id": i, "name": f"row {i}", "note": "a\nb"} for i in range(20_000)]


@pytest.fixture
def results():
    return Results(Redactor([SECRET]), 10_000_000)


@pytest.mark.parametrize(
    "result",
    ["x" * 2_000_000, 'quoted "\n' * 200_000, b"\0" * 2_000_000, LARGE_ROWS],
    ids=["text", "escapes", "bytes", "rows"],
)
async def test_a_large_result_without_a_secret_stays_as_it_is(results, result):
    taken, encoded = await results.take(result)
    assert (taken == result) is True
    assert (loads(encoded) == result) is True


@pytest.mark.parametrize("before", [0, SLICE - 14, SLICE - 1, SLICE, 2 * SLICE - 3])
async def test_a_secret_in_a_large_text_is_taken_out_wherever_it_is(results, before):
    text = "y " * (before // 2) + "-" * (before % 2) + SECRET + " y" * SLICE
    taken, encoded = await results.take({"found": [text]})
    assert SECRET.encode() not in encoded
    assert taken["found"][0].count(REDACTED) == 1
    assert (loads(encoded) == taken) is True


@pytest.mark.parametrize("before", [0, SLICE - 14, 3 * SLICE])
async def test_and_in_large_bytes(results, before):
    taken, encoded = await results.take(b"y" * before + SECRET.encode() + b"z" * SLICE * 2)
    assert SECRET.encode() not in taken
    assert (loads(encoded) == taken) is True


async def test_and_in_one_of_many_rows(results):
    rows = [*LARGE_ROWS, {"id": -1, "name": SECRET}, *LARGE_ROWS]
    taken, encoded = await results.take(rows)
    assert SECRET.encode() not in encoded
    assert taken[len(LARGE_ROWS)] == {"id": -1, "name": REDACTED}


async def test_a_word_that_only_looks_like_a_secret_at_a_cut_stays():
    results = Results(Redactor(["hidden"]), 10_000_000)
    text = "y" * (SLICE - 2) + "unhiddenly" + "y" * SLICE
    taken, _ = await results.take(text)
    assert taken is text


async def test_a_result_that_is_too_large_is_refused_before_all_of_it_is_encoded():
    never_reached = object()
    rows = [*["x" * 400_000] * 10, never_reached]
    with pytest.raises(UnsupportedValueError, match=r"more than 1,\d{3},\d{3} bytes, and"):
        await Results(Redactor(), 1_000_000).take(rows)


@pytest.mark.parametrize(
    "wrap", [lambda rows: rows, lambda rows: {"rows": rows}], ids=["list", "dict"]
)
async def test_what_its_tool_adds_meanwhile_is_not_in_it(results, wrap):
    rows = [*LARGE_ROWS]

    async def add():
        while True:
            rows.append({"id": 0, "name": SECRET, "note": ""})
            await asyncio.sleep(0)

    adding = asyncio.create_task(add())
    taken, encoded = await results.take(wrap(rows))
    adding.cancel()
    assert len(rows) > len(LARGE_ROWS)
    assert SECRET not in str(taken)
    assert (loads(encoded) == taken) is True


async def test_a_path_that_no_script_can_read_is_refused(results):
    with pytest.raises(UnsupportedValueError, match="malformed path"):
        await results.take(["\\", PurePath("x" * 11_000)])


async def test_a_small_one_that_is_too_large_is_refused():
    with pytest.raises(UnsupportedValueError, match="too large: 1,002 bytes, and at most 1,000 "):
        await Results(Redactor(), 1_000).take("x" * 1_000)


async def test_a_number_that_is_a_secret_is_taken_out_and_no_other():
    results = Results(Redactor(["481516234242", "000000"]), 10_000_000)
    rows = [*LARGE_ROWS, {"pin": 481516234242}]
    assert (await results.take(rows))[0][-1] == {"pin": REDACTED}
    assert (await results.take({"pin": 481516234242}))[0] == {"pin": REDACTED}
    assert (await results.take({"total": 0, "said": "a\nb"}))[0] == {"total": 0, "said": "a\nb"}
