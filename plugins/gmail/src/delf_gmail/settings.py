"""The settings of a Gmail connection."""

from __future__ import annotations

from pydantic import Field

from delf_google.settings import GoogleOptions, GoogleSettings


class GmailSettings(GoogleSettings):
    """The user of the mail, and the size of the part that a script gets at once."""

    body_chars: int = Field(
        default=100_000, ge=100, description="Longer texts of messages are cut, with a notice."
    )


class GmailOptions(GoogleOptions, total=False):
    """The keywords of the connection, for editors."""

    body_chars: int
