"""A guest's process as the host sees it: watched, killed as a group, explained."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from delf.protocols.sandbox import Crashed, LimitReached, Limits, Outcome
from delf_sandbox.folders import remove_folder

_GRACE_SECONDS = 2.0
"""The seconds in which a process must die after its wire was closed; busy machines are slow."""


class LocalProcess:
    """Implements :class:`delf_sandbox.process.GuestProcess`.

    Args:
        pid: The process, leader of a group; a child of the template, not of ours.
        scratch: The working folder.
        limits: The limits, to explain the end of the process.
        owns_scratch: Whether no other process uses the folder, so that it is removed at the end.
    """

    def __init__(
        self,
        pid: int,
        scratch: str,
        limits: Limits,
        *,
        owns_scratch: bool = True,
    ) -> None:
        self.pid = pid
        self.scratch = scratch
        self._limits = limits
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._handle = _open_handle(pid)
        self._owns_scratch = owns_scratch
        self._killed = self._is_hit = False
        self.cpu_seconds = 0.0
        self._freed = False

    @property
    def running(self) -> bool:
        """True until the process ends."""
        return not self._ended.done()

    def ended(self, status: int, cpu_seconds: float = 0.0) -> None:
        """Record the end of the process, which the template reported.

        Args:
            status: The exit code, or the negative number of the signal.
            cpu_seconds: The used processor time.
        """
        if not self._ended.done():
            self.cpu_seconds = cpu_seconds
            self._ended.set_result(status)
        self._close_handle()

    def when_ended(self, function: Callable[[], None]) -> None:
        """Call a function once the process has ended."""
        self._ended.add_done_callback(lambda _: function())

    def kill(self) -> None:
        """Kill the whole process group."""
        if self._is_hit or self._ended.done():
            return
        self._killed = True
        # The handle names this process even after its number was given to another one.
        try:
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, 0)
            os.killpg(self.pid, signal.SIGKILL)
            self._is_hit = True
        except (ProcessLookupError, PermissionError):
            self._kill_process()

    def _kill_process(self) -> None:
        """Kill the process alone: just after the fork, it has no process group yet."""
        try:
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)
            self._is_hit = True
        except ProcessLookupError:
            return

    async def how_it_ended(self) -> Outcome:
        """Return the exit status as an outcome; kill a process that only closed its wire."""
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                status = await asyncio.shield(self._ended)
        except TimeoutError:
            self.kill()
            await asyncio.shield(self._ended)
            message = "the sandbox closed its connection to the host"
            return Crashed(message=message, by_script=True)
        return self._explain(status)

    def _explain(self, status: int) -> Outcome:
        seconds = self._limits.cpu_seconds
        is_exhausted = self.cpu_seconds >= seconds
        # At the hard limit the kernel kills a script that has ignored SIGXCPU.
        if -status in (signal.SIGXCPU, signal.SIGPROF) or (
            status == -signal.SIGKILL and is_exhausted
        ):
            return LimitReached(limit="cpu", message=f"the script used {seconds:g} s of CPU time")
        if status == -signal.SIGKILL:
            reason = "it was stopped" if self._killed else "killed by the system, out of memory?"
            return Crashed(message=f"the sandbox is gone: {reason}")
        if status < 0:
            name = signal.Signals(-status).name
            message = f"the script crashed the interpreter ({name})"
        else:
            message = f"the sandbox ended by itself (status {status})"
        return Crashed(message=message, by_script=True)

    async def aclose(self) -> None:
        """Kill, wait for the end, remove the working folder."""
        if self._freed:
            return
        self._freed = True
        self.kill()
        await asyncio.shield(self._ended)
        if self._owns_scratch:
            await asyncio.to_thread(self._free)  # removing a large folder takes time
        else:
            self._free()

    def abandon(self) -> None:
        """Free the resources of a dead process without awaiting."""
        self._freed = True
        self._close_handle()
        self._free()

    def _free(self) -> None:
        if self._owns_scratch:
            remove_folder(self.scratch)

    def _close_handle(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _open_handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
