"""A command of the ``delf`` program that a program can open, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from delf.events import Event


@runtime_checkable
class SupportsAgent(Protocol):
    """A ``click.Command`` that can be given an agent, as ``agent.run_chat()`` gives itself."""

    def run_agent(self, agent: Any, *, timeout: float | None = None, **options: Any) -> None:
        """Let a person work with an agent, until they leave.

        Args:
            agent: A :class:`delf.Agent`.
            timeout: Seconds for one task.
            options: The command's own.

        Raises:
            AgentStateError: When called from inside an event loop.
        """
        ...

    async def arun_agent(self, agent: Any, *, timeout: float | None = None, **options: Any) -> None:
        """The same from asynchronous code."""
        ...


@runtime_checkable
class SupportsServing(Protocol):
    """A ``click.Command`` that offers an agent over HTTP, as ``agent.serve()`` asks it to."""

    def serve_agent(self, agent: Any, **options: Any) -> None:
        """Serve an agent until the process is told to end.

        Args:
            agent: A :class:`delf.Agent`.
            options: The command's own.

        Raises:
            ConfigurationError: When it cannot be served so.
        """
        ...

    def asgi_app(self, agent: Any, **options: Any) -> Any:
        """The same as an ASGI application, for a server of the user's own."""
        ...


@runtime_checkable
class SupportsTelling(Protocol):
    """A ``click.Command`` that tells people of tasks, as ``verbose`` and ``trace.summary()`` do."""

    def tell(self, event: Event) -> None:
        """Say on stderr what happened."""
        ...

    def summary(self, trace: Any, *, calls: bool = True) -> str:
        """A :class:`delf.Trace` as a table.

        Args:
            trace: What happened.
            calls: Whether to list the calls.
        """
        ...
