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
    """Make the modules of an object's package see a later date and time.

    All clock functions of ``time`` and ``datetime`` are replaced while the block runs.
    """
    package = type(subject).__module__.partition(".")[0]
    real_now = dt.datetime.now

    def shifted(clock: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: clock(*given, **named) + shift

    # The shifted clocks, by the function or class that each one replaces.
    shifted_clocks: dict[Any, Any] = {
        dt.datetime: _shifted_class(
            dt.datetime,
            now=shifted(dt.datetime.now),
            today=shifted(dt.datetime.today),
            # Not by utcnow() itself, which warns that it is deprecated.
            utcnow=shifted(lambda: real_now(dt.UTC).replace(tzinfo=None)),
        ),
        dt.date: _shifted_class(dt.date, today=shifted(dt.date.today)),
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
    """Return replacements for functions of :mod:`time`, by the replaced function.

    The wall clock of the replacements is ``seconds`` ahead.
    """
    # Keep the real functions: the names in ``time`` are patched when the shifted clocks run.
    real_time, real_time_ns = time.time, time.time_ns
    real_localtime, real_strftime = time.localtime, time.strftime

    def now() -> float:
        return real_time() + seconds

    def local_now() -> time.struct_time:
        return real_localtime(now())

    # Without an argument, functions such as time.localtime() take the real time. Their replacements
    # take the shifted time.
    def with_default(function: Callable[..., Any], default: Callable[[], Any]) -> Any:
        def function_with_shifted_default(moment: Any = None, /) -> Any:
            return function(default() if moment is None else moment)

        return function_with_shifted_default

    def strftime(form: str, moment: Any = None, /) -> str:
        return real_strftime(form, local_now() if moment is None else moment)

    def with_wall_clock(
        gettime: Callable[[int], Any], units_per_second: int
    ) -> Callable[[int], Any]:
        def shifted_gettime(clock: int, /) -> Any:
            is_wall_clock = clock == time.CLOCK_REALTIME
            return gettime(clock) + (seconds * units_per_second if is_wall_clock else 0)

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
        """Return True for a subclass of the real class; see :meth:`__instancecheck__`."""
        return issubclass(subclass, cls.real_class)


def _shifted_class(real_class: type, **clocks: Callable[..., Any]) -> Any:
    """Return a replacement of ``date`` or ``datetime`` with another current time.

    The constructor of the replacement makes instances of the real class, so that they compare as
    usual.

    Args:
        real_class: ``date`` or ``datetime``.
        clocks: The functions that replace class methods such as ``now`` and ``today``, by name.
    """

    def make_real(_cls: type, *given: Any, **named: Any) -> Any:
        return real_class(*given, **named)

    members = {name: staticmethod(clock) for name, clock in clocks.items()}
    members |= {"__new__": make_real, "real_class": real_class}
    return _ReplacementOfRealClass(real_class.__name__, (real_class,), members)


@contextlib.contextmanager
def clock_ahead() -> Generator[Callable[[float], None]]:
    """Let a test advance the event loop's clock: the yielded function takes a number of seconds.

    An event loop with a clock of its own, such as uvloop's, does not advance.
    """
    real_monotonic, real_time = time.monotonic, time.time
    ahead = 0.0

    def advance(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    time.monotonic = lambda: real_monotonic() + ahead
    time.time = lambda: real_time() + ahead
    try:
        yield advance
    finally:
        time.monotonic, time.time = real_monotonic, real_time
