"""Confinement of a guest's process before the first byte of a script, and its limits.

Standard library only; runs in the child that the template forked.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
from typing import Any

from delf_confined import landlock, seccomp, system

_MANY_SIGNALS = 64


def prepare() -> None:
    """Confine the template once; all its guests inherit that.

    Locked memory, message queues and signal queues are limited, because all processes of a user
    share them.
    """
    for name, most in (("MEMLOCK", 0), ("MSGQUEUE", 0), ("SIGPENDING", _MANY_SIGNALS), ("CORE", 0)):
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is not None:
            system.set_limit(which, most)
    system.give_way()


def confine(limits: dict[str, Any], readable: list[str], scratch: str, *, tasks: int) -> None:
    """Limit and confine this process permanently.

    Args:
        limits: The fields of :class:`delf.protocols.sandbox.Limits`.
        readable: Input files; the interpreter's own are added.
        scratch: The folder that it may write in.
        tasks: The maximum number of processes and threads of its user; 0 to forbid threads.

    Raises:
        OSError: If the system refuses.
    """
    _limit(limits, tasks)
    if landlock.version():
        landlock.restrict([*sys.path, *system.INTERPRETER_FILES, *readable], [scratch])
    if seccomp.is_supported():
        seccomp.install(threads=tasks > 0)
        _disable_utime(scratch)


def _disable_utime(scratch: str) -> None:
    """Make ``os.utime`` a no-op in the scratch folder, because the filter refuses it.

    Libraries set the times of archived files, and need no more.
    """
    change = os.utime

    def utime(path: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(path, int) or not os.path.realpath(path).startswith(f"{scratch}/"):
            change(path, *args, **kwargs)
        os.stat(path)  # noqa: PTH116 - pathlib costs the guest its import

    os.utime = utime


def _limit(limits: dict[str, Any], tasks: int) -> None:
    seconds = limits["cpu_seconds"]
    whole = max(1, math.ceil(seconds))
    # SIGXCPU reports the reason; a script that ignores it is killed one second later.
    system.set_limit(resource.RLIMIT_CPU, whole, whole + 1)
    if seconds < whole:  # a script that stops the timer gains at most a second
        signal.setitimer(signal.ITIMER_PROF, max(seconds, 0.001))
    system.set_limit(resource.RLIMIT_AS, limits["memory_bytes"])
    system.set_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    system.set_limit(resource.RLIMIT_NOFILE, limits["open_files"])
    if os.getuid() != 0:
        system.set_limit(resource.RLIMIT_NPROC, tasks)
