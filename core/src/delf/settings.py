"""Settings of plugins: typed, from code, ``delf.toml`` or the environment; secrets hidden."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
)

from delf.environment import (
    FileText,
    Source,
    SourcedText,
    beside,
    current_environ,
    current_folder,
    current_trust,
    source_of,
)
from delf.errors import ConnectionConfigurationError, KeyAddressError, did_you_mean
from delf.network.urls import split_http_url
from delf.trust.folders import texts_in
from delf.values.sequences import one_or_more

__all__ = [
    "HttpUrl",
    "LocalPath",
    "Named",
    "NamedValues",
    "PluginSettings",
    "SecretHttpUrl",
    "SecretStr",
    "SentAlong",
    "SentTo",
    "SentValues",
    "Source",
    "SourcedText",
    "beside",
    "check_variables",
    "current_environ",
    "current_folder",
    "current_trust",
    "folder_of",
    "reveal_secrets",
    "source_of",
]

# Matches names of settings that contain an address, or the path of a file with addresses.
_ADDRESS: Final = re.compile(r"(^|_)(url|uri|host|hostname|endpoint|address|spec|config)$")


def folder_of(value: object) -> Path | None:
    """Return the folder to which paths in a setting are relative.

    For a value from ``delf.toml``, this is the folder of that file. Return None for any other
    value, whose paths are relative to the current folder.

    Args:
        value: A setting before validation.
    """
    return value.folder if isinstance(value, FileText) else None


def _resolve_local_path(value: object) -> object:
    """Make a relative path from a settings file absolute, starting at the folder of that file.

    URLs and paths from other sources are not changed.
    """
    folder = folder_of(value)
    text = str(value) if isinstance(value, Path) else value
    if folder is None or not isinstance(text, str) or not text:
        return text
    if "://" in text or text.startswith("file:"):
        return text
    return beside(folder, text)


OneOrMore: Final = BeforeValidator(one_or_more)
"""The annotation of a setting with several values, which may also be given as one value."""


LocalPath: TypeAlias = Annotated[str, BeforeValidator(_resolve_local_path)]
"""The type of a setting that is a path or URL, validated to a string.

A relative path in ``delf.toml`` is relative to the folder of that file; any other relative path is
relative to the working directory. A URL is unchanged.
"""


_Text = TypeVar("_Text", str, SecretStr)


def _check_http_url(value: _Text) -> _Text:
    """Raise ValueError unless the value is empty or an http or https URL; return the value."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if text and split_http_url(text) is None:
        raise ValueError("it is not an http:// or https:// address with a valid host and port")
    return value


HttpUrl: TypeAlias = Annotated[str, AfterValidator(_check_http_url)]
"""The type of a setting that is the address of an HTTP server; it may be empty."""

SecretHttpUrl: TypeAlias = Annotated[SecretStr, AfterValidator(_check_http_url)]
"""The type of a secret setting that is the address of an HTTP server; it may be empty."""


class Named(dict[str, "str | SecretStr"]):
    """Named values, some of which are secrets, as :data:`NamedValues` describes."""


class SentAlong(Named):
    """Named values that are sent with each request, as :data:`SentValues` describes."""


_Values: TypeAlias = dict[str, str | SecretStr]
NamedValues: TypeAlias = Annotated[_Values, AfterValidator(Named), Field(repr=False)]
"""The type of a setting with named values, such as environment variables.

A value is redacted as a secret if its name suggests a secret, such as ``API_KEY``, or if the value
is a ``SecretStr``. The ``repr`` of the settings shows no value.
"""
SentValues: TypeAlias = Annotated[_Values, AfterValidator(SentAlong), Field(repr=False)]
"""The type of a setting with headers or parameters for each request.

In addition to the secrets of :data:`NamedValues`, a value with both letters and digits is redacted,
such as ``X-Client: 7f3a…``.
"""


class SentTo:
    """An annotation of a secret: the settings with the addresses to which the secret is sent.

    ``SentTo("base_url")`` declares that the secret is sent to the address in ``base_url``.
    ``SentTo()`` declares that the secret is sent to no address in another setting: use it for a URL
    that contains its own password, and for a key that is only compared. Without this annotation,
    the secret may be sent to every address among the settings.

    Args:
        fields: The names of the settings that contain the addresses.
    """

    def __init__(self, *fields: str) -> None:
        self.fields = fields


def reveal_secrets(values: Mapping[str, str | SecretStr]) -> dict[str, str]:
    """Return named values in plain text.

    Args:
        values: Values by name, secret or not.
    """
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in values.items()
    }


