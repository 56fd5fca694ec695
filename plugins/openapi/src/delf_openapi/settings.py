"""The settings of a REST API."""

from __future__ import annotations

import warnings
from typing import Literal

from pydantic import Field

from delf.settings import HttpUrl, LocalPath, NamedValues, PluginSettings, SecretStr, SentValues
from delf.types import Effect

Validation = Literal["off", "warn", "raise"]

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", 'Field name "validate"')  # an old method of pydantic's

    class _Checks(PluginSettings):
        validate: Validation = Field(  # pyright: ignore[reportIncompatibleMethodOverride]
            default="warn",
            description=(
                "For a response that differs from its declaration: `warn` tells people once, "
                "`raise` fails the call, `off` neither validates nor converts."
            ),
        )
        check_arguments: Literal["warn", "raise"] = Field(
            default="raise",
            description=(
                "For an argument that violates its schema: `raise` refuses the call, `warn` logs "
                "it and makes the call."
            ),
        )


class OpenAPISettings(_Checks):
    """The settings of an API: its specification, its credentials, and the limits."""

    spec: LocalPath | None = Field(
        default=None,
        description=("The specification: a file or a URL, JSON or YAML; in code also a mapping."),
    )
    base_url: HttpUrl | None = Field(
        default=None, description="The API's address, instead of the specification's servers."
    )
    servers: tuple[str, ...] = Field(
        default=(),
        description="Further servers that keys may go to, such as https://api.shop.example.",
    )
    headers: SentValues = Field(
        default_factory=dict,
        description=(
            "Headers of every call, hidden from scripts and prompts. A value is a "
            "secret by its name, or if it has letters and digits."
        ),
    )
    params: SentValues = Field(
        default_factory=dict,
        description=(
            "Query parameters of every call, hidden from scripts and prompts; secrets "
            "as for `headers`."
        ),
    )
    path_params: NamedValues = Field(
        default_factory=dict,
        description=(
            "Values for {placeholders} of paths and servers, hidden from scripts and "
            "prompts. A value is a secret by its name."
        ),
    )
    api_key: SecretStr | None = Field(
        default=None, description="The key for security schemes of the type apiKey."
    )
    token: SecretStr | None = Field(default=None, description="A bearer or OAuth2 access token.")
    username: str | None = Field(default=None, description="For basic authentication.")
    password: SecretStr | None = Field(default=None, description="For basic authentication.")
    client_id: str | None = Field(default=None, description="For OAuth2 client credentials.")
    client_secret: SecretStr | None = Field(
        default=None, description="For OAuth2 client credentials."
    )
    token_url: HttpUrl | None = Field(
        default=None, description="The URL for OAuth2 tokens, instead of the specification's."
    )
    scopes: tuple[str, ...] = Field(default=(), description="The OAuth2 scopes to ask for.")
    credentials: dict[str, SecretStr] = Field(
        default_factory=dict,
        description=(
            "Values by the name of the security scheme, if there are several; "
            "user:password for basic."
        ),
    )
    effects: dict[str, Effect] = Field(
        default_factory=dict,
        description=(
            "Effects of operations, with names as in allow; they take precedence over "
            "method and name. If `spec` is a URL, operations that it changes or adds later need "
            "approval."
        ),
    )
    refs: tuple[LocalPath, ...] = Field(
        default=(),
        description=(
            "Folders or origins that $ref may refer to, in addition to the specification's own."
        ),
    )
    cache: bool = Field(
        default=False,
        description=(
            "Cache the read specification on disk, because a large one in YAML takes "
            "seconds; for a day if it came from a URL."
        ),
    )
    cache_dir: LocalPath | None = Field(
        default=None,
        description=("The folder of that cache; in the user's cache folder when omitted."),
    )
    enrich: bool = Field(
        default=False,
        description=(
            "Let a model write better descriptions and guess undeclared responses, once "
            "for each version of the specification, in an agent's first task."
        ),
    )
    llm: str | None = Field(
        default=None,
        description=(
            "The model for `enrich`; the agent's light model when omitted. In code also "
            "an LLMConfig."
        ),
    )
    sample: bool = Field(
        default=True,
        description=(
            "Learn the structure of undeclared responses, but no values, for later "
            "tasks and programs (in `cache_dir`)."
        ),
    )
    operations: int = Field(
        default=100, ge=1, le=20_000, description="The most operations, if allow is not set."
    )
    timeout: float = Field(default=30.0, gt=0, le=3600, description="Seconds a request may take.")
    retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description=(
            "Retries, of idempotent methods only, after no answer and after the "
            "statuses 429, 502, 503 and 504."
        ),
    )
    max_wait: float = Field(
        default=30.0,
        ge=0,
        le=600,
        description=("The longest Retry-After in seconds that delf waits."),
    )
    max_response_bytes: int = Field(
        default=50_000_000, ge=1000, description="A larger response is an error."
    )
    max_spec_bytes: int = Field(
        default=64_000_000, ge=1000, description="A larger specification is refused."
    )
