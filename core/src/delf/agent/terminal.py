"""An agent to talk to on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from delf.agent.home import RuntimeHome

if TYPE_CHECKING:
    from delf.agent.agent import Agent


class AgentTerminal:
    """The part of an agent that is talked to on a terminal."""

    _home: RuntimeHome

    @property
    def started(self) -> bool:
        """Whether it has begun to work and was not stopped."""
        return self._home.bound

    def run_chat(self, timeout: float | None = None, **options: Any) -> None:
        """Read tasks from the terminal and do them, one after another, until ``/exit``.

        An agent without a chat gets one in memory, so that each task knows those before it.

        Args:
            timeout: Seconds for one task; when omitted the agent's, or 300 if it was not set.
            options: ``show_code=True`` writes each script, ``verbose=True`` each call.

        Raises:
            OptionalDependencyError: When the package for editing lines is missing.
            AgentStateError: When called from inside an event loop; ``arun_chat`` is for there.
        """
        from delf.cli.repl import run_chat

        run_chat(cast("Agent", self), timeout=timeout, **options)

    async def arun_chat(self, timeout: float | None = None, **options: Any) -> None:
        """The same from asynchronous code."""
        from delf.cli.repl import arun_chat

        await arun_chat(cast("Agent", self), timeout=timeout, **options)
