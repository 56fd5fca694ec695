"""Large values, encoded chunk by chunk, so that an event loop has its turns in between.

To write a value of 60 MB as JSON takes hundreds of milliseconds in which nothing else of the
process would run. Small values are written whole, which is quicker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from delf.values import MAX_VALUES, TAG, VALUE_BYTES, dumps, is_quickly_sorted, weight

_CHUNK: Final = 1_500 * VALUE_BYTES
"""The weight of a chunk: values for less than half a millisecond's work."""
_SLICE: Final = 180_000
"""Letters or bytes that are written in that time; a multiple of three, as base64 needs it."""
_AT_ONCE: Final = 150
_DEEP: Final = 12
"""Levels that are looked at; what stands deeper counts as one value."""
_TURN_SECONDS: Final = 0.0005
_QUIET_SECONDS: Final = 50e-6
"""A turn of the loop that takes less did nothing else."""
_REST_SECONDS: Final = 0.001
_MOST_RESTS: Final = 4
_EMPTY_BYTES: Final = dumps(b"")
_EMPTY_TUPLE: Final = dumps(())

_WEIGHTS: Final = {b",": 1, b":": 1, b"[": 2, b"{": 6}
"""What each costs, in values: an empty list takes as much as two numbers, a dict as six."""
_FEW_BYTES: Final = 4 * 1024 * 1024
_PIECE: Final = 1024 * 1024

_type_of: Callable[[Any], Any] = type
Encode = Callable[[Any], bytes]
T = TypeVar("T")


def is_large(value: Any) -> bool:
    """Whether to encode a value takes so long that others should have a turn meanwhile."""
    return weight(value, _CHUNK) > _CHUNK


def dump_chunks(value: Any, encode: Encode = dumps, seam: int = 0) -> Iterator[bytes]:
    """What :func:`delf.values.dumps` makes of a value, in chunks.

    Cut are texts, bytes, lists, tuples, sets of texts or of whole numbers, and dicts whose keys are
    texts, however they stand in each other; every other value is one chunk.

    Args:
        value: Plain data.
        encode: Makes the bytes of a part that is not cut any further; it can look at it, too.
        seam: How many letters or bytes on either side of a cut ``encode`` is given once more,
            together, only to look at.

    Raises:
        UnsupportedValueError: As ``dumps`` does, when that part's turn comes.
    """
    return _Dump(encode, seam).of(value, _DEEP)


async def in_turns(chunks: Iterable[T], *, to_its_end: bool = False) -> list[T]:
    """Go through chunks of work, half a millisecond at a time, whenever others have nothing to do.

    Args:
        chunks: The work.
        to_its_end: Whether a cancellation waits until all is done, or has failed: it is then
            raised where the caller waits next.
    """
    done: list[T] = []
    cancelled: list[asyncio.CancelledError] = []
    due = time.perf_counter() + _TURN_SECONDS
    try:
        for chunk in chunks:
            done.append(chunk)
            if time.perf_counter() > due:
                try:
                    await _let_others_work()
                except asyncio.CancelledError as error:
                    if not to_its_end:
                        raise
                    cancelled.append(error)
                due = time.perf_counter() + _TURN_SECONDS
    finally:
        _cancel_again(cancelled)
    return done


async def _let_others_work() -> None:
    """Give up a turn, and rest while others work: most of what they do waits for their sandbox.

    A few milliseconds at most, so that this work comes to its end beside a loop that is never
    quiet.
    """
    for _ in range(_MOST_RESTS):
        before = time.perf_counter()
        await asyncio.sleep(0)
        if time.perf_counter() - before < _QUIET_SECONDS:
            return
        await asyncio.sleep(_REST_SECONDS)


def _cancel_again(errors: Iterable[asyncio.CancelledError]) -> None:
    """Have cancellations that were held back raised where this task waits next."""
    task = asyncio.current_task()
    for error in errors:
        if task is not None:
            task.uncancel()  # so that each counts once
            task.cancel(*error.args)


