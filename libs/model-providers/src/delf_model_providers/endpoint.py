"""Endpoints of models: the provider, the address, the key and the key's source."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from delf.environment import Source, SourcedText, source_of
from delf.errors import EnvironmentKeyError, KeyAddressError, ModelConfigurationError, key_hint
from delf.llm import AUTO, NO_KEY, LLMConfig
from delf.network.urls import split_http_url
from delf.protocols.context import PluginContext
from delf.providers import Providers
from delf.records import dataclass
from delf.specs import Provider
from delf_model_providers.families import NO_OTHERS, SUPPORTED_PROVIDERS

_ORIGIN: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#]*@)?(?P<host_and_port>[^/?#]*)"
)
_HEADER_NAME: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model at an address, resolved from the user's configuration.

    Args:
        model: The model's name as the user wrote it.
        provider: The provider's name for messages: ``openai``, ``google``, ``groq`` …
        dialect: The API's protocol, named after the provider that defined the protocol; None if
            litellm makes the calls.
        name: The model's name for the API, without the provider. litellm's names include the
            provider.
        base_url: The API's address without credentials; None for the provider's default.
        custom: Whether the user configured the address.
        api_key: The key, or None.
        key_location: The origin of the key, for messages, such as ``OPENAI_API_KEY``.
        key_source: The kind of source that has the key; it decides which addresses may get the key.
        missing_variable: The environment variable to set if a required key is missing.
        headers: Extra HTTP headers.
        api_version: The version of the API, for Azure.
    """

    model: str
    provider: str
    dialect: str | None
    name: str
    base_url: str | None = field(default=None, repr=False)
    custom: bool = False
    api_key: str | None = field(default=None, repr=False)
    key_location: str = "no key"
    key_source: Source = "program"
    missing_variable: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    api_version: str | None = None

    @property
    def address(self) -> str:
        """Host and port of a custom address; empty for the provider's own."""
        return urlsplit(self.base_url or "").netloc

    @property
    def is_official(self) -> bool:
        """True for the provider that defined the protocol, at its official address."""
        return not self.custom and self.provider == self.dialect

    @property
    def label(self) -> str:
        """The provider's name, followed by the address if the user configured it, for messages."""
        if self.custom:
            return f"{self.provider} at {self.address}"
        return self.provider

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key and the values of headers, to be redacted in messages; longest first."""
        texts = [self.api_key or "", *self.headers.values()]
        # A header such as "Bearer KEY" may be quoted without its first word.
        texts += [value.partition(" ")[2] for value in self.headers.values()]
        # Redacting a text of a few characters, or the placeholder, would garble messages.
        secrets = {text for text in texts if len(text) > 3} - {NO_KEY}
        return tuple(sorted(secrets, key=len, reverse=True))

    def check_address(self, address: str) -> None:
        """Check that the API key may be sent to a base URL.

        Raises:
            KeyAddressError: If the source of the URL, such as a project's file, may not decide
                where the key is sent.
        """
        source = source_of(address)
        if self.api_key is not None and not _may_send_key(self.key_source, source):
            raise _key_address_error(self.model, self.key_location, self.key_source, source)

    def require_key(self) -> None:
        """Raise if the required key is missing, before anything is imported or sent.

        Raises:
            EnvironmentKeyError: If the key is missing; the error names the environment variable.
        """
        if self.missing_variable is not None:
            raise EnvironmentKeyError(
                f"the model {self.model!r} needs a key: {self.missing_variable} is not set",
                variable=self.missing_variable,
                hint=f"{key_hint(self.missing_variable)}; a program can give LLMConfig(api_key=…)",
            )


def resolve(
    config: LLMConfig,
    context: PluginContext,
    supported_providers: Providers = SUPPORTED_PROVIDERS,
    other_providers: Providers = NO_OTHERS,
) -> Endpoint:
    """Resolve a model's name, such as ``gpt-5`` or ``groq/llama-4``, to its endpoint.

    Args:
        config: The model's name and settings.
        context: The configured keys, the environment variables and the installed providers.
        supported_providers: The providers whose protocols delf implements. Each installed provider
            with the ``dialect`` of one of these providers is added.
        other_providers: The providers that litellm supports.

    Raises:
        ModelConfigurationError: If no provider is known for the name.
        KeyAddressError: If a project's file sets the address, and the only keys are the user's.
    """
    written_name = config.model
    installed_providers = context.installed_providers
    supported_providers = _add_installed(supported_providers, installed_providers)
    all_providers = Providers(
        (*supported_providers.all, *other_providers.all, *installed_providers.all)
    )
    config = all_providers.resolve_provider(config)  # "acme:mini" becomes "acme/mini"
    resolver = _EndpointResolver(written_name, config, context)
    if config.provider != AUTO:
        return _resolve_named_provider(resolver, config, supported_providers, all_providers)
    compatible = next(provider for provider in supported_providers.all if provider.compatible)
    # A server at a base URL is OpenAI-compatible, unless the prefix names another protocol.
    if config.base_url is not None and not _has_own_protocol(config.model, other_providers):
        return resolver.for_dialect(compatible, config.model, config.base_url)
    if "/" in config.model:  # as in groq/llama-4
        return _resolve_prefix(resolver, config, supported_providers, all_providers)
    # Some names show the provider without a prefix, such as gpt-5.
    if owner := supported_providers.for_model(config.model):
        return resolver.for_dialect(owner, config.model, None)
    if owner := all_providers.for_model(config.model):
        return resolver.for_litellm(owner, config.model)
    # Any other name belongs to the server whose address is in the environment.
    if url_in_environment := _first_variable(context, compatible.addresses):
        return resolver.for_dialect(compatible, config.model, url_in_environment)
    # Suggest only providers that work here; the rest would need another plugin.
    raise _unknown_provider_error(config.model, (*supported_providers.all, *other_providers.all))


def _has_own_protocol(model: str, other_providers: Providers) -> bool:
    """Return True if a model's name begins with a provider whose API is not OpenAI-compatible.

    With such a name, a base URL leads to the API of this provider. With any other name, the server
    at the base URL is assumed to be OpenAI-compatible.
    """
    prefix, slash, _ = model.partition("/")
    provider = other_providers.by_name(prefix) if slash else None
    return provider is not None and provider.own_protocol


def _resolve_prefix(
    resolver: _EndpointResolver,
    config: LLMConfig,
    supported_providers: Providers,
    all_providers: Providers,
) -> Endpoint:
    """Resolve the name of a model whose prefix before ``/`` names the provider."""
    prefix, _, name = config.model.partition("/")
    supported = supported_providers.by_name(prefix)
    if supported is not None:
        return resolver.for_dialect(supported, name, config.base_url)
    provider = all_providers.by_name(prefix) or _provider_by_convention(prefix)
    return resolver.for_litellm(provider, name)


def _unknown_provider_error(model: str, providers: Sequence[Provider]) -> ModelConfigurationError:
    prefixes = ", ".join(f"{provider.name}/…" for provider in providers)
    return ModelConfigurationError(
        f"no provider is known for the model {model!r}",
        hint=f"for a server of your own, such as Ollama: --llm {model} --base-url "
        f"http://localhost:11434/v1 (base_url in a program); with a provider in front of its name: "
        f"{prefixes}",
    )


def _resolve_named_provider(
    resolver: _EndpointResolver,
    config: LLMConfig,
    supported_providers: Providers,
    all_providers: Providers,
) -> Endpoint:
    """Resolve the name of a model whose provider the configuration names.

    If the model's name begins with the name of the same provider, this prefix is left out. The
    prefix stays if the configuration has a ``base_url`` and the provider is a supported one.

    Raises:
        ModelConfigurationError: If the provider is unknown.
    """
    named = supported_providers.by_name(config.provider)
    if named is not None:
        name = config.model
        if config.base_url is None:  # a server of the user's own may have names with a slash
            name = _without_prefix(name, named, supported_providers)
        return resolver.for_dialect(named, name, config.base_url)
    other = all_providers.by_name(config.provider)
    if other is None:
        provider_names = ", ".join(provider.name for provider in all_providers.all)
        raise ModelConfigurationError(
            f"the model {resolver.model_name!r}: provider {config.provider!r} is not one of: "
            f"{provider_names}"
        )
    return resolver.for_litellm(other, _without_prefix(config.model, other, all_providers))


def _without_prefix(model: str, provider: Provider, providers: Providers) -> str:
    """Return a model's name without a prefix that names the model's own provider."""
    prefix, slash, rest = model.partition("/")
    has_prefix = bool(slash) and providers.by_name(prefix) is provider
    return rest if has_prefix else model


def _add_installed(supported_providers: Providers, installed_providers: Providers) -> Providers:
    """Add each installed provider that uses the protocol of a supported provider."""
    # A provider's ``dialect`` names the provider that defined its protocol, such as ``openai``.
    supported_dialects = {provider.name for provider in supported_providers.all}
    added = [each for each in installed_providers.all if each.dialect in supported_dialects]
    return Providers((*supported_providers.all, *added))


def _provider_by_convention(prefix: str) -> Provider:
    """Return a provider that no plugin declares, for a prefix such as ``acme`` of ``acme/mini``.

    The key of this provider is in the environment variable ``ACME_API_KEY``. The provider may use
    another kind of login than a key, such as a cloud role. So ``login`` is ``other``, with which a
    missing key is no error.
    """
    return Provider(name=prefix, login="other")


@dataclass(frozen=True, slots=True)
class _EndpointResolver:
    """Resolves a model's name to an endpoint: protocol, address and key."""

    model_name: str
    config: LLMConfig
    context: PluginContext

    def for_dialect(self, provider: Provider, name: str, base_url: str | None) -> Endpoint:
        """Return the endpoint of a provider whose protocol delf implements."""
        configured_url = base_url or _first_variable(self.context, provider.addresses)
        is_custom = configured_url is not None
        address_source = source_of(configured_url) if is_custom else None
        key = _find_key(self.config, self.context, provider, provider.keys, configured_url)
        custom_url, headers = _split_credentials(configured_url, self.config, address_source)
        is_key_missing = key.text is None and not is_custom
        if key.text is None and is_custom:
            key = replace(key, text=NO_KEY)  # a server at a custom address may need no key
        return Endpoint(
            model=self.model_name,
            provider=provider.name,
            dialect=provider.dialect or provider.name,
            name=name,
            base_url=custom_url or provider.url,
            custom=is_custom,
            api_key=key.text,
            key_location=key.location,
            key_source=key.source,
            missing_variable=provider.keys[0] if is_key_missing else None,
            headers=headers,
        )

    def for_litellm(self, provider: Provider, name: str) -> Endpoint:
        """Return the endpoint of a provider that only litellm can call.

        Raises:
            KeyAddressError: If a project's file sets the address of a server that needs a login,
                and there is no key that may be sent to this address.
        """
        stem = provider.name.upper()
        key_variables = provider.keys or (f"{stem}_API_KEY",)
        configured_url = self.config.base_url or _variable(self.context, f"{stem}_API_BASE")
        # A name may contain an address, too: huggingface/https://host
        name_with_url = self.config.model if "://" in self.config.model else None
        address = configured_url or name_with_url
        address_source = None if address is None else source_of(address)
        key = self._key_for_litellm(provider, key_variables, address)
        base_url, headers = _split_credentials(configured_url, self.config, address_source)
        # The login "key" requires a key. "other" allows another login, such as a cloud role.
        is_key_missing = key.text is None and provider.login == "key"
        return Endpoint(
            model=self.model_name,
            provider=provider.name,
            dialect=None,
            name=f"{provider.name}/{name}",
            base_url=base_url,
            custom=base_url is not None,
            api_key=key.text,
            key_location=key.location,
            key_source=key.source,
            missing_variable=key_variables[0] if is_key_missing else None,
            headers=headers,
            api_version=self.context.environ.get(f"{stem}_API_VERSION") or None,
        )

    def _key_for_litellm(
        self, provider: Provider, variables: tuple[str, ...], address: str | None
    ) -> _Key:
        """Find the key for a call by litellm.

        Without a key, litellm would take a key from the environment. If that key must not be sent
        to the address, because a program or a project's file sets the address, return a
        placeholder.

        Args:
            provider: The provider.
            variables: The environment variables that may have the key.
            address: The address; None for the provider's default.

        Raises:
            KeyAddressError: If a project's file sets the address, and the server needs a login.
        """
        key = _find_key(self.config, self.context, provider, variables, address)
        address_source = None if address is None else source_of(address)
        may_litellm_search = address_source not in ("program", "project")
        if key.text is not None or may_litellm_search:
            return key
        if address_source == "project" and provider.login != "none":
            # The server would refuse the placeholder.
            raise _key_address_error(self.model_name, variables[0], "environment", address_source)
        return replace(key, text=NO_KEY)


