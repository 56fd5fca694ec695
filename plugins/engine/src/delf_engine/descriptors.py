"""The number of file descriptors that this process may still open."""

from __future__ import annotations

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
    except OSError:  # no such folder, or not one descriptor is left to read it
        open_count = 0
    return max(0, max_descriptors - open_count)
