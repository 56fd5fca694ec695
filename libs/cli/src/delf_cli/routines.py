"""Protocols of routines, for commands and servers that use them if their plugin is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.protocols.services import Service

if TYPE_CHECKING:
    from delf import Agent
    from delf.trust.decisions import Trust


class DraftRoutine(Protocol):
    """A routine made from a task, not yet saved; a protocol like :class:`AgentRoutines`."""

    routine: Any
    differences: Sequence[str]
    cost_usd: float | None

    @property
    def change(self) -> str:
        """The file's content, or a diff if it replaces a file."""
        ...

    def keep(self) -> object:
        """Save the routine."""
        ...


class RunsRoutine(Protocol):
    """A routine of an agent; a protocol like :class:`AgentRoutines`."""

    routine: Any

    def task(self, inputs: Mapping[str, object]) -> str:
        """Return the task that runs the routine."""
        ...


class AgentRoutines(Protocol):
    """The routines of an agent's project: the export ``Routines`` of a plugin.

    A protocol, because servers and commands work without that plugin.
    """

    def __init__(self, agent: Agent[Any]) -> None: ...

    def find(self, name: str) -> RunsRoutine:
        """Return a routine by name."""
        ...

    def all(self) -> Sequence[RunsRoutine]:
        """Return all routines whose files are readable."""
        ...

    async def adraft(self, task_id: str, name: str, *, fixed: Sequence[str] = ()) -> DraftRoutine:
        """Make a routine from a task, for review before it is saved."""
        ...

    @staticmethod
    def task_of(root: Path, trust: Trust, name: str, values: Mapping[str, object]) -> str:
        """Return the task that runs a routine of a project."""
        ...


ROUTINES: Final[Service[type[AgentRoutines]]] = Service("Routines", None, "routines")