def _first_variable(context: PluginContext, names: tuple[str, ...]) -> str | None:
    """Return the value of the first environment variable that is set; None if all are unset."""
    return next(filter(None, (_variable(context, name) for name in names)), None)


def _variable(context: PluginContext, name: str) -> str | None:
    """Return an environment variable's value with its source; None if unset or empty."""
    value = context.environ.get(name)
    if not value:
        return None
    # The source decides to which addresses a key may be sent. A value from a project's ``.env``
    # file already has the source ``project``.
    return SourcedText(value, source_of(value, otherwise="environment"))


@dataclass(frozen=True)
class _Key:
    """The result of the search for a key.

    Args:
        text: The key; None if there is none.
        location: The name of the variable or setting with the key, or why there is no key.
        source: The kind of source that has the key.
    """

    text: str | None
    location: str
    source: Source = "environment"

    @classmethod
    def absent(cls, *, reason: str) -> Self:
        """Return the result of a search that found no key.

        Args:
            reason: Why there is no key, for messages.
        """
        return cls(None, location=reason)


def _may_send_key(key: Source, address: Source | None) -> bool:
    """Return True if a key may be sent to an address.

    Args:
        key: The source of the key.
        address: The source of the address; None for the provider's default. An address from the
            environment or the command line may get any key. An address from a program or a
            project's file may get only keys from the same source.
    """
    return address is None or address in ("environment", "command line") or address == key


