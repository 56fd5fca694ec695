"""Separate namespaces for the template process, which all its guests inherit.

Guests have no network except an unconfigured loopback, no access to other processes' System V
objects, and no privileges on the host. Each guest has mounts of its own, so that its scratch folder
is a small file system in memory that ends with it. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path
from typing import Final

from delf_confined import system

_NEWNS: Final = 0x00020000
_NEWUTS: Final = 0x04000000
_NEWIPC: Final = 0x08000000
_NEWUSER: Final = 0x10000000
_NEWNET: Final = 0x40000000
_READ_ONLY: Final = 1
_NOSUID: Final = 2
_NODEV: Final = 4
_NOEXEC: Final = 8
_DETACH: Final = 2
_REC: Final = 0x4000
_PRIVATE: Final = 0x40000
_MAX_FILES: Final = 10_000
_SYS_ADMIN: Final = 21
# The kernel settings with the values that allow namespaces to users without privileges.
_REQUIRED_SETTINGS: Final = {
    "user/max_user_namespaces": ("1",),
    "kernel/unprivileged_userns_clone": ("1", ""),
    "kernel/apparmor_restrict_unprivileged_userns": ("0", ""),
}
_HOST_NAME: Final = b"sandbox"
_HIDDEN_FOLDERS: Final = (b"/proc", b"/sys")
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_LAST_CAPABILITY: Final = 63
_CAPABILITY_VERSION_3: Final = 0x20080522


def seem_available() -> bool:
    """Return True if the system's settings seem to allow mount namespaces.

    Only an attempt to create them, which needs a process of its own, shows whether they work.
    """
    try:
        status: dict[str, str] = {}
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":\t")
            status[name] = value
        if status["Seccomp"].strip() != "0":  # most containers filter system calls
            return False
        capabilities = int(status["CapEff"], 16)
        has_sys_admin = bool(capabilities & (1 << _SYS_ADMIN))
        if has_sys_admin:
            return True
    except (OSError, ValueError, KeyError):
        return False
    return all(_read_setting(name) in allowed for name, allowed in _REQUIRED_SETTINGS.items())


def _read_setting(name: str) -> str:
    """Return a kernel setting as ``0`` or ``1``; empty if the setting does not exist."""
    try:
        return str(min(1, int(Path(f"/proc/sys/{name}").read_text(encoding="ascii"))))
    except (OSError, ValueError):
        return ""


def enter() -> list[str]:
    """Move this process into new namespaces, as far as the system allows.

    Call this while the process has a single thread. The process keeps its privileges in the
    namespaces until :func:`drop_capabilities`.

    Returns:
        The names of the namespaces that were created: ``user``, ``network``, ``mounts``.
    """
    if sys.platform != "linux":
        return []
    libc = system.libc()
    user = os.geteuid()
    group = os.getegid()
    isolated = _NEWNET | _NEWIPC | _NEWUTS
    created: list[str] = []
    if libc.unshare(isolated | _NEWUSER) == 0:
        created += ["user", "network"]
        _map_ids(user, group)
    elif libc.unshare(isolated) == 0:  # allowed with privileges
        created.append("network")
    if "network" in created:
        libc.sethostname(_HOST_NAME, len(_HOST_NAME))
    # Try a mount on /tmp, because some systems refuse mounts even in the new namespaces.
    if (
        libc.unshare(_NEWNS) == 0
        and libc.mount(None, b"/", None, _REC | _PRIVATE, None) == 0
        and libc.mount(b"probe", b"/tmp", b"tmpfs", 0, None) == 0
        and libc.umount2(b"/tmp", _DETACH) == 0
    ):
        created.append("mounts")
    return created


def _map_ids(user: int, group: int) -> None:
    """Keep the ids of the user and the group in a new user namespace."""
    try:
        # Without privileges, the kernel accepts a map of groups only after this.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    except OSError:
        return  # unmapped ids are sufficient here


def hide_system() -> None:
    """Hide the host's processes and devices by empty mounts on ``/proc`` and ``/sys``.

    Landlock forbids opening files, but not reading their names, sizes and owners.
    """
    flags = _READ_ONLY | _NOSUID | _NODEV | _NOEXEC
    for mount_point in _HIDDEN_FOLDERS:
        system.libc().mount(
            b"nothing", mount_point, b"tmpfs", flags, b"size=4k,nr_inodes=1,mode=555"
        )


def mount_scratch(folder: str, size: int) -> None:
    """Mount a file system in memory on a folder, visible to this process only.

    Args:
        folder: The mount point.
        size: The maximum size of the file system in bytes.

    Raises:
        OSError: If the system refuses.
    """
    libc = system.libc()
    options = f"size={size},nr_inodes={_MAX_FILES},mode=700,uid={os.geteuid()},gid={os.getegid()}"
    flags = _NOSUID | _NODEV | _NOEXEC
    mount_point = os.fsencode(folder)
    if (
        libc.unshare(_NEWNS) != 0
        or libc.mount(b"scratch", mount_point, b"tmpfs", flags, options.encode()) != 0
    ):
        raise OSError(ctypes.get_errno(), "the scratch folder cannot be mounted")


def bound_capabilities() -> None:
    """Prevent this process from gaining capabilities when it starts a program."""
    if sys.platform != "linux":
        return
    libc = system.libc()
    # The call fails for numbers that this kernel does not know, which does no harm.
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def drop_capabilities() -> None:
    """Give up all capabilities. Call :func:`bound_capabilities` before.

    Raises:
        OSError: If the system refuses.
    """
    if sys.platform != "linux":
        return
    libc = system.libc()
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "the privileges cannot be given up")
