"""The settings of the server: ``[plugins.serve]`` of ``delf.toml``, or ``DELF_SERVE_…``."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from delf.network.urls import split_url
from delf.settings import (
    HttpUrl,
    LocalPath,
    OneOrMore,
    PluginSettings,
    SecretHttpUrl,
    SecretStr,
    SentTo,
)

NAME: Final = "serve"
# The minimum number of bytes of a webhook's secret.
_SECRET_BYTES: Final = 16
_HOOK: Final = re.compile(r"[A-Za-z0-9][\w-]{0,63}")


class HookSettings(BaseModel):
    """An incoming webhook, which starts a task or a routine."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    secret: SecretStr = Field(
        min_length=16,
        description=(
            "The secret that signs the messages: at least 16 characters, or whsec_ and base64."
        ),
    )
    task: str = Field(
        default="",
        description=("The task to start; its scripts find the message as the variable `item`."),
    )
    routine: str = Field(default="", description="The routine to start, instead of a task.")
    inputs: dict[str, str] = Field(
        default_factory=dict,
        description="JSON pointers to a routine's values in the message, by parameter: /order/id.",
    )
    body_schema: dict[str, Any] | None = Field(
        default=None, alias="schema", description="The JSON Schema that messages must fit."
    )
    person: str = Field(
        default="", description="The person to whom the tasks belong; nobody when omitted."
    )

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        has_task = bool(self.task.strip())
        has_routine = bool(self.routine)
        if has_task == has_routine:  # both, or none of them
            raise ValueError("a hook has either a task or a routine")
        if self.inputs and not has_routine:
            raise ValueError(
                "only a routine takes inputs; the scripts of a task find the hook's message in the "
                "variable `item`"
            )
        for path in self.inputs.values():
            if not path.startswith("/"):
                raise ValueError(f"{path!r} is not a JSON pointer, such as /order/id")
        return self

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: SecretStr) -> SecretStr:
        if _secret_size(value) < _SECRET_BYTES:
            raise ValueError(f"the secret has less than {_SECRET_BYTES} bytes, without blanks")
        return value


