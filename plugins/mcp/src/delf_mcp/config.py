"""``mcp.json``: servers as other programs have them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    EnvironmentKeyError,
    did_you_mean,
)
from delf.settings import Source, SourcedText

_TABLES: Final = ("mcpServers", "servers")
_KNOWN: Final = frozenset({"command", "args", "env", "cwd", "url", "headers"})
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")


def servers_in(path: Path) -> dict[str, dict[str, Any]]:
    """The servers of a file, by name.

    Raises:
        ConnectionFileNotFoundError: When it is not there.
        ConnectionConfigurationError: When it is no such file.
    """
    try:
        content: Any = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConnectionFileNotFoundError(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConnectionConfigurationError(f"{path} cannot be read: {error}") from None
    table: Any = None
    if isinstance(content, dict):
        found = cast("dict[str, Any]", content)
        table = next((found[name] for name in _TABLES if name in found), None)
    if not isinstance(table, dict):
        raise ConnectionConfigurationError(
            f"{path} names no servers", hint='{"mcpServers": {"name": {"command": "…"}}}'
        )
    return cast("dict[str, dict[str, Any]]", table)


def server_settings(
    path: Path, name: str, environ: Mapping[str, str], source: Source = "program"
) -> dict[str, Any]:
    """Return the settings of a server from a file.

    Args:
        path: The file.
        name: The server.
        environ: What ``${NAME}`` in the file stands for.
        source: Who named the file: what is in it is theirs, too.

    Raises:
        ConnectionConfigurationError: When the file does not name it, or not rightly.
        EnvironmentKeyError: When a variable is not set.
    """
    servers = servers_in(path)
    if name not in servers:
        raise ConnectionConfigurationError(
            f"{path} has no server {name!r}{did_you_mean(name, servers)}",
            hint="server names one of: " + ", ".join(sorted(servers)),
        )
    given: Any = servers[name]
    if not isinstance(given, dict):
        raise ConnectionConfigurationError(f"{path}: {name} is not an object")
    entry = cast("dict[str, Any]", given)
    kind = entry.get("type", entry.get("transport"))
    if kind == "sse":
        raise ConnectionConfigurationError(
            f"{path}: {name} is reached by SSE, which is no longer spoken",
            hint="the server's address for streamable HTTP, often /mcp",
        )
    known = {key: value for key, value in entry.items() if key in _KNOWN}
    return cast("dict[str, Any]", _expanded(known, environ, f"{path}: {name}", source))


def _expanded(value: Any, environ: Mapping[str, str], where: str, source: Source) -> Any:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _expanded(item, environ, where, source) for key, item in table.items()}
    if isinstance(value, list):
        return [_expanded(item, environ, where, source) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        variable, default = match.group(1), match.group(2)
        if variable not in environ and default is None:
            raise EnvironmentKeyError(f"{where}: {variable} is not set", variable=variable)
        return environ.get(variable, default or "")

    return SourcedText(_VARIABLE.sub(put, value), source)
