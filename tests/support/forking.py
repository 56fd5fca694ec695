"""In a process that has imported what many processes need: fork one for each request.

A request is a line of JSON with descriptors. What is forked becomes a child of the one who asked,
as it would be had that started it: its parent here ends at once, while the other takes in orphans.
The answer is its number. Standard library only.
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
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child > 0:
                control.send(str(child).encode())
                os._exit(0)
            control.close()
            request = json.loads(data)
            while os.getppid() != request["host"]:
                time.sleep(0)
            become(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)
        control.send(b"it is an orphan")
