"""Collection of declared secrets from settings, models, options and environments.

A secret is declared by its type (``SecretStr``), by its place (a model's key, a password in a
URL), or by its name, such as a header ``Authorization`` or a variable that ends in ``_TOKEN``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, cast
from urllib.parse import unquote, unquote_plus, urlsplit

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from delf.llm import LLMConfig
from delf.machine.folders import expand_home
from delf.settings import Named, SentAlong, reveal_secrets
from delf_engine.config import LLM_FIELDS, PREFIX, AgentConfig

MIN_SECRET_LENGTH: Final = 6
"""The minimum length of a secret, and of each of its encoded forms, to be redacted."""
# The minimum length of a secret from an environment variable without the prefix ``DELF_``.
#
# Shorter values of such variables are often plain words.
_MIN_ENVIRON_SECRET_LENGTH: Final = 8
# The minimum length of a private key's line, or of a user name that may be a token.
_MIN_TOKEN_LENGTH: Final = 16
# The maximum number of items of a collection that are searched for secrets.
#
# A private attribute may be a large cache.
_MAX_PARTS: Final = 10_000
_SECRET_TYPES: Final = (SecretStr, SecretBytes, Secret)

_NAMES: Final = (
    r"(?:token|secret|password|passwd|passphrase|pwd|credential|connection_string|cookie|signature"
    r"|bearer|jwt|key[_\-]?pem|auth|authorization|(?:^|[_\-])(?:pass|sig)"
    r"|(?:^|api|access|account|auth|client|encryption|private|secret|service|shared|signing)"
    r"[_\-]?key)s?"
)
_NAME: Final = re.compile(f"{_NAMES}$", re.IGNORECASE)
_PAIR: Final = re.compile(r"([\w\-]+)\s*=\s*([^&;#\s'\"]+)")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s\"'<>]+")
# Matches user and password in a URL, even with ``/`` in the password or several hosts.
_LOGIN: Final = re.compile(r"(?:://|,)([^:/@\s,]*):([^@\s]+)@")
_SCHEME: Final = re.compile(
    r"(?:api-?key|basic|bearer|digest|dpop|key|oauth|token) +", re.IGNORECASE
)
_FILE: Final = re.compile(
    r"(?:[\w.~ @+\-]*/)*[\w. @+\-]+\.(?:json|pem|key|crt|cer|p12|pfx|jks|txt|toml|ya?ml|ini|cfg)",
    re.IGNORECASE,
)
_VARIABLES_WITH_FOLDERS: Final = frozenset({"PWD", "OLDPWD"})
_PLAIN_HEADERS: Final = re.compile(
    r"accept.*|.*-beta|.*-version|cache-control|content-type|host|.*referer|user-agent|x-title",
    re.IGNORECASE,
)
# Placeholder passwords from manuals, which are not redacted because they are ordinary words.
_PLACEHOLDERS: Final = frozenset(
    ["changeme", "example", "password", "postgres", "postgresql", "secret", "testing", "123456"]
)


def redactable(secrets: Iterable[str]) -> set[str]:
    """Return the secrets that can be redacted: long enough, and not a placeholder.

    Args:
        secrets: Declared secrets.
    """
    texts = {text.strip() for text in secrets}
    return {
        text
        for text in texts
        if len(text) >= MIN_SECRET_LENGTH and text.lower() not in _PLACEHOLDERS
    }


def secrets_of_agent(
    config: AgentConfig | None,
    connections: Iterable[object],
    environ: Mapping[str, str],
    keys: Collection[str] = (),
) -> Iterator[str]:
    """Yield the secrets in an agent's configuration, connections and environment variables.

    Args:
        config: The configuration.
        connections: The agent's connections, whose attribute ``settings`` may have secrets.
        environ: The environment variables of the agent.
        keys: Names of variables with keys, as model plugins declare them.
    """
    if config is not None:
        for name in LLM_FIELDS:
            model = getattr(config, name)
            if model is not None:
                yield from secrets_of_model(model)
        excluded = {*LLM_FIELDS, "system_prompt"}  # a prompt is prose
        options = {name: value for name, value in config if name not in excluded}
        yield from secrets_of_options(options)
        yield from config.providers.values()
        yield from config.api_key_for.values()
    for connection in connections:
        yield from secrets_of_settings(getattr(connection, "settings", None))
    yield from secrets_of_environ(environ, keys)


def secrets_of_model(config: LLMConfig) -> Iterator[str]:
    """Yield the secrets of a model's configuration: key, headers and URL."""
    if config.api_key:
        yield config.api_key
    yield from secrets_in(config.base_url or "")
    yield from secrets_of_headers(config.headers or {})


