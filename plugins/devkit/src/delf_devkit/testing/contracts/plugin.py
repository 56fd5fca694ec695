"""Duties of every plugin's package."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import pytest
from packaging.requirements import Requirement

from delf.hookspecs import CONNECTIONS_GROUP, DISTRIBUTION, ENTRY_POINT_GROUP, PLUGIN_API
from delf.machine.interpreter import own_python
from delf.plugins.discovery import normalise
from delf.plugins.host import PluginHost
from delf.plugins.report import PluginRecord
from delf.settings import PluginSettings
from delf.specs import SandboxSpec, Spec
from delf_devkit.testing.contracts.base import Contract, fail_without, needs
from delf_devkit.testing.contracts.leaks import plain_secrets, types_of

_LIST_IMPORTED_MODULES = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted(set(sys.modules) - before)))
"""

# Prints what an import changes in the process: for each changed part, such as the environment
# variables, the new values. If the part only lost values, all its earlier values are printed.
_REPORT_CHANGES_OF_IMPORT = """
import importlib, json, logging, os, signal, threading
import delf
def now():
    root = logging.getLogger()
    return {{
        "changes the variable": sorted(os.environ.items()),
        "sets up the root logger, at level": [root.level, *map(str, root.handlers)],
        "starts the thread": [thread.name for thread in threading.enumerate()],
        "handles SIGTERM by": [str(signal.getsignal(signal.SIGTERM))],
        "goes to the folder": [os.getcwd()],
    }}
before = now()
for module in {modules}:
    importlib.import_module(module)
print(json.dumps([
    f"{{what}} {{[v for v in values if v not in before[what]] or before[what]}}"
    for what, values in now().items() if values != before[what]
]))
"""

_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG", "SYSTEMROOT", "TEMP")


