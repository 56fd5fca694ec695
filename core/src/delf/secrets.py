"""Which texts are secrets: in settings, models' configurations, options and environments.

Two kinds are told apart. What is declared - a ``SecretStr``, a model's key, a password in a
URL - is a secret from 6 characters on. What only has a telling name, such as a variable that
ends in ``_KEY``, is one when it also looks like one (:class:`Guess`).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, cast
from urllib.parse import unquote, unquote_plus, urlsplit

from pydantic import BaseModel

from delf.config import LLM_FIELDS, PREFIX, AgentConfig
from delf.llm import LLMConfig
from delf.settings import Named, SentAlong, revealed

SHORTEST: Final = 6
"""The fewest characters that a secret has, in every form of it."""

_STRONG: Final = 8
_LONG: Final = 16
_KINDS: Final = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
_OTHER: Final = re.compile(r"[^\w\s]")

_NAME: Final = re.compile(
    r"(?:(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|CONNECTION_STRING|WEBHOOK)S?"
    r"|PASSWD|PWD|_PASS|_DSN|_URL|AUTH|COOKIE|SIGNATURE)$",
    re.IGNORECASE,
)
_PASSWORD: Final = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSPHRASE|PASSWD|PWD|_PASS|(?:API|ACCESS|PRIVATE|SECRET)_?KEY)$",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r"(?:_DSN|_URL)$", re.IGNORECASE)
"""Names of addresses. One without a scheme may hold a login, and is no secret as a whole."""
_BARE_LOGIN: Final = re.compile(r"^[^\s:/@]*:([^\s@]+)@")
_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)
_SCHEMES: Final = frozenset(
    {"apikey", "basic", "bearer", "digest", "dpop", "key", "oauth", "token"}
)
_MAX_PARTS: Final = 10_000
"""Of one collection; what is private may be a cache."""
_FOLDERS: Final = frozenset({"PWD", "OLDPWD"})
"""Variables of every shell, which hold where it stands."""

_PLACEHOLDERS: Final = frozenset(
    [
        "admin",
        "changeme",
        "default",
        "example",
        "guest",
        "letmein",
        "password",
        "passwd",
        "postgres",
        "postgresql",
        "private",
        "public",
        "secret",
        "testing",
        "token",
        "username",
        "123456",
        "1234567",
        "12345678",
        "123456789",
    ]
)
"""What manuals write where a secret goes. Whoever guesses begins with these, and to take them
out of texts would only make those unreadable."""

_PLAIN_HEADERS: Final = frozenset(
    [
        "accept",
        "accept-encoding",
        "accept-language",
        "anthropic-beta",
        "anthropic-version",
        "cache-control",
        "content-type",
        "host",
        "http-referer",
        "openai-beta",
        "referer",
        "user-agent",
        "x-title",
    ]
)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s\"'<>]+")
_LOGIN: Final = re.compile(r"://([^:/@\s]*):([^@\s]*)@")  # as SQLAlchemy reads it, with any /
_PAIR: Final = re.compile(
    r"(?:^|[?&;#\s])(?:x-amz-|x-goog-)?(?:api|access|auth|client|refresh|id|private|account|security"
    r"|subscription|shared|sharedaccess|bearer|oauth|session|webhook)?[_\-]?(?:access)?[_\-]?"
    r"(?:key|token|secret|password|passwd|passphrase|pwd|sig|signature|credential|auth)"
    r"\s*=\s*([^&;#\s'\"]+)",
    re.IGNORECASE,
)
_HOOK: Final = re.compile(r"hook|/bot\d+:", re.IGNORECASE)
_LONG_SEGMENT: Final = 20


_OfText = Callable[[str], Iterator[str]]


class Guess(str):
    """A text that may be a secret; it counts when it also looks like one."""

    __slots__ = ()


def is_strong(text: str) -> bool:
    """Whether a text stands out so much that it is no part of another word.

    It has 16 characters, or 8 of two kinds: small letters, capitals, digits, others.
    """
    if len(text) < _STRONG or not text.strip():
        return False
    return len(text) >= _LONG or sum(bool(kind.search(text)) for kind in (*_KINDS, _OTHER)) > 1


def worth_hiding(secrets: Iterable[str]) -> set[str]:
    """Those of some texts that count as secrets.

    Args:
        secrets: Declared ones count from 6 characters on, unless they are words such as
            ``password``; a :class:`Guess` counts with 16 characters, or 8 of two kinds.
    """
    found: set[str] = set()
    for given in secrets:
        text = given.strip()
        if isinstance(given, Guess):
            is_one = is_strong(text)
        else:
            is_one = len(text) >= SHORTEST and text.lower() not in _PLACEHOLDERS
        if is_one:
            found.add(str(text))
    return found


def secrets_of_agent(
    config: AgentConfig | None, connections: Iterable[object], environ: Mapping[str, str]
) -> Iterator[str]:
    """Every secret that an agent was given, but for those of its project.

    Args:
        config: Its configuration.
        connections: Its tools.
        environ: The environment that it reads.
    """
    if config is not None:
        for name in LLM_FIELDS:
            model = getattr(config, name)
            if model is not None:
                yield from secrets_of_model(model)
        yield from config.providers.values()
        yield from config.api_key_for.values()
    for connection in connections:
        yield from secrets_of_settings(getattr(connection, "settings", None))
    yield from secrets_of_environ(environ)


def secrets_of_model(config: LLMConfig) -> Iterator[str]:
    """The secrets in a model's configuration: its key, its headers, what its URL holds."""
    if config.api_key:
        yield config.api_key
    yield from secrets_in(config.base_url or "")
    yield from secrets_of_headers(config.headers or {})


