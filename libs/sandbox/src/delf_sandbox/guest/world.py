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

# The maximum number of recorded clock reads; after these, a script sees the real time.
_MAX_READS = 1000

_uuid: Any = uuid
_REAL_DATE = dt.date
_REAL_DATETIME = dt.datetime


class RecordedClockAndRandom:
    """Replaces the time and randomness of the standard library, for recording and replay.

    Args:
        send: Sends clock reads in nanoseconds to the host, which records them. Replayed reads are
            not sent.
    """

    def __init__(self, send: Callable[[list[int]], None]) -> None:
        self._send = send
        # The clock reads of a recorded run, which this run repeats.
        self._reads_to_replay: deque[int] = deque()
        # The new clock reads, which the host gets with the next frame and records.
        self._reads_to_send: list[int] = []
        # How many further reads of this script are recorded.
        self._reads_left_to_record = 0
        self._first_monotonic_read_ns: int | None = None
        self._latest_monotonic_ns = 0
        self._latest_processor_ns = 0
        # The seed of the random bytes, and the number of blocks generated from the seed.
        self._seed = b""
        self._random_block_count = 0

    def begin(self, seed: str, clock: Sequence[int]) -> None:
        """Set the seed and the recorded clock reads for a new script.

        Args:
            seed: The seed for random numbers.
            clock: The recorded clock reads that are replayed first, in nanoseconds.
        """
        is_first_script = not self._seed
        if is_first_script:
            # Earlier reads of the clocks were made while this process started, not by a script.
            self._first_monotonic_read_ns = None
            self._latest_monotonic_ns = self._latest_processor_ns = 0
        self._seed = seed.encode()
        self._random_block_count = 0
        self._reads_to_replay = deque(clock)
        # The replayed reads count, too, because new reads continue the same recording.
        self._reads_left_to_record = _MAX_READS - len(clock)
        random.seed(seed)
        # Replace the values that uuid1() takes from outside of the script: the hardware address of
        # the machine, and the time of the last call. By RFC 9562, bit 40 marks a random address.
        random_address = hashlib.sha256(b"node/" + self._seed).digest()[:6]
        _uuid._node = int.from_bytes(random_address) | (1 << 40)
        _uuid._last_timestamp = None

    def flush(self) -> None:
        """Send the clock reads that were not sent before."""
        if self._reads_to_send:
            count = len(self._reads_to_send)  # other threads may add reads meanwhile
            reads = self._reads_to_send[:count]
            del self._reads_to_send[:count]
            self._send(reads)

    def read_clock(self, real: Callable[[], int]) -> int:
        """Return the next recorded clock read; after the last one, read the real clock.

        New reads are kept until they are sent to the host, which records them. Only the first
        ``_MAX_READS`` reads of a script are recorded.
        """
        if self._reads_to_replay:
            return self._reads_to_replay.popleft()
        now_ns = real()
        if self._reads_left_to_record > 0:
            self._reads_left_to_record -= 1
            self._reads_to_send.append(now_ns)
        return now_ns

    def now_ns(self) -> int:
        """Return the wall clock time for the script, in nanoseconds."""
        return self.read_clock(_real_time_ns)

    def now(self) -> float:
        """Return the wall clock time for the script, in seconds."""
        return self.now_ns() / 1e9

    def monotonic_ns(self) -> int:
        """Return the monotonic time since the first read, in nanoseconds.

        The time is derived from the wall clock, because a monotonic clock does not continue on
        another machine or after a reboot.
        """
        now = self.now_ns()
        if self._first_monotonic_read_ns is None:
            self._first_monotonic_read_ns = now
        # The wall clock may be set back, but a steady clock must never go back.
        self._latest_monotonic_ns = max(
            self._latest_monotonic_ns, now - self._first_monotonic_read_ns
        )
        return self._latest_monotonic_ns

    def cpu_ns(self) -> int:
        """Return the processor time that the script has used, in nanoseconds."""
        # After a replay of another process's reads, the time of this process may be less than the
        # replayed times. But a clock of processor time must never go back.
        self._latest_processor_ns = max(
            self._latest_processor_ns, self.read_clock(_real_process_time_ns)
        )
        return self._latest_processor_ns

    def clock_ns(self, clock: int) -> int:
        """Return the time of the clock with an id such as ``CLOCK_REALTIME``, in nanoseconds."""
        if clock == time.CLOCK_REALTIME:
            return self.now_ns()
        if clock in (time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID):
            return self.cpu_ns()
        return self.monotonic_ns()

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes that depend only on the seed and on the sizes of earlier draws.

        Without a seed, the bytes come from the system.
        """
        if not self._seed:
            return _real_urandom(count)
        generated = b""
        while len(generated) < count:
            self._random_block_count += 1
            generated += hashlib.sha256(b"%d/%b" % (self._random_block_count, self._seed)).digest()
        return generated[:count]

    def install(self) -> None:
        """Patch the standard library. This is slow, so do it before there is a script to run."""
        self._patch_random()
        self._patch_clocks()
        date_type = _date_type(self.now)
        datetime_type = _datetime_type(self.now, date_type)
        # Each loader sets its own types, because loads can be nested: a module in C may import a
        # module in Python while it is loaded, and the reverse.
        _patch_during_load(SourceFileLoader, "exec_module", date_type, datetime_type)
        for step in ("create_module", "exec_module"):
            _patch_during_load(ExtensionFileLoader, step, _REAL_DATE, _REAL_DATETIME)
        dt.date = date_type
        dt.datetime = datetime_type

    def _patch_random(self) -> None:
        module: Any = random
        os.urandom = module._urandom = self.random_bytes
        module.Random.seed = _replayable_seed(module.Random.seed, self.random_bytes)
        # ``random.seed`` is a method of the module's generator, bound before the patch.
        module.seed = module._inst.seed

    def _patch_clocks(self) -> None:
        # These C functions of uuid1() would use the system's clock.
        _uuid._generate_time_safe = _uuid._UuidCreate = None
        time.time_ns = self.now_ns
        time.time = self.now
        for name in ("monotonic", "perf_counter"):
            _set_clock(name, self.monotonic_ns)
        for name in ("process_time", "thread_time"):
            _set_clock(name, self.cpu_ns)
        _set_clock("clock_gettime", self.clock_ns)
        for name in ("localtime", "gmtime", "ctime"):
            setattr(time, name, _with_default_time(getattr(time, name), self.now))
        time.asctime = _with_default_date(time.asctime, date_index=0)
        time.strftime = _with_default_date(time.strftime, date_index=1)


_real_time_ns = time.time_ns
_real_process_time_ns = time.process_time_ns
_real_urandom = os.urandom


def _set_clock(name: str, reader: Callable[..., int]) -> None:
    """Replace a clock function of the module ``time`` and its variant in nanoseconds.

    Only ``clock_gettime`` has an argument: the id of the clock.
    """

    def seconds(*clock: int) -> float:
        return reader(*clock) / 1e9

    setattr(time, f"{name}_ns", reader)
    setattr(time, name, seconds)


def _replayable_seed(
    original_seed: Callable[..., None], random_bytes: Callable[[int], bytes]
) -> Callable[..., None]:
    """Return a replacement of ``Random.seed`` that draws an omitted seed from ``random_bytes``."""

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        # Without a seed, Python would use the system's randomness, which cannot be replayed.
        if a is None:
            a = random_bytes(32)
        original_seed(self, a, version)

    return seed


def _with_default_time(real: Callable[..., Any], now: Callable[[], float]) -> Callable[..., Any]:
    """Wrap a function such as ``localtime``, so that the default is the script's time."""

    def function_of_time(secs: float | None = None) -> Any:
        if secs is None:
            secs = now()
        return real(secs)

    return function_of_time


