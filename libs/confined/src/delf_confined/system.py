"""The C library and the interpreter of this process. Standard library only."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache


@cache
def libc() -> ctypes.CDLL:
    """The C library that this process runs with; it notes what went wrong."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def own_python() -> str:
    """Return the interpreter of this process, which a program that embeds Python may not name."""
    named = sys.executable
    if named and os.path.basename(named).startswith("python"):  # noqa: PTH119 - see landlock
        return named
    beside = f"{sys.exec_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    return beside if os.path.exists(beside) else named or "python3"  # noqa: PTH110 - see landlock
