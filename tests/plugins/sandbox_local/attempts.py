"""Runs this project's own attempts to escape from the local sandbox, and judges each.

Also a program, so that it can run as another user::

    python -m plugins.sandbox_local.attempts FOLDER        prints what succeeded as JSON

It uses delf and the standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from delf.protocols.sandbox import (
    CallRequest,
    Crashed,
    Limits,
    Returned,
    ScriptHost,
    SessionSpec,
    ToolNames,
)
from delf_sandbox_local.backend import LocalBackend

ATTEMPTS = Path(__file__).with_name("escapes")
SECRET = "DELF-OWN-SECRET-e1c7"
_SECONDS = 8.0
_SLOWEST_TURN = 2.0
_LIMITS = (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
_WATCHED = (signal.SIGUSR1, signal.SIGIO, signal.SIGURG)


class _Host(ScriptHost):
    """A host that records what a script says."""

    def __init__(self) -> None:
        self.text = ""
        self.files: dict[str, bytes] = {}

    async def call(self, request: CallRequest) -> Returned:
        return Returned(None)

    def printed(self, text: str) -> None:
        self.text += text

    def wrote_file(self, name: str, data: bytes) -> None:
        self.files[name] = data


class _Target:
    """The target of attempts, with listeners that record who connected."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"delf-escape-{os.getpid()}"
        self.secret = folder / "secret.txt"
        self.secret.write_text(SECRET)
        self.secret.chmod(0o600)
        self.input = folder / "input.csv"
        self.input.write_text("a,b")
        self.received: list[str] = []
        self.signals: list[int] = []
        self.port = 0
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        places = (
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, f"{self.folder}/l.sock"),
            ("unix datagram", socket.AF_UNIX, socket.SOCK_DGRAM, f"{self.folder}/d.sock"),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.name}"),
            ("abstract datagram", socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{self.name}-d"),
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        )
        for what, family, kind, address in places:
            listener = socket.socket(family, kind)
            listener.bind(address)
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            if family == socket.AF_INET:
                self.port = listener.getsockname()[1]
            self._sockets.append(listener)
            asyncio.get_running_loop().add_reader(listener, self._came, what, listener)
        for number in _WATCHED:
            signal.signal(number, lambda number, _frame: self.signals.append(number))
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._sockets:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for number in _WATCHED:
            signal.signal(number, signal.SIG_DFL)

    def _came(self, what: str, listener: socket.socket) -> None:
        self.received.append(what)
        with contextlib.suppress(OSError):
            listener.recv(100)
        with contextlib.suppress(OSError):
            listener.accept()[0].close()

    def state(self) -> dict[str, Any]:
        """Return everything that no script may change."""
        about = self.secret.stat()
        return {
            "secret": (self.secret.read_text(), about.st_mode, about.st_uid, about.st_mtime_ns),
            "input": (self.input.read_text(), self.input.stat().st_mtime_ns),
            "attributes": os.listxattr(self.secret),
            "folder": (sorted(os.listdir(self.folder)), self.folder.stat().st_mode),
            "limits": [resource.getrlimit(which) for which in _LIMITS],
            "processors": sorted(os.sched_getaffinity(0)),
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "shared memory": [name for name in os.listdir("/dev/shm") if "pwned" in name],
            "temporary": [name for name in os.listdir("/tmp") if "pwned" in name],
            "sockets": list(self.received),
            "signals": list(self.signals),
        }


def attempts() -> list[str]:
    """Return the names of all attempts."""
    return sorted(path.stem for path in ATTEMPTS.glob("*.py") if path.stem != "preamble")


async def run_attempts(folder: Path, names: list[str] | None = None) -> dict[str, str]:
    """Run attempts one after another, each in a session of its own.

    Args:
        folder: A fresh folder.
        names: The attempts to run; all by default.

    Returns:
        A description of each attempt that succeeded.
    """
    os.environ["DELF_SECRET"] = SECRET
    found: dict[str, str] = {}
    backend = LocalBackend(pool_size=1)
    try:
        with _Target(folder) as target:
            for name in names or attempts():
                problem = await _run(backend, name, target)
                if problem:
                    found[name] = problem
    finally:
        await backend.aclose()
    return found


async def _run(backend: LocalBackend, name: str, target: _Target) -> str | None:
    spec = SessionSpec(
        tools=(ToolNames(name="add"),),
        limits=Limits(cpu_seconds=5),
        files=(str(target.input),),
    )
    session: Any = await backend.open(spec)
    scratch = Path(session.process.scratch)
    host, before = _Host(), target.state()
    turns = asyncio.ensure_future(_slowest_turn())
    outcome: Any
    try:
        async with asyncio.timeout(_SECONDS):
            outcome = await session.execute(_source(name, target, backend), host)
    except TimeoutError:
        outcome = Crashed(message="it went on until it was stopped")
    finally:
        await session.aclose()
    await asyncio.sleep(0)
    turns.cancel()
    slowest = await turns
    words = f"{host.text}\n{outcome}\n{host.files}"
    if SECRET in words:
        return "passed on the secret"
    lines = [line for line in host.text.splitlines() if line.startswith("ESCAPED")]
    if lines:
        return "; ".join(lines)[:300]
    if "Traceback" in words or "NameError" in words or "SyntaxError" in words:
        return f"the attempt is broken: {words[:300]}"
    after = target.state()
    changed = [
        f"{what}: {before[what]} became {after[what]}"
        for what in before
        if before[what] != after[what]
    ]
    if changed:
        return "; ".join(changed)[:300]
    if scratch.exists() and any(scratch.iterdir()):
        return "its files are left"
    if slowest > _SLOWEST_TURN:
        return f"held the host up for {slowest:.1f} s"
    return None


async def _slowest_turn() -> float:
    """Measure the longest CPU time of one turn of the event loop, until cancelled."""
    slowest, last = 0.0, time.process_time()
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0.02)
            now = time.process_time()
            slowest, last = max(slowest, now - last), now
    return max(slowest, time.process_time() - last)


def _source(name: str, target: _Target, backend: LocalBackend) -> str:
    template = backend.template or 1
    source = "".join((ATTEMPTS / f"{part}.py").read_text("utf-8") for part in ("preamble", name))
    values = {
        "HOST": os.getpid(),
        "TEMPLATE": template,
        "PORT": target.port,
        "FOLDER": target.folder,
        "NAME": target.name,
        "SECRET": "DELF-OWN-SECRET-none",
    }
    for key, value in values.items():
        source = source.replace(f"@{key}@", str(value))
    return source


@contextlib.contextmanager
def limits_kept() -> Generator[None]:
    """Restore the limits that an attempt lowered."""
    before = [(which, resource.getrlimit(which)) for which in _LIMITS]
    try:
        yield
    finally:
        for which, values in before:
            resource.setrlimit(which, values)


if __name__ == "__main__":
    chosen = sys.argv[2:] or None
    print(json.dumps(asyncio.run(run_attempts(Path(sys.argv[1]), chosen))))