def secrets_of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """The values of HTTP headers that are sent along, but for those that are no secret.

    One whose name or form does not call it a secret may be the name of a team or a place.
    """
    for name, value in headers.items():
        if name.lower() in _PLAIN_HEADERS:
            continue
        scheme, _, credentials = value.rpartition(" ")  # "Bearer KEY"
        if scheme.lower() in _SCHEMES or _HEADER.search(name):
            yield from (value, credentials)
        elif any(map(str.isdigit, value)) and any(map(str.isalpha, value)):  # no date, no number
            yield Guess(value)


def secrets_of_settings(settings: Any) -> Iterator[str]:
    """Every secret field of a connection's settings, and what URLs among the others hold."""
    yield from _within(settings, {}, secrets_in)


def without_secrets(settings: Any) -> Any:
    """A connection's settings as plain data that tells one set-up from another.

    Of a secret nothing is in it, but for the place that an address names: its host and path.
    """
    kind = cast("type[Any]", type(settings))
    if settings is None or isinstance(settings, (str, int, float)):
        return settings
    if hasattr(kind, "get_secret_value") and _is_of_pydantic(kind):
        return _place_in(str(settings.get_secret_value()))
    if hasattr(kind, "unicode_string") and _is_of_pydantic(kind):
        return _place_in(str(settings))
    if isinstance(settings, BaseModel):
        return {name: without_secrets(value) for name, value in settings}
    if isinstance(settings, Named):
        secret = {text for text in _of_named_values(settings) if text}
        return {
            name: _place_in(text) if any(each in text for each in secret) else text
            for name, text in revealed(settings).items()
        }
    if isinstance(settings, Mapping):
        items = cast("Mapping[Any, Any]", settings).items()
        return {str(name): without_secrets(value) for name, value in items}
    if isinstance(settings, (list, tuple)):
        return [without_secrets(value) for value in cast("list[Any]", settings)]
    if isinstance(settings, (set, frozenset)):
        return sorted(map(repr, cast("Collection[Any]", settings)))
    return str(settings) if isinstance(settings, PurePath) else kind.__qualname__


def _place_in(text: str) -> str:
    """The host and path of an address; nothing of another text."""
    try:
        parts = urlsplit(text)
        return f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path}" if parts.netloc else ""
    except ValueError:
        return ""


def _within(value: Any, seen: dict[int, Any], of_text: _OfText) -> Iterator[str]:
    """The secrets in a value of settings, whatever it is made of.

    Args:
        value: The value.
        seen: What was looked at, as what is private may lead back to where it was.
        of_text: What a text holds.
    """
    kind = cast("type[Any]", type(value))
    if isinstance(value, str):
        yield from of_text(value)
    elif isinstance(value, (bytes, bytearray)):
        yield from of_text(value.decode("utf-8", "replace"))
    elif isinstance(value, int):
        yield from (str(value),) if of_text is _declared else ()
    elif hasattr(kind, "unicode_string") and _is_of_pydantic(kind):
        yield from _of_address(value)
    elif id(value) not in seen:
        seen[id(value)] = value
        if hasattr(kind, "get_secret_value") and _is_of_pydantic(kind):
            yield from _within(value.get_secret_value(), seen, _declared)
        if isinstance(value, Named):
            yield from _of_named_values(value)
        for part in islice(_parts_of(value), _MAX_PARTS):
            yield from _within(part, seen, of_text)


def _of_named_values(values: Named) -> Iterator[str]:
    for name, value in values.items():
        if not isinstance(value, str):
            yield value.get_secret_value()
        elif isinstance(values, SentAlong):
            yield from secrets_of_headers({name: value})
        else:
            yield from _of_named(name, value, sure=True)


