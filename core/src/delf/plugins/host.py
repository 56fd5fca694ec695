"""``PluginHost``: the registry of plugins, passed down as a value and never global."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from delf.errors import DelfError, OptionalDependencyError, PluginError
from delf.llm import LLMConfig, as_llm_config
from delf.members import members
from delf.packages.official import package_of
from delf.plugins import discovery, loader
from delf.plugins.catalog import Catalog, choose
from delf.plugins.discovery import Candidate, normalise
from delf.plugins.report import PluginRecord
from delf.plugins.shapes import has, require_type
from delf.plugins.watch import DISABLE_VARIABLE, ImportWatch, watched_import
from delf.protocols.services import Service
from delf.providers import Providers
from delf.specs import ModelSpec, Spec
from delf.trust.folders import UntrustedFolder

if TYPE_CHECKING:
    from delf.settings import PluginSettings

SpecT = TypeVar("SpecT", bound=Spec)
ErrorT = TypeVar("ErrorT", bound=DelfError)
P = TypeVar("P")

PREFER_VARIABLE: Final = "DELF_PREFER_PLUGINS"
_ALL: Final = frozenset({"all", "*"})


class PluginHost:
    """The registry of plugins: finds, checks and loads plugins, and resolves names to specs.

    All plugins are imported when the first spec is requested; the code behind a spec is imported by
    :meth:`resolve`. Thread-safe.

    Args:
        candidates: The plugins, in any order.
        prefer: Plugins or distributions to prefer if several plugins offer the same name; the
            first in this order wins.
        environ: Environment variables, in which the host looks for addresses of models.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        prefer: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._prefer = tuple(prefer)
        self._candidates = tuple(candidates)
        # Reentrant, because a plugin may use this host while the plugin is imported.
        self._lock = threading.RLock()
        self._catalog: Catalog | None = None
        # The imported factories, by their names in specs, as ``module:attribute``.
        self._resolved: dict[str, Any] = {}

    @classmethod
    def discover(
        cls,
        disabled: Iterable[str] = (),
        *,
        no_plugins: bool = False,
        environ: Mapping[str, str] | None = None,
        extra: Iterable[tuple[str, object]] = (),
        absent: Iterable[tuple[str, str]] = (),
    ) -> Self:
        """Return a host for all installed plugins.

        Reads metadata and imports no plugin.

        Args:
            disabled: Names of plugins or distributions to block; ``all`` blocks every installed
                plugin. The variable ``DELF_DISABLE_PLUGINS`` can block further plugins.
            no_plugins: Block every installed plugin.
            environ: The variables, such as ``DELF_DISABLE_PLUGINS``, ``DELF_PREFER_PLUGINS`` and
                addresses of models; the process's environment when omitted.
            extra: Plugins given in code, as name and module or object. ``no_plugins`` leaves
                them alone.
            absent: Plugins that are known to be missing, as name and reason; they count as failed.
        """
        variables = os.environ if environ is None else environ
        disabled_plugins = [(name, "disabled by the caller") for name in disabled]
        # The caller's names come first, because a plugin shows only its first reason.
        variable_names = variables.get(DISABLE_VARIABLE, "").replace(",", " ").split()
        disabled_plugins += [(name, f"disabled by {DISABLE_VARIABLE}") for name in variable_names]
        if no_plugins:
            disabled_plugins.append(("all", "disabled by --no-plugins"))
        missing = [Candidate(name=name, problem=problem) for name, problem in absent]
        all_candidates = (*discovery.in_code(extra), *missing, *discovery.discover())
        candidates = [_block_plugin(candidate, disabled_plugins) for candidate in all_candidates]
        prefer = variables.get(PREFER_VARIABLE, "").replace(",", " ").split()
        return cls(candidates, prefer=prefer, environ=variables)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all plugins, including blocked ones. No plugin is imported."""
        return tuple(dict.fromkeys(candidate.name for candidate in self._candidates))

    def specs(self, spec_class: type[SpecT]) -> tuple[SpecT, ...]:
        """Return all specs of a kind, ordered by name.

        A name that several plugins provide is left out, unless the user prefers one of them.

        Args:
            spec_class: The kind, such as ``ConnectionSpec``.
        """
        offers = self._loaded_catalog().usable(spec_class.kind)
        return tuple(cast("SpecT", offer.spec) for offer in offers)

    def spec(self, spec_class: type[SpecT], name: str) -> SpecT:
        """Return the spec that a name selects.

        A spec of this name comes first, then the spec with the longest matching pattern
        (:attr:`delf.specs.Spec.patterns`).

        Args:
            spec_class: The kind, such as ``ConnectionSpec``.
            name: The name that the user wrote, or another value of an option.

        Raises:
            PluginError: If the name is unknown (with a suggestion or the package to install), if
                several plugins provide the name and none is preferred, or if the plugin that
                provides the name could not be used (with the reason).
        """
        return cast("SpecT", self._loaded_catalog().find(spec_class.kind, name))

    @property
    def providers(self) -> Providers:
        """The providers of models that plugins declare."""
        return self._loaded_catalog().providers

    def model_spec(self, model: str | LLMConfig) -> ModelSpec:
        """Return the spec that serves a model: the best match of name, address and provider.

        Args:
            model: The model, or its name, such as ``provider/model`` or ``model``.

        Raises:
            PluginError: If no plugin serves the model, or two plugins serve it equally well.
        """
        config = self.providers.resolve_provider(as_llm_config(model))
        return self._loaded_catalog().serving(config, self._environ)

    def preferred_spec(self, specs: Sequence[SpecT], subject: str) -> SpecT:
        """Return the only spec; if there are several specs, the spec that the user prefers.

        Args:
            specs: The specs that match, at least one.
            subject: The subject of error messages, such as ``model 'gpt-5'``.

        Raises:
            PluginError: If there are several specs, and the user prefers none.
        """
        return self._loaded_catalog().preferred_spec(specs, subject)

    def load_export(self, name: str, needed_by: str | None = None) -> Any:
        """Return the object that a plugin gives for ``from delf import NAME``.

        Args:
            name: The public name.
            needed_by: The feature that needs the name, for the message; the name itself when
                omitted.

        Raises:
            AttributeError: If no known plugin exports the name.
            OptionalDependencyError: If the plugin that exports the name is not installed or cannot
                be used; the error names the plugin's package.
            PluginError: If several plugins export the name, or its module cannot be imported.
        """
        exporting = [plugin for plugin in self._candidates if name in dict(plugin.exports)]
        usable = [plugin for plugin in exporting if loader.why_not_imported(plugin) is None]
        if not usable:
            raise _export_error(name, needed_by or name, exporting)
        plugin = choose(usable, self._prefer, f"the name {name!r}")
        target = dict(plugin.exports)[name]
        try:
            with watched_import(plugin):
                return loader.import_target(target)
        except (KeyboardInterrupt, DelfError):
            raise
        except BaseException as error:  # SystemExit is not an Exception
            origin = f"plugin {plugin.name!r} ({plugin.origin})"
            raise _load_error(f"{origin}: cannot load {name} from {target}", error) from error

    def service(self, service: Service[P]) -> P:
        """Return the object that a plugin exports for a service.

        Raises:
            AttributeError: If no known plugin exports the service.
            OptionalDependencyError: If the plugin that exports the service is not installed or
                cannot be used; the error names the plugin's package.
            PluginError: If several plugins export the service, or the export does not fit the
                protocol.
        """
        implementation = self.load_export(service.name, service.purpose)
        protocol = service.protocol
        member_names = ["__call__"] if protocol is None else members(protocol)
        missing = [name for name in member_names if not has(implementation, name)]
        if missing:
            kind = "function" if protocol is None else protocol.__name__
            raise PluginError(
                f"the service {service.name!r} has no {', '.join(missing)}",
                hint=f"its author has to give a {kind}",
            )
        return cast("P", implementation)

    def resolve(self, spec: Spec) -> Any:
        """Return the object behind a spec's factory, imported on the first call.

        Args:
            spec: A spec of this host.

        Raises:
            PluginError: If the object cannot be imported; the error names the plugin.
            DelfError: If the plugin itself raised this error, to explain why it cannot be used.
        """
        with self._lock:
            # Under the lock, so that two threads import and keep one object.
            if spec.factory not in self._resolved:
                self._resolved[spec.factory] = self._import(spec, spec.factory)
            return self._resolved[spec.factory]

    def project_files(self, folder: UntrustedFolder) -> Iterator[Path]:
        """Yield the files of a project that configure plugins.

        A spec can name a function in :attr:`delf.specs.Spec.project_files`, which returns the files
        for its plugin.

        Args:
            folder: The folder of the project.

        Raises:
            PluginError: If a function cannot be imported or fails; the error names the plugin.
            DelfError: If a function raised this error.
        """
        for spec in self._loaded_catalog().all_specs():
            if not spec.project_files:
                continue
            function = self._import(spec, spec.project_files)
            subject = f"{self.origin(spec)}: {spec.project_files}"
            try:
                for path in function(folder):
                    require_type(path, Path, subject)
                    yield path
            except DelfError:
                raise
            except Exception as error:
                raise PluginError(f"{subject} failed: {loader.explain(error)}") from error

    def settings_of(self, plugin: str) -> Sequence[type[PluginSettings]]:
        """Return the settings classes that a plugin's specs declare for ``[plugins.NAME]``.

        Args:
            plugin: The name.

        Raises:
            PluginError: If a class cannot be imported; the error names the plugin.
        """
        # Several specs may declare the same class, which is returned once.
        spec_by_class = {
            spec.plugin_settings: spec for spec in self.specs_of(plugin) if spec.plugin_settings
        }
        return [self._import(spec, target) for target, spec in spec_by_class.items()]

    def _import(self, spec: Spec, target: str) -> Any:
        """Return an object that a spec names as ``module:attribute``."""
        try:
            with watched_import(self._loaded_catalog().owner(spec)):
                return loader.import_target(target)
        except (KeyboardInterrupt, DelfError):
            raise
        except BaseException as error:  # SystemExit is not an Exception
            subject = f"{self.origin(spec)}: cannot load {target} for its {spec.kind} {spec.name!r}"
            raise _load_error(subject, error) from error

    def specs_of(self, plugin: str) -> tuple[Spec, ...]:
        """Return the specs of a plugin.

        Args:
            plugin: The name.
        """
        return self._loaded_catalog().offers_of(plugin)

    def plugin_of(self, spec: Spec) -> str | None:
        """Return the name of the plugin that offers a spec: the key of its ``[plugins.NAME]``."""
        owner = self._loaded_catalog().owner(spec)
        return None if owner is None else owner.name

    def origin(self, spec: Spec) -> str:
        """Name the origin of a spec for messages: plugin, distribution and version."""
        owner = self._loaded_catalog().owner(spec)
        if owner is None:
            return "a plugin"
        if owner.distribution is None:
            return owner.origin
        return f"plugin {owner.name!r} ({owner.origin})"

    @property
    def trouble(self) -> str:
        """The plugins that failed to load or have a faulty hook, with the reasons; may be empty."""
        return self._loaded_catalog().load_failures

    def with_load_failures(self, error: ErrorT) -> ErrorT:
        """Add the plugins that failed to load to the hint of an error about an unknown name.

        Returns the error. The errors of :meth:`spec` and :meth:`model_spec` have the hint already.

        Args:
            error: The error about an unknown name, which is changed in place.
        """
        return self._loaded_catalog().with_load_failures(error)

    def records(self) -> tuple[PluginRecord, ...]:
        """Return the records of all plugins, those given in code first."""
        return self._loaded_catalog().records

    def report(self) -> list[dict[str, Any]]:
        """Return the records as JSON-ready rows, for ``delf plugins``."""
        return [record.to_dict() for record in self.records()]

    def _loaded_catalog(self) -> Catalog:
        """Return the catalog of all plugins, which are loaded on the first call."""
        with self._lock:
            if self._catalog is None:
                # Loaded here, not in the constructor, because a program may never need a plugin.
                manager = loader.new_manager()
                records: list[PluginRecord] = []
                watch = ImportWatch()
                with watch.running():
                    for candidate in self._candidates:
                        # Before each import, so that a plugin that hangs can be named.
                        watch.importing(candidate)
                        records.append(loader.load(candidate, manager))
                self._catalog = Catalog(records, self._prefer)
            return self._catalog


def _load_error(subject: str, error: BaseException) -> PluginError:
    return PluginError(
        f"{subject}: {loader.explain(error)}",
        hint="its installation is incomplete or broken; install it again or tell its author",
    )


def _export_error(name: str, needed_by: str, exporting: Sequence[Candidate]) -> Exception:
    """Return the error for a public name that no usable plugin exports.

    Args:
        name: The public name.
        needed_by: The feature that needs the name, for the message.
        exporting: The plugins that export the name, but must not be imported.
    """
    if exporting:
        package = exporting[0].distribution
        state_and_reason = loader.why_not_imported(exporting[0])
    else:
        package = package_of("exports", name)
        state_and_reason = None
    if package is None:
        return AttributeError(name)
    if state_and_reason is None:
        return OptionalDependencyError(
            f"{needed_by}: the package {package} is not installed", package=package
        )
    state, reason = state_and_reason
    return OptionalDependencyError(
        f"{needed_by}: the package {package} is {state}: {reason}",
        package=package,
        hint=PluginError.default_hint,
    )


def _block_plugin(candidate: Candidate, disabled_plugins: Iterable[tuple[str, str]]) -> Candidate:
    """Mark a blocked plugin with the setting that blocks it; return any other plugin unchanged."""
    for name, reason in disabled_plugins:
        if _is_named(candidate, name):
            return replace(candidate, blocked=reason)
    return candidate


def _is_named(candidate: Candidate, name: str) -> bool:
    """Return True if a name in a setting means a plugin.

    The name is that of the plugin or of its distribution. ``all`` means every installed plugin. A
    plugin that the program itself has registered is not installed, and has no distribution.
    """
    if name in _ALL:
        return candidate.distribution is not None
    names = {candidate.name, normalise(candidate.distribution or candidate.name)}
    return name in names or normalise(name) in names
