"""Packages that can be installed, their names, and their sources.

Only delf's own packages and full names that start with ``delf-plugin-`` are accepted. Packages of a
clone or a folder of wheels are never looked up on an index.
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
from delf.machine.folders import expand_home
from delf.packages.namesake import NAMESAKE
from delf.packages.official import PLUGIN_PREFIX, all_packages, package_providing

# The least similarity, from 0 to 1, at which an error suggests one of delf's own names.
_MIN_SIMILARITY_OF_FULL_NAME: Final = 0.8
_MIN_SIMILARITY_OF_SHORT_NAME: Final = 0.6


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package in a folder or a wheel.

    Args:
        name: The distribution's name.
        path: The folder, or the wheel.
        requires: The requirements, as in ``Requires-Dist``.
        editable: Whether to install the package in editable mode.
    """

    name: str
    path: Path
    requires: Sequence[str]
    editable: bool = False

    def needs(self, extras: Iterable[str]) -> Iterator[Requirement]:
        """Yield the requirements of the package and of some extras that apply to this machine."""
        environments = [{"extra": extra} for extra in ("", *extras)]  # "": without any extra
        for requirement in map(Requirement, self.requires):
            marker = requirement.marker
            if marker is None or any(map(marker.evaluate, environments)):
                yield requirement

    def argument(self, extras: Iterable[str]) -> str:
        """Return the argument for ``pip install`` that installs the package with some extras."""
        if self.editable:
            return f"--editable={self.path}{_bracket(extras)}"
        return f"{self.name}{_bracket(extras)} @ {self.path.as_uri()}"


@dataclass(frozen=True)
class Item:
    """A package to install.

    Args:
        name: The distribution's name.
        origin: The source of the package as a phrase, such as ``from the index``.
        argument: The argument for ``pip install``.
    """

    name: str
    origin: str
    argument: str


@dataclass
class Sources:
    """The packages that are available without an index.

    Args:
        packages: The packages in the cloned repository and in the folder of wheels, by name.
    """

    packages: Mapping[str, Package] = field(default_factory=dict[str, Package])

    def items(self, names: Iterable[str], *, editable: bool = False) -> list[Item]:
        """Return the packages to install; requirements come before the packages that need them.

        Args:
            names: Names of plugins, names of packages, folders, or wheels.
            editable: Whether to install folders in editable mode.

        Raises:
            PluginError: If a name is unknown.
        """
        items_by_argument: dict[str, Item] = {}
        for name in names:
            for item in self._items_of(name, editable=editable):
                items_by_argument.setdefault(item.argument, item)
        return list(items_by_argument.values())

    def constraints(self, items: Iterable[Item]) -> list[str]:
        """Return constraints that make pip take dependencies from these sources, not from an index.

        Args:
            items: The packages to install. They get no constraint, because pip gets their paths.
        """
        names = {item.name for item in items}
        constraints: list[str] = []
        for package in self.packages.values():
            if package.name in names or is_installed(package.name):
                continue
            constraints.append(f"{package.name} @ {package.path.as_uri()}")
        return constraints

    def _items_of(self, name: str, *, editable: bool) -> Iterator[Item]:
        """Yield the packages to install for a name that the user entered.

        The name means a folder or a wheel, a package of ``self.packages`` (available without an
        index), or a package of the index.
        """
        path, _, bracket = name.partition("[")
        if _is_path(path):
            extras = {extra.strip() for extra in bracket.removesuffix("]").split(",") if extra}
            package = _package_at(expand_home(path).resolve(), editable=editable)
            yield from self._with_requirements(package, extras)
            return
        if editable:
            raise PluginError(f"{name!r} is not a folder", hint=f"write it as './{name}'")
        requirement = _requirement(name)
        distribution = _known_distribution(requirement.name)
        package = self.packages.get(distribution)
        if package is None:
            yield _item_of_index(distribution, requirement)
        elif requirement.specifier:
            raise PluginError(
                f"{distribution} comes from {package.path}", hint="leave the version out"
            )
        else:
            yield from self._with_requirements(package, requirement.extras)

    def _with_requirements(self, package: Package, extras: Iterable[str]) -> Iterator[Item]:
        """Yield the requirements of a package that are not installed, then the package.

        Requirements in these sources are named explicitly, so that pip does not look for them in an
        index. Other requirements are left out, and pip takes them from an index.
        """
        visited: set[tuple[str, frozenset[str]]] = set()

        def missing_requirements(parent: Package, parent_extras: Iterable[str]) -> Iterator[Item]:
            for requirement in parent.needs(parent_extras):
                name = canonicalize_name(requirement.name)
                required_extras = frozenset(requirement.extras)
                required = self.packages.get(name)
                if required is None or (name, required_extras) in visited:
                    continue
                visited.add((name, required_extras))
                yield from missing_requirements(required, required_extras)
                # is_installed() does not know whether the extras are installed, too.
                if required_extras or not is_installed(name):
                    yield _item(required, required_extras)

        yield from missing_requirements(package, extras)
        yield _item(package, extras)


