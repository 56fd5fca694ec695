"""Confine a child process before it reads untrusted data. Standard library only."""

from __future__ import annotations

import math
import mimetypes
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from delf_confined import landlock, seccomp, system

_OPEN_FILES: Final = 256
_MAPPED: Final = 4
"""The limit of the address space divided by that of memory: threads reserve more than they use."""
_PAGE: Final = resource.getpagesize()
SYSTEM_FILES: Final = (
    *system.INTERPRETER_FILES,
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
)
"""The files that the interpreter and libraries may still read."""


def confine(limits: dict[str, Any], readable: Sequence[str], *, parent: int) -> None:
    """Limit and confine this process permanently.

    Without Landlock and seccomp, as on macOS, only the limits apply, which allow no larger file and
    no new process.

    Args:
        limits: The fields of :class:`delf_confined.limits.Limits`.
        readable: Files that it may read; the interpreter's own are added.
        parent: The process whose end also ends this process.

    Raises:
        OSError: If the system refuses.
    """
    writable = [folder for folder in (limits["scratch"], *limits["writable"]) if folder]
    system.give_way()
    system.die_with_parent(parent)
    _limit(limits, readable, writes=bool(writable))
    if landlock.version():
        readable_paths = (*sys.path, *SYSTEM_FILES, *map(str, mimetypes.knownfiles))
        landlock.restrict([*readable_paths, *readable], writable)
    if seccomp.is_supported():
        seccomp.install(threads=True, writes=bool(writable), locks=True)


def _limit(limits: dict[str, Any], readable: Sequence[str], *, writes: bool) -> None:
    """Set the resource limits of this process, on top of what it uses now."""
    mapped, data = _in_use()
    files = sum(map(_size, readable))
    cpu = math.ceil((os.cpu_count() or 1) * limits["seconds"]) + 1
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit raises OSError
    bounds = {
        "CORE": 0,
        "CPU": cpu,
        "FSIZE": limits["file_bytes"] if writes else 0,
        "NOFILE": _OPEN_FILES,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
    }
    if sys.platform == "linux":
        bounds["DATA"] = data + limits["memory"]
        bounds["AS"] = mapped + files + _MAPPED * limits["memory"]
    else:
        bounds["NPROC"] = 0  # on Linux the limit would include threads
    for name, max_value in bounds.items():
        limit_name = getattr(resource, f"RLIMIT_{name}", None)
        if limit_name is not None:
            system.set_limit(limit_name, max_value)


def _in_use() -> tuple[int, int]:
    """Return the bytes of this process's address space, and of its allocations."""
    with suppress(OSError):
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
        fields = os.read(descriptor, 200).split()
        os.close(descriptor)
        return int(fields[0]) * _PAGE, int(fields[5]) * _PAGE
    return 0, 0


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - as in landlock
    except OSError:
        return 0
