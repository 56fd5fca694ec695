"""Checks that a plugin leaves its process, classes and modules as they were."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

import pytest

_CHECK_SECONDS: Final = 0.01
# The number of checks before a closed plugin's tasks, threads and processes must have ended.
_MAX_CHECKS: Final = 100
# The beginnings of names of threads that belong to the event loop, not to a plugin.
_LOOP_THREADS: Final = ("asyncio_", "AnyIO", "delf")
_CONTAINERS: Final = (dict, list, set, deque, tuple, str)
_MUTABLE: Final = (dict, list, set, deque)
# The classes of objects that belong to one event loop, from their first use on.
_BOUND_TO_LOOP: Final = (
    asyncio.Lock,
    asyncio.Event,
    asyncio.Condition,
    asyncio.Semaphore,
    asyncio.Queue,
    asyncio.Future,
)
# The number of items above which a container counts as a table of constants.
_MAX_CONTAINER_ITEMS: Final = 1_000
_MIN_TEXT_CHARS: Final = 4
# The packages of delf itself and of pytest, which are no plugins: their state is not compared.
_EXEMPT_PACKAGES: Final = frozenset(
    {"delf", "delf_devkit", "delf_engine", "builtins", "_pytest", "pytest", "pytest_asyncio"}
)
_TEST_MODULE: Final = re.compile(r"(^|\.)(tests?|conftest|test_\w+|\w+_test)(\.|$)")
# The beginnings of paths that belong to the system, to Python or to installed packages.
_SYSTEM_PATHS: Final = ("/proc/", "/sys/", "/memfd:", sys.prefix, sys.base_prefix)
_USES: Final = 2
_MULTIPROCESSING_HELPERS: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


async def check_nothing_remains(
    subject: Any,
    use: Callable[[], Awaitable[Any]],
    close: Callable[[], Awaitable[Any]] | None = None,
    forbidden_texts: Iterable[str] = (),
    *,
    may_print: bool = False,
) -> None:
    """Use a plugin's object twice, close it, and check that the process is as before.

    The check fails if the object leaves threads, child processes, open files or shared state.

    Args:
        subject: The object.
        use: Uses the object in an ordinary way.
        close: Closes the object; when omitted, the object's ``aclose`` is called, if there is one.
        forbidden_texts: Texts that ``use`` passes to the object. The check fails if a class or
            module still contains one of the texts afterwards.
        may_print: Whether the object may print something.
    """
    __tracebackhide__ = True
    state_before = _process_state()
    threads_before = {*threading.enumerate()}
    tasks_before = asyncio.all_tasks()
    children_before = _children()
    opened_before = open_files()
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        capture = contextlib.nullcontext() if may_print else contextlib.redirect_stdout(printed)
        with capture:
            await _use_twice(subject, use, forbidden_texts)
            if close is not None:
                await close()
            elif hasattr(subject, "aclose"):
                await subject.aclose()
        # Wait for tasks and threads first: until they end, they may hold what is checked next.
        await _check_running(threads_before, tasks_before)
        files = sorted(path.name for path in Path(folder).iterdir())  # noqa: ASYNC240
    _check_process(state_before)
    assert not printed.getvalue(), (
        f"it prints {printed.getvalue()[:80]!r}: the answer of a task goes to the standard output "
        "of the command, and nothing else may; use logging"
    )
    _check_open_files(opened_before)
    assert not files, (
        f"the temporary file {files[0]!r} is left after aclose(): a long-lived agent fills the disk"
    )
    await _check_children(children_before)


async def _use_twice(
    subject: object, use: Callable[[], Awaitable[Any]], forbidden_texts: Iterable[str]
) -> None:
    """Use an object twice; fail if a class or module then has a forbidden text.

    Also fail if the second use changes variables of a class. The first use may change them, for
    example to fill a cache.
    """
    __tracebackhide__ = True
    shared = _SharedState(subject, forbidden_texts)
    await use()
    shared.remember()
    await use()
    shared.check()


def _check_open_files(opened_before: Sequence[str]) -> None:
    """Fail if each of two uses of an object left a file open."""
    __tracebackhide__ = True
    left_open = [path for path in open_files() if path not in opened_before]
    # A single open file may be a cache that both uses share. Two open files are one from each use.
    assert len(left_open) < _USES, (
        f"{left_open[0]} stays open after aclose(), once for each use: a process can open a "
        "limited number of files only"
    )


async def _check_children(children_before: AbstractSet[int]) -> None:
    """Fail if a new child process still runs after some seconds."""
    __tracebackhide__ = True
    new_children = list[int]()
    # A program that was asked to end may need some time.
    for _ in range(_MAX_CHECKS):
        new_children = [
            each for each in _children() - children_before if not _is_multiprocessing_helper(each)
        ]
        if not new_children:
            return
        await asyncio.sleep(_CHECK_SECONDS)
    pytest.fail(
        f"the program {_command(min(new_children))!r} still runs after aclose(): end what "
        "the plugin started"
    )


# -- what runs -----------------------------------------------------------------------------------


async def _check_running(
    threads_before: AbstractSet[threading.Thread], tasks_before: AbstractSet[asyncio.Task[Any]]
) -> None:
    """Fail if a new task or thread still runs after some seconds."""
    __tracebackhide__ = True
    for _ in range(_MAX_CHECKS):
        if not _names_of_new(threads_before, tasks_before):
            return
        await asyncio.sleep(_CHECK_SECONDS)
    running = _names_of_new(threads_before, tasks_before)
    # Cancel the remaining tasks, so that they do not disturb the next test.
    for task in asyncio.all_tasks() - tasks_before:
        task.cancel()
    assert not running, (
        f"{running[0]} still runs after aclose(): let aclose() end all tasks and threads that the "
        "plugin started, or they accumulate with each agent"
    )


def _names_of_new(
    threads_before: AbstractSet[threading.Thread], tasks_before: AbstractSet[asyncio.Task[Any]]
) -> list[str]:
    """Return the names of the tasks and threads that run now and did not run before.

    Leave out the threads of test servers and of the event loop.
    """
    new_tasks = [task for task in asyncio.all_tasks() - tasks_before if not task.done()]
    names = [f"the task {getattr(task.get_coro(), '__qualname__', '?')}" for task in new_tasks]
    for thread in {*threading.enumerate()} - threads_before:
        is_of_test_server = "process_request" in thread.name
        is_of_loop = thread.name.startswith(_LOOP_THREADS)
        if not is_of_test_server and not is_of_loop:
            names.append(f"the thread {thread.name!r}")
    return names


def _children() -> set[int]:
    """Return the running children of this process; an empty set without ``/proc``."""
    children: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            children |= {int(pid) for pid in path.read_text().split()}
    return {pid for pid in children if _command(pid) != ""}  # an ended process has an empty command


def open_files() -> list[str]:
    """Return the paths of this process's open files; empty where they cannot be listed."""
    paths: list[str] = []
    for link in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            path = str(link.readlink())
            # Shared memory is not a device: a plugin has to close it like a file.
            is_device = path.startswith("/dev/") and not path.startswith("/dev/shm/")  # noqa: S108
            is_file = path.startswith("/") and not is_device  # unlike "pipe:[4711]"
            if is_file and not path.startswith(_SYSTEM_PATHS):
                paths.append(path)
    return paths


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return "?"


