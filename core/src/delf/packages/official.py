"""delf's own packages: the capabilities of each package, and its install command.

The names of packages are in ``official.json``, not in code. delf suggests only these packages for
installation. The first package of a kind is the default.
"""

from __future__ import annotations

from functools import cache
from typing import Final

_CORE: Final = "delf-core"
_PROGRAM: Final = "delf_cli"
PLUGIN_PREFIX: Final = "delf-plugin-"
_MODELS: Final = "models"


@cache
def _official_json() -> dict[str, dict[str, str]]:
    """Return the content of ``official.json``: for each kind, a mapping from name to package."""
    import json
    from pathlib import Path

    return json.loads(Path(__file__).with_name("official.json").read_text(encoding="utf-8"))


def packages(kind: str) -> dict[str, str]:
    """Return the names of a kind, each with delf's package that provides it.

    For ``connection``, the result has entries such as ``{"tickets": "delf-plugin-tickets"}``.

    Args:
        kind: A kind of plugin, such as ``connection`` or ``sandbox``, or one of:

            - ``exports``: public classes and functions.
            - ``library``: modules that several plugins share.
            - ``installer``: the command that installs packages.
    """
    return _official_json()[kind]


def model_clients() -> dict[str, str]:
    """Return patterns of model names, such as ``acme/*``, each with the name of a model client."""
    return _official_json()[_MODELS]


def package_of(kind: str, name: str) -> str | None:
    """Return the package of delf that provides a name, such as the sandbox ``local``.

    Args:
        kind: The kind of the name, as in :func:`packages`.
        name: The name.

    Returns:
        The name of the package; None if no package of delf provides the name.
    """
    return packages(kind).get(name)


def package_providing(name: str) -> str | None:
    """Return the package of delf that provides a public class, a plugin or another public name.

    None if no package provides the name.
    """
    kinds = (kind for kind in _official_json() if kind not in (_MODELS, "installer", "library"))
    return next(filter(None, (package_of(kind, name) for kind in kinds)), None)


def recommended_plugin(kind: str) -> str:
    """Return the name of the recommended plugin of a kind, such as ``journal``.

    The recommended plugin is the first in the list of official packages of that kind.
    """
    return next(iter(packages(kind)))


def recommended_client(model: str) -> str:
    """Return the name of the recommended model client for a model's name."""
    from fnmatch import fnmatchcase

    return next(name for pattern, name in model_clients().items() if fnmatchcase(model, pattern))


def client_of_prefix(model: str) -> tuple[str, str] | None:
    """Return the model client that a model's name requests by its prefix, as in ``word:name``.

    Args:
        model: The model's name.

    Returns:
        The pattern of such names (``word:*``) and the name of the client; None if the name has no
        prefix of an official client.
    """
    prefix, colon, _ = model.partition(":")
    if not colon:
        return None
    pattern = f"{prefix}:*"
    client = model_clients().get(pattern)
    return None if client is None else (pattern, client)


def all_packages() -> frozenset[str]:
    """Return the names of all delf packages except the core."""
    package_names: set[str] = set()
    for kind, package_by_name in _official_json().items():
        # The table ``models`` maps patterns to the names of model clients, not to packages.
        if kind != _MODELS:
            package_names.update(package_by_name.values())
    return frozenset(package_names)


def module_of(package: str) -> str:
    """Return the module name of an official package."""
    name = package.removeprefix(PLUGIN_PREFIX).removeprefix("delf-")
    return f"delf_{name.replace('-', '_')}"


def how_to_install(package: str) -> str:
    """Return the command that installs a package.

    delf's own packages are not on PyPI, so their command is that of delf's installer, or a ``pip``
    command with ``--find-links`` if the installer is missing. For any other package, the command is
    ``pip install NAME``.
    """
    from importlib.util import find_spec
    from shlex import quote

    is_plugin = package.startswith(PLUGIN_PREFIX)
    is_core = package.partition("[")[0] == _CORE
    if not (is_plugin or is_core or package in all_packages()):
        return f"pip install {quote(package)}"
    # The table has one entry: the command that installs, and the package of that command.
    command, installer = next(iter(packages("installer").items()))
    if find_spec(_PROGRAM) is None or find_spec(module_of(installer)) is None:
        # Without the installer, pip takes the wheel that ``make dist`` has built.
        return f"pip install --find-links dist {quote(package)}"
    return f"delf {command} {quote(package.removeprefix(PLUGIN_PREFIX))}"
