"""Endpoints of models: the provider, the address, the key and the key's source."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from delf.environment import Source, SourcedText, source_of
from delf.errors import EnvironmentKeyError, KeyAddressError, ModelConfigurationError, key_hint
from delf.llm import AUTO, LLMConfig
from delf.protocols.context import PluginContext
from delf.providers import Providers
from delf.records import dataclass
from delf.specs import Provider
from delf_model_providers.families import NO_OTHERS, SPOKEN

NO_KEY: Final = "local"
"""The key for a custom endpoint without a known key; servers without a login ignore it."""

_ORIGIN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#]*@)?([^/?#]*)")
_HEADER_NAME: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model at an address, resolved from the user's configuration.

    Args:
        model: The name as the user wrote it.
        provider: For people and errors: ``openai``, ``google``, ``anthropic``, ``groq`` …
        dialect: The protocol, by the name of a provider; None for litellm.
        name: The name without the provider, except for providers that litellm serves.
        base_url: The address without credentials, or None for the provider's own.
        custom: Whether the user gave the address.
        api_key: The key, or None.
        key_source: The source of the key, for errors.
        key_from: The source of the key.
        missing: The variable to set, when the key is missing and needed.
        headers: Extra headers.
        api_version: Azure's version of the API.
    """

    model: str
    provider: str
    dialect: str | None
    name: str
    base_url: str | None = field(default=None, repr=False)
    custom: bool = False
    api_key: str | None = field(default=None, repr=False)
    key_source: str = "no key"
    key_from: Source = "program"
    missing: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    api_version: str | None = None

    @property
    def address(self) -> str:
        """Host and port of a custom address; empty for the provider's own."""
        return urlsplit(self.base_url or "").netloc

    @property
    def is_original(self) -> bool:
        """True for the provider that defined the protocol, at its official address."""
        return not self.custom and self.provider == self.dialect

    @property
    def label(self) -> str:
        """The name of the endpoint, for messages."""
        return f"{self.provider} at {self.address}" if self.custom else self.provider

    @property
    def secrets(self) -> tuple[str, ...]:
        """Everything that messages must not contain."""
        texts = [self.api_key or "", *self.headers.values()]
        texts += [value.partition(" ")[2] for value in self.headers.values()]
        return tuple(
            sorted({s for s in texts if len(s) > 3 and s != NO_KEY}, key=len, reverse=True)
        )

    def check_address(self, address: str) -> None:
        """Refuse an address, such as a session's, whose source does not own the key.

        Raises:
            KeyAddressError: If key and address have different sources; the error names both.
        """
        source = source_of(address)
        if self.api_key is not None and not _may_send_key(self.key_from, source):
            raise _refused(self.model, self.key_source, self.key_from, source)

    def require_key(self) -> None:
        """Fail when the key is missing, before anything is imported or sent.

        Raises:
            EnvironmentKeyError: If no key is found; the error names the variable.
        """
        if self.missing is not None:
            raise EnvironmentKeyError(
                f"the model {self.model!r} needs a key: {self.missing} is not set",
                variable=self.missing,
                hint=f"{key_hint(self.missing)}; a program can give LLMConfig(api_key=…)",
            )


