"""Parsing of settings given as text: ``DELF_*`` variables and ``--set KEY=VALUE``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel

from delf.errors import ConfigurationError
from delf_engine.config import LLM_FIELDS, LLM_KEYS, PREFIX, AgentConfig, suggest_llm_key
from delf_engine.project.files import check_agent_key, check_connection_key, check_instance_name

NESTED: Final = "__"
OTHER_VARIABLES: Final = (
    "DELF_API_KEY",
    "DELF_DISABLE_PLUGINS",
    "DELF_PREFER_PLUGINS",
    "DELF_PYTHON",
    "DELF_TRUST",
)
"""Environment variables with the prefix ``DELF_`` that are not settings of the agent."""

_LIST_FIELDS: Final = frozenset(
    name for name, info in AgentConfig.model_fields.items() if get_origin(info.annotation) is tuple
)


def _is_table(annotation: Any) -> bool:
    """Return True if values of a type can be tables."""
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    is_dict = get_origin(annotation) is dict
    return is_model or is_dict or any(map(_is_table, get_args(annotation)))


_TABLE_FIELDS: Final = frozenset(
    name for name, info in AgentConfig.model_fields.items() if _is_table(info.annotation)
)
_LLM_TABLES: Final = ("headers", "settings")
# A less similar name is probably the variable of a connection.
_MIN_SIMILARITY: Final = 0.85


def from_environ(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Yield (variable, path, value) for each environment variable that sets an agent's setting.

    ``DELF_TIMEOUT=5`` sets ``timeout``, and ``DELF_LLM__BASE_URL=…`` sets ``llm.base_url``. Empty
    variables are ignored. Shorter paths come first, so that more specific settings win.

    Args:
        environ: The environment variables.

    Raises:
        ConfigurationError: If a variable names an unknown key of a language model's settings; the
            error suggests a key.
    """
    # DELF_LLM is applied before DELF_LLM__API_KEY, so that the part overrides the whole.
    for variable in sorted(environ, key=lambda name: (name.count(NESTED), name)):
        path = _path_of(variable)
        if path is None or not environ[variable]:
            continue
        _check_llm_key(variable, path)
        yield variable, path, parse(path, environ[variable])


def misspelling_warnings(environ: Mapping[str, str], instances: Collection[str]) -> Iterator[str]:
    """Yield a warning for each environment variable that looks like a misspelt agent setting.

    Args:
        environ: The environment variables.
        instances: The names of connections, whose variables begin with ``DELF_<NAME>_``.
    """
    nested = [f"{field}{NESTED}{key}" for field in sorted(LLM_FIELDS) for key in LLM_KEYS]
    option_names = [name.upper() for name in (*AgentConfig.model_fields, *nested)]
    prefixes = tuple(f"{PREFIX}{name.upper()}_" for name in instances)
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable.startswith(prefixes):
            continue
        if variable in OTHER_VARIABLES or _path_of(variable) is not None:
            continue
        # Users may write the section, too, as in ``DELF_AGENT__TIMEOUT``.
        option_name = variable.removeprefix(PREFIX).removeprefix(f"AGENT{NESTED}")
        close_names = difflib.get_close_matches(
            option_name, option_names, n=1, cutoff=_MIN_SIMILARITY
        )
        if close_names:
            yield f"{variable} is not a setting; did you mean {PREFIX}{close_names[0]}?"


