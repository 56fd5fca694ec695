"""Landlock: restrict a guest's view of the file system to what it needs.

Runs in the guest before any script, with the standard library only. Structures and numbers are from
``linux/landlock.h``; rights unknown to an older kernel are omitted.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from functools import cache
from typing import Final

from delf_confined import system

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION_FLAG: Final = 1
_RULE_PATH_BENEATH: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_RIGHTS_OF_FILES: Final = _READ_FILE | _WRITE_FILE | _TRUNCATE | _EXECUTE
_READ_RIGHTS: Final = _READ_FILE | _READ_DIR
# The rights for writing also allow removing, making and moving directories and regular files, but
# not making devices, sockets, pipes or links.
_REFER: Final = 1 << 13
_WRITE_RIGHTS: Final = (
    _READ_RIGHTS | _WRITE_FILE | (1 << 4) | (1 << 5) | (1 << 7) | (1 << 8) | _REFER | _TRUNCATE
)

# The number of file access rights for each ABI version of Landlock.
#
# Versions after the last one in the table have at least as many rights.
_FS_BITS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_FIRST_ABI_WITH_NETWORK: Final = 4
_FIRST_ABI_WITH_SCOPES: Final = 6
_EVERY_PORT: Final = 0b11
_EVERY_SCOPE: Final = 0b11


@cache
def version() -> int:
    """Return the kernel's ABI version of Landlock; 0 if the kernel has no Landlock."""
    if sys.platform != "linux":
        return 0
    abi_version = _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    return max(abi_version, 0)


@cache
def _rights_and_attributes() -> tuple[int, bytes]:
    """Return the file access rights that the kernel knows, and the attributes of a ruleset.

    Returns:
        A pair: the rights as bits, and the attributes of a ruleset that restricts all of these
        rights, in the kernel's binary format.
    """
    abi = version()
    newest_known_abi = max(_FS_BITS)
    right_count = _FS_BITS[min(abi, newest_known_abi)]
    file_rights = (1 << right_count) - 1  # a bit for each right
    ruleset_attributes = struct.pack("=Q", file_rights)
    if abi >= _FIRST_ABI_WITH_NETWORK:
        ruleset_attributes += struct.pack("=Q", _EVERY_PORT)
    if abi >= _FIRST_ABI_WITH_SCOPES:
        ruleset_attributes += struct.pack("=Q", _EVERY_SCOPE)
    return file_rights, ruleset_attributes


def prepare() -> None:
    """Look up what the kernel supports, so that forked processes need not do it again."""
    if version():
        _rights_and_attributes()


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Restrict this process to certain files.

    TCP ports and signals to other processes are forbidden, too, if the kernel can restrict them.

    Args:
        readable: The files and folders that stay readable; missing ones are ignored.
        writable: The folders in which files may also be created, changed and removed.

    Raises:
        OSError: If the kernel refuses.
    """
    file_rights, ruleset_attributes = _rights_and_attributes()
    ruleset = _check_syscall(_CREATE_RULESET, ruleset_attributes, len(ruleset_attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ_RIGHTS & file_rights)
        for path in writable:
            _allow(ruleset, path, _WRITE_RIGHTS & file_rights)
        libc = system.libc()
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # required by the next call
        _check_syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    """Allow access to a path and everything below it, by a new rule of a ruleset.

    Nothing is added if the path does not exist.
    """
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # The kernel refuses rules that give a file the rights of folders.
        #
        # The path is tested with os.path, because importing pathlib would slow down the start of
        # each sandboxed process.
        if not os.path.isdir(path):  # noqa: PTH112
            access &= _RIGHTS_OF_FILES
        rule = struct.pack("=Qi", access, target)
        _check_syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(target)


def _check_syscall(*arguments: int | bytes | None) -> int:
    result = _syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the Landlock rules")
    return result


def _syscall(*arguments: int | bytes | None) -> int:
    libc = system.libc()
    values = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    return int(libc.syscall(*values))
