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
from delf_journal_sql.database import Connection, Database, SqlRow

HEARTBEAT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 30.0
"""The seconds without heartbeat after which a process of another machine counts as dead."""

COLUMNS: Final = "o.pid, o.birth, o.host, o.place, o.heartbeat, o.lease"
"""The columns of ``delf_owners AS o`` for :func:`is_alive`; :func:`owner_of` reads them."""


@functools.cache
def place() -> str:
    """Return an id of this machine, its boot, and the pid namespace."""
    boot = _first_line("/proc/sys/kernel/random/boot_id") or f"{uuid.getnode():x}"
    try:
        # Two containers of a machine may both have a process 7: pids compare only within a
        # namespace.
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{socket.gethostname()} {boot} {space}".strip()


def birth_of(pid: int) -> str | None:
    """Return the start time of a process; None if it is gone or unknown."""
    if sys.platform == "linux":
        line = _first_line(f"/proc/{pid}/stat")
        if line is None:
            return None
        # The second field is the program's name in parentheses, which may hold spaces and
        # parentheses.
        state, *rest = line.rpartition(")")[2].split()
        # A zombie does no more work. Field 22 is the start time, counted from the boot.
        return None if state in "ZXx" else rest[18]
    if os.name == "nt":
        return None  # os.kill would end the process; use heartbeats
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    # Only an existing process can refuse a signal.
    except PermissionError:
        return "alive"
    return "alive"


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return None


@dataclass(frozen=True, kw_only=True)
class Owner:
    """This process as the owner of tasks.

    Args:
        pid: The process id.
        birth: The start time by the kernel's clock, because process ids are reused.
        host: The machine's name, for people.
        place: The machine, its boot and the pid namespace, as of :func:`place`.
        key: A unique id of this journal object in this process.
        lease: Seconds of silence after which the process counts as dead, even if the local kernel
            knows it is alive.
    """

    pid: int = field(default_factory=os.getpid)
    birth: str | None = field(default_factory=lambda: birth_of(os.getpid()))
    host: str = field(default_factory=socket.gethostname)
    place: str = field(default_factory=place)
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    lease: float | None = None

    @property
    def heartbeat_seconds(self) -> float:
        """The seconds between two heartbeats."""
        return HEARTBEAT_SECONDS if self.lease is None else min(HEARTBEAT_SECONDS, self.lease / 4)

    def register(self, connection: Connection, database: Database) -> None:
        """Write a heartbeat, within a transaction."""
        columns = ("owner", "pid", "birth", "host", "place", "heartbeat", "lease")
        now = database.now(connection)
        row = (self.key, self.pid, self.birth, self.host, self.place, now, self.lease)
        # Deleted and inserted anew: one statement for both would need each database's own upsert.
        self.leave(connection)
        connection.insert("delf_owners", columns, [row])

    def leave(self, connection: Connection) -> None:
        """Release all tasks and remove this owner."""
        connection.execute("DELETE FROM delf_owners WHERE owner = :key", {"key": self.key})


class Process(NamedTuple):
    """The process that owns a task; every field is None after an orderly exit."""

    pid: Any
    birth: str | None
    host: str | None
    place: str | None
    heartbeat: Any
    lease: float | None


def owner_of(row: SqlRow) -> Process:
    """Return the owner in a row with :data:`COLUMNS`."""
    return Process(row.pid, row.birth, row.host, row.place, row.heartbeat, row.lease)


def is_alive(row: Process, now: float) -> bool:
    """Return True if a process is still running.

    On this machine the kernel is asked; for other machines, and with leases, the heartbeat decides.
    A heartbeat far in the future, from a clock that was set back, counts as none: a live process
    soon writes another.

    Args:
        row: The result of :func:`owner_of`.
        now: The current time, for comparing heartbeats.
    """
    if row.place is None:
        return False
    lease = row.lease
    if lease is None and row.place == place() and row.birth is not None:
        # Compare the start time, too: by now another program may have the pid of a dead process,
        # whose tasks would then never be free.
        return birth_of(row.pid) == row.birth
    return abs(now - row.heartbeat) < (SILENCE_SECONDS if lease is None else lease)


def perhaps_alive(row: Process) -> PerhapsAlive | None:
    """Return the process that lost its claim, unless that process is certainly gone.

    Args:
        row: The result of :func:`owner_of`.
    """
    if row.place is None:
        return None
    is_local = row.place == place() and row.birth is not None
    if is_local and birth_of(row.pid) != row.birth:
        return None
    lease = SILENCE_SECONDS if row.lease is None else float(row.lease)
    return PerhapsAlive(process=f"pid {row.pid} on {row.host}", lease=lease)


def looking(now: float) -> Callable[[Process], bool]:
    """Make a version of :func:`is_alive` that caches its result for each owner.

    Args:
        now: The current time, for comparing heartbeats.
    """

    @functools.cache
    def look(owner: Process) -> bool:
        return is_alive(owner, now)

    return look


def forget_dead(connection: Connection, now: float) -> None:
    """Remove dead owners without tasks, within a transaction.

    An owner that only seems dead, because it was idle for long, registers again before its next
    task.
    """
    # Keep the owners of running tasks: a process that claims the task reads the owner's row.
    rows = connection.execute(
        f"SELECT o.owner, {COLUMNS} FROM delf_owners AS o WHERE NOT EXISTS "  # noqa: S608 - own names
        "(SELECT 1 FROM delf_tasks AS t WHERE t.owner = o.owner "
        f"AND t.state = '{TaskState.RUNNING}')"
    )
    for row in rows:
        if not is_alive(owner_of(row), now):
            connection.execute("DELETE FROM delf_owners WHERE owner = :owner", {"owner": row.owner})


def living(connection: Connection, now: float) -> list[str]:
    """Return the keys of live owners.

    Args:
        connection: A connection for reading.
        now: The current time, for comparing heartbeats.
    """
    rows = connection.execute(f"SELECT o.owner, {COLUMNS} FROM delf_owners AS o")  # noqa: S608 - own names
    return [str(row.owner) for row in rows if is_alive(owner_of(row), now)]