def _find_key(
    config: LLMConfig,
    context: PluginContext,
    provider: Provider,
    variables: tuple[str, ...],
    address: str | None,
) -> _Key:
    """Find the first key that may be sent to an address, in the order of :func:`_all_keys`.

    Raises:
        ModelConfigurationError: If a key has an invalid character.
        KeyAddressError: If a project's file sets the address, and the only keys are the user's.
    """
    address_source = None if address is None else source_of(address)
    first_rejected: _Key | None = None  # for the message if no other key is found
    for location, text in _all_keys(config, context, provider, variables, address):
        key = _key_at(location, text, config.model)
        if key is None:
            continue
        if _may_send_key(key.source, address_source):
            return key
        first_rejected = first_rejected or key
    if first_rejected is None:
        return _Key.absent(reason=f"no key was given and {variables[0]} is not set")
    if address_source == "project":
        # The project may have set an address of its own in order to steal the user's key.
        raise _key_address_error(
            config.model, first_rejected.location, first_rejected.source, address_source
        )
    return _Key.absent(
        reason=f"{first_rejected.location} is not sent to an address of the {address_source}"
    )


def _key_at(location: str, text: str | None, model: str) -> _Key | None:
    """Return the key at one of the places that may have a key; None if that place has no key.

    The placeholder ``NO_KEY`` is returned like a key: it is sent to servers that need no key.

    Raises:
        ModelConfigurationError: If the key has an invalid character.
    """
    key = (text or "").strip()  # keys read from files often end in a newline
    if not key:
        return None
    if not (key.isascii() and key.isprintable()):
        raise ModelConfigurationError(
            f"the key of {model!r} ({location}) has an invalid character",
            hint="copy the key again: letters, digits and plain punctuation",
        )
    if key == NO_KEY:
        location = f'no key, as api_key is "{NO_KEY}"'
    return _Key(key, location, source_of(text))


