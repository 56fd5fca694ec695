"""Settings of plugins: typed, from code, ``delf.toml`` or the environment; secrets hidden."""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationError

from delf.environment import FileText, beside, current_environ
from delf.errors import ConnectionConfigurationError, did_you_mean

__all__ = ["LocalPath", "PluginSettings", "SecretStr", "beside", "current_environ", "folder_of"]


def folder_of(value: object) -> Path | None:
    """The folder from which a relative path in a setting counts, where that is not the working
    directory: that of the ``delf.toml`` in which the value stands.

    Args:
        value: A setting as it was given, before it was validated.
    """  # noqa: D205 - one sentence
    return value.folder if isinstance(value, FileText) else None


def _local_path(value: object) -> object:
    folder = folder_of(value)
    text = str(value)
    if folder is None or not text or "://" in text or text.startswith("file:"):
        return value
    return beside(folder, text)


LocalPath: TypeAlias = Annotated[str, BeforeValidator(_local_path)]
"""The type of a setting that is a path: in ``delf.toml`` it is relative to that file, elsewhere
to the working directory. A URL stays as it is."""


_STRUCTURED = (Collection, BaseModel)
_TEXTS = (str, bytes)


class PluginSettings(BaseModel):
    """The base class of a plugin's settings.

    Give every field a description; make passwords, tokens and URLs with credentials
    ``SecretStr``. A field that is not given in code is read from ``DELF_<INSTANCE>_<FIELD>``
    in the environment, then in ``.env``; ``delf.toml`` comes last. Lists and tables are written
    as JSON there.
    """

    # pydantic-settings would read variables, too; importing it takes as long as all of pydantic.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        validate_default=True,
        protected_namespaces=(),
        defer_build=True,
    )

    @classmethod
    def for_instance(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Settings of a named instance.

        Args:
            name: The instance's name; ``shop`` reads ``DELF_SHOP_…``.
            values: What was given in code or in ``delf.toml``; None means not given.

        Raises:
            ConnectionConfigurationError: Naming the field, never its value.
        """
        given = {key: value for key, value in values.items() if value is not None}
        prefix = f"DELF_{name.upper()}_"
        variables = {key.lower(): text for key, text in current_environ().items() if text}
        found = {
            field: _from_variable(name, f"{prefix}{field.upper()}", text, info.annotation)
            for field, info in cls.model_fields.items()
            if field not in given and (text := variables.get(f"{prefix}{field}".lower()))
        }
        try:
            return cls(**found, **given)
        except ValidationError as error:
            raise _explain(cls, name, prefix, given, error) from None


def _from_variable(name: str, variable: str, text: str, annotation: Any) -> Any:
    """A variable's text as a field wants it, which converts numbers and the like itself."""
    kinds = set(_kinds(annotation)) - {types.NoneType}
    structured = [issubclass(k, _STRUCTURED) and not issubclass(k, _TEXTS) for k in kinds]
    if not any(structured):
        return text
    try:
        return json.loads(text)
    except ValueError:
        if not all(structured):
            return text
    raise ConnectionConfigurationError(
        f"{name}: {variable} is not valid JSON", hint='a list is written as ["a", "b"]'
    )


def _kinds(annotation: Any) -> Iterator[type]:
    """The classes that a field may hold."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif isinstance(kind := origin or annotation, type):
        yield kind
    else:
        yield object  # a Literal, Any


def _explain(
    cls: type[PluginSettings],
    name: str,
    prefix: str,
    given: Mapping[str, Any],
    error: ValidationError,
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
            top = str(item["loc"][0]) if item["loc"] else ""
            shown = place if not top or top in given else f"{prefix}{place.upper()}"
            problems.append(f"{shown}: {message}" if item["loc"] else message)
    return ConnectionConfigurationError(
        f"{name}: {'; '.join(problems)}", hint=f"its settings: {', '.join(known)}"
    )