def _is_of_pydantic(kind: type[Any]) -> bool:
    """Whether a type is one of its secrets or URLs; a client's method of that name may do work."""
    if issubclass(kind, BaseModel):
        return False
    return any(base.__module__.startswith("pydantic") for base in kind.__mro__)


def _of_address(url: Any) -> Iterator[str]:
    """The secrets in one of pydantic's URLs, which may have a login for each of its hosts."""
    yield from secrets_in(str(url))
    hosts: Iterable[Mapping[str, Any]] = url.hosts() if hasattr(url, "hosts") else ()
    yield from _spelt_all(host["password"] for host in hosts if host["password"])


def _parts_of(value: Any) -> Iterator[Any]:
    if isinstance(value, BaseModel):
        yield from (part for _, part in value)
        yield from (value.__pydantic_private__ or {}).values()
    elif isinstance(value, Mapping):
        yield from cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from cast("Collection[Any]", value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))


def secrets_of_environ(environ: Mapping[str, str]) -> Iterator[str]:
    """The secrets of an environment; those of delf's own variables are declared."""
    own = {name: value for name, value in environ.items() if name.upper().startswith(PREFIX)}
    yield from secrets_of_options(own, sure=True)
    yield from secrets_of_options(environ)


def secrets_of_options(options: Mapping[str, Any], *, sure: bool = False) -> Iterator[str]:
    """Values whose names call them secret, and what URLs hold, of a table or environment.

    Args:
        options: The values by name; tables and lists in it are looked at, too.
        sure: These are delf's, so that what is called a password is declared to be one.
    """
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from secrets_of_options(cast("Mapping[str, Any]", value), sure=sure)
        elif isinstance(value, (list, tuple)):
            for item in cast("list[Any]", value):
                yield from secrets_of_options({name: item}, sure=sure)
        elif not isinstance(value, str):
            yield from secrets_of_settings(value)
        else:
            yield from _of_named(name, value, sure=sure)


def _of_named(name: str, value: str, *, sure: bool) -> Iterator[str]:
    """The secrets in a value, by its name and by what URLs hold."""
    named = bool(_NAME.search(name)) and name not in _FOLDERS
    if named and "://" not in value and _ADDRESS.search(name):
        yield from secrets_in(value)
        yield from _spelt_all(_BARE_LOGIN.findall(value))
    elif named and "://" not in value:
        is_sure = sure and _PASSWORD.search(name)
        yield from _declared(value) if is_sure else map(Guess, _declared(value))
    elif named or "://" in value:
        yield from secrets_in(value)


def _declared(text: str) -> Iterator[str]:
    """A secret, and those parts of it that turn up alone: a URL's password, a key's lines."""
    yield text
    yield from secrets_in(text)
    lines = text.strip().splitlines()
    if len(lines) > 1:
        yield from (Guess(line) for line in lines if not line.startswith("-----"))
    if text.lstrip().startswith("{"):  # the key file of a service account
        try:
            value: Any = json.loads(text)
        except ValueError:
            return
        yield from secrets_of_options(value)


def secrets_in(text: str) -> Iterator[str]:
    """The secrets within URLs and connection strings: logins, keys, addresses of webhooks.

    Args:
        text: A text with such a thing; any other holds none.
    """
    for found in _PAIR.findall(text) if "=" in text else ():
        yield from _spelt(found)
    for url in _URL.findall(text):
        yield from _of_login(url)
        if _HOOK.search(url):
            yield from _of_hook(url)


def _of_login(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        user, host = parts.username or "", parts.hostname or ""
        password = parts.password
    except ValueError:
        user, host, password = "", "", None
    if user and password is None:
        yield Guess(unquote(user))  # https://TOKEN@host
    found = _LOGIN.search(url)
    shown = {user.lower(), unquote(user).lower(), host.lower()}
    for text in (password, found and found.group(2)):
        if text and text.lower() not in shown:
            yield from _spelt(text)


def _of_hook(url: str) -> Iterator[str]:
    """What makes the address of a webhook unknown to others."""
    path = url.partition("://")[2].partition("?")[0].partition("#")[0].partition("/")[2]
    for part in re.split("[/:]", path):
        has_digit = any(map(str.isdigit, part)) and not part.isdigit()
        if has_digit or len(part) >= _LONG_SEGMENT:
            yield from _spelt(part)


def _spelt_all(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from _spelt(text)


def _spelt(text: str) -> Iterator[str]:
    """What stands in a URL, and what it means."""
    yield text
    yield unquote(text)
    yield unquote_plus(text)
