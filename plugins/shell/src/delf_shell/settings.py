"""Settings: the allowed commands, their folder and environment."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from delf.settings import LocalPath, PluginSettings


class RuleSettings(BaseModel):
    """A rule: the pattern of commands, and whether they need approval."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: str = Field(
        min_length=1, description=('The words of the command, with wildcards: "git log *".')
    )
    approval_required: bool = Field(default=True, description="Ask a person before each command.")
    match: Literal["words", "prefix", "reading"] = Field(
        default="words",
        description="`prefix`: any further words at all may follow the pattern. `reading`: the "
        "same, but a person is asked where they may do more than read what is in the folder.",
    )


class DefaultSettings(BaseModel):
    """The rule for commands that match no pattern."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    approval_required: bool = Field(default=True, description="Ask a person before each command.")


class ShellSettings(PluginSettings):
    """The settings of the connection: rules, the working folder and limits of commands."""

    rules: tuple[RuleSettings, ...] = Field(
        default=(),
        description=(
            "Rules, of which the first match applies. A rule has a `pattern`, "
            "`approval_required` (true when omitted) and `match` (`words`, `reading` or "
            "`prefix`)."
        ),
    )
    default: DefaultSettings | None = Field(
        default=None,
        description=(
            "The rule for commands that match no other rule: `{ approval_required = "
            "true }`. They are blocked when omitted."
        ),
    )
    folder: LocalPath = Field(
        default=".", description=("The working folder of commands; their `cwd` has to be in it.")
    )
    timeout: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description=("Seconds after which a command and its processes are killed."),
    )
    max_output_bytes: int = Field(
        default=1_000_000, ge=1, description="The most bytes of a command's output that are kept."
    )
    environment: tuple[str, ...] = Field(
        default=("PATH", "LANG", "LC_ALL", "TZ"),
        description="Variables of this process that commands get.",
    )

    @field_validator("rules", mode="before")
    @classmethod
    def _from_patterns(cls, value: Any) -> Any:
        """Convert each rule that is only a pattern to a rule that requires approval."""
        if not isinstance(value, (list, tuple)):
            return value
        patterns = cast("list[Any]", value)
        return [{"pattern": rule} if isinstance(rule, str) else rule for rule in patterns]
