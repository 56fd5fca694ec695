"""Input files of a task inside a sandbox that does not share the host's file system."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from delf.errors import SandboxUnavailableError

WORKSPACE: Final = "/workspace"
_DIGEST_CHARS: Final = 8


def visible_path(path: str) -> str:
    """Return the absolute path at which scripts see an input file.

    The path depends only on the file's path on the host. Each folder of the host has a folder of
    its own in the workspace, so files with equal names do not collide.

    Args:
        path: The absolute path on the host.
    """
    # A number for each equal file name would not do: it would tell a script that another task has
    # a file of this name, and a resumed task could get another number.
    return f"{WORKSPACE}/{_relative_path(path)}"


def copy_inputs(paths: Iterable[str], folder: Path) -> None:
    """Copy input files into a folder that the sandbox can read. Blocking.

    Args:
        paths: Absolute paths on the host.
        folder: The folder on the host that scripts see as ``/workspace``.

    Raises:
        SandboxUnavailableError: If a file cannot be read.
    """
    for path in paths:
        target = folder / _relative_path(path)
        try:
            target.parent.mkdir(exist_ok=True)
            # The sandbox may run as another user, who can read only with these modes.
            target.parent.chmod(0o755)
            shutil.copyfile(path, target)
            target.chmod(0o644)
        except OSError as error:
            raise SandboxUnavailableError(
                f"the input file {path} cannot be given to the sandbox: {error}"
            ) from error


def _relative_path(path: str) -> Path:
    """Return the path of an input file in the workspace: a digest of its folder, and its name."""
    folder, name = os.path.split(path)
    return Path(hashlib.sha256(os.fsencode(folder)).hexdigest()[:_DIGEST_CHARS], name)
