"""In a process that has imported what many processes need: fork one for each request.

A request is a line of JSON with descriptors. What is forked becomes a child of the one who asked,
as it would be had that started it: its parent here ends at once, while the other takes in orphans.
The answers are the request's number with the process's, and with 0 once it is an orphan. Where the
one who asked has given up meanwhile, the orphan ends. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any


def serve(control: socket.socket, become: Callable[[dict[str, Any], list[int]], object]) -> None:
    """Fork until the other end is closed.

    Args:
        control: Where requests come from.
        become: What the new process does with its request and descriptors, to its end.
    """
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 8)
        if not data:
            return
        request = json.loads(data)
        between = os.fork()
        if between == 0:
            parent = os.getpid()
            child = os.fork()
            if child > 0:
                control.send(json.dumps([request["number"], child]).encode())
                os._exit(0)
            control.close()
            while os.getppid() == parent:
                time.sleep(0.0002)  # and not at once: the other needs the processor
            if os.getppid() != request["host"]:
                os._exit(1)
            become(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)
        control.send(json.dumps([request["number"], 0]).encode())
