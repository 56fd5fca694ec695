"""The first process of a container: starts the guest, and ends everything with its host.

Runs in the container with the standard library only::

    python3 -I -S -X utf8 boot.py BYTES SECONDS PROCESSORS   run a guest
    python3 -I -S -X utf8 boot.py --compile                  when the image is built

BYTES is the guest's memory limit, a little below that of the container, so that Python can still
raise MemoryError. SECONDS is the limit on the processor time of all processes of the container
together. PROCESSORS is the number of processors of the container. The wire is on standard input
and output.

The kernel keeps signals of processes in the container away from process 1, so no script can stop
process 1. Standard input is watched for its end only: Docker closes the stream when the host
disconnects. The guest's exit status is reported on standard error as a line of JSON.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from typing import NoReturn

GUEST = "/opt/delf/guest"
LIBRARIES = "/opt/delf/libraries"
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_SECCOMP_REFUSE = 0x00050001  # with EPERM
_SECCOMP_ALLOW = 0x7FFF0000  # the engine's own filter still applies
# For each processor, its constant in seccomp filters and the number of the call ``socket``.
_ARCHITECTURES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_EX_OSERR = 71
_MIN_WAIT_MILLISECONDS = 50
_OLD_TIME_COUNTER = "/sys/fs/cgroup/cpuacct/cpuacct.usage", 1e9
_OOM_COUNTERS = (
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
)


def main(arguments: list[str]) -> NoReturn:
    """Run the guest of one session until the guest or the host ends.

    Args:
        arguments: The command line arguments, as in the module's docstring.
    """
    if arguments[:1] == ["--compile"]:
        _load_guest()
        raise SystemExit(0)
    memory_bytes = int(arguments[0])
    cpu_seconds = float(arguments[1])
    processors = float(arguments[2])
    # Imported before the fork, so that parent and child share the import's time and memory.
    import ctypes  # noqa: F401  # pyright: ignore[reportUnusedImport]

    child = os.fork()
    if child == 0:
        _run_guest(memory_bytes)  # never returns
    _protect_from_guest()
    _supervise(child, _ProcessorTime(cpu_seconds, processors))


class _ProcessorTime:
    """A limit on the processor time that all processes of the container use together.

    The kernel's own limit applies to each process separately.

    Args:
        seconds: The limit in processor seconds, counted from the creation of this object.
        processors: The number of processors of the container.
    """

    def __init__(self, seconds: float, processors: float) -> None:
        self._processors = processors
        self._before = _used_cpu_seconds() or 0.0
        self._limit_seconds = seconds + self._before

    def milliseconds_left(self) -> float | None:
        """Return the milliseconds until the limit is reached if all processors stay busy.

        The result is None if the system does not count the used processor time.
        """
        used = _used_cpu_seconds()
        if used is None:
            return None
        return 1000 * (self._limit_seconds - used) / self._processors

    def used(self) -> float:
        """Return the processor seconds that the container has used so far."""
        return (_used_cpu_seconds() or self._before) - self._before


def _used_cpu_seconds() -> float | None:
    """Return the processor seconds of the container; None if the system does not count them."""
    counters: list[tuple[str, float]] = []
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):  # the group in version 2 of cgroups
            path = line.removeprefix("0::")
            counters.append((f"/sys/fs/cgroup{path}/cpu.stat", 1e6))
    counters.append(_OLD_TIME_COUNTER)
    for name, units_per_second in counters:
        text = _read(name)
        if text:
            # The newer file begins with "usage_usec 123"; the older one is just the number.
            return int(text.removeprefix("usage_usec").split()[0]) / units_per_second
    return None


def _protect_from_guest() -> None:
    """Deny the guest, which is the process that runs scripts, access to this process's memory.

    The guest runs as the same user as this process. A script in the guest could otherwise change
    this process, and keep the container alive after the host has ended.
    """
    import ctypes

    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        os._exit(_EX_OSERR)


def _install_seccomp_filter() -> None:
    """Refuse system calls that escape other restrictions and that engines before Docker 25 allow.

    No filter is installed on architectures outside ``_ARCHITECTURES``.
    """
    import ctypes
    import struct

    machine = _ARCHITECTURES.get(os.uname().machine)
    if machine is None:
        return
    code = _filter_code(*machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    instruction_count = len(code) // 8  # an instruction has 8 bytes
    program = struct.pack("@HP", instruction_count, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program, 0, 0) != 0:
        os.write(2, b"the kernel refuses the seccomp filter\n")
        os._exit(_EX_OSERR)


def _filter_code(arch: int, make_socket: int) -> bytes:
    """Return the instructions of the seccomp filter, which are classic BPF.

    Operations of io_uring bypass seccomp filters, and AF_VSOCK sockets ignore namespaces. Only Unix
    and internet sockets are allowed. Calls of another processor mode, such as 32-bit mode, are
    refused.

    Args:
        arch: The constant of the processor in seccomp filters.
        make_socket: The number of the system call ``socket``.
    """
    import struct

    load, equal, mask, end = 0x20, 0x15, 0x54, 0x06
    following, refuse, allow = "following", "refuse", "allow"
    # An instruction has an opcode, an operand and two targets: where to continue if its comparison
    # is true, and where if it is false.
    instructions = (
        (load, 4, following, following),  # the architecture
        (equal, arch, following, refuse),
        (load, 0, following, following),  # the number of the system call
        (mask, 0xBFFFFFFF, following, following),  # clears the x32 bit
        (equal, 425, refuse, following),  # io_uring_setup
        (equal, 426, refuse, following),  # io_uring_enter
        (equal, 427, refuse, following),  # io_uring_register
        (equal, make_socket, following, allow),
        (load, 16, following, following),  # the first argument of socket()
        (equal, 1, allow, following),  # AF_UNIX
        (equal, 2, allow, following),  # AF_INET
        (equal, 10, allow, refuse),  # AF_INET6
        (end, _SECCOMP_REFUSE, following, following),
        (end, _SECCOMP_ALLOW, following, following),
    )
    code = b""
    for index, (opcode, operand, if_true, if_false) in enumerate(instructions):
        # The kernel takes a target as the number of instructions to skip. The last instruction
        # allows, the one before it refuses.
        allow_skip = len(instructions) - 1 - (index + 1)
        skips = {following: 0, refuse: allow_skip - 1, allow: allow_skip}
        code += struct.pack("=HBBI", opcode, skips[if_true], skips[if_false], operand)
    return code


def _load_guest() -> None:
    sys.path.append(GUEST)
    from delf_sandbox.guest.preload import preload

    preload()


def _run_guest(memory_bytes: int) -> NoReturn:
    """Serve scripts over the connection to the host process until the host closes it."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    _prefer_guest_for_oom_kill()
    _install_seccomp_filter()
    read_fd = os.dup(0)
    write_fd = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    _load_guest()
    if os.access(LIBRARIES, os.R_OK):
        sys.path.append(LIBRARIES)
    from delf_sandbox.guest.serve import Server

    Server().serve(read_fd, write_fd)


