"""A seccomp filter for the guest: the calls of :mod:`calls`, a few with checked arguments.

Runs in the guest before any script, with the standard library only. The filter is classic
BPF (``linux/filter.h``, ``linux/seccomp.h``). Integers that the kernel takes as ``int`` are
compared by their lower half, as the kernel reads them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from delf_sandbox_local import calls, system

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_KILL_PROCESS: Final = 0x80000000
_LOAD: Final = 0x20
_AND: Final = 0x54
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_JUMP_ABOVE: Final = 0x25
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_OFFSET_NUMBER: Final = 0
_OFFSET_ARCH: Final = 4
_OFFSET_ARGUMENTS: Final = 16
_X32_BIT: Final = 0x40000000
_REFUSE: Final = _ERRNO | errno.EPERM
_UNKNOWN: Final = _ERRNO | errno.ENOSYS

_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SPECIAL: Final = {
    "x86_64": {
        "ioctl": 16,
        "sendto": 44,
        "socketpair": 53,
        "clone": 56,
        "fcntl": 72,
        "prctl": 157,
        "tgkill": 234,
        "prlimit64": 302,
        "clone3": 435,
    },
    "aarch64": {
        "ioctl": 29,
        "sendto": 206,
        "socketpair": 199,
        "clone": 220,
        "fcntl": 25,
        "prctl": 167,
        "tgkill": 131,
        "prlimit64": 261,
        "clone3": 435,
    },
}
_IOCTLS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: none names an owner or a process."""
_FCNTLS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030)
"""Copies, flags and locks; not F_SETOWN and F_SETSIG, by which the kernel signals others."""
_PRCTLS: Final = (15, 16, 0x53564D41)
"""Names of threads and of memory; not the death signal."""
_CLONE_THREAD: Final = 0x00010000
_CLONE_NAMESPACES: Final = 0x7E020000
_SOME_PID: Final = 0x7EADBEEF
"""Stands for the guest's; above what any kernel gives, and nothing else in the filter."""
_AF_UNIX: Final = 1
_SOCK_STREAM: Final = 1
_SOCK_KIND: Final = 0xF


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def supported() -> bool:
    """Whether a filter for this processor is known."""
    return platform.system() == "Linux" and platform.machine() in _ARCH


def build(machine: str, pid: int, *, threads: bool) -> bytes:
    """The filter's instructions.

    Args:
        machine: ``x86_64`` or ``aarch64``.
        pid: The guest's own process id, the only one that it may signal.
        threads: Whether it may start threads.
    """
    special = _SPECIAL[machine]
    code = [
        _instruction(_LOAD, 0, 0, _OFFSET_ARCH),
        _instruction(_JUMP_EQUAL, 1, 0, _ARCH[machine]),
        _instruction(_RETURN, 0, 0, _KILL_PROCESS),
        _instruction(_LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        code += [
            _instruction(_JUMP_AT_LEAST, 0, 1, _X32_BIT),
            _instruction(_RETURN, 0, 0, _REFUSE),
        ]
    blocks = {
        "ioctl": _one_of(1, _IOCTLS),
        "fcntl": _one_of(1, _FCNTLS),
        "prctl": _one_of(0, _PRCTLS),
        "tgkill": _one_of(0, (pid,)),
        "prlimit64": _one_of(0, (0,)),  # its own, whose hard limits can only be lowered
        "sendto": _without_address(),
        "socketpair": _stream_pair(),
        "clone": _new_thread() if threads else _answer(_REFUSE),
        # ENOSYS makes the C library fall back from clone3 to clone, whose flags can be read.
        "clone3": _answer(_UNKNOWN),
    }
    for name, block in blocks.items():
        code += [_instruction(_JUMP_EQUAL, 0, len(block), special[name]), *block]
    allowed = [number for number in calls.numbers(machine) if number not in special.values()]
    for first, last in _ranges(allowed):
        code += [
            _instruction(_JUMP_AT_LEAST, 0, 2, first),
            _instruction(_JUMP_ABOVE, 1, 0, last),
            _instruction(_RETURN, 0, 0, _ALLOW),
        ]
    code += [
        _instruction(_JUMP_ABOVE, 0, 1, calls.NEWEST),
        _instruction(_RETURN, 0, 0, _UNKNOWN),
        _instruction(_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(code)


@cache
def prepared(machine: str, *, threads: bool) -> bytes:
    """The filter but for the process id, made once in the template for all guests.

    Args:
        machine: ``x86_64`` or ``aarch64``.
        threads: Whether guests may start threads.
    """
    return build(machine, _SOME_PID, threads=threads)


def install(*, threads: bool) -> None:
    """Confine this process and all its threads to come, for good.

    Args:
        threads: Whether it may start threads.

    Raises:
        OSError: When the kernel refuses.
    """
    libc = system.libc()
    code = prepared(platform.machine(), threads=threads)
    code = code.replace(struct.pack("=I", _SOME_PID), struct.pack("=I", os.getpid()))
    program = _Program(len(code) // 8, code)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, "the kernel refuses the seccomp filter")


def _answer(value: int) -> list[bytes]:
    return [_instruction(_RETURN, 0, 0, value)]


def _load_argument(index: int, *, upper: bool = False) -> bytes:
    return _instruction(_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index + 4 * upper)


def _one_of(argument: int, values: Iterable[int]) -> list[bytes]:
    """Allow the call when an argument has one of the values."""
    block = [_load_argument(argument)]
    for value in values:
        block += [_instruction(_JUMP_EQUAL, 0, 1, value), *_answer(_ALLOW)]
    return [*block, *_answer(_REFUSE)]


def _without_address() -> list[bytes]:
    """Allow sendto when it names no receiver, so that it goes where the socket is connected."""
    block: list[bytes] = []
    for upper in (False, True):
        block += [_load_argument(4, upper=upper), _instruction(_JUMP_EQUAL, 1, 0, 0)]
        block += _answer(_REFUSE)
    return [*block, *_answer(_ALLOW)]


def _stream_pair() -> list[bytes]:
    """Allow pairs of streams: those of datagrams can be sent from to any address."""
    return [
        _load_argument(0),
        _instruction(_JUMP_EQUAL, 1, 0, _AF_UNIX),
        *_answer(_REFUSE),
        _load_argument(1),
        _instruction(_AND, 0, 0, _SOCK_KIND),
        _instruction(_JUMP_EQUAL, 1, 0, _SOCK_STREAM),
        *_answer(_REFUSE),
        *_answer(_ALLOW),
    ]


def _new_thread() -> list[bytes]:
    return [
        _load_argument(0),
        _instruction(_JUMP_ANY_BIT, 0, 1, _CLONE_NAMESPACES),
        *_answer(_REFUSE),
        _instruction(_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD),
        *_answer(_REFUSE),
        *_answer(_ALLOW),
    ]


def _ranges(values: list[int]) -> Iterator[tuple[int, int]]:
    """Sorted numbers as first and last of each run."""
    first = last = values[0]
    for value in values[1:]:
        if value > last + 1:
            yield first, last
            first = value
        last = value
    yield first, last


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
