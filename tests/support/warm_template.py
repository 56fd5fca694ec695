"""Templates of the local sandbox, forked from a process that has done what each of them does first.

Its imports and namespaces are most of what a template costs, and most tests start one. The tests
of the sandbox itself start theirs as users do.

python -P -s -S -X utf8 warm_template.py SOURCE ZIPAPP DESCRIPTOR

The descriptor is the end of a connection, whose requests :mod:`support.forking` serves.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Serve = Callable[[int, int], None]


def become(template: Serve, request: dict[str, Any], descriptors: list[int]) -> None:
    """In a child: be a template."""
    control, errors = descriptors
    os.setsid()
    os.dup2(errors, 2)
    os.close(errors)
    os.chdir("/")
    template(control, request["host"])


if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(__file__), *sys.argv[1].split(os.pathsep)]
    from forking import serve

    from delf_sandbox_local.template import make_ready
    from delf_sandbox_local.template import serve as serve_guests

    del sys.path[:3]
    own, server = make_ready(sys.argv[2])
    template = partial(serve_guests, linux_namespaces=own, server=server)
    serve(socket.socket(fileno=int(sys.argv[3])), partial(become, template))
