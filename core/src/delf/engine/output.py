"""Where output files go: a folder for each task, made when the first file comes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from delf.sandbox.guest.output import check_file_name


class OutputFolder:
    """A task's output files.

    Args:
        folder: Where they go; a new temporary folder for each task when None.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder).expanduser().resolve() if folder is not None else None
        self.files: dict[str, str] = {}

    def write(self, name: str, data: bytes) -> str:
        """Write a whole file, at once or not at all.

        Args:
            name: A relative name.
            data: Its content.

        Returns:
            The absolute path.

        Raises:
            ValueError: When the name leaves the folder.
            OSError: When it cannot be written.
        """
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="delf-out-"))
        path = (self._folder / check_file_name(name)).resolve()
        if not path.is_relative_to(self._folder):
            raise ValueError(f"{name!r} leaves the output folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            file.write(data)
        written = Path(file.name)
        written.chmod(0o644)
        try:
            written.replace(path)
        except OSError:
            written.unlink()
            raise
        self.files[name] = str(path)
        return str(path)
