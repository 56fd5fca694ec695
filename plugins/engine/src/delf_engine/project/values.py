"""Settings from several sources, each value with its origin, merged key by key.

A value from ``delf.toml`` may refer to variables, as ``"${SHOP_URL}"`` or
``"${SHOP_URL:-sqlite:///shop.db}"``; ``$$`` is a dollar sign. References are resolved on use, so
that a section that a run does not need cannot stop it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, cast

from delf.environment import FileText, Source, SourcedText, source_of
from delf.errors import ConfigurationError, EnvironmentKeyError
from delf.records import dataclass

Path = tuple[str, ...]

_REFERENCE = re.compile(r"\$(?:(\$)|\{([^{}]*)(\})?)")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Given:
    """A value and its place.

    Args:
        value: As it was written; no mapping, unless an empty one.
        origin: In words, with the key: ``DELF_TIMEOUT``, ``/p/delf.toml [agent] timeout``.
        folder: Of the ``delf.toml`` that it stands in; ``${…}`` in it is a reference then.
        source: The source.
    """

    value: Any
    origin: str
    folder: FilePath | None = None
    source: Source = "program"

    @property
    def from_file(self) -> bool:
        """True if the value is in a ``delf.toml``."""
        return self.folder is not None


class Values:
    """A tree of settings, stored as its leaves; later values win."""

    def __init__(self) -> None:
        self._leaves: dict[Path, Given] = {}
        self._replaced: list[tuple[Path, Given]] = []

    def put(
        self,
        path: Path,
        value: object,
        origin: Callable[[Path], str],
        folder: FilePath | None = None,
        source: Source = "program",
    ) -> None:
        """Set a value; a mapping is merged key by key, any other value replaces the old one.

        Args:
            path: The keys that lead to it.
            value: The value.
            origin: Says in words where the value at a path was given.
            folder: Of the ``delf.toml`` that it stands in, if it does.
            source: The source, if it is no such file and the value does not carry it.
        """
        if isinstance(value, Mapping) and value:
            for key, item in cast("Mapping[object, object]", value).items():
                self.put((*path, str(key)), item, origin, folder, source)
            return
        for other in list(self._leaves):
            if _overlaps(path, other):
                self._replaced.append((other, self._leaves.pop(other)))
        source = "project" if folder is not None else source_of(cast("object", value), source)
        self._leaves[path] = Given(value, origin(path), folder, source)

    def drop(self, path: Path) -> None:
        """Remove a value and everything below it."""
        for other in list(self._leaves):
            if other[: len(path)] == path:
                self._replaced.append((other, self._leaves.pop(other)))

    def leaves(self) -> Iterator[tuple[Path, Given]]:
        """Yield every value with its path."""
        yield from self._leaves.items()

    def written(self) -> Iterator[tuple[Path, Given]]:
        """Return every value ever set: a replaced value can still be a secret."""
        yield from self._leaves.items()
        yield from self._replaced

    def has(self, path: Path) -> bool:
        """Return whether there is a value at a path or below it."""
        return any(other[: len(path)] == path for other in self._leaves)

    def origin(self, path: Path) -> str | None:
        """Return the source of the value at a path, or of a value around or within it."""
        for length in range(len(path), 0, -1):
            if (given := self._leaves.get(path[:length])) is not None:
                return given.origin
        return next((g.origin for p, g in self._leaves.items() if p[: len(path)] == path), None)

    def resolve(
        self,
        environ: Mapping[str, str],
        *,
        without: Collection[str] = (),
        placed: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Return the tree, with references looked up.

        Args:
            environ: Where they are looked up.
            without: Top keys that are left out.
            placed: Top keys whose texts carry their source, and texts of a file its folder, see
                :class:`FileText`; all when omitted.

        Raises:
            EnvironmentKeyError: Naming the variable, the file and the key.
            ConfigurationError: For a reference that is not well formed.
        """
        tree: dict[str, Any] = {}
        for path, given in self._leaves.items():
            if path[0] in without:
                continue
            node = tree
            for key in path[:-1]:
                node = node.setdefault(key, {})
            value = given.value
            if given.folder is not None:
                value = substitute(value, environ, given.origin)
            if placed is None or path[0] in placed:
                value = _placed(value, given)
            node[path[-1]] = value
        return tree


def substitute(value: Any, environ: Mapping[str, str], origin: str) -> Any:
    """Return a value with the references in its texts looked up.

    Args:
        value: Text, or lists and tables of it; anything else is returned as it is.
        environ: The variables.
        origin: Where the value was given, for messages.

    Raises:
        EnvironmentKeyError: When a variable is not set and has no default.
        ConfigurationError: For a reference that is not well formed.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _look_up(match, environ, origin), value)
    if isinstance(value, list):
        return [substitute(item, environ, origin) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: substitute(item, environ, origin) for key, item in items}
    return value


def _placed(value: Any, given: Given) -> Any:
    """Return a value whose texts carry their source."""
    if isinstance(value, str):
        if given.folder is not None:
            return FileText(value, given.folder)
        return SourcedText(value, given.source)
    if isinstance(value, list):
        return [_placed(item, given) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _placed(item, given) for key, item in items}
    return value


def _look_up(match: re.Match[str], environ: Mapping[str, str], origin: str) -> str:
    if match[1]:
        return "$"
    variable = _VARIABLE.fullmatch(match[2])
    if variable is None or match[3] is None:
        raise ConfigurationError(
            f"{origin}: a reference is not well formed",
            hint="write ${NAME} or ${NAME:-default}, and $$ for a dollar sign",
        )
    name, default = variable[1], variable[2]
    value = environ.get(name)
    # As in a shell, ":-" stands in for a variable that is empty, too.
    if default is not None and not value:
        return default
    if value is None:
        raise EnvironmentKeyError(f"{origin}: the variable {name} is not set", variable=name)
    return value


def _overlaps(one: Path, other: Path) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]
