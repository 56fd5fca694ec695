"""Shared parts of the suites."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, NoReturn, TypeVar

import pytest

from delf.errors import DelfError
from delf_devkit.testing.contracts import leavings
from delf_devkit.testing.contracts.guard import (
    blocking_calls,
    function_name_of,
    guarded,
    install_audit_hook,
    place_of,
    started_programs,
    watched_loop,
)
from delf_devkit.testing.contracts.leaks import captured_logs, reprs_of, secrets_of, texts_of

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_NEEDS = "__delf_needs__"
_LOOP_SECONDS = 0.25
_LOOP_TRIES = 3
_FIRST_SECONDS = 1.5
IN_A_COMMAND: Final = (
    "a secret is on the command line of a program, which every user of the machine can list: give "
    "it by the environment or a pipe"
)


def needs(*flags: str) -> Callable[[F], F]:
    """Return a decorator for a test of optional features.

    A suite collects the test only if its class has all flags.

    Args:
        flags: Names of class attributes that must be true. ``limits:cpu`` requires that the
            attribute ``limits`` contains ``cpu``.
    """

    def mark(function: F) -> F:
        setattr(function, _NEEDS, flags)
        return function

    return mark


class Contract:
    """The base class of all suites.

    ``seconds`` is the timeout of each awaited step. After a test, fixtures with an ``aclose``
    method are closed. ``secrets`` are keys and passwords that must never be shown.
    """

    seconds: ClassVar[float] = 20.0
    hides_secrets: ClassVar[bool] = True
    """True if printed failures must show no secret of the tested plugin."""
    secrets: ClassVar[Sequence[str]] = ()
    """The keys and passwords of the tested objects, in addition to those in ``SecretStr``."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the class's async tests with :func:`guarded`.

        Disable the inherited tests that a flag of the class switches off.
        """
        super().__init_subclass__(**options)
        install_audit_hook()
        for name, function in _test_functions(cls):
            is_inherited = name not in vars(cls)
            if is_inherited and hasattr(function, _NEEDS):
                is_enabled = all(_is_on(cls, flag) for flag in getattr(function, _NEEDS))
                # pytest ignores a test that is None. Set an enabled test, too, because a base class
                # may have disabled it.
                setattr(cls, name, function if is_enabled else None)
            elif not is_inherited and inspect.iscoroutinefunction(function):
                guarded_function = guarded(function, lambda suite: suite.seconds)
                setattr(cls, name, pytest.mark.asyncio(guarded_function))

    async def within(self, work: Awaitable[T], seconds: float) -> T:
        """Return the result of an awaitable; fail the test after ``seconds``."""
        __tracebackhide__ = True
        task = asyncio.ensure_future(work)
        try:
            # Unlike wait_for(), wait() does not cancel the task at the timeout, so that the message
            # can name the line at which the task waits.
            finished, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not finished:
            what = f"{function_name_of(work)} has not ended after {seconds:g} s{place_of(work)}"
            task.cancel()
            pytest.fail(what, pytrace=False)
        return task.result()

    def check_message_explains(self, error: DelfError) -> None:
        """Fail if the message of an error is a single word, which cannot name a cause."""
        __tracebackhide__ = True
        assert len(error.message.split()) > 1, (
            f"it raises {error.message!r}: a script and its user learn nothing; say what was "
            "wrong, where, and what to do"
        )

    async def check_loop_stays_free(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Await an operation, and fail if it blocks the event loop.

        The operation is repeated, because a single slow run may be caused by the machine.
        """
        __tracebackhide__ = True
        where = ""
        for attempt in range(_LOOP_TRIES):
            with blocking_calls() as calls:
                async with watched_loop() as watch:
                    await work()
            pause = watch.longest_pause
            if calls:
                pytest.fail(f"it waits on the event loop, in {calls[0]}; use a thread, or await")
            if watch.longest_pause_at:
                where = f" at {watch.longest_pause_at}"
            # A first run may be slow once, because it imports modules, but not for seconds.
            is_first = attempt == 0
            if is_first and pause > _FIRST_SECONDS:
                pytest.fail(
                    f"at first it held the event loop for {pause:.2g} s{where}; use a thread"
                )
            if pause < _LOOP_SECONDS:
                return
        pytest.fail(f"it held the event loop for {_LOOP_SECONDS:g} s or more{where}; use a thread")

    check_nothing_remains = staticmethod(leavings.check_nothing_remains)

    async def check_no_secret_is_shown(
        self, subject: Any, use: Callable[[], Awaitable[Any]]
    ) -> None:
        """Use an object; fail if its ``repr``, its result, an error or a log shows a secret.

        The command lines of started programs are checked, too.

        Args:
            subject: The object.
            use: Uses the object.
        """
        __tracebackhide__ = True
        secrets = secrets_of(self, {"subject": subject})
        # A shared journal has an attribute ``place``: its path or address, which delf shows to
        # people. A password in the address must not be part of it.
        text_of_place = str(getattr(subject, "place", ""))
        texts = [*reprs_of(subject), text_of_place]
        with captured_logs() as lines, started_programs() as programs:
            try:
                texts.append(repr(await use()))
            except Exception as error:
                texts += map(texts_of, chained_exceptions(error))
        suite_name = type(self).__name__
        for text in texts:
            secrets.check(text, f"{suite_name}: a secret is in a repr, a result or an error")
        for line in lines:
            secrets.check(line, f"{suite_name}: a secret is logged or printed")
        for line in programs:
            secrets.check(line, f"{suite_name}: {IN_A_COMMAND}")


def _test_functions(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the name and the function of every test of a class.

    For a test that a flag of a subclass has disabled, yield the function of the base class.
    """
    for name in dir(cls):
        if name.startswith("test_"):
            members = (vars(base).get(name) for base in cls.__mro__)
            # A disabled test has the value None.
            function = next((item for item in members if item is not None), None)
            if function is not None:
                yield name, function


def _is_on(cls: type, flag: str) -> bool:
    """Return True if a class has a flag of :func:`needs`, such as ``durable`` or ``limits:cpu``."""
    name, _, item = flag.partition(":")
    value: Any = getattr(cls, name)
    return item in value if item else bool(value)


async def cancel_after_iterations(work: Callable[[], Awaitable[Any]], iterations: int) -> bool:
    """Start an operation, cancel it after some iterations of the event loop, and await its end.

    Returns:
        True if the operation was still running and ended as cancelled.

    Raises:
        AssertionError: If the cancelled operation failed with another error.
    """
    task = asyncio.ensure_future(work())
    for _ in range(iterations):
        await asyncio.sleep(0)
    was_running = task.cancel()
    await asyncio.wait({task})
    if was_running and not task.cancelled() and task.exception() is not None:
        raise AssertionError("a cancelled call failed with another error") from task.exception()
    return task.cancelled()


LOOP_ITERATIONS: Final = (0, 1, 2, 3, 5, 8, 13)
"""The numbers of iterations of the event loop after which operations are cancelled."""


async def open_with(make: Callable[[], Any]) -> Any:
    """Call a plain or async function that opens something, and return what it has opened."""
    made = make()
    return await made if inspect.isawaitable(made) else made


def fail_without(suite: object, what: str) -> NoReturn:
    """Fail the test because its suite does not define something that the suite must define."""
    pytest.fail(f"{type(suite).__name__} needs {what}", pytrace=False)


def chained_exceptions(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all exceptions chained to it."""
    visited: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in visited:
        visited.append(current)
        yield current
        cause = current.__cause__
        if cause is None and not current.__suppress_context__:
            cause = current.__context__
        current = cause
