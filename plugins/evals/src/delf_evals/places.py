"""The data sets of a project, and the reports beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from delf.errors import ConfigurationError, did_you_mean
from delf.machine.folders import expand_home

FOLDER: Final = "evals"
"""The name of the folder with a project's data sets."""
RUNS: Final = "runs"
"""The name of the folder with reports, next to the data set's file."""
MAX_BYTES: Final = 100_000_000
"""The maximum number of bytes of a data set, a recording or a report."""
# The suffix in the names of the JSON Schema files that pydantic-evals writes beside data sets.
_SCHEMA_SUFFIX: Final = "_schema"
_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")


def names_of(root: Path) -> list[str]:
    """Return the names of the data sets in a project's folder."""
    files = sorted((root / FOLDER).glob("*")) if (root / FOLDER).is_dir() else []
    names = [path.stem for path in files if path.suffix in _FILE_SUFFIXES and path.is_file()]
    return [name for name in names if not name.endswith(_SCHEMA_SUFFIX)]


def path_of(root: Path, name: str) -> Path:
    """Return the path of a data set, given by its name in the project or by its path.

    Raises:
        ConfigurationError: If there is no such file.
    """
    file_path = expand_home(name)
    is_path = file_path.suffix in _FILE_SUFFIXES or len(file_path.parts) > 1
    if is_path:
        candidates = [file_path]
    else:
        candidates = [root / FOLDER / f"{name}{suffix}" for suffix in _FILE_SUFFIXES]
    for path in candidates:
        if path.is_file():
            return path
    names = names_of(root)
    raise ConfigurationError(
        f"there is no data set {name!r}{did_you_mean(name, names)}",
        hint=f"data sets of {root / FOLDER}: {', '.join(names) or 'none'}; "
        "`delf evals add TASK` makes one from a task",
    )


def runs_of(dataset: Path) -> list[Path]:
    """Return the paths of a data set's reports, the newest first."""
    return sorted(folder_of_reports(dataset).glob("*.json"), reverse=True)


def folder_of_reports(dataset: Path) -> Path:
    """Return the folder with the reports of a data set's runs."""
    return dataset.parent / RUNS / dataset.stem


def write(path: Path, text: str) -> None:
    """Write a text file; create its folder if needed.

    Raises:
        ConfigurationError: If the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
