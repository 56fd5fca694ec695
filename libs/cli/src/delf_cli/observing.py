"""The project's observers, for commands that change people or keys."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import click

from delf.environment import using_environ
from delf.plugins.factories import make
from delf.protocols.context import PluginContext
from delf.protocols.people import PersonChange
from delf.specs import ObserverSpec
from delf_cli.state import state_of
from delf_engine.journal.observers import open_observers
from delf_engine.redact import Redactor


@asynccontextmanager
async def tell_observers(ctx: click.Context) -> AsyncGenerator[Callable[[PersonChange], None]]:
    """Open the project's observers, and close them when the block ends.

    Yields:
        A function that reports a change to the observers: an added, changed or removed person, or
        a changed key of a person.
    """
    state = state_of(ctx)
    project = state.load_project()
    host = state.discover(project.environ)
    context = PluginContext(environ=project.environ)

    def make_observer(kind: type[ObserverSpec], name: str) -> Any:
        with using_environ(project.environ):
            return make(host, host.spec(kind, name), project.plugin_options, context)

    observers = open_observers(host, project.observers, make_observer, Redactor(project.secrets()))
    async with aclosing(observers):
        yield observers.tell
