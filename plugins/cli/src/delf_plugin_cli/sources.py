"""Packages that can be installed, their names, and their sources.

Only known names are taken: those of delf's own packages, and in full those of others that begin
with ``delf-plugin-``. What a clone or a folder of wheels has is never looked for on an index.
"""

from __future__ import annotations

import json
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from delf.errors import PluginError
from delf.hookspecs import DISTRIBUTION
from delf.packages.namesake import NAMESAKE
from delf.packages.official import PLUGIN_PREFIX, all_packages, package_bringing

_A_TYPO: Final = 0.8
"""The similarity of a foreign plugin's name to one of delf's own that counts as a typo."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package in a folder or a wheel.

    Args:
        name: The distribution's.
        path: The folder, or the wheel.
        version: Its version, where that is written down.
        requires: What it needs, as in ``Requires-Dist``.
        editable: It is used where it is.
    """

    name: str
    path: Path
    version: str | None
    requires: Sequence[str]
    editable: bool = False

    def needs(self, extras: Iterable[str]) -> Iterator[Requirement]:
        """Yield its requirements here, with some of its extras."""
        for need in map(Requirement, self.requires):
            if any(_applies(need, extra) for extra in ("", *extras)):
                yield need

    def extra_needs(self, extras: Iterable[str]) -> Iterator[Requirement]:
        """Yield the requirements of these extras alone."""
        for need in map(Requirement, self.requires):
            if not _applies(need, "") and any(_applies(need, extra) for extra in extras):
                yield need

    def argument(self, extras: Iterable[str]) -> str:
        """Return its argument for pip."""
        bracket = f"[{','.join(sorted(extras))}]" if extras else ""
        if self.editable:
            return f"--editable={self.path}{bracket}"
        return f"{self.name}{bracket} @ {self.path.as_uri()}"


@dataclass(frozen=True)
class Item:
    """One thing to install.

    Args:
        name: The distribution's.
        origin: Where it comes from, for whoever is asked.
        argument: How it is handed to pip.
    """

    name: str
    origin: str
    argument: str


@dataclass
class Sources:
    """Packages that are at hand, by name.

    Args:
        packages: Those of a clone and of a folder of wheels.
    """

    packages: Mapping[str, Package] = field(default_factory=dict[str, Package])

    def items(self, names: Iterable[str], *, editable: bool = False) -> list[Item]:
        """List the packages to install, each after its requirements.

        Args:
            names: What the user wrote: names of plugins and packages, folders, wheels.
            editable: Use folders where they are.

        Raises:
            PluginError: For a name that is not known.
        """
        found: dict[str, Item] = {}
        for name in names:
            for item in self._items_of(name, editable=editable):
                found.setdefault(item.argument, item)
        return list(found.values())

    def constraints(self, items: Iterable[Item]) -> list[str]:
        """Lines that tell pip where a package comes from that somebody else's plugin needs."""
        named = {item.name for item in items}
        return [
            f"{package.name} @ {package.path.as_uri()}"
            for package in self.packages.values()
            if package.name not in named and not is_installed(package.name)
        ]

    def _items_of(self, name: str, *, editable: bool) -> Iterator[Item]:
        path = _path_in(name)
        if path is not None:
            package, extras = _package_at(path, editable=editable), _extras_in(name)
            yield from self._with_needs(package, extras, is_changed=_is_changed(package))
            return
        wanted = _requirement(name)
        full = _known(wanted.name)
        if editable:
            raise PluginError(f"{name!r} is not a folder", hint=f"write it as './{name}'")
        package = self.packages.get(full)
        if package is None:
            ours = "from the index" if full in _ours() else "from the index; not one of delf's own"
            extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
            yield Item(full, ours, f"{full}{extras}{wanted.specifier}")
            return
        if package.version and not wanted.specifier.contains(package.version, prereleases=True):
            raise PluginError(
                f"{full} is {package.version} in {package.path}, not {wanted.specifier}"
            )
        yield from self._with_needs(package, wanted.extras)

    def _with_needs(
        self, package: Package, extras: Iterable[str], *, is_changed: bool = False
    ) -> Iterator[Item]:
        yield from self._needs_of(package, frozenset(extras), set())
        yield from self._itself(package, extras, is_there=_is_current(package) and not is_changed)

    def _needs_of(
        self, package: Package, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]
    ) -> Iterator[Item]:
        """Yield the requirements of a package that are at hand and not installed, deepest first."""
        for need in package.needs(extras):
            name, of_need = canonicalize_name(need.name), frozenset(need.extras)
            known = self.packages.get(name)
            if known is None or (name, of_need) in seen:
                continue
            seen.add((name, of_need))
            yield from self._needs_of(known, of_need, seen)
            yield from self._itself(known, of_need, is_there=is_installed(name))

    def _itself(self, package: Package, extras: Iterable[str], *, is_there: bool) -> Iterator[Item]:
        """A package; where it is there, only what its extras need of others."""
        if not is_there:
            yield Item(package.name, f"from {package.path}", package.argument(extras))
            return
        for need in package.extra_needs(extras):
            if canonicalize_name(need.name) not in self.packages:
                plain = str(need).partition(";")[0].strip()
                yield Item(need.name, f"for {package.name}", plain)


