"""The settings of the strategy ``stream``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import PluginSettings


class StreamSettings(PluginSettings):
    """The settings of the strategy ``stream``."""

    notation: Literal["markers", "tools"] = Field(
        default="markers",
        description=(
            "`markers`: calls as JSON in the text. `tools`: the provider's own function calls."
        ),
    )
    mode: Literal["auto", "resume", "replay"] = Field(
        default="auto",
        description=(
            "`auto`: an open session if the model has one, otherwise a request for each "
            "turn. `resume`: only sessions; a task without one fails. `replay`: only "
            "requests."
        ),
    )
    session_seconds: float = Field(
        default=20.0,
        gt=0,
        description=(
            "The longest silence of a session in seconds; after that, another session "
            "or requests replace it."
        ),
    )
    max_turns: int = Field(
        default=50, ge=1, description=("The most answers of the model in one task.")
    )
    untrusted: list[str] = Field(
        default_factory=list,
        description=(
            "Tools whose results strangers may have written: names, or patterns such as web.*."
        ),
    )