def _with_default_date(real: Callable[..., str], date_index: int) -> Callable[..., str]:
    """Wrap a function such as ``strftime``, so that an omitted date means the script's time.

    Args:
        real: The function.
        date_index: The index of the optional date among the function's arguments.
    """

    def function_of_date(*args: Any) -> str:
        if len(args) > date_index:
            return real(*args)
        # The real function would use the system's time. install() has replaced localtime(),
        # which therefore returns the script's time.
        return real(*args, time.localtime())

    return function_of_date


def _patch_during_load(loader: type, step: str, date_type: Any, datetime_type: Any) -> None:
    """Patch a method that loads modules, so that the loaded modules import the given types.

    Modules in Python get Python classes that replace ``date`` and ``datetime``. Modules in C get
    the original types, because types in C that derive from the Python classes would recurse
    endlessly.

    Args:
        loader: The class of the loader.
        step: The name of the method, which creates or runs a module.
        date_type: The type that ``datetime.date`` is while the method runs.
        datetime_type: The type that ``datetime.datetime`` is while the method runs.
    """
    load = getattr(loader, step)

    def load_with_types(self: Any, module_or_spec: Any) -> Any:
        # The loaded module may keep the types, as in ``from datetime import date``.
        previous_date_type = dt.date
        previous_datetime_type = dt.datetime
        dt.date = date_type
        dt.datetime = datetime_type
        try:
            return load(self, module_or_spec)
        finally:
            dt.date = previous_date_type
            dt.datetime = previous_datetime_type

    setattr(loader, step, load_with_types)


