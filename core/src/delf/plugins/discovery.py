"""Discovery of plugins by the metadata of installed distributions; imports no plugin.

``importlib.metadata.entry_points()`` is not used: it reads the files of all distributions at once,
so that a single malformed file of any package hides every plugin.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delf.hookspecs import ENTRY_POINT_GROUP, EXPORTS_GROUP
from delf.records import dataclass

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_SECTION = re.compile(rf"^\s*\[\s*{re.escape(ENTRY_POINT_GROUP)}\s*\]", re.MULTILINE)
_SEPARATORS = re.compile(r"[-_.]+")
_UNKNOWN: Final = "a distribution without a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plugin as its distribution describes it.

    Args:
        name: The entry point's name; what users type to block it.
        target: ``module`` or ``module:attribute``.
        distribution: The distribution's name; None for a plugin given in code.
        version: The distribution's version.
        keywords: Its keywords.
        exports: Names that ``from delf import NAME`` gives, each with its ``module:attribute``.
        plugin: The plugin itself, where it was given in code.
        problem: The defect of the metadata, if any.
        blocked: The setting that blocked the plugin, if any.
    """

    name: str
    target: str = ""
    distribution: str | None = None
    version: str | None = None
    keywords: tuple[str, ...] = ()
    exports: tuple[tuple[str, str], ...] = ()
    plugin: object | None = None
    problem: str | None = None
    blocked: str | None = None

    @property
    def origin(self) -> str:
        """The distribution and version, for messages."""
        if self.distribution is None:
            return f"plugin {self.name!r} given in code"
        return f"{self.distribution} {self.version}" if self.version else self.distribution


def installed() -> Hashable:
    """Return a value that changes when a package is installed or removed.

    Installers change folders on Python's path, and so the folders' modification times.
    """
    return tuple(sys.path), tuple(map(_changed, sys.path)), tuple(sys.meta_path)


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - at each start, for each folder
    except (OSError, ValueError):
        return 0


def discover() -> tuple[Candidate, ...]:
    """Return all installed plugins, ordered by name, then distribution."""
    return _discover(installed())


@lru_cache(4)
def _discover(_installed: Hashable) -> tuple[Candidate, ...]:
    from importlib import metadata

    found: list[Candidate] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        candidates = _read(distribution)
        if not candidates:
            continue
        # The first on sys.path is the one that an import would find.
        owner = normalise(candidates[0].distribution or "")
        if owner not in seen:
            seen.add(owner)
            found += candidates
    return tuple(sorted(found, key=lambda item: (item.name, item.distribution or "")))


def in_code(plugins: Iterable[tuple[str, object]]) -> Iterator[Candidate]:
    """Yield candidates for plugins that are not installed: tests, embedding programs."""
    for name, plugin in plugins:
        yield Candidate(name=name, target=getattr(plugin, "__name__", ""), plugin=plugin)


def from_file(path: str) -> tuple[str, object]:
    """Import a plugin from a single file that is not installed; return its name and module.

    The module is called as the file, so ``factory="tickets:Tickets"`` names what is in
    ``tickets.py``.

    Args:
        path: The file.

    Raises:
        PluginError: If the file cannot be imported.
    """
    from importlib import util

    from delf.errors import PluginError

    name = Path(path).stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(Path(path).resolve()):
            return name, known
        raise PluginError(f"{path}: a module {name!r} already exists; rename the file")
    spec = util.spec_from_file_location(name, Path(path).resolve())
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    module = sys.modules[name] = util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise PluginError(f"{path}: {type(error).__name__}: {error}") from error
    return name, module


def normalise(name: str) -> str:
    """Normalise a distribution's name for comparison."""
    return _SEPARATORS.sub("-", name).lower()


def _read(distribution: Distribution) -> list[Candidate]:
    """Return the plugins of one distribution; a defect in it becomes a candidate with a problem."""
    try:
        text = distribution.read_text("entry_points.txt") or ""
    except (OSError, ValueError):
        return []  # whether it holds a plugin cannot be known: not ours to report
    # Most distributions have no such section: to parse them all takes longer than the rest.
    if not _SECTION.search(text):
        return []
    name = _UNKNOWN
    try:
        name, version, keywords = _headers(distribution)
        points = list(distribution.entry_points.select(group=ENTRY_POINT_GROUP))
        exported = distribution.entry_points.select(group=EXPORTS_GROUP)
        exports = tuple((point.name, point.value) for point in exported)
    except Exception as error:
        problem = f"its metadata cannot be read: {type(error).__name__}: {error}"
        return [Candidate(name=name, distribution=name, problem=problem)]
    return [
        Candidate(
            name=point.name,
            target=point.value,
            distribution=name,
            version=version,
            keywords=keywords,
            exports=exports,
        )
        for point in points
    ]


def _headers(distribution: Distribution) -> tuple[str, str | None, tuple[str, ...]]:
    # Only the headers: a METADATA file carries the whole README, which is slow to parse.
    from email.parser import HeaderParser

    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    message = HeaderParser().parsestr(re.split(r"\r?\n\r?\n", text, maxsplit=1)[0])
    keywords = re.split(r"[\s,]+", message.get("Keywords", ""))
    return (
        message.get("Name") or _UNKNOWN,
        message.get("Version"),
        tuple(word for word in keywords if word),
    )
