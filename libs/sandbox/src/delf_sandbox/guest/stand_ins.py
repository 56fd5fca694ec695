"""Replacements for modules that scripts import for trivial uses.

``os`` and ``sys`` have only harmless parts. Threads run their function at once. An event loop can
be re-entered without ``nest_asyncio``. Missing parts raise an error that names an alternative.
"""

from __future__ import annotations

import concurrent.futures
import inspect
import os
import shutil
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, NoReturn, cast

from delf_sandbox.guest.arguments import FunctionWithUsage

_OS = (
    *("path", "sep", "linesep", "name", "curdir", "pardir", "extsep", "altsep", "pathsep"),
    *("getcwd", "listdir", "scandir", "walk", "makedirs", "mkdir", "remove", "unlink", "rename"),
    *("replace", "rmdir", "stat", "fspath", "PathLike", "urandom", "cpu_count", "strerror"),
    *("error", "SEEK_SET", "SEEK_CUR", "SEEK_END"),
)
_SYS = (
    *("version", "version_info", "maxsize", "float_info", "int_info", "byteorder", "platform"),
    *("implementation", "getsizeof", "getrecursionlimit", "exc_info", "intern", "maxunicode"),
    *("getdefaultencoding", "hash_info", "api_version", "hexversion"),
)
_INSPECT = (
    *("iscoroutine", "iscoroutinefunction", "isawaitable", "isasyncgen", "isasyncgenfunction"),
    *("isfunction", "ismethod", "isclass", "ismodule", "isgenerator", "isgeneratorfunction"),
    *("isbuiltin", "isroutine", "signature", "Parameter", "Signature", "getdoc", "cleandoc"),
)
_SHUTIL = ("copy", "copy2", "copyfile", "copytree", "move", "rmtree", "make_archive")
_INSTEAD = {
    "inspect": "write it without looking into code",
    "shutil": "copy, move and rmtree are there",
    "os": "programs, processes and the environment are out of reach; call the tools",
    "sys": "print for output; let the script reach its end",
    "threading": "await asyncio.sleep(seconds), then call the function",
}


class _StandIn(types.ModuleType):
    """A module with some names of the real module; reading any other name raises an error."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        instead = _INSTEAD.get(self.__name__, "write it another way")
        raise AttributeError(f"{self.__name__}.{name} is not available in scripts: {instead}")


def leave(code: object = None) -> NoReturn:
    """End the script, like ``sys.exit``."""
    raise SystemExit(code)


def make_modules(output: Any, result_of: Callable[[Any], Any]) -> dict[str, types.ModuleType]:
    """Return a mapping from module name to the module that scripts get instead.

    Args:
        output: The script's standard output.
        result_of: Blocks until an awaitable is done and returns its result; returns any other value
            unchanged.
    """
    os_module = _subset_module("os", os, _OS)
    os_module.environ = {}
    os_module.getenv = FunctionWithUsage("getenv(key, default)", _getenv)
    sys_module = _subset_module("sys", sys, _SYS)
    sys_module.stdout = sys_module.stderr = output
    sys_module.argv = ["script.py"]
    sys_module.path = []
    sys_module.modules = {}
    sys_module.exit = FunctionWithUsage("exit(code)", leave)
    sys_module.setrecursionlimit = _no_op
    inspect_module = _subset_module("inspect", inspect, _INSPECT)
    shutil_module = _subset_module("shutil", shutil, _SHUTIL)
    nest = types.ModuleType("nest_asyncio")
    nest.apply = _no_op  # pyright: ignore[reportAttributeAccessIssue]
    threads = _copy_module("threading", threading)
    threads.Thread = _thread_class(result_of)
    # Leave out Timer: without threads, its function cannot run later while the script goes on.
    del threads.Timer
    futures = _copy_module("concurrent.futures", concurrent.futures)
    executor = _executor_class(result_of)
    futures.ThreadPoolExecutor = futures.ProcessPoolExecutor = executor
    parent = types.ModuleType("concurrent")
    parent.futures = futures  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "os": os_module,
        "os.path": os.path,
        "sys": sys_module,
        "nest_asyncio": nest,
        "inspect": inspect_module,
        "shutil": shutil_module,
        "threading": threads,
        "concurrent": parent,
        "concurrent.futures": futures,
    }


def _subset_module(name: str, real: Any, names: Iterable[str]) -> Any:
    module = _StandIn(name)
    module.__dict__.update({item: getattr(real, item) for item in names if hasattr(real, item)})
    return module


def _copy_module(name: str, real: Any) -> Any:
    module = _StandIn(name)
    # Names that the module would only load on access are omitted.
    for key, value in cast("dict[str, Any]", real.__dict__).items():
        if not key.startswith("__"):
            setattr(module, key, value)
    return module


def _no_op(*_: object, **__: object) -> None:
    pass


def _getenv(key: str, default: Any = None) -> Any:
    del key  # scripts have no environment
    return default


def _thread_class(result_of: Callable[[Any], Any]) -> type:
    """Return a class for scripts that replaces ``threading.Thread`` and makes no threads.

    Its method ``start`` runs the function to its end.

    Args:
        result_of: Blocks until an awaitable is done and returns its result; returns any other value
            unchanged.
    """

    class Thread:
        """A replacement for ``threading.Thread`` whose ``start`` runs the function to its end."""

        def __init__(
            self,
            group: None = None,
            target: Callable[..., Any] | None = None,
            name: str | None = None,
            args: Iterable[Any] = (),
            kwargs: dict[str, Any] | None = None,
            *,
            daemon: bool | None = None,
        ) -> None:
            self._target = target
            self._args = tuple(args)
            self._kwargs = kwargs or {}
            self.name = name or "Thread"
            self.daemon = bool(daemon)

        def run(self) -> None:
            if self._target is not None:
                # An async function returns a coroutine, which has to run, too.
                result_of(self._target(*self._args, **self._kwargs))

        def start(self) -> None:
            """Run the function to its end during this call, because the sandbox has no threads."""
            self.run()

        def join(self, timeout: float | None = None) -> None:
            """Do nothing, because the function has already ended."""

        def is_alive(self) -> bool:
            """Return False, because :meth:`start` has run the function to its end already."""
            return False

    return Thread


def _executor_class(result_of: Callable[[Any], Any]) -> type:
    """Return a class for scripts that replaces ``ThreadPoolExecutor`` and makes no threads.

    Its method ``submit`` runs the function to its end.

    Args:
        result_of: Blocks until an awaitable is done and returns its result; returns any other value
            unchanged.
    """

    class ThreadPoolExecutor(Executor):
        """A replacement for executors that calls each function when it is submitted."""

        def __init__(self, *_: object, **__: object) -> None:
            """Accept and ignore all arguments."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            """Run a function to its end, and return a future that is done.

            The sandbox has no threads, so the function runs during this call. If the function
            returns an awaitable, wait for its result.
            """
            future: Future[Any] = Future()
            future.set_running_or_notify_cancel()
            try:
                future.set_result(result_of(fn(*args, **kwargs)))
            except Exception as error:
                future.set_exception(error)
            return future

        def map(
            self,
            fn: Callable[..., Any],
            *iterables: Iterable[Any],
            timeout: float | None = None,
            chunksize: int = 1,
        ) -> Iterator[Any]:
            futures = [self.submit(fn, *items) for items in zip(*iterables, strict=False)]
            return (future.result() for future in futures)

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            """Do nothing, because there are no threads to end."""

    return ThreadPoolExecutor
