"""The specs by name, and the error for an unknown or disputed name.

When two plugins give one name within a kind, that name cannot be used until the user prefers,
uninstalls or blocks one of the plugins; their other names work.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

from delf.errors import DelfError, PluginError, did_you_mean
from delf.llm import AUTO, LLMConfig
from delf.packages.official import (
    client_of_prefix,
    how_to_install,
    model_clients,
    package_of,
    packages,
    recommended_client,
    recommended_plugin,
)
from delf.plugins.discovery import Candidate, normalise
from delf.plugins.report import PluginRecord
from delf.providers import Provider, Providers
from delf.records import dataclass
from delf.specs import ModelSpec, Spec

SpecT = TypeVar("SpecT", bound=Spec)
ErrorT = TypeVar("ErrorT", bound=DelfError)

# People type connections most often, so their packages have the bare name.
_BARE: Final = ("connection", "command")
_PREFIXES: Final = {"format": "files", "embedder": "embed"}

# The score of a fallback plugin, the same as for ``*``, a pattern of one character.
_FALLBACK_SCORE: Final = 1.0
# The score of a plugin for compatible servers if the model has an address: higher than a fallback.
_ADDRESS_SCORE: Final = 1.5

_MAX_LISTED_FAILURES: Final = 3

_CHOOSE: Final = (
    'choose one: [plugins] prefer = ["{one}"] in delf.toml; or uninstall one, or block one by its '
    "distribution: DELF_DISABLE_PLUGINS={one}"
)


@dataclass(frozen=True, slots=True)
class Offer:
    """A spec together with the plugin that offers it."""

    spec: Spec
    plugin: Candidate


class Catalog:
    """All specs of all loaded plugins, by kind and name, and the records of all plugins.

    See :class:`~delf.plugins.host.PluginHost`, which has the public methods.

    Args:
        records: The plugins after loading, in any order.
        prefer: Plugins or distributions to prefer if several plugins offer a name; the first wins.
    """

    def __init__(self, records: Sequence[PluginRecord], prefer: Sequence[str] = ()) -> None:
        self._preferred_plugins = tuple(prefer)
        self._offers: dict[tuple[str, str], list[Offer]] = {}
        offers = (Offer(spec, item.plugin) for item in records for spec in item.specs)
        for offer in sorted(offers, key=lambda o: (o.spec.kind, o.spec.name, o.plugin.origin)):
            self._offers.setdefault((offer.spec.kind, offer.spec.name), []).append(offer)
        plugins_by_name: dict[str, list[Candidate]] = {}
        for record in records:
            if record.state == "loaded":
                plugins_by_name.setdefault(record.name, []).append(record.plugin)
        # Conflicts are between the offers of all plugins, so the offers must be complete here.
        self.records = tuple(self._with_conflicts(record, plugins_by_name) for record in records)
        """The records of all plugins, in the order of the constructor's ``records``."""

    def _with_conflicts(
        self, record: PluginRecord, plugins_by_name: Mapping[str, list[Candidate]]
    ) -> PluginRecord:
        """Return the record, marked as a conflict if another plugin has the same name or spec.

        If the user prefers one of the plugins, a spec of that plugin is not in conflict.
        """
        if record.state != "loaded":
            return record
        plugin = record.plugin
        conflicts: list[str] = []
        namesakes = [each for each in plugins_by_name[plugin.name] if each is not plugin]
        if namesakes:
            conflicts.append(f"plugin {plugin.name!r} is also in {_names_of_plugins(namesakes)}")
        for spec in record.specs:
            offers = self._offers[spec.kind, spec.name]
            winner = self._winning_offer(offers)  # None if the user has to choose
            if winner == Offer(spec, plugin):
                continue
            rivals = [offer.plugin for offer in offers if offer.plugin != plugin]
            preference = "" if winner is None else f", and {winner.plugin.origin} is preferred"
            conflicts.append(
                f"{spec.kind} {spec.name!r} is also in {_names_of_plugins(rivals)}{preference}"
            )
        if not conflicts:
            return record
        return replace(record, state="conflict", reason="; ".join(conflicts))

    @cached_property
    def load_failures(self) -> str:
        """The plugins that failed to load or have a faulty hook, with the reasons; may be empty.

        Nobody knows which names such a plugin would have provided, so this text is in the hint of
        every error about an unknown name.
        """
        faulty_records = [record for record in self.records if record.fault]
        # Plugins without a distribution come first, because somebody is probably developing them.
        faulty_records.sort(key=lambda record: record.distribution is not None)
        messages = [f"plugin {each.name!r}{_package(each)} {each.fault}" for each in faulty_records]
        omitted_count = len(messages) - _MAX_LISTED_FAILURES
        if omitted_count > 0:
            del messages[_MAX_LISTED_FAILURES:]
            messages.append(f"{omitted_count} more failed: see delf plugins")
        return "; ".join(messages)

    def with_load_failures(self, error: ErrorT) -> ErrorT:
        """Add the plugins that failed to load to the hint of an error about an unknown name.

        Returns the error.
        """
        reasons = (record.reason for record in self.records if record.fault)
        # The message may already say why the plugin failed to load.
        is_reason_in_message = any(reason and reason in error.message for reason in reasons)
        if is_reason_in_message:
            return error
        return error.advise(self.load_failures)

    def usable(self, kind: str) -> list[Offer]:
        """Return the offers of a kind, ordered by name.

        Of several plugins that offer the same name, only the preferred plugin's offer is returned,
        or none without a preference.
        """
        winners = (
            self._winning_offer(offers)
            for (each_kind, _), offers in self._offers.items()
            if each_kind == kind
        )
        return [offer for offer in winners if offer is not None]

    def owner(self, spec: Spec) -> Candidate | None:
        """Return the plugin that a spec comes from."""
        for offer in self._offers.get((spec.kind, spec.name), ()):
            if offer.spec == spec:
                return offer.plugin
        return None

    def offers_of(self, plugin: str) -> tuple[Spec, ...]:
        """Return the specs of a plugin, including those whose names another plugin has, too."""
        return tuple(offer.spec for offer in self._all_offers() if offer.plugin.name == plugin)

    def preferred_spec(self, specs: Sequence[SpecT], subject: str) -> SpecT:
        """Return the only spec; if there are several specs, the spec that the user prefers.

        Args:
            specs: Specs of plugins, at least one.
            subject: The subject of error messages, such as ``the ending csv``.

        Raises:
            PluginError: If there are several specs, and the user prefers none.
        """
        specs_with_plugins = [(spec, self.owner(spec)) for spec in specs]
        plugins = [plugin for _, plugin in specs_with_plugins if plugin is not None]
        preferred = choose(plugins, self._preferred_plugins, subject)
        return next(spec for spec, plugin in specs_with_plugins if plugin is preferred)

    def _chosen_offer(self, offers: Sequence[Offer], subject: str) -> Offer:
        """Return the only or the preferred offer; raise an error that says how to choose one."""
        plugin = choose([offer.plugin for offer in offers], self._preferred_plugins, subject)
        return next(offer for offer in offers if offer.plugin is plugin)

    def _winning_offer(self, offers: Sequence[Offer]) -> Offer | None:
        """Return the only or the preferred offer; None if the user has to choose."""
        plugin = _winning_plugin([offer.plugin for offer in offers], self._preferred_plugins)
        return next((offer for offer in offers if offer.plugin is plugin), None)

    def find(self, kind: str, name: str) -> Spec:
        """Return the spec that a name selects; raise an error with the reason if none exists."""
        offers = self._offers.get((kind, name)) or self._best_matches(kind, name)
        if not offers:
            raise self.with_load_failures(self._unknown_name_error(kind, name))
        return self._chosen_offer(offers, f"{kind} {name!r}").spec

    def _best_matches(self, kind: str, name: str) -> list[Offer]:
        """Return the offers of a kind with the longest pattern that matches a name, if any."""
        offers = [offer for offer in self._all_offers() if offer.spec.kind == kind]
        lengths = [_length_of_match(offer.spec, name) for offer in offers]  # 0 without a match
        longest = max(lengths, default=0)
        if longest == 0:
            return []
        return [offer for offer, length in zip(offers, lengths, strict=True) if length == longest]

    @cached_property
    def providers(self) -> Providers:
        """The providers that plugins declare; those of fallback specs come last."""
        specs = sorted(self._specs(ModelSpec), key=lambda spec: spec.fallback)
        return Providers(provider for spec in specs for provider in spec.providers)

    def serving(self, model: LLMConfig, environ: Mapping[str, str]) -> ModelSpec:
        """Return the spec of the plugin that fits a model's name, address and provider best."""
        fits = [(_fit_score(spec, model, environ), spec) for spec in self._specs(ModelSpec)]
        best_fit = max((fit for fit, _ in fits), default=-1.0)
        self._check_requested_client(model, best_fit)
        if best_fit < 0:  # no plugin fits
            if model.provider != AUTO:
                raise self.with_load_failures(self._unknown_provider_error(model.provider))
            raise self.with_load_failures(_no_plugin_error(model.model, self.records))
        best_specs = [spec for fit, spec in fits if fit == best_fit]
        return self.preferred_spec(best_specs, f"model {model.model!r}")

    def _check_requested_client(self, model: LLMConfig, best_fit: float) -> None:
        """Raise if a model's name, such as ``recorded:tests``, requests a client that is missing.

        Otherwise a plugin that serves any name would ask a server for ``recorded:tests``.
        """
        requested_client = client_of_prefix(model.model)
        if requested_client is None or model.base_url is not None:
            return
        pattern, client_name = requested_client  # such as "recorded:*"
        # The client's spec would match this pattern, and score at least the pattern's length.
        is_client_missing = best_fit < len(pattern)
        if is_client_missing:
            raise self.with_load_failures(self._unknown_name_error("model", client_name))

    def all_specs(self) -> Iterator[Spec]:
        """Yield the specs of all plugins, including those whose name another plugin also offers."""
        return (offer.spec for offer in self._all_offers())

    def _all_offers(self) -> Iterator[Offer]:
        return itertools.chain.from_iterable(self._offers.values())

    def _specs(self, kind: type[SpecT]) -> Iterator[SpecT]:
        return (spec for spec in self.all_specs() if isinstance(spec, kind))

    def _unknown_provider_error(self, name: str) -> PluginError:
        """Return the error for a provider that no installed plugin has, with advice."""
        is_official_provider = f"{name}/*" in model_clients()
        if is_official_provider:  # its plugin is known, but not installed
            return _no_plugin_error(f"{name}/model", self.records)
        provider_names = sorted(provider.name for provider in self.providers.all)
        return PluginError(
            f"no installed plugin has the provider {name!r}{did_you_mean(name, provider_names)}",
            hint=f"providers: {', '.join(dict.fromkeys(provider_names)) or 'none'}",
        )

    def _probable_plugin(self, kind: str, name: str) -> tuple[PluginRecord | None, str | None]:
        """Return the unusable plugin that probably offers a name, and the package to install.

        The plugin is None if no installed plugin is a candidate. The package is None if no package
        of delf has the name, or if the package is installed.
        """
        plugin_name = name.partition(":")[0]  # of ``plugin:model``
        is_installed = (kind, plugin_name) in self._offers
        package = None if is_installed else package_of(kind, plugin_name)
        return _unusable_plugin_for(kind, name, package, self.records), package

    def _unknown_name_error(self, kind: str, name: str) -> PluginError:
        """Return the error for a name that no usable plugin offers, with the reason or advice."""
        spec_names = sorted(n for k, n in self._offers if k == kind)
        broken, package = self._probable_plugin(kind, name)
        if broken is None and package is None and _has_patterns(kind):
            # The name may match a pattern of the recommended plugin, such as ``acme/*``. The
            # pattern is unknown while the plugin is broken or not installed.
            recommended_package = packages(kind)[recommended_plugin(kind)]
            broken = _unusable_plugin_for(kind, name, recommended_package, self.records)
            # If names are installed, one of them was probably mistyped: recommend no package.
            if not spec_names:
                package = recommended_package
        if broken is not None:
            return PluginError(f"no {kind} {name!r}: {_state_text(broken)}")
        if package is not None:
            return PluginError(f"no {kind} {name!r} is installed", hint=how_to_install(package))
        special_values = _special_values(kind)
        known_names = {*spec_names, *packages(kind), *special_values}
        hint = f"installed: {', '.join(spec_names)}" if spec_names else f"no {kind} is installed"
        if special_values:
            hint += f" (other values: {', '.join(special_values)})"
        return PluginError(f"unknown {kind} {name!r}{did_you_mean(name, known_names)}", hint=hint)


