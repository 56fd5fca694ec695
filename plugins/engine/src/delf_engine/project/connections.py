"""Creation of connections by instance name of ``delf.toml`` or by type."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, cast

from delf.environment import using_environ
from delf.errors import (
    AgentConfirmationError,
    ConfigurationError,
    ConnectionConfigurationError,
    DelfError,
    PluginError,
    did_you_mean,
)
from delf.packages.official import package_of
from delf.plugins.host import PluginHost
from delf.plugins.loader import explain
from delf.records import dataclass
from delf.specs import ConnectionSpec
from delf.tools.connection import Connection
from delf.trust.decisions import Trust
from delf_engine.project.entries import ConnectionEntry
from delf_engine.project.values import Values


@dataclass(frozen=True, kw_only=True)
class Connector:
    """Creates connections by name, by type, or from settings.

    Implements :class:`delf.tools.context.Connect`.

    Args:
        host: The plugin host, which knows the installed plugins.
        entries: The configured connections by name.
        environ: The environment variables for settings and ``${…}`` references.
        folder: The folder for relative paths in settings.
        trust: The trust decisions about the folder.
    """

    host: PluginHost
    entries: Mapping[str, ConnectionEntry]
    environ: Mapping[str, str] = field(repr=False)
    folder: Path
    trust: Trust | None = None

    def __call__(
        self,
        name: str,
        *,
        kind: str | None = None,
        settings: Mapping[str, Any] | None = None,
        where: str | None = None,
    ) -> Connection:
        """Create a connection, as :class:`delf.tools.context.Connect` describes."""
        with using_environ(self.environ, self.folder, self.trust):
            if kind is None and settings is None:
                return _create_by_name(self.host, self.entries, self.environ, name)
            where = where or f"connection {name!r}"
            return self._from_settings(name, kind or name, settings or {}, where)

    def _from_settings(
        self, name: str, kind: str, settings: Mapping[str, Any], location: str
    ) -> Connection:
        """Create a connection from settings like those in a section of ``delf.toml``."""
        values = Values()
        type_settings = dict(settings)
        common_options = {
            key: type_settings.pop(key, None) for key in ("allow", "confirm", "trust", "contents")
        }
        for key, value in type_settings.items():
            values.put((key,), value, lambda path: f"{location} {'.'.join(path)}", self.folder)
        entry = ConnectionEntry(
            name=name,
            type=kind,
            where=location,
            values=values,
            environ=self.environ,
            **common_options,
        )
        if "." in kind:  # the path of a class, as package.Class
            return _create(_import_class(kind, location), entry, kind)
        return _from_entry(self.host, entry)


def _import_class(path: str, location: str) -> type[Connection]:
    """Import the connection class at a dotted path such as ``package.Class``."""
    module, _, name = path.rpartition(".")
    try:
        attribute = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"{location}: there is no {path}: {error}", hint="the path of a class, as package.Class"
        ) from None
    if not (isinstance(attribute, type) and issubclass(attribute, Connection)):
        raise ConfigurationError(f"{location}: {path} is not a class of connections")
    return cast("type[Connection]", attribute)


def _create_by_name(
    host: PluginHost,
    entries: Mapping[str, ConnectionEntry],
    environ: Mapping[str, str],
    name: str,
) -> Connection:
    """Create the connection that is configured under a name.

    If no connection is configured under the name, the name means a type of connections, and the
    connection has default settings.
    """
    entry = entries.get(name)
    if entry is not None:
        return _from_entry(host, entry)
    spec = _find_spec(host, entries, name)
    entry = ConnectionEntry(
        name=name.replace("-", "_"),  # scripts use the name as a variable
        type=name,
        where=f"connection {name!r}",
        values=Values(),
        environ=environ,
    )
    return _from_spec(host, spec, entry)


def _from_entry(host: PluginHost, entry: ConnectionEntry) -> Connection:
    """Create the connection of an entry in ``delf.toml``, by the plugin of its type."""
    try:
        spec = host.spec(ConnectionSpec, entry.type)
    except PluginError as error:
        hint = error.hint
        # Without a setting ``type``, an entry's name is also its type.
        may_lack_type = entry.type == entry.name
        if may_lack_type and package_of("connection", entry.type) is None:
            hint = f'give the connection a type, as in type = "sql"; {hint}'
        raise PluginError(f"{entry.where}: {error.message}", hint=hint) from None
    return _from_spec(host, spec, entry)


def _from_spec(host: PluginHost, spec: ConnectionSpec, entry: ConnectionEntry) -> Connection:
    if spec.input_files:  # delf itself adds such a connection
        tasks = "every task" if spec.input_files == "always" else "each task with input files"
        raise ConnectionConfigurationError(
            f"{entry.where}: {tasks} already has it", hint="leave it out; --file gives input files"
        )
    factory = host.resolve(spec)
    owner = host.origin(spec)
    if not callable(factory):
        raise PluginError(f"{owner}: {spec.factory} is not a connection, but {factory!r}")
    return _create(factory, entry, owner)


def _find_spec(
    host: PluginHost, entries: Mapping[str, ConnectionEntry], name: str
) -> ConnectionSpec:
    """Return the plugin's spec of a connection type."""
    try:
        return host.spec(ConnectionSpec, name)
    except PluginError as error:
        # A name that resembles a configured connection's name is probably misspelt.
        suggestion = did_you_mean(name, entries)
        if not suggestion:
            raise
        entry_names = ", ".join(entries)
        raise ConfigurationError(
            f"unknown connection {name!r}{suggestion}",
            hint=f"configured: {entry_names}; {error.hint}",
        ) from None


