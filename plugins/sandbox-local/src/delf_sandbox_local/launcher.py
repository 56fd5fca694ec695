"""Runs first in the guest's process: limits it, confines it, then serves scripts.

Standard library only. Everything here happens before the first byte of a script.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

from delf_sandbox_local import seccomp

_PR_SET_PDEATHSIG = 1
_PRELOADED = ("collections", "csv", "datetime", "decimal", "itertools", "math", "statistics")


def main(zipapp: str, descriptor: int, options: str) -> None:
    """Become a guest.

    Args:
        zipapp: Path of the guest's archive.
        descriptor: The wire.
        options: JSON with ``limits``, ``parent`` (process id) and ``libraries`` (folders).
    """
    wanted: dict[str, Any] = json.loads(options)
    _die_with(wanted["parent"])
    sys.path[:] = [zipapp, *sys.path, *wanted["libraries"]]
    from delf.sandbox.guest.session import serve_forever

    for name in _PRELOADED:
        __import__(name)
    limit(wanted["limits"])
    if seccomp.supported():
        seccomp.install()
    serve_forever(descriptor, descriptor)


def _die_with(parent: int) -> None:
    """End when the host does; a host that ended already is noticed, too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def limit(limits: dict[str, Any]) -> None:
    """Set this process's resource limits.

    Args:
        limits: The fields of :class:`delf.protocols.sandbox.Limits`.
    """
    cpu = max(1, int(limits["cpu_seconds"] + 0.999))
    _set(resource.RLIMIT_CPU, cpu, cpu + 1)
    _set(resource.RLIMIT_AS, limits["memory_bytes"])
    _set(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _set(resource.RLIMIT_NOFILE, limits["open_files"])
    _set(resource.RLIMIT_CORE, 0)
    if os.getuid() != 0:
        _set(resource.RLIMIT_NPROC, limits["processes"])


def _set(which: int, soft: int, hard: int | None = None) -> None:
    _, ceiling = resource.getrlimit(which)
    wanted = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        wanted, soft = min(wanted, ceiling), min(soft, ceiling)
    resource.setrlimit(which, (soft, wanted))