def _is_path(name: str) -> bool:
    """Return True for ``./plugin`` or ``folder/plugin``; False for ``sql`` or a URL."""
    text_before_url_host = name.partition("://")[0]
    return name.startswith((".", "~", "/")) or "/" in text_before_url_host


def _item_of_index(distribution: str, requirement: Requirement) -> Item:
    is_own = distribution in _names_of_delf_packages()
    origin = "from the index" if is_own else "from the index; not one of delf's own"
    argument = f"{distribution}{_bracket(requirement.extras)}{requirement.specifier}"
    return Item(distribution, origin, argument)


def _item(package: Package, extras: Iterable[str]) -> Item:
    return Item(package.name, f"from {package.path}", package.argument(extras))


def _bracket(extras: Iterable[str]) -> str:
    names = ",".join(sorted(extras))
    return f"[{names}]" if names else ""


def sources(find_links: Path | None = None) -> Sources:
    """Return the packages that are available without an index.

    The result has the packages of the clone that delf was installed from, and the wheels of a
    folder.
    """
    return Sources({**packages_of_clone(), **_wheels(find_links)})


def packages_of_clone() -> Mapping[str, Package]:
    """Return the packages in the clone that delf was installed from, by name.

    The mapping is empty if delf was not installed from a clone. The packages are marked for
    editable installation if delf itself is installed in editable mode.
    """
    origin: dict[str, Any] = json.loads(
        metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
    )
    url: str = origin.get("url", "")
    core_folder = Path(unquote(urlsplit(url).path))
    # By PEP 610, only an installation from a folder has the key "dir_info".
    if "dir_info" not in origin or not core_folder.is_dir():
        return {}
    editable = bool(origin["dir_info"].get("editable"))
    clone_folder = core_folder.parent
    other_folders = [file.parent for file in sorted(clone_folder.glob("*/*/pyproject.toml"))]
    packages = [_package_in(folder, editable=editable) for folder in (core_folder, *other_folders)]
    names = _names_of_delf_packages()
    return {package.name: package for package in packages if package and package.name in names}


def is_installed(name: str) -> bool:
    """Return whether a distribution is installed."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _names_of_delf_packages() -> frozenset[str]:
    return all_packages() | {DISTRIBUTION}


def _package_at(path: Path, *, editable: bool) -> Package:
    package = _wheel(path) if path.suffix == ".whl" else _package_in(path, editable=editable)
    if package is None:
        raise PluginError(
            f"{path} is not a package", hint="name a folder with a pyproject.toml, or a wheel"
        )
    return package


def _package_in(folder: Path, *, editable: bool) -> Package | None:
    """Read the package of a folder; None without a ``pyproject.toml`` that names a package."""
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
        requires += [_requirement_of_extra(line, extra) for line in lines]
    name = canonicalize_name(project["name"])
    return Package(name=name, path=folder, requires=requires, editable=editable)


def _requirement_of_extra(line: str, extra: str) -> str:
    plain, _, marker = line.partition(";")
    condition = f'extra == "{extra}"'
    if marker:
        return f"{plain} ; ({marker.strip()}) and {condition}"
    return f"{plain} ; {condition}"


def _wheels(folder: Path | None) -> Mapping[str, Package]:
    """Return the newest wheel in a folder of each of delf's own packages, by package name."""
    paths = folder.resolve().glob("delf_*.whl") if folder else ()
    wheels: dict[str, Package] = {}
    for path in sorted(paths, key=_version):  # a newer wheel replaces an older one
        package = _wheel(path)
        if package is not None and package.name in _names_of_delf_packages():
            wheels[package.name] = package
    return wheels


