"""The settings of a Docs connection."""

from __future__ import annotations

from pydantic import Field

from delf_google.settings import GoogleOptions, GoogleSettings


class DocsSettings(GoogleSettings):
    """The user of the documents, and the size of the part that a script gets at once."""

    text_chars: int = Field(
        default=2_000_000, ge=100, description="Longer documents are cut, with a notice."
    )


class DocsOptions(GoogleOptions, total=False):
    """The keywords of the connection, for editors."""

    text_chars: int
