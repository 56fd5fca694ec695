"""Clocks that a test moves: for all that a plugin asks the time, and for an event loop."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest

_AWAY: Final = dt.timedelta(days=400, hours=5, minutes=7, seconds=9)
"""Another year, month, weekday, hour and minute."""


@contextlib.contextmanager
def another_day(subject: object) -> Generator[None]:
    """Make an object's package see another day, whichever clock function it uses."""
    package = type(subject).__module__.partition(".")[0]
    later: dict[Any, Any] = {
        dt.datetime: _moved_datetime(),
        dt.date: _moved_date(),
        time.time: _later(time.time),
        time.time_ns: _nanoseconds_later(),
        time.localtime: _default_later(time.localtime),
        time.gmtime: _default_later(time.gmtime),
        time.ctime: _default_later(time.ctime),
        time.strftime: _formatted_later(),
    }
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module in (dt, time, *modules):
            for name, value in list(vars(module).items()):
                with contextlib.suppress(TypeError):  # unhashable, so not a clock
                    if value in later:
                        patch.setattr(module, name, later[value])
        yield


def _later(real: Callable[[], float]) -> Callable[[], float]:
    return lambda: real() + _AWAY.total_seconds()


def _default_later(real: Callable[..., Any]) -> Callable[..., Any]:
    now = time.time
    return lambda *given: real(*(given or (now() + _AWAY.total_seconds(),)))


def _formatted_later() -> Callable[..., str]:
    real, moment = time.strftime, _default_later(time.localtime)

    def formatted(form: str, *given: Any) -> str:
        return real(form, *(given or (moment(),)))

    return formatted


def _nanoseconds_later() -> Callable[[], int]:
    real = time.time_ns
    return lambda: real() + round(_AWAY.total_seconds()) * 10**9


class _LikeReal(type):
    """A metaclass that accepts objects of the real class as instances of the moved class."""

    real: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)


def _moved_datetime() -> Any:
    real = dt.datetime

    class Moved(real, metaclass=_LikeReal):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            return real(*given, **named)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real.now(tz) + _AWAY

        @classmethod
        def today(cls) -> Any:
            return real.now() + _AWAY

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(dt.UTC).replace(tzinfo=None) + _AWAY

    Moved.real = real
    return Moved


def _moved_date() -> Any:
    real = dt.date

    class Moved(real, metaclass=_LikeReal):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            return real(*given, **named)

        @classmethod
        def today(cls) -> Any:
            return real.today() + _AWAY

    Moved.real = real
    return Moved


@contextlib.contextmanager
def clock_ahead() -> Generator[Callable[[float], None]]:
    """Move all timers of the event loop on: call the yielded function with seconds.

    An event loop with a clock of its own, such as uvloop's, is not moved.
    """
    real, real_time = time.monotonic, time.time
    ahead = 0.0

    def move(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    time.monotonic, time.time = lambda: real() + ahead, lambda: real_time() + ahead
    try:
        yield move
    finally:
        time.monotonic, time.time = real, real_time