def _version(wheel: Path) -> Version:
    try:
        return parse_wheel_filename(wheel.name)[1]
    except InvalidWheelFilename:
        return Version("0")


def _wheel(path: Path) -> Package | None:
    """Read the package in a wheel; None for a file that is no wheel."""
    try:
        name = parse_wheel_filename(path.name)[0]
        # The folder has the name and the version as they are written in the name of the file.
        file_parts = path.name.split("-")  # name, version and tags
        info_folder = f"{file_parts[0]}-{file_parts[1]}.dist-info/"
        requires = metadata.PathDistribution(zipfile.Path(path, info_folder)).requires
    except (InvalidWheelFilename, OSError, zipfile.BadZipFile):
        return None
    return Package(name=name, path=path, requires=requires or ())


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


def _known_distribution(name: str) -> str:
    """Return the distribution for a name that the user entered.

    The name means one of delf's own distributions, or is the full name of another plugin.

    Raises:
        PluginError: If the name is unknown, or probably a typo.
    """
    full_name = canonicalize_name(name)
    if full_name == NAMESAKE:
        raise PluginError(
            f"{name!r} is another project's package", hint=f"delf's own is {DISTRIBUTION}"
        )
    for candidate in (full_name, f"{PLUGIN_PREFIX}{full_name}"):
        if candidate in _names_of_delf_packages():
            return candidate
    if not full_name.startswith(PLUGIN_PREFIX):
        raise _unknown_plugin(name, _plugin_meant_by(name))
    # A full name that resembles one of delf's own names is probably a typo.
    suggestion = _similar_plugin(full_name, _MIN_SIMILARITY_OF_FULL_NAME)
    if suggestion is not None:
        raise _unknown_plugin(name, suggestion)
    return full_name  # of another author's plugin


def _unknown_plugin(name: str, suggestion: str | None) -> PluginError:
    question = "" if suggestion is None else f"; did you mean {suggestion!r}?"
    if Path(name, "pyproject.toml").is_file():
        hint = f"a folder is written as ./{name}"
    else:
        hint = (
            "delf plugins available lists delf's own; write the full name of a plugin of another "
            f"author: {PLUGIN_PREFIX}NAME"
        )
    return PluginError(f"no plugin is known as {name!r}{question}", hint=hint)


def _plugin_meant_by(name: str) -> str | None:
    """Return the short name of the plugin of delf that a name probably means; None if unknown.

    The name may be that of a connection or another capability, or a misspelt name of a plugin.
    """
    providing_package = package_providing(name)  # for example of a connection with this name
    if providing_package:
        return providing_package.removeprefix(PLUGIN_PREFIX)
    return _similar_plugin(canonicalize_name(name), _MIN_SIMILARITY_OF_SHORT_NAME)


def _similar_plugin(name: str, min_similarity: float) -> str | None:
    """Return the short name of delf's own plugin with the most similar name.

    None if no name is similar enough.
    """
    own_names = _names_of_delf_packages()
    plugins = [
        each.removeprefix(PLUGIN_PREFIX) for each in own_names if each.startswith(PLUGIN_PREFIX)
    ]
    short_name = name.removeprefix(PLUGIN_PREFIX)
    return next(iter(get_close_matches(short_name, plugins, n=1, cutoff=min_similarity)), None)
