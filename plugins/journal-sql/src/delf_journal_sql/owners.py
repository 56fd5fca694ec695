"""The owners of tasks: the processes that work on them, and signs of their life."""

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
"""A process of another machine that was silent for so long is taken for dead."""

COLUMNS: Final = "o.pid, o.birth, o.host, o.place, o.heartbeat, o.lease"
"""The columns of ``delf_owners AS o`` for :func:`is_alive`; :func:`owner_of` reads them."""


@functools.cache
def place() -> str:
    """Return the machine with its boot, and its pid namespace."""
    boot = _first_line("/proc/sys/kernel/random/boot_id") or f"{uuid.getnode():x}"
    try:
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
        state, *rest = line.rpartition(")")[2].split()
        return None if state in "ZXx" else rest[18]
    if os.name == "nt":
        return None  # there os.kill would end the process; heartbeats tell
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
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
        pid: Its number.
        birth: When it began, by the clock of its kernel: numbers are used again.
        host: The machine's name, for people.
        place: The machine, since it was started, and the space in which its numbers count.
        key: Of this journal in this process.
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
        """The seconds between two signs of life."""
        return HEARTBEAT_SECONDS if self.lease is None else min(HEARTBEAT_SECONDS, self.lease / 4)

    def register(self, connection: Connection, database: Database) -> None:
        """Record a sign of life; within a transaction."""
        columns = ("owner", "pid", "birth", "host", "place", "heartbeat", "lease")
        now = database.now(connection)
        row = (self.key, self.pid, self.birth, self.host, self.place, now, self.lease)
        self.leave(connection)
        connection.insert("delf_owners", columns, [row])

    def leave(self, connection: Connection) -> None:
        """Give up all tasks."""
        connection.execute("DELETE FROM delf_owners WHERE owner = :key", {"key": self.key})


class Process(NamedTuple):
    """The process that owns a task; every value is None after an orderly exit."""

    pid: Any
    birth: str | None
    host: str | None
    place: str | None
    heartbeat: Any
    lease: float | None


def owner_of(row: SqlRow) -> Process:
    """Return the owner in a row with ``COLUMNS``."""
    return Process(row.pid, row.birth, row.host, row.place, row.heartbeat, row.lease)


def is_alive(row: Process, now: float) -> bool:
    """Return whether a process still runs.

    On this machine the kernel knows; for other machines, and for leases, the heartbeat counts. A
    heartbeat in the future comes from a clock that was set back: a live process sends the next one
    soon.

    Args:
        row: Of :func:`owner_of`.
        now: The time by which heartbeats are compared.
    """
    if row.place is None:
        return False
    lease = row.lease
    if lease is None and row.place == place() and row.birth is not None:
        return birth_of(row.pid) == row.birth
    return abs(now - row.heartbeat) < (SILENCE_SECONDS if lease is None else lease)


def perhaps_alive(row: Process) -> PerhapsAlive | None:
    """Return the process that lost its tasks, unless it is known to be gone.

    Args:
        row: Of :func:`owner_of`.
    """
    if row.place is None:
        return None
    here = row.place == place() and row.birth is not None
    if here and birth_of(row.pid) != row.birth:
        return None
    lease = SILENCE_SECONDS if row.lease is None else float(row.lease)
    return PerhapsAlive(process=f"pid {row.pid} on {row.host}", lease=lease)


def looking(now: float) -> Callable[[Process], bool]:
    """Make :func:`is_alive` for many tasks, checking each owner once.

    Args:
        now: The time by which heartbeats are compared.
    """

    @functools.cache
    def look(owner: Process) -> bool:
        return is_alive(owner, now)

    return look


def forget_dead(connection: Connection, now: float) -> None:
    """Remove dead processes without tasks, within a transaction.

    A process that only looks dead, because it was idle for long, registers again before its next
    task.
    """
    rows = connection.execute(
        f"SELECT o.owner, {COLUMNS} FROM delf_owners AS o WHERE NOT EXISTS "  # noqa: S608 - own names
        "(SELECT 1 FROM delf_tasks AS t WHERE t.owner = o.owner "
        f"AND t.state = '{TaskState.RUNNING}')"
    )
    for row in rows:
        if not is_alive(owner_of(row), now):
            connection.execute("DELETE FROM delf_owners WHERE owner = :owner", {"owner": row.owner})


def living(connection: Connection, now: float) -> list[str]:
    """Return the keys of the live owners.

    Args:
        connection: For reading.
        now: The time by which heartbeats are compared.
    """
    rows = connection.execute(f"SELECT o.owner, {COLUMNS} FROM delf_owners AS o")  # noqa: S608 - own names
    return [str(row.owner) for row in rows if is_alive(owner_of(row), now)]
