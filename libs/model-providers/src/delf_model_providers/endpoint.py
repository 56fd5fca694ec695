"""Where a model's name leads: the provider, the address, the key and where the key came from."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from delf.errors import EnvironmentKeyError, ModelConfigurationError
from delf.llm import LLMConfig
from delf.protocols.model import ModelContext

OPENAI_URL: Final = "https://api.openai.com/v1"
NO_KEY: Final = "local"
"""Sent to a custom endpoint when no key is known; servers without a login ignore it."""


Dialect = Literal["openai", "anthropic", "google"]
"""What is spoken: chat completions, messages, ``generateContent``."""


@dataclass(frozen=True)
class Family:
    """A provider whose models are recognised by name.

    Args:
        name: As users write it: ``LLMConfig(provider=…)``, ``providers={…}``.
        aliases: What may stand before a slash in a name, and in ``providers``.
        variables: Where its key is looked up, the one to name in errors first.
        names: What its models' names look like.
    """

    name: Dialect
    aliases: tuple[str, ...]
    variables: tuple[str, ...]
    names: re.Pattern[str]


_GOOGLE_KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_FAMILIES: Final = (
    Family("google", ("google", "gemini"), _GOOGLE_KEYS, re.compile(r"gemini|gemma-")),
    Family(
        "openai", ("openai",), ("OPENAI_API_KEY",), re.compile(r"gpt|chatgpt|o[1-9](-|$)|ft:gpt")
    ),
    Family("anthropic", ("anthropic",), ("ANTHROPIC_API_KEY",), re.compile(r"claude")),
)
_BY_NAME: Final[Mapping[str, Family]] = {family.name: family for family in _FAMILIES}
_BY_PREFIX: Final = {alias: family for family in _FAMILIES for alias in family.aliases}

_HEADER_NAME: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")

_OWN_ADDRESS: Final = frozenset({"azure", "azure_ai", "ollama", "ollama_chat"})
"""Prefixes that keep their own protocol when a base URL is given."""

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
    missing: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    api_version: str | None = None

    @property
    def address(self) -> str:
        """Host and port; empty for the provider's own."""
        return urlsplit(self.base_url or "").netloc

    @property
    def label(self) -> str:
        """Who answers, for messages."""
        return f"{self.provider} at {self.address}" if self.custom else self.provider

    @property
    def secrets(self) -> tuple[str, ...]:
        """Everything that no message may contain."""
        found = [self.api_key or "", *self.headers.values()]
        found += [value.partition(" ")[2] for value in self.headers.values()]
        return tuple(
            sorted({s for s in found if len(s) > 3 and s != NO_KEY}, key=len, reverse=True)
        )

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
    for family in _FAMILIES:
        if family.names.match(config.model.lower()):
            return _family(family, config.model, None, config, context)
    if base_url := context.environ.get("OPENAI_BASE_URL"):
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
        base_url = context.environ.get("OPENAI_BASE_URL") or None
    custom = base_url is not None
    base_url, headers = _address(base_url, config)
    key, source = _key(config, context, family.aliases, family.variables)
    missing = None
    if key is None and custom:
        key, source = NO_KEY, f"no key was given and {family.variables[0]} is not set"
    elif key is None:
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
        api_key=key,
        key_source=source,
        missing=missing,
        headers=headers,
    )


def _other(prefix: str, config: LLMConfig, context: ModelContext) -> Endpoint:
    """A provider that is none of the three."""
    stem = prefix.upper()
    needed = _KEY_NEEDED.get(prefix)
    variables = (needed,) if needed else (f"{stem}_API_KEY",)
    key, source = _key(config, context, (prefix,), variables)
    base_url = config.base_url or context.environ.get(f"{stem}_API_BASE") or None
    base_url, headers = _address(base_url, config)
    return Endpoint(
        model=config.model,
        provider=prefix,
        dialect=None,
        name=config.model,
        base_url=base_url,
        custom=base_url is not None,
        api_key=key,
        key_source=source,
        missing=needed if key is None else None,
        headers=headers,
        api_version=context.environ.get(f"{stem}_API_VERSION") or None,
    )


def _key(
    config: LLMConfig, context: ModelContext, aliases: tuple[str, ...], variables: tuple[str, ...]
) -> tuple[str | None, str]:
    """The key and where it came from: the configuration, then ``providers``, the environment."""
    places = [("LLMConfig(api_key=…)", config.api_key)]
    places += [(f"providers[{alias!r}]", context.providers.get(alias)) for alias in aliases]
    places += [(variable, context.environ.get(variable)) for variable in variables]
    for source, given in places:
        if key := (given or "").strip():  # one that was read from a file often ends in a newline
            if not (key.isascii() and key.isprintable()):
                raise ModelConfigurationError(
                    f"the key of {config.model!r} ({source}) has a character that no key has",
                    hint="copy the key again: letters, digits and plain punctuation",
                )
            return key, source
    return None, f"{variables[0]} is not set"


def _headers(config: LLMConfig) -> dict[str, str]:
    headers = dict(config.headers or {})
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ModelConfigurationError(
                f"the header {name!r} of {config.model!r} cannot be sent",
                hint="names are letters, digits and '-'; values are ASCII in one line",
            )
    return headers


def _address(base_url: str | None, config: LLMConfig) -> tuple[str | None, dict[str, str]]:
    """The address without credentials, and the headers with them."""
    headers = _headers(config)
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
