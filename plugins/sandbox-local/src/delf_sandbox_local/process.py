"""A guest's process as the host sees it: watched, killed as a group, explained."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from delf.protocols.sandbox import Crashed, LimitReached, Limits, Outcome
from delf_confined.words import signal_name
from delf_sandbox.folders import remove_folder

# The maximum number of seconds between the end of a guest's connection and that of its process.
_GRACE_SECONDS = 2.0


class LocalProcess:
    """The process of a guest on this machine.

    Implements :class:`delf_sandbox.process.GuestProcess`.

    Args:
        pid: The process id. The process is a child of the template process, and will lead a process
            group.
        scratch: The path of the working folder.
        limits: The limits of the session, to explain the end of the process.
        owns_scratch: Whether the folder belongs to this process only, and is removed at its end.
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
        self._is_kill_requested = False  # tells a stopped script from one that ran out of memory
        self._is_kill_sent = False
        self.cpu_seconds = 0.0
        self._is_released = False

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return not self._ended.done()

    def record_end(self, status: int, cpu_seconds: float = 0.0) -> None:
        """Record the end of the process, as reported by the template process.

        Args:
            status: The exit code, or the negative number of the signal that ended the process.
            cpu_seconds: The processor time that the process used, in seconds.
        """
        if not self._ended.done():
            self.cpu_seconds = cpu_seconds
            self._ended.set_result(status)
        self._close_handle()

    def when_ended(self, function: Callable[[], None]) -> None:
        """Register a function that is called when the process has ended."""
        self._ended.add_done_callback(lambda _: function())

    def kill(self) -> None:
        """Kill the process and its whole process group."""
        if self._is_kill_sent or self._ended.done():
            return
        self._is_kill_requested = True
        try:
            if self._handle is not None:
                # Signal 0 only raises if the process has ended. killpg() finds the group by the id,
                # which may then belong to another process.
                signal.pidfd_send_signal(self._handle, 0)
            os.killpg(self.pid, signal.SIGKILL)
            self._is_kill_sent = True
        except (ProcessLookupError, PermissionError):
            # The process has ended, or has no process group yet, just after the fork.
            self._kill_process()

    def _kill_process(self) -> None:
        """Kill the process alone, because it has no process group yet just after the fork."""
        try:
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)
            self._is_kill_sent = True
        except ProcessLookupError:
            return

    async def exit_outcome(self) -> Outcome:
        """Return an outcome that explains the end of the process.

        A process that closed its connection to the host but does not end is killed.
        """
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                status = await asyncio.shield(self._ended)
        except TimeoutError:
            self.kill()
            await asyncio.shield(self._ended)
            message = "the sandbox closed its connection to the host"
            return Crashed(message=message, by_script=True)
        return self._outcome_of(status)

    def _outcome_of(self, status: int) -> Outcome:
        """Convert an exit status, or the negative number of a signal, to an outcome."""
        max_seconds = self._limits.cpu_seconds
        was_stopped_by_timer = -status in (signal.SIGXCPU, signal.SIGPROF)
        # At the hard limit the kernel kills a script that has ignored SIGXCPU.
        was_killed_at_hard_limit = status == -signal.SIGKILL and self.cpu_seconds >= max_seconds
        if was_stopped_by_timer or was_killed_at_hard_limit:
            message = f"the script used {max_seconds:g} s of CPU time"
            return LimitReached(limit="cpu", message=message)
        if status == -signal.SIGKILL:
            if self._is_kill_requested:
                reason = "it was stopped"
            else:
                reason = "killed by the system, out of memory?"
            return Crashed(message=f"the sandbox is gone: {reason}")
        if status < 0:
            message = f"the script crashed the interpreter ({signal_name(-status)})"
        else:
            message = f"the sandbox ended by itself (status {status})"
        return Crashed(message=message, by_script=True)

    async def aclose(self) -> None:
        """Kill the process, wait for its end, and remove its working folder. Idempotent."""
        if self._is_released:
            return
        self._is_released = True
        self.kill()
        await asyncio.shield(self._ended)
        if self._owns_scratch:  # in a thread, because removing a large folder takes time
            await asyncio.to_thread(remove_folder, self.scratch)

    def abandon(self) -> None:
        """Release the resources of a dead process without awaiting."""
        self._is_released = True
        self._close_handle()
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
