"""A seccomp filter for the guest: no new processes, programs, sockets or other processes.

Runs in the guest before any script, with the standard library only. The filter is classic
BPF (``linux/filter.h``, ``linux/seccomp.h``); call numbers are those of the kernel's tables.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_KILL_PROCESS: Final = 0x80000000
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_OFFSET_NUMBER: Final = 0
_OFFSET_ARCH: Final = 4
_OFFSET_ARG0: Final = 16
_CLONE_THREAD: Final = 0x00010000
_X32_BIT: Final = 0x40000000

_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE3: Final = 435

_DENIED: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        "socket": 41,
        "connect": 42,
        "accept": 43,
        "bind": 49,
        "listen": 50,
        "fork": 57,
        "vfork": 58,
        "execve": 59,
        "kill": 62,
        "ptrace": 101,
        "setuid": 105,
        "setgid": 106,
        "pivot_root": 155,
        "chroot": 161,
        "mount": 165,
        "umount2": 166,
        "init_module": 175,
        "tkill": 200,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "accept4": 288,
        "perf_event_open": 298,
        "open_by_handle_at": 304,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "finit_module": 313,
        "bpf": 321,
        "execveat": 322,
        "userfaultfd": 323,
        "rt_sigqueueinfo": 129,
    },
    "aarch64": {
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "chroot": 51,
        "init_module": 105,
        "ptrace": 117,
        "kill": 129,
        "tkill": 130,
        "rt_sigqueueinfo": 138,
        "setgid": 144,
        "setuid": 146,
        "socket": 198,
        "bind": 200,
        "listen": 201,
        "accept": 202,
        "connect": 203,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "execve": 221,
        "perf_event_open": 241,
        "accept4": 242,
        "open_by_handle_at": 265,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "finit_module": 273,
        "bpf": 280,
        "execveat": 281,
        "userfaultfd": 282,
        "unshare": 97,
    },
}
_DENIED_EVERYWHERE: Final = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "move_mount": 429,
    "fsopen": 430,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def supported() -> bool:
    """Whether a filter for this processor is known."""
    return platform.system() == "Linux" and platform.machine() in _ARCH


def build(machine: str) -> bytes:
    """The filter's instructions.

    Args:
        machine: ``x86_64`` or ``aarch64``.
    """
    numbers = [*_DENIED[machine].values(), *_DENIED_EVERYWHERE.values()]
    refuse = _ERRNO | errno.EPERM
    code = [
        _instruction(_LOAD, 0, 0, _OFFSET_ARCH),
        _instruction(_JUMP_EQUAL, 1, 0, _ARCH[machine]),
        _instruction(_RETURN, 0, 0, _KILL_PROCESS),
        _instruction(_LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        code += [
            _instruction(_JUMP_AT_LEAST, 0, 1, _X32_BIT),
            _instruction(_RETURN, 0, 0, refuse),
        ]
    for number in numbers:
        code += [_instruction(_JUMP_EQUAL, 0, 1, number), _instruction(_RETURN, 0, 0, refuse)]
    # ENOSYS makes the C library fall back from clone3 to clone, whose flags can be read.
    code += [
        _instruction(_JUMP_EQUAL, 0, 1, _CLONE3),
        _instruction(_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        _instruction(_JUMP_EQUAL, 0, 3, _CLONE[machine]),
        _instruction(_LOAD, 0, 0, _OFFSET_ARG0),
        _instruction(_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD),
        _instruction(_RETURN, 0, 0, refuse),
        _instruction(_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(code)


def install() -> None:
    """Confine this process and all its threads to come, for good.

    Raises:
        OSError: When the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    code = build(platform.machine())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, "the kernel refuses the seccomp filter")


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
