"""Tests that large values are processed in a thread, and frames with too many values refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from delf.values.encoding import MAX_VALUES, dumps
from delf.values.sizes import has_too_many_values, is_large, run_in_thread


@pytest.mark.parametrize(
    "value", ["y" * 200_000, b"y" * 200_000, [*range(10_000)], {"a": ["x"] * 9_000}]
)
def test_is_large_accepts_large_values(value: Any) -> None:
    assert is_large(value)


@pytest.mark.parametrize("value", [5, "text", [1, 2], {"a": [1] * 100}, b"", None])
def test_is_large_rejects_small_values(value: Any) -> None:
    assert not is_large(value)


@pytest.mark.parametrize(
    "part", [(0, MAX_VALUES + 1), (dict[str, int](), MAX_VALUES // 3)], ids=["numbers", "dicts"]
)
@pytest.mark.slow
def test_too_many_encoded_values_are_detected(part: tuple[Any, int]) -> None:
    value, count = part
    assert has_too_many_values(dumps([value] * count))


@pytest.mark.parametrize(
    "text", [",[{:" * MAX_VALUES, '\\",[{:' * MAX_VALUES], ids=["signs", "quotes"]
)
@pytest.mark.slow
def test_json_syntax_inside_a_string_does_not_count_towards_the_value_limit(text: str) -> None:
    assert not has_too_many_values(dumps([text]))


async def test_run_in_thread_runs_the_function_in_another_thread() -> None:
    assert await run_in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(ValueError, match="invalid literal"):
        await run_in_thread(int, "x")


async def test_cancelling_run_in_thread_waits_and_keeps_the_result() -> None:
    begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    reached: list[str] = []

    def work() -> str:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(30)
        return "done"

    async def whole() -> None:
        reached.append(await run_in_thread(work))
        await asyncio.sleep(0)
        reached.append("further")

    task = asyncio.create_task(whole())
    await begun.wait()
    task.cancel("why")
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task
    assert reached == ["done"]
    assert task.cancelling() == 1
