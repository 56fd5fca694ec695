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
# The limit of the address space, as a multiple of the memory limit.
#
# Threads reserve more address space than they use.
_ADDRESS_SPACE_FACTOR: Final = 4
_PAGE_BYTES: Final = resource.getpagesize()
SYSTEM_FILES: Final = (
    *system.INTERPRETER_FILES,
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
)
"""The files that the interpreter and libraries may read after the confinement."""


def confine(limits: dict[str, Any], readable: Sequence[str], *, parent: int) -> None:
    """Set the resource limits of this process, and confine it. Neither can be undone.

    On systems without Landlock and seccomp, such as macOS, only the limits apply. There, the
    process can enlarge no file and start no process.

    Args:
        limits: The fields of :class:`delf_confined.limits.Limits`.
        readable: The files that the process may read, besides those of the interpreter.
        parent: The id of the parent process, with whose end this process ends.

    Raises:
        OSError: If the system refuses the confinement.
    """
    writable = [folder for folder in (limits["scratch"], *limits["writable"]) if folder]
    # The order matters: lower_priority() writes into /proc, which Landlock would refuse, and the
    # limits are set by system calls that seccomp would refuse.
    system.lower_priority()
    system.die_with_parent(parent)
    _set_resource_limits(limits, readable, writes=bool(writable))
    if landlock.version():
        # The module mimetypes reads its files when it is first used.
        interpreter_files = (*sys.path, *SYSTEM_FILES, *map(str, mimetypes.knownfiles))
        landlock.restrict([*interpreter_files, *readable], writable)
    if seccomp.is_supported():
        seccomp.install(seccomp.Permissions(threads=True, writes=bool(writable), locks=True))


def _set_resource_limits(limits: dict[str, Any], readable: Sequence[str], *, writes: bool) -> None:
    """Set the resource limits of this process.

    From now on, the process may use ``limits["memory"]`` bytes more than it uses already.
    """
    address_space_bytes, data_bytes = _memory_in_use()
    # Libraries may map these files into the address space.
    readable_files_bytes = sum(map(_size, readable))
    # Threads may use all processors during the whole time of the call.
    cpu_seconds = math.ceil((os.cpu_count() or 1) * limits["seconds"]) + 1
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit raises OSError
    bounds = {
        "CORE": 0,
        "CPU": cpu_seconds,
        "FSIZE": limits["file_bytes"] if writes else 0,
        "NOFILE": _OPEN_FILES,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
    }
    if sys.platform == "linux":
        bounds["DATA"] = data_bytes + limits["memory"]
        bounds["AS"] = (
            address_space_bytes + readable_files_bytes + _ADDRESS_SPACE_FACTOR * limits["memory"]
        )
    else:
        bounds["NPROC"] = 0  # on Linux the limit would include threads
    for name, max_value in bounds.items():
        resource_id = getattr(resource, f"RLIMIT_{name}", None)
        if resource_id is not None:
            system.set_limit(resource_id, max_value)


def _memory_in_use() -> tuple[int, int]:
    """Return the sizes of this process's address space and data segment, in bytes."""
    with suppress(OSError):
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
        # In pages: size, resident, shared, text, an unused field, data.
        fields = os.read(descriptor, 200).split()
        os.close(descriptor)
        return int(fields[0]) * _PAGE_BYTES, int(fields[5]) * _PAGE_BYTES
    return 0, 0


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - as in landlock
    except OSError:
        return 0