class PluginContract(Contract):
    """Tests for a plugin's package; set ``name`` to its entry point, or to one of several.

    A package has one module of hooks, any number of connections, or both. The plugin must be
    installed. ``vendors`` are modules that must not be imported before a capability is used.
    ``offers`` are the expected spec names of all kinds, such as ``{"connection": ["tickets"]}``.
    With ``imports = False`` the capabilities' modules are not imported, because their vendor
    packages are missing.
    """

    name: ClassVar[str] = ""
    distribution: ClassVar[str] = ""
    module: ClassVar[str] = ""
    vendors: ClassVar[Sequence[str]] = ()
    offers: ClassVar[dict[str, list[str]]] = {}
    imports: ClassVar[bool] = True

    # -- its package --------------------------------------------------------------------

    def test_plugin_is_installed_under_its_name(self) -> None:
        points = self._points
        names = [point.name for point in points]
        assert self._name in names, f"its entry points are called {names}"
        assert len({*names}) == len(names), f"two entry points have one name: {sorted(names)}"
        hooks = [point.value for point in points if point.group == ENTRY_POINT_GROUP]
        assert hooks in ([], [f"{self._module}.plugin"]), (
            f"its hooks are in {hooks}: a package has one module of hooks, {self._module}.plugin"
        )
        for point in points:
            assert point.attr or point.group == ENTRY_POINT_GROUP, (
                f"the entry point {point.name} of a connection names its class: module:Class"
            )

    def test_plugin_declares_its_core_version(self) -> None:
        requirements = [Requirement(line) for line in self._dist.requires or ()]
        core_requirements = [each for each in requirements if normalise(each.name) == DISTRIBUTION]
        unconditional = [
            each for each in core_requirements if not each.extras and each.marker is None
        ]
        assert len(unconditional) == 1, "it does not require delf-core, or twice"
        versions = unconditional[0].specifier
        operators = {part.operator for part in versions}
        assert operators & {">=", ">", "~=", "=="}, "its requirement has no lower bound"
        assert operators & {"<", "<=", "~=", "=="}, "its requirement has no upper bound"
        core_version = metadata.version(DISTRIBUTION)
        assert versions.contains(core_version, prereleases=True), (
            f"it is not for delf {core_version}"
        )
        package = self._dist.metadata
        keywords = package["Keywords"] if "Keywords" in package else ""  # noqa: SIM401
        assert f"delf-plugin-api-{PLUGIN_API}" in keywords.replace(",", " ").split()

    def test_plugin_is_typed_and_described(self) -> None:
        assert (self._folder / "py.typed").is_file(), "there is no py.typed"
        package = self._dist.metadata
        assert "Summary" in package, "it has no description"
        assert package["Summary"].strip()
        if self._has_hooks:
            assert importlib.import_module(f"{self._module}.plugin").__doc__
        for _, spec in self._specs():
            assert spec.summary.strip()
            assert "\n" not in spec.summary
            home = spec.factory.partition(":")[0].partition(".")[0]
            assert home == self._module, "a factory of another package"

    # -- its hooks ----------------------------------------------------------------------

    def test_plugin_loads_without_a_warning(self) -> None:
        for record in self._records(PluginHost.discover(environ={})):
            assert record.state == "loaded", record.reason
            assert list(record.warnings) == []
            assert record.kinds, f"{record.name} offers nothing"

    @needs("offers")
    def test_plugin_offers_its_declared_specs(self) -> None:
        names_by_kind: dict[str, list[str]] = {}
        for record in self._records(PluginHost.discover(environ={})):
            for kind, names in record.kinds.items():
                names_by_kind[kind] = sorted([*names_by_kind.get(kind, []), *names])
        assert names_by_kind == {kind: sorted(names) for kind, names in self.offers.items()}

    @needs("imports")
    def test_plugin_factories_can_be_imported(self) -> None:
        for host, spec in self._specs():
            assert callable(host.resolve(spec)), spec.factory
            if isinstance(spec, SandboxSpec):
                isolation = getattr(host.resolve(spec), "isolation", spec.isolation)
                assert isolation == spec.isolation, (
                    f"{spec.name}: its spec says isolation {spec.isolation!r}, "
                    f"its backend {isolation!r}"
                )

    @needs("imports")
    def test_factories_declare_their_secrets(self) -> None:
        for host, spec in self._specs():
            factory = host.resolve(spec)
            for owner, types in _options_of(factory):
                plain = plain_secrets(types)
                assert not plain, (
                    f"{owner} takes {plain[0]!r} as a plain str: `delf config`, errors and logs "
                    "would show it; declare it as delf.settings.SecretStr"
                )

    @needs("imports")
    def test_import_changes_no_process_state(self) -> None:
        modules = {spec.factory.partition(":")[0] for _, spec in self._specs()}
        modules.add(self._module)
        if importlib.util.find_spec(f"{self._module}.plugin"):
            modules.add(f"{self._module}.plugin")
        code = _REPORT_CHANGES_OF_IMPORT.format(modules=sorted(modules))
        command = [own_python(), "-c", code]
        # A new process, because this one has imported the modules already.
        environ = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        result = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, env=environ
        )
        assert result.returncode == 0, result.stderr
        *printed, changes = result.stdout.splitlines()
        assert not printed, f"importing the plugin's modules prints {printed[0]!r}"
        changed: list[str] = json.loads(changes)
        assert not changed, (
            f"importing the plugin's modules changes the process ({changed[0]}), also where nobody "
            "uses the plugin: make the change when a capability is used"
        )

    def test_plugin_module_imports_nothing_heavy(self) -> None:
        if not self._has_hooks:
            return  # its entry point names a class, which is imported on first use
        code = _LIST_IMPORTED_MODULES.format(module=f"{self._module}.plugin")
        command = [own_python(), "-c", code]
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        assert result.returncode == 0, result.stderr
        loaded = {name.partition(".")[0] for name in json.loads(result.stdout.splitlines()[-1])}
        heavy = loaded & {*self.vendors, "pydantic", "rich", "click"}
        assert not heavy, f"importing {self._module}.plugin imports {sorted(heavy)}"

    # -- what it is about ---------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self.name or fail_without(self, "`name`, that of the plugin's entry point")

    @property
    def _module(self) -> str:
        return self.module or f"delf_{self._name.replace('-', '_')}"

    @property
    def _has_hooks(self) -> bool:
        """True if the entry point names a module of hooks, False if it names a class."""
        # Only modules of hooks are in this group; the classes of connections have another.
        points = self._dist.entry_points.select(group=ENTRY_POINT_GROUP)
        return any(point.name == self._name for point in points)

    @cached_property
    def _dist(self) -> metadata.Distribution:
        name = self.distribution or f"delf-plugin-{self._name}"
        try:
            return metadata.distribution(name)
        except metadata.PackageNotFoundError:
            pytest.fail(f"{name} is not installed: delf plugins install -e .", pytrace=False)

    @cached_property
    def _folder(self) -> Path:
        spec = importlib.util.find_spec(self._module)
        if spec is None or spec.origin is None:
            pytest.fail(f"there is no package {self._module}", pytrace=False)
        return Path(spec.origin).parent

    @property
    def _points(self) -> list[metadata.EntryPoint]:
        groups = (ENTRY_POINT_GROUP, CONNECTIONS_GROUP)
        return [point for point in self._dist.entry_points if point.group in groups]

    def _records(self, host: PluginHost) -> list[PluginRecord]:
        names = {point.name for point in self._points} | {self._name}
        return [record for record in host.records() if record.name in names]

    def _specs(self) -> list[tuple[PluginHost, Spec]]:
        """Return the plugin's specs, each with the host that resolves it."""
        host: Any = PluginHost.discover(environ={})
        kinds = {cls.kind: cls for cls in Spec.__subclasses__()}
        specs: list[tuple[PluginHost, Spec]] = []
        for record in self._records(host):
            for kind, names in record.kinds.items():
                specs += [(host, host.spec(kinds[kind], name)) for name in names]
        return specs


def _options_of(factory: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name of a factory and of its settings class, each with its options and types."""
    name = getattr(factory, "__qualname__", type(factory).__name__)
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(factory).parameters.values()
        yield name, {parameter.name: parameter.annotation for parameter in parameters}
    settings = getattr(factory, "Settings", None)
    if isinstance(settings, type) and issubclass(settings, PluginSettings):
        yield settings.__qualname__, types_of(settings.model_fields)
