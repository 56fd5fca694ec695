"""The settings of the strategy ``stream``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import PluginSettings


class StreamSettings(PluginSettings):
    """The talk with the model, and its instructions."""

    notation: Literal["markers", "tools"] = Field(
        default="markers",
        description="Calls as JSON in the text, or the provider's own function calls.",
    )
    mode: Literal["auto", "resume", "replay"] = Field(
        default="auto",
        description="auto: an open session where the model has one; resume: a session, or the "
        "task fails; replay: a request each turn.",
    )
    session_seconds: float = Field(
        default=20.0,
        gt=0,
        description="The longest silence of a session; after it, it is given up as one that broke.",
    )
    granularity: Literal["token", "event", "whole"] = Field(
        default="event",
        description="What listeners see: pieces as they come, whole units once they are in the "
        "journal; whole: the model is not streamed, and no call starts early.",
    )
    early: Literal["off", "reads", "approved"] = Field(
        default="reads",
        description="Which calls start while the model still writes: those that only read, or "
        "all that nobody is asked about.",
    )
    history_window: int | None = Field(
        default=None, ge=1, description="The most earlier turns that a request holds."
    )
    context_tokens: int = Field(
        default=100_000,
        ge=1000,
        description="Tokens of the task's turns from which on the oldest results and arguments "
        "are shortened.",
    )
    max_turns: int = Field(default=50, ge=1, description="Answers of the model in one task.")
    result_chars: int = Field(
        default=20_000, ge=200, description="The longest result that the model is shown."
    )
    untrusted: list[str] = Field(
        default_factory=list,
        description="Tools whose results strangers may have written: names, or patterns as web.*",
    )
