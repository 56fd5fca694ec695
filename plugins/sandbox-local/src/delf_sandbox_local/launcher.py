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
    """Restrict this process and its later forks, the guests, which run the scripts.

    Locked memory, message queues and signal queues are limited, because all processes of a user
    share them.
    """
    for name, max_value in (
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
        ("SIGPENDING", _MANY_SIGNALS),
        ("CORE", 0),
    ):
        resource_id = getattr(resource, f"RLIMIT_{name}", None)
        if resource_id is not None:
            system.set_limit(resource_id, max_value)
    system.lower_priority()


def confine(limits: dict[str, Any], readable: list[str], scratch: str, *, max_threads: int) -> None:
    """Set the resource limits of this process, and confine it. Neither can be undone.

    Args:
        limits: The fields of :class:`delf.protocols.sandbox.Limits`, and as ``resources`` the
            limits of :func:`delf_sandbox.process.process_limits`.
        readable: The input files that the process may read, besides the interpreter's own files.
        scratch: The folder in which the process may write.
        max_threads: The maximum number of threads of all processes of the user; 0 to forbid
            threads.

    Raises:
        OSError: If the system refuses the confinement.
    """
    _set_resource_limits(limits, max_threads)
    if landlock.version():
        landlock.restrict([*sys.path, *system.INTERPRETER_FILES, *readable], [scratch])
    if seccomp.is_supported():
        seccomp.install(seccomp.Permissions(threads=max_threads > 0))
        # The filter also refuses to change the times of files. Libraries that unpack an archive
        # call os.utime() for each file, and would fail: let os.utime() do nothing in ``scratch``.
        _disable_utime(scratch)


def _disable_utime(scratch: str) -> None:
    """Replace ``os.utime`` by a function that does nothing for files in the scratch folder.

    The system call filter refuses changes of times. Libraries that unpack archives only need the
    call to succeed.
    """
    real_utime = os.utime

    def utime(path: Any, *args: Any, **kwargs: Any) -> None:
        is_descriptor = isinstance(path, int)
        if not is_descriptor and os.path.realpath(path).startswith(f"{scratch}/"):
            # The system call filter would refuse to change the file's times, so keep them. Only
            # raise if the file does not exist, like the real function.
            os.stat(path)  # noqa: PTH116 - importing pathlib would slow the start of each script
        else:
            real_utime(path, *args, **kwargs)

    os.utime = utime


def _set_resource_limits(limits: dict[str, Any], max_threads: int) -> None:
    seconds = limits["cpu_seconds"]
    whole_seconds = max(1, math.ceil(seconds))
    # SIGXCPU reports the reason; a script that ignores it is killed one second later.
    system.set_limit(resource.RLIMIT_CPU, whole_seconds, whole_seconds + 1)
    # A timer enforces a fraction of a second, which the system's limit cannot. A script that stops
    # the timer gains at most a second.
    if seconds < whole_seconds:
        signal.setitimer(signal.ITIMER_PROF, max(seconds, 0.001))  # 0 would stop the timer
    system.set_limit(resource.RLIMIT_AS, limits["memory_bytes"])
    for name, value in limits["resources"].items():
        system.set_limit(getattr(resource, name), value)
    if os.getuid() != 0:  # the kernel does not enforce this limit for root
        system.set_limit(resource.RLIMIT_NPROC, max_threads)
