"""``AgentConfig``: everything about an agent that can be written down, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from delf.errors import (
    AgentConfirmationError,
    ConfigurationError,
    ModelConfigurationError,
    did_you_mean,
)
from delf.llm import LLMConfig, as_llm_config
from delf.types import ApprovalMode, Isolation


def _llm(value: Any) -> Any:
    if isinstance(value, str):
        return as_llm_config(value)
    if isinstance(value, Mapping):
        return LLMConfig(**value)  # pyright: ignore[reportUnknownArgumentType]
    return value


LLM = Annotated[LLMConfig | None, BeforeValidator(_llm)]


class AgentConfig(BaseModel):
    """The agent's configuration; the same fields in code, ``delf.toml``, ``DELF_*`` and flags."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )

    llm: LLM = Field(default=None, description="The model for everything.")
    light_llm: LLM = Field(default=None, description="The quick model; goes with heavy_llm.")
    heavy_llm: LLM = Field(default=None, description="The strong model; goes with light_llm.")
    vision_llm: LLM = Field(default=None, description="The model for images; else heavy_llm.")
    system_prompt: str | None = Field(default=None, description="Added to every model call.")
    providers: dict[str, str] = Field(
        default_factory=dict, description="API keys by provider.", repr=False
    )
    verbose: bool = Field(default=False, description="Print the trace as it grows.")
    prefilter_mode: Literal["auto", "filter", "search", "semantic", "off"] = Field(
        default="auto", description="How tools are chosen when there are many."
    )
    retry_count: int = Field(default=1, ge=0, le=20, description="Retries of a failed script.")
    rerun_count: int = Field(default=2, ge=0, le=20, description="Passes asked for by rerun().")
    sandbox: str = Field(default="auto", description="The sandbox backend's name, or auto.")
    sandbox_config: dict[str, Any] = Field(
        default_factory=dict, description="Limits, and options of the backend."
    )
    min_isolation: Isolation = Field(
        default="process", description="Refuse sandboxes that are weaker."
    )
    files: list[str] = Field(default_factory=list, description="Input files for scripts.")
    allowed_libs: list[str] = Field(
        default_factory=list, description="Packages that scripts may import, too."
    )
    budget_usd: float | None = Field(default=None, gt=0, description="The most to spend, in USD.")
    allow_unpriced: bool = Field(
        default=False, description="Let models without a known price run under a budget."
    )
    strategy: str = Field(default="codegen", description="How a task becomes tool calls.")
    confirm_mode: Literal["call", "plan"] = Field(
        default="call", description="Ask at each call, or once for the whole script."
    )
    approval_mode: ApprovalMode = Field(
        default="interactive", description="Ask, approve everything, or deny everything."
    )
    approvals: list[str] = Field(
        default_factory=lambda: ["terminal"], description="Approval channels, in order."
    )
    approval_timeout: float = Field(
        default=300.0, gt=0, description="Seconds until a request expires, which means no."
    )
    timeout: float = Field(default=60.0, gt=0, description="Seconds for one task.")
    journal: str = Field(default="memory", description="Where events are kept.")
    output_dir: str | None = Field(default=None, description="Where output files go.")

    @field_validator("allowed_libs", "files", "approvals", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _models_agree(self) -> AgentConfig:
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
            ModelConfigurationError: When none is configured.
        """
        chosen = self.heavy_llm or self.llm
        if chosen is None:
            raise ModelConfigurationError("no language model is configured")
        return chosen

    @property
    def quick_llm(self) -> LLMConfig:
        """The model for small questions."""
        return self.light_llm or self.main_llm


def make_config(values: Mapping[str, Any], *, where: str = "Agent") -> AgentConfig:
    """An ``AgentConfig`` from values, with errors that name the field and what it allows.

    Args:
        values: Field values.
        where: Where they come from, for messages: ``Agent``, a file with its section.

    Raises:
        ConfigurationError: For an unknown field or a value that does not fit.
    """
    try:
        return AgentConfig.model_validate(dict(values))
    except ValidationError as error:
        raise explain(error, AgentConfig, where) from None


def explain(error: ValidationError, model: type[BaseModel], where: str) -> ConfigurationError:
    """A validation error as one line: place, field, problem, suggestion."""
    known = tuple(model.model_fields)
    problems: list[str] = []
    kind: type[ConfigurationError] = ConfigurationError
    for item in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            problems.append(f"unknown key {place!r}{did_you_mean(place, known)}")
        else:
            problems.append(f"{place}: {item['msg']}")
        if place.startswith(("confirm", "approval")):
            kind = AgentConfirmationError
    return kind(f"{where}: {'; '.join(problems)}", hint=f"known keys: {', '.join(known)}")
