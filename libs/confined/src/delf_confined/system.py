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
"""The paths that a confined interpreter may still read."""


@cache
def libc() -> ctypes.CDLL:
    """Return this process's C library; ``ctypes.get_errno()`` gives the last call's error code."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies.

    If the parent is dead already, exit at once.

    Args:
        parent: The process id of the parent.
    """
    if sys.platform == "linux":
        libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # If the parent died before the call above, no signal will come.
    if os.getppid() != parent:
        os._exit(0)


def lower_priority() -> None:
    """Make this process and its children less important to the kernel, and forbid core dumps.

    The processes get less processor time, and the kernel kills them before the agent's process when
    memory runs out. A core dump could be read by a program of the system that runs as root.
    """
    # Children inherit this, and cannot raise their priority again.
    os.nice(_NICENESS)
    # With the score 1000, the kernel kills this process first. Write the file before core dumps are
    # forbidden, because root owns the file afterwards.
    with suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, b"1000")
        os.close(descriptor)
    if sys.platform == "linux":
        libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def set_limit(resource_id: int, soft: int, hard: int | None = None) -> None:
    """Set a resource limit of this process, at most to the present hard limit.

    Args:
        resource_id: The limit, as a constant of the module ``resource``.
        soft: The limit that applies.
        hard: The limit to which the process may raise ``soft``; equal to ``soft`` when None.
    """
    _, ceiling = resource.getrlimit(resource_id)
    new_hard = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft = min(soft, ceiling)
        new_hard = min(new_hard, ceiling)
    resource.setrlimit(resource_id, (soft, new_hard))
