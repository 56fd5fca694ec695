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
from delf_engine.project.values import Given, Values

_OWN_KEYS: Final = ("type", "allow", "confirm")
_OWN_TABLES: Final = ("trust", "contents")


@dataclass(frozen=True, kw_only=True)
class ConnectionEntry:
    """A named instance, ``[connections.NAME]``.

    Args:
        name: The variable's name in scripts.
        type: The name of its type.
        allow: The unchecked value.
        confirm: The unchecked value; checked when the connection is created.
        trust: The unchecked value; checked when the connection is created.
        contents: The unchecked value; checked when the connection is created.
        where: The location of the configuration, for messages.
        values: The settings with their origins.
        environ: The variables for references.
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

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings with references resolved.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set.
        """
        return self.values.resolve(self.environ)

    def settings_under(self, fields: Collection[str]) -> dict[str, Any]:
        """Return the settings except those that a ``DELF_<NAME>_…`` variable overrides.

        Args:
            fields: The fields that such variables can set.
        """
        prefix = f"{PREFIX}{self.name.upper()}_"
        in_environ = {key for key in fields if self.environ.get(f"{prefix}{key.upper()}")}
        stronger = {path[0] for path, setting in self.values.leaves() if not setting.from_file}
        return self.values.resolve(self.environ, without=in_environ - stronger)


class PluginOptions(Mapping[str, Mapping[str, Any]]):
    """``[plugins.NAME]`` by name; references are resolved when a section is read.

    A ``DELF_<NAME>_<OPTION>`` variable overrides an option of the file.

    Args:
        sections: The sections by plugin name.
        environ: The variables for references.
    """

    def __init__(self, sections: Mapping[str, Values], environ: Mapping[str, str]) -> None:
        self.sections = sections
        self._environ = environ

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        section = self.sections[name]
        options = section.resolve(self._environ, without=set(variables := self._variables(name)))
        return {**options, **variables}

    def leaves(self, name: str) -> Iterator[tuple[tuple[str, ...], Given]]:
        """Yield the options of a plugin as written, with their origins."""
        return self.sections[name].leaves()

    def _variables(self, name: str) -> dict[str, Any]:
        """Return the values of variables that override options of the file."""
        prefix = f"{PREFIX}{name.upper().replace('-', '_')}_"
        variables: dict[str, Any] = {}
        for path, setting in self.sections[name].leaves():
            text = self._environ.get(f"{prefix}{path[0].upper()}")
            if text and setting.from_file and len(path) == 1:
                source = source_of(text, "environment")
                is_text = isinstance(setting.value, str)
                variables[path[0]] = SourcedText(text, source) if is_text else scalar(text)
        return variables

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
    """Return the connections of the file and ``--set``.

    Args:
        path: The file.
        document: The content.
        connections: The settings of each.
        environ: The variables for references.

    Raises:
        ConfigurationError: For an invalid name or section.
    """
    file_entries: Collection[str] = document.get("connections", {})
    entries: dict[str, ConnectionEntry] = {}
    for name, values in connections.items():
        place = (
            f"{path} [connections.{name}]" if name in file_entries else f"--set connections.{name}"
        )
        own_values = {key: _take(values, key, place) for key in _OWN_KEYS}
        suggestion = did_you_mean(name, file_entries)
        if name not in file_entries and suggestion and own_values["type"] is None:
            raise ConfigurationError(
                f"{place}: there is no such connection{suggestion}",
                hint=f"a new one needs its type: --set connections.{name}.type=…",
            )
        kind: Any = name if own_values["type"] is None else own_values["type"]
        if not isinstance(kind, str):
            raise ConfigurationError(
                f"{place} type: it is {type(kind).__name__}, not a name",
                hint='the name of a type of connection, as in type = "sql"',
            )
        entries[name] = ConnectionEntry(
            name=name,
            type=kind,
            allow=own_values["allow"],
            confirm=own_values["confirm"],
            **{key: _take_table(values, key) for key in _OWN_TABLES},
            where=place,
            values=values,
            environ=environ,
        )
    return entries


def _take(values: Values, key: str, place: str) -> Any:
    """Remove and return a value that is not one of the type's settings."""
    settings = [(path, setting) for path, setting in values.leaves() if path[0] == key]
    values.drop((key,))
    if any(len(path) > 1 for path, _ in settings):
        raise ConfigurationError(
            f"{place} {key}: it cannot be a table",
            hint="a name" if key == "type" else "true, false, an action's name or a list of names",
        )
    return settings[0][1].value if settings else None


def _take_table(values: Values, key: str) -> Any:
    """Remove and return a text, list or table; None if absent."""
    single: Any = None
    table: dict[str, Any] = {}
    for path, setting in values.leaves():
        if path[0] == key and len(path) == 1:
            single = setting.value
        elif path[0] == key:
            table[".".join(path[1:])] = setting.value
    values.drop((key,))
    return table or single
