"""Namespaces of its own for the template, and so for all its guests.

They have no network but an unconfigured loopback, no System V objects of others, and no
privilege over anything of the host. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

_NEWUTS: Final = 0x04000000
_NEWIPC: Final = 0x08000000
_NEWUSER: Final = 0x10000000
_NEWNET: Final = 0x40000000
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_LAST_CAPABILITY: Final = 63
_CAPABILITY_VERSION_3: Final = 0x20080522


def enter() -> bool:
    """Move this process into namespaces of its own, where the system lets it.

    Must be called while the process has a single thread.

    Returns:
        Whether it did.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEWUSER | _NEWNET | _NEWIPC | _NEWUTS) != 0:
        return False
    try:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    except OSError:
        return True  # without names for its ids, which nothing here needs
    return True


def drop_capabilities() -> None:
    """Give up every privilege, for this process and all it could become."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    libc.capset(ctypes.byref(header), ctypes.byref(nothing))
