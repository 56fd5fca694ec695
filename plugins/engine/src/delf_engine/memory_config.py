"""Settings for facts from the memory store, a part of the agent's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
