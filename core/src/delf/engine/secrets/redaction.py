"""Keeps secrets out of what is journalled, shown to a model, or given to a script."""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
import threading
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final, cast

from pydantic import BaseModel, SecretStr

from delf.engine.secrets.matching import CONTEXT, Matcher, StreamMatcher
from delf.errors import DelfError
from delf.secrets import secrets_of_settings, worth_hiding

REDACTED: Final = "[redacted]"

_SIMPLE: Final = frozenset({type(None), bool, int, float})
_AS_TEXT: Final = (PurePath, uuid.UUID, Decimal, os.PathLike)
_BYTES: Final = (bytes, bytearray, memoryview)
_REMADE: Final[tuple[type[Any], ...]] = (list, tuple, set, frozenset, deque)


class Redactor:
    """Replaces known secrets wherever they turn up, as they are or encoded.

    Found are a secret itself and its forms in URLs, JSON, literals of Python, base64 and
    hexadecimal digits; base64 that is cut into lines is not, nor is a number. One that does not
    stand out - shorter than 8 characters, or shorter than 16 and of one kind of characters -
    counts where it stands as a word of its own.

    Args:
        secrets: The secrets as they are; see :func:`delf.secrets.worth_hiding`
            for which of them count.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = worth_hiding(secrets)
        self._learned: dict[str, set[str]] = {}
        self._learning = threading.Lock()
        self._use(self._known)

    def _use(self, known: set[str]) -> None:
        """Know these; each field is right by itself while another thread looks at several."""
        self.matcher = Matcher(known)
        self._holds = self.matcher.holds
        self._shortest = self.matcher.shortest
        self.knows_any = bool(known)
        """Whether there is anything to look for."""

    def learn(self, source: str, secrets: Sequence[str]) -> None:
        """Implements :class:`delf.protocols.connection.SecretsKeeper`."""
        declared = secrets_of_settings([SecretStr(secret) for secret in secrets])
        with self._learning:
            before = self._known.union(*self._learned.values())
            self._learned[source] = worth_hiding(declared)
            known = self._known.union(*self._learned.values())
            if known != before:
                self._use(known)

    @property
    def longest(self) -> int:
        """How many characters decide at most whether a secret stands somewhere."""
        return self.matcher.longest + CONTEXT if self.knows_any else 0

    def text(self, text: str) -> str:
        """The text without secrets; the same object when it holds none."""
        if len(text) < self._shortest or not self._holds(text):
            return text
        parts: list[str] = []
        at = 0
        while found := self.matcher.find(text, at):
            parts += (text[at : found[0]], REDACTED)
            at = found[1]
        return "".join((*parts, text[at:])) if parts else text

    def stream(self) -> StreamMatcher:
        """For a text that comes in pieces."""
        return StreamMatcher(self, REDACTED)

    def error(self, error: DelfError) -> DelfError:
        """The error, changed in place; where its causes hold a secret, a text stands for them."""
        if self.knows_any:
            error.message = self.text(error.message)
            error.args = tuple(self.value(list(error.args)))
            error.hint = None if error.hint is None else self.text(error.hint)
            if hasattr(error, "__notes__"):
                error.__notes__ = [self.text(str(note)) for note in error.__notes__]
            is_quiet = error.__suppress_context__
            error.__cause__ = self._cause(error.__cause__)
            error.__context__ = self._cause(error.__context__)
            error.__suppress_context__ = is_quiet
        return error

    def _cause(self, error: BaseException | None) -> BaseException | None:
        """The error, or its traceback without secrets where it, or what led to it, holds one."""
        if error is None or not any(map(self._is_told_by, _with_causes(error))):
            return error
        return ForeignError(self.text("".join(traceback.format_exception(error)).rstrip()))

    def _is_told_by(self, error: BaseException) -> bool:
        try:
            told = f"{error} {error!r} {vars(error)!r}"
        except Exception:  # of an error that cannot even be shown, nothing is known
            return True
        return self.text(told) is not told

    def log_failure(
        self,
        log: logging.Logger,
        message: str,
        error: BaseException,
        level: int = logging.ERROR,
    ) -> None:
        """Log an error with its traceback, without secrets."""
        if not log.isEnabledFor(level):
            return
        told = "".join(traceback.format_exception(error))
        safe = self.text(told)
        if safe == told:
            log.log(level, "%s", message, exc_info=error)
        else:
            log.log(level, "%s\n%s", self.text(message), safe)

    def is_in(self, encoded: bytes) -> bool:
        """Whether JSON holds what could be a secret.

        Texts with escapes and bytes are written otherwise there: they have to be looked at.
        """
        if not self.knows_any:
            return False
        if b"\\" in encoded or b'"$t":"bytes"' in encoded:
            return True
        return self.matcher.holds(encoded.decode("utf-8", "surrogatepass"))

    def value(self, value: Any) -> Any:
        """A value without secrets; the same object when it holds none.

        One that is nested too deeply to be made anew becomes a text that says so.
        """
        if not self.knows_any:
            return value
        try:
            return self._clean(value)
        except RecursionError:
            return f"<{type(value).__name__}, nested too deeply>"

    def _clean(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is str:
            if len(value) < self._shortest or not self._holds(value):
                return value
            return self.text(value)
        if kind in _SIMPLE:
            return value
        if kind is dict:
            return self._clean_mapping(value)
        if kind is list or kind is tuple:
            return self._clean_members(value)
        return self._clean_other(value)

    def _clean_other(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)):
            return value
        if isinstance(value, _BYTES):
            return self._clean_bytes(cast("bytes", value))
        if isinstance(value, Mapping):
            return self._clean_mapping(cast("Mapping[Any, Any]", value))
        if isinstance(value, Collection):
            return self._clean_members(cast("Collection[Any]", value))
        if isinstance(value, _AS_TEXT):
            return self._told(value, str)
        if isinstance(value, enum.Enum):
            return self._clean(value.value)
        fields = _fields_of(value)
        if not fields:
            return self._told(value, repr)
        cleaned = self._clean_mapping(fields)
        return value if cleaned is fields else cleaned

    def _told(self, value: Any, tell: Callable[[Any], str]) -> Any:
        """The value, or the text that tells of it if that held a secret."""
        told = tell(value)
        safe = self.text(told)
        return value if safe is told else safe

    def _clean_mapping(self, items: Mapping[Any, Any]) -> Any:
        clean = self._clean
        cleaned: dict[Any, Any] = {}
        same = True
        for key, item in items.items():
            new_key, new = clean(key), clean(item)
            same = same and new is item and new_key is key
            cleaned[new_key] = new
        if same:
            return items
        return cleaned if len(cleaned) == len(items) else self._clean_alike(items)

    def _clean_alike(self, items: Mapping[Any, Any]) -> dict[Any, Any]:
        """A mapping in which several keys become the same: all but the first get a number."""
        cleaned: dict[Any, Any] = {}
        counts: dict[Any, int] = {}
        for key, item in items.items():
            first = new_key = self._clean(key)
            while new_key in cleaned:
                counts[first] = counts.get(first, 1) + 1
                new_key = f"{first} {counts[first]}"
            cleaned[new_key] = self._clean(item)
        return cleaned

    def _clean_members(self, members: Collection[Any]) -> Any:
        parts = [self._clean(item) for item in members]
        same = all(new is old for new, old in zip(parts, members, strict=True))
        return members if same else _like(members, parts)

    def _clean_bytes(self, value: bytes) -> Any:
        text = bytes(value).decode("latin-1")  # a secret's own bytes are among its forms
        cleaned = self.text(text)
        return value if cleaned is text else cleaned.encode("latin-1")


class ForeignError(Exception):
    """Stands for errors that held a secret; its message is their traceback without it."""


def put_back(
    values: Mapping[str, Any], shown: Mapping[str, Any], hidden: Mapping[str, Any]
) -> dict[str, Any]:
    """Values that somebody gave who saw others without their secrets.

    Args:
        values: What was given; what is in it as it was shown becomes what it was.
        shown: What was shown.
        hidden: The same with the secrets.
    """
    return {
        name: hidden[name] if name in shown and value == shown[name] else value
        for name, value in values.items()
    }


def _with_causes(error: BaseException) -> Iterable[BaseException]:
    """An error and all that it leads to: causes, contexts, members of groups."""
    met = {id(error): error}
    todo = [error]
    while todo:
        each = todo.pop()
        causes = [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            causes += cast("BaseExceptionGroup[BaseException]", each).exceptions
        for other in causes:
            if other is not None and id(other) not in met:
                met[id(other)] = other
                todo.append(other)
    return met.values()


def _fields_of(value: Any) -> dict[str, Any]:
    """What an object is passed on as: the mapping of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(value) if isinstance(value, BaseModel) else {}


def _like(old: Any, parts: list[Any]) -> Any:
    """A collection of the same type with other members."""
    if hasattr(old, "_fields"):
        return type(old)(*parts)
    made: Any = next((kind for kind in _REMADE if isinstance(old, kind)), list)
    return made(parts)
