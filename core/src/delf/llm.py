"""``LLMConfig``: the model to use, its endpoint and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast

from delf.attributes import FixedTable
from delf.errors import ModelConfigurationError, did_you_mean
from delf.network.urls import without_login
from delf.values.sequences import one_or_more

AUTO: Final = "auto"
"""The provider setting that infers the provider from the model's name."""

NO_KEY: Final = "none"
"""The key that stands for no key: sent to a server that needs none, and never redacted."""

DEFAULT_TIMEOUT: Final = 300.0
"""Seconds for one request when the setting ``timeout`` is not given."""

SERVER_SIDE_TOOLS: Final = "server_side_tools"
"""The setting that lists tools run by the provider itself, such as web search."""

SERVER_SIDE_TOOL_PURPOSES: Final = frozenset({"generate", "call"})
"""Purposes of model calls in which the provider may run its own tools, such as web search."""

MAX_ANSWER_CHARACTERS: Final = 8_000_000
"""The maximum length of a model's answer, as some servers never stop."""

SETTINGS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "seed",
    "timeout",
    "reasoning_effort",
    "thinking",
    "service_tier",
    "live_model",
    "system_role",
    "server_side_tools",
    "extra",
)
EXTRA: Final = "extra"
"""The setting for further fields of the provider's requests, which delf passes on unchanged."""
# Fields of requests that delf sets itself, and that ``extra`` may not contain.
_RESERVED_FIELDS: Final = frozenset(
    {"model", "messages", "stream", "tools", "tool_choice", "contents", "system", "input"}
)

_TOOL_FIELDS: Final = ("tool_type", "max_uses", "allowed_domains", "blocked_domains")
# Server-side tools that delf does not support, each mapped to a hint at an alternative.
_UNSUPPORTED_TOOLS: Final = {
    "url_context": "a connection can read pages",
    "code_execution": "scripts run in delf's own sandbox",
    "image_generation": "an answer is text",
}

T = TypeVar("T")

# The type of ``api_key`` and ``headers``. An InitVar is a parameter of the constructor, but no
# field, so that ``dataclasses.asdict()`` and other dumps do not show the value. Type checkers
# refuse to read an InitVar; for them, it is an attribute like any other.
if TYPE_CHECKING:
    _NotShown = Annotated[T, "no field"]
else:
    _NotShown = InitVar

HIDDEN: Final = "**********"
"""The placeholder shown instead of a key."""


