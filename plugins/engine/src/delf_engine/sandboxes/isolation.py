"""Measured isolation of a sandbox, tested from inside by system calls.

The isolation that a backend declares may be wrong. So scripts that try to reach the host are run in
the sandbox, and their findings cap the declared isolation. This guards against mistakes, not
against malicious plugins, which run on the host anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from delf.errors import SandboxUnavailableError
from delf.machine.folders import user_folder
from delf.machine.interpreter import own_python
from delf.protocols.sandbox import (
    Crashed,
    Done,
    LimitReached,
    Limits,
    SandboxBackend,
    SandboxSession,
    ScriptHost,
    SessionSpec,
)
from delf.records import dataclass
from delf.types import Isolation, isolation_rank

_SECONDS: Final = 30.0
_LIMITS: Final = Limits(cpu_seconds=20.0, memory_bytes=512 * 1024 * 1024)
# Low limits, so that the tests reach them quickly.
_MEMORY: Final = 256 * 1024 * 1024
_CPU: Final = 0.5
# The arguments of a Python process that waits until it is killed.
_CANARY: Final = ("-I", "-S", "-c", "import sys; sys.stdin.read()")
# A text that is different for each start of a Linux kernel.
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The results of the isolation tests: unreachable resources and enforced limits.

    Args:
        can_make_system_calls: Whether scripts can make system calls at all; an interpreter other
            than CPython may have none.
        protects_files: Whether scripts are kept from reading and creating host files, and from
            changing input files.
        blocks_network: Whether servers of the host and other networks are unreachable.
        protects_processes: Whether no host process can be inspected, traced or killed.
        blocks_new_processes: Whether no process can be started. Containers may allow this.
        has_own_kernel: Whether the kernel differs from the host's.
        limits_memory: Whether memory is limited; None if not tested.
        limits_cpu: Whether processor time is limited; None if not tested.
        limits_process_count: Whether the number of processes is limited; None if not tested.
        reached: The reached resources, in words.
    """

    can_make_system_calls: bool
    protects_files: bool
    blocks_network: bool
    protects_processes: bool
    blocks_new_processes: bool
    has_own_kernel: bool
    limits_memory: bool | None = None
    limits_cpu: bool | None = None
    limits_process_count: bool | None = None
    reached: tuple[str, ...] = ()

    def trusted_isolation(self, claimed: Isolation) -> Isolation:
        """Return the isolation to rely on: the weaker of the measured and the declared isolation.

        Args:
            claimed: The declared isolation.
        """
        is_confined = self.protects_files and self.blocks_network and self.protects_processes
        if not is_confined:
            return "process"
        if claimed == "interpreter" and self.can_make_system_calls:
            return "process"  # an interpreter promises that scripts make no system calls
        measured: Isolation
        if not self.can_make_system_calls:
            measured = "interpreter"  # without system calls, the kernel cannot be tested
        elif self.has_own_kernel:
            measured = "vm"
        else:
            measured = "container"
        return min(claimed, measured, key=isolation_rank)


