"""Input files and their names in scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from delf.errors import ConfigurationError
from delf.machine.folders import expand_home
from delf.plugins.host import PluginHost
from delf.protocols.connection import ConnectionLike
from delf.protocols.formats import InputFile, InstalledFormats
from delf.records import dataclass
from delf.specs import ConnectionSpec
from delf.values.unicode import normalized
from delf_engine.formats import Formats


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The input files of tasks, and the formats for their suffixes."""

    inputs: Sequence[InputFile]
    formats: Formats


def find_inputs(files: Sequence[str]) -> dict[str, str]:
    """Return the names of input files by absolute path, numbering duplicate names.

    A link keeps its own name. A file given twice counts once.

    Args:
        files: Paths as the user wrote them.

    Raises:
        ConfigurationError: If a file is not readable.
    """
    inputs: dict[str, str] = {}
    for file_path in files:
        given_path = expand_home(file_path)
        path = _resolve_input(given_path)
        if str(path) not in inputs:
            inputs[str(path)] = _free_name(given_path.name, inputs.values())
    return inputs


def recorded_files(setup: Mapping[str, Any]) -> list[Path] | None:
    """Return the paths of the input files that a task was given, as its setup records them.

    Args:
        setup: The setup of the task.

    Returns:
        The paths; an empty list if the task was given no files, None if the task has the input
        files of its agent.
    """
    names: Sequence[str] | None = setup.get("input_files")
    if names is None:  # the command line records the files as an option of its agent
        flags: Mapping[str, Any] = setup.get("flags") or {}
        names = flags.get("files")
    if names is None:
        return None
    folder = Path(setup.get("folder", ""))
    return [folder / expand_home(name) for name in names]


def _resolve_input(given_path: Path) -> Path:
    """Return the absolute path of an input file, with links resolved.

    Raises:
        ConfigurationError: If the file is not readable.
    """
    try:
        path = given_path.resolve()
        if path.is_dir():
            raise ConfigurationError(
                f"input file {str(given_path)!r} is a folder",
                hint="name the files in it one by one",
            )
        if not path.is_file():
            problem = "is not an ordinary file" if path.exists() else "does not exist"
            raise ConfigurationError(f"input file {str(given_path)!r} {problem}: {path}")
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigurationError(
            f"input file {str(given_path)!r} cannot be used: {error}"
        ) from error
    if not os.access(path, os.R_OK):
        raise ConfigurationError(f"input file {str(given_path)!r} may not be read by this user")
    return path


def check_inputs(files: Sequence[InputFile]) -> None:
    """Check that input files found earlier are still regular files.

    Raises:
        ConfigurationError: If a file has become something else, such as a pipe or a link.
    """
    for file in files:
        path = _resolve_input(Path(file.path))  # raises unless the path leads to a regular file
        is_link = str(path) != file.path
        if is_link:
            raise ConfigurationError(f"input file {file.path!r} has become a link to {path}")


def _free_name(name: str, used_names: Iterable[str]) -> str:
    """Return the name with a number if it is used already, such as ``report-2.csv``."""
    folded_names = {normalized(item).casefold() for item in used_names}
    original = Path(name)
    number = 1
    free_name = name
    while normalized(free_name).casefold() in folded_names:
        number += 1
        free_name = f"{original.stem}-{number}{original.suffix}"
    return free_name


def input_files(
    name_by_path: Mapping[str, str],
    visible_path_of: Callable[[str], str],
    own_files: Sequence[str] = (),
) -> list[InputFile]:
    """Return input files with their paths inside a sandbox.

    Args:
        name_by_path: The result of :func:`find_inputs`.
        visible_path_of: Maps a host path to a path in the sandbox.
        own_files: The paths of files and folders whose contents the user trusts. Paths are
            compared, not names: a stranger can choose the name of an attachment.
    """
    own_paths = [expand_home(each).resolve() for each in own_files]

    def is_own(path: str) -> bool:
        return any(Path(path).is_relative_to(own_path) for own_path in own_paths)

    files: list[InputFile] = []
    for path, name in name_by_path.items():
        trust = "own" if is_own(path) else "outside"
        files.append(InputFile(name, path, visible_path_of(path), trust=trust))
    return files


def readers_of(
    files: Sequence[InputFile], host: PluginHost, formats: InstalledFormats
) -> list[ConnectionLike]:
    """Return the built-in connections that read a task's input files.

    Args:
        files: The task's input files.
        host: The plugins.
        formats: The installed formats.
    """
    specs = host.specs(ConnectionSpec)
    readers: list[ConnectionLike] = []
    for spec in specs:
        reads_given_files = bool(spec.input_files) and bool(files)
        if reads_given_files or spec.input_files == "always":
            readers.append(host.resolve(spec)(files=files, formats=formats))
    return readers
