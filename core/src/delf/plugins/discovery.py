"""Discovery of plugins by the metadata of installed distributions; imports no plugin.

``importlib.metadata.entry_points()`` is not used: it reads the files of all distributions at once,
so that a single malformed file of any package hides every plugin.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from delf.hookspecs import CONNECTIONS_GROUP, ENTRY_POINT_GROUP, EXPORTS_GROUP
from delf.records import dataclass

_GROUPS = "|".join(map(re.escape, (ENTRY_POINT_GROUP, CONNECTIONS_GROUP)))
_SECTION = re.compile(rf"^\s*\[\s*(?:{_GROUPS})\s*\]", re.MULTILINE)
_KEYWORD = re.compile(r"\bdelf-plugin-api-\d", re.IGNORECASE)
_SEPARATORS = re.compile(r"[-_.]+")
ReadText = Callable[[str], str | None]
"""Reads a metadata file of a distribution; None if the file is missing."""
_EntryPoints = Mapping[str, list[tuple[str, str]]]  # pairs of name and target by group
_UNKNOWN: Final = "a distribution without a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plugin as its distribution describes it.

    Args:
        name: The entry point's name; what users type to block it.
        target: ``module`` or ``module:attribute``.
        distribution: The distribution's name; None for a plugin given in code.
        version: The distribution's version.
        keywords: The keywords of the distribution's metadata.
        exports: Pairs of a name for ``from delf import NAME`` and the object's
            ``module:attribute``.
        connection: The ``module:attribute`` of a connection's class. None if the entry point names
            a module with hooks.
        summary: The one-line description in the distribution's metadata.
        plugin: The module or object of a plugin given in code, else None.
        problem: The defect of the metadata, if any.
        blocked: The setting that blocked the plugin, if any.
    """

    name: str
    target: str = ""
    distribution: str | None = None
    version: str | None = None
    keywords: tuple[str, ...] = ()
    exports: tuple[tuple[str, str], ...] = ()
    connection: str | None = None
    summary: str = ""
    plugin: object | None = None
    problem: str | None = None
    blocked: str | None = None

    @property
    def origin(self) -> str:
        """The distribution and version, for messages."""
        if self.distribution is None:
            return f"plugin {self.name!r} given in code"
        if self.version:
            return f"{self.distribution} {self.version}"
        return self.distribution


def installation_stamp() -> Hashable:
    """Return a value that changes when a package is installed or removed.

    Installers change folders on Python's path, and so the folders' modification times.
    """
    return tuple(sys.path), tuple(map(_modification_time, sys.path)), tuple(sys.meta_path)


