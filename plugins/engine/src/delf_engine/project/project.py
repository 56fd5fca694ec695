"""``Project``: the whole configuration that applies where a command runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from delf.environment import Source, source_of
from delf.errors import ConfigurationError
from delf.machine.folders import expand_home
from delf.machine.kept_keys import KeptKeys
from delf.packages.official import PLUGIN_PREFIX, packages, recommended_plugin
from delf.records import dataclass
from delf.trust.decisions import Trust
from delf_engine.config import LLM_FIELDS, AgentConfig, make_config
from delf_engine.project import texts
from delf_engine.project.connections import Connector
from delf_engine.project.entries import ConnectionEntry, PluginOptions, entries_of
from delf_engine.project.files import PREFER
from delf_engine.project.folder import Folder, read_folder
from delf_engine.project.values import SettingValue, Values, substitute
from delf_engine.secrets import secrets_of_headers, secrets_of_options

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost

# Tables of connections whose values all count as secrets.
#
# A connection's type declares its secret fields, but types of unused connections are not loaded.
_SECRET_TABLES: Final = frozenset(
    {"headers", "params", "path_params", "credentials", "env", "cookies"}
)
_API_KEY_TABLES: Final = frozenset({"providers", "api_key_for"})
# The settings of a model's endpoint.
_ENDPOINT_SETTINGS: Final = frozenset({"base_url", "api_key", "headers", "provider"})


@dataclass(frozen=True, kw_only=True)
class Project:
    """The merged settings of a project.

    The sources, strongest first: flags, ``--set``, ``DELF_*`` environment variables, ``.env`` and
    ``delf.toml``. Implements :class:`delf_engine.project.any_project.AnyProject`.

    Args:
        root: The folder of ``delf.toml``; without one, the folder where the search began.
        file: The ``delf.toml``, if it exists.
        connections: The configured connections by name.
        plugin_options: The options of plugins, by plugin name and option name.
        environ: The environment variables of the process, of ``.env`` and of the stored API keys;
            of a variable with several values, the first in this order.
        warnings: Warnings for the user about settings that may be wrong.
        agent_values: The agent's settings with their origins.
        trust: The trust decisions about the folder.
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

        The settings are validated on access, so that a missing API key does not stop commands that
        need only a connection.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set.
            ConfigurationError: If a value is invalid, with its origin.
        """
        return self._validated_agent

    @cached_property
    def _validated_agent(self) -> AgentConfig:
        values = self.agent_values.resolve(self.environ)
        place = f"{self.file} [agent]" if self.file else "configuration"
        return make_config(values, where=place, origin_of=self.agent_values.origin)

    @property
    def journal(self) -> str | None:
        """The configured name of the journal, if any, read without validating the configuration.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set.
        """
        journal_name = self._unvalidated_setting("journal")
        return None if journal_name is None else str(journal_name)

    @property
    def observers(self) -> tuple[str, ...]:
        """The names of the configured observers, read without validating the configuration.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set.
        """
        observer_names = self._unvalidated_setting("observers") or ()
        if isinstance(observer_names, str):
            return (observer_names,)
        return tuple(map(str, observer_names))

    def _unvalidated_setting(self, name: str) -> Any:
        """Return one setting of the agent without validation; None if it is not configured."""
        other_names = {path[0] for path, _ in self.agent_values.leaves()} - {name}
        return self.agent_values.resolve(self.environ, without=other_names).get(name)

    def connector(self, host: PluginHost) -> Connector:
        """Return a function that creates connections by their name or type.

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
        """Yield all configured secrets, including overridden and unused ones."""
        sections = [self.agent_values, *self.plugin_options.sections.values()]
        sections += [entry.values for entry in self.connections.values()]
        for values in sections:
            for path, setting in values.all_written():
                yield from self._secrets_of(path, setting)

    def _secrets_of(self, path: tuple[str, ...], setting: SettingValue) -> Iterator[str]:
        """Yield the secrets in the value of a setting.

        What is secret depends on the setting's name and on the tables around the setting.
        """
        try:
            value = substitute(setting.value, self.environ, setting.origin)
        except ConfigurationError:
            value = setting.value  # a variable is missing; the other parts are still secret
        *tables, name = path
        if isinstance(value, str) and not _SECRET_TABLES.isdisjoint(tables):
            yield from secrets_of_headers({name: value})
        elif isinstance(value, str) and not _API_KEY_TABLES.isdisjoint(tables):
            yield value
        else:
            yield from secrets_of_options({name: value})


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
    """Load the project that applies in a folder.

    Structural errors (TOML syntax, sections, keys) are raised here; values are validated on use.

    Args:
        start: The folder from which ``delf.toml`` is searched upwards, to the root of the
            repository; the working directory when omitted.
        overrides: ``KEY=VALUE`` texts, as from ``--set``.
        flags: The fields of ``AgentConfig`` that the command line sets; None values are ignored.
        environ: The environment variables; when omitted, ``os.environ`` and the user's stored API
            keys.
        file: The ``delf.toml`` to use instead of searching.
        trust: True to trust the folder. Otherwise the user must have trusted the folder's files, by
            `delf trust` or ``DELF_TRUST``.
        host: The plugins; all installed ones when omitted. The files that a plugin declares as its
            input need the user's trust, as ``delf.toml`` does.

    Raises:
        FolderNotTrustedError: If the folder's files are not trusted.
        ConfigurationError: If a setting is invalid; the error names its origin and the allowed
            values.
    """
    process_variables = dict(os.environ if environ is None else environ)
    stored_keys = KeptKeys.here().values(process_variables) if environ is None else {}
    file_path = expand_home(file).absolute() if file is not None else None
    folder = read_folder(_directory(start), file_path, process_variables, host)
    if not isinstance(trust, Trust):
        trust = Trust.here(folder.root) if trust else Trust.here()
    trust.check(folder.root, folder.items)
    # The process takes precedence over ``.env``, which takes precedence over the stored keys.
    # A reference in ``.env``, such as ``${HOME}``, may name a stored key or a variable of the
    # process.
    env_variables = folder.env.variables({**stored_keys, **process_variables})
    variables = {**stored_keys, **env_variables, **process_variables}
    # A copy, because some settings of the file are moved to where they take effect.
    document = {name: dict(section) for name, section in folder.document.items()}
    _move_journal_section(folder.file, document)
    _move_preferred_plugins(document, variables)
    sections = _merge_sources(folder, document, variables, overrides, flags or {})
    entries = entries_of(folder.file, document, sections.connections, variables)
    return Project(
        root=folder.root,
        file=folder.file,
        connections=entries,
        plugin_options=PluginOptions(sections.plugins, variables),
        environ=variables,
        warnings=(*folder.env.warnings, *texts.misspelling_warnings(variables, entries)),
        agent_values=sections.agent,
        trust=trust,
    )


