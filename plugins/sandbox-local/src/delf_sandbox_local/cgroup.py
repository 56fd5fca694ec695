"""A control group for each guest, where this user may make some: memory and tasks.

Resource limits already hold a guest's address space; a group also counts what the kernel keeps
for it: threads, pipes, files in memory. Both versions of control groups are known.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_ROOT: Final = Path("/sys/fs/cgroup")
_WANTED: Final = ("memory", "pids")
_RESERVE: Final = 32 * 1024 * 1024
"""The interpreter's memory beside the script's own."""


class Group:
    """One guest's group: a folder for each controller, or one for all.

    Args:
        folders: By controller.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    def limit(self, memory: int, tasks: int) -> None:
        """Set its limits.

        Args:
            memory: Bytes.
            tasks: Processes and threads.

        Raises:
            OSError: When the kernel refuses.
        """
        for name, folder in self._folders.items():
            if name == "pids":
                (folder / "pids.max").write_text(str(tasks))
                continue
            old = folder / "memory.limit_in_bytes"
            (old if old.exists() else folder / "memory.max").write_text(str(memory + _RESERVE))

    def add(self, pid: int) -> None:
        """Put a process into it.

        Raises:
            OSError: When the kernel refuses.
        """
        for folder in dict.fromkeys(self._folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def starved(self) -> bool:
        """Tell whether the kernel killed something here for want of memory."""
        folder = self._folders.get("memory")
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = (folder / name).read_text().splitlines() if folder else []
            except OSError:
                continue
            counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
            return int(counts.get("oom_kill", "0")) > 0
        return False

    def remove(self) -> None:
        """Remove it; its processes have ended."""
        for folder in dict.fromkeys(self._folders.values()):
            with suppress(OSError):
                folder.rmdir()


class Groups:
    """Makes groups below those that this process is in.

    Args:
        root: Where control groups are mounted.
        membership: The content of ``/proc/self/cgroup``; read when omitted.
    """

    def __init__(self, root: Path = _ROOT, membership: str | None = None) -> None:
        self._numbers = itertools.count(1)
        self._homes: dict[str, Path] = {}
        try:
            text = Path("/proc/self/cgroup").read_text() if membership is None else membership
        except OSError:
            text = ""
        for line in text.splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers:
                for name in set(controllers.split(",")) & set(_WANTED):
                    self._take(name, root / name / place.lstrip("/"))
            else:
                self._take_unified(root / place.lstrip("/"))
        self._name = f"delf-{os.getpid()}-{id(self):x}"
        self._sweep()

    @property
    def controllers(self) -> tuple[str, ...]:
        """Return the controllers of limits: ``memory``, ``pids``."""
        return tuple(sorted(self._homes))

    def make(self, memory: int, tasks: int) -> Group | None:
        """A new group with limits; none where there can be none.

        Args:
            memory: Bytes.
            tasks: Processes and threads.
        """
        if not self._homes:
            return None
        number = next(self._numbers)
        folders = {name: home / f"{self._name}-{number}" for name, home in self._homes.items()}
        group = Group(folders)
        try:
            for folder in dict.fromkeys(folders.values()):
                folder.mkdir()
            group.limit(memory, tasks)
        except OSError as error:
            _log.debug("no control group for a guest: %s", error)
            group.remove()
            self._homes = {}
            return None
        return group

    def remove(self) -> None:
        """Remove what is left of its groups."""
        for folder in self._made(f"{self._name}-*"):
            with suppress(OSError):
                folder.rmdir()

    def _sweep(self) -> None:
        """Remove the groups of processes that are gone; one in use cannot be removed."""
        for folder in self._made("delf-*-*-*"):
            number = folder.name.split("-")[1]
            if number.isdigit() and not Path(f"/proc/{number}").exists():
                with suppress(OSError):
                    folder.rmdir()

    def _made(self, pattern: str) -> list[Path]:
        homes = dict.fromkeys(self._homes.values())
        return [folder for home in homes for folder in home.glob(pattern)]

    def _take(self, name: str, home: Path) -> None:
        if os.access(home, os.W_OK) and (home / "cgroup.procs").exists():
            self._homes[name] = home

    def _take_unified(self, own: Path) -> None:
        """Version 2: a group whose children have controllers, its own or the one above.

        A group with processes in it cannot give controllers to children. So for most users it is
        the group above, if their service manager delegates it.
        """
        for home in (own, own.parent):
            try:
                given = (home / "cgroup.subtree_control").read_text().split()
            except OSError:
                continue
            for name in set(given) & set(_WANTED):
                self._take(name, home)
            if self._homes:
                return