class _Hidden:
    """A wrapper that hides secret values in the ``repr()`` and in dumps of a configuration."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN


@dataclass(frozen=True)
class LLMConfig:
    """A model with its endpoint and settings; works wherever a model's name does.

    Args:
        model: The name as the endpoint expects it. The name of a provider that an installed plugin
            declares may precede it, as in ``provider/model`` or ``provider:model``.
        base_url: Root of the API with its version (``http://host/v1``). The OpenAI-compatible
            protocol is used unless a provider is named.
        api_key: The key; the provider's environment variable when omitted. Never shown: neither
            in a repr nor by ``dataclasses.asdict()`` and other dumps.
        headers: Extra HTTP headers for every request. Never shown.
        settings: Generation settings: ``temperature``, ``top_p``, ``top_k``, ``max_tokens``,
            ``presence_penalty``, ``frequency_penalty``, ``stop``, ``seed``, ``timeout`` (seconds
            for one request), ``reasoning_effort`` (``"low"``, ``"medium"``, ``"high"``),
            ``thinking`` (the provider's own table), ``service_tier``, ``live_model`` (the model
            for open sessions, as a name or as an address ``wss://…?model=NAME``),
            ``system_role`` (the role of instructions for a server without ``"system"``, such as
            ``"developer"``), ``server_side_tools`` (``["web_search"]``: the provider's own search)
            and ``extra`` (further fields of the provider's requests). Hyphens are accepted, too
            (``max-tokens``).
        provider: The protocol to speak, by a name that an installed plugin declares; ``auto``
            infers the protocol from the model's name.
        fallbacks: Models to ask, in this order, if this model is not available.

    Raises:
        ModelConfigurationError: For an empty name, provider or key, an unknown setting, or a
            repeated fallback.
    """

    model: str
    base_url: str | None = None
    api_key: _NotShown[str | None] = None
    headers: _NotShown[Mapping[str, str] | None] = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    provider: str = AUTO
    fallbacks: Sequence[LLMConfig] = ()

    def __post_init__(  # pyright: ignore[reportGeneralTypeIssues]
        self, api_key: str | None, headers: Mapping[str, str] | None
    ) -> None:
        hidden_fields = _Hidden({"api_key": api_key, "headers": headers})
        object.__setattr__(self, "_secrets", hidden_fields)
        # Typed as Any: a program without a type checker, or a file, may pass another type.
        model: Any = self.model
        if not isinstance(model, str) or not model.strip():
            raise ModelConfigurationError(f"model must be a name, got {model!r}")
        provider: Any = self.provider
        if not isinstance(provider, str) or not provider.strip():
            raise ModelConfigurationError(f"provider must be a name, got {provider!r}")
        key: Any = api_key
        is_usable_key = isinstance(key, str) and key.strip() != ""
        if key is not None and not is_usable_key:
            raise ModelConfigurationError(
                f"api_key of the model {model!r} is empty, or not a text",
                hint='leave it out for the key of the environment, or write "none" for no key',
            )
        fallbacks = tuple(map(as_llm_config, _as_sequence(self.fallbacks)))
        object.__setattr__(self, "fallbacks", fallbacks)
        settings = normalise_settings(self.settings or {})
        object.__setattr__(self, "settings", FixedTable(settings))
        self._check_models_differ()

    def _check_models_differ(self) -> None:
        """Raise if a fallback is equal to an earlier model, because it would only fail again."""
        earlier_models: list[list[Any]] = []
        for each in (self, *self.fallbacks):
            values = _values_without_fallbacks(each)
            if values in earlier_models:
                raise ModelConfigurationError(
                    f"the model {self.model!r} has a fallback twice, or itself as a fallback",
                    hint="a fallback is another model, or the same model with another key",
                )
            earlier_models.append(values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LLMConfig):
            return NotImplemented
        has_equal_values = _values_without_fallbacks(self) == _values_without_fallbacks(other)
        return has_equal_values and self.fallbacks == other.fallbacks

    def __hash__(self) -> int:
        return hash((self.model, self.base_url, self.provider))

    @property
    def address(self) -> str | None:
        """The base URL without credentials and query, safe to display.

        For ``https://name:key@host/v1?version=2``, this is ``https://host/v1``.
        """
        return None if self.base_url is None else without_login(self.base_url)

    def __repr__(self) -> str:
        return (
            f"LLMConfig(model={self.model!r}, base_url={self.address!r}, "
            f"settings={self.settings!r}, provider={self.provider!r})"
        )

    def server_side_tools_for(self, purpose: str) -> tuple[str, ...]:
        """Return the names of the server-side tools that a model call may use.

        Args:
            purpose: The purpose of the call; only the purposes in ``SERVER_SIDE_TOOL_PURPOSES`` may
                use the tools.
        """
        if purpose not in SERVER_SIDE_TOOL_PURPOSES:
            return ()
        return tuple(tool["tool_type"] for tool in self.settings.get(SERVER_SIDE_TOOLS) or ())

    def with_settings(self, **settings: Any) -> LLMConfig:
        """Return a copy with these settings added or changed."""
        return replace(self, settings={**self.settings, **settings})


def _values_without_fallbacks(config: LLMConfig) -> list[Any]:
    """Return the values by which two configurations are compared, except for the fallbacks."""
    # The key and the headers are not dataclass fields, so they are added to the list.
    values = [getattr(config, item.name) for item in fields(config) if item.name != "fallbacks"]
    return [type(config), config.api_key, config.headers, *values]


def _secret(name: str) -> property:
    return property(lambda self: self._secrets.value[name])


# These properties are set after the class is created, because ``@dataclass`` would take properties
# in the class body for default values.
LLMConfig.api_key = _secret("api_key")  # pyright: ignore[reportAttributeAccessIssue]
LLMConfig.headers = _secret("headers")  # pyright: ignore[reportAttributeAccessIssue]


def normalise_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under their canonical names.

    Raises:
        ModelConfigurationError: For a name that is not a setting.
    """
    result: dict[str, Any] = {}
    for name, value in settings.items():
        canonical = name.replace("-", "_").lower()
        if canonical not in SETTINGS:
            raise ModelConfigurationError(
                f"unknown model setting {name!r}{did_you_mean(canonical, SETTINGS)}",
                hint=f"known settings: {', '.join(SETTINGS)}",
            )
        check = _CHECKS.get(canonical)
        if check is not None and value is not None:
            result[canonical] = check(value)
        else:
            result[canonical] = value
    return result


def _extra(value: Any) -> dict[str, Any]:
    """Validate ``extra``, a table of additional request fields.

    Raises:
        ModelConfigurationError: If the value is not a table, or has a field that delf sets.
    """
    table = _table(value, EXTRA)
    reserved_name = next((name for name in table if name in _RESERVED_FIELDS), None)
    if reserved_name is not None:
        raise ModelConfigurationError(
            f"model setting {EXTRA!r}: delf sets the field {reserved_name!r}"
        )
    return table


def _thinking(value: Any) -> dict[str, Any]:
    return _table(value, "thinking")


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ModelConfigurationError(
            f"model setting {name!r} must be a table of the provider's fields, not {value!r:.80}"
        )
    return dict(cast("Mapping[str, Any]", value))


def _effort(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ModelConfigurationError(
            f"model setting 'reasoning_effort' must be a text, not {value!r:.80}",
            hint='"low", "medium" or "high"; "none" for models that can do without',
        )
    return value


def _server_side_tools(setting_value: Any) -> list[dict[str, Any]]:
    """Validate the setting of server-side tools and return each tool as a table.

    Raises:
        ModelConfigurationError: If the value is not a list of names or tables, or has an unknown
            tool or field.
    """
    setting = f"model setting {SERVER_SIDE_TOOLS!r}"
    tools: dict[str, dict[str, Any]] = {}
    for item in _as_sequence(setting_value):
        table = {"tool_type": item} if isinstance(item, str) else item
        if not isinstance(table, Mapping):
            raise ModelConfigurationError(
                f'{setting} must be a list of names or tables, such as ["web_search"]'
            )
        fields = _server_side_tool(setting, cast("Mapping[Any, Any]", table))
        tools[fields["tool_type"]] = fields  # if a tool is listed twice, its last item counts
    return list(tools.values())


def _server_side_tool(setting: str, table: Mapping[Any, Any]) -> dict[str, Any]:
    """Validate the table of one server-side tool; return it without the fields that are None."""
    kind = table.get("tool_type")
    if kind != "web_search":
        hint = _UNSUPPORTED_TOOLS.get(str(kind))
        raise ModelConfigurationError(
            f"{setting}: tool_type {kind!r} is not supported, only web_search is", hint=hint
        )
    for name in table:
        if name not in _TOOL_FIELDS:
            suggestion = did_you_mean(str(name), _TOOL_FIELDS)
            raise ModelConfigurationError(f"{setting}: unknown field {name!r}{suggestion}")
    fields = {name: value for name, value in table.items() if value is not None}
    for name, value in fields.items():
        if name.endswith("_domains"):
            fields[name] = _host_names(f"{setting}: {name}", value)
    max_uses = fields.get("max_uses")
    is_count = type(max_uses) is int and max_uses >= 1  # True is an int, but no count
    if max_uses is not None and not is_count:
        raise ModelConfigurationError(f"{setting}: max_uses must be a whole number from 1")
    if fields.get("allowed_domains") and fields.get("blocked_domains"):
        raise ModelConfigurationError(
            f"{setting}: allowed_domains and blocked_domains cannot be used together"
        )
    return fields


def _host_names(setting: str, value: Any) -> list[str]:
    names = list(_as_sequence(value))
    for name in names:
        if not isinstance(name, str) or not name:
            raise ModelConfigurationError(f"{setting} must be a list of host names")
    return names


def _as_sequence(value: Any) -> Sequence[Any]:
    return () if value is None else one_or_more(value)


def as_llm_config(value: str | LLMConfig | Sequence[str | LLMConfig]) -> LLMConfig:
    """Return a configuration for a model name, a configuration, or a list of models.

    Args:
        value: The model. In a list, the second and further models become fallbacks of the first.

    Raises:
        ModelConfigurationError: For an empty list.
    """
    if isinstance(value, (list, tuple)):
        models = [as_llm_config(model) for model in cast("Sequence[str | LLMConfig]", value)]
        if not models:
            raise ModelConfigurationError("the list of models is empty")
        return replace(models[0], fallbacks=(*models[0].fallbacks, *models[1:]))
    if isinstance(value, LLMConfig):
        return value
    return LLMConfig(cast("str", value))


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    SERVER_SIDE_TOOLS: _server_side_tools,
    EXTRA: _extra,
    "thinking": _thinking,
    "reasoning_effort": _effort,
}
