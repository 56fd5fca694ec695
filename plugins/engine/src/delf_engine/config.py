"""``AgentConfig``: the serialisable settings of an agent, validated once."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, Unpack, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from delf.attributes import FixedAttributes, FixedTable
from delf.errors import (
    AgentConfirmationError,
    ConfigurationError,
    ModelConfigurationError,
    did_you_mean,
)
from delf.llm import AUTO, HIDDEN, SETTINGS, LLMConfig, as_llm_config
from delf.protocols.rules import ApprovalRule
from delf.protocols.strategy import TOOLS_BUDGET
from delf.providers import Providers
from delf.records import dataclass
from delf.settings import LocalPath
from delf.specs import (
    ApprovalSpec,
    EmbedderSpec,
    MemorySpec,
    ObserverSpec,
    PrefilterSpec,
    SandboxSpec,
    Spec,
    StrategySpec,
)
from delf.types import ApprovalMode, ConfirmMode, FlowMode, Isolation
from delf.values.sequences import one_or_more

if TYPE_CHECKING:
    from delf_engine.options import AgentOptions

PREFIX: Final = "DELF_"
"""The prefix of environment variables that hold settings."""

ARROW: Final = "->"
"""Separates the source and the target in a rule that allows a data flow."""
_TIME: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

LLM_FIELDS: Final = ("llm", "light_llm", "heavy_llm", "vision_llm")
"""The fields that configure a model."""

# The name, in messages, of settings that a program passes to ``Agent``.
_AGENT: Final = "Agent"
# The keywords of ``Agent`` that only a program can give, so that no setting has their name.
_PROGRAM_ONLY: Final = ("tools", "on_confirm", "on_ask", "output", "host", "project")

LLM_KEYS: Final = tuple(inspect.signature(LLMConfig).parameters)
"""The keys of a table that configures a model."""


def llm_config(value: Any) -> Any:
    """Convert a model's name or table, or a list of these, to a configuration.

    Return any other value unchanged.

    Raises:
        ModelConfigurationError: For a table with an unknown or missing key, or a wrong type, and
            for a list with an item that is no model.
    """
    if isinstance(value, str):
        return as_llm_config(value)
    if isinstance(value, (list, tuple)):
        return as_llm_config(_llm_configs(cast("Sequence[Any]", value)))
    if isinstance(value, Mapping):
        return _llm_config_of_table(cast("Mapping[str, Any]", value))
    return value


def _llm_configs(values: Sequence[Any]) -> list[LLMConfig]:
    """Convert a list of models, each given by a name or table."""
    configs: list[LLMConfig] = []
    for value in values:
        config = llm_config(value)
        if not isinstance(config, LLMConfig):
            raise ModelConfigurationError(f"a list of models holds {config!r:.80}")
        configs.append(config)
    return configs


def _llm_config_of_table(table: Mapping[str, Any]) -> LLMConfig:
    """Convert the table of a model, whose key ``fallbacks`` lists further models."""
    fields = dict(table)
    fallbacks: Any = fields.pop("fallbacks", None) or ()
    for key, item in fields.items():
        _check_llm_key(key)
        _check_llm_value(key, item)
    if "model" not in fields:
        raise ModelConfigurationError("model is missing")
    is_single = isinstance(fallbacks, (str, bytes)) or not isinstance(fallbacks, Sequence)
    if is_single:  # the name or the table of one model
        fallbacks = [fallbacks]
    models = _llm_configs([LLMConfig(**fields), *cast("Sequence[Any]", fallbacks)])
    return as_llm_config(models)


def _as_rule(pattern: str, rule: Any) -> Any:
    """Return a value of ``approval_rules`` as ``approve`` or an ApprovalRule.

    Args:
        pattern: The actions or the flow.
        rule: The value.

    Raises:
        ValueError: If the value is not a rule.
    """
    if rule == "approve" or isinstance(rule, ApprovalRule):
        return rule
    # "gmail.read.sender -> gmail.send.to" is a flow of data from one action to another.
    if ARROW in pattern:
        raise ValueError(f"{pattern}: a flow can only be 'approve'")
    is_table = isinstance(rule, Mapping)
    if not is_table:
        raise ValueError(
            f"{pattern}: {rule!r} is no rule; write 'approve', or a table that says who may decide"
        )
    known_keys = list(ApprovalRule.model_fields)
    for key in cast("Mapping[Any, Any]", rule):
        if key not in known_keys:
            raise ValueError(
                f"{pattern}: known keys are {', '.join(known_keys)}, not {key!r}"
                f"{did_you_mean(str(key), known_keys)}"
            )
    try:
        return ApprovalRule.model_validate(rule)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{pattern}: {first['loc'][0]}: {first['msg']}") from None


def _check_llm_key(key: object) -> None:
    if key not in LLM_KEYS:
        raise ModelConfigurationError(
            f"unknown key {key!r}{suggest_llm_key(str(key))}",
            hint=f"known keys: {', '.join(LLM_KEYS)}",
        )


def suggest_llm_key(key: str) -> str:
    """Return a suggestion for a misspelt key of a model's table, to append to a message.

    An example is ``; did you mean 'settings.temperature'?``. Empty if no key is similar.
    """
    if key in SETTINGS:
        return f"; did you mean 'settings.{key}'?"
    suggestion = did_you_mean(key, (*LLM_KEYS, *SETTINGS))
    # A setting such as ``temperature`` is valid only in the table ``settings``.
    return re.sub(f"'({'|'.join(SETTINGS)})'", r"'settings.\1'", suggestion)


def suggest_agent_key(key: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelt key of the agent, to append to a message.

    An example is ``; did you mean 'llm.settings.temperature'?``. Empty if no key is similar.
    """
    if key in SETTINGS:
        return f"; did you mean 'llm.settings.{key}'?"
    return did_you_mean(key, known)