def secrets_of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of HTTP headers or request parameters that may be secret.

    A value counts as secret if its name or its scheme (``Bearer``) suggests so, or if it contains
    both letters and digits. Other values may be plain words.
    """
    for name, value in headers.items():
        if _PLAIN_HEADERS.fullmatch(name):
            continue
        scheme = _SCHEME.match(value)
        is_mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
        if scheme or is_mixed or _NAME.search(name):
            yield value
            if scheme:
                yield value[scheme.end() :]  # the secret may occur without its scheme


def secrets_of_settings(settings: Any) -> Iterator[str]:
    """Yield every secret field of a connection's settings, and passwords in URLs."""
    # The settings as a whole are not declared as secret: the search finds their secret fields.
    yield from _secrets_within(settings, objects_by_id={}, is_declared=False)


def without_secrets(settings: Any) -> Any:
    """Return a connection's settings as plain data without secrets.

    A URL with secrets is reduced to host and path. A remembered approval is bound to the returned
    data: an approval for one server does not hold for another server, but still holds after a
    change of the password.
    """
    if settings is None or isinstance(settings, (str, int, float)):
        return settings  # a setting that is a secret has a type for secrets
    if isinstance(settings, _SECRET_TYPES):
        # The result is empty, unless the secret is a URL.
        return _address_in(str(cast("Any", settings).get_secret_value()))
    if _is_url(settings):
        return _address_in(str(settings))
    if isinstance(settings, BaseModel):
        return {name: without_secrets(value) for name, value in settings}
    if isinstance(settings, Named):
        return _named_texts_without_secrets(settings)
    if isinstance(settings, Mapping):
        items = cast("Mapping[Any, Any]", settings).items()
        return {str(name): without_secrets(value) for name, value in items}
    if isinstance(settings, (list, tuple)):
        return [without_secrets(value) for value in cast("list[Any]", settings)]
    if isinstance(settings, (set, frozenset)):
        return sorted(map(repr, cast("Collection[Any]", settings)))
    if isinstance(settings, PurePath):
        return str(settings)
    return type(settings).__qualname__


def _named_texts_without_secrets(settings: Named) -> dict[str, str]:
    """Return the texts of a setting by name, without secrets.

    A text with a secret is reduced to the address if the text is a URL; otherwise to ``""``.
    """
    secret_texts = set(filter(None, _secrets_in_named_values(settings)))
    texts = reveal_secrets(settings)
    for name, text in texts.items():
        if any(secret in text for secret in secret_texts):
            texts[name] = _address_in(text)
    return texts


def _address_in(text: str) -> str:
    """Return a URL without login and query, for comparisons; an empty text if it is no URL."""
    try:
        parts = urlsplit(text)
        # Without a port, the text has ":None", which is as good for comparisons.
        if parts.netloc:
            return f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path}"
        return ""
    except ValueError:
        return ""


def _is_url(value: object) -> bool:
    """Return True for a pydantic URL, without importing its module."""
    return type(value).__module__ == "pydantic.networks"


def _secrets_within(
    value: Any, objects_by_id: dict[int, Any], *, is_declared: bool
) -> Iterator[str]:
    """Yield the secrets in a value of any type.

    Args:
        value: The value.
        objects_by_id: Visited objects by id, because attributes may form cycles. An object that is
            kept here also keeps its id, which Python would otherwise give to a later object.
        is_declared: Whether every text in the value is a secret.
    """
    if isinstance(value, (bytes, bytearray)):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        if is_declared:
            yield from _forms_of_declared_secret(value)
        else:
            yield from secrets_in(value)
    elif isinstance(value, int):
        if is_declared:
            yield str(value)
    elif _is_url(value):
        yield from secrets_in(str(value))
    elif id(value) not in objects_by_id:
        objects_by_id[id(value)] = value
        if isinstance(value, _SECRET_TYPES):
            yield from _secrets_within(
                cast("Any", value).get_secret_value(), objects_by_id, is_declared=True
            )
        elif isinstance(value, Named):
            yield from _secrets_in_named_values(value)
        for part in islice(_parts_of(value), _MAX_PARTS):
            yield from _secrets_within(part, objects_by_id, is_declared=is_declared)


def _secrets_in_named_values(values: Named) -> Iterator[str]:
    """Yield the secrets in a setting with named values, such as headers or variables."""
    for name, value in values.items():
        if not isinstance(value, str):
            yield value.get_secret_value()
        elif isinstance(values, SentAlong):  # headers, or what else goes with each request
            yield from secrets_of_headers({name: value})
        else:
            yield from _secrets_in_named_text(name, value)


