"""Who may do what: keys with names and rights, and the cookies that stand for them on the page."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from delf.errors import ConfigurationError
from delf_serve.settings import ServeSettings

Right = Literal["read", "run", "decide"]
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
VARIABLE: Final = "DELF_API_KEY"
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


ANYBODY: Final = Key("local", frozenset(RIGHTS), b"")
"""Who asks a server without keys, which listens on loopback alone."""


class Keys:
    """The keys of a server.

    Args:
        keys: All of them; without any, nobody needs one.
    """

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self._keys = tuple(keys)
        names = [key.name for key in keys]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise ConfigurationError(f"two API keys have the name {double!r}")

    @classmethod
    def of(cls, settings: ServeSettings, environ: Mapping[str, str]) -> Keys:
        """The keys of the settings, their file and ``DELF_API_KEY`` together.

        Raises:
            ConfigurationError: For one that cannot be read, by its number and never its text.
        """
        given = "" if settings.api_key is None else settings.api_key.get_secret_value()
        texts = given.split(",") if given else environ.get(VARIABLE, "").split(",")
        if settings.keys_file is not None:
            try:
                lines = Path(settings.keys_file).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"the file of API keys cannot be read: {error}") from None
            texts += [line for line in lines if not line.lstrip().startswith("#")]
        texts = [text.strip() for text in texts if text.strip()]
        return cls([_key(text, number) for number, text in enumerate(texts, 1)])

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, secret: bytes) -> Key | None:
        """The key that a caller shows; how long that takes tells nothing of those there are."""
        digest = hashlib.sha256(secret).digest()
        found: Key | None = None
        for key in self._keys:
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found

    # -- sessions of the page -----------------------------------------------------------

    def session(self, key: Key, seconds: float) -> str:
        """A cookie's value that stands for a key for some time, on every process of the server."""
        head = f"{key.name}\n{int(time.time() + seconds)}".encode()
        return f"{_text(head)}.{_text(_sign(key, b'session', head))}"

    def of_session(self, cookie: str) -> Key | None:
        """The key that a cookie stands for, unless it is over, forged, or the key is gone."""
        try:
            head, signature = (_bytes(part) for part in cookie.split("."))
            name, until = head.decode().split("\n")
            is_over = int(until) < time.time()
        except ValueError:
            return None
        key = next((key for key in self._keys if key.name == name), None)
        if key is None or is_over:
            return None
        return key if hmac.compare_digest(signature, _sign(key, b"session", head)) else None

    @staticmethod
    def csrf(key: Key, cookie: str) -> str:
        """What a page has to send with a change, which other sites cannot know."""
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
