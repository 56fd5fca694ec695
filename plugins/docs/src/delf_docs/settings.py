"""The settings of a Docs connection."""

from __future__ import annotations

from pydantic import Field

from delf_google.settings import GoogleSettings


class DocsSettings(GoogleSettings):
    """Whose documents, and how much of one a script gets at once."""

    text_chars: int = Field(
        default=2_000_000, ge=100, description="Longer documents are cut, with a notice."
    )