class _Host(ScriptHost):
    """A script host that collects the printed output."""

    def __init__(self) -> None:
        self.text = ""

    def printed(self, text: str) -> None:
        self.text += text[:100_000]


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostTargets:
    """Files, processes and servers of the host that test scripts try to reach.

    Args:
        secret: The text in the files outside of the sandbox, and in the environment of the process.
        input_text: The text in the input files.
        folders: The folders, each with a file that scripts must not read, and an input file.
        port: The port of a server.
        visits: The visits of scripts to the servers, in words; the list grows.
        process: A process.
    """

    secret: str
    input_text: str
    folders: Sequence[Path]
    port: int
    visits: list[str]
    process: subprocess.Popen[bytes]

    @property
    def inputs(self) -> Sequence[Path]:
        """The input files, which scripts may read and not change."""
        return [folder / "inputs" / "given.txt" for folder in self.folders]

    @property
    def was_process_reached(self) -> bool:
        """True if a script killed, signalled or traced the host's test process."""
        was_ended = self.process.poll() is not None
        if was_ended:
            return True
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        except OSError:
            # If the system has /proc at all, the process is gone.
            return Path("/proc/self").exists()
        fields: dict[str, str] = {}
        for line in status.splitlines():
            name, _, field_value = line.partition(":\t")
            fields[name] = field_value
        # A pending signal was sent, too: the process just has not handled it yet.
        has_pending_signal = any(int(fields[name], 16) for name in ("SigPnd", "ShdPnd"))
        is_ending = "VmSize" not in fields  # an ending process first loses its memory
        return has_pending_signal or is_ending or fields["TracerPid"] != "0"

    def has_strange_files(self) -> bool:
        """Return whether a script created a file outside of its sandbox."""
        own_names = {"secret", "listener", "inputs", *(path.name for path in self.inputs)}
        folders = (*self.folders, *(path.parent for path in self.inputs))
        for folder in folders:
            if any(path.name not in own_names for path in folder.iterdir()):
                return True
        return False

    def has_changed_inputs(self) -> bool:
        """Return True if a script changed or removed an input file."""
        original = self.input_text.encode()
        return any(not path.is_file() or path.read_bytes() != original for path in self.inputs)


