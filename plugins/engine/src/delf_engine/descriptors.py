"""The number of file descriptors that this process may still open."""

from __future__ import annotations

from pathlib import Path


def descriptors_left() -> int | None:
    """Return the number of files that this process may still open; None if unlimited."""
    try:
        import resource
    except ImportError:  # Windows, whose handles have no such limit
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return None
    try:
        used = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:  # no such folder, or not one descriptor is left to read it
        used = 0
    return max(0, most - used)