def from_override(text: str, label: str = "--set ") -> tuple[str, tuple[str, ...], Any]:
    """Parse ``agent.llm.model=m`` into ``("agent", ("llm", "model"), "m")``.

    Args:
        text: A text such as ``timeout=5``, ``agent.llm.base_url=…``, ``connections.shop.url=…`` or
            ``plugins.sandbox-local.pool_size=2``.
        label: The prefix of the key in error messages.

    Raises:
        ConfigurationError: If the key is unknown; the error suggests a known key.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    path = tuple(key.split("."))
    section, *names = path
    if not equals or not all(path):
        raise ConfigurationError(
            f"{label}{key!r} is not KEY=VALUE", hint=f"as in {label}agent.timeout=30"
        )
    location = f"{label}{key}"
    if section in ("connections", "plugins") and len(names) < 2:
        raise ConfigurationError(
            f"{location}: a section cannot be set as a whole",
            hint=f"{label}{section}.NAME.KEY=…",
        )
    if section == "plugins":
        return section, tuple(names), scalar(value)
    if section == "connections":
        instance, option, *_ = names
        check_instance_name(location, instance)
        check_connection_key(location, option)
        return section, tuple(names), _parse_connection_option(option, value)
    # ``timeout`` is short for ``agent.timeout``.
    agent_path = tuple(names) if section == "agent" else path
    if not agent_path:
        raise ConfigurationError(f"{location}: a section cannot be set as a whole")
    check_agent_key(location, agent_path[0])
    _check_llm_key(location, agent_path)
    return "agent", agent_path, parse(agent_path, value)


def parse(path: tuple[str, ...], text: str) -> Any:
    """Convert a text to a value for the agent's setting at a path.

    Lists may be JSON or separated by commas, and tables are JSON. A text in ``sandbox_config``, or
    in the table ``settings`` of a model, becomes a number or a boolean if the text looks like one.
    Any other text is returned unchanged, and is converted when the setting is validated.

    Args:
        path: The keys that lead to the setting.
        text: The text.
    """
    field, *keys = path
    if field in _LIST_FIELDS and not keys:
        return _parse_list(text)
    if _can_be_table(field, keys) and text.lstrip().startswith("{"):
        return _parse_json(text)
    # The user chooses the keys of ``sandbox_config``, and of ``settings`` of a model.
    is_in_sandbox_config = field == "sandbox_config" and len(keys) > 0
    is_in_model_settings = field in LLM_FIELDS and keys[:1] == ["settings"]
    if is_in_sandbox_config or is_in_model_settings:
        return scalar(text)
    return text


def _can_be_table(field: str, keys: list[str]) -> bool:
    """Return True if the setting at ``field``, or at ``keys`` below ``field``, can be a table."""
    if not keys:
        return field in LLM_FIELDS or field in _TABLE_FIELDS
    return field in LLM_FIELDS and len(keys) == 1 and keys[0] in _LLM_TABLES


def _path_of(variable: str) -> tuple[str, ...] | None:
    """Return the path of the agent's setting that a variable sets; None for other variables."""
    if not variable.startswith(PREFIX):
        return None
    path = tuple(variable.removeprefix(PREFIX).lower().split(NESTED))
    has_empty_key = "" in path  # as in ``DELF_LLM__``
    if path[0] not in AgentConfig.model_fields or has_empty_key:
        return None
    return path


def _check_llm_key(location: str, path: tuple[str, ...]) -> None:
    """Raise ConfigurationError if a path such as ``llm.api_kay`` has a key that no model has."""
    field, *keys = path
    if field not in LLM_FIELDS or not keys:
        return
    key = keys[0]
    if key not in LLM_KEYS:
        raise ConfigurationError(
            f"{location}: unknown key {key!r}{suggest_llm_key(key)}",
            hint=f"known keys: {', '.join(LLM_KEYS)}",
        )


def _parse_connection_option(key: str, text: str) -> Any:
    """Convert a text to the value of a connection's option.

    ``allow`` and ``confirm`` become a truth value, the name of an action, or a list of names.
    """
    if key in ("allow", "confirm"):
        truth_value = {"true": True, "false": False}.get(text.strip().lower())
        if truth_value is not None:
            return truth_value
        if "," in text or text.startswith("["):
            return _parse_list(text)
        return text
    # Only JSON is parsed: the connection converts other text, and a password of digits stays text.
    if text.startswith(("[", "{", '"')):
        return _parse_json(text)
    return text


def _parse_list(text: str) -> Any:
    if text.lstrip().startswith("["):
        return _parse_json(text)
    return [part.strip() for part in text.split(",") if part.strip()]


def scalar(text: str) -> Any:
    """Parse a text as JSON; return the text unchanged if it is not JSON."""
    stripped_text = text.strip()
    value = _parse_json(stripped_text)
    is_json = value != stripped_text  # _parse_json() returns any other text unchanged
    return value if is_json else text


def _parse_json(text: str) -> Any:
    try:
        # NaN and Infinity are not valid JSON, so they stay text.
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
