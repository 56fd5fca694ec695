"""``delf config``: the settings, the origin of each setting, and changes of settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

import click

from delf.errors import ConfigurationError
from delf.machine.kept_keys import KeptKeys
from delf.machine.own_files import replace_file
from delf_cli.as_json import as_json_option, write_result
from delf_cli.complete import completes, trusted_config
from delf_cli.lazy import BareGroup
from delf_cli.state import state_of
from delf_console.findings import FindingsRow, write_findings

if TYPE_CHECKING:
    from delf_cli.state import State
    from delf_engine.config import AgentConfig
    from delf_engine.project.project import Project


class _SettingRow(TypedDict):
    """The JSON of a setting in ``delf config show``.

    Args:
        key: The key, such as ``agent.timeout`` or ``connections.shop.url``.
        value: The value as it was written; a secret is hidden.
        origin: The file with its section, or the variable.
    """

    key: str
    value: Any
    origin: str


class _GivenValue(NamedTuple):
    """A setting that is set.

    Args:
        key: The full key, such as ``connections.shop.url``.
        value: The value as it was written, with secrets.
        origin: The file with its section, or the variable.
    """

    key: str
    value: Any
    origin: str


class _ValueRow(TypedDict):
    """The JSON of ``delf config get``.

    Args:
        key: The key that you asked for.
        value: The value of the key.
    """

    key: str
    value: Any


class _ChangeRow(TypedDict):
    """The JSON of ``delf config set``.

    Args:
        file: The file that was written.
        key: The whole key.
        overridden_by: The place of a value that applies here instead of the written value, such as
            an environment variable; None if the written value applies.
    """

    file: str
    key: str
    overridden_by: str | None


@completes
def _setting_keys(ctx: click.Context) -> Iterable[str]:
    from delf_engine.config import AgentConfig

    keys = [f"agent.{name}" for name in AgentConfig.model_fields]
    for section in ("connections", "plugins"):
        for name, content in trusted_config(ctx).get(section, {}).items():
            keys += [f"{section}.{name}.{key}" for key in content]
    return keys


key_argument = click.argument("key", shell_complete=_setting_keys)


@click.group("config", cls=BareGroup, bare_command="show")
def config() -> None:
    """Show the configuration that applies here, and change delf.toml.

    \b
    delf config show
    delf config set agent.llm gpt-4o-mini
    delf config check
    """  # noqa: D301 - click's mark for lines that stay as they are


@config.command("show")
@as_json_option(_SettingRow)
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Show every value that is set, with its origin; secrets are hidden."""
    from delf_cli.output import json_text
    from delf_cli.streams import wrap_text
    from delf_cli.tables import one_line

    state = state_of(ctx)
    values = list(_given_values(state.load_project()))
    rows = [
        _SettingRow(key=given.key, value=state.redact_data(given.value), origin=given.origin)
        for given in values
    ]
    if as_json:
        click.echo(json_text(rows, indent=2))
        return
    if not rows:
        click.echo("nothing is configured here: delf config set KEY VALUE begins", err=True)
        return
    for row in rows:
        click.echo(wrap_text(f"{row['key']} = {one_line(_text(row['value']))}", indent=4))
        click.echo(click.style(f"    {wrap_text(one_line(row['origin']), indent=4)}", dim=True))


@config.command("get")
@key_argument
@as_json_option(_ValueRow)
@click.pass_context
def get(ctx: click.Context, key: str, as_json: bool) -> None:
    """Write the value of KEY, such as agent.timeout, or its default.

    The exit status is 1 if there is no value.
    """
    state = state_of(ctx)
    value = state.redact_data(_current_value(state.load_project(), key))
    if value is None:
        click.echo(f"{key} is not set", err=True)
        ctx.exit(1)
    from delf_cli.output import json_text

    click.echo(json_text(_ValueRow(key=key, value=value)) if as_json else _text(value))


@config.command("set")
@key_argument
@click.argument("value")
@as_json_option(_ChangeRow)
@click.pass_context
def set_command(ctx: click.Context, key: str, value: str, as_json: bool) -> None:
    """Write KEY = VALUE into the nearest delf.toml, or into a new one here.

    The rest of the file stays as it is, with its comments, and stays trusted. A wrong value is
    refused. Put a secret into .env, and write '${NAME}' here.
    """
    from delf_engine.project.texts import from_override

    state = state_of(ctx)
    # Without a label, errors name the key as the user wrote it, and not as an option --set.
    section, path, parsed = from_override(f"{key}={value}", label="")
    project, agent = _load_with(state, f"{key}={value}")
    value_to_write = parsed
    if section == "agent" and len(path) == 1:  # a setting, and not a key in its table
        validated = getattr(agent, path[0])
        value_to_write = _value_to_write(value, parsed, validated)
    is_type_of_connection = section == "connections" and path[1:] == ("type",)  # (NAME, "type")
    if is_type_of_connection:
        from delf.specs import ConnectionSpec

        state.discover().spec(ConnectionSpec, value)  # raises for an unknown type
    file = _write_setting(project, (section, *path), value_to_write)
    overriding = _overriding_origin(state, file, path) if section == "agent" else None
    full_key = ".".join((section, *path))
    text = f"{file}: {full_key} is set"
    if overriding is not None:
        text = f"{text}\nbut in this folder, {overriding} overrides it"
    data = _ChangeRow(file=str(file), key=full_key, overridden_by=overriding)
    write_result(text, data, as_json=as_json)