class _Dump:
    def __init__(self, encode: Encode, seam: int) -> None:
        self._encode = encode
        self._seam = seam

    def of(self, value: Any, levels: int) -> Iterator[bytes]:
        """The value's chunks, those of its parts down to some level."""
        kind = _type_of(value)
        if not levels or not is_large(value):
            yield self._encode(value)
        elif kind is str:
            yield from self._slices(value, b'"', b'"')
        elif kind is bytes:
            yield from self._slices(value, _EMPTY_BYTES[:-2], _EMPTY_BYTES[-2:])
        elif kind is list:
            yield from self._list(value, levels - 1)
        elif kind is tuple:
            yield _EMPTY_TUPLE[: -len(b"[]}")]
            yield from self._list(value, levels - 1)
            yield b"}"
        elif kind in (set, frozenset) and is_quickly_sorted(value):
            yield dumps(kind())[: -len(b"[]}")]
            yield from self._list(sorted(value), levels - 1)
            yield b"}"
        elif kind is dict and set(map(type, value)) == {str} and TAG not in value:
            yield from self._dict(value, levels - 1)
        else:
            yield self._encode(value)

    def _slices(self, value: Any, before: bytes, after: bytes) -> Iterator[bytes]:
        yield before
        for start in range(0, len(value), _SLICE):
            encoded = self._encode(value[start : start + _SLICE])
            yield encoded[len(before) : -len(after)]
            if start and self._seam:
                self._encode(value[max(0, start - self._seam) : start + self._seam])
        yield after

    def _list(self, items: Iterable[Any], levels: int) -> Iterator[bytes]:
        opening = b"["
        for run in _runs([*items], _itself):
            if len(run) == 1:
                yield opening
                yield from self.of(run[0], levels)
            else:
                yield opening + self._encode(run)[1:-1]
            opening = b","
        yield b"]"

    def _dict(self, items: dict[str, Any], levels: int) -> Iterator[bytes]:
        opening = b"{"
        items = items.copy()
        for keys in _runs([*items], items.__getitem__):
            if len(keys) == 1:
                yield opening + self._encode(keys[0]) + b":"
                yield from self.of(items[keys[0]], levels)
            else:
                yield opening + self._encode({key: items[key] for key in keys})[1:-1]
            opening = b","
        yield b"}"


def _itself(value: Any) -> Any:
    return value


def _runs(members: list[T], value_of: Callable[[T], Any]) -> Iterator[list[T]]:
    """Members that stand next to each other and have room in a chunk; a larger one is alone."""
    for start in range(0, len(members), _AT_ONCE):
        batch = members[start : start + _AT_ONCE]
        if not is_large([value_of(member) for member in batch]):
            yield batch
            continue
        run: list[T] = []
        room = _CHUNK
        for member in batch:
            size = weight(value_of(member), _CHUNK)
            if run and size > room:
                yield run
                run, room = [], _CHUNK
            run.append(member)
            room -= size
        yield run


def has_too_many_values(payload: bytes) -> bool:
    """Whether a guest's frame holds more than the host takes into its memory."""
    if len(payload) <= _FEW_BYTES or cost(payload) <= MAX_VALUES:
        return False
    return cost_of_values(payload) > MAX_VALUES


def cost(payload: bytes) -> int:
    """About how many values are in a payload, weighted by what they take in memory."""
    return sum(payload.count(sign) * weight for sign, weight in _WEIGHTS.items())


def cost_of_values(payload: bytes) -> int:
    """The same without the signs that stand in texts, which takes longer."""
    plain = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
    total, in_text = 0, 0
    for start in range(0, len(plain), _PIECE):
        parts = plain[start : start + _PIECE].split(b'"')
        total += cost(b"".join(parts[in_text::2]))
        in_text ^= (len(parts) - 1) % 2
    return total
