"""The files of a project that are its routines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delf.trust.folders import UntrustedFolder

FOLDER: Final = "routines"
"""The subfolder of a project with its routines."""


def project_files(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the paths of the Python files in a project's folder of routines (saved scripts)."""
    for path in folder.files_of(folder.root / FOLDER):
        if path.suffix == ".py" and path.resolve().is_relative_to(folder.root):
            yield path
