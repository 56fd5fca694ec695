"""Makes connections by the names that users type: instances of ``delf.toml``, or types."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from delf.config.project import ConnectionEntry, Project
from delf.config.values import Values
from delf.environment import using_environ
from delf.errors import (
    AgentConfirmationError,
    ConfigurationError,
    ConnectionConfigurationError,
    DelfError,
    PluginError,
    did_you_mean,
)
from delf.plugins.host import PluginHost
from delf.plugins.loader import explain
from delf.specs import ConnectionSpec
from delf.tools.connection import Connection


def make_connection(host: PluginHost, project: Project, name: str) -> Connection:
    """The connection that a user means.

    Args:
        host: Knows the types.
        project: Knows the instances.
        name: An instance's name, or a type's, which then takes all settings from
            ``DELF_<TYPE>_…``.

    Raises:
        ConfigurationError: When there is no such name, or its settings do not fit.
    """
    entry = project.connections.get(name)
    if entry is None:
        spec = _type(host, project, name)
        entry = ConnectionEntry(
            name=name.replace("-", "_"),
            type=name,
            where=f"connection {name!r}",
            values=Values(),
            environ=project.environ,
        )
    else:
        try:
            spec = host.spec(ConnectionSpec, entry.type)
        except PluginError as error:
            raise PluginError(f"{entry.where}: {error.message}", hint=error.hint) from None
    factory = host.resolve(spec)
    owner = host.origin(spec)
    if not callable(factory):
        raise PluginError(f"{owner}: {spec.factory} is no connection, but {factory!r}")
    return _make(factory, entry, owner)


def plugin_warnings(host: PluginHost, project: Project) -> Iterator[str]:
    """A warning for each ``[plugins.NAME]`` whose plugin is not installed.

    Args:
        host: Knows the plugins; none of them is imported for this.
        project: Knows the sections.
    """
    for name in project.plugin_options:
        if name not in host.names:
            close = did_you_mean(name, host.names)
            yield f"{project.file} [plugins.{name}]: no such plugin is installed{close}"


def _type(host: PluginHost, project: Project, name: str) -> ConnectionSpec:
    try:
        return host.spec(ConnectionSpec, name)
    except PluginError as error:
        # A near miss of an instance is likelier meant than a type that could be installed.
        close = did_you_mean(name, project.connections)
        if not close:
            raise
        listed = ", ".join(project.connections)
        raise ConfigurationError(
            f"unknown connection {name!r}{close}", hint=f"configured: {listed}; {error.hint}"
        ) from None


def _make(factory: Any, entry: ConnectionEntry, owner: str) -> Connection:
    own: Any = getattr(factory, "Settings", None)
    settings = entry.settings_under(own.model_fields if own is not None else ())
    arguments: dict[str, Any] = {
        "name": entry.name,
        "allow": entry.allow,
        "confirm": entry.confirm,
        **settings,
    }
    _check_arguments(factory, entry, arguments)
    try:
        with using_environ(entry.environ):
            made = factory(**arguments)
    except (ConnectionConfigurationError, AgentConfirmationError) as error:
        message = error.message.removeprefix(f"{entry.name}: ")
        raise type(error)(f"{entry.where}: {message}", hint=error.hint) from None
    except DelfError:
        raise
    except Exception as error:
        raise PluginError(f"{entry.where}: {owner} failed to make it: {explain(error)}") from error
    return made


def _check_arguments(factory: Any, entry: ConnectionEntry, arguments: Mapping[str, Any]) -> None:
    """Refuse settings that a constructor of its own does not take."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return
    parameters = signature.parameters
    if any(item.kind is item.VAR_KEYWORD for item in parameters.values()):
        return
    known = [name for name in parameters if name not in ("name", "allow", "confirm", "metadata")]
    for key in arguments:
        if key not in parameters:
            raise ConnectionConfigurationError(
                f"{entry.where}: unknown setting {key!r}{did_you_mean(key, known)}",
                hint=f"its settings: {', '.join(known)}",
            )
    for name in known:
        if parameters[name].default is inspect.Parameter.empty and name not in arguments:
            raise ConnectionConfigurationError(
                f"{entry.where}: setting {name!r} is missing",
                hint=f"its settings: {', '.join(known)}",
            )
