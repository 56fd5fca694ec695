"""Endpoints of models: the provider, the address, the key and the key's source."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from delf.environment import Source, SourcedText, source_of
from delf.errors import EnvironmentKeyError, KeyAddressError, ModelConfigurationError
from delf.llm import LLMConfig, provider_of_name
from delf.protocols.model import ModelContext

OPENAI_URL: Final = "https://api.openai.com/v1"
NO_KEY: Final = "local"
"""Sent to a custom endpoint when no key is known; servers without a login ignore it."""


Dialect = Literal["openai", "anthropic", "google"]
"""The protocol of an endpoint: chat completions, messages, ``generateContent``."""


@dataclass(frozen=True)
class Family:
    """One of the three providers.

    Args:
        name: As users write it: ``LLMConfig(provider=…)``, ``providers={…}``.
        aliases: What may stand before a slash in a name, and in ``providers``.
        variables: Where its key is looked up, the one to name in errors first.
    """

    name: Dialect
    aliases: tuple[str, ...]
    variables: tuple[str, ...]


_GOOGLE_KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_FAMILIES: Final = (
    Family("google", ("google", "gemini"), _GOOGLE_KEYS),
    Family("openai", ("openai",), ("OPENAI_API_KEY",)),
    Family("anthropic", ("anthropic",), ("ANTHROPIC_API_KEY",)),
)
_BY_NAME: Final[Mapping[str, Family]] = {family.name: family for family in _FAMILIES}
_BY_PREFIX: Final = {alias: family for family in _FAMILIES for alias in family.aliases}

_ORIGIN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#]*@)?([^/?#]*)")
_HEADER_NAME: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")

_OWN_ADDRESS: Final = frozenset({"azure", "azure_ai", "ollama", "ollama_chat"})
"""Prefixes that keep their own protocol when a base URL is given."""

_KEYLESS: Final = frozenset({"ollama", "ollama_chat"})
"""Other providers that know no key."""

_KEY_NEEDED: Final = {
    "cerebras": "CEREBRAS_API_KEY",
    "cohere": "COHERE_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks_ai": "FIREWORKS_AI_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "perplexity": "PERPLEXITYAI_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
    "xai": "XAI_API_KEY",
}
"""Other providers that are known to refuse every call without this variable."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One model at one address, resolved.

    Args:
        model: The name as the user wrote it.
        provider: For people and errors: ``openai``, ``google``, ``anthropic``, ``groq`` …
        dialect: What it speaks; None for a provider that is none of the three.
        name: The name without the prefix of one of the three.
        base_url: The address without credentials, or None for the provider's own.
        custom: Whether the user gave the address.
        api_key: The key, or None.
        key_source: Where the key came from, for errors.
        key_from: Who gave the key.
        missing: The variable to set, when the key is missing and needed.
        headers: Extra headers.
        api_version: Azure's version of the API.
    """

    model: str
    provider: str
    dialect: Dialect | None
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
        """Host and port; empty for the provider's own."""
        return urlsplit(self.base_url or "").netloc

    @property
    def label(self) -> str:
        """Name the endpoint for messages."""
        return f"{self.provider} at {self.address}" if self.custom else self.provider

    @property
    def secrets(self) -> tuple[str, ...]:
        """Everything that no message may contain."""
        found = [self.api_key or "", *self.headers.values()]
        found += [value.partition(" ")[2] for value in self.headers.values()]
        return tuple(
            sorted({s for s in found if len(s) > 3 and s != NO_KEY}, key=len, reverse=True)
        )

    def check_address(self, address: str) -> None:
        """Refuse another address, as of a session, that somebody gave whose key it is not.

        Raises:
            KeyAddressError: Saying whose key and address they are.
        """
        source = source_of(address)
        if self.api_key is not None and not _fits(self.key_from, source):
            raise _refused(self.model, self.key_source, self.key_from, source)

    def require_key(self) -> None:
        """Fail when the key is missing, before anything is imported or sent.

        Raises:
            EnvironmentKeyError: Naming the variable.
        """
        if self.missing is not None:
            raise EnvironmentKeyError(
                f"the model {self.model!r} needs a key: {self.missing} is not set",
                variable=self.missing,
                hint=f"set {self.missing} in the environment or in .env, "
                f"or give LLMConfig(api_key=…) or providers={{{self.provider!r}: …}}",
            )


def resolve(config: LLMConfig, context: ModelContext) -> Endpoint:
    """Find out where a model's name leads.

    Args:
        config: The model as the user gave it.
        context: Keys and the environment.

    Raises:
        ModelConfigurationError: For a name that leads nowhere.
        KeyAddressError: When a file of the project gives the address, and no key is for it.
    """
    prefix, slash, rest = config.model.partition("/")
    base_url = config.base_url
    if config.provider != "auto":
        family = _BY_NAME[config.provider]
        name = rest if base_url is None and _BY_PREFIX.get(prefix) is family else config.model
        return _family(family, name, base_url, config, context)
    if base_url is not None and prefix not in _OWN_ADDRESS:
        return _family(_BY_NAME["openai"], config.model, base_url, config, context)
    if slash and prefix in _BY_PREFIX:
        return _family(_BY_PREFIX[prefix], rest, base_url, config, context)
    if slash:
        return _other(prefix, config, context)
    if owner := provider_of_name(config.model):
        return _family(_BY_NAME[owner], config.model, None, config, context)
    if base_url := _variable(context, "OPENAI_BASE_URL"):
        return _family(_BY_NAME["openai"], config.model, base_url, config, context)
    raise ModelConfigurationError(
        f"no provider is known for the model {config.model!r}",
        hint="a name with its provider: 'groq/…', 'ollama/…', 'openrouter/…'; or, for a server of "
        f"your own, --base-url or LLMConfig(model={config.model!r}, base_url='http://host/v1')",
    )


