"""The guests of the local sandbox, as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path


def guests() -> list[int]:
    """The processes that the template processes of this one have forked."""
    above = set(templates())
    return [pid for pid, parent in _parents().items() if parent in above]


def templates() -> list[int]:
    """The template processes of this one: each leads a session of its own."""
    return [
        pid
        for pid in children_of(os.getpid())
        if b"template" in Path(f"/proc/{pid}/cmdline").read_bytes() and os.getsid(pid) == pid
    ]


def children_of(pid: int) -> list[int]:
    """The processes that one has started."""
    return [child for child, parent in _parents().items() if parent == pid]


def _parents() -> dict[int, int]:
    above: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "stat").read_text()
            above[int(folder.name)] = int(line.rpartition(")")[2].split()[1])
    return above


def kill_oldest_guest() -> int | None:
    """Kill the one that was forked first of those that live; its number, where there is one."""
    for pid in sorted(guests()):
        with contextlib.suppress(ProcessLookupError):  # its template knows already that it ended
            handle = os.pidfd_open(pid)
            try:
                if not select.select([handle], (), (), 0)[0]:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    return pid
            finally:
                os.close(handle)
    return None


def kill_guests() -> list[int]:
    """Kill them all; their numbers."""
    killed = guests()
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(pid, signal.SIGKILL)
    return killed
