"""``Project``: the whole configuration that applies where a command runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from delf.environment import Source, source_of
from delf.errors import ConfigurationError
from delf.machine.kept_keys import KeptKeys
from delf.packages.official import PLUGIN_PREFIX, packages, usual
from delf.records import dataclass
from delf.trust.decisions import Trust
from delf_engine.config import LLM_FIELDS, AgentConfig, make_config
from delf_engine.project import texts
from delf_engine.project.connections import Connector
from delf_engine.project.entries import ConnectionEntry, PluginOptions, entries_of
from delf_engine.project.files import PREFER
from delf_engine.project.folder import read_folder
from delf_engine.project.values import Values, substitute
from delf_engine.secrets import secrets_of_headers, secrets_of_options

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost

_SENT_ALONG: Final = frozenset(
    {"headers", "params", "path_params", "credentials", "env", "cookies"}
)
"""Tables of connections whose values may be keys, whatever their names: the types declare the
secret fields, but are not loaded for unselected connections.
"""
_KEYS: Final = frozenset({"providers", "api_key_for"})
_ENDPOINT: Final = frozenset({"base_url", "api_key", "headers", "provider"})
"""The endpoint settings of a model: address, headers and extra request data."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project: flags, ``--set``, ``DELF_*``, ``.env`` and ``delf.toml`` merged.

    Implements :class:`delf_engine.project.any_project.AnyProject`.

    Args:
        root: The directory of ``delf.toml``, or the one where the search began.
        file: The ``delf.toml``, if it exists.
        connections: The named instances.
        plugin_options: Options by plugin.
        environ: The process's variables on top of those of ``.env``.
        warnings: Warnings for the user.
        agent_values: The agent's settings with their origins.
        trust: The trust decisions about its folder.
    """

    root: Path
    file: Path | None
    connections: Mapping[str, ConnectionEntry]
    plugin_options: PluginOptions
    environ: Mapping[str, str] = field(repr=False)
    warnings: tuple[str, ...] = ()
    agent_values: Values = field(repr=False)
    trust: Trust = field(default_factory=Trust.here)

    @property
    def agent(self) -> AgentConfig:
        """The agent's configuration.

        Validated on access, so that a missing key does not prevent commands that need only a
        connection.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set.
            ConfigurationError: If a value is invalid, with its origin.
        """
        return self._agent

    @cached_property
    def _agent(self) -> AgentConfig:
        values = self.agent_values.resolve(self.environ)
        place = f"{self.file} [agent]" if self.file else "configuration"
        return make_config(values, where=place, origin=self.agent_values.origin)

    @property
    def journal(self) -> str | None:
        """The journal's name, if configured; other settings are not validated.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set.
        """
        journal_name = self._only("journal")
        return None if journal_name is None else str(journal_name)

    @property
    def observers(self) -> tuple[str, ...]:
        """The names of the configured observers; other settings are not validated.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set.
        """
        observer_names = self._only("observers") or ()
        return (
            (observer_names,)
            if isinstance(observer_names, str)
            else tuple(map(str, observer_names))
        )

    def _only(self, name: str) -> Any:
        """Return one setting of the agent as given; None if not given."""
        other_names = {path[0] for path, _ in self.agent_values.leaves()} - {name}
        return self.agent_values.resolve(self.environ, without=other_names).get(name)

    def connector(self, host: PluginHost) -> Connector:
        """Make the function that creates connections by name.

        Args:
            host: The plugins.
        """
        return Connector(
            host=host,
            entries=self.connections,
            environ=self.environ,
            folder=self.root,
            trust=self.trust,
        )

    def secrets(self) -> Iterator[str]:
        """Yield every configured secret, used or not."""
        sections = [self.agent_values, *self.plugin_options.sections.values()]
        sections += [entry.values for entry in self.connections.values()]
        for path, setting in (leaf for values in sections for leaf in values.written()):
            try:
                value = substitute(setting.value, self.environ, setting.origin)
            except ConfigurationError:
                value = setting.value  # a variable is missing; the other parts are still secret
            if not _SENT_ALONG.isdisjoint(path[:-1]) and isinstance(value, str):
                yield from secrets_of_headers({path[-1]: value})
            elif not _KEYS.isdisjoint(path[:-1]) and isinstance(value, str):
                yield value
            else:
                yield from secrets_of_options({path[-1]: value})


def load_project(
    start: str | os.PathLike[str] | None = None,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
    trust: bool | Trust = False,
    host: PluginHost | None = None,
) -> Project:
    """Read the configuration that applies in a directory.

    Structural errors (TOML syntax, sections, keys) are raised here; values are validated on use.

    Args:
        start: The folder from which ``delf.toml`` is searched, up to the root of the repository;
            the working directory when omitted.
        overrides: ``KEY=VALUE`` texts, as from ``--set``.
        flags: Fields of ``AgentConfig``, as from the command line; None means not given.
        environ: The process's environment; ``os.environ`` over kept keys when omitted.
        file: The file to use instead of searching.
        trust: Trust the folder as the program's own. Otherwise the user must have trusted it, by
            `delf trust` or ``DELF_TRUST``.
        host: The plugins, which name further files; all installed ones when omitted.

    Raises:
        FolderNotTrustedError: If the folder's files are not trusted.
        ConfigurationError: For an invalid setting, with its origin and the allowed values.
    """
    begin = _directory(start)
    process = dict(os.environ if environ is None else environ)
    stored_keys = KeptKeys.here().values(process) if environ is None else {}
    file_path = Path(file).expanduser().absolute() if file is not None else None
    folder = read_folder(begin, file_path, process, host)
    if not isinstance(trust, Trust):
        trust = Trust.here(*([folder.root] if trust else []))
    trust.check(folder.root, folder.items)
    variables = {**stored_keys, **folder.env.variables({**stored_keys, **process}), **process}
    document = {name: dict(section) for name, section in folder.document.items()}
    _place_journal(folder.file, document)
    if prefer := document.get("plugins", {}).pop(PREFER, None):
        variables.setdefault("DELF_PREFER_PLUGINS", ",".join(prefer))

    agent, connections, plugins = _from_file(folder.file, document)
    _put_layer(agent, list(_of_variables(variables, folder.env.path)))
    _put_layer(agent, _put_overrides(overrides, connections, plugins))
    set_flags = [(key, value) for key, value in (flags or {}).items() if value is not None]
    _put_layer(
        agent,
        [((key,), value, f"{key} on the command line", _TYPED) for key, value in set_flags],
    )
    entries = entries_of(folder.file, document, connections, variables)
    return Project(
        root=folder.root,
        file=folder.file,
        connections=entries,
        plugin_options=PluginOptions(plugins, variables),
        environ=variables,
        warnings=(*folder.env.warnings, *texts.stray(variables, entries)),
        agent_values=agent,
        trust=trust,
    )


def _place_journal(path: Path | None, document: dict[str, dict[str, Any]]) -> None:
    """Move ``[journal]`` into the options of delf's journal plugin."""
    journal_table = document.pop("journal", None)
    if journal_table is None:
        return
    name = packages("journal")[usual("journal")].removeprefix(PLUGIN_PREFIX)
    plugins = document.setdefault("plugins", {})
    duplicates = journal_table.keys() & plugins.get(name, {}).keys()
    if duplicates:
        raise ConfigurationError(
            f"{path} [journal] {min(duplicates)}: [plugins.{name}] says it, too",
            hint="set it in one place",
        )
    plugins[name] = {**plugins.get(name, {}), **journal_table}