def sources(find_links: Path | None = None) -> Sources:
    """Find the packages of the clone that delf was installed from, and of a folder of wheels.

    Args:
        find_links: The folder.
    """
    return Sources({**clone(), **_wheels(find_links)})


def clone() -> Mapping[str, Package]:
    """The packages of the clone that delf was installed from; none where it was not.

    They are used where they are if delf's own is.
    """
    origin = _origin(DISTRIBUTION)
    core = _path_of(origin)
    if "dir_info" not in origin or not core.is_dir():
        return {}
    editable = _is_editable(origin)
    folders = [core, *(file.parent for file in sorted(core.parent.glob("*/*/pyproject.toml")))]
    found = [_package_in(folder, editable=editable) for folder in folders]
    ours = _ours()
    return {package.name: package for package in found if package and package.name in ours}


def is_installed(name: str) -> bool:
    """Tell whether a distribution is there."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _is_current(package: Package) -> bool:
    """Tell whether a package needs nothing: delf runs from it, or it is used in place."""
    if package.name == DISTRIBUTION:
        return True
    if not package.editable or not is_installed(package.name):
        return False
    origin = _origin(package.name)
    return _is_editable(origin) and _path_of(origin) == package.path


def _is_changed(package: Package) -> bool:
    """Tell whether a folder's pyproject.toml was written after it was installed."""
    project = package.path / "pyproject.toml"
    is_ours = package.name == DISTRIBUTION
    if is_ours or not project.is_file() or not is_installed(package.name):
        return False
    record = _record_of(package.name)
    return record is not None and project.stat().st_mtime > record.stat().st_mtime


def _record_of(name: str) -> Path | None:
    """The file that an installer writes last: it has the names of all others."""
    files = metadata.distribution(name).files or ()
    found = (Path(str(file.locate())) for file in files if file.name == "RECORD")
    return next((path for path in found if path.is_file()), None)


def _origin(name: str) -> dict[str, Any]:
    """Return the source of a distribution's installation."""
    return json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")


def _is_editable(origin: Mapping[str, Any]) -> bool:
    return bool(origin.get("dir_info", {}).get("editable"))


def _path_of(origin: Mapping[str, Any]) -> Path:
    url: str = origin.get("url", "")
    return Path(unquote(urlsplit(url).path))


def _applies(need: Requirement, extra: str) -> bool:
    return need.marker is None or need.marker.evaluate({"extra": extra})


def _ours() -> frozenset[str]:
    return all_packages() | {DISTRIBUTION}


def _path_in(name: str) -> Path | None:
    """The folder or wheel that a name is: with a slash, or a dot ahead; else it is a name."""
    path = name.partition("[")[0] if name.endswith("]") else name
    is_path = path.startswith((".", "~")) or "/" in path or "\\" in path
    return Path(path).expanduser() if is_path and "://" not in path else None


