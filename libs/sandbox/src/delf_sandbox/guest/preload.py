"""Imports done before an interpreter becomes a guest, so that no script waits for them."""

from __future__ import annotations

import mimetypes
from typing import Final

MODULES: Final = (
    "asyncio",
    "collections",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "itertools",
    "json",
    "math",
    "pathlib",
    "random",
    "re",
    "statistics",
    "textwrap",
    "typing",
)


def preload() -> None:
    """Import the modules that run scripts, and the modules that scripts often import."""
    for name in ("delf_sandbox.guest.serve", *MODULES):
        __import__(name)
    mimetypes.knownfiles.clear()  # system files that the sandbox cannot read
