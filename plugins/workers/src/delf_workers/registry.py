"""The search path of workers."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from delf.errors import ConfigurationError, did_you_mean
from delf.machine.own_files import create_private, make_private_folder
from delf.trust.decisions import Trust, whole_file_items
from delf.trust.folders import entries_of, has_file, is_file
from delf_workers import frontmatter
from delf_workers.definition import WorkerDefinition, from_front_matter
from delf_workers.project_files import FILE_IN_FOLDER, GENERATED_FOLDER, MAIN, SUFFIX

TOOLS_FILE: Final = "tools.py"
# The file name suffix of agents in llm-do's newer format, which is not supported.
_UNSUPPORTED_SUFFIX: Final = ".agent"


class Registry:
    """The workers in some folders, each in a file ``NAME.worker`` or ``NAME/worker.worker``.

    ``main.worker`` may be in the project's own folder.

    Args:
        folders: The folders in search order. If a name occurs twice, the first worker is used. The
            subfolders ``generated`` are searched last.
        root: The project's folder, whose files must be trusted; None if a program chose the
            folders.
        trust: The trust decisions.
    """

    def __init__(
        self, folders: Sequence[Path], root: Path | None = None, trust: Trust | None = None
    ) -> None:
        self.folders = tuple(folders)
        self._root = root
        self.trust = trust or Trust.here()

    def read(self, path: Path) -> bytes:
        """Return the content of a worker's file, or of a file in the same folder, if trusted.

        Raises:
            FolderNotTrustedError: If the content is not trusted.
            ConfigurationError: If the file cannot be read.
        """
        content = frontmatter.content(path)
        # The checked bytes are returned, because the file may change after the check.
        if self._root is not None:
            self.trust.check(self._root, whole_file_items(path, content, self._root))
        return content

    @property
    def generated(self) -> Path:
        """The folder for workers that models create."""
        return self.folders[0] / GENERATED_FOLDER

    def files(self) -> dict[str, Path]:
        """Return the paths of all workers' files, by worker name."""
        paths: dict[str, Path] = {}
        if self._root is not None:
            main = self._root / f"{MAIN}{SUFFIX}"
            if main.is_file():
                paths[MAIN] = main
        generated_folders = [folder / GENERATED_FOLDER for folder in self.folders]
        for folder in (*self.folders, *generated_folders):
            for name, path in _worker_files(folder):
                paths.setdefault(name, path)
        return dict(sorted(paths.items()))

    def find(self, name: str) -> WorkerDefinition:
        """Return a worker by name.

        Raises:
            ConfigurationError: If the worker is missing or its file is invalid. The message names
                line and key.
        """
        files = self.files()
        path = files.get(name)
        if path is None:
            places = ", ".join(map(str, self.folders))
            hint = f"workers: {', '.join(files) or 'none'}; looked in {places}"
            unsupported_name = f"{name}{_UNSUPPORTED_SUFFIX}"
            if self._root is not None and (self._root / unsupported_name).is_file():
                hint = (
                    f"{unsupported_name} has llm-do's format with project.json, which is not "
                    "supported; docs/migrating/llm-do.md says how to rename its files"
                )
            raise ConfigurationError(
                f"there is no worker {name[:80]!r}{did_you_mean(name, files)}", hint=hint
            )
        front = frontmatter.of_bytes(path, self.read(path))
        return from_front_matter(front, name, generated=self.is_generated(path), read=self.read)

    def tools_file(self, worker: WorkerDefinition) -> Path:
        """Return the path of the ``tools.py`` next to a worker's file.

        If only the project has a ``tools.py``, return the path of the project's file.
        """
        neighbour = worker.file.parent / TOOLS_FILE
        if self._root is None or neighbour.is_file():
            return neighbour
        project_file = self._root / TOOLS_FILE
        return project_file if project_file.is_file() else neighbour

    def is_generated(self, path: Path) -> bool:
        """Return True if a worker's file is in a folder for workers that models create."""
        generated_folders = [folder / GENERATED_FOLDER for folder in self.folders]
        return any(path.is_relative_to(folder) for folder in generated_folders)

    def text_of(self, table: dict[str, Any], instructions: str) -> str:
        """Return the text of a generated worker's file, after validating the worker.

        Raises:
            ConfigurationError: If the worker would be invalid.
        """
        name = str(table["name"])
        head = yaml.safe_dump(table, sort_keys=False, allow_unicode=True)
        text = f"---\n{head}---\n{instructions.strip()}\n"
        path = self._path(name)
        from_front_matter(frontmatter.parse(path, text), name, generated=True)
        return text

    def _path(self, name: str) -> Path:
        return self.generated / name / FILE_IN_FOLDER

    def check_free(self, name: str) -> None:
        """Check that no worker is called ``name`` yet.

        Raises:
            ConfigurationError: If the name is taken.
        """
        if name in self.files():
            raise ConfigurationError(
                f"there is a worker {name!r} already", hint="take another name"
            )

    def write(self, name: str, text: str) -> Path:
        """Write the file of a generated worker atomically, and return its path.

        Raises:
            ConfigurationError: If a worker of that name exists, or the file cannot be written.
        """
        self.check_free(name)
        path = self._path(name)
        temporary = path.with_name(f".{secrets.token_hex(8)}")
        try:
            make_private_folder(path.parent)
            with create_private(temporary) as file:
                file.write(text.encode())
            os.link(temporary, path)  # fails if another call was first
        except FileExistsError:
            raise ConfigurationError(f"there is a worker {name!r} already") from None
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
        finally:
            temporary.unlink(missing_ok=True)
        if self._root is not None:  # the person who approved the worker trusts its file
            self.trust.keep(self._root, whole_file_items(path, text.encode(), self._root))
        return path


def _worker_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of each worker in a folder, sorted by name.

    A worker is a file, or a subfolder with such a file. Generated workers are left out.
    """
    for path in entries_of(folder):
        if path.suffix == SUFFIX and is_file(path):
            yield path.stem, path
        elif path.name != GENERATED_FOLDER and has_file(path, FILE_IN_FOLDER):
            yield path.name, path / FILE_IN_FOLDER
