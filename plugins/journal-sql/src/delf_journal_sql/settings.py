"""The settings of the journal ``sql``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import PluginSettings, SecretStr


class JournalSettings(PluginSettings):
    """Where the journal is, and how it is kept."""

    url: SecretStr | None = Field(
        default=None,
        description="sqlite:///path, a path, or postgresql://…; by default journal.db in the "
        "user's data folder.",
    )
    durability: Literal["process", "power"] = Field(
        default="process",
        description="What an event survives in SQLite once it is kept: the end of the process, "
        "or a power cut, too, which is slower.",
    )
    lock_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="Seconds to wait while others write."
    )
    blob_bytes: int = Field(
        default=65_536, ge=1024, description="Larger values are stored apart, compressed."
    )
