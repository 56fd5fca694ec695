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
    # The shifted clocks, by the function or class that each one replaces.
    shifted_clocks: dict[Any, Any] = {
        dt.datetime: _shifted_datetime(shift),
        dt.date: _shifted_date(shift),
        **_shifted_functions(round(shift.total_seconds())),
    }
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module in (dt, time, *modules):
            for name, value in list(vars(module).items()):
                with contextlib.suppress(TypeError):  # unhashable, so not a clock
                    if value in shifted_clocks:
                        patch.setattr(module, name, shifted_clocks[value])
        yield


def _shifted_functions(seconds: int) -> dict[Any, Callable[..., Any]]:
    """Return replacements for the functions of :mod:`time`, whose wall clock is ahead."""
    # The real functions, because the names in ``time`` are patched while the clocks are used.
    real_time, real_time_ns = time.time, time.time_ns
    real_localtime, real_strftime = time.localtime, time.strftime

    def now() -> float:
        return real_time() + seconds

    def local_now() -> time.struct_time:
        return real_localtime(now())

    def with_default(function: Callable[..., Any], default: Callable[[], Any]) -> Any:
        def function_with_shifted_default(moment: Any = None, /) -> Any:
            return function(default() if moment is None else moment)

        return function_with_shifted_default

    def strftime(form: str, *moment: Any) -> str:
        return real_strftime(form, *(moment or (local_now(),)))

    def with_wall_clock(gettime: Callable[[int], Any], unit: int) -> Callable[[int], Any]:
        def shifted_gettime(clock: int, /) -> Any:
            return gettime(clock) + (seconds * unit if clock == time.CLOCK_REALTIME else 0)

        return shifted_gettime

    return {
        time.time: now,
        time.time_ns: lambda: real_time_ns() + seconds * 10**9,
        time.localtime: with_default(time.localtime, now),
        time.gmtime: with_default(time.gmtime, now),
        time.ctime: with_default(time.ctime, now),
        time.asctime: with_default(time.asctime, local_now),
        time.strftime: strftime,
        time.clock_gettime: with_wall_clock(time.clock_gettime, 1),
        time.clock_gettime_ns: with_wall_clock(time.clock_gettime_ns, 10**9),
    }


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


def _shifted_datetime(shift: dt.timedelta) -> Any:
    """Return a replacement of ``datetime`` whose current time is later by ``shift``.

    The replacement makes instances of the real class, so that they compare as usual.
    """
    real_datetime = dt.datetime

    class Shifted(real_datetime, metaclass=_ReplacementOfRealClass):
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

    Shifted.real_class = real_datetime
    return Shifted


def _shifted_date(shift: dt.timedelta) -> Any:
    """Return a replacement of ``date`` whose ``today()`` is later by ``shift``.

    The replacement makes instances of the real class, so that they compare as usual.
    """
    real_date = dt.date

    class Shifted(real_date, metaclass=_ReplacementOfRealClass):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            # A real date, which compares and computes with others as usual.
            return real_date(*given, **named)

        @classmethod
        def today(cls) -> Any:
            return real_date.today() + shift

    Shifted.real_class = real_date
    return Shifted


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
