"""One server for a whole test session, shared by its xdist workers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO

import pytest

KEEPER = pathlib.Path(__file__).with_name("keeper.py")
_MEMORY = "/dev/shm"
_ROOM = 4 * 2**30


@dataclass(kw_only=True)
class Recipe:
    """The command for a server in a folder."""

    folder: str
    setup: list[list[str]]
    serve: list[str]
    socket: str
    user: str | None
    stop: str
    facts: dict[str, Any] = field(default_factory=dict)


def session_folder(factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder that all workers of this session have in common, and no other session."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def find_program(*names: str) -> str:
    """The path of an installed program, or skip the test naming what is missing."""
    for name in names:
        found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
        if found:
            return found
    pytest.skip(f"{pathlib.Path(names[0]).name} is not installed")


def service_user(name: str) -> str | None:
    """The unprivileged user to run a server as; None for the current one."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        pytest.skip(f"running as root, and there is no user {name!r} to run the server as")


def temporary_root() -> str:
    """The folder for files of tests: in memory, large enough, with short paths for sockets.

    A disk that others use, too, holds the tests up for up to a tenth of their time.
    """
    room = os.path.isdir(_MEMORY) and shutil.disk_usage(_MEMORY).free > _ROOM
    return _MEMORY if room else "/tmp"


def new_folder(prefix: str, user: str | None) -> str:
    """A folder that the server's user owns."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=temporary_root())
    if user is not None:
        shutil.chown(folder, user)
    return folder


def free_port() -> int:
    """A loopback port that nobody uses now, and that no other socket is given by chance.

    The system gives sockets that ask for no particular port one from 32768 on (macOS: 49152): a
    port from there could belong to the server of another test a moment later.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def shared_server(
    name: str, factory: pytest.TempPathFactory, recipe: Callable[[], Recipe]
) -> Iterator[dict[str, Any]]:
    """The facts of a running server; the last user's leaving ends it.

    Args:
        name: What the server is called among the session's files.
        factory: Of the session's temporary folders.
        recipe: Makes a folder and says how to run the server in it.
    """
    base = session_folder(factory)
    state, lock = base / f"{name}.json", base / f"{name}.lock"
    keeper: subprocess.Popen[bytes] | None = None
    lock.touch()
    with lock.open("rb") as use:
        with _held(base / f"{name}.start"):
            fcntl.flock(use, fcntl.LOCK_SH)
            if not state.exists():
                keeper = _start(recipe(), state, lock)
        yield json.loads(state.read_text())
    if keeper is not None:
        try:
            keeper.wait(20)
        except subprocess.TimeoutExpired:  # another worker goes on using it
            threading.Thread(target=keeper.wait, daemon=True).start()


def _start(recipe: Recipe, state: pathlib.Path, lock: pathlib.Path) -> subprocess.Popen[bytes]:
    spec = json.dumps(asdict(recipe) | {"state": str(state), "lock": str(lock)})
    keeper = subprocess.Popen(
        [sys.executable, "-I", str(KEEPER), spec],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": recipe.folder},  # the server's user may enter it
        start_new_session=True,
    )
    assert keeper.stdout is not None
    with keeper.stdout as report:
        answer = json.loads(report.readline() or b'{"failed": "the keeper ended"}')
    if "failed" in answer:
        keeper.wait(20)
        pytest.fail(f"cannot start {recipe.serve[0]}: {answer['failed']}")
    state.write_text(json.dumps(recipe.facts))
    return keeper


@contextlib.contextmanager
def _held(path: pathlib.Path) -> Iterator[BinaryIO]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