_TYPED: Final[Source] = "command line"
_Setting = tuple[tuple[str, ...], Any, str, Source]
"""A setting as path, value, origin and source."""


def _directory(start: str | os.PathLike[str] | None) -> Path:
    try:
        return Path(start or ".").expanduser().absolute()
    except FileNotFoundError as error:
        raise ConfigurationError("the working directory does not exist any more") from error


def _from_file(
    path: Path | None, document: Mapping[str, Any]
) -> tuple[Values, dict[str, Values], dict[str, Values]]:
    """Return the ``agent``, ``connections`` and ``plugins`` sections with their origins."""
    agent = Values()
    for key, value in document.get("agent", {}).items():
        _put_from_file(agent, path, "agent", key, value)
    groups: list[dict[str, Values]] = []
    for section in ("connections", "plugins"):
        group: dict[str, Values] = {}
        for name, content in document.get(section, {}).items():
            group[name] = Values()
            for key, value in content.items():
                _put_from_file(group[name], path, f"{section}.{name}", key, value)
        groups.append(group)
    return agent, groups[0], groups[1]


def _of_variables(environ: Mapping[str, str], env_file: Path) -> Iterator[_Setting]:
    """Yield the agent's settings among the variables."""
    for name, key, value in texts.from_environ(environ):
        source = source_of(environ[name], "environment")
        yield key, value, name if source == "environment" else f"{env_file}: {name}", source


