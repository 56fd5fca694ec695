"""Protocols of routines, for commands and servers that use them if their plugin is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.protocols.services import Service

if TYPE_CHECKING:
    from delf import Agent
    from delf.trust.decisions import Trust
    from delf_engine.models.money import Ledger


class DraftRoutine(Protocol):
    """A routine that was made from a task and is not saved yet.

    The plugin ``routines`` implements this protocol.
    """

    routine: Any
    # The saved routine of the same name, which the draft replaces; None for a new name.
    before: Any
    differences: Sequence[str]
    cost_usd: float | None

    @property
    def change(self) -> str:
        """The content of the routine's file; a diff if the routine replaces a file."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """The places of the script that still contain a parameter's default value.

        A person should check these places, because they do not change with the parameter.
        """
        ...

    def keep(self) -> object:
        """Save the routine."""
        ...


class RunnableRoutine(Protocol):
    """A saved routine that an agent can run.

    A class of the plugin ``routines`` implements this protocol.
    """

    routine: Any

    def task(self, inputs: Mapping[str, object]) -> str:
        """Return the text of a task that runs the saved script with these inputs."""
        ...


class AgentRoutines(Protocol):
    """The routines of an agent's project.

    The plugin ``routines`` implements this protocol. Servers and commands work without the plugin.
    """

    def __init__(self, agent: Agent[Any]) -> None: ...

    def find(self, name: str) -> RunnableRoutine:
        """Return a routine by name."""
        ...

    def all(self) -> Sequence[RunnableRoutine]:
        """Return all routines whose files are readable."""
        ...

    async def adraft(
        self,
        task_id: str,
        name: str,
        *,
        fixed: Sequence[str] = (),
        ledger: Ledger | None = None,
    ) -> DraftRoutine:
        """Make a routine from a task, to be reviewed and then saved.

        Args:
            task_id: The id of the task.
            name: The name of the routine.
            fixed: The names of proposed parameters whose values stay constants in the script.
            ledger: Charged with the cost of a model; the agent's ledger when omitted.
        """
        ...

    @staticmethod
    def task_of(root: Path, trust: Trust, name: str, values: Mapping[str, object]) -> str:
        """Return the text of a task that calls a routine of a project.

        Args:
            root: The project's folder.
            trust: The trust decisions of the user.
            name: The name of the routine.
            values: A mapping from parameter to value.
        """
        ...


ROUTINE: Final = "routine"
"""The name of the strategy whose task texts are calls of routines."""
ROUTINES: Final[Service[type[AgentRoutines]]] = Service("Routines", None, "routines")


def call_text(routine: str, values: Mapping[str, object]) -> str:
    """Return the text of a task that calls a routine with the given values."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return f"{routine}({arguments})"
