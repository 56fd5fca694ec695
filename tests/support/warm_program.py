"""Programs, in processes forked from one that has imported what they need.

python warm_program.py [MODULE …] DESCRIPTOR

Modules are imported in place of what ``delf`` needs. A request has the arguments, folder and
environment; its descriptors are the three streams. The program is ``delf``, a file of Python where the first argument is one, or what follows ``-c`` or ``-m``.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import os
import random
import runpy
import signal
import socket
import sys
import tempfile
import termios
import threading
import traceback
import types
from typing import Any, NoReturn


def preload() -> None:
    """Import what most runs of the program import."""
    importlib.import_module("delf.tools.typeddicts")
    for name in ("agent", "runtime", "views.trace"):
        importlib.import_module(f"delf_engine.{name}")
    for name in (
        "approval_terminal.channel",
        "approval_terminal.command",
        "chat.command",
        "chat.repl",
        "cli.answering",
        "cli.main",
        "cli.journals",
        "cli.pruning",
        "cli.session",
        "cli.toolfile",
        "journal_sql.journal",
        "journal_sql.sqlite",
        "llm.connection",
        "model_recorded.model",
        "console.resume",
        "console.run",
        "console.runs",
        "runner_dbos.agents",
        "runner_dbos.engine",
        "runner_dbos.runner",
        "sandbox_docker.backend",
        "sandbox_local.backend",
        "sql.connection",
        "strategy_codegen.strategy",
    ):
        importlib.import_module(f"delf_{name}")
    importlib.import_module("delf_engine.project.project")
    for name in ("docker", "httpx", "platformdirs", "pytest", "rich.markdown", "tomllib"):
        importlib.import_module(name)
    for name in ("prompt_toolkit.input.vt100", "prompt_toolkit.patch_stdout"):
        importlib.import_module(name)
    # After them: what is known of plugins is forgotten where finders of modules come.
    importlib.import_module("delf.plugins.host").PluginHost.discover(environ={}).records()
    importlib.import_module("delf_engine.config").make_config({})


def finish() -> None:
    """Freeze imported objects, and collect garbage as rarely as ``delf`` does."""
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.freeze()
    gc.set_threshold(50_000)


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """In a child: be the program."""
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    before = _python_path()
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[:] = [*_python_path(), *(path for path in sys.path if path not in before)]
    importlib.invalidate_caches()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tempfile.tempdir = None
    random.seed()
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        os.fdopen(2, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    _leave(_exit_status(request["command"]))


def _exit_status(command: list[str]) -> int:
    """Run it, as the interpreter would; its exit status."""
    try:
        _run(*command)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _leave(status: int) -> NoReturn:
    """End without taking apart all that was imported, which takes longer than most programs."""
    threading._shutdown()  # noqa: SLF001 - as the interpreter does at its end
    atexit._run_exitfuncs()  # noqa: SLF001 - as the interpreter does at its end
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, or the program closed it
            stream.flush()
    os._exit(status)


def _run(program: str, *arguments: str) -> None:
    sys.argv[:] = [program, *arguments]
    if program == "-c":
        code, sys.argv[1:] = arguments[0], list(arguments[1:])
        sys.path.insert(0, "")
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
        return
    if program == "-m":
        sys.path.insert(0, "")
        sys.argv[:] = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    if program.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        runpy.run_path(program, run_name="__main__")
        return
    from delf_cli.main import main

    sys.argv[0] = "delf"
    sys.exit(main())


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


if __name__ == "__main__":
    from forking import serve

    del sys.path[0]
    if sys.argv[1:-1]:
        for wanted in sys.argv[1:-1]:
            importlib.import_module(wanted)
    else:
        preload()
    finish()
    serve(socket.socket(fileno=int(sys.argv[-1])), become)
