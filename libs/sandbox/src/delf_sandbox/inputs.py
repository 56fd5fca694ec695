"""Names of a task's input files inside a sandbox that does not share the host's file system."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from delf.errors import SandboxUnavailableError

WORKSPACE: Final = "/workspace"


class InputNames:
    """Assigns file names inside a sandbox to a task's input files.

    A file keeps its name without the folders. If the name is used already, a number is added.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # the name in the sandbox, by the file's path on the host

    def name(self, path: str) -> str:
        """Return the file name of an input file in the sandbox's folder, stable for each path.

        Args:
            path: The absolute path on the host.
        """
        name = self._names.get(path)
        if name is None:
            used_names = set(self._names.values())
            path_object = Path(path)
            name = path_object.name
            number = 1
            while name in used_names:
                number += 1
                name = f"{path_object.stem}-{number}{path_object.suffix}"
            self._names[path] = name
        return name

    def visible_path(self, path: str) -> str:
        """Return the absolute path of an input file as scripts see it.

        Args:
            path: The absolute path on the host.
        """
        return f"{WORKSPACE}/{self.name(path)}"

    def copy(self, paths: Iterable[str], folder: Path) -> None:
        """Copy input files into a folder that the sandbox can read. Blocking.

        Args:
            paths: Absolute paths on the host.
            folder: The folder on the host that scripts see as ``/workspace``.

        Raises:
            SandboxUnavailableError: If a file cannot be read.
        """
        for path in paths:
            target = folder / self.name(path)
            try:
                shutil.copyfile(path, target)
                target.chmod(0o644)
            except OSError as error:
                raise SandboxUnavailableError(
                    f"the input file {path} cannot be given to the sandbox: {error}"
                ) from error