class ServeSettings(PluginSettings):
    """The features, clients and limits of the server."""

    api_key: Annotated[SecretStr | None, SentTo()] = Field(
        default=None,
        description=(
            "Keys with all rights, for the first start and for programs: KEY or NAME:KEY, with "
            "commas between them. DELF_API_KEY is the same."
        ),
    )
    hosts: Annotated[list[str], OneOrMore] = Field(
        default_factory=list,
        description=(
            "Host names of the server, in addition to localhost, the machine's own name "
            "and its addresses. `*` allows any name."
        ),
    )
    allow_origins: Annotated[list[str], OneOrMore] = Field(
        default_factory=list, description="Other sites whose pages may use the API (CORS)."
    )
    trusted_proxies: Annotated[list[str], OneOrMore] = Field(
        default_factory=list,
        description="Addresses or networks of reverse proxies. Only their X-Forwarded-For and "
        "X-Forwarded-Proto are believed.",
    )
    access_log: bool = Field(
        default=True, description="Write a line of JSON for each request to stderr."
    )
    body_bytes: int = Field(
        default=1_000_000, ge=1024, description="The largest JSON body of a request, in bytes."
    )
    file_bytes: int = Field(
        default=100_000_000, ge=1024, description=("The largest uploaded file, in bytes.")
    )
    user_file_bytes: int = Field(
        default=1_000_000_000,
        ge=1024,
        description="The most bytes of uploaded files of a user; more is refused with 413.",
    )
    all_file_bytes: int = Field(
        default=10_000_000_000,
        ge=1024,
        description=("The most bytes of all uploaded files; more is refused with 507."),
    )
    file_days: float = Field(
        default=30, gt=0, description="Days after which an uploaded file is removed."
    )
    rate: float = Field(
        default=0,
        ge=0,
        description=(
            "Requests a second of a user; 0: no limit. The page retries after the time that the "
            "server asks for."
        ),
    )
    models: list[str] = Field(
        default_factory=list,
        description="Further models that a person may choose for one task, by their names.",
    )
    budgets: dict[str, float] = Field(
        default_factory=dict,
        description=(
            "US dollars that a user or a team may spend in a calendar month (UTC), by name: "
            '`{ada = 20.0, finance = 500.0, "*" = 5.0}`. `*` is for each user without a budget of '
            "their own. Tasks count in the month in which they begin, also those of runners. At "
            "the limit, new tasks are refused with 402, and running tasks end at their next model "
            "call."
        ),
    )
    open_tasks: int = Field(
        default=10_000,
        ge=1,
        description="The most tasks of a user that wait or run at the same time.",
    )
    streams: int = Field(
        default=5_000, ge=1, description=("The most open event streams and waits of `POST /run`.")
    )
    user_streams: int = Field(
        default=1_000,
        ge=1,
        description="The most open event streams and waits of `POST /run` of a user.",
    )
    connections: int = Field(
        default=10_000,
        ge=16,
        description=("The most open connections; fewer if the system permits fewer open files."),
    )
    header_seconds: float = Field(
        default=10, gt=0, description="The timeout in seconds for the headers of a request."
    )
    body_seconds: float = Field(
        default=30,
        gt=0,
        description="The timeout in seconds for a body, plus one for each 20 kB of it.",
    )
    user_header: str = Field(
        default="",
        pattern=r"^([A-Za-z][A-Za-z0-9-]{0,60})?$",
        description="The header in which a trusted proxy names the user, such as X-Remote-User.",
    )
    oidc_issuer: HttpUrl = Field(
        default="", description="The address of an OpenID Connect provider, for logins."
    )
    oidc_client_id: str = Field(
        default="", description=("The client id of this server at the provider.")
    )
    oidc_client_secret: Annotated[SecretStr | None, SentTo("oidc_issuer")] = Field(
        default=None, description="The client secret of this server at the provider."
    )
    oidc_scopes: str = Field(
        default="openid email profile", description="The scopes to request, separated by spaces."
    )
    oidc_name_claim: str = Field(
        default="email",
        description=(
            "The claim that identifies a person: the name in `delf users`, or the mail "
            "address if the claim is `email` and verified."
        ),
    )
    session_hours: float = Field(
        default=12,
        gt=0,
        allow_inf_nan=False,  # a cookie needs a number of seconds
        description="Hours until somebody has to log in to the page again.",
    )
    grace_seconds: float = Field(
        default=5,
        ge=0,
        description=(
            "Seconds that running tasks have to end when the server stops; then they "
            "wait for the next server. The process ends a moment later: let its "
            "supervisor wait five seconds longer. Streams end at once, and a client "
            "that waits for a task gets its present state."
        ),
    )
    files_folder: LocalPath | None = Field(
        default=None,
        description=(
            "The folder for uploaded files; in delf's data folder when omitted. Each "
            "file belongs to the caller who uploaded it."
        ),
    )
    public_url: HttpUrl = Field(
        default="", description="The address of the page, for links: https://delf.example.com"
    )
    webhook_url: Annotated[SecretHttpUrl | None, SentTo()] = Field(
        default=None,
        description=(
            "The URL that gets a POST when a request waits (`approval_requested`) and "
            "at the end of a task (`task_finished`)."
        ),
    )
    webhook_secret: Annotated[SecretStr | None, SentTo()] = Field(
        default=None,
        description=(
            "The secret that signs messages to the webhook, as "
            "https://www.standardwebhooks.com specifies: a text, or whsec_ and base64."
        ),
    )
    hooks: dict[str, HookSettings] = Field(
        default_factory=dict[str, HookSettings],
        description="Incoming webhooks by name, each with a secret and a task or a routine.",
    )
    smtp_url: Annotated[SecretStr | None, SentTo()] = Field(
        default=None,
        description=(
            "smtp[s]://USER:PASSWORD@HOST:PORT, for mails about waiting requests and ended tasks."
        ),
    )
    slack_token: Annotated[SecretStr | None, SentTo("slack_api_url")] = Field(
        default=None,
        description="The token of a Slack app with chat:write and users:read.email, for direct "
        "messages to people who want them.",
    )
    slack_api_url: HttpUrl = Field(default="https://slack.com/api/", description="Slack's API.")
    notice_hosts: Annotated[list[str], OneOrMore] = Field(
        default_factory=list[str],
        description="The hosts of webhooks that people may set for themselves, such as "
        "hooks.example.com or *.example.com.",
    )
    remind_minutes: list[float] = Field(
        default_factory=list[float],
        description=(
            "Minutes after which a waiting request is announced again "
            "(`approval_reminder`), such as [60, 1440]."
        ),
    )
    mail_to: Annotated[list[str], OneOrMore] = Field(
        default_factory=list, description="The recipients of these mails."
    )
    mail_from: str = Field(default="delf@localhost", description="The sender of these mails.")

    @field_validator("budgets")
    @classmethod
    def _check_budgets(cls, value: dict[str, float]) -> dict[str, float]:
        for name, limit in value.items():
            if not limit > 0:  # unlike ``limit <= 0``, also true for NaN
                raise ValueError(f"{name}: a budget is above zero")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, value: list[str]) -> list[str]:
        for text in value:
            ipaddress.ip_network(text, strict=False)
        return value

    @field_validator("api_key", mode="before")
    @classmethod
    def _join_keys(cls, value: Any) -> Any:
        return ",".join(value) if isinstance(value, (list, tuple)) else value  # pyright: ignore[reportUnknownArgumentType]

    @property
    def has_login(self) -> bool:
        """True if people can log in without an API key."""
        return bool(self.user_header or self.oidc_issuer)

    @property
    def sends_notices(self) -> bool:
        """True if there is a way to send notices to people or to a webhook."""
        ways = (self.webhook_url, self.smtp_url, self.slack_token)
        return any(way is not None for way in ways) or bool(self.notice_hosts)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.user_header and not self.trusted_proxies:
            raise ValueError("user_header needs trusted_proxies: anybody could send it")
        if self.oidc_issuer and not (self.oidc_client_id and self.public_url):
            raise ValueError("oidc_issuer needs oidc_client_id and public_url")
        return self

    @field_validator("smtp_url")
    @classmethod
    def _check_smtp_url(cls, value: SecretStr | None) -> SecretStr | None:
        text = "" if value is None else value.get_secret_value()
        parts = split_url(text)
        is_valid = parts is not None and parts.scheme in ("smtp", "smtps")
        if text and not is_valid:
            raise ValueError("it is not smtp://HOST:PORT or smtps://HOST:PORT")
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _check_webhook_secret(cls, value: SecretStr | None) -> SecretStr | None:
        _secret_size(value)  # raises ValueError for invalid base64
        return value

    @field_validator("hooks")
    @classmethod
    def _check_hook_names(cls, value: dict[str, HookSettings]) -> dict[str, HookSettings]:
        for name in value:
            if not _HOOK.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of a hook: letters, digits, - and _")
        return value

    @field_validator("public_url")
    @classmethod
    def _strip_slash(cls, value: str) -> str:
        return value.rstrip("/")


def _secret_size(value: SecretStr | None) -> int:
    """Return the number of bytes of a secret that signs messages.

    Raises:
        ValueError: If the secret begins with ``whsec_`` but is not base64.
    """
    text = "" if value is None else value.get_secret_value()
    if text.startswith("whsec_"):
        return len(base64.b64decode(text.removeprefix("whsec_"), validate=True))
    return len(text.strip().encode("utf-8", "replace"))


def settings_of(options: Mapping[str, Any]) -> ServeSettings:
    """Load the settings from code or ``delf.toml``, then from environment variables.

    Raises:
        ConnectionConfigurationError: If a setting is invalid. The message never has its value.
    """
    return ServeSettings.for_instance(NAME, options)