def _special_values(kind: str) -> tuple[str, ...]:
    """Return the values of a kind's option that select no plugin, such as ``auto``."""
    for spec_class in Spec.__subclasses__():
        if spec_class.kind == kind:
            return spec_class.special_values
    return ()


def choose(plugins: Sequence[Candidate], prefer: Sequence[str], subject: str) -> Candidate:
    """Return the plugin to use for a name: the only plugin that offers it, or the preferred one.

    Args:
        plugins: The plugins that offer the name, at least one.
        prefer: Plugins or distributions to prefer; the first wins.
        subject: The subject of error messages, such as ``the name 'mail'``.

    Raises:
        PluginError: If several plugins offer the name and none is preferred.
    """
    winner = _winning_plugin(plugins, prefer)
    if winner is not None:
        return winner
    # The hint's example is a distribution, or a plugin if no plugin has a distribution.
    distributions = [plugin.distribution for plugin in plugins if plugin.distribution]
    example = distributions[-1] if distributions else plugins[-1].name
    raise PluginError(
        f"{subject} is given by {_names_of_plugins(plugins)}", hint=_CHOOSE.format(one=example)
    )


def _winning_plugin(plugins: Sequence[Candidate], prefer: Sequence[str]) -> Candidate | None:
    """Return the plugin to use among plugins that offer the same name; None if undecided.

    A single plugin needs no preference. Otherwise, the first preference that names exactly one of
    the plugins decides. The name of a distribution that contains several of the plugins is skipped.
    """
    if len(plugins) == 1:
        return plugins[0]
    for name in map(normalise, prefer):
        matching_plugins = [plugin for plugin in plugins if name in _names_of(plugin)]
        if len(matching_plugins) == 1:
            return matching_plugins[0]
    return None


