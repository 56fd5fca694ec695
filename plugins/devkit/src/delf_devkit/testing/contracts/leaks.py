"""Leaks of a plugin's secrets: found in every form, and shown in none."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Generator, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from delf.settings import PluginSettings, SecretStr
from delf_engine.redact import Redactor

_HIDDEN = "[redacted]"
_AROUND = 80


class Secrets:
    """Texts that must not leak, in plain and encoded forms.

    Args:
        secrets: The secrets in plain text; of a URL only its password is used.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in _parts(secret)}
        self._plain = sorted(parts, key=len, reverse=True)
        self._redactor = Redactor(parts)

    def hide(self, text: str) -> str:
        """Redact the secrets in a text."""
        hidden = self._redactor.text(text)
        for secret in self._plain:
            hidden = hidden.replace(secret, _HIDDEN)
        return hidden

    def check(self, text: str, what: str) -> None:
        """Fail if a text holds a secret, without showing it."""
        __tracebackhide__ = True
        hidden = self.hide(text)
        if hidden != text:
            at = max(0, hidden.find(_HIDDEN) - _AROUND)
            pytest.fail(f"{what}: … {hidden[at : at + 2 * _AROUND]} …", pytrace=False)


def secrets_of(suite: object, fixtures: Mapping[str, Any]) -> Secrets:
    """Return the secrets that the output of a suite's test must not show.

    Args:
        suite: The suite or its class, with further secrets in ``secrets``.
        fixtures: The test's fixtures; their settings declare secrets as ``SecretStr``.
    """
    found = set[str](getattr(suite, "secrets", ()))
    for value in fixtures.values():
        found |= declared_by(getattr(value, "settings", None))
    return Secrets(found)


def declared_by(settings: object) -> set[str]:
    """Return the values of secret fields."""
    if not isinstance(settings, PluginSettings):
        return set()
    values = dict(settings).values()
    return {value.get_secret_value() for value in values if isinstance(value, SecretStr)}


@contextlib.contextmanager
def captured_logs() -> Generator[list[str]]:
    """Collect all logs and prints of the block, hiding them from other handlers."""
    lines: list[str] = []
    formatter, printed = logging.Formatter(), io.StringIO()

    def keep(_logger: logging.Logger, record: logging.LogRecord) -> None:
        lines.append(formatter.format(record))

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging.Logger, "callHandlers", keep)  # what its filters let through
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                yield lines
    finally:
        root.setLevel(level)
    lines += printed.getvalue().splitlines()


def _parts(secret: str) -> set[str]:
    """Return the secret parts of a text: a URL's password, or the whole text."""
    if "://" in secret:
        password = urlsplit(secret).password
        return {password, unquote(password)} if password else set()
    return {secret} if secret else set()
