"""A routine of an agent, callable by a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from delf_cli.routines import ROUTINE, call_text
from delf_routines.routine import Routine, Value

if TYPE_CHECKING:
    from delf import Agent, Response


class BoundRoutine:
    """A routine of an agent, which can be called with parameters.

    Get one by ``Routines(agent).find(name)``.
    """

    def __init__(self, agent: Agent[Any], routine: Routine) -> None:
        self.routine = routine
        self._agent = agent

    def __call__(self, *, timeout: float | None = None, **inputs: Value) -> Response[Any]:
        """Run the routine without a model, and wait for its response.

        Args:
            timeout: The timeout in seconds.
            inputs: Values of parameters. The default is the value in the original task.

        Raises:
            ConfigurationError: If a parameter is unknown or a value is invalid.
        """
        return self._agent.run(self.task(inputs), timeout, strategy=ROUTINE)

    async def arun(self, *, timeout: float | None = None, **inputs: Value) -> Response[Any]:
        """Async version of :meth:`__call__`."""
        return await self._agent.arun(self.task(inputs), timeout, strategy=ROUTINE)

    def task(self, inputs: Mapping[str, object]) -> str:
        """Return a task's text that makes the strategy ``RoutineStrategy`` run this routine.

        Raises:
            ConfigurationError: If a parameter is unknown or a value is invalid.
        """
        return call_text(self.routine.name, self.routine.values(inputs))