def _all_keys(
    config: LLMConfig,
    context: PluginContext,
    provider: Provider,
    variables: tuple[str, ...],
    address: str | None,
) -> Iterator[tuple[str, str | None]]:
    """Yield each place that may have a key, and its key or None, in order of precedence."""
    yield "LLMConfig(api_key=…)", config.api_key
    key_for_address = _key_for_address(context, address)
    if address is not None and key_for_address is not None:
        # The key gets the source of the address, so that _may_send_key() accepts it: the user
        # configured this key for this address.
        yield "api_key_for", SourcedText(key_for_address, source_of(address))
    for name in (provider.name, *provider.aliases):
        yield f"providers[{name!r}]", context.providers.get(name)
    for name in variables:
        yield name, _variable(context, name)


def _key_address_error(
    model: str, key_location: str, key_source: Source, address_source: Source
) -> KeyAddressError:
    if address_source == "project":
        message = (
            f"the model {model!r}: a file of the project gives the address, and the key comes from "
            f"the {key_source} ({key_location}): the key is sent to this address only if you "
            "configure the key for the address"
        )
    else:
        message = (
            f"the model {model!r}: the address comes from the {address_source}, and the key from "
            f"the {key_source} ({key_location})"
        )
    is_environment_variable = key_location.isupper()
    variable = key_location if is_environment_variable else "OPENAI_API_KEY"  # or as an example
    return KeyAddressError(
        message,
        hint=f'set the key for this address next to base_url, as api_key = "${{{variable}}}", '
        'or api_key = "none" where none is needed; api_key_for maps hosts to keys, for any address',
    )


