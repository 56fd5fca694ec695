"""Clocks that a test moves: a plugin's clock functions, and the timers of an event loop."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest

# Shifts of the clock to seven test days, which differ in weekday, year, hour and minute.
TESTED_SHIFTS: Final = tuple(
    dt.timedelta(days=400 + 31 * n, hours=5 + 3 * n, minutes=7) for n in range(7)
)


@contextlib.contextmanager
def shifted_clock(subject: object, shift: dt.timedelta) -> Generator[None]:
    """Make an object's package see a later date and time, whichever clock function it uses."""
    package = type(subject).__module__.partition(".")[0]
    clocks = _Clocks(shift)
    # The shifted clocks, by the function or class that each one replaces.
    moved: dict[Any, Any] = {
        dt.datetime: _moved_datetime(shift),
        dt.date: _moved_date(shift),
        time.time: clocks.time,
        time.time_ns: clocks.time_ns,
        time.localtime: clocks.with_shifted_default(time.localtime),
        time.gmtime: clocks.with_shifted_default(time.gmtime),
        time.ctime: clocks.with_shifted_default(time.ctime),
        time.asctime: clocks.asctime,
        time.clock_gettime: clocks.shifted_gettime(time.clock_gettime, 1),
        time.clock_gettime_ns: clocks.shifted_gettime(time.clock_gettime_ns, 10**9),
        time.strftime: clocks.strftime,
    }
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module in (dt, time, *modules):
            for name, value in list(vars(module).items()):
                with contextlib.suppress(TypeError):  # unhashable, so not a clock
                    if value in moved:
                        patch.setattr(module, name, moved[value])
        yield


class _Clocks:
    """Replacements for the functions of :mod:`time`, which shift the real time.

    Args:
        shift: The duration to add to the real time.
    """

    def __init__(self, shift: dt.timedelta) -> None:
        self._shift_seconds = round(shift.total_seconds())
        # The real functions, because the names in ``time`` are patched while the clocks are used.
        self._time, self._time_ns = time.time, time.time_ns
        self._local, self._strftime, self._asctime = time.localtime, time.strftime, time.asctime

    def time(self) -> float:
        """Return the real time plus the shift, in seconds since 1970."""
        return self._time() + self._shift_seconds

    def time_ns(self) -> int:
        """Return the real time plus the shift, in nanoseconds since 1970."""
        return self._time_ns() + self._shift_seconds * 10**9

    def with_shifted_default(self, real_function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function such as ``time.localtime``; without an argument, use the shifted time."""

        def function_with_shifted_default(seconds: float | None = None, /) -> Any:
            return real_function(self.time() if seconds is None else seconds)

        return function_with_shifted_default

    def asctime(self, *given: Any) -> str:
        return self._asctime(*(given or (self._local(self.time()),)))

    def strftime(self, form: str, *given: Any) -> str:
        return self._strftime(form, *(given or (self._local(self.time()),)))

    def shifted_gettime(
        self, real_function: Callable[[int], Any], unit: int
    ) -> Callable[[int], Any]:
        """Wrap ``clock_gettime``: shift the wall clock, and no other clock.

        Args:
            real_function: The function to wrap, such as ``time.clock_gettime``.
            unit: The number of the function's time units in a second.
        """

        def shifted_function(clock: int, /) -> Any:
            is_wall_clock = clock == time.CLOCK_REALTIME
            shift = self._shift_seconds * unit if is_wall_clock else 0
            return real_function(clock) + shift

        return shifted_function


class _ReplacementOfRealClass(type):
    """A metaclass for a replacement of ``date`` or ``datetime`` with another current time."""

    real_class: type

    def __instancecheck__(cls, instance: object) -> bool:
        """Return True for an instance of the real class, such as a real ``datetime``.

        All methods of a replacement return such instances. A plugin that got one from
        ``datetime.now()`` may check it with ``isinstance(value, datetime)``, where ``datetime`` is
        now the replacement.
        """
        return isinstance(instance, cls.real_class)

    def __subclasscheck__(cls, subclass: type) -> bool:
        """Accept what the replaced class accepts, as :meth:`__instancecheck__` does."""
        return issubclass(subclass, cls.real_class)


def _moved_datetime(shift: dt.timedelta) -> Any:
    """Return a replacement of ``datetime`` whose current time is later by ``shift``.

    The replacement makes instances of the real class, so that they compare as usual.
    """
    real_datetime = dt.datetime

    class Moved(real_datetime, metaclass=_ReplacementOfRealClass):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            # A real datetime, which compares and computes with others as usual.
            return real_datetime(*given, **named)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real_datetime.now(tz) + shift

        @classmethod
        def today(cls) -> Any:
            return real_datetime.now() + shift

        @classmethod
        def utcnow(cls) -> Any:
            return real_datetime.now(dt.UTC).replace(tzinfo=None) + shift

    Moved.real_class = real_datetime
    return Moved


def _moved_date(shift: dt.timedelta) -> Any:
    """Return a replacement of ``date`` whose ``today()`` is later by ``shift``.

    The replacement makes instances of the real class, so that they compare as usual.
    """
    real_date = dt.date

    class Moved(real_date, metaclass=_ReplacementOfRealClass):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            # A real date, which compares and computes with others as usual.
            return real_date(*given, **named)

        @classmethod
        def today(cls) -> Any:
            return real_date.today() + shift

    Moved.real_class = real_date
    return Moved


@contextlib.contextmanager
def clock_ahead() -> Generator[Callable[[float], None]]:
    """Let a test advance the event loop's clock: the yielded function takes a number of seconds.

    An event loop with a clock of its own, such as uvloop's, does not advance.
    """
    real_monotonic, real_time = time.monotonic, time.time
    ahead = 0.0

    def move(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    time.monotonic, time.time = lambda: real_monotonic() + ahead, lambda: real_time() + ahead
    try:
        yield move
    finally:
        time.monotonic, time.time = real_monotonic, real_time