def package_prefix(kind: str) -> str:
    """Return the prefix of package names for a kind of plugin, such as ``sandbox-``."""
    return "" if kind in _BARE else f"{_PREFIXES.get(kind, kind)}-"


def _names_of(plugin: Candidate) -> tuple[str, ...]:
    return normalise(plugin.name), normalise(plugin.distribution or plugin.name)


def _names_of_plugins(plugins: Iterable[Candidate]) -> str:
    return " and ".join(plugin.origin for plugin in plugins)


def _has_patterns(kind: str) -> bool:
    """Return whether specs of a kind can be selected by a pattern, and not only by name."""
    spec_classes = (each for each in Spec.__subclasses__() if each.kind == kind)
    return any(each.patterns is not Spec.patterns for each in spec_classes)


def _length_of_match(spec: Spec, name: str) -> int:
    """Return the length of a spec's longest pattern that matches a name; 0 if none matches."""
    matching = (pattern for pattern in spec.patterns if fnmatch.fnmatchcase(name, pattern))
    return max(map(len, matching), default=0)


def _fit_score(spec: ModelSpec, model: LLMConfig, environ: Mapping[str, str]) -> float:
    """Return a score of how well a spec fits a model; the spec with the highest score is used.

    The score is -1 if the spec does not fit.
    """
    pattern_scores = [len(p) for p in spec.serves if fnmatch.fnmatchcase(model.model, p)]
    if model.provider != AUTO:
        return _score_for_provider(spec, model.provider, pattern_scores)
    return _score_for_name(spec, model, environ, pattern_scores)


