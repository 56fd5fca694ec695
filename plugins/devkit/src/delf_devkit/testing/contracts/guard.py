"""Guards of a suite: what hangs is named, and so is what holds the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import linecache
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

_KIT: Final = str(Path(__file__).parent.parent)
_LOOKS: Final = 8
"""How often it is looked, within the time that something may take."""


def guarded(function: Callable[..., Any], seconds_of: Callable[[Any], float]) -> Callable[..., Any]:
    """An async test of which no step takes longer than it may.

    Args:
        function: The test.
        seconds_of: What a step of a suite may take.
    """

    @functools.wraps(function)
    async def run(self: Any, *arguments: Any, **named: Any) -> None:
        __tracebackhide__ = True
        seconds = seconds_of(self)
        work = function(self, *arguments, **named)
        task = asyncio.ensure_future(work)
        step: object = None
        looks = 0
        try:
            with _alarm(seconds) as alarm:
                while not task.done():
                    await asyncio.wait({task}, timeout=seconds / _LOOKS)
                    alarm()
                    current = _step(work)
                    looks = looks + 1 if current is step and current is not None else 0
                    step = current
                    if looks >= _LOOKS and not task.done():
                        what = f"{hanging(step)} has not ended after {seconds:g} s"
                        pytest.fail(what + place_of(step), pytrace=False)
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=seconds / _LOOKS)

    return run


def hanging(work: object) -> str:
    """What something awaited is called: ``Store.aclose``.

    Args:
        work: A coroutine, a future, or what ``anext`` gives.
    """
    if isinstance(work, asyncio.Task):
        work = work.get_coro()
    name = getattr(work, "__qualname__", None)
    if name is None:
        kind = type(work).__name__
        return "the next item of its iterator" if kind.startswith("async_generator") else kind
    return str(name).replace(".<locals>", "")


def place_of(work: object) -> str:
    """Where it waits, as the end of a message; nothing where that is not known.

    Args:
        work: What is awaited.
    """
    frames = list(_frames(work))
    if not frames:
        return ""
    return f": it waits at {_line(frames[-1].f_code, frames[-1].f_lineno)}"


def _line(code: CodeType, number: int) -> str:
    source = linecache.getline(code.co_filename, number).strip()
    return f"{Path(code.co_filename).name}:{number}" + (f", `{source}`" if source else "")


def _frames(work: object) -> Generator[FrameType]:
    """The frames of what is awaited, from the outside in."""
    current: Any = work
    while current is not None:
        if isinstance(current, asyncio.Task):
            current = current.get_coro()
        for kind in ("cr", "ag", "gi"):
            frame = getattr(current, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                current = getattr(current, f"{kind}_await", None) or getattr(
                    current, f"{kind}_yieldfrom", None
                )
                break
        else:
            return


def _step(work: Any) -> object:
    """What the innermost frame of a suite awaits; None where that has a guard of its own."""
    current = work
    while True:
        frame = getattr(current, "cr_frame", None)
        if frame is None or not frame.f_code.co_filename.startswith(_KIT):
            return current
        if frame.f_code.co_name == "within":
            return None
        inner = getattr(current, "cr_await", None)
        if inner is None:
            return None
        current = inner


@contextlib.contextmanager
def _alarm(seconds: float) -> Generator[Callable[[], None]]:
    """Fail where the event loop itself does not turn; what is given says that it does.

    By a signal, as nothing else interrupts what holds a thread. Where there is none, or where
    somebody else uses it, as pytest-timeout, nothing is done.
    """
    usable = (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )
    if not usable:
        yield lambda: None
        return

    def held(_number: int, frame: FrameType | None) -> None:
        where = "" if frame is None else f" at {_line(frame.f_code, frame.f_lineno)}"
        pytest.fail(f"the event loop has been held for {seconds:g} s{where}; use a thread")

    before = signal.signal(signal.SIGALRM, held)

    def again() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    again()
    try:
        yield again
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- what blocks, however quick it is ------------------------------------------------------------

_BLOCKS: Final = {
    "time.sleep": "time.sleep",
    "socket.getaddrinfo": "socket.getaddrinfo",
    "socket.gethostbyname": "socket.gethostbyname",
    "sqlite3.connect": "sqlite3.connect",
    "os.system": "os.system",
}
_listeners: list[Callable[[str, tuple[Any, ...]], None]] = []
_installed = threading.Event()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for listener in _listeners:
        listener(event, arguments)


@contextlib.contextmanager
def blocking_calls() -> Generator[list[str]]:
    """What is called meanwhile on this thread's event loop that waits, by Python's own audit."""
    if not _installed.is_set():
        _installed.set()
        sys.addaudithook(_hook)  # there is no way to remove one
    thread, found = threading.get_ident(), list[str]()

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if threading.get_ident() != thread:
            return
        name = _BLOCKS.get(event)
        if event == "socket.connect" and arguments[0].gettimeout() != 0:
            name = "a blocking connect"
        if event == "time.sleep" and not arguments[0]:
            name = None  # it lets other threads go first
        if name is not None:
            found.append(f"{name} at {_caller()}")

    _listeners.append(listen)
    try:
        yield found
    finally:
        _listeners.remove(listen)


def _caller() -> str:
    """The innermost frame that is of neither Python, nor an installed package, nor this kit."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    last = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_KIT, "<frozen")) and name != __file__:
            last = frame
            if "site-packages" not in name and not name.startswith(sys.base_prefix):
                break
        frame = frame.f_back
    return "?" if last is None else _line(last.f_code, last.f_lineno)