def _is_multiprocessing_helper(pid: int) -> bool:
    return any(name in _command(pid) for name in _MULTIPROCESSING_HELPERS)


# -- the process ---------------------------------------------------------------------------------


class _Setting(NamedTuple):
    """A setting that all plugins of a process share.

    Args:
        name: The name in messages.
        read: Returns the value.
        restore: Sets the value.
    """

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object]


def _restore_path(paths: list[str]) -> None:
    sys.path[:] = paths


def _restore_handlers(handlers: list[logging.Handler]) -> None:
    logging.getLogger().handlers[:] = handlers


def _restore_variables(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _restore_signal_handler(handler: Any) -> None:
    # A handler of None was not set by Python code, and cannot be restored.
    if handler is not None:
        signal.signal(signal.SIGTERM, handler)


_SETTINGS: Final = (
    _Setting("a variable", lambda: dict(os.environ), _restore_variables),
    _Setting("the current folder", Path.cwd, os.chdir),
    _Setting("sys.path", lambda: list(sys.path), _restore_path),
    _Setting(
        "the level of the root logger",
        lambda: logging.getLogger().level,
        logging.getLogger().setLevel,
    ),
    _Setting(
        "the handlers of the root logger",
        lambda: list(logging.getLogger().handlers),
        _restore_handlers,
    ),
    _Setting("the default timeout of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
    _Setting(
        "the handler of SIGTERM",
        lambda: signal.getsignal(signal.SIGTERM),
        _restore_signal_handler,
    ),
)


def _process_state() -> list[Any]:
    return [setting.read() for setting in _SETTINGS]


def _check_process(before: list[Any]) -> None:
    """Fail if a setting of the process has changed."""
    __tracebackhide__ = True
    for setting, old, new in zip(_SETTINGS, before, _process_state(), strict=True):
        if old == new:
            continue
        name = setting.name
        if isinstance(old, dict):
            variables = cast("dict[str, str]", old)
            all_keys = variables.keys() | new.keys()
            changed_keys = [key for key in all_keys if variables.get(key) != new.get(key)]
            name = f"the variable {min(changed_keys)}"
        pytest.fail(
            f"{name} is left changed, which all plugins and the program that embeds delf share"
        )


@contextlib.contextmanager
def restored_process() -> Generator[None]:
    """Undo what the block changes in the process, so that the next test starts afresh."""
    before = _process_state()
    try:
        yield
    finally:
        for setting, old in zip(_SETTINGS, before, strict=True):
            if setting.read() != old:
                setting.restore(old)


# -- classes and modules -------------------------------------------------------------------------


class _SharedState:
    """The lists, dicts and other collections in an object's class and modules.

    All users of the process share these collections.

    A cache may be filled on the first use. State that changes on each use, or that contains an
    argument of a call, belongs in the object instead.

    Args:
        subject: The object.
        forbidden_texts: Texts that occur only in the arguments of the test's calls.
    """

    def __init__(self, subject: object, forbidden_texts: Iterable[str]) -> None:
        self._kind = type(subject)
        # Shorter texts may be in a variable by chance.
        self._forbidden_texts = [text for text in forbidden_texts if len(text) >= _MIN_TEXT_CHARS]
        # Needed if the object is no fixture: for fixtures, guarded() has stored the state already.
        remember_module_state(subject)
        # The values of class variables after the first use, as texts by name; see remember().
        self._remembered_texts: dict[str, str] = {}

    def remember(self) -> None:
        """Remember the attributes of the object's class, for comparison in :meth:`check`.

        Call this method after the object was used for the first time.
        """
        self._remembered_texts = {name: _text(value) for name, value in _class_state(self._kind)}

    def check(self) -> None:
        """Fail if the state changed since :meth:`remember`, or has a forbidden text or object.

        A forbidden text is a text from the arguments of a user's call. A forbidden object is bound
        to an event loop. Call this method after the object was used for the second time.
        """
        __tracebackhide__ = True
        names_with_user_text = sorted(self._state_with_forbidden_texts())
        assert not names_with_user_text, (
            f"{names_with_user_text[0]} keeps what one user's call was about, and all users of the "
            "process share it: keep state in `self`"
        )
        bound_names = [
            f"{owner.__name__}.{name}"
            for owner in _owners(self._kind)
            for name, value in list(vars(owner).items())
            if isinstance(value, _BOUND_TO_LOOP)
        ]
        assert not bound_names, (
            f"{bound_names[0]} belongs to the first event loop that waits for it, and agents in "
            "other threads have loops of their own: make it in `__init__`"
        )
        texts = {name: _text(value) for name, value in _class_state(self._kind)}
        changed = sorted(
            name for name, text in texts.items() if self._remembered_texts.get(name, text) != text
        )
        assert not changed, (
            f"each use changes {changed[0]}, which all users of the process share: keep state in "
            "`self`"
        )

    def _state_with_forbidden_texts(self) -> set[str]:
        """Return the names of class and module variables that contain a forbidden text.

        A variable that has not changed since the start of the suite is left out.
        """
        before = _STATE_BEFORE_FIRST_TEST.get(self._kind, {})
        names: set[str] = set()
        for name, text in _class_and_module_state(self._kind).items():
            if text == before.get(name):
                continue
            if any(forbidden in text for forbidden in self._forbidden_texts):
                names.add(name)
        return names


# Each tested class with the state of its package before the suite's first test.
_STATE_BEFORE_FIRST_TEST: Final = dict[type, dict[str, str]]()


def remember_module_state(subject: object) -> None:
    """Store the class and module variables of an object's package, before the object is used."""
    kind = type(subject)
    # Skip a fixture of a standard library type, such as a path: the suite does not test it.
    if kind not in _STATE_BEFORE_FIRST_TEST and _package(kind) not in sys.stdlib_module_names:
        _STATE_BEFORE_FIRST_TEST[kind] = _class_and_module_state(kind)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _class_and_module_state(kind: type) -> dict[str, str]:
    """Return the state in variables of a class and of its package's modules, as texts.

    Returns:
        A mapping from a variable's name to the ``repr`` of its value.
    """
    state = (item for owner in _owners(kind) for item in _variables_with_state(owner))
    return {name: _text(value) for name, value in state}


def _owners(kind: type) -> Iterator[type | ModuleType]:
    """Yield the objects whose variables all users of a class share.

    Yield the class and its bases, the modules of its package, and the classes in these modules.
    """
    yield from _own_classes(kind)
    package = _package(kind)
    if package in _EXEMPT_PACKAGES:
        return
    for name, module in list(sys.modules.items()):
        belongs_to_package = name.partition(".")[0] == package
        # Skip test modules, which keep texts of the tests, except the one that defines the tested
        # class.
        is_other_test_module = name != kind.__module__ and bool(_TEST_MODULE.search(name))
        if not belongs_to_package or is_other_test_module:
            continue
        yield module
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == name:
                yield value


def _is_small_collection(value: object) -> bool:
    return isinstance(value, _CONTAINERS) and len(cast("Any", value)) <= _MAX_CONTAINER_ITEMS


def _text(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return ""


def _class_state(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the state that a class and its bases hold, each value with its name."""
    for cls in _own_classes(kind):
        yield from _variables_with_state(cls)


def _own_classes(kind: type) -> Iterator[type]:
    """Yield a class and its bases, except those of delf and of Python."""
    return (cls for cls in kind.__mro__ if _package(cls) not in _EXEMPT_PACKAGES)


def _variables_with_state(owner: type | ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the name and value of each variable that can keep something from call to call.

    For a number or a small collection, the value is the variable's own. For a function, it is the
    list of the mutable default arguments. For an object in a module whose class is defined in the
    same package, it is the dict of the object's attributes.

    Args:
        owner: The class or module with the variables.
    """
    package = owner.__name__.partition(".")[0]
    variables: dict[str, object] = dict(vars(owner))
    for name, value in variables.items():
        if name.startswith("__") or name == "pytestmark":
            continue
        state: object = None
        if isinstance(value, FunctionType):
            defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            state = [default for default in defaults if type(default) in _MUTABLE]
        elif _is_small_collection(value) or type(value) in (int, float):
            state = value
        elif isinstance(owner, ModuleType) and _package(type(value)) == package:
            state = getattr(value, "__dict__", None)
        if state is not None:
            yield f"{owner.__name__}.{name}", state
