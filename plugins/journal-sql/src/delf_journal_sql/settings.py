"""The settings of the journal ``sql``."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, unquote

from pydantic import BeforeValidator, Field, field_validator

from delf.settings import PluginSettings, SecretStr, SentTo, beside, folder_of
from delf.types import TaskState

AT_REST: Final = tuple(state for state in TaskState if not state.is_at_work)
"""The states of tasks that are neither running nor queued."""
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(h|hours?|d|days?|w|weeks?)")
_UNITS: Final = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def _parse_duration(value: Any) -> Any:
    """Convert a duration such as ``90 days`` to seconds; return other values unchanged."""
    match = _DURATION.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        return value
    number, unit = match.groups()
    first_letter = unit[0]  # "h" of "hours"
    return float(number) * _UNITS[first_letter]


Seconds = Annotated[float, BeforeValidator(_parse_duration), Field(gt=0)]


class JournalSettings(PluginSettings):
    """The settings of the journal: its address, durability, and retention times."""

    url: Annotated[SecretStr | None, SentTo()] = Field(
        default=None,
        description="sqlite:///path, a path, or postgresql://…; by default journal.db in the "
        "user's data folder.",
    )
    durability: Literal["process", "power"] = Field(
        default="process",
        description=(
            "What a stored event survives in SQLite: `process`, the end of the process; "
            "`power`, also a power cut, which is slower."
        ),
    )
    lock_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="Seconds to wait while other processes write."
    )
    blob_bytes: int = Field(
        default=65_536,
        ge=1024,
        description=("Values with more bytes are stored separately, compressed."),
    )

    keep: dict[str, Seconds] | None = Field(
        default=None,
        description=(
            "How long tasks that no process works on are stored, such as 90 days or 12h, "
            'or by state: { done = "30 days", failed = "90 days" }. Servers and runners '
            "remove older tasks. Without it, tasks are never removed."
        ),
    )

    keep_prompts: float = Field(
        default=30 * 86_400.0,
        gt=0,
        description=(
            "How long the messages to models are stored, such as 12h; 30 days when "
            "omitted. Pruning removes the messages of older tasks."
        ),
    )

    @field_validator("keep", mode="before")
    @classmethod
    def _expand_single_duration(cls, value: Any) -> Any:
        """Convert a single duration to a mapping: each state → the duration."""
        if isinstance(value, str) and value.lstrip().startswith("{"):
            return json.loads(value)  # durations by state, from an environment variable
        is_single = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        return dict.fromkeys(AT_REST, value) if is_single else value

    @field_validator("keep")
    @classmethod
    def _check_states(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        for state in value or ():
            if state not in AT_REST:
                raise ValueError(f"{state!r} is not one of {', '.join(AT_REST)}")
        return value

    @field_validator("keep_prompts", mode="before")
    @classmethod
    def _parse_keep_prompts(cls, value: Any) -> Any:
        return _parse_duration(value)

    @field_validator("url", mode="before")
    @classmethod
    def _resolve_relative_path(cls, value: Any) -> Any:
        """Resolve a relative path in ``delf.toml`` against the folder of that file."""
        folder = folder_of(value)  # values from delf.toml are FileText, which knows the folder
        text = str(value).strip()
        if folder is None or text in ("", ":memory:", "sqlite:///:memory:"):
            return value
        scheme, _, path = text.partition(":///")
        if scheme == "sqlite" and path:
            return f"sqlite:///{quote(beside(folder, unquote(path)))}"
        is_other_url = "://" in text  # such as postgresql://host/name
        return value if is_other_url else beside(folder, text)
