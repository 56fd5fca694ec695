"""Settings from several sources, each value with its origin, merged key by key.

A value from ``delf.toml`` may refer to variables, as ``"${SHOP_URL}"`` or
``"${SHOP_URL:-sqlite:///shop.db}"``; ``$$`` stands for a dollar sign. They are looked up when
the value is used, so that a section that a run does not need cannot stop it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from delf.errors import ConfigurationError, EnvironmentKeyError

Path = tuple[str, ...]

_REFERENCE = re.compile(r"\$(?:(\$)|\{([^{}]*)(\})?)")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it was given.

    Args:
        value: As it was written; no mapping, unless an empty one.
        origin: In words, with the key: ``DELF_TIMEOUT``, ``/p/delf.toml [agent] timeout``.
        from_file: Whether ``${…}`` in it is a reference.
    """

    value: Any
    origin: str
    from_file: bool = False


class Values:
    """A tree of settings, kept as its leaves; what is put later wins."""

    def __init__(self) -> None:
        self._leaves: dict[Path, Given] = {}

    def put(self, path: Path, value: object, origin: Callable[[Path], str], **kind: bool) -> None:
        """Set a value; a mapping is merged key by key, anything else replaces what was there.

        Args:
            path: The keys that lead to it.
            value: The value.
            origin: Says in words where the value at a path was given.
            kind: ``from_file=True`` for values in which ``${…}`` is a reference.
        """
        if isinstance(value, Mapping) and value:
            for key, item in cast("Mapping[object, object]", value).items():
                self.put((*path, str(key)), item, origin, **kind)
            return
        for other in list(self._leaves):
            if _overlaps(path, other):
                del self._leaves[other]
        self._leaves[path] = Given(value, origin(path), **kind)

    def drop(self, path: Path) -> None:
        """Forget a value and everything below it."""
        for other in list(self._leaves):
            if other[: len(path)] == path:
                del self._leaves[other]

    def leaves(self) -> Iterator[tuple[Path, Given]]:
        """Every value with its path."""
        yield from self._leaves.items()

    def has(self, path: Path) -> bool:
        """Whether there is a value at a path or below it."""
        return any(other[: len(path)] == path for other in self._leaves)

    def origin(self, path: Path) -> str | None:
        """Where the value at a path was given, or what holds it, or what it holds."""
        for length in range(len(path), 0, -1):
            if (given := self._leaves.get(path[:length])) is not None:
                return given.origin
        return next((g.origin for p, g in self._leaves.items() if p[: len(path)] == path), None)

    def resolve(
        self, environ: Mapping[str, str], *, without: Collection[str] = ()
    ) -> dict[str, Any]:
        """The tree, with references looked up.

        Args:
            environ: Where they are looked up.
            without: Top keys that are left out.

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
            value = (
                substitute(given.value, environ, given.origin) if given.from_file else given.value
            )
            node[path[-1]] = value
        return tree


def substitute(value: Any, environ: Mapping[str, str], origin: str) -> Any:
    """A value with the references in its texts looked up.

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
