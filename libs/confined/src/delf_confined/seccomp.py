"""A seccomp filter: the calls of :mod:`calls`, a few with checked arguments.

Runs in a process before any other work, with the standard library only. The filter is classic BPF
(``linux/filter.h``, ``linux/seccomp.h``). Integers that the kernel takes as ``int`` are compared by
their lower half, as the kernel reads them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from delf_confined import calls, system

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
_INSTRUCTION: Final = struct.Struct("=HBBI")
_OFFSET_NUMBER: Final = 0
_OFFSET_ARCH: Final = 4
_OFFSET_ARGUMENTS: Final = 16
_X32_BIT: Final = 0x40000000
_REFUSE: Final = _ERRNO | errno.EPERM
_UNKNOWN_CALL: Final = _ERRNO | errno.ENOSYS

_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# The system calls with checked arguments, with their numbers on x86_64 and aarch64.
_CHECKED_CALLS: Final = {
    "futex": (202, 98),
    "mmap": (9, 222),
    "madvise": (28, 233),
    "open": (2, None),
    "openat": (257, 56),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "renameat2": (316, 276),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "pipe2": (293, 59),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "getsockopt": (55, 209),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "clone3": (435, 435),
    "prctl": (157, 167),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "getpriority": (140, 141),
    "sched_getaffinity": (204, 123),
}
_NUMBER_INDEX: Final = {"x86_64": 0, "aarch64": 1}

# The allowed ioctl requests, none of which sends signals or names another process.
_IOCTLS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# The allowed fcntl commands: duplicating descriptors, and reading and setting flags.
#
# Locks and signals to other processes are not allowed.
_FCNTLS: Final = (0, 1, 2, 3, 4, 1030)
# The fcntl commands for locks, which databases take to read a consistent state.
_FILE_LOCKS: Final = (5, 6, 7, 36, 37, 38)
# The allowed prctl operations, which read and set the names of threads and of memory areas.
_PRCTLS: Final = (15, 16, 0x53564D41)
# SIGKILL and SIGSTOP, which a guest may not send to itself.
#
# A guest that dies of SIGKILL is thus known to be killed from outside, and may be restarted.
_REFUSED_SIGNALS: Final = (9, 19)
_FUTEX_OPERATION_MASK: Final = 0xFF
_FUTEX_PRIVATE: Final = 0x80
# The allowed futex operations: waiting and waking within this process, and shared waits.
#
# The C library needs a shared wait to join a thread. Shared wakes are refused, because they would
# reach other processes. Python threads need no operations with priority inheritance.
_FUTEX_OPERATIONS: Final = (
    *(operation | _FUTEX_PRIVATE for operation in (0, 1, 3, 4, 5, 9, 10)),
    *(0, 9),  # FUTEX_WAIT and FUTEX_WAIT_BITSET, shared between processes
)
# The refused mmap flags: locked memory, huge pages, and stacks that grow downwards.
_REFUSED_MMAP_FLAGS: Final = 0x42100
# The refused madvise advice: MADV_MERGEABLE, which can reveal the pages of other processes, and the
# two kinds that make the kernel treat pages as damaged.
_REFUSED_MADVICE: Final = (12, 100, 101)
_ACCESS_MODE: Final = 0o3
_TRUNCATE: Final = 0o1000
_CREATE: Final = 0o100
# The allowed open flags: all except O_PATH, which Landlock does not restrict, and O_ASYNC.
_OPEN_FLAGS: Final = 0o27777703 & ~0o20000
# The sign bit of a clock id. Ids with this bit name the clocks of other processes and of devices.
_CLOCK_SIGN_BIT: Final = 0x80000000
# The only allowed rename flag, RENAME_NOREPLACE.
_RENAME_FLAGS: Final = 1
# The allowed pipe flags: O_CLOEXEC and O_NONBLOCK.
_PIPE_FLAGS: Final = 0o2004000
# The allowed flags for sending: MSG_DONTWAIT, MSG_EOR, MSG_NOSIGNAL and MSG_MORE.
_SEND_FLAGS: Final = 0xC0C0
# The allowed flags for receiving: MSG_PEEK, _TRUNC, _DONTWAIT, _WAITALL and _CMSG_CLOEXEC.
_RECEIVE_FLAGS: Final = 0x40000162
_SOL_SOCKET: Final = 1
# The readable socket options: SO_TYPE, _ERROR, _SNDBUF, _RCVBUF, _ACCEPTCONN, _PROTOCOL, _DOMAIN.
#
# SO_PEERCRED and SO_PEERPIDFD are not among them, because they give a handle of the host process.
_SOCKET_OPTIONS: Final = (3, 4, 7, 8, 30, 38, 39)
_CLONE_THREAD: Final = 0x00010000
_CLONE_NAMESPACES: Final = 0x7E020000
# A placeholder for the guest's process id, higher than any real one and unique in the filter.
_PLACEHOLDER_PID: Final = 0x7EADBEEF
_AF_UNIX: Final = 1
_SOCK_STREAM: Final = 1
_SOCK_KIND: Final = 0xF


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class Permissions(NamedTuple):
    """The permissions of a confined process, which may always compute and read.

    Args:
        threads: Whether the process may start threads.
        writes: Whether the process may create, change, move and remove files.
        locks: Whether the process may lock files.
    """

    threads: bool
    writes: bool = True
    locks: bool = False


def is_supported() -> bool:
    """Return True if system calls can be filtered on this operating system and processor."""
    return platform.system() == "Linux" and platform.machine() in _ARCH


@cache
def build(machine: str, permissions: Permissions) -> bytes:
    """Build a seccomp filter, and return its BPF instructions.

    A placeholder stands for the process id. The result is cached, so that a process which forks
    confined processes builds the filter once.

    Args:
        machine: ``x86_64`` or ``aarch64``.
        permissions: The permissions of the confined process.
    """
    allow = _return(_ALLOW)
    refuse = _return(_REFUSE)
    code = [
        _load(_OFFSET_ARCH),
        # A 64-bit process can switch to another architecture, where the numbers mean other calls.
        *_unless_equal(_ARCH[machine], _return(_KILL_PROCESS)),
        _load(_OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        # The x32 calls are the same kernel functions under other numbers.
        code += _if_at_least(_X32_BIT, refuse)
    for name, block in _argument_checks(permissions).items():
        number = _CHECKED_CALLS[name][_NUMBER_INDEX[machine]]
        if number is not None:
            code += _if_equal(number, block)
    # These calls are allowed with any arguments.
    for first, last in _number_ranges(calls.numbers(machine, writes=permissions.writes)):
        code += _if_between(first, last, allow)
    # Calls newer than this table get ENOSYS, so that the C library falls back to older calls.
    code += _if_above(calls.HIGHEST_NUMBER, _return(_UNKNOWN_CALL))
    code += refuse
    return b"".join(code)


# Each of the following functions returns a jump and then a block of instructions. A jump of 0 goes
# on with the block, and a jump of len(block) skips it. The condition is about the number that was
# loaded last.


def _if_equal(value: int, block: Sequence[bytes]) -> list[bytes]:
    return [_instruction(_JUMP_EQUAL, if_true=0, if_false=len(block), value=value), *block]


def _unless_equal(value: int, block: Sequence[bytes]) -> list[bytes]:
    return [_instruction(_JUMP_EQUAL, if_true=len(block), if_false=0, value=value), *block]


def _if_at_least(value: int, block: Sequence[bytes]) -> list[bytes]:
    return [_instruction(_JUMP_AT_LEAST, if_true=0, if_false=len(block), value=value), *block]


def _if_above(value: int, block: Sequence[bytes]) -> list[bytes]:
    return [_instruction(_JUMP_ABOVE, if_true=0, if_false=len(block), value=value), *block]


def _if_between(first: int, last: int, block: Sequence[bytes]) -> list[bytes]:
    skip_block_if_above_last = _instruction(_JUMP_ABOVE, if_true=len(block), if_false=0, value=last)
    return _if_at_least(first, [skip_block_if_above_last, *block])


def install(permissions: Permissions) -> None:
    """Install a seccomp filter for the system calls of this process and of its later threads.

    The filter cannot be removed.

    Raises:
        OSError: If the kernel refuses.
    """
    libc = system.libc()
    code = build(platform.machine(), permissions)
    code = code.replace(struct.pack("=I", _PLACEHOLDER_PID), struct.pack("=I", os.getpid()))
    program = _Program(len(code) // _INSTRUCTION.size, code)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, "the kernel refuses the seccomp filter")


def _argument_checks(permissions: Permissions) -> dict[str, list[bytes]]:
    """Return the filter's instructions for each system call whose arguments the filter checks.

    Instructions run one after the other, until one allows or refuses the call. The instructions of
    a ``_require_…`` function can only refuse. So the last instructions for a call must either allow
    or refuse the call.
    """
    own_process = (0, _PLACEHOLDER_PID)  # for the kernel, 0 is the calling process
    if permissions.writes:
        allow_opening = _allow_opening
        renames = _allow_without_bits(4, ~_RENAME_FLAGS)
    else:
        allow_opening = _allow_reading
        renames = _return(_REFUSE)
    fcntls = (*_FCNTLS, *_FILE_LOCKS) if permissions.locks else _FCNTLS
    unix_sockets = _require_argument(0, _AF_UNIX)
    stream_sockets = _allow_values(1, (_SOCK_STREAM,), mask=_SOCK_KIND)
    return {
        "futex": _allow_values(1, _FUTEX_OPERATIONS, mask=_FUTEX_OPERATION_MASK),
        "mmap": _allow_without_bits(3, _REFUSED_MMAP_FLAGS),
        "madvise": _forbid_arguments(2, _REFUSED_MADVICE),
        "open": allow_opening(1),
        "openat": allow_opening(2),
        # The ids of the clocks of other processes and of devices have the sign bit.
        "clock_gettime": _allow_without_bits(0, _CLOCK_SIGN_BIT),
        "clock_getres": _allow_without_bits(0, _CLOCK_SIGN_BIT),
        "clock_nanosleep": _allow_without_bits(0, _CLOCK_SIGN_BIT),
        "renameat2": renames,
        "ioctl": _allow_values(1, _IOCTLS),
        "fcntl": _allow_values(1, fcntls),
        "pipe2": _allow_without_bits(1, ~_PIPE_FLAGS),
        "sendto": _allow_without_address(),
        "recvfrom": _allow_without_bits(3, ~_RECEIVE_FLAGS),
        "getsockopt": _require_argument(1, _SOL_SOCKET) + _allow_values(2, _SOCKET_OPTIONS),
        "socketpair": unix_sockets + stream_sockets,
        "clone": _allow_new_thread() if permissions.threads else _return(_REFUSE),
        # ENOSYS makes the C library fall back from clone3 to clone, whose flags can be read.
        "clone3": _return(_UNKNOWN_CALL),
        "prctl": _allow_values(0, _PRCTLS),
        "tgkill": _require_argument(0, _PLACEHOLDER_PID) + _forbid_arguments(2, _REFUSED_SIGNALS),
        # Limits may be read but not set: at a lowered limit, the kernel sends SIGKILL, which the
        # host takes for a kill from outside (see _REFUSED_SIGNALS).
        "prlimit64": [*_require_argument(0, 0), *_require_null(2), *_return(_ALLOW)],
        "getpgid": _allow_values(0, own_process),
        "getsid": _allow_values(0, own_process),
        "getpriority": _require_argument(0, 0) + _allow_values(1, own_process),
        "sched_getaffinity": _allow_values(0, own_process),
    }


def _return(value: int) -> list[bytes]:
    return [_instruction(_RETURN, if_true=0, if_false=0, value=value)]


def _load(offset: int) -> bytes:
    """Return the BPF instruction that loads 32 bits of the data about a system call."""
    return _instruction(_LOAD, if_true=0, if_false=0, value=offset)


def _and(mask: int) -> bytes:
    """Return the BPF instruction that keeps only the bits of a mask in the loaded number."""
    return _instruction(_AND, if_true=0, if_false=0, value=mask)


def _load_argument(index: int, *, upper: bool = False) -> bytes:
    """Return the BPF instruction that loads the lower or the upper 32 bits of an argument.

    Arguments have 64 bits, of which the lower 32 come first.
    """
    offset_in_argument = 4 if upper else 0
    return _load(_OFFSET_ARGUMENTS + 8 * index + offset_in_argument)


def _allow_values(argument: int, values: Iterable[int], *, mask: int | None = None) -> list[bytes]:
    """Return BPF code that allows a system call only if an argument has one of the given values.

    With a mask, only the bits of the mask are compared.
    """
    block = [_load_argument(argument)]
    if mask is not None:
        block.append(_and(mask))
    for value in values:  # for any other value, jump over the return
        block += [_instruction(_JUMP_EQUAL, if_true=0, if_false=1, value=value), *_return(_ALLOW)]
    return [*block, *_return(_REFUSE)]


def _forbid_arguments(argument: int, values: Iterable[int]) -> list[bytes]:
    """Return BPF code that refuses a system call if an argument has one of the given values."""
    block = [_load_argument(argument)]
    for value in values:  # for any other value, jump over the return
        block += [_instruction(_JUMP_EQUAL, if_true=0, if_false=1, value=value), *_return(_REFUSE)]
    return [*block, *_return(_ALLOW)]


def _require_argument(argument: int, value: int) -> list[bytes]:
    """Return BPF code that refuses a system call unless an argument equals the given value.

    If the argument equals the value, the instructions after these decide about the call.
    """
    return [
        _load_argument(argument),
        _instruction(_JUMP_EQUAL, if_true=1, if_false=0, value=value),
        *_return(_REFUSE),
    ]


def _refuse_bits(argument: int, bits: int) -> list[bytes]:
    """Return BPF code that refuses a system call if an argument has any of the given bits.

    Otherwise, the argument stays loaded for further instructions.
    """
    bits &= 0xFFFFFFFF  # ~FLAGS is a negative number, but BPF compares 32 bits
    return [
        _load_argument(argument),
        # If none of the bits is set, jump over the refusal.
        _instruction(_JUMP_ANY_BIT, if_true=0, if_false=1, value=bits),
        *_return(_REFUSE),
    ]


def _allow_without_bits(argument: int, bits: int) -> list[bytes]:
    """Return BPF code that allows a system call only if an argument has none of the given bits."""
    return [*_refuse_bits(argument, bits), *_return(_ALLOW)]


def _allow_opening(flags_index: int) -> list[bytes]:
    """Return filter instructions that allow opening files for reading, writing or both.

    Args:
        flags_index: The index of the system call's argument with the opening flags.
    """
    block = _refuse_bits(flags_index, ~_OPEN_FLAGS)
    # The flags stay loaded. Keep only the flags that the combinations below consist of.
    block.append(_and(_ACCESS_MODE | _TRUNCATE))
    forbidden_combinations = (
        # O_TRUNC with O_RDONLY, which is 0. Before ABI 3, Landlock allows this truncation of files
        # that may only be read.
        _TRUNCATE,
        # Mode 3, neither reading nor writing: Landlock requires no right for this mode.
        _ACCESS_MODE,
        _ACCESS_MODE | _TRUNCATE,
    )
    for flags in forbidden_combinations:
        block += _if_equal(flags, _return(_REFUSE))
    return [*block, *_return(_ALLOW)]


def _allow_reading(flags_index: int) -> list[bytes]:
    """Return filter instructions that allow opening existing files for reading only.

    Args:
        flags_index: The index of the system call's argument with the opening flags.
    """
    forbidden_flags = ~_OPEN_FLAGS | _ACCESS_MODE | _TRUNCATE | _CREATE
    return _allow_without_bits(flags_index, forbidden_flags)


def _allow_without_address() -> list[bytes]:
    """Return BPF code that allows ``sendto`` only without an address and with harmless flags."""
    flags_index = 3
    address_index = 4
    return [
        *_refuse_bits(flags_index, ~_SEND_FLAGS),
        *_require_null(address_index),
        *_return(_ALLOW),
    ]


def _require_null(argument: int) -> list[bytes]:
    """Return BPF code that refuses a system call unless an argument is a null pointer."""
    block: list[bytes] = []
    # BPF compares 32 bits at a time, so each half of the pointer is checked.
    for upper in (False, True):
        block += [
            _load_argument(argument, upper=upper),
            _instruction(_JUMP_EQUAL, if_true=1, if_false=0, value=0),
            *_return(_REFUSE),
        ]
    return block


def _allow_new_thread() -> list[bytes]:
    """Return the BPF instructions that allow ``clone`` for a thread without new namespaces."""
    refuse = _return(_REFUSE)
    skip_refusal_if_thread = _instruction(
        _JUMP_ANY_BIT, if_true=len(refuse), if_false=0, value=_CLONE_THREAD
    )
    return [
        *_refuse_bits(0, _CLONE_NAMESPACES),  # the argument stays loaded
        skip_refusal_if_thread,
        *refuse,
        *_return(_ALLOW),
    ]


def _number_ranges(values: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each sequence of consecutive numbers."""
    first = values[0]
    last = first
    for value in values[1:]:
        if value > last + 1:
            yield first, last
            first = value
        last = value
    yield first, last


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, value)