@dataclass(frozen=True, kw_only=True)
class _Sections:
    """The merged settings, by the section of ``delf.toml`` that could set each of them.

    Args:
        agent: The settings of the agent.
        connections: The settings of each connection, by its name.
        plugins: The settings of each plugin, by its name.
    """

    agent: Values = field(repr=False)
    connections: dict[str, Values] = field(repr=False)
    plugins: dict[str, Values] = field(repr=False)


def _merge_sources(
    folder: Folder,
    document: Mapping[str, Any],
    variables: Mapping[str, str],
    overrides: Sequence[str],
    flags: Mapping[str, Any],
) -> _Sections:
    """Merge the settings of all sources, from the weakest source to the strongest."""
    sections = _from_file(folder.file, document)
    _merge_settings(sections.agent, list(_settings_of_environ(variables, folder.env.path)))
    # Put the overrides of connections and plugins directly: no stronger source sets these.
    agent_overrides = _put_overrides(overrides, sections)
    _merge_settings(sections.agent, agent_overrides)
    _merge_settings(sections.agent, list(_settings_of_flags(flags)))
    return sections


def _move_preferred_plugins(
    document: Mapping[str, dict[str, Any]], variables: dict[str, str]
) -> None:
    """Move ``[plugins] prefer`` to ``DELF_PREFER_PLUGINS``, which the plugin host reads."""
    prefer = document.get("plugins", {}).pop(PREFER, None)
    if prefer:
        # The variable of the process or of ``.env`` is stronger than ``delf.toml``.
        variables.setdefault("DELF_PREFER_PLUGINS", ",".join(prefer))


def _move_journal_section(path: Path | None, document: dict[str, dict[str, Any]]) -> None:
    """Move the section ``[journal]`` into the options of delf's journal plugin."""
    journal_table = document.pop("journal", None)
    if journal_table is None:
        return
    recommended_package = packages("journal")[recommended_plugin("journal")]
    name = recommended_package.removeprefix(PLUGIN_PREFIX)
    plugins = document.setdefault("plugins", {})
    duplicates = journal_table.keys() & plugins.get(name, {}).keys()
    if duplicates:
        raise ConfigurationError(
            f"{path} [journal] {min(duplicates)}: [plugins.{name}] sets it, too",
            hint="set it in one place",
        )
    plugins[name] = {**plugins.get(name, {}), **journal_table}


_COMMAND_LINE: Final[Source] = "command line"


class _Setting(NamedTuple):
    """A setting of the agent.

    Args:
        path: The keys that lead to the value.
        value: The value.
        origin: The origin in words for messages, such as ``DELF_TIMEOUT``.
        source_kind: The kind of source, such as ``environment``.
    """

    path: tuple[str, ...]
    value: Any
    origin: str
    source_kind: Source


def _directory(start: str | os.PathLike[str] | None) -> Path:
    try:
        return expand_home(start or ".").absolute()
    except FileNotFoundError as error:
        raise ConfigurationError("the working directory does not exist any more") from error


def _from_file(path: Path | None, document: Mapping[str, Any]) -> _Sections:
    """Return the settings of ``delf.toml``.

    Args:
        path: The path of ``delf.toml``, if it exists.
        document: The content of ``delf.toml``.
    """
    agent = _values_from_file(path, "agent", document.get("agent", {}))
    connections = {
        name: _values_from_file(path, f"connections.{name}", table)
        for name, table in document.get("connections", {}).items()
    }
    plugins = {
        name: _values_from_file(path, f"plugins.{name}", table)
        for name, table in document.get("plugins", {}).items()
    }
    return _Sections(agent=agent, connections=connections, plugins=plugins)


