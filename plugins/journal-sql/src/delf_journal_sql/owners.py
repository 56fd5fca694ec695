"""Owners of tasks: the processes that work on them, and their heartbeats."""

from __future__ import annotations

import functools
import os
import socket
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from delf.protocols.journal import PerhapsAlive
from delf.types import TaskState
from delf_journal_sql.database import Connection
from delf_journal_sql.statements import SqlRow

HEARTBEAT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 30.0
"""The seconds without heartbeats after which a process of another machine counts as dead."""

COLUMNS: Final = "o.pid, o.birth, o.host, o.place, o.heartbeat, o.lease"
"""The columns of ``delf_owners AS o`` that :func:`owner_of` converts to a ``Process`` object."""


@functools.cache
def machine_and_namespace() -> str:
    """Return a text that identifies this machine, its current boot, and the pid namespace."""
    boot_id = _read_text("/proc/sys/kernel/random/boot_id")
    boot = boot_id.strip() if boot_id else f"{uuid.getnode():x}"
    try:
        # Two containers of a machine may both have a process 7: a pid is unique only in its
        # namespace.
        pid_namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        pid_namespace = ""
    return f"{socket.gethostname()} {boot} {pid_namespace}".strip()


def birth_of(pid: int) -> str | None:
    """Return the start time of a process as a text; None if the process has ended.

    Only Linux tells the start time. On other Unix systems, the text is always "alive", so a later
    process that reuses the id is mistaken for the original process. On Windows, processes cannot be
    checked, and None is returned.
    """
    if sys.platform == "linux":
        stat = _read_text(f"/proc/{pid}/stat")
        if stat is None:
            return None
        # The second field is the program's name in parentheses, which may hold spaces, line breaks
        # and parentheses.
        state, *rest = stat.rpartition(")")[2].split()
        # A zombie does no more work. ``rest`` begins with field 4, so rest[18] is field 22: the
        # start time, counted from the boot.
        return None if state in "ZXx" else rest[18]
    if os.name == "nt":
        return None  # os.kill would end the process; use heartbeats
    try:
        os.kill(pid, 0)  # sends no signal, and only checks that the process exists
    except ProcessLookupError:
        return None
    except PermissionError:  # only an existing process can refuse a signal
        return "alive"
    return "alive"


