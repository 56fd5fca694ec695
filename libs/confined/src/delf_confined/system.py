"""System calls about this process: C library, resource limits, end. Standard library only."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import cache
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_NICENESS: Final = 5
INTERPRETER_FILES: Final = (
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
"""The files that an interpreter may still load once it is confined."""


@cache
def libc() -> ctypes.CDLL:
    """Return the C library of this process, with errno recording."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def die_with_parent(parent: int) -> None:
    """Tie this process to its parent: the kernel kills it when the parent dies; exit if it is dead.

    Args:
        parent: The process id.
    """
    if sys.platform == "linux":
        libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # If the parent died before the call above, no signal will come.
    if os.getppid() != parent:
        os._exit(0)


def give_way() -> None:
    """Lower the priority of this process and its children, in processor time and memory.

    When memory runs out, the kernel ends such a process rather than the host. A process that
    crashes leaves no core dump: neither in a file, nor to a program of the system that reads core
    dumps as root.
    """
    # Children inherit this, and cannot raise their priority again.
    os.nice(_NICENESS)
    # First, because disabling core dumps gives this process's files in /proc to root.
    with suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, b"1000")
        os.close(descriptor)
    if sys.platform == "linux":
        libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def set_limit(limit_name: int, soft: int, hard: int | None = None) -> None:
    """Set a resource limit, at most to the limit that this process already has.

    Args:
        limit_name: A number of the module ``resource``.
        soft: The limit.
        hard: The limit that cannot be raised again; ``soft`` when None.
    """
    _, ceiling = resource.getrlimit(limit_name)
    new_hard = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, new_hard = min(soft, ceiling), min(new_hard, ceiling)
    resource.setrlimit(limit_name, (soft, new_hard))
