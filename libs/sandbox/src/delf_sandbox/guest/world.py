"""Recording and replay of a script's clock and randomness."""

from __future__ import annotations

import abc
import datetime as dt
import hashlib
import os
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from typing import Any

_MAX_READINGS = 1000
"""The maximum number of recorded clock reads; after these, a script sees the real time."""

_uuid: Any = uuid
_DAY = dt.date
_MOMENT = dt.datetime


class World:
    """Replaces the time and randomness of the standard library, for recording and replay.

    Args:
        send: Sends new clock reads to the host, each in nanoseconds.
    """

    def __init__(self, send: Callable[[list[int]], None]) -> None:
        self._send = send
        self._recorded: deque[int] = deque()
        self._new: list[int] = []
        self._remaining_reads = 0
        self._origin: int | None = None
        self._latest = self._cpu_ns = 0
        self._seed = b""
        self._blocks = 0

    def begin(self, seed: str, clock: Sequence[int]) -> None:
        """Set the seed and the recorded clock reads for a new script.

        Args:
            seed: The seed for random numbers.
            clock: The recorded clock reads that are replayed first, in nanoseconds.
        """
        if not self._seed:  # earlier reads were the guest's own
            self._origin, self._latest, self._cpu_ns = None, 0, 0
        self._seed, self._blocks = seed.encode(), 0
        # Read before the clock: a repeated script sees the times of its first run.
        self._recorded = deque(clock)
        self._remaining_reads = _MAX_READINGS - len(clock)
        random.seed(seed)
        node = hashlib.sha256(b"node/" + self._seed).digest()[:6]
        # uuid1() contains the machine's address and continues from its last time. RFC 9562 marks
        # a random address by this bit.
        _uuid._node, _uuid._last_timestamp = int.from_bytes(node) | 1 << 40, None

    def flush(self) -> None:
        """Send the clock reads that were not sent before."""
        if self._new:
            count = len(self._new)  # other threads may add reads meanwhile
            readings = self._new[:count]
            del self._new[:count]
            self._send(readings)

    def read_clock(self, real: Callable[[], int]) -> int:
        """Return the next recorded clock read; after the last one, read the real clock."""
        if self._recorded:
            return self._recorded.popleft()
        reading = real()
        if self._remaining_reads > 0:
            self._remaining_reads -= 1
            self._new.append(reading)
        return reading

    def now_ns(self) -> int:
        """Return the wall clock time for the script, in nanoseconds."""
        return self.read_clock(_real_time_ns)

    def now(self) -> float:
        """Return the wall clock time for the script, in seconds."""
        return self.now_ns() / 1e9

    def steady_ns(self) -> int:
        """Return the monotonic time since the first read, in nanoseconds.

        The time is derived from the wall clock, because a monotonic clock does not continue on
        another machine or after a reboot.
        """
        now = self.now_ns()
        if self._origin is None:
            self._origin = now
        # The wall clock may be set back, and a steady clock never goes back.
        self._latest = max(self._latest, now - self._origin)
        return self._latest

    def cpu_ns(self) -> int:
        """Return the processor time that the script has used, in nanoseconds."""
        self._cpu_ns = max(self._cpu_ns, self.read_clock(_real_process_time_ns))
        return self._cpu_ns

    def clock_ns(self, clock: int) -> int:
        """Return the time of the clock with an id such as ``CLOCK_REALTIME``, in nanoseconds."""
        if clock == time.CLOCK_REALTIME:
            return self.now_ns()
        if clock in (time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID):
            return self.cpu_ns()
        return self.steady_ns()

    def bytes(self, count: int) -> bytes:
        """Return random bytes that depend only on the seed and the number of bytes drawn before.

        Without a seed, the bytes come from the system.
        """
        if not self._seed:
            return _real_urandom(count)
        generated = b""
        while len(generated) < count:
            self._blocks += 1
            generated += hashlib.sha256(b"%d/%b" % (self._blocks, self._seed)).digest()
        return generated[:count]

    def install(self) -> None:
        """Patch the standard library. Call this early, because it is slow."""
        module: Any = random
        os.urandom = module._urandom = self.bytes
        module.Random.seed = _seeded_generator(module.Random.seed, self.bytes)
        # The module's functions are bound methods of one generator, made before the patch.
        module.seed = module._inst.seed
        _uuid._generate_time_safe = _uuid._UuidCreate = None  # these use the system's clock
        time.time_ns, time.time = self.now_ns, self.now
        for name in ("monotonic", "perf_counter"):
            _set_clock(name, self.steady_ns)
        for name in ("process_time", "thread_time"):
            _set_clock(name, self.cpu_ns)
        _set_clock("clock_gettime", self.clock_ns)
        for name in ("localtime", "gmtime", "ctime"):
            setattr(time, name, _with_time(getattr(time, name), self.now))
        time.asctime = _with_parts(time.asctime, 0)
        time.strftime = _with_parts(time.strftime, 1)
        types = _calendar(self.now)
        _patch_during_load(SourceFileLoader, "exec_module", *types)
        for step in ("create_module", "exec_module"):
            _patch_during_load(ExtensionFileLoader, step, _DAY, _MOMENT)
        dt.date, dt.datetime = types


_real_time_ns = time.time_ns
_real_process_time_ns = time.process_time_ns
_real_urandom = os.urandom


def _set_clock(name: str, reader: Callable[..., int]) -> None:
    """Replace a clock function of the module ``time`` and its variant in nanoseconds."""

    def seconds(*clock: int) -> float:
        return reader(*clock) / 1e9

    setattr(time, f"{name}_ns", reader)
    setattr(time, name, seconds)


