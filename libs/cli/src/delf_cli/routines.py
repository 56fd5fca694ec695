"""The routines of a project, as commands and servers use them where their plugin is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.protocols.services import Service

if TYPE_CHECKING:
    from delf import Agent
    from delf.trust.decisions import Trust


class DraftRoutine(Protocol):
    """A task as a routine that nobody has kept yet."""

    routine: Any
    differences: Sequence[str]
    cost_usd: float | None

    @property
    def change(self) -> str:
        """The file, or a diff where it replaces one."""
        ...

    def keep(self) -> object:
        """Save it."""
        ...


class RunsRoutine(Protocol):
    """A routine of an agent."""

    routine: Any

    def task(self, inputs: Mapping[str, object]) -> str:
        """Return the task that runs it."""
        ...


class AgentRoutines(Protocol):
    """The routines of an agent's project."""

    def find(self, name: str) -> RunsRoutine:
        """Return the routine of a name."""
        ...

    def all(self) -> Sequence[RunsRoutine]:
        """Return all whose files can be read."""
        ...

    async def adraft(self, task_id: str, name: str, *, fixed: Sequence[str] = ()) -> DraftRoutine:
        """Make a routine of a task that a person looks at before it is kept."""
        ...


class MakesRoutines(Protocol):
    """The export ``Routines`` of a plugin."""

    def __call__(self, agent: Agent[Any], /) -> AgentRoutines:
        """Return the routines of an agent's project."""
        ...

    def task_of(self, root: Path, trust: Trust, name: str, given: Mapping[str, object]) -> str:
        """Return the task that runs a routine of a project."""
        ...


ROUTINES: Final = Service("Routines", MakesRoutines, "routines")
