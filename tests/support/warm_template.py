"""Templates of the local sandbox, forked from a process that has imported what they import.

Three quarters of what a template costs are its imports, and most tests start one. The tests of
the sandbox itself start theirs as users do.

python -P -s -S -X utf8 warm_template.py SOURCE ZIPAPP DESCRIPTOR

A request is the host's process id, with two descriptors: the template's control socket and its
standard error. The template becomes a child of the host, as it would be had that started it: its
parent here ends at once, while the host takes in orphans. The answer is its number.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import NoReturn


def serve(zipapp: str, control: socket.socket) -> None:
    """Fork for each request until the other end is closed."""
    from delf_sandbox_local.template import main

    sys.path.insert(0, zipapp)
    from delf.sandbox.guest.preload import preload

    preload()
    del sys.path[0]

    def become(host: int, template: int, errors: int) -> NoReturn:
        control.close()
        os.setsid()
        os.dup2(errors, 2)
        os.close(errors)
        os.chdir("/")
        while os.getppid() != host:
            time.sleep(0)
        main(zipapp, template, host)
        os._exit(0)

    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 100, 2)
        if not data:
            return
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                become(int(data), *descriptors)
            control.send(str(child).encode())
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)
        control.send(b"it is an orphan")


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    serve(sys.argv[2], socket.socket(fileno=int(sys.argv[3])))