def _score_for_provider(spec: ModelSpec, provider: str, pattern_scores: Sequence[float]) -> float:
    """Return the score of a spec for a model whose provider the user names.

    A spec fits if it has this provider, with an infinite score, or if one of its patterns matches
    the model's name. The score is then the length of the longest such pattern. A fallback spec
    that fits has ``_FALLBACK_SCORE``. A spec that does not fit has -1.

    Args:
        spec: The spec.
        provider: The provider's name.
        pattern_scores: The lengths of the patterns in ``spec.serves`` that match the model's name.
    """
    has_provider = Providers(spec.providers).by_name(provider) is not None
    fits = has_provider or bool(pattern_scores)
    if not fits:
        return -1
    if spec.fallback:
        return _FALLBACK_SCORE
    return math.inf if has_provider else max(pattern_scores)


def _score_for_name(
    spec: ModelSpec,
    model: LLMConfig,
    environ: Mapping[str, str],
    pattern_scores: Sequence[float],
) -> float:
    """Return the score of a spec for a model without a named provider.

    The score is the length of the longest pattern that matches the model's name. Patterns of the
    spec and of its providers count. If :func:`_score_without_pattern` is higher, return that score.

    Args:
        spec: The spec.
        model: The model.
        environ: The environment variables.
        pattern_scores: The lengths of the patterns in ``spec.serves`` that match the model's name.
    """
    has_address = model.base_url is not None
    provider_scores = _provider_pattern_scores(spec, model.model, has_address=has_address)
    lowest_score = _score_without_pattern(spec, model, environ)
    return max([lowest_score, *pattern_scores, *provider_scores])


