"""``Providers``: the model providers that plugins declare, and the spellings of model names.

The core knows no provider. A name such as ``acme:large`` or ``acme/large`` is understood where an
installed plugin declares the provider ``acme``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from delf.environment import FileText, SourcedText
from delf.llm import AUTO, LLMConfig
from delf.specs import Provider

# Matches a tag after a colon in a model name of a local server, such as ``7b`` in ``model:7b``.
_TAG: Final = re.compile(r"latest|instruct|text|v?\d[\w.-]*")


class Providers:
    """The providers declared by installed plugins.

    Args:
        providers: The providers; the first one wins if two declare the same name or alias.
    """

    def __init__(self, providers: Iterable[Provider] = ()) -> None:
        by_name: dict[str, Provider] = {}
        for provider in providers:
            by_name.setdefault(provider.name, provider)
        self.all = tuple(by_name.values())
        self._by_name_or_alias: dict[str, Provider] = {}
        for provider in self.all:
            for word in provider.words:  # the provider's name and aliases
                self._by_name_or_alias.setdefault(word, provider)

    def by_name(self, word: str) -> Provider | None:
        """Return the provider with this name or alias, ignoring case."""
        return self._by_name_or_alias.get(word.lower())

    def for_model(self, model: str) -> Provider | None:
        """Return the provider of a model name; None if no provider has such a model.

        Args:
            model: The model's name, with or without ``provider/`` in front.
        """
        name = model.lower()
        word, slash, _ = name.partition("/")
        if slash:
            return self.by_name(word)
        for provider in self.all:
            if any(fnmatchcase(name, pattern) for pattern in provider.models):
                return provider
        return None

    def resolve_provider(self, config: LLMConfig) -> LLMConfig:
        """Resolve a model name of the form ``provider:model`` in a configuration.

        ``acme:mini`` becomes ``acme/mini``. But if the configuration has a ``base_url``, and the
        provider has no ``own_protocol``, the name becomes ``mini``, and the field ``provider``
        changes from ``auto`` to ``acme``. Names of another form do not change.
        """
        word, _, rest = config.model.partition(":")
        provider = self.by_name(word)
        # ``name:7b`` is a model and its tag, not a provider and a model.
        is_tag = _TAG.fullmatch(rest) is not None
        if provider is None or not rest.strip() or is_tag:
            return config
        if config.base_url is None or provider.own_protocol:
            new_name = _copy_source(config.model, f"{provider.name}/{rest}")
            return replace(config, model=new_name)
        provider_name = provider.name if config.provider == AUTO else config.provider
        return replace(config, model=_copy_source(config.model, rest), provider=provider_name)

    def spellings(self, model: str) -> frozenset[str]:
        """Return all spellings of a model name in lower case, with and without provider.

        ``acme:mini`` has the spellings ``mini``, ``acme/mini`` and ``acme:mini``, and two
        more for each alias of the provider.

        Args:
            model: The name in any of these spellings.
        """
        name = model.lower()
        spellings = {name}
        # "acme:mini" -> "acme" and "mini"; "mini" -> "mini" and ""
        prefix, *parts_after_prefix = re.split("[:/]", name, maxsplit=1)
        rest = parts_after_prefix[0] if parts_after_prefix else ""
        if rest:
            spellings |= {f"{prefix}/{rest}", f"{prefix}:{rest}", rest}
        if "/" in rest:  # the name of another provider may follow, as in router/provider/model
            spellings |= self.spellings(rest)
        named_provider = self.by_name(prefix) if rest else None
        implied_provider = self.for_model(name)  # ``mini`` alone may imply the provider ``acme``
        if named_provider is not None:
            spellings |= _spellings_with_provider(named_provider, rest)
        elif implied_provider is not None:
            spellings |= _spellings_with_provider(implied_provider, name)
        return frozenset(spellings)

    @property
    def keys(self) -> tuple[str, ...]:
        """The environment variables with API keys of all providers, without repeats."""
        return tuple(dict.fromkeys(key for provider in self.all for key in provider.keys))

    def usable_suggestions(self, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the suggested model of each provider whose API key is in the environment.

        An item is a pair: the model's name and the name of the environment variable with the key.
        """
        for provider in self.all:
            key = next((name for name in provider.keys if environ.get(name)), None)
            if key is not None and provider.suggested is not None:
                yield provider.suggested, key


def _spellings_with_provider(provider: Provider, model: str) -> set[str]:
    """Return ``acme/mini`` and ``acme:mini``, and the same for each alias of the provider."""
    return {f"{word}{separator}{model}" for word in provider.words for separator in "/:"}


def _copy_source(old_text: str, new_text: str) -> str:
    """Return ``new_text`` marked with the source of ``old_text``, such as a file of a project."""
    if isinstance(old_text, FileText):
        return FileText(new_text, old_text.folder)
    if isinstance(old_text, SourcedText):
        return SourcedText(new_text, old_text.source)
    return new_text
