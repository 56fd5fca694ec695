"""The number of file descriptors that this process may still open."""

from __future__ import annotations

import errno
from pathlib import Path


def descriptors_left() -> int | None:
    """Return the number of files that this process may still open; None if unlimited."""
    try:
        import resource
    except ImportError:  # Windows, whose handles have no such limit
        return None
    max_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if max_descriptors == resource.RLIM_INFINITY:
        return None
    try:
        open_count = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError as error:
        if error.errno == errno.EMFILE:  # not one descriptor is left to read the folder
            return 0
        open_count = 0  # a system without this folder: hope that few descriptors are open
    return max(0, max_descriptors - open_count)