class PluginSettings(BaseModel):
    """The base class of a plugin's settings.

    Give every field a description; make passwords, tokens and URLs with credentials ``SecretStr``.
    A field that is not given in code is read from ``DELF_<INSTANCE>_<FIELD>`` in the environment,
    then in ``.env``; ``delf.toml`` comes last.

    A secret from the environment is never sent to an address that a file of the project gives. The
    annotation :class:`SentTo` of a secret names the fields with its addresses. Without this
    annotation, a field counts as an address if its name is like ``base_url``, ``host`` or ``spec``,
    or if its value contains ``://``.
    """

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        frozen=True,
        validate_default=True,
    )
    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Raise if a :class:`SentTo` annotation names a field that does not exist."""
        super().__pydantic_init_subclass__(**kwargs)
        for name in cls.model_fields:
            unknown = set(_declared_addresses(cls, name) or ()) - cls.model_fields.keys()
            if unknown:
                raise TypeError(f"{cls.__name__}.{name}: SentTo names no setting: {min(unknown)}")

    def source(self, field: str) -> Source:
        """Return where a field's value comes from; ``program`` for a value or default in code.

        Args:
            field: The name of the field.
        """
        return self._sources.get(field, "program")

    def places(self, field: str, *usual: str) -> tuple[list[Path], Path | None]:
        """Return the folders of a setting, and the project folder that the user must trust.

        Args:
            field: The name of a field with a list of folders.
            usual: Folders of the project that are used if the field is empty.

        Returns:
            The folders and the project folder. The second item is None if Python code set the
            folders, because the user trusts the code that runs.
        """
        folders = [Path(folder) for folder in getattr(self, field)]
        project_folder = current_folder()
        if not folders:
            return [project_folder / name for name in usual], project_folder
        is_set_in_code = self.source(field) == "program"
        return folders, None if is_set_in_code else project_folder

    @classmethod
    def for_instance(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Return settings of a named instance.

        Args:
            name: The instance's name; ``shop`` reads ``DELF_SHOP_…``.
            values: Values given in code or in ``delf.toml``; None means not given.

        Raises:
            ConnectionConfigurationError: If a value is invalid; the error names the field, never
                the value.
            KeyAddressError: If a secret would go to an address from an untrusted source.
        """
        given_values = {key: value for key, value in values.items() if value is not None}
        prefix = f"DELF_{name.upper()}_"
        environment_values = _from_environ(cls, name, prefix)
        all_values = environment_values | given_values
        # A text from delf.toml is a SourcedText, which knows its source.
        sources: dict[str, Source] = {
            key: _source_of_any(value) for key, value in given_values.items()
        }
        for key in environment_values:
            if key not in given_values:
                sources[key] = _variable_source(f"{prefix}{key}")
        _check_addresses(cls, name, prefix, all_values, sources)
        try:
            settings = cls(**all_values)
        except ValidationError as error:
            raise _explain(cls, name, prefix, given_values, error) from None
        settings._sources.update(sources)
        return settings


def check_variables(name: str, source: Source, variables: Iterable[str]) -> None:
    """Raise if a library would send a variable's value to an address from a project's file.

    Args:
        name: The owner of the address, for the message.
        source: The source of the address.
        variables: Variables that the library reads from the process's environment by itself.

    Raises:
        KeyAddressError: If the address is from a project's file and a variable is set; the error
            names the variable.
    """
    if source != "project":
        return
    set_variable = next((variable for variable in variables if os.environ.get(variable)), None)
    if set_variable is not None:
        raise KeyAddressError(
            f"{name}: a file of the project gives the address, and {set_variable} is set in the "
            "environment",
            hint="set both in the environment, or both in the file",
        )


def _source_of_any(value: Any) -> Source:
    """Return the source of the strings in a value, which may be a table or list.

    Return ``project`` if any of the strings is from a project file, otherwise the source of the
    first string. A value without strings has the source ``program``.
    """
    sources: list[Source] = [source_of(text) for text in texts_in(value)]
    if "project" in sources:
        return "project"
    return sources[0] if sources else "program"


def _variable_source(name: str) -> Source:
    """Return the source of a variable; ``project`` if the project's ``.env`` has the variable."""
    values_by_variable = {variable.upper(): value for variable, value in current_environ().items()}
    return source_of(values_by_variable.get(name.upper()), "environment")


def _check_addresses(
    cls: type[PluginSettings],
    name: str,
    prefix: str,
    values: Mapping[str, Any],
    sources: Mapping[str, Source],
) -> None:
    """Refuse to send a secret from the environment to an address from a project's file.

    Args:
        cls: The settings class.
        name: The name of the instance, for the message.
        prefix: The prefix of the instance's environment variables.
        values: The values of the settings by field.
        sources: The sources of these values.

    Raises:
        KeyAddressError: If a secret would be sent to such an address.
    """
    fields_from_environment = [key for key, source in sources.items() if source == "environment"]
    fields_from_project = [key for key, source in sources.items() if source == "project"]
    for secret in fields_from_environment:
        if not _is_secret(cls, secret):
            continue
        address_fields = _declared_addresses(cls, secret)
        for field in fields_from_project:
            if address_fields is None:  # judge by the field's name and value
                is_address = _is_address(field, values[field])
            else:
                is_address = field in address_fields
            if not is_address:
                continue
            variable = f"{prefix}{secret.upper()}"
            raise KeyAddressError(
                f"{name}: {secret} is set in the environment ({variable}), and {field} in a file "
                f"of the project: {secret} would be sent to an address that somebody else gave",
                hint=f'write it in the file, {secret} = "${{{variable}}}", or give the address by '
                f"{prefix}{field.upper()}",
            )