def _check_llm_value(key: str, value: Any) -> None:
    """Raise ModelConfigurationError if a value of a model's table has a wrong type."""
    takes_table = key in ("headers", "settings")
    expected_type = Mapping if takes_table else str
    if value is not None and not isinstance(value, expected_type):
        expected = "a table" if takes_table else "text"
        # A text from delf.toml has a subclass of str as its type, whose name would confuse the
        # user.
        got = "str" if isinstance(value, str) else type(value).__name__
        raise ModelConfigurationError(f"{key} must be {expected}, got {got}")


@dataclass(frozen=True)
class InProject:
    """Annotates a field whose value in a project's file people see before they trust the file.

    Args:
        effect: The effect of the value: ``ask`` chooses a model, ``instruct`` gives a model
            instructions, and ``loosen`` changes the limits of scripts or the rules of approval.
    """

    effect: Literal["ask", "instruct", "loosen"]


_LOOSENS: Final = InProject("loosen")

LLM = Annotated[LLMConfig | None, BeforeValidator(llm_config), InProject("ask")]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 - pydantic explains ValueErrors only
    return value


Text = Annotated[str, PlainValidator(_text)]
"""A string type that preserves :class:`delf.environment.SourcedText`."""


V = TypeVar("V")
Table = Annotated[dict[str, V], AfterValidator(FixedTable)]
"""The type of a setting that is a dict, which validation replaces with an immutable copy."""


