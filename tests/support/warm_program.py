"""The program, in processes forked from one that has imported what it needs.

python warm_program.py DESCRIPTOR

A request is a line of JSON with the arguments, folder and environment, and three descriptors for
the streams; the answer is a line with the child's number, and one with its exit status.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
from typing import Any, NoReturn


def preload() -> None:
    """Import what most runs of the program import."""
    for name in ("agent", "cli.run", "config.project", "engine.runtime", "engine.views.trace"):
        importlib.import_module(f"delf.{name}")
    from delf_model_litellm import library

    library.load_now()
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """In a child: be the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[:] = ["delf", *request["arguments"]]
    tempfile.tempdir = None
    random.seed()
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        os.fdopen(2, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    from delf.cli.main import main

    sys.exit(main())


def serve(control: socket.socket) -> None:
    """Fork for each request until the other end is closed; one is under way at a time."""
    while True:
        data, streams, _, _ = socket.recv_fds(control, 1 << 20, 3)
        if not data:
            return
        child = os.fork()
        if child == 0:
            become(json.loads(data), streams)
        for descriptor in streams:
            os.close(descriptor)
        control.send(json.dumps(child).encode())
        _, status = os.waitpid(child, 0)
        control.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