def _load_with(state: State, override: str) -> tuple[Project, AgentConfig]:
    """Load the project and the agent's settings as if one more value were set.

    Raises:
        ConfigurationError: If the value is invalid, so that it is refused before it is written.
    """
    try:
        project = state.load_project([override])
        return project, project.agent
    except ConfigurationError as error:
        # Remove "--set ", because the user typed no such option: only load_project() was given it.
        error.message = error.message.removeprefix("--set ")
        raise


def _write_setting(project: Project, path: Sequence[str], value: Any) -> Path:
    """Write a setting into the project's file, or into a new one here; return the file's path.

    Raises:
        FolderNotTrustedError: If the file is not trusted. A written file is trusted.
    """
    from delf.trust.folders import CONFIG_FILE, parse_toml, read_file, values_by_path

    file = project.file or Path.cwd() / CONFIG_FILE
    old_text = (read_file(file, file.parent) or b"").decode("utf-8-sig")
    # Writing the file makes the whole file trusted, so the old text must be trusted already.
    if old_text:
        project.trust.check(file.parent, {file.name: values_by_path(parse_toml(old_text))})
    new_text = _with_setting(old_text, path, value)
    replace_file(file, new_text)
    project.trust.keep(file.parent, {file.name: values_by_path(parse_toml(new_text))})
    return file


def _overriding_origin(state: State, file: Path, path: tuple[str, ...]) -> str | None:
    """Return the origin of an agent's setting if another value overrides the file's value.

    The origin is, for example, the name of an environment variable. Return None if the file's value
    applies.
    """
    origin = state.load_project().agent_values.origin(path)
    is_from_file = origin is None or origin.startswith(str(file))
    return None if is_from_file else origin


def _value_to_write(text: str, parsed: Any, validated: Any) -> Any:
    """Return the value to write to delf.toml for an agent's setting.

    A number or boolean in JSON is written as the user wrote it: ``30`` stays ``30``, although the
    validated value is ``30.0``. For other spellings, such as ``yes`` or ``1_000``, the validated
    value is written: ``true``, ``1000``. Any other value is written as parsed.

    Args:
        text: The value as the user wrote it.
        parsed: The value after parsing, such as a list.
        validated: The value after parsing and validation.
    """
    from delf_engine.project.texts import scalar

    if not isinstance(validated, (bool, int, float)):
        return parsed
    json_value = scalar(text)  # the text itself if it is not JSON
    return validated if isinstance(json_value, str) else json_value


