"""``official.json``: which of delf's own packages brings what, made from their specs.

``make generated`` writes it; a test compares. The core reads it to say which package to install,
and code names no package.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

from delf.hookspecs import HOOKS
from delf.plugins.host import PluginHost
from delf.specs import ModelSpec, Spec
from support.workspace import CORE, LIBRARIES, PLUGINS

FILE: Final = CORE / "src/delf/packages/official.json"
_OURS: Final = {f"delf-plugin-{plugin.name}" for plugin in PLUGINS}
_INSTALLER: Final = "plugins install"
"""The command that installs a package, from a clone, too."""
_LIBRARIES: Final = {f"delf-{library.name}": library.module for library in LIBRARIES}


def official() -> str:
    """Return the file for the packages of this repository, which are all installed here."""
    host = PluginHost.discover(environ={})
    specs: list[tuple[Spec, str]] = []
    exports: dict[str, str] = {}
    for record in host.records():
        package = record.distribution
        if package in _OURS:
            exports |= dict.fromkeys(dict(record.plugin.exports), package)
        if package in _OURS or package in _LIBRARIES:  # google brings a command, too
            specs += [(spec, package) for spec in host.specs_of(record.name)]
    specs.sort(key=lambda pair: _rank(*pair))
    table: dict[str, dict[str, str]] = {spec.kind: {} for spec in HOOKS.values()}
    for spec, package in specs:
        table[spec.kind][spec.name] = package
    table["models"] = dict(_patterns([spec for spec, _ in specs if isinstance(spec, ModelSpec)]))
    table["installer"] = {_INSTALLER: table["command"][_INSTALLER]}
    table["exports"] = dict(sorted(exports.items()))
    table["library"] = {module: package for package, module in _LIBRARIES.items()}
    return json.dumps(table, indent=2) + "\n"


def _rank(spec: Spec, package: str) -> tuple[Any, ...]:
    """The place of a spec: the usual one of its kind is the first."""
    asked_for = any(getattr(spec, name, False) for name in ("by_name", "opt_in", "fallback"))
    bundles = _bundles()
    many = sum(package in brought for brought in bundles.values())
    return spec.kind, asked_for, package not in bundles["standard"], -many, spec.name


def _bundles() -> dict[str, set[str]]:
    """The packages that each bundle names."""
    project = tomllib.loads((CORE / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return {name: {re.split(r"[\[>]", line)[0] for line in extras[name]} for name in extras}


def _patterns(specs: list[ModelSpec]) -> Iterator[tuple[str, str]]:
    """Yield patterns of models' names, each with the kind of model that serves it."""
    for spec in specs:
        yield from ((pattern, spec.name) for pattern in spec.serves)
    for spec in specs:
        for provider in spec.providers:
            if not spec.fallback:
                yield from ((pattern, spec.name) for pattern in provider.patterns())
    for spec in specs:
        if spec.fallback:
            yield "*/*", spec.name
    for spec in specs:
        if any(provider.compatible for provider in spec.providers) and not spec.fallback:
            yield "*", spec.name