def _create(factory: Any, entry: ConnectionEntry, owner: str) -> Connection:
    """Create a connection; errors name the location of its settings."""
    settings_class: Any = getattr(factory, "Settings", None)
    # Leave out the settings that environment variables override: the connection reads these itself.
    fields = () if settings_class is None else settings_class.model_fields
    settings = entry.settings_not_overridden(fields)
    arguments: dict[str, Any] = {
        "name": entry.name,
        "allow": entry.allow,
        "confirm": entry.confirm,
        **settings,
    }
    # Passed only if configured, because not every connection has these parameters.
    if entry.trust is not None:
        arguments["trust"] = entry.trust
    if entry.contents is not None:
        arguments["contents"] = entry.contents
    _require_accepted(factory, entry, arguments, owner)
    try:
        connection = factory(**arguments)
    except (ConnectionConfigurationError, AgentConfirmationError) as error:
        # Leave out the connection's name, which the location contains already.
        message = error.message.removeprefix(f"{entry.name}: ")
        raise type(error)(f"{entry.where}: {message}", hint=error.hint) from None
    except DelfError:
        raise
    except Exception as error:
        raise PluginError(f"{entry.where}: {owner} failed to make it: {explain(error)}") from error
    return connection


def _require_accepted(
    factory: Any, entry: ConnectionEntry, arguments: Mapping[str, Any], owner: str
) -> None:
    """Raise for settings that a constructor does not accept, and for missing settings."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a factory without a known signature, such as one in C
        return
    parameters = signature.parameters
    # A constructor with ``**settings`` checks its settings itself, as that of Connection does.
    if any(item.kind is item.VAR_KEYWORD for item in parameters.values()):
        return
    # Every connection may have these parameters, which are not settings of its own.
    common_parameters = ("name", "allow", "confirm", "metadata", "trust", "contents")
    setting_names = [name for name in parameters if name not in common_parameters]
    for key in arguments:
        if key in parameters:
            continue
        if key in common_parameters:
            constructor = getattr(factory, "__qualname__", "its constructor")
            raise PluginError(
                f"{entry.where}: {owner}: {constructor} does not take {key!r}",
                hint="__init__ takes **settings, and gives them to super().__init__(**settings)",
            )
        raise ConnectionConfigurationError(
            f"{entry.where}: unknown setting {key!r}{did_you_mean(key, setting_names)}",
            hint=f"its settings: {', '.join(setting_names)}",
        )
    for name in setting_names:
        if parameters[name].default is inspect.Parameter.empty and name not in arguments:
            raise ConnectionConfigurationError(
                f"{entry.where}: setting {name!r} is missing",
                hint=f"its settings: {', '.join(setting_names)}",
            )