def _family(
    family: Family, name: str, base_url: str | None, config: LLMConfig, context: ModelContext
) -> Endpoint:
    if family.name == "openai" and base_url is None:
        base_url = _variable(context, "OPENAI_BASE_URL")
    custom = base_url is not None
    address = source_of(base_url) if custom else None
    key = _key(config, context, family.aliases, family.variables, base_url)
    base_url, headers = _address(base_url, config, address)
    missing = None
    if key.text is None and custom:
        key = replace(key, text=NO_KEY)
    elif key.text is None:
        missing = family.variables[0]
    if family.name == "openai" and base_url is None:
        base_url = OPENAI_URL
    return Endpoint(
        model=config.model,
        provider=family.name,
        dialect=family.name,
        name=name,
        base_url=base_url,
        custom=custom,
        api_key=key.text,
        key_source=key.place,
        key_from=key.source,
        missing=missing,
        headers=headers,
    )


def _other(prefix: str, config: LLMConfig, context: ModelContext) -> Endpoint:
    """A provider that is none of the three."""
    stem = prefix.upper()
    needed = _KEY_NEEDED.get(prefix)
    variables = (needed,) if needed else (f"{stem}_API_KEY",)
    base_url = config.base_url or _variable(context, f"{stem}_API_BASE")
    # A name may hold an address, too: huggingface/https://host
    given = base_url or (config.model if "://" in config.model else None)
    address = None if given is None else source_of(given)
    key = _key(config, context, (prefix,), variables, given)
    base_url, headers = _address(base_url, config, address)
    if key.text is None and address in ("program", "project"):
        if address == "project" and prefix not in _KEYLESS:
            # Without one, litellm takes what it finds in the environment.
            raise _refused(config.model, variables[0], "environment", address)
        key = replace(key, text=NO_KEY)
    return Endpoint(
        model=config.model,
        provider=prefix,
        dialect=None,
        name=config.model,
        base_url=base_url,
        custom=base_url is not None,
        api_key=key.text,
        key_source=key.place,
        key_from=key.source,
        missing=needed if key.text is None else None,
        headers=headers,
        api_version=context.environ.get(f"{stem}_API_VERSION") or None,
    )


def _variable(context: ModelContext, name: str) -> str | None:
    """A variable that is set, knowing who gave it."""
    found = context.environ.get(name)
    return SourcedText(found, source_of(found, "environment")) if found else None


@dataclass(frozen=True)
class _Key:
    """A key, if one was found: where, and who gave it."""

    text: str | None
    place: str
    source: Source = "environment"


def _fits(key: Source, address: Source | None) -> bool:
    """Tell whether a key goes to an address, None for the provider's own.

    An address of the environment or the command line is the person's, and gets any key. One of a
    program gets that program's keys, and one of a project's file those of its files.
    """
    return address is None or address in ("environment", "command line") or address == key


def _key(
    config: LLMConfig,
    context: ModelContext,
    aliases: tuple[str, ...],
    variables: tuple[str, ...],
    address: str | None,
) -> _Key:
    """The key: the configuration's, then one for the address, of ``providers``, the environment.

    Raises:
        KeyAddressError: When a file of the project gives the address, and the only key is not
            of one.
    """
    given = None if address is None else source_of(address)
    own = _key_for(context, address)
    places = [("LLMConfig(api_key=…)", config.api_key)]
    places += [("api_key_for", own and SourcedText(own, given or "program"))]
    places += [(f"providers[{alias!r}]", context.providers.get(alias)) for alias in aliases]
    places += [(name, _variable(context, name)) for name in variables]
    refused: _Key | None = None
    for place, text in places:
        key = (text or "").strip()  # one that was read from a file often ends in a newline
        if not key:
            continue
        found = _Key(key, place, source_of(text))
        if not (key.isascii() and key.isprintable()):
            raise ModelConfigurationError(
                f"the key of {config.model!r} ({place}) has an invalid character",
                hint="copy the key again: letters, digits and plain punctuation",
            )
        if _fits(found.source, given):
            return found
        refused = refused or found
    if refused is None:
        return _Key(None, f"no key was given and {variables[0]} is not set")
    if given == "project":
        raise _refused(config.model, refused.place, refused.source, given)
    return _Key(None, f"{refused.place} is not sent to an address of the {given}")


def _refused(model: str, place: str, key: Source, address: Source) -> KeyAddressError:
    variable = place if place.isupper() else "OPENAI_API_KEY"
    return KeyAddressError(
        f"the model {model!r}: a file of the project gives the address, and the key is of the "
        f"{key} ({place}): it goes there only where that is said"
        if address == "project"
        else f"the model {model!r}: the address is of the {address}, and the key is of the "
        f"{key} ({place})",
        hint=f'beside base_url, api_key names the key for it, as api_key = "${{{variable}}}", '
        'or api_key = "none" where none is needed; api_key_for has keys by host, for any address',
    )


def _key_for(context: ModelContext, address: str | None) -> str | None:
    """The key that names an address: its host, with its port where it has one, or its URL."""
    if address is None or not context.api_key_for:
        return None
    found = _ORIGIN.search(address)
    for named, key in context.api_key_for.items():
        wanted = _ORIGIN.search(named if "://" in named else f"{found and found[1]}://{named}")
        if found and wanted and _same_origin(found, wanted):
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
    """The address without credentials, and the headers with them.

    Raises:
        KeyAddressError: When headers of the environment would go to an address of a file.
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