def _modification_time(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - at each start, for each folder
    except (OSError, ValueError):
        return 0


def discover() -> tuple[Candidate, ...]:
    """Return all installed plugins, ordered by name, then distribution."""
    return _discover(installation_stamp())


@lru_cache(4)
def _discover(_cache_key: Hashable) -> tuple[Candidate, ...]:
    """Discover the plugins of all distributions.

    Args:
        _cache_key: Any value that changes with the installed distributions.
    """
    plugins: list[Candidate] = []
    seen_names: set[str] = set()
    for read_metadata_file in metadata_readers():  # one function for each distribution
        candidates = _read_candidates(read_metadata_file)
        if not candidates:
            continue
        # Of two copies of a distribution, an import finds the copy that is first on sys.path.
        distribution_name = normalise(candidates[0].distribution or "")
        if distribution_name not in seen_names:
            seen_names.add(distribution_name)
            plugins += candidates
    return tuple(sorted(plugins, key=lambda item: (item.name, item.distribution or "")))


def in_code(plugins: Iterable[tuple[str, object]]) -> Iterator[Candidate]:
    """Yield candidates for plugins that a test or program passes as ``(name, module)`` pairs.

    An object with hooks may take the place of the module.
    """
    for name, plugin in plugins:
        yield Candidate(name=name, target=getattr(plugin, "__name__", ""), plugin=plugin)


def from_file(path: str) -> tuple[str, object]:
    """Import a plugin from a single file that is not installed; return its name and module.

    The module is imported under the file's name, so that the plugin's specs can refer to it:
    ``factory="tickets:Tickets"`` is the class ``Tickets`` in ``tickets.py``.

    Args:
        path: The file.

    Raises:
        PluginError: If the file cannot be imported.
    """
    from importlib import util

    from delf.errors import PluginError

    name = Path(path).stem
    existing_module = sys.modules.get(name)
    if existing_module is not None:
        if getattr(existing_module, "__file__", None) == str(Path(path).resolve()):
            return name, existing_module
        raise PluginError(f"{path}: a module {name!r} already exists; rename the file")
    spec = util.spec_from_file_location(name, Path(path).resolve())
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    # Store the module before its code runs, as an import does: ``@dataclass``, for example, looks
    # up the module.
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


def metadata_readers(path: Sequence[str] | None = None) -> Iterator[ReadText]:
    """Yield a reader of metadata for each installed distribution, in the order of ``sys.path``.

    ``importlib.metadata`` takes long to import, so this function reads the folders itself. It needs
    ``importlib.metadata`` only for distributions in zip files, frozen programs and the like.

    Args:
        path: The folders to search; ``sys.path`` when omitted.
    """
    path = sys.path if path is None else path
    for entry in path:
        folder = entry or "."
        try:
            names = os.listdir(folder)  # noqa: PTH208 - at each start, for each folder
        except NotADirectoryError:
            yield from _readers_from_finders([PathFinder], [entry])
        except OSError:
            continue
        else:
            for name in names:
                if name.endswith((".dist-info", ".egg-info")) or name == "EGG-INFO":
                    yield partial(_text_in, f"{folder}/{name}")
    other_finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    yield from _readers_from_finders(other_finders, path)


def _readers_from_finders(finders: Iterable[Any], path: Sequence[str]) -> Iterator[ReadText]:
    """Yield a reader for each distribution that import finders find on a path."""
    methods = [getattr(finder, "find_distributions", None) for finder in finders]
    for find in filter(None, methods):
        # Imported only if there is such a finder, because the import is slow.
        from importlib.metadata import DistributionFinder

        for distribution in find(DistributionFinder.Context(path=list(path))):
            yield distribution.read_text


def _text_in(folder: str, name: str) -> str | None:
    try:
        with open(f"{folder}/{name}", encoding="utf-8") as file:  # noqa: PTH123 - faster
            return file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
        return None


def _read_candidates(read_text: ReadText) -> list[Candidate]:
    """Return the plugins of one distribution.

    If the metadata of a plugin is broken, return one candidate with the fault as ``problem``.
    """
    try:
        text = read_text("entry_points.txt") or ""
    except (OSError, ValueError) as error:
        return _broken_candidates(read_text, f"{type(error).__name__}: {error}")
    # Most distributions are no plugins, and parsing all of them would be slow.
    if ENTRY_POINT_GROUP not in text:
        return []
    if not _SECTION.search(text):  # the group's name is there, but not as a section's header
        return _broken_candidates(read_text, f"there is no line [{ENTRY_POINT_GROUP}]")
    name = _UNKNOWN
    try:
        headers = _read_headers(read_text)
        name = headers.get("name") or _UNKNOWN
        points = _entry_points(text)
    except Exception as error:
        problem = f"its metadata cannot be read: {type(error).__name__}: {error}"
        return [Candidate(name=name, distribution=name, problem=problem)]
    return list(_make_candidates(name, headers, points))


def _make_candidates(
    distribution: str, headers: Mapping[str, str], points: _EntryPoints
) -> Iterator[Candidate]:
    """Yield a plugin for each entry point of a distribution that names a plugin or a connection."""
    keywords = tuple(re.findall(r"[^\s,]+", headers.get("keywords", "")))
    for group in (ENTRY_POINT_GROUP, CONNECTIONS_GROUP):
        for name, target in points.get(group, ()):
            yield Candidate(
                name=name,
                target=target,
                distribution=distribution,
                version=headers.get("version"),
                keywords=keywords,
                exports=tuple(points.get(EXPORTS_GROUP, ())),
                connection=target if group == CONNECTIONS_GROUP else None,
                summary=headers.get("summary", ""),
            )


def _broken_candidates(read_text: ReadText, problem: str) -> list[Candidate]:
    """Return one candidate with a problem for a distribution whose entry points cannot be read.

    Return no candidate for a distribution that is no plugin of delf according to its keywords.
    """
    try:
        headers = _read_headers(read_text)
    except (OSError, ValueError):
        return []
    name = headers.get("name")
    keywords = headers.get("keywords", "")
    if name is None or not _KEYWORD.search(keywords):
        return []  # not a plugin of delf
    problem = f"its entry_points.txt cannot be read: {problem}"
    return [Candidate(name=name, distribution=name, problem=problem)]


def _entry_points(text: str) -> _EntryPoints:
    """Parse ``entry_points.txt``; return pairs of name and target by group.

    Raises:
        ValueError: If a line is invalid.
    """
    entry_points: dict[str, list[tuple[str, str]]] = {}
    points: list[tuple[str, str]] = []  # of the current section; those before a section are dropped
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            points = entry_points.setdefault(line[1:-1].strip(), [])
        elif line and not line.startswith("#"):
            name, equals, target = line.partition("=")
            if not equals:
                raise ValueError(f"{line!r} is no entry point")
            points.append((name.strip(), target.strip()))
    return entry_points


def _read_headers(read_text: ReadText) -> dict[str, str]:
    """Parse the headers of the metadata file; of a repeated header return the first value."""
    text = read_text("METADATA") or read_text("PKG-INFO") or ""
    header_lines = itertools.takewhile(bool, text.splitlines())  # up to the first empty line
    # A line that begins with a blank continues the line before.
    unfolded = re.sub(r"[ \t]*\n[ \t]+", " ", "\n".join(header_lines))
    headers: dict[str, str] = {}
    for line in unfolded.split("\n"):
        name, _, value = line.partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    return headers
