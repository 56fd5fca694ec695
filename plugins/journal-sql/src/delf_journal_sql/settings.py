"""The settings of the journal ``sql``."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote, unquote

from pydantic import Field, field_validator

from delf.settings import PluginSettings, SecretStr, beside, folder_of


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

    @field_validator("url", mode="before")
    @classmethod
    def _beside_its_file(cls, value: Any) -> Any:
        """A relative path of ``delf.toml`` counts from its folder."""
        folder, text = folder_of(value), str(value).strip()
        scheme, mark, path = text.partition(":///")
        if folder is None or text in ("", ":memory:") or path == ":memory:":
            return value
        if mark and scheme == "sqlite" and path:
            return f"sqlite:///{quote(beside(folder, unquote(path)))}"
        return value if "://" in text else beside(folder, text)
