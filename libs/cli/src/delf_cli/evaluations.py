"""Evaluations, for servers that show their reports if the plugin is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from delf.protocols.services import Service


class ProjectEvaluations(Protocol):
    """The evaluations of a project.

    The plugin ``evals`` implements this protocol. A server works without the plugin.
    """

    def names(self) -> Sequence[str]:
        """Return the names of the data sets."""
        ...

    def runs(self, name: str) -> int:
        """Return the number of stored runs of a data set."""
        ...

    def report(self, name: str, number: int = 1) -> Mapping[str, Any]:
        """Return the report of a run of a data set; number 1 is the most recent run."""
        ...


EVALUATIONS: Final[Service[Callable[[Path], ProjectEvaluations]]] = Service(
    "Evaluations", None, "evaluations"
)
"""A plugin's function that returns the evaluations of the project in a given folder."""
