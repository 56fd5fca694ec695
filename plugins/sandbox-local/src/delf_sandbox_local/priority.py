"""Guests that calculate for long give way: to the host, and to guests that have just begun.

A guest that has used :data:`PATIENCE_SECONDS` of processor time is made nicer by
:data:`NICENESS`. It then runs at full speed where a processor is free, and with a thirtieth of the
others' share where none is: enough to be killed within a second. (``SCHED_IDLE`` leaves it so
little that freeing 200 MB took 12 s.) A script cannot take that back: the filter of system calls
refuses it, and so does the kernel.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

PATIENCE_SECONDS: Final = 0.25
"""Some forty times what a small script needs from its start to its end."""
NICENESS: Final = 15
"""The niceness of guests above the host's."""
_NICEST: Final = 19
_LOOK_SECONDS: Final = 0.25
_REST_SECONDS: Final = 2.0
"""The time between two looks grows up to this while a guest does nothing."""
_CLOCK_OF_PROCESS: Final = 2
"""``CPUCLOCK_SCHED`` in the kernel's ``posix-timers.h``: with the inverted number of a process
above its three bits, it names the clock of the time that this process used."""


class Priority:
    """Looks at one process while it runs, until it has been made to give way.

    Args:
        pid: The process, leader of a group.
        running: Whether that number still is this process's.
    """

    def __init__(self, pid: int, running: Callable[[], bool]) -> None:
        self._pid = pid
        self._running = running
        self._timer: asyncio.TimerHandle | None = None
        self._pause = _LOOK_SECONDS
        self._used = 0.0

    def watch(self) -> None:
        """Look from now on, where the system has what it takes."""
        if sys.platform == "linux" and self._timer is None:
            self._look_later()

    def stop(self) -> None:
        """Look no more. Safe to call twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        with suppress(OSError):  # it ended just now
            if not self._running():
                return
            used = used_seconds(self._pid)
            if used < PATIENCE_SECONDS:
                is_busy = used > self._used
                self._pause = _LOOK_SECONDS if is_busy else min(2 * self._pause, _REST_SECONDS)
                self._used = used
                self._look_later()
            else:
                niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, _NICEST)
                os.setpriority(os.PRIO_PGRP, self._pid, niceness)  # its threads, too


def used_seconds(pid: int) -> float:
    """The processor time of a process and its threads, in seconds.

    Args:
        pid: A process of this machine; it need not be a child.

    Raises:
        OSError: When there is none.
    """
    return time.clock_gettime((~pid << 3) | _CLOCK_OF_PROCESS)