def _extras_in(name: str) -> set[str]:
    bracket = name.partition("[")[2].removesuffix("]") if name.endswith("]") else ""
    return {extra.strip() for extra in bracket.split(",") if extra.strip()}


def _package_at(path: Path, *, editable: bool) -> Package:
    path = path.resolve()
    found = _wheel(path) if path.suffix == ".whl" else _package_in(path, editable=editable)
    if found is None:
        raise PluginError(
            f"{path} is not a package", hint="name a folder with a pyproject.toml, or a wheel"
        )
    return found


def _package_in(folder: Path, *, editable: bool) -> Package | None:
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text).get("project", {})
    except OSError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PluginError(f"{folder}/pyproject.toml cannot be read: {error}") from None
    if "name" not in project:
        return None
    requires = list(project.get("dependencies", ()))
    for extra, lines in project.get("optional-dependencies", {}).items():
        requires += [_of_extra(line, extra) for line in lines]
    return Package(
        name=canonicalize_name(project["name"]),
        path=folder,
        version=project.get("version"),
        requires=requires,
        editable=editable,
    )


def _of_extra(line: str, extra: str) -> str:
    plain, _, marker = line.partition(";")
    condition = f'extra == "{extra}"'
    return f"{plain} ; ({marker.strip()}) and {condition}" if marker else f"{plain} ; {condition}"


def _wheels(folder: Path | None) -> Mapping[str, Package]:
    """The newest wheel of each of delf's own packages in a folder."""
    found: dict[str, Package] = {}
    for path in sorted(folder.resolve().glob("delf_*.whl")) if folder else ():
        package = _wheel(path)
        if package is None or package.name not in _ours():
            continue
        other = found.get(package.name)
        if other is None or Version(package.version or "0") > Version(other.version or "0"):
            found[package.name] = package
    return found


def _wheel(path: Path) -> Package | None:
    try:
        name, version, *_ = parse_wheel_filename(path.name)
        info = f"{'-'.join(path.name.split('-')[:2])}.dist-info/"
        requires = metadata.PathDistribution(zipfile.Path(path, info)).requires
    except (InvalidWheelFilename, OSError, zipfile.BadZipFile):
        return None
    return Package(name=name, path=path, version=str(version), requires=requires or ())


def _requirement(name: str) -> Requirement:
    try:
        wanted = Requirement(name)
    except InvalidRequirement:
        wanted = None
    if wanted is None or wanted.url or wanted.marker:
        raise PluginError(
            f"{name!r} is not the name of a plugin",
            hint="write a name as sql or 'sql[postgresql]', a folder as ./mine, or a wheel",
        )
    return wanted


def _known(name: str) -> str:
    """The package that a name means."""
    full, ours = canonicalize_name(name), _ours()
    if full == NAMESAKE:
        raise PluginError(
            f"{name!r} is another project's package", hint=f"delf's own is {DISTRIBUTION}"
        )
    if full in ours:
        return full
    if f"{PLUGIN_PREFIX}{full}" in ours:
        return f"{PLUGIN_PREFIX}{full}"
    short = full.removeprefix(PLUGIN_PREFIX)
    plugins = [p.removeprefix(PLUGIN_PREFIX) for p in ours if p.startswith(PLUGIN_PREFIX)]
    if short == full:
        brought = package_bringing(name)
        meant = (
            [brought.removeprefix(PLUGIN_PREFIX)]
            if brought
            else get_close_matches(short, plugins, n=1)
        )
        hint = (
            f"a folder is written as ./{name}"
            if Path(name, "pyproject.toml").is_file()
            else "delf plugins available lists delf's own; another's is named in full: "
            f"{PLUGIN_PREFIX}NAME"
        )
        raise PluginError(f"no plugin is known as {name!r}{_asked(meant)}", hint=hint)
    if meant := get_close_matches(short, plugins, n=1, cutoff=_A_TYPO):
        raise PluginError(
            f"{name!r} is not one of delf's own plugins{_asked(meant)}",
            hint="delf plugins available lists delf's own; use pip itself for any other package",
        )
    return full


def _asked(meant: Sequence[str]) -> str:
    return f"; did you mean {meant[0]!r}?" if meant else ""
