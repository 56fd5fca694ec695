"""Settings of plugins: typed, from code, ``delf.toml`` or the environment; secrets hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from delf.errors import ConnectionConfigurationError, did_you_mean

S = TypeVar("S", bound="PluginSettings")

__all__ = ["PluginSettings", "SecretStr"]


class PluginSettings(BaseSettings):
    """The base class of a plugin's settings.

    Give every field a description; make passwords, tokens and URLs with credentials
    ``SecretStr``. A field that is not given in code or in ``delf.toml`` is read from
    ``DELF_<INSTANCE>_<FIELD>``, then from ``.env``.
    """

    model_config = SettingsConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        frozen=True,
        env_ignore_empty=True,
        env_file=".env",
    )

    @classmethod
    def for_instance(cls: type[S], name: str, values: Mapping[str, Any]) -> S:
        """Settings of a named instance.

        Args:
            name: The instance's name; ``shop`` reads ``DELF_SHOP_…``.
            values: What was given in code or in ``delf.toml``; None means not given.

        Raises:
            ConnectionConfigurationError: Naming the field, never its value.
        """
        given = {key: value for key, value in values.items() if value is not None}
        prefix = f"DELF_{name.upper()}_"
        try:
            return cls(_env_prefix=prefix, **given)  # pyright: ignore[reportCallIssue]
        except ValidationError as error:
            raise _explain(cls, name, prefix, error) from None


def _explain(
    cls: type[PluginSettings], name: str, prefix: str, error: ValidationError
) -> ConnectionConfigurationError:
    known = tuple(cls.model_fields)
    problems: list[str] = []
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        place = ".".join(str(part) for part in item["loc"]) or "settings"
        if item["type"] == "extra_forbidden":
            problems.append(f"unknown setting {place!r}{did_you_mean(place, known)}")
        elif item["type"] == "missing":
            problems.append(f"setting {place!r} is missing (or set {prefix}{place.upper()})")
        else:
            message = item["msg"].removeprefix("Value error, ")
            problems.append(f"{place}: {message}" if item["loc"] else message)
    return ConnectionConfigurationError(
        f"{name}: {'; '.join(problems)}", hint=f"its settings: {', '.join(known)}"
    )