def _score_without_pattern(spec: ModelSpec, model: LLMConfig, environ: Mapping[str, str]) -> float:
    """Return the score of a spec for a model whose name matches no pattern; -1 if it cannot fit.

    A fallback spec has ``_FALLBACK_SCORE``. A spec with a ``compatible`` provider, whose protocol
    other servers imitate, can serve any model, too. Its score is ``_ADDRESS_SCORE`` if the address
    of a server is configured, otherwise 0.
    """
    if spec.fallback:
        return _FALLBACK_SCORE
    compatible = [provider for provider in spec.providers if provider.compatible]
    if not compatible:
        return -1
    if model.base_url is not None:
        return _ADDRESS_SCORE
    # An address in the environment is that of the compatible provider. It counts for ``mini``, but
    # not for ``acme/mini``, which names another provider.
    names_provider = "/" in model.model
    if not names_provider and any(_is_address_set(provider, environ) for provider in compatible):
        return _ADDRESS_SCORE
    return 0


def _provider_pattern_scores(spec: ModelSpec, name: str, *, has_address: bool) -> Iterator[int]:
    """Yield the length of each pattern of a spec's providers that matches a model's name.

    A provider has patterns such as ``acme/*``. A fallback spec yields nothing without an address.

    Args:
        spec: The spec.
        name: The model's name.
        has_address: Whether the user gives a ``base_url``.
    """
    # Without a ``base_url``, the fallback spec is only for models that match no other spec.
    if spec.fallback and not has_address:
        return
    for provider in spec.providers:
        for pattern in provider.patterns(at_address=has_address):
            if fnmatch.fnmatchcase(name.lower(), pattern):
                yield len(pattern)


def _is_address_set(provider: Provider, environ: Mapping[str, str]) -> bool:
    return any(environ.get(variable) for variable in provider.addresses)


def _unusable_plugin_for(
    kind: str, name: str, package: str | None, records: Sequence[PluginRecord]
) -> PluginRecord | None:
    """Return the record of a plugin that failed to load and probably offers a name, or None.

    The specs of such a plugin are unknown, so the name of the plugin or of its package decides.

    Args:
        kind: The kind of spec.
        name: The name of the spec.
        package: delf's package for the spec, if any.
        records: The records of all plugins.
    """
    likely_names = (name, f"{package_prefix(kind)}{name}")
    for record in records:
        if record.usable:
            continue
        is_of_package = package is not None and record.distribution == package
        if record.name in likely_names or is_of_package:
            return record
    return None


def _no_plugin_error(model: str, records: Sequence[PluginRecord]) -> PluginError:
    """Return the error for a model that no usable plugin serves.

    The error says why an installed plugin for the model is unusable, or how to install a plugin.
    """
    usual_client = recommended_client(model)
    # The client for models of unknown providers, such as ``any/model``, serves this model, too.
    client_of_other_providers = recommended_client("any/model")
    for client in dict.fromkeys((usual_client, client_of_other_providers)):
        broken = _unusable_plugin_for("model", client, package_of("model", client), records)
        if broken is not None:
            return PluginError(f"no plugin serves the model {model!r}: {_state_text(broken)}")
    return PluginError(
        f"no installed plugin serves the model {model!r}",
        hint=how_to_install(packages("model")[usual_client]),
    )


def _state_text(record: PluginRecord) -> str:
    return f"plugin {record.name!r}{_package(record)} is {record.state}: {record.reason}"


def _package(record: PluginRecord) -> str:
    if record.distribution:
        return f" ({record.distribution} {record.version})"
    return ""
