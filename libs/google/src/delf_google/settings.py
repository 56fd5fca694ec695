"""The settings of every connection to Google."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, field_validator, model_validator

from delf.settings import HttpUrl, LocalPath, PluginSettings, SecretStr

ACCOUNT_PATTERN: Final = r"^[A-Za-z0-9_.@-]{1,64}$"


class GoogleSettings(PluginSettings):
    """The credentials of a connection to Google, and the limits of its requests.

    Without credentials in the settings, application default credentials are used.
    """

    oauth_credentials: LocalPath | None = Field(
        default=None,
        description=(
            "The `client_secrets.json` of a desktop app, from Google's console, for `delf "
            "google login`. Or the file of an authorised user, from "
            "gcloud or google-auth (`token.json`)."
        ),
    )
    service_account: LocalPath | None = Field(
        default=None, description="File with the key of a service account."
    )
    delegated_user: str | None = Field(
        default=None, description="The user for whom the service account acts."
    )
    token: SecretStr | None = Field(
        default=None, description="An access token, used unchanged until it expires."
    )
    account: str = Field(
        default="default",
        pattern=ACCOUNT_PATTERN,
        description="The account of a `delf google login`, if there are several logins.",
    )
    base_url: HttpUrl | None = Field(
        default=None, description="The base URL of the services, if not Google's own."
    )
    timeout: float = Field(
        default=60.0, gt=0, le=3600, description="Seconds to wait for an answer."
    )
    max_bytes: int = Field(
        default=64_000_000, ge=1000, description="A larger answer or download is an error."
    )

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("it must begin with https:// or http://")
        return value

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        identities = [
            name
            for name in ("oauth_credentials", "service_account", "token")
            if getattr(self, name) is not None
        ]
        if len(identities) > 1:
            raise ValueError(f"{' and '.join(identities)} cannot be used together")
        if self.delegated_user is not None and self.service_account is None:
            raise ValueError("delegated_user needs service_account")
        return self
