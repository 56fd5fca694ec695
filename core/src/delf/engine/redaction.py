"""Keeps secrets out of what is journalled, shown to a model, or given to a script."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretBytes, SecretStr

from delf.errors import DelfError
from delf.llm import LLMConfig

REDACTED: Final = "[redacted]"

_MIN_LENGTH: Final = 8
_LONG: Final = 16
_NAME = re.compile(
    r"(?:(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|CONNECTION_STRING)S?"
    r"|PASSWD|PWD|_PASS|_DSN|_URL|AUTH)$",
    re.IGNORECASE,
)
_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Variables of every shell, which hold where it stands."""
_CLASSES = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"), re.compile(r"[^\w\s]"))


class Redactor:
    """Replaces known secrets wherever they turn up.

    A value counts as a secret when it has at least 8 characters and is either 16 long or of
    two kinds of characters: a password such as ``postgres`` is a word that answers hold, too.

    Args:
        secrets: The secrets as they are.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({text for text in secrets if _is_worth(text)}, key=len, reverse=True)
        self._known = _Known(tuple(known))
        self._encoded = {
            json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode()
            for text in known
            for ascii_only in (True, False)
        }

    def __bool__(self) -> bool:
        return bool(self._encoded)

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._known.taken_out(text)

    def error(self, error: DelfError) -> DelfError:
        """The error, with its message and hint changed in place."""
        if self:
            error.message = self.text(error.message)
            error.args = tuple(self.value(list(error.args)))
            error.hint = None if error.hint is None else self.text(error.hint)
        return error

    def is_in(self, encoded: bytes) -> bool:
        """Whether JSON holds a secret."""
        return any(form in encoded for form in self._encoded)

    def value(self, value: Any) -> Any:
        """A value without secrets; the same object when it holds none."""
        return _clean(value, self._known) if self else value


class _Known:
    """Looks for secrets one by one, which is quicker than a pattern of all."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts
        self._pattern = re.compile("|".join(map(re.escape, texts)))

    def taken_out(self, text: str) -> str:
        for known in self._texts:
            if known in text:
                return self._pattern.sub(REDACTED, text)
        return text


def _clean(value: Any, known: _Known) -> Any:
    if isinstance(value, str):
        return known.taken_out(value)
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        cleaned = known.taken_out(text)
        return value if cleaned is text else cleaned.encode("latin-1")
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        cleaned = {_clean(key, known): _clean(item, known) for key, item in items.items()}
        return items if _are_same(cleaned.items(), items.items()) else cleaned
    if isinstance(value, (list, tuple, set, frozenset)):
        members = cast("list[Any]", value)
        parts = [_clean(item, known) for item in members]
        same = all(new is old for new, old in zip(parts, members, strict=True))
        return members if same else _like(members, parts)
    fields = _fields_of(value)
    if not fields:
        return value
    cleaned = _clean(fields, known)
    return value if cleaned is fields else cleaned


def _fields_of(value: Any) -> dict[str, Any]:
    """What an object is passed on as: the mapping of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(value) if isinstance(value, BaseModel) else {}


def _like(old: Any, parts: list[Any]) -> Any:
    """A collection of the same type with other members."""
    return type(old)(*parts) if hasattr(old, "_fields") else type(old)(parts)


def _are_same(new: Iterable[tuple[Any, Any]], old: Iterable[tuple[Any, Any]]) -> bool:
    pairs = list(zip(new, old, strict=False))
    return all(a[0] is b[0] and a[1] is b[1] for a, b in pairs)


def _is_worth(text: str) -> bool:
    if len(text) < _MIN_LENGTH or not text.strip():
        return False
    return len(text) >= _LONG or sum(bool(kind.search(text)) for kind in _CLASSES) > 1


def secrets_of_model(config: LLMConfig) -> Iterator[str]:
    """The secrets in a model's configuration: its key and its headers."""
    if config.api_key:
        yield config.api_key
    yield from _passwords(config.base_url or "")
    for value in (config.headers or {}).values():
        yield value
        yield value.rpartition(" ")[2]  # "Bearer KEY"


def secrets_of_settings(settings: Any) -> Iterator[str]:
    """Every secret field of a connection's settings, with the passwords in secret URLs."""
    match settings:
        case SecretStr():
            yield from _with_password(settings.get_secret_value())
        case SecretBytes():
            yield settings.get_secret_value().decode("utf-8", "replace")
        case BaseModel():
            for _, value in settings:
                yield from secrets_of_settings(value)
        case Mapping():
            for value in cast("Mapping[Any, Any]", settings).values():
                yield from secrets_of_settings(value)
        case list() | tuple() | set() | frozenset():
            for value in cast("Collection[Any]", settings):
                yield from secrets_of_settings(value)
        case _:
            pass


def secrets_of_options(options: Mapping[str, Any]) -> Iterator[str]:
    """Values whose names call them secret, and passwords in URLs, of a table or environment."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from secrets_of_options(cast("Mapping[str, Any]", value))
        elif isinstance(value, (list, tuple)):
            for item in cast("list[Any]", value):
                yield from secrets_of_options({name: item})
        elif isinstance(value, str) and "://" in value:
            yield from _passwords(value)
        elif isinstance(value, str) and _NAME.search(name) and name not in _FOLDERS:
            yield value


def _with_password(text: str) -> Iterator[str]:
    yield text
    yield from _passwords(text)


def _passwords(url: str) -> Iterator[str]:
    try:
        password = urlsplit(url).password if "://" in url else None
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