class MemoryConfig(BaseModel):
    """Settings for facts from the memory store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: str = Field(
        default="default", min_length=1, description="The name of a memory in the store."
    )
    scope: Literal["person", "agent"] = Field(
        default="person",
        description=(
            "The facts that a task gets: the facts of the person who asks, or all facts of "
            "the agent."
        ),
    )
    top_k: int = Field(default=5, ge=1, le=100, description="The most facts that a task gets.")
    threshold: float = Field(
        default=0.3, ge=0, le=1, description="The lowest similarity of a fact to the task."
    )


class AgentConfig(FixedAttributes, BaseModel):
    """The settings of an agent, the same in code, ``delf.toml``, ``DELF_*`` variables and flags.

    A field whose values are plugin names is annotated with the spec of that kind of plugin. A field
    that a stranger's project could misuse is annotated with :class:`InProject`.
    """

    _fixed_hint = "make another configuration: Agent(config, {name}=…)"
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        defer_build=True,  # many commands only want the names of the fields
    )

    if TYPE_CHECKING:  # the validators also accept other types, such as a model's name

        def __init__(self, **options: Unpack[AgentOptions]) -> None: ...

    llm: LLM = Field(default=None, description="The model for everything.")
    light_llm: LLM = Field(
        default=None, description=("The model for simple work; set heavy_llm, too.")
    )
    heavy_llm: LLM = Field(default=None, description="The model for hard work; set light_llm, too.")
    vision_llm: LLM = Field(
        default=None, description="The model for images and files; heavy_llm if it is not set."
    )
    system_prompt: Annotated[str | None, InProject("instruct")] = Field(
        default=None, description=("Instructions added to every model call.")
    )
    providers: Table[Text] = Field(
        default=FixedTable(), description="API keys by provider.", repr=False
    )
    api_key_for: Table[Text] = Field(
        default=FixedTable(),
        description="API keys by the address to which they may go, such as gateway.example.",
        repr=False,
    )
    verbose: bool = Field(
        default=False, description="Write all steps on stderr, with a summary at the end."
    )
    prefilter_mode: Annotated[str, PrefilterSpec] = Field(
        default=AUTO,
        description="The choice of tools that the model sees: auto, off or a prefilter.",
    )
    tools_budget: int = Field(
        default=TOOLS_BUDGET,
        ge=1000,
        description="The most characters of a prompt that tools take; all are shown if they fit.",
    )
    embedder: Annotated[str | None, EmbedderSpec, InProject("ask")] = Field(
        default=None, description="The embedding model that memory and prefilters share."
    )
    memory: Annotated[str | None, MemorySpec] = Field(
        default=None, description="The memory store's name."
    )
    memory_config: MemoryConfig = Field(
        default=MemoryConfig(),
        description="The facts that a task has: namespace, scope, top_k and threshold.",
    )
    learn: Annotated[bool, _LOOSENS] = Field(default=False, description="Save facts from a task.")
    retry_count: int = Field(default=1, ge=0, le=20, description="Retries of a failed script.")
    rerun_count: int = Field(
        default=2,
        ge=0,
        le=20,
        description=(
            "The most further scripts that rerun() may ask for after a change; a task that "
            "has only read may ask for eight."
        ),
    )
    sandbox: Annotated[str, SandboxSpec, _LOOSENS] = Field(
        default="auto", description="The sandbox backend's name, or auto."
    )
    sandbox_config: Annotated[Table[Any], _LOOSENS] = Field(
        default=FixedTable(), description="Limits, and options of the backend."
    )
    min_isolation: Annotated[Isolation, _LOOSENS] = Field(
        default="process",
        description="Refuse weaker sandboxes, as measured on this machine.",
    )
    files: tuple[LocalPath, ...] = Field(default=(), description="Input files for scripts.")
    own_files: Annotated[tuple[LocalPath, ...], _LOOSENS] = Field(
        default=(),
        description="Input files, or folders of them, whose texts count as your words.",
    )
    allowed_libs: Annotated[tuple[str, ...], _LOOSENS] = Field(
        default=(), description="Packages that scripts may import."
    )
    budget_usd: Annotated[float | None, _LOOSENS] = Field(
        default=None, gt=0, description="The most to spend, in USD."
    )
    allow_unpriced: Annotated[bool, _LOOSENS] = Field(
        default=False, description="Let models without a known price run under a budget."
    )
    strategy: Annotated[str, StrategySpec] = Field(
        default="codegen", description=("The strategy that turns a task into tool calls.")
    )
    approval_mode: Annotated[ApprovalMode, _LOOSENS] = Field(
        default="interactive",
        description="Ask, approve everything, deny everything, or deny every change, even one that "
        "needs no approval.",
    )
    confirm_mode: Annotated[ConfirmMode, _LOOSENS] = Field(
        default="call",
        description="Ask at each call, or once for the whole script before it runs.",
    )
    flows: Annotated[FlowMode, _LOOSENS] = Field(
        default="show",
        description="Use of the origins of arguments: off, show (in requests for approval), guard "
        "(ask, even if such a call was approved before), or deny.",
    )
    approval_rules: Annotated[Table[Literal["approve"] | ApprovalRule], _LOOSENS] = Field(
        default=FixedTable(),
        description="By patterns of actions such as bank.*: approve, or who may decide. By flows "
        "such as 'mail.read.sender -> mail.send.to': approve.",
    )
    wait_approvals: Annotated[bool, _LOOSENS] = Field(
        default=False,
        description="If nobody can be asked, wait for `delf approvals` or `agent.approve()`.",
    )
    approvals: Annotated[tuple[str, ...], ApprovalSpec, _LOOSENS] = Field(
        default=("terminal",),
        description="Names of approval channels, in order; `delf plugins` lists those installed. "
        "Give a function as on_confirm, and options in plugins.approval-NAME.",
    )
    observers: Annotated[tuple[str, ...], ObserverSpec] = Field(
        default=(),
        description="Names of further observers, such as otel.",
    )
    approval_timeout: Annotated[float, _LOOSENS] = Field(
        default=300.0, gt=0, description="Seconds until an unanswered request counts as rejected."
    )
    stream: bool = Field(default=False, description="Stream model answers.")
    record: LocalPath | None = Field(
        default=None, description="Record model answers in this file, for recorded:FILE."
    )
    max_tasks: int = Field(default=256, ge=1, description="The most tasks at the same time.")
    max_children: int = Field(default=100, ge=0, description="The most child tasks of one task.")
    keep_prompts: bool = Field(
        default=True, description="Store the messages to models in the journal, without secrets."
    )
    timeout: float = Field(default=60.0, gt=0, description="Seconds for one task.")
    journal: str = Field(default="none", description="The journal's name.")
    lease: float | None = Field(
        default=None,
        gt=0,
        description="Seconds of silence after which other processes may claim this process's "
        "tasks; if not set, only after it has ended.",
    )
    former_folders: Annotated[tuple[LocalPath, ...], _LOOSENS] = Field(
        default=(),
        description="Earlier folders of the project, for example on another machine: runners and "
        "servers continue those tasks here.",
    )
    chat: bool | Table[Any] | None = Field(
        default=None, description="Let tasks continue a conversation: true, or its options."
    )
    output_dir: LocalPath | None = Field(default=None, description="The folder for output files.")

    @field_validator(
        "allowed_libs",
        "files",
        "own_files",
        "approvals",
        "observers",
        "former_folders",
        mode="before",
    )
    @classmethod
    def _tuple_of_one(cls, value: Any) -> Any:
        """Convert a single text or path to a tuple with this item."""
        return one_or_more(value) if isinstance(value, (str, os.PathLike)) else value

    @field_validator("approval_rules", mode="before")
    @classmethod
    def _as_rules(cls, value: Any) -> Any:
        """Convert each rule to ``approve``, or to the people who decide."""
        if not isinstance(value, Mapping):
            return value
        rules = cast("Mapping[Any, Any]", value)
        return {pattern: _as_rule(str(pattern), rule) for pattern, rule in rules.items()}

    @field_validator("timeout", "approval_timeout", "lease", mode="before")
    @classmethod
    def _in_seconds(cls, value: Any) -> Any:
        """Parse a duration with a unit, such as ``5m``, to seconds."""
        time_match = _TIME.fullmatch(value) if isinstance(value, str) else None
        if time_match is None:
            return value
        return float(time_match[1]) * _UNITS[time_match[2]]

    @field_serializer("providers", "api_key_for")
    def _without_keys(self, providers: dict[str, str]) -> dict[str, str]:
        return dict.fromkeys(providers, HIDDEN)

    @model_validator(mode="after")
    def _check_model_roles(self) -> AgentConfig:
        if (self.light_llm is None) != (self.heavy_llm is None):
            missing = "heavy_llm" if self.heavy_llm is None else "light_llm"
            raise ModelConfigurationError(
                f"light_llm and heavy_llm go together, but {missing} is not set",
                hint="set both, or llm alone",
            )
        return self

    @property
    def main_llm(self) -> LLMConfig:
        """The model that writes scripts.

        Raises:
            ModelConfigurationError: If none is configured.
        """
        model = self.heavy_llm or self.llm
        if model is None:
            raise ModelConfigurationError(
                "no language model is configured",
                hint="delf quickstart asks for a model, and keeps its key; or name one: "
                '--llm MODEL, or Agent(llm="MODEL") in a program',
            )
        return model

    def with_main_llm(self, model: str, providers: Providers) -> AgentConfig:
        """Return a copy with another main model, resolved by :meth:`chosen_llm`."""
        field = "llm" if self.heavy_llm is None else "heavy_llm"  # the field that main_llm returns
        return self.model_copy(update={field: self.chosen_llm(model, providers)})

    def chosen_llm(self, choice: str | LLMConfig, providers: Providers) -> LLMConfig:
        """Return the configuration of a model that a task, worker or connection chooses by name.

        Args:
            choice: The model's name, or a configuration. A configuration with its own address, key,
                headers or provider is returned unchanged.
            providers: The model providers, which know other spellings of model names.
        """
        configured = as_llm_config(choice)
        has_own_access = configured.base_url or configured.api_key or configured.headers
        if has_own_access or configured.provider != AUTO:
            return configured
        names = providers.spellings(configured.model)
        for role_model in (self.llm, self.heavy_llm, self.light_llm, self.vision_llm):
            if role_model is None:
                continue
            has_this_name = not names.isdisjoint(providers.spellings(role_model.model))
            if has_this_name:  # use its address, key, headers and settings, too
                return role_model.with_settings(**configured.settings)
        main = self.main_llm
        # An address of the main model may be a gateway, through which all models are then reached.
        uses_access_of_main = main.base_url is not None or _has_same_provider(
            configured, main, providers
        )
        if not uses_access_of_main:
            return configured
        main_with_choice = replace(main, model=configured.model, fallbacks=())
        return main_with_choice.with_settings(**configured.settings)

    @property
    def image_llm(self) -> LLMConfig:
        """The model for images and documents."""
        return self.vision_llm or self.main_llm

    @property
    def quick_llm(self) -> LLMConfig:
        """The model for small questions, such as the selection of tools."""
        return self.light_llm or self.main_llm

    @property
    def models(self) -> dict[str, LLMConfig]:
        """The models by their role: ``llm`` alone, or ``heavy``, ``light`` and ``vision``.

        Each fallback of a model has its own entry after the model, such as ``llm fallback 1``.
        """
        # A light model is set only together with a heavy model.
        has_single_model = self.heavy_llm is None and self.vision_llm is None
        if has_single_model:
            roles = {"llm": self.main_llm}
        else:
            roles = {"heavy": self.main_llm, "light": self.light_llm, "vision": self.vision_llm}
        models_by_name: dict[str, LLMConfig] = {}
        for role, model in roles.items():
            if model is not None:
                models_by_name[role] = replace(model, fallbacks=())
                for number, fallback in enumerate(model.fallbacks, 1):
                    models_by_name[f"{role} fallback {number}"] = fallback
        return models_by_name

    @property
    def model_description(self) -> str:
        """The models as text, without keys, headers and credentials."""
        texts = {role: _model_text(model) for role, model in self.models.items()}
        if [*texts] == ["llm"]:
            return texts["llm"]
        return ", ".join(f"{role} {text}" for role, text in texts.items())

    def plugins(self) -> Iterator[tuple[type[Spec], str]]:
        """Yield the kind and name of each plugin that the settings require.

        A list of plugins requires them only if the user has set the list; the plugins in a default
        list are not required.
        """
        for field, info in type(self).model_fields.items():
            # The metadata of a field that names plugins has the kind of the plugins.
            for kind in info.metadata:
                if isinstance(kind, type) and issubclass(kind, Spec):
                    for name in self._required_plugins(field):
                        if name not in kind.special_values:
                            yield kind, name

    def _required_plugins(self, field: str) -> Sequence[str]:
        value: str | Sequence[str] | None = getattr(self, field)
        if isinstance(value, str):
            return (value,)
        if value is None or field not in self.model_fields_set:
            return ()
        return value

    def main_settings(self) -> dict[str, Any]:
        """Return the main settings of the agent as JSON-ready data, without API keys."""
        names = (
            "strategy",
            "journal",
            "approval_mode",
            "timeout",
            "retry_count",
            "rerun_count",
            "max_tasks",
            "min_isolation",
        )
        models = {role: model.model for role, model in self.models.items()}
        settings = {name: getattr(self, name) for name in names}
        return {"llm": self.model_description, "models": models, **settings}


def _model_text(model: LLMConfig) -> str:
    """Format a model with its address and settings, without key, headers and credentials."""
    text = model.model
    if model.address is not None:
        text = f"{text} at {model.address}"
    settings = ", ".join([f"{name}={value!r}" for name, value in model.settings.items()])
    return f"{text} ({settings})" if settings else text


def make_config(
    values: Mapping[str, Any],
    *,
    where: str = _AGENT,
    origin_of: Callable[[tuple[str, ...]], str | None] = lambda _: None,
) -> AgentConfig:
    """Validate an ``AgentConfig``, with errors that name the field and the allowed values.

    Args:
        values: Field values.
        where: The source of the values, for messages: ``Agent``, or a file with its section.
        origin_of: Returns the exact source of the value at a path, if known.

    Raises:
        ConfigurationError: For an unknown field or an invalid value.
    """
    checked = dict(values)
    # The validators of these fields do the same, but their errors would not name the setting.
    for field in LLM_FIELDS:
        if field in checked:
            try:
                checked[field] = llm_config(checked[field])
            except ModelConfigurationError as error:
                place = origin_of((field,)) or f"{where}: {field}"
                raise ModelConfigurationError(
                    f"{place}: {error.message}", hint=error.hint
                ) from None
    try:
        return AgentConfig.model_validate(checked)
    except ValidationError as error:
        raise explain(error, AgentConfig, where, origin_of) from None


def merged_config(
    file_config: AgentConfig | None, config: object, options: Mapping[str, Any]
) -> AgentConfig:
    """Merge the settings of the project, of a configuration object and of keywords.

    Later sources override earlier ones, except that approval rules of all sources stay in force.
    None means not given.

    Args:
        file_config: The project's settings.
        config: The program's settings as one object.
        options: The program's settings as keywords.

    Raises:
        ConfigurationError: For an unknown or invalid option.
    """
    if config is not None and not isinstance(config, AgentConfig):
        raise ConfigurationError(
            f"an agent's configuration is an AgentConfig, not a {type(config).__name__}",
            hint='Agent(AgentConfig(llm="…"), tools=…), or Agent(llm="…", tools=…)',
        )
    values: dict[str, Any] = {}
    for source in (file_config, config):
        if source is not None:
            fields = {name: getattr(source, name) for name in source.model_fields_set}
            values |= _with_rules_of_both(values, fields)
    set_options = {name: value for name, value in options.items() if value is not None}
    values |= _with_rules_of_both(values, set_options)
    return make_config(values)


def _with_rules_of_both(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the later source's options with the approval rules of both sources.

    The caller lets other options of the later source replace those of the earlier source.
    """
    earlier_rules = earlier.get("approval_rules")
    later_rules = later.get("approval_rules")
    if not (isinstance(earlier_rules, Mapping) and isinstance(later_rules, Mapping)):
        return later  # at most one source has rules, so no rule is replaced
    return {**later, "approval_rules": {**earlier_rules, **later_rules}}