def resolve(
    config: LLMConfig,
    context: PluginContext,
    spoken: Providers = SPOKEN,
    other_providers: Providers = NO_OTHERS,
) -> Endpoint:
    """Resolve a model's name to its endpoint.

    Args:
        config: The model as the user gave it.
        context: Keys and the environment.
        spoken: The providers with a dialect.
        other_providers: The providers of litellm.

    Raises:
        ModelConfigurationError: For a name without a known provider.
        KeyAddressError: If a project's file gives the address and no key may be sent there.
    """
    original_config = config
    config = Providers((*spoken.all, *other_providers.all)).resolve_provider(config)
    word, slash, rest = config.model.partition("/")
    base_url = config.base_url
    place = _Place(original_config.model, config, context)
    if config.provider != AUTO:
        named = spoken.by_name(config.provider)
        inner = rest if slash else ""
        if named is not None:
            is_in_name = base_url is None and spoken.by_name(word) is named
            return place.family(named, inner if is_in_name else config.model, base_url)
        other = other_providers.by_name(config.provider)
        if other is None:
            provider_names = ", ".join(
                provider.name for provider in (*spoken.all, *other_providers.all)
            )
            raise ModelConfigurationError(
                f"the model {original_config.model!r}: provider {config.provider!r} is not one of: "
                f"{provider_names}"
            )
        is_in_name = other_providers.by_name(word) is other
        return place.other(other, inner if is_in_name else config.model)
    other = other_providers.by_name(word) if slash else None
    compatible = next(provider for provider in spoken.all if provider.compatible)
    if base_url is not None and not (other and other.own_protocol):
        return place.family(compatible, config.model, base_url)
    if slash:
        named = spoken.by_name(word)
        if named is not None:
            return place.family(named, rest, base_url)
        return place.other(other or _provider_by_convention(word), rest)
    if owner := spoken.for_model(config.model):
        return place.family(owner, config.model, None)
    if base_url := _first_of(context, compatible.addresses):
        return place.family(compatible, config.model, base_url)
    # Suggest only providers that work here; the rest would need another plugin.
    prefixes = ", ".join(
        f"{provider_names.name}/…" for provider_names in (*spoken.all, *other_providers.all)
    )
    raise ModelConfigurationError(
        f"no provider is known for the model {config.model!r}",
        hint=f"for a server of your own, such as Ollama: --llm {config.model} --base-url "
        f"http://localhost:11434/v1 (base_url in a program); with a provider in front of its name: "
        f"{prefixes}",
    )


def _provider_by_convention(word: str) -> Provider:
    """Return an undeclared provider, with conventional variable names."""
    return Provider(name=word, login="other")


@dataclass(frozen=True, slots=True)
class _Place:
    """Resolves the endpoint of a model: address, protocol and key."""

    written: str
    config: LLMConfig
    context: PluginContext

    def family(self, provider: Provider, name: str, base_url: str | None) -> Endpoint:
        """Return the endpoint of a provider with a dialect."""
        base_url = base_url or _first_of(self.context, provider.addresses)
        custom = base_url is not None
        address = source_of(base_url) if custom else None
        key = _key(self.config, self.context, provider.words, provider.keys, base_url)
        base_url, headers = _address(base_url, self.config, address)
        missing = None
        if key.text is None and custom:
            key = replace(key, text=NO_KEY)
        elif key.text is None:
            missing = provider.keys[0]
        return Endpoint(
            model=self.written,
            provider=provider.name,
            dialect=provider.dialect or provider.name,
            name=name,
            base_url=base_url or provider.url,
            custom=custom,
            api_key=key.text,
            key_source=key.place,
            key_from=key.source,
            missing=missing,
            headers=headers,
        )

    def other(self, provider: Provider, name: str) -> Endpoint:
        """Return the endpoint of a provider that litellm calls, for lack of a dialect in delf."""
        stem = provider.name.upper()
        keys = provider.keys or (f"{stem}_API_KEY",)
        base_url = self.config.base_url or _variable(self.context, f"{stem}_API_BASE")
        # A name may hold an address, too: huggingface/https://host
        url = base_url or (self.config.model if "://" in self.config.model else None)
        address = None if url is None else source_of(url)
        key = _key(self.config, self.context, provider.words, keys, url)
        base_url, headers = _address(base_url, self.config, address)
        if key.text is None and address in ("program", "project"):
            if address == "project" and provider.login != "none":
                # Without a key, litellm would use a key of the environment.
                raise _refused(self.written, keys[0], "environment", address)
            key = replace(key, text=NO_KEY)
        return Endpoint(
            model=self.written,
            provider=provider.name,
            dialect=None,
            name=f"{provider.name}/{name}",
            base_url=base_url,
            custom=base_url is not None,
            api_key=key.text,
            key_source=key.place,
            key_from=key.source,
            missing=keys[0] if key.text is None and provider.login == "key" else None,
            headers=headers,
            api_version=self.context.environ.get(f"{stem}_API_VERSION") or None,
        )


def _first_of(context: PluginContext, names: tuple[str, ...]) -> str | None:
    """Return the value of the first variable that is set, with its source; None if none is."""
    return next(filter(None, (_variable(context, name) for name in names)), None)


def _variable(context: PluginContext, name: str) -> str | None:
    """Return a variable's value with its source; None if it is unset or empty."""
    value = context.environ.get(name)
    return SourcedText(value, source_of(value, "environment")) if value else None


@dataclass(frozen=True)
class _Key:
    """A key, if found, with its location and source."""

    text: str | None
    place: str
    source: Source = "environment"