def _put_from_file(values: Values, path: Path | None, section: str, key: str, value: Any) -> None:
    if _is_model((key,), value):
        value = {"model": value}
    folder = path.parent if path is not None else None
    values.put((key,), value, lambda at: f"{path} [{section}] {'.'.join(at)}", folder)


def _put_overrides(
    overrides: Sequence[str], connections: dict[str, Values], plugins: dict[str, Values]
) -> list[_Setting]:
    """Apply overrides of connections and plugins; return the overrides of the agent."""
    agent_settings: list[_Setting] = []
    for section, key, value in map(texts.from_override, overrides):
        label = f"--set {section}.{'.'.join(key)}"
        if section == "agent":
            agent_settings.append((key, value, label, _TYPED))
        else:
            group = connections if section == "connections" else plugins
            values = group.setdefault(key[0], Values())
            values.put(key[1:], value, lambda _, at=label: at, source=_TYPED)
    return agent_settings


def _put_layer(agent: Values, settings: Sequence[_Setting]) -> None:
    """Merge the settings of a source over the settings of weaker sources.

    An endpoint in ``delf.toml`` belongs to the model there: if another source names another model,
    that address and key are not used. Endpoint variables apply to any model. A new ``llm`` is for
    everything and replaces a weaker source's ``light_llm`` and ``heavy_llm``.
    """
    prepared: list[_Setting] = [
        (path, {"model": value} if _is_model(path, value) else value, origin, source)
        for path, value, origin, source in settings
    ]
    if any(_names_llm(path, value) for path, value, *_ in prepared):
        agent.drop(("light_llm",))
        agent.drop(("heavy_llm",))
    for path, value, *_ in prepared:
        if (name := _named(path, value)) is not None:
            _leave_endpoint(agent, path[0], name)
    for path, value, origin, source in prepared:
        agent.put(path, value, lambda _, at=origin: at, source=source)


def _named(path: tuple[str, ...], value: object) -> object:
    """Return the model name in a setting; None if absent."""
    if path[0] not in LLM_FIELDS:
        return None
    if path[1:] == ("model",):
        return value
    is_table = len(path) == 1 and isinstance(value, Mapping)
    return cast("Mapping[str, object]", value).get("model") if is_table else None


def _leave_endpoint(agent: Values, field: str, name: object) -> None:
    """Drop the endpoint of a file when another source replaces the file's model."""
    file_fields = {
        path: setting for path, setting in agent.leaves() if path[0] == field and setting.from_file
    }
    model = file_fields.get((field, "model"))
    if model is None or model.value == name:
        return
    for path in file_fields:
        if path[1:2] and path[1] in _ENDPOINT:
            agent.drop(path)


def _is_model(path: tuple[str, ...], value: object) -> bool:
    return len(path) == 1 and path[0] in LLM_FIELDS and isinstance(value, str)


def _names_llm(path: tuple[str, ...], value: object) -> bool:
    if path == ("llm", "model"):
        return True
    return path == ("llm",) and (not isinstance(value, Mapping) or "model" in value)
