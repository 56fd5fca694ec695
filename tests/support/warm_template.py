"""Templates of the local sandbox, forked from a process that has imported what they import.

Three quarters of what a template costs are its imports, and most tests start one. The tests of
the sandbox itself start theirs as users do.

python -P -s -S -X utf8 warm_template.py SOURCE ZIPAPP DESCRIPTOR
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """In a child: be a template."""
    control, errors = descriptors
    os.setsid()
    os.dup2(errors, 2)
    os.close(errors)
    os.chdir("/")
    main(sys.argv[2], control, request["host"])


if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(__file__), sys.argv[1]]
    from forking import serve

    from delf_sandbox_local.template import main

    sys.path[:2] = [sys.argv[2]]
    from delf_sandbox.guest.preload import preload

    preload()
    del sys.path[0]
    serve(socket.socket(fileno=int(sys.argv[3])), become)