def _may_send_key(key: Source, address: Source | None) -> bool:
    """Return True if a key may be sent to an address; None is the provider's own address.

    An address from the environment or the command line is the user's and may get any key. An
    address set by a program may use the program's keys; an address from a project's file may use
    only keys from the project's files.
    """
    return address is None or address in ("environment", "command line") or address == key


def _key(
    config: LLMConfig,
    context: PluginContext,
    aliases: tuple[str, ...],
    variables: tuple[str, ...],
    address: str | None,
) -> _Key:
    """Find the key in the configuration, by address, in ``providers``, or in the environment.

    Raises:
        KeyAddressError: If a project's file gives the address, and the only key is from elsewhere.
    """
    address_source = None if address is None else source_of(address)
    own_key = _key_for(context, address)
    places = [("LLMConfig(api_key=…)", config.api_key)]
    places += [("api_key_for", own_key and SourcedText(own_key, address_source or "program"))]
    places += [(f"providers[{alias!r}]", context.providers.get(alias)) for alias in aliases]
    places += [(name, _variable(context, name)) for name in variables]
    first_refused: _Key | None = None
    for place, text in places:
        key = (text or "").strip()  # keys read from files often end in a newline
        if not key:
            continue
        candidate = _Key(key, place, source_of(text))
        if not (key.isascii() and key.isprintable()):
            raise ModelConfigurationError(
                f"the key of {config.model!r} ({place}) has an invalid character",
                hint="copy the key again: letters, digits and plain punctuation",
            )
        if _may_send_key(candidate.source, address_source):
            return candidate
        first_refused = first_refused or candidate
    if first_refused is None:
        return _Key(None, f"no key was given and {variables[0]} is not set")
    if address_source == "project":
        raise _refused(config.model, first_refused.place, first_refused.source, address_source)
    return _Key(None, f"{first_refused.place} is not sent to an address of the {address_source}")


def _refused(model: str, place: str, key: Source, address: Source) -> KeyAddressError:
    variable = place if place.isupper() else "OPENAI_API_KEY"
    return KeyAddressError(
        f"the model {model!r}: a file of the project gives the address, and the key is of the "
        f"{key} ({place}): it goes there only if that is configured"
        if address == "project"
        else f"the model {model!r}: the address is of the {address}, and the key is of the "
        f"{key} ({place})",
        hint=f'beside base_url, api_key names the key for it, as api_key = "${{{variable}}}", '
        'or api_key = "none" where none is needed; api_key_for has keys by host, for any address',
    )


def _key_for(context: PluginContext, address: str | None) -> str | None:
    """Find the key for an address: by host and port, or by URL."""
    if address is None or not context.api_key_for:
        return None
    origin = _ORIGIN.search(address)
    for address_pattern, key in context.api_key_for.items():
        wanted_origin = _ORIGIN.search(
            address_pattern
            if "://" in address_pattern
            else f"{origin and origin[1]}://{address_pattern}"
        )
        if origin and wanted_origin and _same_origin(origin, wanted_origin):
            return key
    return None


def _same_origin(one: re.Match[str], other: re.Match[str]) -> bool:
    return one[1].lower() == other[1].lower() and one[2].lower() == other[2].lower()


def _headers(config: LLMConfig) -> dict[str, str]:
    headers = dict(config.headers or {})
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ModelConfigurationError(
                f"the header {name!r} of {config.model!r} cannot be sent",
                hint="names are letters, digits and '-'; values are ASCII in one line",
            )
    return headers


def _address(
    base_url: str | None, config: LLMConfig, source: Source | None
) -> tuple[str | None, dict[str, str]]:
    """Return the address without credentials, and the headers with them.

    Raises:
        KeyAddressError: If headers from the environment would be sent to an address from a file.
    """
    headers = _headers(config)
    for name, value in headers.items():
        if source == "project" and source_of(value) != source:
            raise _refused(config.model, f"the header {name}", source_of(value), source)
    if base_url is None:
        return None, headers
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelConfigurationError(
            f"base_url {base_url.rpartition('@')[2]!r} is not an http:// or https:// address",
            hint="the root of the API with its version, as http://localhost:11434/v1",
        )
    userinfo, _, address = parts.netloc.rpartition("@")
    if userinfo and not any(name.lower() == "authorization" for name in headers):
        encoded = base64.b64encode(unquote(userinfo).encode()).decode("ascii")
        headers["Authorization"] = f"Basic {encoded}"
    return urlunsplit(parts._replace(netloc=address)), headers