@config.command("check")
@as_json_option(FindingsRow)
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check every value of the agent, the connections and the plugins.

    The exit status is 0 if all values are valid, and 2 if not.
    """
    from delf_console.doctor import examine_config

    state = state_of(ctx)
    ctx.exit(0 if write_findings(state, examine_config(state), as_json=as_json) else 2)


def _given_values(project: Project) -> Iterator[_GivenValue]:
    for path, setting in project.agent_values.leaves():
        yield _GivenValue(".".join(("agent", *path)), setting.value, setting.origin)
    for name, entry in project.connections.items():
        entry_settings = {"type": entry.type, "allow": entry.allow, "confirm": entry.confirm}
        for key, value in entry_settings.items():
            if value is not None:
                yield _GivenValue(f"connections.{name}.{key}", value, f"{entry.where} {key}")
        for path, setting in entry.values.leaves():
            full_key = ".".join(("connections", name, *path))
            yield _GivenValue(full_key, setting.value, setting.origin)
        yield from _values_of_variables(project, "connections", name)
    for name in project.plugin_options:
        for path, setting in project.plugin_options.leaves(name):
            full_key = ".".join(("plugins", name, *path))
            yield _GivenValue(full_key, setting.value, setting.origin)
        yield from _values_of_variables(project, "plugins", name)


def _values_of_variables(project: Project, section: str, name: str) -> Iterator[_GivenValue]:
    """Yield the settings of ``[section.name]`` that environment variables give."""
    prefix = _variable_prefix(name)
    # DELF_SHOP_EU_URL belongs to a connection shop_eu, if there is one, and not to shop: the prefix
    # DELF_SHOP_EU_ extends the prefix DELF_SHOP_.
    all_prefixes = map(_variable_prefix, (*project.connections, *project.plugin_options))
    extended_prefixes = tuple(
        each for each in all_prefixes if each.startswith(prefix) and each != prefix
    )
    # ``project.environ`` also contains the keys that the user has stored with ``delf keys``, except
    # for variables that are set in ``os.environ``.
    stored_keys = KeptKeys.here().values(without=os.environ)
    for variable, value in sorted(project.environ.items()):
        is_own = variable.startswith(prefix) and not variable.startswith(extended_prefixes)
        if is_own and value:
            is_stored_key = stored_keys.get(variable) == value
            origin = _origin_of(variable, is_stored_key=is_stored_key)
            key = variable.removeprefix(prefix).lower()
            yield _GivenValue(f"{section}.{name}.{key}", value, origin)


def _variable_prefix(name: str) -> str:
    return f"DELF_{name.upper().replace('-', '_')}_"


def _origin_of(variable: str, *, is_stored_key: bool) -> str:
    """Return the origin of a variable: ``delf keys: NAME``, ``.env: NAME``, or only ``NAME``.

    The name alone stands for the environment of the process.
    """
    if variable in os.environ:
        return variable
    store = "delf keys" if is_stored_key else ".env"
    return f"{store}: {variable}"


def _current_value(project: Project, key: str) -> Any:
    """Return the value that a key has in this project, such as a default; None if unset.

    Raises:
        ConfigurationError: For an unknown key of the agent.
    """
    from delf_engine.project.files import SECTIONS

    section, *keys = key.split(".")
    if section == "agent":
        return _agent_value(project, key, keys)
    if section in SECTIONS:
        return _value_in_section(project, key)
    return _agent_value(project, key, [section, *keys])  # the word "agent" may be left out


def _value_in_section(project: Project, key: str) -> Any:
    """Return the value of a key; None if the project gives no value.

    For the name of a table, such as ``connections.shop``, return a mapping from the keys below to
    their values.
    """
    values = {given.key: given.value for given in _given_values(project)}
    if key in values:
        return values[key]
    prefix = f"{key}."
    values_below = {
        given_key.removeprefix(prefix): value
        for given_key, value in values.items()
        if given_key.startswith(prefix)
    }
    return values_below or None


def _agent_value(project: Project, full_key: str, keys: Sequence[str]) -> Any:
    """Return the value at a path of keys in ``[agent]``; without keys, the whole section."""
    from delf_engine.project.files import check_agent_key

    written_values = project.agent_values.resolve(project.environ)
    if not keys:
        return written_values
    setting, *inner_keys = keys
    check_agent_key(full_key, setting)
    value: Any = getattr(project.agent, setting)  # the default if the setting is not written
    is_plain = isinstance(cast("object", value), (bool, int, float, str, list, dict))
    if not is_plain:
        # The setting was converted, such as a model's name to an LLMConfig.
        value = written_values.get(setting)
    for key in inner_keys:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    from delf_cli.output import json_text

    return value if isinstance(value, str) else json_text(value)


def _with_setting(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text of a TOML file with one setting changed and everything else unchanged.

    A model in ``[agent]``, such as ``llm``, is a name or a table. To set a key of a name, the name
    becomes a table first: ``llm = "gpt-4o"`` becomes ``llm = {model = "gpt-4o"}``. To set a table
    to a name, only the table's ``model`` is changed.

    Raises:
        ConfigurationError: If a part of the path has a value that is no table.
    """
    import tomlkit

    *table_names, key = path
    is_of_agent = path[0] == "agent"
    document = tomlkit.parse(text)
    table: Any = document
    adds_table = False
    for depth, part in enumerate(table_names):
        if part not in table:
            # A table [connections.shop] needs no header [connections] before it. tomlkit calls a
            # table without header a super table.
            has_no_header = depth == 0 and len(path) > 2
            table[part] = tomlkit.table(is_super_table=has_no_header)
            adds_table = True
        elif is_of_agent and isinstance(table[part], str):
            # The text is a model's name: the caller has already refused a key below any other text.
            model_name = table[part]
            table[part] = tomlkit.inline_table()
            table[part]["model"] = model_name
        table = table[part]
        if not isinstance(cast("object", table), Mapping):
            above = ".".join(path[: depth + 1])
            raise ConfigurationError(
                f"{above} is a single value, without a key {path[depth + 1]!r}"
            )
    replaces_table = isinstance(table.get(key), Mapping) and not isinstance(value, Mapping)
    if is_of_agent and replaces_table:
        table[key]["model"] = value  # the existing table keeps the model's other settings
    else:
        table[key] = value
    if adds_table:
        table.add(tomlkit.nl())  # an empty line before the next section
    return tomlkit.dumps(document).rstrip() + "\n"
