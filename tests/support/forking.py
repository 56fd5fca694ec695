"""In a process that has imported what many processes need: fork one for each request.

A request is a line of JSON with descriptors. What is forked becomes a child of the one who started
this process, as it would be had that started it. The answer is the request's number with the
process's. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import socket
from collections.abc import Callable
from typing import Any, Final

_CLONE: Final = 56 if platform.machine() == "x86_64" else 220
_CLONE_PARENT: Final = 0x8000


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
        child = _fork_sibling()
        if child == 0:
            control.close()
            become(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(json.dumps([request["number"], child]).encode())


def _fork_sibling() -> int:
    """As ``os.fork`` in a process of one thread, for a child of this process's parent."""
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    python.PyOS_BeforeFork()
    child = libc.syscall(_CLONE, _CLONE_PARENT, 0, 0, 0, 0)
    if child == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if child < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return child