def _declared_addresses(cls: type[PluginSettings], field: str) -> tuple[str, ...] | None:
    """Return the names of the fields that give the address to which a secret is sent.

    The secret's annotation :class:`SentTo` names these fields. Return None without the annotation.
    """
    markers = [one for one in cls.model_fields[field].metadata if isinstance(one, SentTo)]
    return markers[-1].fields if markers else None


def _is_secret(cls: type[PluginSettings], field: str) -> bool:
    """Return True if the type of a field contains ``SecretStr``, as in ``SecretStr | None``."""
    if field not in cls.model_fields:
        return False
    types_to_visit: list[Any] = [cls.model_fields[field].annotation]
    while types_to_visit:
        kind = types_to_visit.pop()
        if kind is SecretStr:
            return True
        types_to_visit += get_args(kind)
    return False


def _is_address(field: str, value: Any) -> bool:
    return bool(_ADDRESS.search(field)) or any("://" in text for text in texts_in(value))


def _from_environ(cls: type[PluginSettings], name: str, prefix: str) -> dict[str, Any]:
    """Return the values of settings that environment variables set, by field name.

    A table or list is written as JSON; a list may also be comma-separated.
    """
    # The .env support of pydantic-settings is not used: it reads only the working directory, and
    # treats every other variable in the file as an unknown setting.
    variables: dict[str, str] = {}
    for key, value in current_environ().items():
        if value and key.upper().startswith(prefix):
            variables[key.lower()] = value
    if not variables:
        return {}
    # Imported only if a variable is set, because the import is slow.
    from pydantic_settings import EnvSettingsSource, SettingsError

    for field, info in cls.model_fields.items():
        key = f"{prefix}{field}".lower()
        if key in variables and _is_list(info.annotation):
            variables[key] = _list_as_json(variables[key])
    source = EnvSettingsSource(cast("Any", cls), env_prefix=prefix)
    source.env_vars = variables  # in place of the process's own variables
    try:
        return source()
    except SettingsError as error:
        # The value is invalid JSON. It may be a secret, so the error's cause is dropped.
        # The message is such as: error parsing value for field "hosts" from source "…".
        _, _, text_from_field = str(error).partition('"')
        field, _, _ = text_from_field.partition('"')
        raise ConnectionConfigurationError(
            f"{name}: {prefix}{field.upper()} is not valid JSON",
            hint='a list is written as a,b or as ["a", "b"], a table as {"a": "b"}',
        ) from None


def _list_as_json(text: str) -> str:
    """Convert a list such as ``a, b`` to JSON: pydantic-settings reads lists only as JSON."""
    if text.lstrip().startswith("["):  # JSON already
        return text
    parts = [part.strip() for part in text.split(",")]
    return json.dumps([part for part in parts if part])


def _is_list(annotation: Any) -> bool:
    """Return True for the type of a list, tuple or set, also if the type allows None."""
    types = [member for member in get_args(annotation) if member is not type(None)]
    if get_origin(annotation) in (Union, UnionType) and len(types) == 1:
        return _is_list(types[0])
    return (get_origin(annotation) or annotation) in (list, tuple, set, frozenset)


def _explain(
    cls: type[PluginSettings],
    name: str,
    prefix: str,
    given_values: Mapping[str, Any],
    error: ValidationError,
) -> ConnectionConfigurationError:
    """Convert a validation error to an error that names settings and variables."""
    field_names = tuple(cls.model_fields)
    problems: list[str] = []
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        path = ".".join(str(part) for part in item["loc"]) or "settings"
        variable = f"{prefix}{path.upper()}"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            problems.append(f"unknown setting {path!r}{did_you_mean(path, field_names)}")
        elif item["type"] == "missing":
            problems.append(f"setting {path!r} is missing (or set {variable})")
        elif not item["loc"]:  # a problem of the settings as a whole
            problems.append(message)
        elif str(item["loc"][0]) in given_values:
            problems.append(f"{path}: {message}")
        else:  # the value comes from an environment variable
            problems.append(f"{variable}: {message}")
    return ConnectionConfigurationError(
        f"{name}: {'; '.join(problems)}", hint=f"its settings: {', '.join(field_names)}"
    )
