"""``delf.toml``: the allowed sections and keys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError, ToolDefinitionError, did_you_mean
from delf.tools.signature import check_name
from delf.trust.folders import parse_toml, read_file
from delf_engine.config import LLM_KEYS, AgentConfig, suggest_agent_key

SECTIONS: Final = ("agent", "connections", "plugins", "journal")
PREFER: Final = "prefer"
"""The key of ``[plugins]`` with the plugins that win where several provide the same name."""

# The parser reports the position in its message only.
_TOML_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_RESERVED_KEYS: Final = ("name", "metadata")


def read_config(path: Path) -> dict[str, Any]:
    """Parse a ``delf.toml``, and check its sections and keys, but not the values.

    Args:
        path: The path of the file.

    Raises:
        ConfigurationError: If the file is invalid; the error names the line or key.
    """
    content = read_file(path, path.parent)
    if content is None:
        problem = "is not a file" if os.path.lexists(path) else "does not exist"
        raise ConfigurationError(f"{path} {problem}")
    try:
        document = parse_toml(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error
    except ValueError as error:  # invalid TOML, or a number too large for Python
        message = str(error)
        reason = _TOML_POSITION.sub("", message)
        raise ConfigurationError(
            f"{path}{_position(message)}: {reason}", hint="the file is TOML: https://toml.io"
        ) from error
    _require_known_keys(path, document)
    return document


def _position(message: str) -> str:
    """Return the position from a message of tomllib, such as ``, line 3, column 5``; else ""."""
    position_match = _TOML_POSITION.search(message)
    if position_match is None:
        return ""
    line = position_match[1]
    column = position_match[2]
    if line is None:  # tomllib says "(at end of document)"
        return ", at the end of the file"
    return f", line {line}, column {column}"


def _require_known_keys(path: Path, document: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an unknown section or key."""
    for section, content in document.items():
        _require_known_section(path, section, content)
    for key in document.get("agent", {}):
        check_agent_key(f"{path} [agent]", key)
    for name, content in document.get("connections", {}).items():
        location = f"{path} [connections.{name}]"
        check_instance_name(location, name)
        for key in _table(path, f"connections.{name}", content):
            check_connection_key(location, key)
    for name, content in document.get("plugins", {}).items():
        if name == PREFER:
            _check_prefer(path, content)
        elif not isinstance(content, Mapping):
            raise _not_a_section(path, f"plugins.{name}", did_you_mean(name, (PREFER,)))


def _require_known_section(path: Path, name: str, content: object) -> None:
    """Raise ConfigurationError unless a top-level key of ``delf.toml`` is a known section."""
    if name in SECTIONS and isinstance(content, Mapping):
        return
    # Some settings of [agent] have the name of a section, such as ``journal = "sql"``.
    if name in AgentConfig.model_fields:
        raise ConfigurationError(
            f"{path}: {name!r} is outside of a section", hint="put it under [agent]"
        )
    if name not in SECTIONS:
        raise ConfigurationError(
            f"{path}: unknown section {name!r}{did_you_mean(name, SECTIONS)}",
            hint=f"known sections: {', '.join(SECTIONS)}",
        )
    raise _not_a_section(path, name)


def _check_prefer(path: Path, content: object) -> None:
    names = cast("list[object]", content)
    is_list_of_names = isinstance(content, list) and all(map(_is_name, names))
    if not is_list_of_names:
        raise ConfigurationError(
            f"{path} [plugins] prefer: it is not a list of names",
            hint='list the plugins to use where several define the same name: prefer = ["NAME"]',
        )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def check_agent_key(location: str, key: str) -> None:
    """Check that a key of ``[agent]`` is known.

    Args:
        location: The location of the key, for the message.
        key: The key.

    Raises:
        ConfigurationError: If the key is unknown; the error suggests a known key.
    """
    fields = tuple(AgentConfig.model_fields)
    if key in fields:
        return
    suggestion = suggest_agent_key(key, fields)
    if key in LLM_KEYS:
        suggestion = f"; did you mean 'llm.{key}'?"
    raise ConfigurationError(
        f"{location}: unknown key {key!r}{suggestion}", hint=f"known keys: {', '.join(fields)}"
    )


def check_instance_name(location: str, name: str) -> None:
    """Check that a connection's name is a valid variable name.

    Args:
        location: The location of the name, for the message.
        name: The name.

    Raises:
        ConfigurationError: If the name is invalid.
    """
    try:
        check_name(name, "the connection name")
    except ToolDefinitionError as error:
        raise ConfigurationError(f"{location}: {error.message}", hint=error.hint) from None


def check_connection_key(location: str, key: str) -> None:
    """Check that a connection's section may set a key.

    Args:
        location: The location of the key, for the message.
        key: The key, which becomes an argument of the connection's constructor.

    Raises:
        ConfigurationError: If delf sets that argument itself.
    """
    if key in _RESERVED_KEYS:
        raise ConfigurationError(
            f"{location}: {key!r} cannot be set here",
            hint="a connection's name is the name of its section",
        )


def _table(path: Path, section: str, content: object) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise _not_a_section(path, section)
    return cast("Mapping[str, Any]", content)


def _not_a_section(path: Path, name: str, suggestion: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"{path}: {name!r} is a value, not a section{suggestion}", hint=f"write it as [{name}]"
    )