_TEXT_METHODS = frozenset(
    {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "count"}
    | {"strip", "ljust", "rjust", "lower", "upper"}
)


class _ComparableWithText:
    """A mixin that lets scripts use a date like its ISO 8601 text, which many scripts expect."""

    __slots__ = ()
    __iter__ = None  # otherwise Python would iterate a date by its ``__getitem__``

    @classmethod
    def fromisoformat(cls, text: Any) -> Any:
        """Parse a text as the standard library does; a date or datetime is accepted, too."""
        parent: Any = super()
        if isinstance(text, _REAL_DATE):
            text = text.isoformat()
            if not issubclass(cls, _REAL_DATETIME):
                text = text[:10]  # without the time
        return parent.fromisoformat(text)

    @classmethod
    def strptime(cls, text: Any, format: str) -> Any:
        """Parse a text as the standard library does; a date or datetime is accepted, too."""
        parent: Any = super()
        if isinstance(text, _REAL_DATE):
            text = text.strftime(format)
        return parent.strptime(text, format)

    def __getitem__(self: Any, key: Any) -> str:
        """Return a part of the ISO 8601 text: scripts take ``date[:7]`` for the month."""
        return self.isoformat()[key]

    def __contains__(self: Any, part: str) -> bool:
        """Return True if the ISO 8601 text has a part, as in ``"2026-05" in date``."""
        return part in self.isoformat()

    def __getattr__(self: Any, name: str) -> Any:
        """Return a method of the ISO 8601 text, so that ``date.startswith("2026")`` works."""
        if name in _TEXT_METHODS:
            return getattr(self.isoformat(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sub__(self: Any, other: Any) -> Any:
        """Subtract as the standard library does, and also a date from a datetime.

        The date stands for midnight of that day, in the time zone of the datetime.
        """
        parent: Any = super()
        has_no_time = isinstance(other, _REAL_DATE) and not isinstance(other, _REAL_DATETIME)
        if has_no_time and isinstance(self, _REAL_DATETIME):
            # A copy of this datetime, and not a new datetime, keeps the time zone.
            other = self.replace(
                year=other.year, month=other.month, day=other.day, hour=0, minute=0, second=0,
                microsecond=0,
            )  # fmt: skip
        return parent.__sub__(other)


def _comparison_method(name: str) -> Callable[[Any, Any], Any]:
    """Build a comparison method that also compares a date with its ISO 8601 text.

    Args:
        name: The name of the method, such as ``__lt__``.
    """

    def compare(self: Any, other: Any) -> Any:
        if isinstance(other, str):
            try:
                other = self.fromisoformat(other)
            except ValueError:
                return NotImplemented
            # A text without a time zone is a time in the zone of this datetime.
            if isinstance(other, _REAL_DATETIME) and other.tzinfo is None:
                other = other.replace(tzinfo=self.tzinfo)
        # The method of the real date or datetime, which is the next base class after this one.
        return getattr(super(_ComparableWithText, self), name)(other)

    return compare


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(_ComparableWithText, _name, _comparison_method(_name))


class _DateMeta(abc.ABCMeta):
    """The metaclass of the replacements for ``date`` and ``datetime``.

    In scripts, subclasses replace ``datetime.date`` and ``datetime.datetime``. Modules in C go on
    creating instances of the original types. With this metaclass, ``isinstance(value, date)`` is
    True for both in scripts. A class that a script derives has only its own instances.
    """

    def _real_type(cls) -> type | None:
        """Return the type that this class replaces; None for a class derived by a script."""
        return vars(cls).get("__delf_replaces__")

    def __instancecheck__(cls, instance: object) -> bool:
        real_type = cls._real_type()
        if real_type is not None:
            return isinstance(instance, real_type)
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        real_type = cls._real_type()
        if real_type is not None:
            return issubclass(subclass, real_type)
        return super().__subclasscheck__(subclass)


def _copy_name_and_limits(replacement: Any, real_type: Any) -> None:
    """Give a replacement the name and the limits of the real date type."""
    replacement.__delf_replaces__ = real_type  # for the type checks of _DateMeta
    replacement.__name__ = replacement.__qualname__ = real_type.__name__
    replacement.__module__ = "datetime"
    # This fromisoformat() converts a real date, not only text, to the replacement.
    replacement.min = replacement.fromisoformat(real_type.min)
    replacement.max = replacement.fromisoformat(real_type.max)


def _date_type(unix_time: Callable[[], float]) -> Any:
    """Build a replacement for ``date`` that uses the script's clock."""

    class ScriptDate(_ComparableWithText, _REAL_DATE, metaclass=_DateMeta):
        __slots__ = ()

        def __repr__(self) -> str:
            text = super().__repr__()  # such as ``date(2026, 5, 1)``
            # ``datetime.date(2026, 5, 1)``, as in Python. If the script derives a class ``Holiday``
            # from this class, an instance of it is shown as ``Holiday(2026, 5, 1)``.
            return _add_module(text) if type(self) is ScriptDate else text

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(unix_time())

    _copy_name_and_limits(ScriptDate, _REAL_DATE)
    return ScriptDate


def _datetime_type(unix_time: Callable[[], float], date_type: Any) -> Any:
    """Build a replacement for ``datetime`` that uses the script's clock.

    Args:
        unix_time: Returns the time of the script's clock in seconds.
        date_type: The replacement for ``date``.
    """

    class ScriptDatetime(_ComparableWithText, _REAL_DATETIME, metaclass=_DateMeta):
        __slots__ = ()

        def __repr__(self) -> str:
            text = super().__repr__()  # such as ``datetime(2026, 5, 1, 9, 30)``
            # ``datetime.datetime(2026, 5, 1, 9, 30)``, as in Python. If the script derives a class
            # ``Meeting`` from this class, an instance is shown as ``Meeting(2026, 5, 1, 9, 30)``.
            return _add_module(text) if type(self) is ScriptDatetime else text

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(unix_time(), tz)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(unix_time())

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(unix_time(), _UTC).replace(tzinfo=None)

        def date(self) -> Any:
            return date_type(self.year, self.month, self.day)

    _copy_name_and_limits(ScriptDatetime, _REAL_DATETIME)
    return ScriptDatetime


_UTC = dt.UTC


def _add_module(text: str) -> str:
    """Return the ``repr`` of a date with the name of its module, ``datetime.``, in front."""
    return f"datetime.{text.removeprefix('datetime.')}"