def _key_for_address(context: PluginContext, address: str | None) -> str | None:
    """Return the key that ``api_key_for`` has for an address; None if there is no such key.

    The scheme, the host and the port must be those of the setting.
    """
    if address is None or not context.api_key_for:
        return None
    origin = _ORIGIN.search(address)
    if origin is None:
        return None
    for host, key in context.api_key_for.items():
        # A host that is configured without a scheme gets the scheme of the address.
        configured_address = host if "://" in host else f"{origin['scheme']}://{host}"
        configured_origin = _ORIGIN.search(configured_address)
        if configured_origin and _same_origin(origin, configured_origin):
            return key
    return None


def _same_origin(one: re.Match[str], other: re.Match[str]) -> bool:
    """Return True if two matches of ``_ORIGIN`` have the same scheme, host and port."""
    is_same_scheme = one["scheme"].lower() == other["scheme"].lower()
    is_same_host = one["host_and_port"].lower() == other["host_and_port"].lower()
    return is_same_scheme and is_same_host


def _headers(config: LLMConfig) -> dict[str, str]:
    headers = dict(config.headers or {})
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ModelConfigurationError(
                f"the header {name!r} of {config.model!r} cannot be sent",
                hint="names are letters, digits and '-'; values are ASCII in one line",
            )
    return headers


def _split_credentials(
    base_url: str | None, config: LLMConfig, source: Source | None
) -> tuple[str | None, dict[str, str]]:
    """Move the credentials of an address to an ``Authorization`` header.

    Returns:
        The address without credentials, and the headers.

    Raises:
        KeyAddressError: If a project's file sets the address, and another source sets a header.
        ModelConfigurationError: If the address or a header is invalid.
    """
    headers = _headers(config)
    for name, value in headers.items():
        if source == "project" and source_of(value) != source:
            raise _key_address_error(config.model, f"the header {name}", source_of(value), source)
    if base_url is None:
        return None, headers
    parts = split_http_url(base_url)
    if parts is None:
        address = base_url.rpartition("@")[2]  # without the login, which must not be shown
        raise ModelConfigurationError(
            f"base_url {address!r} is not an http:// or https:// address with "
            "a valid host and port",
            hint="the root of the API with its version, as http://localhost:11434/v1",
        )
    userinfo, _, host_and_port = parts.netloc.rpartition("@")
    if userinfo and not any(name.lower() == "authorization" for name in headers):
        encoded = base64.b64encode(unquote(userinfo).encode()).decode("ascii")
        headers["Authorization"] = f"Basic {encoded}"
    return urlunsplit(parts._replace(netloc=host_and_port)), headers
