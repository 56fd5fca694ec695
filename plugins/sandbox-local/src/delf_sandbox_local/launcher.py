"""Confinement of a guest's process before the first byte of a script, and its limits.

Standard library only; runs in the child that the template forked.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

from delf_confined import landlock, seccomp, system

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_MANY_SIGNALS = 64
_NICENESS = 5
_SYSTEM_FILES = (
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
)
"""The files that the interpreter may still load when a script imports a module."""


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies, or exit if it is already dead.

    Args:
        parent: The process id.
    """
    if sys.platform == "linux":
        system.libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # A parent that died before the call above sends no signal any more.
    if os.getppid() != parent:
        os._exit(0)


def prepare() -> None:
    """Confine the template once; all its guests inherit that.

    When memory runs out, the kernel ends a guest rather than the host. Locked memory, message
    queues and signal queues are limited, because all processes of a user share them. A process that
    crashes leaves no core dump: neither in a file, nor to a program of the system that reads core
    dumps as root. Guests get less of a busy processor than the host.
    """
    # Inherited by every guest, which cannot raise its own priority again.
    os.nice(_NICENESS)
    with suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, b"1000")
        os.close(descriptor)
    for name, most in (("MEMLOCK", 0), ("MSGQUEUE", 0), ("SIGPENDING", _MANY_SIGNALS), ("CORE", 0)):
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is not None:
            _set(which, most)
    if sys.platform == "linux":
        system.libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


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
        landlock.restrict([*sys.path, *_SYSTEM_FILES, *readable], [scratch])
    if seccomp.supported():
        seccomp.install(threads=tasks > 0)
        _leave_times(scratch)


def _leave_times(scratch: str) -> None:
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
    # First comes SIGXCPU, which says why; a script that ignores it is killed a second later.
    _set(resource.RLIMIT_CPU, whole, whole + 1)
    if seconds < whole:  # a script can stop the timer, and then has the second to its end
        signal.setitimer(signal.ITIMER_PROF, max(seconds, 0.001))
    _set(resource.RLIMIT_AS, limits["memory_bytes"])
    _set(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _set(resource.RLIMIT_NOFILE, limits["open_files"])
    if os.getuid() != 0:
        _set(resource.RLIMIT_NPROC, tasks)


def _set(which: int, soft: int, hard: int | None = None) -> None:
    _, ceiling = resource.getrlimit(which)
    wanted = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        wanted, soft = min(wanted, ceiling), min(soft, ceiling)
    resource.setrlimit(which, (soft, wanted))
