"""Functions that tests call in child processes, some as a hostile file could exploit them."""

import ctypes
import os
import socket
import time
from pathlib import Path

from delf.errors import OptionalDependencyError, ToolException, ToolRefusedError
from delf.notes import note


def echo(value):
    note("it was echoed")
    return value


async def waits(value):
    import asyncio

    return await asyncio.to_thread(lambda: value)


def attempts(path):
    """Return the attempts to change something or to reach the network that succeeded."""
    tries = {
        "overwrite": lambda: Path(path).write_text("x"),
        "append": lambda: os.open(path, os.O_WRONLY | os.O_APPEND),
        "cut": lambda: os.truncate(path, 0),
        "cut by opening": lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
        "remove": lambda: Path(path).unlink(),
        "rename": lambda: Path(path).rename(f"{path}-moved"),
        "mode": lambda: Path(path).chmod(0o777),
        "time": lambda: os.utime(path),
        "create": lambda: Path("/tmp/delf-reader-was-here").write_text(""),
        "create beside": lambda: Path(f"{path}-new").write_text(""),
        "folder": lambda: Path(f"{path}-folder").mkdir(),
        "symlink": lambda: Path(f"{path}-link").symlink_to("/etc/passwd"),
        "link": lambda: os.link(path, f"{path}-hard"),
        "pipe": lambda: os.mkfifo(f"{path}-pipe"),
        "other files": lambda: Path("/etc/passwd").read_text(),
        "own folder": lambda: Path("here").write_text(""),
        "fork": lambda: os.fork() or os._exit(0),  # two of them would give two answers
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "socket": lambda: socket.create_connection(("127.0.0.1", 9)),
        "datagrams": lambda: socket.socket(type=socket.SOCK_DGRAM),
        "kill": lambda: os.kill(os.getppid(), 15),
        "anonymous memory file": lambda: os.memfd_create("x"),
    }
    done = []
    for name, attempt in tries.items():
        try:
            attempt()
        except OSError:
            continue
        done.append(name)
    return done


def environment():
    return dict(os.environ)


def fill_memory():
    held = []
    while True:
        held.append(b"x" * 10_000_000)


def spin():
    while True:
        pass


def sleep(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.sched_yield()
    return os.getpid()


def crash():
    ctypes.string_at(0)


def leave():
    os._exit(3)


def large(size):
    return ["x" * 1000] * size


def many():
    return [[]] * 4_000_000


def deep():
    value = []
    for _ in range(5000):
        value = [value]
    return value


def tell():
    """Raise the error that a file format's author would."""
    raise ToolException("two columns have one name")


def refuse():
    raise ToolRefusedError("not this one", hint="another")


def missing():
    raise OptionalDependencyError("it needs x", package="x")


def breaks():
    return {}["no such key"]