def _parts_of(value: Any) -> Iterator[Any]:
    """Yield the values in a collection or in the fields of an object."""
    if isinstance(value, BaseModel):
        yield from (part for _, part in value)
        yield from (value.__pydantic_private__ or {}).values()
    elif isinstance(value, Mapping):
        yield from cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from cast("Collection[Any]", value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))


def secrets_of_environ(environ: Mapping[str, str], keys: Collection[str] = ()) -> Iterator[str]:
    """Yield the secrets in environment variables.

    A variable holds a secret if its name says so, or if its value is a URL with a password.

    Args:
        environ: The environment variables.
        keys: The names of further variables with secrets.
    """
    for name, value in environ.items():
        # A short value of a variable of another program is more likely an ordinary word.
        is_own_variable = name.upper().startswith(PREFIX)
        min_length = MIN_SECRET_LENGTH if is_own_variable else _MIN_ENVIRON_SECRET_LENGTH
        if name in keys:
            yield from _forms_of_declared_secret(value)
        elif name not in _VARIABLES_WITH_FOLDERS and len(value) >= min_length:
            yield from _secrets_in_named_text(name, value)


def secrets_of_options(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the secrets in a table of ``delf.toml``.

    An option holds a secret if its name says so, or if its value is a URL with a password.

    Args:
        options: The options, including nested tables and lists.
    """
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from secrets_of_options(cast("Mapping[str, Any]", value))
        elif isinstance(value, (list, tuple)):
            for item in cast("list[Any]", value):
                yield from secrets_of_options({name: item})
        elif not isinstance(value, str):
            yield from secrets_of_settings(value)
        else:
            yield from _secrets_in_named_text(name, value)


def _secrets_in_named_text(name: str, value: str) -> Iterator[str]:
    is_secret = _NAME.search(name) and not _is_path(value)
    if is_secret:
        yield from _forms_of_declared_secret(value)
    else:
        yield from secrets_in(value)


def _is_path(text: str) -> bool:
    """Return True if a text is the path of a file, as in ``credentials = "keys/client.json"``."""
    if _FILE.fullmatch(text):
        return True
    # os.path, because pathlib raises for a too long name.
    return text.startswith(("/", "~")) and os.path.exists(expand_home(text))  # noqa: PTH110


def _forms_of_declared_secret(text: str) -> Iterator[str]:
    """Yield the texts to redact for a declared secret.

    The texts are the secret itself, and these parts of it:

    - the password in a URL
    - each long line of a text with several lines, such as a private key
    - the secrets in JSON data, such as the key file of a service account
    """
    yield text
    yield from secrets_in(text)
    lines = text.strip().splitlines()
    if len(lines) > 1:
        for line in lines:
            is_heading = line.startswith("-----")  # such as -----BEGIN PRIVATE KEY-----
            if len(line) >= _MIN_TOKEN_LENGTH and not is_heading:
                yield line
    if text.lstrip().startswith("{"):  # the key file of a service account
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return
        yield from secrets_of_options(value)


def secrets_in(text: str) -> Iterator[str]:
    """Yield the secrets in URLs and connection strings: passwords and secret parameters.

    Args:
        text: The text.
    """
    # Look for "=" and "://" first: both patterns are slow in a long text without a match.
    if "=" in text:
        for name, value in _PAIR.findall(text):
            if _NAME.search(name):
                yield from _raw_and_decoded(value)
    if "://" in text:
        for url in _URL.findall(text):
            yield from _secrets_of_login(url)


def _secrets_of_login(url: str) -> Iterator[str]:
    """Yield the password in a URL, and a long user name, which may be a token."""
    try:
        parts = urlsplit(url)
        user = parts.username or ""
        host = parts.hostname or ""
    except ValueError:  # such as ``http://[::1``; the pattern may find a password all the same
        user = host = ""
    has_password = _LOGIN.search(url) is not None
    if len(user) >= _MIN_TOKEN_LENGTH and not has_password:
        yield from _raw_and_decoded(user)  # https://TOKEN@host
    # A password that equals the user name or the host is not redacted, because these are no secret.
    names = {user.lower(), unquote(user).lower(), host.lower()}
    for _, password in _LOGIN.findall(url):
        if password.lower() not in names:
            yield from _raw_and_decoded(password)


def _raw_and_decoded(text: str) -> Iterator[str]:
    yield text
    yield unquote(text)
    yield unquote_plus(text)