def _has_same_provider(llm: LLMConfig, main: LLMConfig, providers: Providers) -> bool:
    """Return whether two models have the same provider, and can share a key.

    Args:
        llm: A model without a setting ``provider``.
        main: The main model.
        providers: The model providers.
    """
    provider = providers.for_model(providers.resolve_provider(llm).model)
    if provider is None:
        return False
    main_provider = providers.for_model(providers.resolve_provider(main).model)
    # Whatever the main model's name says, its setting ``provider`` decides who gets the key.
    is_sent_elsewhere = main.provider not in (AUTO, provider.name)
    return main_provider == provider and not is_sent_elsewhere


def explain(
    error: ValidationError,
    model: type[BaseModel],
    where: str,
    origin_of: Callable[[tuple[str, ...]], str | None] = lambda _: None,
) -> ConfigurationError:
    """Convert pydantic's validation errors to one error that explains each problem.

    The message names the source, the field and the problem; the hint describes the allowed values.

    Args:
        error: The validation errors.
        model: The class of the settings.
        where: The source of the values, for messages: ``Agent``, or a file with its section.
        origin_of: Returns a more exact source of the value at a path, such as an environment
            variable; None if ``where`` is exact.
    """
    option_names = list(model.model_fields)
    if where == _AGENT:
        option_names += _PROGRAM_ONLY
    problems: list[str] = []
    hints: dict[str, None] = {}
    kind: type[ConfigurationError] = ConfigurationError
    for item in error.errors(include_url=False, include_input=False):
        path = tuple(str(part) for part in item["loc"])
        key = ".".join(path)
        message = item["msg"].removeprefix("Value error, ")
        is_unknown_key = item["type"] == "extra_forbidden"
        if is_unknown_key:
            is_in_table = len(path) > 1  # as in ``memory_config.top``
            if is_in_table:
                known = _keys_of_table(model, path[0])
                suggestion = did_you_mean(path[-1], known)
            else:
                known = option_names
                suggestion = suggest_agent_key(key, known)
            problems.append(f"{where}: unknown key {key!r}{suggestion}")
            hints[f"known keys: {', '.join(known)}"] = None
        else:
            exact_source = origin_of(path) or f"{where}: {key}"
            problems.append(f"{exact_source}: {message}")
            hints[_hint_for_setting(model, path)] = None
        # Programs can catch errors in the rules of approval apart from all others.
        if key.startswith(("confirm", "approval")):
            kind = AgentConfirmationError
    return kind("; ".join(problems), hint="; ".join(hints))


def _keys_of_table(model: type[BaseModel], field: str) -> list[str]:
    """Return the keys that a setting such as ``memory_config`` may have; empty if unknown."""
    return list(getattr(model.model_fields[field].annotation, "model_fields", ()))


def _hint_for_setting(model: type[BaseModel], path: tuple[str, ...]) -> str:
    """Return a hint for an invalid value: the description of the setting.

    Without a description, the hint names the page that lists all settings.
    """
    field = model.model_fields.get(path[0]) if path else None
    if field is None or not field.description:
        return "docs/configuration.md lists every key"
    first_letter, rest = field.description[0], field.description[1:]
    return f"{path[0]}: {first_letter.lower()}{rest.rstrip('.')}"
