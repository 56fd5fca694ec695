"""Opens sandboxes for a suite, and checks for leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from delf.protocols.sandbox import Done, Failed, Outcome, SandboxBackend, SandboxSession
from delf_devkit.testing.scripts import RecordingScriptHost

_CHECK_SECONDS = 0.02
_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37
"""The numbers of two options of the Linux function ``prctl``."""
# The indexes of fields in the result of _stat(). Because _stat() leaves out the first two fields,
# these are the fields 3, 4 and 22 of ``stat`` in the manual page proc(5).
_STATE = 0
_PARENT_PID = 1
_START_TIME = 19


class ProcessId(NamedTuple):
    """A pid with the start time of its process.

    If another process reuses the pid, its start time is different.
    """

    pid: int
    start_time: str


@dataclass
class Running:
    """A sandbox session together with the script host that answers its calls."""

    session: SandboxSession
    host: RecordingScriptHost

    async def __call__(self, code: str) -> Outcome:
        """Run a script."""
        return await self.session.execute(code, self.host)


class Bench:
    """A context manager that opens sessions of a backend, and closes all of them on exit."""

    def __init__(self, backend: SandboxBackend) -> None:
        self.backend = backend
        self._sessions: list[SandboxSession] = []

    async def open(self, host: RecordingScriptHost | None = None, **options: Any) -> Running:
        """Open a fresh session.

        Args:
            host: The script host.
            options: Fields of ``SessionSpec``.
        """
        host = host or RecordingScriptHost()
        session = await self.backend.open(host.spec(**options))
        self._sessions.append(session)
        return Running(session, host)

    async def run(
        self, code: str, host: RecordingScriptHost | None = None, **options: Any
    ) -> Outcome:
        """Run a script in a fresh session."""
        running = await self.open(host, **options)
        return await running(code)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for session in self._sessions:
            await session.aclose()
        await self.backend.aclose()


def require_done(outcome: Outcome) -> Done:
    """Return the outcome of a script; fail the test if the script did not succeed."""
    assert isinstance(outcome, Done), outcome
    return outcome


def require_failed(outcome: Outcome, kind: str | None = None) -> Failed:
    """Return the outcome of a script; fail the test unless the script failed.

    Args:
        outcome: The outcome.
        kind: The expected kind of failure; any kind when omitted.
    """
    assert isinstance(outcome, Failed), outcome
    assert kind is None or outcome.kind == kind, outcome
    return outcome


def processes_below(parent: int | None = None) -> set[ProcessId]:
    """Return the descendants of a process. Without ``/proc`` the result is empty.

    Args:
        parent: The pid of the process; this process when omitted.
    """
    parents: dict[int, int] = {}
    starts: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(folder)
        if fields:
            pid = int(folder.name)
            parents[pid] = int(fields[_PARENT_PID])
            starts[pid] = fields[_START_TIME]
    processes: set[int] = set()
    generation = {os.getpid() if parent is None else parent}
    while generation:
        # Skip the processes found before: a pid that is reused meanwhile could make a cycle.
        generation = {
            pid for pid, parent_pid in parents.items() if parent_pid in generation
        } - processes
        processes |= generation
    return {ProcessId(pid, starts[pid]) for pid in processes}


def still_runs(process: ProcessId) -> bool:
    """Return True if a process still runs and its pid was not reused."""
    fields = _stat(Path(f"/proc/{process.pid}"))
    if not fields:
        return False
    is_zombie = fields[_STATE] == "Z"  # ended, but its parent has not read the exit status
    return fields[_START_TIME] == process.start_time and not is_zombie


@contextlib.contextmanager
def adopted_orphans() -> Generator[None]:
    """Make this process the parent of processes whose own parent ends, while the block runs.

    Otherwise, processes that a sandbox leaves behind become children of the system's first
    process, and :func:`processes_below` misses them. Works on Linux only.
    """
    if sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None)
    before = ctypes.c_int()
    libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


async def remaining_after(processes: set[ProcessId], seconds: float) -> set[ProcessId]:
    """Wait some seconds for processes to end, and return those that still run."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    running = {process for process in processes if still_runs(process)}
    while running and loop.time() < end:
        await asyncio.sleep(_CHECK_SECONDS)
        running = {process for process in running if still_runs(process)}
    return running


def _stat(folder: Path) -> list[str]:
    """Return the fields of the file ``stat`` in a ``/proc/PID`` folder, from the third on.

    The third field is the process's state. The list is empty if the file cannot be read.
    """
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # The second field, the program's name in brackets, may itself have blanks and brackets.
    return text.rpartition(")")[2].split()
