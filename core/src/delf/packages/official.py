"""delf's own packages: the capabilities of each package, and its install command.

Code names no plugin: ``official.json`` does, and delf suggests no other name for installation. The
first package of a kind is the default.
"""

from __future__ import annotations

from functools import cache
from typing import Final

_CORE: Final = "delf-core"
_PROGRAM: Final = "delf_cli"
PLUGIN_PREFIX: Final = "delf-plugin-"
_MODELS: Final = "models"


@cache
def _table() -> dict[str, dict[str, str]]:
    import json
    from pathlib import Path

    return json.loads(Path(__file__).with_name("official.json").read_text(encoding="utf-8"))


def packages(kind: str) -> dict[str, str]:
    """Return the packages that provide capabilities of a kind, by capability name.

    Args:
        kind: A kind of spec, or ``installer`` for the command that installs packages, ``exports``
            for public names, ``library`` for modules that several plugins share, ``prefilter_mode``
            for modes.
    """
    return _table()[kind]


def package_of(kind: str, name: str) -> str | None:
    """Return the package that provides an official name; None for other names."""
    return packages(kind).get(name)


def package_bringing(name: str) -> str | None:
    """Return the package that provides a capability or public name of any kind."""
    kinds = (kind for kind in _table() if kind not in (_MODELS, "installer", "library"))
    return next(filter(None, (package_of(kind, name) for kind in kinds)), None)


def usual(kind: str) -> str:
    """Return the recommended name of a kind, which is the first one listed."""
    return next(iter(packages(kind)))


def usual_model(model: str) -> str:
    """Return the recommended model client for a model."""
    from fnmatch import fnmatchcase

    names = _table()[_MODELS]
    return next(name for pattern, name in names.items() if fnmatchcase(model, pattern))


def kind_named_by(model: str) -> tuple[str, str] | None:
    """Return the pattern that matches a model's name, and the kind of plugin that serves it.

    Args:
        model: The model's name; one with the prefix ``word:`` matches the pattern ``word:*``.

    Returns:
        The pattern and the kind; None if no kind is known for the prefix.
    """
    prefix = f"{model.partition(':')[0]}:*"
    kind = _table()[_MODELS].get(prefix) if ":" in model else None
    return None if kind is None else (prefix, kind)


def all_packages() -> frozenset[str]:
    """Return the names of all delf packages except the core."""
    kinds = (names for kind, names in _table().items() if kind != _MODELS)
    return frozenset(package for names in kinds for package in names.values())


def module_of(package: str) -> str:
    """Return the module name of an official package."""
    name = package.removeprefix(PLUGIN_PREFIX).removeprefix("delf-")
    return f"delf_{name.replace('-', '_')}"


def how_to_install(package: str) -> str:
    """Return the command that installs a package.

    delf's packages are not on PyPI: the installer takes them from the clone, and pip from `dist`,
    the folder of wheels that `make dist` builds.
    """
    from importlib.util import find_spec
    from shlex import quote

    name = package.removeprefix(PLUGIN_PREFIX)
    command, installer = next(iter(packages("installer").items()))
    is_official = name != package or package in all_packages()
    if not is_official and package.partition("[")[0] != _CORE:
        return f"pip install {quote(package)}"
    if not all(map(find_spec, (_PROGRAM, module_of(installer)))):
        return f"pip install --find-links dist {quote(package)}"
    return f"delf {command} {quote(name)}"
