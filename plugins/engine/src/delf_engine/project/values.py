"""Settings from several sources, merged key by key, each value with its origin.

A value from ``delf.toml`` may refer to variables, such as ``"${SHOP_URL}"`` or
``"${SHOP_URL:-sqlite:///shop.db}"``; ``$$`` is a dollar sign. References are resolved on use, so
that a missing variable of an unused section cannot stop a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from delf.environment import FileText, Source, SourcedText, source_of
from delf.errors import ConfigurationError, EnvironmentKeyError
from delf.records import dataclass

KeyPath = tuple[str, ...]
"""The keys that lead to a value in nested tables."""

_REFERENCE = re.compile(r"\$(?:(\$)|\{([^{}]*)(\})?)")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SettingValue:
    """The value of a setting with its origin.

    Args:
        value: The value before references are resolved. The only possible mapping is an empty
            mapping, because :meth:`Values.put` stores each value in a mapping separately.
        origin: The origin in words, such as ``DELF_TIMEOUT`` or ``/p/delf.toml [agent] timeout``.
        folder: The folder of the ``delf.toml`` with the value; None if the value comes from
            another source. Only in a ``delf.toml`` is ``${…}`` a reference; elsewhere, it is plain
            text.
        source: The kind of source, such as ``command line``.
    """

    value: Any
    origin: str
    folder: Path | None = None
    source: Source = "program"

    @property
    def is_from_file(self) -> bool:
        """True if the value comes from a ``delf.toml``."""
        return self.folder is not None


class Values:
    """A tree of settings, each with its origin. Values put later override earlier values."""

    def __init__(self) -> None:
        # The values in force, each with its origin, by the keys that lead to the value.
        self._leaves: dict[KeyPath, SettingValue] = {}
        # The values that put() has replaced or drop() has removed. Only all_written() yields them.
        self._not_in_force: list[tuple[KeyPath, SettingValue]] = []

    def put(
        self,
        path: KeyPath,
        value: object,
        origin: str | Callable[[KeyPath], str],
        folder: Path | None = None,
        source: Source = "program",
    ) -> None:
        """Set a value; merge a mapping key by key, and replace any other value.

        Args:
            path: The keys that lead to the value.
            value: The value.
            origin: The origin in words of all values below the path, or a function that returns the
                origin of the value at a path.
            folder: The folder of the ``delf.toml`` with the value, if any.
            source: The kind of source. Ignored if ``folder`` is given, or if the value is a
                :class:`SourcedText`, which knows its source.
        """
        if isinstance(value, Mapping) and value:
            for key, item in cast("Mapping[object, object]", value).items():
                self.put((*path, str(key)), item, origin, folder, source)
            return
        # A value replaces an earlier table, and a key of a table replaces an earlier value, as
        # ``llm.model`` replaces ``llm``.
        for other_path in list(self._leaves):
            if _overlaps(path, other_path):
                self._not_in_force.append((other_path, self._leaves.pop(other_path)))
        source = "project" if folder is not None else source_of(cast("object", value), source)
        origin_text = origin if isinstance(origin, str) else origin(path)
        self._leaves[path] = SettingValue(value, origin_text, folder, source)

    def drop(self, path: KeyPath) -> None:
        """Remove the value at a path and all values below the path."""
        for other_path in list(self._leaves):
            if _begins_with(other_path, path):
                self._not_in_force.append((other_path, self._leaves.pop(other_path)))

    def leaves(self) -> Iterator[tuple[KeyPath, SettingValue]]:
        """Yield the path and value of each setting."""
        yield from self._leaves.items()

    def all_written(self) -> Iterator[tuple[KeyPath, SettingValue]]:
        """Yield the path and value of each setting; overridden and removed values, too."""
        yield from self._leaves.items()
        yield from self._not_in_force

    def origin(self, path: KeyPath) -> str | None:
        """Return the origin, such as a file or a variable, of the value at a path of keys.

        If no value is set at the path itself, return the origin of the value at the nearest parent
        path, else of the first value below the path. None if there is no such value.
        """
        for length in range(len(path), 0, -1):
            setting = self._leaves.get(path[:length])
            if setting is not None:
                return setting.origin
        for other_path, setting in self._leaves.items():
            if _begins_with(other_path, path):
                return setting.origin
        return None

    def resolve(
        self, environ: Mapping[str, str], *, without: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the tree as nested dicts with references resolved.

        A text from a ``delf.toml`` is a :class:`FileText`, which knows the file's folder; any other
        text is a :class:`SourcedText`, which knows its source.

        Args:
            environ: The environment variables for ``${…}`` references.
            without: The top-level keys to omit.

        Raises:
            EnvironmentKeyError: If a referenced variable is not set; the error names file and key.
            ConfigurationError: If a reference is malformed.
        """
        tree: dict[str, Any] = {}
        for path, setting in self._leaves.items():
            if path[0] in without:
                continue
            node = tree
            for key in path[:-1]:
                node = node.setdefault(key, {})
            value = setting.value
            if setting.is_from_file:  # elsewhere, ``${…}`` is plain text
                value = substitute(value, environ, setting.origin)
            node[path[-1]] = _with_source(value, setting)
        return tree


def substitute(value: Any, environ: Mapping[str, str], origin: str) -> Any:
    """Replace the ``${…}`` references in a value by environment variables.

    Args:
        value: A text, or a list or table of texts at any depth; other values are returned
            unchanged.
        environ: The environment variables.
        origin: The origin of the value, for messages.

    Raises:
        EnvironmentKeyError: If a variable is not set and has no default.
        ConfigurationError: If a reference is malformed.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _resolve_reference(match, environ, origin), value)
    if isinstance(value, list):
        return [substitute(item, environ, origin) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: substitute(item, environ, origin) for key, item in items}
    return value


def _with_source(value: Any, setting: SettingValue) -> Any:
    """Return a setting's value in which each text also stores where the setting was given.

    A text becomes a :class:`FileText` with the folder of the file that gives the setting. Without
    such a folder, it becomes a :class:`SourcedText` with the setting's source.
    """
    if isinstance(value, str):
        if setting.folder is not None:
            return FileText(value, setting.folder)
        return SourcedText(value, setting.source)
    if isinstance(value, list):
        return [_with_source(item, setting) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _with_source(item, setting) for key, item in items}
    return value


def _resolve_reference(match: re.Match[str], environ: Mapping[str, str], origin: str) -> str:
    """Return the replacement of one reference: ``${NAME}``, ``${NAME:-default}`` or ``$$``."""
    dollar, content, closing_brace = match.groups()
    if dollar:
        return "$"
    variable = _VARIABLE.fullmatch(content)
    if variable is None or closing_brace is None:
        raise ConfigurationError(
            f"{origin}: a reference is not well formed",
            hint="write ${NAME} or ${NAME:-default}, and $$ for a dollar sign",
        )
    name = variable[1]
    default = variable[2]
    value = environ.get(name)
    # As in a shell, the default after ":-" also replaces an empty variable.
    if default is not None and not value:
        return default
    if value is None:
        raise EnvironmentKeyError(f"{origin}: the variable {name} is not set", variable=name)
    return value


def _begins_with(path: KeyPath, start: KeyPath) -> bool:
    """Return True if ``path`` equals ``start``, or begins with the keys of ``start``."""
    return path[: len(start)] == start


def _overlaps(first: KeyPath, second: KeyPath) -> bool:
    """Return True if two sequences of keys are equal, or if one is the beginning of the other."""
    return _begins_with(first, second) or _begins_with(second, first)
