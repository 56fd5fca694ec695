"""``mcp.json``: server configurations in the format of other programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from delf.environment import beside
from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    EnvironmentKeyError,
    did_you_mean,
)
from delf.machine.folders import expand_home
from delf.settings import Source, SourcedText

_SERVER_TABLES: Final = ("mcpServers", "servers")
_SUPPORTED_KEYS: Final = frozenset({"command", "args", "env", "cwd", "url", "headers"})
_ADDRESS_KEYS: Final = ("url", "serverUrl", "httpUrl")
_VARIABLE: Final = re.compile(r"\$\{(input:|env:)?([\w-]+)(?::-([^}]*))?\}")
# Matches variables such as ``${command:…}``, which only an editor can resolve.
_FOREIGN_VARIABLE: Final = re.compile(r"\$\{[a-zA-Z]+:[^}]*\}")
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")
_QUOTED_VALUE: Final = re.compile(r"""(["'])(.*?)\1(?:\s+#.*)?""")


def servers_in(path: Path) -> dict[str, dict[str, Any]]:
    """Return a mapping from server name to the server's entry in an ``mcp.json`` file.

    Raises:
        ConnectionFileNotFoundError: If the file does not exist.
        ConnectionConfigurationError: If the file is invalid.
    """
    try:
        content: Any = json.loads(_strip_comments(path.read_text("utf-8-sig")))
    except FileNotFoundError:
        raise ConnectionFileNotFoundError(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConnectionConfigurationError(f"{path} cannot be read: {error}") from None
    servers: Any = None
    if isinstance(content, dict):
        fields = cast("dict[str, Any]", content)
        if isinstance(fields.get("mcp"), dict):  # as in VS Code's settings.json
            fields = {**fields["mcp"], **fields}  # fields at the top level take precedence
        servers = next((fields[name] for name in _SERVER_TABLES if name in fields), None)
    if not isinstance(servers, dict):
        raise ConnectionConfigurationError(
            f"{path} names no servers", hint='{"mcpServers": {"name": {"command": "…"}}}'
        )
    return cast("dict[str, dict[str, Any]]", servers)


def server_settings(
    path: Path, name: str, environ: Mapping[str, str], source: Source = "program"
) -> dict[str, Any]:
    """Return a server's settings in an ``mcp.json`` file, with variables expanded.

    Args:
        path: The path of the file.
        name: The name of the server.
        environ: The environment variables to which ``${NAME}`` in the file refers.
        source: The source of the file's path, such as ``project``. The file's settings are trusted
            like a setting from this source.

    Raises:
        ConnectionConfigurationError: If the server's entry is missing or invalid.
        EnvironmentKeyError: If a variable is not set.
    """
    entry = _entry_of(path, name)
    where = f"{path}: {name}"
    # The file may be in a folder such as .vscode inside the project's folder.
    name_of_folder = path.parent.name
    is_in_hidden_folder = name_of_folder.startswith(".") and name_of_folder != ".."
    folder = path.parent.parent if is_in_hidden_folder else path.parent
    variables = {**_editor_variables(folder.absolute()), **environ}
    settings = cast("dict[str, Any]", _expand(_supported_settings(entry), variables, where, source))
    settings |= _command_and_args(settings, where, source)
    if isinstance(settings.get("headers"), dict):
        settings["headers"] = _as_texts(settings["headers"], f"{where}: headers", source)
    return {**settings, **_program_variables(entry, settings, variables, folder, where, source)}


def _entry_of(path: Path, name: str) -> dict[str, Any]:
    """Return the entry of a server in an ``mcp.json``; raise an error if delf cannot use it."""
    servers = servers_in(path)
    if name not in servers:
        raise ConnectionConfigurationError(
            f"{path} has no server {name!r}{did_you_mean(name, servers)}",
            hint="server names one of: " + ", ".join(sorted(servers)),
        )
    entry: Any = servers[name]
    if not isinstance(entry, dict):
        raise ConnectionConfigurationError(f"{path}: {name} is not an object")
    fields = cast("dict[str, Any]", entry)
    if fields.get("type", fields.get("transport")) == "sse":
        raise ConnectionConfigurationError(
            f"{path}: {name} is reached by SSE, which delf no longer supports",
            hint="the server's address for streamable HTTP, often /mcp",
        )
    return fields


def _supported_settings(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the supported settings of a server's entry; the server's address becomes ``url``."""
    supported = {key: value for key, value in entry.items() if key in _SUPPORTED_KEYS}
    address = next((entry[key] for key in _ADDRESS_KEYS if entry.get(key)), None)
    return supported if address is None else {**supported, "url": address}


def _editor_variables(folder: Path) -> dict[str, str]:
    """Return the variables that editors define for every ``mcp.json``.

    Args:
        folder: The project's folder.
    """
    return {
        "workspaceFolder": str(folder),
        "workspaceFolderBasename": folder.name,
        "userHome": str(expand_home("~")),
        "pathSeparator": os.sep,
    }


def _command_and_args(expanded: Mapping[str, Any], where: str, source: Source) -> dict[str, Any]:
    """Return the settings ``command`` and ``args``, converted to a text and a list of texts.

    A list under ``command`` is the command and its first arguments. Arguments that are numbers or
    booleans become texts. The result is empty if there is nothing to convert.

    Raises:
        ConnectionConfigurationError: If ``args`` is given and not a list, or if an argument has any
            other type.
    """
    command = expanded.get("command")
    args = expanded.get("args")
    if args is not None and not isinstance(args, list):
        raise ConnectionConfigurationError(f"{where}: args is not a list")
    first_args: list[Any] = []
    if command and isinstance(command, list):
        command, *first_args = cast("list[Any]", command)
    elif args is None:
        return {}  # a plain command needs no conversion
    all_args = [*first_args, *cast("list[Any]", args or [])]
    settings: dict[str, Any] = {
        "args": [_as_text(arg, f"{where}: args", source) for arg in all_args]
    }
    if command is not None:
        settings["command"] = command
    return settings


def _as_text(value: Any, where: str, source: Source) -> Any:
    """Convert a text, number or boolean to text.

    Raises:
        ConnectionConfigurationError: If the value is of any other type.
    """
    if isinstance(value, (dict, list)) or value is None:
        raise ConnectionConfigurationError(f"{where} is not a text or a number")
    if isinstance(value, str):
        return value
    return SourcedText(json.dumps(value), source)


def _as_texts(values: Mapping[str, Any], where: str, source: Source) -> dict[str, Any]:
    """Convert the values of a mapping to texts; leave out null values."""
    return {
        key: _as_text(value, f"{where}.{key}", source)
        for key, value in values.items()
        if value is not None
    }


def _strip_comments(text: str) -> str:
    """Remove comments and trailing commas, which other programs allow in JSON."""
    # Both patterns also match strings, as group 1: strings stay, even if they contain ``//``.
    text = _COMMENT.sub(lambda match: match[1] or " ", text)
    return _TRAILING_COMMA.sub(lambda match: match[1] or "", text)


def _program_variables(
    entry: Mapping[str, Any],
    expanded: Mapping[str, Any],
    environ: Mapping[str, str],
    folder: Path,
    where: str,
    source: Source,
) -> dict[str, Any]:
    """Return the setting ``env`` of a server: variables in ``envFile``, then those in ``env``.

    Args:
        entry: The server's settings as written, which still have ``envFile``.
        expanded: The supported settings, in which variables are replaced.
        environ: The variables that ``${NAME}`` stands for.
        folder: The folder of the project.
        where: The place of the settings, for error messages.
        source: The source of the settings.

    Returns:
        ``{"env": …}``, or an empty dict if there are no variables.
    """
    env: Any = expanded.get("env")
    if env is not None and not isinstance(env, dict):
        raise ConnectionConfigurationError(f"{where}: env is not an object")
    values: dict[str, Any] = {}
    if env_file := entry.get("envFile"):
        path = beside(folder, str(_expand(env_file, environ, where, source)))
        values |= _read_env_file(Path(path), where, source)
    values |= _as_texts(cast("dict[str, Any]", env or {}), f"{where}: env", source)
    return {"env": values} if values else {}


def _read_env_file(path: Path, where: str, source: Source) -> dict[str, Any]:
    """Return the variables that the lines ``NAME=value`` of a file define.

    A value may be in quotes, and a comment may follow it.

    Raises:
        ConnectionConfigurationError: If the file cannot be read.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionConfigurationError(
            f"{where}: envFile {str(path)!r} cannot be read: {error}"
        ) from None
    values: dict[str, Any] = {}
    for line in lines:
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match is not None:
            value = match[2].strip()
            quoted = _QUOTED_VALUE.fullmatch(value)
            text = quoted[2] if quoted is not None else value.partition(" #")[0].rstrip()
            values[match[1]] = SourcedText(text, source)
    return values


def _expand(value: Any, environ: Mapping[str, str], where: str, source: Source) -> Any:
    """Replace variables, such as ``${NAME}``, in all texts of a value."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _expand(item, environ, where, source) for key, item in table.items()}
    if isinstance(value, list):
        return [_expand(item, environ, where, source) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value

    # _FOREIGN_VARIABLE also matches ``${env:NAME}``, so remove the supported variables first.
    unsupported = _FOREIGN_VARIABLE.search(_VARIABLE.sub("", value))
    if unsupported is not None:
        raise ConnectionConfigurationError(
            f"{where}: delf does not know the variable {unsupported[0]} of another program",
            hint="write the value itself, or ${NAME} for an environment variable",
        )
    # Replace ``${/}`` first, so that the same text in the value of an environment variable is kept.
    with_separators = value.replace("${/}", os.sep)
    expanded = _VARIABLE.sub(
        lambda match: _value_of_variable(match, environ, where), with_separators
    )
    return SourcedText(expanded, source)


def _value_of_variable(match: re.Match[str], environ: Mapping[str, str], where: str) -> str:
    """Return the value of ``${NAME}``, ``${env:NAME}``, ``${NAME:-default}`` or ``${input:name}``.

    Raises:
        EnvironmentKeyError: If the variable is not set, and has no default.
    """
    kind, name, default = match.groups()
    is_input = kind == "input:"  # other programs ask the user for an input
    # The input ``api-key`` is the environment variable ``api-key`` or ``API_KEY``.
    variable = name.upper().replace("-", "_") if is_input else name
    for name_to_try in (name, variable):
        if name_to_try in environ:
            return environ[name_to_try]
    if default is not None:
        return default
    problem = f"{variable} is not set"
    if is_input:
        problem = f"the input {name!r} is needed, and {problem}"
    raise EnvironmentKeyError(f"{where}: {problem}", variable=variable)
