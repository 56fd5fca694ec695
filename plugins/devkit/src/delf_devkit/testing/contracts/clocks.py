"""Clocks that a test moves: a plugin's clock functions, and the timers of an event loop."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest

# Offsets from now to seven test days, which differ in weekday, year, hour and minute.
_OFFSETS: Final = [dt.timedelta(days=400 + 31 * n, hours=5 + 3 * n, minutes=7) for n in range(7)]
OTHER_DAYS: Final = len(_OFFSETS)


@contextlib.contextmanager
def another_day(subject: object, number: int = 0) -> Generator[None]:
    """Make an object's package see another date and time, whichever clock function it uses.

    Args:
        subject: The object.
        number: The number of the test day, below ``OTHER_DAYS``.
    """
    package = type(subject).__module__.partition(".")[0]
    offset = _OFFSETS[number]
    clocks = _Clocks(offset)
    # The clocks of the other day, by the function or class that each one replaces.
    moved: dict[Any, Any] = {
        dt.datetime: _moved_datetime(offset),
        dt.date: _moved_date(offset),
        time.time: clocks.time,
        time.time_ns: clocks.time_ns,
        time.localtime: clocks.default(time.localtime),
        time.gmtime: clocks.default(time.gmtime),
        time.ctime: clocks.default(time.ctime),
        time.asctime: clocks.asctime,
        time.clock_gettime: clocks.gettime(time.clock_gettime, 1),
        time.clock_gettime_ns: clocks.gettime(time.clock_gettime_ns, 10**9),
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
    """Replacements for the functions of :mod:`time` that return a moved time.

    Args:
        offset: The time from the real time to the moved time.
    """

    def __init__(self, offset: dt.timedelta) -> None:
        self._seconds = round(offset.total_seconds())
        self._time, self._time_ns = time.time, time.time_ns
        self._local, self._strftime, self._asctime = time.localtime, time.strftime, time.asctime

    def time(self) -> float:
        return self._time() + self._seconds

    def time_ns(self) -> int:
        return self._time_ns() + self._seconds * 10**9

    def default(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function such as ``time.localtime``; without an argument, use the shifted time."""

        def shifted(seconds: float | None = None, /) -> Any:
            return real(self.time() if seconds is None else seconds)

        return shifted

    def asctime(self, *given: Any) -> str:
        return self._asctime(*(given or (self._local(self.time()),)))

    def strftime(self, form: str, *given: Any) -> str:
        return self._strftime(form, *(given or (self._local(self.time()),)))

    def gettime(self, real: Callable[[int], Any], unit: int) -> Callable[[int], Any]:
        """Wrap ``clock_gettime``: add the offset to the wall clock, and to no other clock.

        Args:
            real: The function to wrap, such as ``time.clock_gettime``.
            unit: The number of the function's time units in a second.
        """

        def shifted(clock: int, /) -> Any:
            is_wall_clock = clock == time.CLOCK_REALTIME
            offset = self._seconds * unit if is_wall_clock else 0
            return real(clock) + offset

        return shifted


class _AcceptsReal(type):
    """A metaclass for a replacement of ``date`` or ``datetime`` with another current time.

    Objects of the replaced class, ``real``, count as instances of the replacement.
    """

    real: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)


def _moved_datetime(offset: dt.timedelta) -> Any:
    """Return a replacement of ``datetime`` whose current time is later by ``offset``.

    The replacement makes instances of the real class, so that they compare as usual.
    """
    real = dt.datetime

    class Moved(real, metaclass=_AcceptsReal):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            return real(*given, **named)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real.now(tz) + offset

        @classmethod
        def today(cls) -> Any:
            return real.now() + offset

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(dt.UTC).replace(tzinfo=None) + offset

    Moved.real = real
    return Moved


def _moved_date(offset: dt.timedelta) -> Any:
    """Return a replacement of ``date`` whose ``today()`` is later by ``offset``.

    The replacement makes instances of the real class, so that they compare as usual.
    """
    real = dt.date

    class Moved(real, metaclass=_AcceptsReal):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            return real(*given, **named)

        @classmethod
        def today(cls) -> Any:
            return real.today() + offset

    Moved.real = real
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
