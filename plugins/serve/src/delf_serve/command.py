"""``delf serve``: the project's agent over HTTP."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from delf_cli.options import flags_of, remaining_options, run_options
from delf_cli.state import state_of

if TYPE_CHECKING:
    from delf import Agent
    from delf_serve.app import Application

_NOT_SHARED: Final = {"as_json", "events", "verbose"}
HOST: Final = "127.0.0.1"
PORT: Final = 8080


class HttpServer:
    """The server of ``agent.serve()``. Implements :class:`delf_engine.agent.ServesAgents`."""

    def serve(
        self, agent: Agent[Any], *, host: str = HOST, port: int = PORT, **options: Any
    ) -> None:
        """Serve an agent until a signal ends the process."""
        from delf_cli.listening import address_of, listening
        from delf_serve.server import serve

        app = self.asgi_app(agent, **options)
        with listening(host, port) as listeners:
            message = f"delf serves on {address_of(listeners[0])}"
            serve(app, listeners, lambda: click.echo(message, err=True))

    def asgi_app(self, agent: Agent[Any], **options: Any) -> Application:
        """Return the ASGI application of an agent."""
        from delf_serve.app import make_app

        return make_app(agent, options, os.environ)


http_server: Final = HttpServer()


@click.command(
    "serve",
    epilog="Exit status: 0 it was asked to end, 2 usage or configuration.",
)
@click.option("--host", default=HOST, show_default=True, help="The address to listen at.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="The port."
)
@click.option("--task", "tasks", multiple=True, help="Submit this task at the start.")
@click.pass_context
def serve(ctx: click.Context, host: str, port: int, tasks: tuple[str, ...], **given: Any) -> None:
    """Serve the project's agent over HTTP, with a page to watch tasks and to approve calls.

    While there is no key, the server listens on loopback only. `delf users add` adds a person with
    a key. A key in DELF_API_KEY has every right.

    \b
    delf serve
    delf users add ada
    delf serve --host 0.0.0.0
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_cli.session import Options
    from delf_serve.project import serve_project

    options = Options(flags=flags_of(given), **remaining_options(given))
    serve_project(state_of(ctx), options, host=host, port=port, tasks=tasks)


serve.params += run_options(without=_NOT_SHARED)
