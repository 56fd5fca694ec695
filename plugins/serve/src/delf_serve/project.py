"""Serving the agent of a project."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from delf.errors import DelfError
from delf_cli import errors
from delf_cli.listening import address_of, listening
from delf_serve.app import make_app
from delf_serve.people_tasks import WAIT_FOR_PEOPLE
from delf_serve.server import serve
from delf_serve.settings import NAME

if TYPE_CHECKING:
    from delf_cli.session import Options
    from delf_cli.state import State
    from delf_serve.app import Application


def serve_project(
    state: State,
    options: Options,
    *,
    host: str,
    port: int,
    tasks: Sequence[str] = (),
) -> None:
    """Serve the project's agent until a signal ends the process.

    Args:
        state: The command-line flags of the program.
        options: The options of the agent.
        host: The address to bind.
        port: The port.
        tasks: Tasks to submit at the start.

    Raises:
        ConfigurationError: If the server cannot start with these settings.
    """
    app = make_application(state, options)
    _warn_of_unusable_model(state, options)
    app.first_tasks = tuple(tasks)
    with listening(host, port) as listeners:
        message = f"delf serves on {address_of(listeners[0])} - Ctrl-C ends it"
        serve(app, listeners, lambda: click.echo(message, err=True))


def _warn_of_unusable_model(state: State, options: Options) -> None:
    """Warn at the start if the main model cannot be used, for example without an API key."""
    from delf.protocols.context import PluginContext
    from delf_cli.session import Setup
    from delf_engine.models.pool import ModelPool

    setup = Setup.of(state, options)
    config = setup.project.agent
    context = PluginContext(
        environ=setup.project.environ,
        providers=config.providers,
        api_key_for=config.api_key_for,
    )

    async def check() -> None:
        pool = ModelPool(setup.host, context)
        try:
            await pool.check(config.main_llm)
        finally:
            await pool.aclose()

    try:
        asyncio.run(check())
    except DelfError as error:
        errors.say("warning", f"no task can run yet: {state.redact(error.message)}")
        hint = errors.hint_of(error)
        if hint:
            errors.say("hint", state.redact(hint))


def make_application(state: State, options: Options) -> Application:
    """Create the ASGI application of the project's agent."""
    from delf_cli.session import Setup
    from delf_engine.journal.factory import need_durable_journal

    setup = Setup.of(state, options)
    if not setup.journal_was_chosen:  # then Application takes the journal "sql"
        need_durable_journal(setup.host, "a server")
    defaults: dict[str, Any] = {"chat": {"persist": True}, **WAIT_FOR_PEOPLE}
    project_fields = setup.project.agent.model_fields_set
    unset_defaults = {name: defaults[name] for name in defaults if name not in project_fields}
    agent = setup.agent(**unset_defaults)
    server_options = setup.project.plugin_options.get(NAME, {})
    return make_app(agent, server_options, setup.project.environ)