def _supervise(child: int, processor_time: _ProcessorTime) -> NoReturn:
    """Wait until the guest or the host ends, or the processor time is used up; then exit.

    The exit of this process ends the container.
    """
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    child_ends = _watch_child_processes()
    os.close(1)  # the guest has its own copy; the host sees the end when all copies are closed
    poll = select.poll()
    host_connection = 0  # standard input
    no_data = 0  # poll() reports the end of a connection even if no event is requested
    poll.register(host_connection, no_data)
    poll.register(child_ends, select.POLLIN)
    _exit_if_guest_ended(child, processor_time)  # the guest may have ended before the watch began
    while True:
        remaining = processor_time.milliseconds_left()
        if remaining is not None and remaining <= 0:
            _report_exit(-signal.SIGXCPU, processor_time)
            os._exit(128 + signal.SIGXCPU)
        # The remaining time may be tiny, so without a minimum this loop could run very often.
        timeout = None if remaining is None else remaining + _MIN_WAIT_MILLISECONDS
        for descriptor, _ in poll.poll(timeout):
            if descriptor == host_connection:
                os._exit(0)
            os.read(child_ends, 4096)
            _exit_if_guest_ended(child, processor_time)


def _watch_child_processes() -> int:
    """Return a non-blocking descriptor that becomes readable when a child process ends."""
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    # Python writes a byte to this pipe for each signal that has a handler.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _report_exit(
    code: int, processor_time: _ProcessorTime, *, is_out_of_memory: bool = False
) -> None:
    """Report the guest's exit code and processor time to the host, on standard error.

    Args:
        code: The exit code, or the negative number of the signal that ended the guest.
        processor_time: The processor time of the container.
        is_out_of_memory: Whether the kernel ended the guest because memory ran out.
    """
    oom = b"true" if is_out_of_memory else b"false"
    report = b'{"exit": %d, "oom": %s, "cpu": %.3f}\n' % (code, oom, processor_time.used())
    os.write(2, report)


def _exit_if_guest_ended(child: int, processor_time: _ProcessorTime) -> None:
    """Reap all ended child processes. If ``child`` has ended, report its end and exit.

    ``child`` is the process that runs the scripts.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            is_out_of_memory = code == -signal.SIGKILL and _has_oom_kill()
            _report_exit(code, processor_time, is_out_of_memory=is_out_of_memory)
            was_ended_by_signal = code < 0
            if was_ended_by_signal:
                code = 128 - code  # as a shell reports the signal
            os._exit(code)


def _prefer_guest_for_oom_kill() -> None:
    """Make the kernel kill this process, not process 1, when memory runs out.

    This process is the guest, which runs scripts. Process 1 reports that memory ran out.
    """
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, b"1000")
        os.close(descriptor)
    except OSError:
        return


def _has_oom_kill() -> bool:
    """Return True if the kernel has killed a process of the container because memory ran out."""
    for name in _OOM_COUNTERS:
        lines = _read(name).splitlines()
        counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
        if int(counts.get("oom_kill", "0")) > 0:
            return True
    return False


def _read(name: str) -> str:
    try:
        descriptor = os.open(name, os.O_RDONLY)
        text = os.read(descriptor, 4096).decode("ascii")
        os.close(descriptor)
    except OSError:
        return ""
    return text


if __name__ == "__main__":
    main(sys.argv[1:])