@contextlib.asynccontextmanager
async def _host_targets() -> AsyncGenerator[_HostTargets]:
    """Provide files, servers and a process of the host for the test scripts."""
    secret, input_text = secrets.token_hex(16), secrets.token_hex(16)
    visits: list[str] = []
    folders: list[Path] = []

    def record_visit(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Record that a test script has reached a server of the host."""
        visits.append("a server of the host")
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        # Two folders, because a sandbox may replace the temporary folder by its own.
        for parent in (None, user_folder("cache")):
            with contextlib.suppress(OSError):
                folders.append(_make_folder(stack, parent, secret, input_text))
        if not folders:  # untested files must not count as protected
            raise SandboxUnavailableError("no folder can be created to test the sandbox with")
        server = await asyncio.start_server(record_visit, "127.0.0.1", 0)
        stack.push_async_callback(_close_server, server)
        port = server.sockets[0].getsockname()[1]
        with contextlib.suppress(OSError):  # the path may be too long for a socket
            path = str(folders[0] / "listener")
            unix_server = await asyncio.start_unix_server(record_visit, path)
            stack.push_async_callback(_close_server, unix_server)
        # Not with asyncio's subprocesses: a test script may trace and kill the process, and the
        # event loop of Python 3.12 would then block while it waits for the process.
        process = await asyncio.to_thread(_start_process, {"DELF_BAIT": secret})
        stack.push_async_callback(_kill, process)
        yield _HostTargets(
            secret=secret,
            input_text=input_text,
            folders=folders,
            port=port,
            visits=visits,
            process=process,
        )


def _make_folder(
    stack: contextlib.AsyncExitStack, parent: Path | None, secret: str, input_text: str
) -> Path:
    """Create a folder with a secret file and an input file; ``stack`` removes the folder."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="delf-bait-", dir=parent))
    # Register the removal before the folder is filled, so that it happens even if the rest fails.
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    folder.joinpath("secret").write_text(secret, encoding="utf-8")
    path = folder / "inputs" / "given.txt"
    path.parent.mkdir()
    path.write_text(input_text, encoding="utf-8")
    return folder


async def _close_server(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()


def _start_process(environ: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [own_python(), *_CANARY]
    # Start the process in a process group of its own. Otherwise Ctrl-C on the terminal would end
    # the process, as if a script had reached it.
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environ, process_group=0)  # noqa: S603


async def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, wait for its end, and close its input."""
    with process.stdin or contextlib.nullcontext():
        process.kill()
        await asyncio.to_thread(process.wait)


async def measure(backend: SandboxBackend, *, thorough: bool = False) -> Measured:
    """Test an available backend by running scripts in it that try to escape.

    Args:
        backend: The backend; it stays open.
        thorough: Whether to test the limits, too, which takes some seconds.

    Raises:
        SandboxUnavailableError: If no session can be opened, or no folder can be created on the
            host.
    """
    async with _host_targets() as targets:
        probe = _Probe(backend, targets)
        try:
            # Each attempt is a script of its own, because a sandbox may kill a script that tries
            # something forbidden. All scripts begin with `FIND_POSIX`, which prints "calls" after a
            # system call.
            can_make_system_calls = "calls" in await probe.run("")
            kernel_text = await probe.run(_KERNEL)
            file_texts = await probe.run(_FILES)
            await probe.run(CHANGES_INPUTS)
            network_text = await probe.run(_NETWORK)
            # This script prints the environment of the host's process if it is readable, and a line
            # such as "reached a start of processes" for each start of a process that succeeds.
            process_text = await probe.run(_PROCESSES)
        finally:
            await probe.aclose()
        reached_files = _reached_among(
            {
                "a file of the host": targets.secret in file_texts,
                "a folder of the host, to write": targets.has_strange_files(),
                "an input file, to write": targets.has_changed_inputs(),
            }
        )
        reached_network = [*_reached_in_output(network_text), *targets.visits]
        reached_processes = _reached_among(
            {
                "a process of the host": targets.was_process_reached,
                "the environment of a process": targets.secret in process_text,
            }
        )
        process_starts = _reached_in_output(process_text)
        reached = [*reached_files, *reached_network, *reached_processes, *process_starts]
        measurement = Measured(
            can_make_system_calls=can_make_system_calls,
            protects_files=not reached_files,
            blocks_network=not reached_network,
            protects_processes=not reached_processes,
            blocks_new_processes=not process_starts,
            has_own_kernel=_is_other_kernel(kernel_text),
            reached=tuple(dict.fromkeys(reached)),
        )
    if thorough:
        return await _with_limits(backend, measurement)
    return measurement


async def _with_limits(backend: SandboxBackend, measurement: Measured) -> Measured:
    """Add to a measurement whether the sandbox limits memory, processor time and processes."""
    memory_limits = replace(_LIMITS, memory_bytes=_MEMORY)
    limits_memory = await _is_limited(backend, _TAKES_MEMORY, memory_limits)
    limits_cpu = await _is_limited(backend, _TAKES_TIME, replace(_LIMITS, cpu_seconds=_CPU))
    limits_process_count = measurement.blocks_new_processes
    if not limits_process_count:
        script = FIND_POSIX + _TAKES_PROCESSES
        # The script goes on if a limit refuses it a further process.
        limits_process_count = await _is_limited(backend, script, _LIMITS, may_end_normally=True)
    return replace(
        measurement,
        limits_memory=limits_memory,
        limits_cpu=limits_cpu,
        limits_process_count=limits_process_count,
    )


def _reached_in_output(text: str) -> list[str]:
    """Return the resources that a script reached, from lines such as ``reached a network``."""
    mark = "reached "
    return [line.removeprefix(mark) for line in text.split("\n") if line.startswith(mark)]


class _Probe:
    """Runs test scripts in one session, and opens another session if the first one dies."""

    def __init__(self, backend: SandboxBackend, targets: _HostTargets) -> None:
        self._backend = backend
        inputs = tuple(map(str, targets.inputs))
        self._spec = SessionSpec(tools=(), limits=_LIMITS, files=inputs)
        # Opened by run(); None before the first script and after aclose().
        self._session: SandboxSession | None = None
        # The variables with which each test script finds the targets, such as ``PORT`` for the port
        # of the server. run() writes them as assignments before the script.
        self._script_constants = {
            "PATHS": [str(folder / "secret") for folder in targets.folders],
            "FOLDERS": list(map(str, targets.folders)),
            "INPUTS": [backend.visible_path(path) for path in inputs],
            "PORT": targets.port,
            "LISTENER": str(targets.folders[0] / "listener"),
            "PID": targets.process.pid,
        }

    async def run(self, script: str) -> str:
        """Return the output of a script, even if the sandbox killed it."""
        if self._session is None or not self._session.alive:
            await self.aclose()
            self._session = await self._backend.open(self._spec)
        # Assigned in the script, because a session takes no variables.
        constants = self._script_constants.items()
        assignments = "".join(f"{name} = {value!r}\n" for name, value in constants)
        host = _Host()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                await self._session.execute(assignments + FIND_POSIX + script, host)
        return host.text

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.aclose()


async def _is_limited(
    backend: SandboxBackend, script: str, limits: Limits, *, may_end_normally: bool = False
) -> bool:
    """Return whether the sandbox stops a script that uses up a resource.

    Args:
        backend: The backend.
        script: The script; it prints "reached" if it was not limited.
        limits: The limits of the session.
        may_end_normally: Whether a script that is limited may still end without an error.
    """
    session = await backend.open(SessionSpec(tools=(), limits=limits))
    host = _Host()
    try:
        async with asyncio.timeout(_SECONDS):
            outcome = await session.execute(script, host)
    except TimeoutError:
        return False  # the script still runs, so that no limit has stopped it
    finally:
        await session.aclose()
    was_stopped = isinstance(outcome, (LimitReached, Crashed))
    has_ended_normally = isinstance(outcome, Done)
    may_be_limited = was_stopped or (may_end_normally and has_ended_normally)
    return may_be_limited and "reached" not in host.text


def _reached_among(tests: Mapping[str, bool]) -> list[str]:
    return [resource for resource, was_reached in tests.items() if was_reached]


def _is_other_kernel(kernel_text: str) -> bool:
    """Return True if a sandbox's kernel is not the host's.

    Args:
        kernel_text: The kernel's release, version and boot id, as printed by a script in the
            sandbox; empty if the script could not read them.
    """
    host = platform.uname()
    try:
        host_boot_id = Path(_BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        host_boot_id = "?"
    # All have to differ: a sandbox on the host's own kernel may hide or change some of these texts.
    return (
        bool(kernel_text.strip())
        and host_boot_id not in kernel_text
        and f"{host.release} {host.version}" not in kernel_text
    )


# -- the scripts -----------------------------------------------------------------------------

FIND_POSIX: Final = """
modules = None
try:
    import sys
    modules = sys.modules if "posix" in sys.modules else None
except BaseException:
    pass
if modules is None:
    try:
        import re
        modules = re.enum.sys.modules
    except BaseException:
        pass
if modules is None:
    try:
        import asyncio
        modules = asyncio.base_events.sys.modules
    except BaseException:
        pass
if modules is None:
    try:
        for kind in ().__class__.__base__.__subclasses__():
            named = getattr(getattr(kind, "__init__", None), "__globals__", {})
            found = getattr(named.get("sys"), "modules", {})
            if "posix" in found:
                modules = found
                break
    except BaseException:
        pass
load = posix = libc = ctypes = None
try:
    load = modules["builtins"].__import__
    posix = load("posix")
    posix.getpid()
    print("calls")
except BaseException:
    pass
try:
    ctypes = load("ctypes")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.getpid()
    print("calls")
except BaseException:
    pass

def attempt(what, work):
    try:
        if work() is True and what:
            print("reached", what)
    except BaseException:
        pass

def number(x86, arm):
    return x86 if posix.uname().machine == "x86_64" else arm

def syscall(x86, arm, *arguments):
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return libc.syscall(ctypes.c_long(number(x86, arm)), *values)
"""
"""Python code that tries to reach host resources, with helpers; findings are printed."""

_KERNEL: Final = """
try:
    print(posix.uname().release, posix.uname().version)
except BaseException:
    pass
try:
    file = posix.open("/proc/sys/kernel/random/boot_id", 0)
    print(posix.read(file, 100).decode())
except BaseException:
    pass
"""

_FILES: Final = """
def show(file):
    if file >= 0:
        print(posix.read(file, 1000).decode("ascii", "replace"))

for path in PATHS:
    attempt("", lambda: print(open(path).read()))
    attempt("", lambda: print(load("io").open(path).read()))
    attempt("", lambda: show(posix.open(path, 0)))
    attempt("", lambda: show(libc.open(path.encode(), 0)))
    attempt("", lambda: show(syscall(257, 56, -100, path.encode(), 0, 0)))
    attempt("", lambda: show(syscall(437, 437, -100, path.encode(), bytes(24), 24)))
for folder in FOLDERS:
    attempt("", lambda: open(folder + "/a", "w").close())
    attempt("", lambda: posix.open(folder + "/b", 0o101, 0o600))
    attempt("", lambda: libc.open((folder + "/c").encode(), 0o101, 0o600))
    attempt("", lambda: syscall(257, 56, -100, (folder + "/d").encode(), 0o101, 0o600))
    attempt("", lambda: posix.mkdir(folder + "/e"))
    attempt("", lambda: posix.symlink("secret", folder + "/f"))
"""

CHANGES_INPUTS: Final = """
def spoil(path, name):
    attempt("", lambda: posix.write(posix.open(path, 1), b"x"))
    attempt("", lambda: libc.write(libc.open(name, 1), b"x", 1))
    attempt("", lambda: syscall(1, 64, syscall(257, 56, -100, name, 1, 0), b"x", 1))
    attempt("", lambda: libc.chmod(name, 0o666))
    attempt("", lambda: libc.write(libc.open(name, 1), b"x", 1))
    attempt("", lambda: libc.open(name + b".new", 0o101, 0o600))
    attempt("", lambda: libc.unlink(name))

for path in INPUTS:
    spoil(path, path.encode())
"""
"""A script part, after :data:`FIND_POSIX`, that tries to change the input files by system calls."""

_NETWORK: Final = """
def visit(family, address, kind=1):
    made = load("_socket").socket(family, kind)
    made.settimeout(2)
    made.connect(address)
    return True

def visit_by_libc():
    where = bytes([2, 0]) + PORT.to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    return libc.connect(libc.socket(2, 1, 0), where, len(where)) == 0

attempt("a server of the host", lambda: visit(2, ("127.0.0.1", PORT)))
attempt("a server of the host", visit_by_libc)
attempt("a server of the host", lambda: visit(1, LISTENER))
attempt("a route to other machines", lambda: visit(2, ("192.0.2.1", 9), 2))
try:
    import asyncio
    await asyncio.wait_for(asyncio.open_connection("127.0.0.1", PORT), 2)
    print("reached a server of the host")
except BaseException:
    pass
"""

_PROCESSES: Final = """
def environment():
    print(posix.read(posix.open("/proc/%d/environ" % PID, 0), 4000).decode("ascii", "replace"))

def fork():
    child = posix.fork()
    if child == 0:
        posix._exit(0)
    return child > 0

attempt("", environment)
attempt("a start of processes", fork)
attempt("a start of programs", lambda: posix.posix_spawn("/bin/true", ["true"], {}) > 0)
attempt("", lambda: libc.ptrace(16, PID, 0, 0))
for end in (
    lambda: posix.kill(PID, 9) is None,
    lambda: libc.kill(PID, 9) == 0,
    lambda: syscall(234, 131, PID, PID, 9) == 0,
    lambda: syscall(424, 424, syscall(434, 434, PID, 0), 9, None, 0) == 0,
):
    try:
        if end():
            break  # its number may be another process's by now
    except BaseException:
        pass
"""

_TAKES_MEMORY: Final = f"""
taken = []
for _ in range(8):
    taken.append("x" * {_MEMORY // 4})
print("reached", len(taken))
"""

_TAKES_PROCESSES: Final = """
reader, writer = posix.pipe()
try:
    for _ in range(200):
        if posix.fork() == 0:
            try:
                posix.close(writer)
                posix.read(reader, 1)
            finally:
                posix._exit(0)
    print("reached 200")
except OSError:
    pass
posix.close(writer)
"""

_TAKES_TIME: Final = "while True:\n    pass\n"
