"""The evaluations of a project, for programs and servers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delf.errors import ConfigurationError
from delf_cli.formats import format_count
from delf_evals.places import names_of, path_of, runs_of
from delf_evals.report import read


class Evaluations:
    """Read access to a project's evaluation data sets and to the reports of their runs.

    Args:
        root: The project's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> list[str]:
        """Return the names of the data sets."""
        return names_of(self._root)

    def runs(self, name: str) -> int:
        """Return the number of stored reports of a data set.

        Raises:
            ConfigurationError: If there is no such data set.
        """
        return len(runs_of(self._path(name)))

    def report(self, name: str, number: int = 1) -> Mapping[str, Any]:
        """Return the report of a run as the JSON data of ``delf evals show --json``.

        Args:
            name: The data set's name.
            number: 1 for the last run, 2 for the one before, and so on.

        Raises:
            ConfigurationError: If there is no such run, or its file is damaged.
        """
        path = self._path(name)
        runs = runs_of(path)
        if not 1 <= number <= len(runs):
            raise ConfigurationError(
                f"{path} has {format_count(len(runs), 'run')}",
                hint=f"make one: delf evals run {shlex.quote(name)}",
            )
        return read(runs[number - 1]).to_dict()

    def _path(self, name: str) -> Path:
        if name not in self.names():  # an unknown name may be a path that leads out of the project
            raise ConfigurationError(f"there is no data set {name!r}")
        return path_of(self._root, name)