def _seeded_generator(
    real: Callable[..., None], draw: Callable[[int], bytes]
) -> Callable[..., None]:
    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        # Without a seed, Python would use the system's randomness, which cannot be replayed.
        real(self, draw(32) if a is None else a, version)

    return seed


def _with_time(real: Callable[..., Any], now: Callable[[], float]) -> Callable[..., Any]:
    def function(secs: float | None = None) -> Any:
        return real(now() if secs is None else secs)

    return function


def _with_parts(real: Callable[..., str], place: int) -> Callable[..., str]:
    def function(*args: Any) -> str:
        return real(*args) if len(args) > place else real(*args, time.localtime())

    return function


def _patch_during_load(loader: type, step: str, days: Any, moments: Any) -> None:
    """Let a module loader see certain types in ``datetime`` while it runs one of its steps.

    A compiled module derives its types from those of ``datetime`` in C. With the script's Python
    classes as bases, that would recurse endlessly, so such a module gets the real types.

    Args:
        loader: The class of the loader.
        step: The name of the loader's method that creates or runs a module.
        days: The type that ``datetime.date`` is during the step.
        moments: The type that ``datetime.datetime`` is during the step.
    """
    load = getattr(loader, step)

    def load_with_types(self: Any, of: Any) -> Any:
        before = dt.date, dt.datetime
        dt.date, dt.datetime = days, moments
        try:
            return load(self, of)
        finally:
            dt.date, dt.datetime = before

    setattr(loader, step, load_with_types)


_OF_TEXT = frozenset(
    {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "count"}
    | {"strip", "ljust", "rjust", "lower", "upper"}
)


class _LikeText:
    """A mixin that lets scripts use a date like its ISO 8601 text, which many scripts expect."""

    __slots__ = ()
    __iter__ = None

    @classmethod
    def fromisoformat(cls, text: Any) -> Any:
        real: Any = super()
        if isinstance(text, _DAY):
            text = text.isoformat() if issubclass(cls, _MOMENT) else text.isoformat()[:10]
        return real.fromisoformat(text)

    @classmethod
    def strptime(cls, text: Any, format: str) -> Any:
        real: Any = super()
        return real.strptime(text.strftime(format) if isinstance(text, _DAY) else text, format)

    def __getitem__(self: Any, key: Any) -> str:
        return self.isoformat()[key]

    def __contains__(self: Any, part: str) -> bool:
        return part in self.isoformat()

    def __getattr__(self: Any, name: str) -> Any:
        if name in _OF_TEXT:
            return getattr(self.isoformat(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sub__(self: Any, other: Any) -> Any:
        real: Any = super()
        if isinstance(self, _MOMENT) and isinstance(other, _DAY) and not isinstance(other, _MOMENT):
            other = self.replace(  # midnight of that date
                year=other.year, month=other.month, day=other.day, hour=0, minute=0, second=0,
                microsecond=0,
            )  # fmt: skip
        return real.__sub__(other)

    def __hash__(self: Any) -> int:
        return super().__hash__()


def _comparison_method(name: str) -> Callable[[Any, Any], Any]:
    """Build a comparison method that also compares a date with its ISO 8601 text."""

    def compare(self: Any, other: Any) -> Any:
        if isinstance(other, str):
            try:
                other = self.fromisoformat(other)
            except ValueError:
                return NotImplemented
            if isinstance(other, _MOMENT) and other.tzinfo is None:
                other = other.replace(tzinfo=self.tzinfo)
        return getattr(super(_LikeText, self), name)(other)

    return compare


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(_LikeText, _name, _comparison_method(_name))


def _calendar(now: Callable[[], float]) -> tuple[Any, Any]:
    """Build replacements for ``date`` and ``datetime`` that use the script's clock."""
    real: dict[type, type] = {}

    class Alike(abc.ABCMeta):
        """A metaclass that counts real dates as instances of the script's date classes."""

        def __instancecheck__(cls, instance: object) -> bool:
            kind = real.get(cls)
            return (
                super().__instancecheck__(instance) if kind is None else isinstance(instance, kind)
            )

        def __subclasscheck__(cls, subclass: type) -> bool:
            kind = real.get(cls)
            return (
                super().__subclasscheck__(subclass) if kind is None else issubclass(subclass, kind)
            )

    class date(_LikeText, _DAY, metaclass=Alike):  # noqa: N801 - the name that scripts see
        __slots__ = ()
        __module__ = "datetime"
        __qualname__ = "date"

        def __repr__(self) -> str:
            return _qualify_name(super().__repr__(), type(self) in real)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now())

    class datetime(_LikeText, _MOMENT, metaclass=Alike):  # noqa: N801
        __slots__ = ()
        __module__ = "datetime"
        __qualname__ = "datetime"

        def __repr__(self) -> str:
            return _qualify_name(super().__repr__(), type(self) in real)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(now(), tz)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now())

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(now(), _UTC).replace(tzinfo=None)

        def date(self) -> Any:
            return days(self.year, self.month, self.day)

    days, moments = date, datetime
    real |= {days: _DAY, moments: _MOMENT}
    days.min, days.max = days(1, 1, 1), days(9999, 12, 31)
    moments.min, moments.max = moments(1, 1, 1), moments(9999, 12, 31, 23, 59, 59, 999999)
    return days, moments


_UTC = dt.UTC


def _qualify_name(text: str, is_of_module: bool) -> str:
    return f"datetime.{text.removeprefix('datetime.')}" if is_of_module else text
