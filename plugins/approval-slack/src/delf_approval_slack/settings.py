"""The settings: ``[plugins.approval-slack]`` of ``delf.toml``, or ``DELF_APPROVAL_SLACK_…``."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from delf.settings import HttpUrl, PluginSettings, SecretStr, SentTo


class SlackSettings(PluginSettings):
    """The settings of the Slack app, the channel for requests, and the approvers."""

    bot_token: Annotated[SecretStr, SentTo("api_url")] = Field(
        description="The app's bot token (xoxb-…); scopes chat:write, files:write, usergroups:read."
    )
    app_token: Annotated[SecretStr | None, SentTo("api_url")] = Field(
        default=None,
        description="The app's token for Socket Mode (xapp-…); Slack needs no address of yours.",
    )
    signing_secret: Annotated[SecretStr | None, SentTo()] = Field(
        default=None,
        description="The app's signing secret, for HTTP instead of Socket Mode.",
    )
    channel: str = Field(
        min_length=1, description="The id of the channel for requests, such as C0123ABCD."
    )
    approvers: list[str] = Field(
        min_length=1,
        description="Ids of people (U…) and user groups (S…) who may decide; `*` for everybody in "
        "the channel who belongs to the app's workspace.",
    )
    workspaces: list[str] = Field(
        default_factory=list,
        description="Ids (T…) of further workspaces whose people count for `*`, such as those of "
        "an Enterprise organisation.",
    )
    names: dict[str, str] = Field(
        default_factory=dict,
        description="The names that people (U…) and teams (S…) have in delf, for a team's rules.",
    )
    host: str = Field(default="127.0.0.1", description="The address on which to listen for HTTP.")
    port: int = Field(
        default=8799, ge=0, le=65535, description="The port on which to listen for HTTP."
    )
    api_url: HttpUrl = Field(
        default="https://slack.com/api/", description="The address of Slack's Web API."
    )
    page_url: HttpUrl | None = Field(
        default=None, description="The address of delf's page, which messages link to."
    )

    @model_validator(mode="after")
    def _check_receiver(self) -> Self:
        if (self.app_token is None) == (self.signing_secret is None):
            raise ValueError("either app_token (Socket Mode) or signing_secret (HTTP) is needed")
        return self
