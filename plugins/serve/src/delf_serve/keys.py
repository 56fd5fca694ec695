"""Keys with names and rights, and the cookies that stand for them on the page."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from delf.errors import ConfigurationError
from delf_serve.settings import ServeSettings

_log = logging.getLogger(__name__)

Right = Literal["read", "run", "decide", "delete"]
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
VARIABLE: Final = "DELF_API_KEY"
_LOOK_SECONDS: Final = 1.0
"""The seconds between two looks at a file of keys."""
_NAME: Final = re.compile(r"[A-Za-z][\w.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Args:
        name: Whose it is; decisions are told by it.
        rights: What it may do.
        digest: Of the key itself, which is not kept.
    """

    name: str
    rights: frozenset[str]
    digest: bytes = field(repr=False)

    @property
    def holder(self) -> str | None:
        """The owner of tasks for its remembered decisions; another secret has another one.

        None on a server without keys: the local user's.
        """
        return _holder(self.name, self.digest) if self.digest else None


@functools.lru_cache(1000)
def _holder(name: str, digest: bytes) -> str:
    """A name for a key in journals, which those may read who do not have it: guessing is slow."""
    told = hashlib.pbkdf2_hmac("sha256", digest, f"delf holder {name}".encode(), 100_000, 6)
    return f"{name}:{told.hex()}"


ANYBODY: Final = Key("local", frozenset(RIGHTS), b"")
"""The caller of a server without keys, which listens on loopback alone."""


class Keys:
    """The keys of a server. Those of a file are read again when it changes.

    Args:
        texts: Keys as they are written.
        file: A file with further ones, one a line.

    Raises:
        ConfigurationError: For one that cannot be read, by its number and never its text.
    """

    def __init__(self, texts: Sequence[str] = (), file: Path | None = None) -> None:
        self._texts = tuple(texts)
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._looked = time.monotonic()
        self._keys = self._read()
        self._needed = bool(self._keys)
        if file is not None and not self._needed:
            raise ConfigurationError("the file of API keys has none")

    @classmethod
    def of(cls, settings: ServeSettings, environ: Mapping[str, str]) -> Keys:
        """The keys of the settings, their file and ``DELF_API_KEY`` together.

        Raises:
            ConfigurationError: For one that cannot be read, by its number and never its text.
        """
        given = "" if settings.api_key is None else settings.api_key.get_secret_value()
        given = given or environ.get(VARIABLE, "")
        texts = [text.strip() for text in given.split(",") if text.strip()]
        if given and not texts:
            raise ConfigurationError("an API key is set, and there is nothing in it")
        return cls(texts, None if settings.keys_file is None else Path(settings.keys_file))

    def __bool__(self) -> bool:
        """Tell whether a key is needed. That stays so when a file loses its last one."""
        return self._needed

    def find(self, secret: bytes) -> Key | None:
        """The key that a caller shows; how long that takes tells nothing of those there are."""
        digest = hashlib.sha256(secret).digest()
        found: Key | None = None
        for key in self._now():
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found

    def holds(self, key: Key) -> bool:
        """Tell whether a key is still one, with the same secret and the same rights."""
        return not self._needed or key in self._now()

    def _now(self) -> tuple[Key, ...]:
        """The keys, read again where their file has changed."""
        if self._file is None or time.monotonic() - self._looked < _LOOK_SECONDS:
            return self._keys
        self._looked = time.monotonic()
        if self._stamp_of() != self._stamp:
            try:
                self._keys = self._read()
            except ConfigurationError as error:
                _log.error("the keys stay as they were: %s", error.message)
        return self._keys

    def _stamp_of(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> tuple[Key, ...]:
        texts = list(self._texts)
        if self._file is not None:
            self._stamp = self._stamp_of()
            try:
                lines = self._file.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"the file of API keys cannot be read: {error}") from None
            texts += [line for line in map(str.strip, lines) if line and not line.startswith("#")]
        keys = tuple(_key(text, number) for number, text in enumerate(texts, 1))
        names = [key.name for key in keys]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise ConfigurationError(f"two API keys have the name {double!r}")
        if len({key.digest for key in keys}) < len(keys):
            raise ConfigurationError("two names have the same API key")
        return keys

    # -- sessions of the page -----------------------------------------------------------

    def session(self, key: Key, seconds: float) -> str:
        """A cookie's value that stands for a key for some time, on every process of the server."""
        head = f"{key.name}\n{time.time() + seconds}\n{secrets.token_hex(16)}".encode()
        return f"{_text(head)}.{_text(_sign(key, b'session', head))}"

    def of_session(self, cookie: str) -> Key | None:
        """The key that a cookie stands for, unless it is over, forged, or the key is gone."""
        try:
            head, signature = (_bytes(part) for part in cookie.split("."))
            name, until, _ = head.decode().split("\n")
            is_over = float(until) < time.time()
        except ValueError:
            return None
        key = next((key for key in self._now() if key.name == name), None)
        if key is None or is_over:
            return None
        return key if hmac.compare_digest(signature, _sign(key, b"session", head)) else None

    @staticmethod
    def csrf(key: Key, cookie: str) -> str:
        """Make the token that a page sends with a change, and that other sites cannot know."""
        return _text(_sign(key, b"csrf", cookie.encode()))


def _key(text: str, number: int) -> Key:
    name, rights, secret = f"key{number}", "+".join(RIGHTS), text
    parts = text.split(":")
    if len(parts) == 2:
        name, secret = parts
    elif len(parts) == 3:
        name, rights, secret = parts
    allowed = frozenset(rights.split("+"))
    if len(parts) > 3 or not secret or not _NAME.fullmatch(name) or not allowed <= set(RIGHTS):
        raise ConfigurationError(
            f"API key {number} cannot be read",
            hint="KEY, NAME:KEY, or NAME:RIGHTS:KEY with rights such as read+run+decide",
        )
    return Key(name, allowed, hashlib.sha256(secret.encode()).digest())


def _sign(key: Key, purpose: bytes, data: bytes) -> bytes:
    return hmac.digest(key.digest, b"delf " + purpose + b"\n" + data, "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