def _read_text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The identity of this process as an owner of tasks.

    Args:
        pid: The process id.
        birth: The start time of the process, because process ids are reused; None if unknown.
        host: The machine's name, for messages.
        machine: The machine, its boot and the pid namespace, as :func:`machine_and_namespace`
            returns them.
        key: A unique id of this journal object in this process.
        lease: The time in seconds without heartbeats after which the process counts as dead, even
            if it is alive. If None, a process of the same machine counts as dead when it has ended.
    """

    pid: int = field(default_factory=os.getpid)
    birth: str | None = field(default_factory=lambda: birth_of(os.getpid()))
    host: str = field(default_factory=socket.gethostname)
    machine: str = field(default_factory=machine_and_namespace)
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    lease: float | None = None

    @property
    def heartbeat_seconds(self) -> float:
        """The time between two heartbeats in seconds."""
        if self.lease is None:
            return HEARTBEAT_SECONDS
        return min(HEARTBEAT_SECONDS, self.lease / 4)

    def register(self, connection: Connection) -> None:
        """Store this process with a new heartbeat, within a transaction."""
        row = {
            "owner": self.key,
            "pid": self.pid,
            "birth": self.birth,  # the start time, because process ids are reused
            "host": self.host,
            "place": self.machine,  # the machine, its boot and the pid namespace
            "heartbeat": connection.now(),
            "lease": self.lease,
        }
        # Replace the row of the last heartbeat. The tasks keep their owner, whose key is the same.
        self.leave(connection)
        connection.insert("delf_owners", tuple(row), [tuple(row.values())])

    def leave(self, connection: Connection) -> None:
        """Remove this owner, which releases all its tasks."""
        connection.execute("DELETE FROM delf_owners WHERE owner = :key", {"key": self.key})


class Process(NamedTuple):
    """The process that owns a task.

    All fields are None if no process owns the task, or if the owner has left.
    """

    pid: Any
    birth: str | None
    host: str | None
    machine: str | None
    heartbeat: Any
    lease: float | None

    @property
    def has_left(self) -> bool:
        """True if the process has ended and has deleted its row in the table of owners."""
        return self.machine is None


def owner_of(row: SqlRow) -> Process:
    """Return the owner of the task in a row that has the :data:`COLUMNS`."""
    return Process(row.pid, row.birth, row.host, row.place, row.heartbeat, row.lease)


def is_alive(process: Process, now: float) -> bool:
    """Return True if a process is still running.

    The kernel knows the processes of this machine. For any other process, and for a process with a
    lease, the last heartbeat decides. A process that has left is not running.

    Args:
        process: The process.
        now: The current time, for comparing heartbeats.
    """
    if process.has_left:
        return False
    if process.lease is None:
        is_running = _is_running_here(process)
        if is_running is not None:
            return is_running
    max_silence = SILENCE_SECONDS if process.lease is None else process.lease
    # abs(), because a heartbeat from before a clock was set back may be far in the future.
    return abs(now - process.heartbeat) < max_silence


def _is_running_here(process: Process) -> bool | None:
    """Return whether a process is running; None if unknown, as for another machine."""
    is_local = process.machine == machine_and_namespace()
    if not is_local or process.birth is None:
        return None
    # Compare the start time, too: by now another program may have the pid of a dead process,
    # whose tasks would then never be free.
    return birth_of(process.pid) == process.birth


def silent_owner_of(process: Process) -> PerhapsAlive | None:
    """Return the former owner of a task if it may still be alive, although its heartbeats stopped.

    None if the process has certainly ended.

    Args:
        process: The former owner.
    """
    if process.has_left or _is_running_here(process) is False:
        return None
    lease = SILENCE_SECONDS if process.lease is None else float(process.lease)
    return PerhapsAlive(process=f"pid {process.pid} on {process.host}", lease=lease)


IsAlive = Callable[[Process], bool]
"""A function that checks if a process is alive."""


def cached_is_alive(now: float) -> IsAlive:
    """Return a version of :func:`is_alive` with a cache, to be used for all parts of a read.

    Without the cache, a process that dies during a search for running tasks would be alive in the
    search, but dead in its results.

    Args:
        now: The current time, for comparing heartbeats.
    """

    @functools.cache
    def check(owner: Process) -> bool:
        return is_alive(owner, now)

    return check


def forget_dead(connection: Connection, now: float) -> None:
    """Remove dead owners that own no running task, within a transaction.

    An idle owner writes no heartbeats and may seem dead. It registers again before its next task.
    """
    # Keep the owners of running tasks: a process that claims the task reads the owner's row.
    rows = connection.execute(
        f"SELECT o.owner, {COLUMNS} FROM delf_owners AS o WHERE NOT EXISTS "  # noqa: S608 - only names of this module
        "(SELECT 1 FROM delf_tasks AS t WHERE t.owner = o.owner "
        f"AND t.state = '{TaskState.RUNNING}')"
    )
    for row in rows:
        if not is_alive(owner_of(row), now):
            connection.execute("DELETE FROM delf_owners WHERE owner = :owner", {"owner": row.owner})


def live_owners(connection: Connection, is_alive: IsAlive) -> list[str]:
    """Return the database keys of all owners that are alive.

    Args:
        connection: A connection for reading.
        is_alive: Checks if a process is alive.
    """
    rows = connection.execute(f"SELECT o.owner, {COLUMNS} FROM delf_owners AS o")  # noqa: S608 - only names of this module
    return [str(row.owner) for row in rows if is_alive(owner_of(row))]
