"""``[connections.NAME]`` and ``[plugins.NAME]``: settings whose references are resolved on use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from delf.environment import SourcedText, source_of
from delf.errors import ConfigurationError, did_you_mean
from delf.records import dataclass
from delf.types import Permission
from delf_engine.config import PREFIX
from delf_engine.project.texts import scalar
from delf_engine.project.values import SettingValue, Values

_COMMON_KEYS: Final = ("type", "allow", "confirm", "trust", "contents")


@dataclass(frozen=True, kw_only=True)
class ConnectionEntry:
    """A connection configured as ``[connections.NAME]``.

    Args:
        name: The variable's name in scripts.
        type: The name of the connection's type.
        allow: The configured permission, not validated yet.
        confirm: The configured permission, validated when the connection is created.
        trust: The configured trust levels, validated when the connection is created.
        contents: The configured names of parameters that are only text for people to read,
            validated when the connection is created.
        where: The location of the section, for messages.
        values: All other settings, with their origins.
        environ: The environment variables for ``${…}`` references.
    """

    name: str
    type: str
    allow: Permission = None
    confirm: Permission = None
    trust: Any = None
    contents: Any = None
    where: str
    values: Values = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)

    def settings_not_overridden(self, fields: Collection[str]) -> dict[str, Any]:
        """Return the resolved settings that no ``DELF_<NAME>_…`` environment variable overrides.

        A variable overrides a setting in ``delf.toml``, but not a setting from another place, such
        as ``--set``.

        Args:
            fields: The names of settings that such variables can set.

        Raises:
            EnvironmentKeyError: If a referenced environment variable is not set.
        """
        prefix = f"{PREFIX}{self.name.upper()}_"
        # The strongest comes first: a setting from outside the file, the variable, the file.
        set_by_variable = {key for key in fields if self.environ.get(f"{prefix}{key.upper()}")}
        set_outside_file = {
            path[0] for path, setting in self.values.leaves() if not setting.is_from_file
        }
        overridden = set_by_variable - set_outside_file
        return self.values.resolve(self.environ, without=overridden)


class PluginOptions(Mapping[str, Mapping[str, Any]]):
    """The options in ``[plugins.NAME]`` by plugin name.

    References to environment variables are resolved when the options of a plugin are read. A
    ``DELF_<NAME>_<OPTION>`` environment variable overrides an option of the file.

    Args:
        sections: The unresolved options by plugin name.
        environ: The environment variables for ``${…}`` references.
    """

    def __init__(self, sections: Mapping[str, Values], environ: Mapping[str, str]) -> None:
        self.sections = sections
        self._environ = environ

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        section = self.sections[name]
        from_environ = self._options_from_environ(name)
        options = section.resolve(self._environ, without=set(from_environ))
        return {**options, **from_environ}

    def leaves(self, name: str) -> Iterator[tuple[tuple[str, ...], SettingValue]]:
        """Yield each option of a plugin: its path, and its unresolved value with its origin."""
        return self.sections[name].leaves()

    def _options_from_environ(self, name: str) -> dict[str, Any]:
        """Return the options of a plugin that environment variables override, with the new values.

        Only an option that is set in the configuration file is overridden; an option that was set
        elsewhere, such as by ``--set``, keeps its value.
        """
        prefix = f"{PREFIX}{name.upper().replace('-', '_')}_"
        options: dict[str, Any] = {}
        for path, setting in self.sections[name].leaves():
            if len(path) != 1 or not setting.is_from_file:
                continue  # no variable sets a key inside of a table
            option = path[0]
            text = self._environ.get(f"{prefix}{option.upper()}")
            if not text:
                continue
            # An option that is a text in the file stays a text, even if it looks like a number.
            if isinstance(setting.value, str):
                options[option] = SourcedText(text, source_of(text, "environment"))
            else:
                options[option] = scalar(text)
        return options

    def __iter__(self) -> Iterator[str]:
        return iter(self.sections)

    def __len__(self) -> int:
        return len(self.sections)


def entries_of(
    path: Path | None,
    document: Mapping[str, Any],
    connections: Mapping[str, Values],
    environ: Mapping[str, str],
) -> dict[str, ConnectionEntry]:
    """Return the connections configured in ``delf.toml`` and by ``--set``, by name.

    Args:
        path: The ``delf.toml``, if any.
        document: The content of ``delf.toml``.
        connections: The settings of each connection by name.
        environ: The environment variables for ``${…}`` references.

    Raises:
        ConfigurationError: If a connection's name or type is invalid.
    """
    file_entries: Collection[str] = document.get("connections", {})
    entries: dict[str, ConnectionEntry] = {}
    for name, values in connections.items():
        if name in file_entries:
            location = f"{path} [connections.{name}]"
        else:
            location = f"--set connections.{name}"
        # The settings that stay in ``values`` become arguments of the connection.
        common_values = {key: _pop(values, key) for key in _COMMON_KEYS}
        for key in ("allow", "confirm"):
            if isinstance(common_values[key], Mapping):
                raise ConfigurationError(
                    f"{location} {key}: it cannot be a table",
                    hint="true, false, an action's name or a list of names",
                )
        kind = common_values.pop("type")
        if kind is None:
            _check_spelling(name, file_entries, location)
            kind = name  # ``[connections.gmail]`` needs no ``type = "gmail"``
        if not isinstance(kind, str):
            raise ConfigurationError(
                f"{location} type: it is {type(kind).__name__}, not a name",
                hint='the name of a type of connection, as in type = "sql"',
            )
        entries[name] = ConnectionEntry(
            name=name,
            type=kind,
            **common_values,
            where=location,
            values=values,
            environ=environ,
        )
    return entries


def _check_spelling(name: str, file_entries: Collection[str], location: str) -> None:
    """Raise if ``--set`` probably misspells the name of a connection in ``delf.toml``."""
    suggestion = "" if name in file_entries else did_you_mean(name, file_entries)
    if suggestion:
        raise ConfigurationError(
            f"{location}: there is no such connection{suggestion}",
            hint=f"a new one needs its type: --set connections.{name}.type=…",
        )


def _pop(values: Values, key: str) -> Any:
    """Remove and return a setting of a connection, which may be a TOML table.

    Returns:
        For a table, a dict of its settings; the keys in an inner table are joined by dots, as in
        ``{"a.b": 1}``. Otherwise, the value; None if the setting is absent.
    """
    plain_value: Any = None
    table: dict[str, Any] = {}
    for path, setting in values.leaves():
        first_key, *inner_keys = path
        if first_key != key:
            continue
        if inner_keys:
            table[".".join(inner_keys)] = setting.value
        else:
            plain_value = setting.value
    values.drop((key,))
    return table or plain_value