def _settings_of_environ(environ: Mapping[str, str], env_file: Path) -> Iterator[_Setting]:
    """Yield the settings of the agent that environment variables set."""
    for variable, path, value in texts.from_environ(environ):
        source = source_of(environ[variable], "environment")
        origin = variable if source == "environment" else f"{env_file}: {variable}"
        yield _Setting(path, value, origin, source)


def _settings_of_flags(flags: Mapping[str, Any]) -> Iterator[_Setting]:
    """Yield the settings of the agent that the command line's flags set."""
    for name, value in flags.items():
        if value is not None:
            yield _Setting((name,), value, f"{name} on the command line", _COMMAND_LINE)


def _values_from_file(path: Path | None, section: str, table: Mapping[str, Any]) -> Values:
    """Return the settings of a section of ``delf.toml``."""

    def origin_of(keys: Sequence[str]) -> str:
        return f"{path} [{section}] {'.'.join(keys)}"  # delf.toml [agent] llm.model

    values = Values()
    folder = path.parent if path is not None else None
    for key, value in table.items():
        # In another section, ``llm`` is an option of a connection or plugin.
        setting = _with_model_as_table((key,), value) if section == "agent" else value
        values.put((key,), setting, origin_of, folder)
    return values


def _put_overrides(overrides: Sequence[str], sections: _Sections) -> list[_Setting]:
    """Apply the ``--set`` overrides of connections and plugins; return those of the agent."""
    agent_settings: list[_Setting] = []
    for section, path, value in map(texts.from_override, overrides):
        label = f"--set {section}.{'.'.join(path)}"
        if section == "agent":
            agent_settings.append(_Setting(path, value, label, _COMMAND_LINE))
        else:
            name, *keys = path  # ``shop.url`` sets the key ``url`` of the connection ``shop``
            group = sections.connections if section == "connections" else sections.plugins
            values = group.setdefault(name, Values())
            values.put(tuple(keys), value, label, source=_COMMAND_LINE)
    return agent_settings


def _merge_settings(agent: Values, settings: Sequence[_Setting]) -> None:
    """Update the agent's values with the settings of a stronger source.

    Args:
        agent: The agent's values from the weaker sources, such as ``delf.toml``.
        settings: The settings of the stronger source, each with its origin in words, such as
            ``DELF_TIMEOUT``, and the kind of its source, such as ``environment``.
    """
    stronger = [
        each._replace(value=_with_model_as_table(each.path, each.value)) for each in settings
    ]
    _drop_replaced_models(agent, stronger)
    for each in stronger:
        agent.put(each.path, each.value, each.origin, source=each.source_kind)


def _drop_replaced_models(agent: Values, stronger: Sequence[_Setting]) -> None:
    """Drop the weaker settings of models that a stronger source replaces.

    A new main model replaces the light and heavy models, too. The address and key in ``delf.toml``
    belong to the model there, and are dropped with the model.
    """
    if any(_names_llm(each.path, each.value) for each in stronger):
        agent.drop(("light_llm",))
        agent.drop(("heavy_llm",))
    for each in stronger:
        name = _model_name(each.path, each.value)
        if name is not None:
            _drop_file_endpoint(agent, each.path[0], name)


def _model_name(path: tuple[str, ...], value: object) -> object:
    """Return the model name in the value of an agent's setting; None if the value has none."""
    field, *keys = path
    if field not in LLM_FIELDS:
        return None
    if keys == ["model"]:
        return value
    is_table = not keys and isinstance(value, Mapping)
    if is_table:
        return cast("Mapping[str, object]", value).get("model")
    return None


def _drop_file_endpoint(agent: Values, field: str, name: object) -> None:
    """Drop the address and API key of ``delf.toml`` if another model than the file's is chosen.

    Args:
        agent: The agent's values.
        field: The setting of the model, such as ``llm`` or ``vision_llm``.
        name: The name of the chosen model.
    """
    file_fields = {
        path: setting
        for path, setting in agent.leaves()
        if path[0] == field and setting.is_from_file
    }
    model = file_fields.get((field, "model"))
    if model is None or model.value == name:
        return
    for path in file_fields:
        # The second key of a path such as llm.api_key, or llm.headers.accept.
        is_endpoint = len(path) > 1 and path[1] in _ENDPOINT_SETTINGS
        if is_endpoint:
            agent.drop(path)


def _with_model_as_table(path: tuple[str, ...], value: Any) -> Any:
    """Return a setting's value, with ``llm = "m"`` written as ``llm = {model = "m"}``."""
    is_model_name = len(path) == 1 and path[0] in LLM_FIELDS and isinstance(value, str)
    return {"model": value} if is_model_name else value


def _names_llm(path: tuple[str, ...], value: object) -> bool:
    """Return True if a setting chooses the main model; False for a mere option of the model."""
    if path == ("llm",):
        return not isinstance(value, Mapping) or "model" in value
    return path == ("llm", "model")
