"""Evaluations, for servers that show their reports if the plugin is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from delf.protocols.services import Service


class ProjectEvaluations(Protocol):
    """The evaluations of a project.

    A protocol, because a server works without the plugin that brings evaluations.
    """

    def names(self) -> Sequence[str]:
        """Return the names of the data sets."""
        ...

    def runs(self, name: str) -> int:
        """Return the number of kept runs of a data set."""
        ...

    def report(self, name: str, number: int = 1) -> Mapping[str, Any]:
        """Return the report of a run as data; number 1 is the last run."""
        ...


EVALUATIONS: Final[Service[Callable[[Path], ProjectEvaluations]]] = Service(
    "Evaluations", None, "evaluations"
)
"""Returns the evaluations of the project in a folder."""
