"""Plugins for tests: given as objects, or installed into a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from delf import __version__
from delf.hookspecs import (
    CONNECTIONS_GROUP,
    ENTRY_POINT_GROUP,
    EXPORTS_GROUP,
    HOOKS,
    PLUGIN_API,
    hookimpl,
)
from delf.plugins.discovery import Candidate
from delf.plugins.host import PluginHost
from delf.specs import Spec


class TestHost(PluginHost):
    """A plugin host to which a test adds capabilities without installing a plugin.

    Create a host with ``TestHost.discover(environ={})``, as for any host.
    """

    __test__ = False  # not a test class for pytest

    def __init__(self, candidates: Sequence[Candidate], **options: Any) -> None:
        super().__init__(candidates, **options)
        self._provided: dict[Spec, Any] = {}

    def provide(self, spec: Spec, factory: Any) -> None:
        """Add a capability, as if an installed plugin offered the capability.

        An earlier capability of the same kind and name is replaced.

        Args:
            spec: The spec, as a plugin's hook would return it; its ``factory`` is ignored.
            factory: The function or class itself, which a plugin would name as ``module:name``.
        """
        with self._lock:
            self._provided[spec] = factory
            name = f"test-{spec.kind}-{spec.name}"
            other_items = tuple(item for item in self._candidates if item.name != name)
            plugin = Candidate(name=name, target=name, plugin=_plugin(spec))
            self._candidates = (*other_items, plugin)
            self._catalog = None  # so that the next use loads it again, with the capability

    def resolve(self, spec: Spec) -> Any:
        """Return the object behind a spec's factory."""
        if spec in self._provided:
            return self._provided[spec]
        return super().resolve(spec)


def _plugin(spec: Spec) -> object:
    """Return a plugin object whose only hook returns the spec."""
    hook = next(name for name, kind in HOOKS.items() if isinstance(spec, kind))

    def specs(_self: object) -> Iterable[Spec]:
        return (spec,)

    # A plugin is any object with a method that has the hook's name and the mark of hookimpl().
    plugin_class = type("PluginWithOneSpec", (), {hook: hookimpl(specs, specname=hook)})
    return plugin_class()


def install_plugin(
    site: Path,
    name: str,
    *,
    module: str | None = None,
    requires: Sequence[str] | None = None,
    keywords: Sequence[str] = (f"delf-plugin-api-{PLUGIN_API}",),
    version: str = "0.1.0",
    summary: str = "A plugin of a test.",
    exports: Mapping[str, str] | None = None,
) -> Path:
    """Write the metadata of a plugin's distribution, as an installer would.

    Args:
        site: A folder that is, or will be, on ``sys.path``.
        name: The entry point's name; the distribution is ``delf-plugin-NAME``.
        module: The target of the entry point: a module of hooks, or a connection class as
            ``module:attribute``; ``delf_NAME.plugin`` when omitted.
        requires: The requirements; this delf when omitted.
        keywords: The keywords.
        version: The version.
        summary: The one-line description.
        exports: Names for ``from delf import NAME``, each with its ``module:attribute``.

    Returns:
        The ``.dist-info`` folder.
    """
    flat = name.replace("-", "_")
    info = site / f"delf_plugin_{flat}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: delf-plugin-{name}", f"Version: {version}"]
    lines.append(f"Summary: {summary}")
    if keywords:
        lines.append(f"Keywords: {','.join(keywords)}")
    requirements = requires or [_requirement_of_this_delf()]
    lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    target = module or f"delf_{flat}.plugin"
    group = CONNECTIONS_GROUP if ":" in target else ENTRY_POINT_GROUP
    points = [f"[{group}]", f"{name} = {target}", f"[{EXPORTS_GROUP}]"]
    points += [f"{exported} = {place}" for exported, place in (exports or {}).items()]
    (info / "entry_points.txt").write_text("\n".join(points) + "\n", encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")
    return info


def forget_modules(folder: Path, kept: Iterable[str]) -> None:
    """Remove from ``sys.modules`` the modules that were imported from a folder.

    The next test then imports them again.

    Args:
        folder: The folder.
        kept: The names of modules to keep.
    """
    kept_names = set(kept)
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None)
        if name not in kept_names and place and Path(place).is_relative_to(folder):
            del sys.modules[name]


def _requirement_of_this_delf() -> str:
    major, minor, *_ = __version__.split(".")
    return f"delf-core>={major}.{minor},<{int(major) + 1}"
