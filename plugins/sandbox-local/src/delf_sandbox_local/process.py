"""The guest's process as the host sees it: started, watched, killed as a group."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from delf.protocols.sandbox import Crashed, LimitReached, Limits, Outcome

_BOOT = (
    "import sys; sys.path.insert(0, {source!r}); "
    "from delf_sandbox_local.launcher import main; sys.path.pop(0); "
    "main(sys.argv[1], int(sys.argv[2]), sys.argv[3])"
)
_SOURCE = str(Path(__file__).resolve().parents[1])
_MAX_STDERR = 4000


def spawn(zipapp: Path, limits: Limits, libraries: bool) -> tuple[LocalProcess, socket.socket]:
    """Start a guest.

    Args:
        zipapp: The guest's archive.
        limits: What it may use.
        libraries: Whether it can see the installed packages.

    Returns:
        The process and the host's end of the wire.

    Raises:
        OSError: When it cannot be started.
    """
    scratch = tempfile.mkdtemp(prefix="delf-scratch-")
    host_end, guest_end = socket.socketpair()
    options = {
        "limits": dataclasses.asdict(limits),
        "parent": os.getpid(),
        "libraries": _library_folders() if libraries else [],
    }
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT.format(source=_SOURCE)]
    command += [str(zipapp), str(guest_end.fileno()), json.dumps(options)]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(guest_end.fileno(),),
            env={},
            cwd=scratch,
            start_new_session=True,
        )
    except OSError:
        host_end.close()
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        guest_end.close()
    host_end.setblocking(False)
    return LocalProcess(process, scratch, limits), host_end


def _library_folders() -> list[str]:
    paths = sysconfig.get_paths()
    return list(dict.fromkeys((paths["purelib"], paths["platlib"])))


class LocalProcess:
    """Implements :class:`delf.sandbox.session.GuestProcess`.

    Args:
        process: The started interpreter, leader of its own session.
        scratch: Its working folder, removed with it.
        limits: For words about how it ended.
    """

    def __init__(self, process: subprocess.Popen[bytes], scratch: str, limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._killed = False
        self._freed = False
        self.scratch = scratch

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the whole process group."""
        if self._process.returncode is not None:
            return
        self._killed = True
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.kill()

    async def how_it_ended(self) -> Outcome:
        """The exit status in words; a process that only closed the wire is ended."""
        by_itself = await _exited(self._process, grace=0.2)
        if not by_itself:
            self.kill()
            await _exited(self._process, grace=None)
            return Crashed(message="the sandbox closed its connection to the host")
        return self._explain(self._process.returncode or 0)

    def _explain(self, code: int) -> Outcome:
        if code == -signal.SIGXCPU:
            seconds = self._limits.cpu_seconds
            return LimitReached(limit="cpu", message=f"the script used {seconds:g} s of CPU time")
        if code == -signal.SIGKILL:
            reason = "it was stopped" if self._killed else "killed by the system, out of memory?"
            return Crashed(message=f"the sandbox is gone: {reason}")
        if code < 0:
            name = signal.Signals(-code).name
            return Crashed(message=f"the script crashed the interpreter ({name})")
        said = self._stderr()
        return Crashed(message=f"the sandbox ended by itself (status {code}){said}")

    def _stderr(self) -> str:
        pipe = self._process.stderr
        if pipe is None or pipe.closed:
            return ""
        os.set_blocking(pipe.fileno(), False)
        data = pipe.read(_MAX_STDERR) or b""
        text = data.decode("utf-8", "replace").strip()
        return f": {text.splitlines()[-1]}" if text else ""

    async def aclose(self) -> None:
        """Kill, wait for the end, remove the working folder."""
        if self._freed:
            return
        self._freed = True
        self.kill()
        await _exited(self._process, grace=None)
        if self._process.stderr is not None:
            self._process.stderr.close()
        _remove(self.scratch)


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


async def _exited(process: subprocess.Popen[bytes], grace: float | None) -> bool:
    """Wait for the end of a process.

    Args:
        process: The process; it is reaped.
        grace: Seconds to wait at the most, or None for as long as it takes.

    Returns:
        Whether it ended.
    """
    if process.poll() is not None:
        return True
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return await _exited_by_thread(process, grace)
    loop.add_reader(descriptor, lambda: ended.done() or ended.set_result(None))
    try:
        await asyncio.wait_for(ended, grace)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    process.wait()
    return True


async def _exited_by_thread(process: subprocess.Popen[bytes], grace: float | None) -> bool:
    """The same where the system has no process descriptors."""
    try:
        await asyncio.to_thread(process.wait, grace)
    except subprocess.TimeoutExpired:
        return False
    return True
