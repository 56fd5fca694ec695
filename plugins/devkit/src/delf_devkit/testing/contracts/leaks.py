"""Detection of leaked secrets, in plain and encoded forms; failures redact the secrets."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import pytest
from pydantic.fields import FieldInfo

from delf.settings import PluginSettings, SecretStr
from delf_engine.redact import Redactor
from delf_engine.secrets import secrets_of_options

_HIDDEN = "[redacted]"
_AROUND = 80
_SAMPLE_VALUE: Final = "marmalade-7741-probe"
_TEXT: Final = re.compile(r"\b(str|bytes|Any)\b")
# The maximum number of items of each container that are searched for objects.
_MAX_SEARCHED_ITEMS: Final = 1_000


class Secrets:
    """Texts that must not leak, in plain and encoded forms.

    Args:
        secrets: The secrets in plain text. Of a URL, only the password counts as secret.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in _secret_parts(secret)}
        self._plain = sorted(parts, key=len, reverse=True)
        self._redactor = Redactor(parts)

    def hide(self, text: str) -> str:
        """Redact the secrets in a text."""
        hidden = self._redactor.redact_text(text)
        # The redactor leaves very short secrets unchanged.
        for secret in self._plain:
            hidden = hidden.replace(secret, _HIDDEN)
        return hidden

    def check(self, text: str, what: str) -> None:
        """Fail if a text contains a secret; the failure does not show the secret.

        Args:
            text: The text.
            what: The beginning of the message, such as ``a secret is logged``.
        """
        __tracebackhide__ = True
        hidden = self.hide(text)
        if hidden != text:
            start = max(0, hidden.find(_HIDDEN) - _AROUND)
            excerpt = hidden[start : start + 2 * _AROUND]
            pytest.fail(f"{what}: … {excerpt} …", pytrace=False)


def is_secret_name(name: str) -> bool:
    """Return True if delf treats a value with this name as a secret, as for ``api_key``."""
    if name.lower() == "dsn":
        return True  # a database URL, in which secrets_of_options() finds only a password
    return any(secrets_of_options({name: _SAMPLE_VALUE}))


def plain_secrets(types: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that are secrets by their name but are stored as plain text.

    Args:
        types: The types by name, each an annotation or the text of an annotation.
    """
    names: list[str] = []
    for name, kind in types.items():
        if not is_secret_name(name):
            continue
        text = kind.__name__ if isinstance(kind, type) else str(kind)
        # The path of a file with the secret is no secret. Such a setting has the type LocalPath,
        # which is shown by its name or by its validator _resolve_local_path().
        is_path = "_local_path" in text or "LocalPath" in text
        is_secret_type = "Secret" in text
        if _TEXT.search(text) and not (is_path or is_secret_type):
            names.append(name)
    return names


def types_of(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return the annotation of each setting by name, with the metadata of ``Annotated``."""
    return {name: field.rebuild_annotation() for name, field in fields.items()}


def secrets_of(suite: object, fixtures: Mapping[str, Any]) -> Secrets:
    """Return the secrets that the output of a suite's test must not show.

    Args:
        suite: The suite or its class, with further secrets in ``secrets``.
        fixtures: The test's fixtures; their settings declare secrets as ``SecretStr``.
    """
    secrets = set[str](getattr(suite, "secrets", ()))
    for value in fixtures.values():
        secrets |= declared_secrets_of(getattr(value, "settings", None))
        secrets |= {*_secrets_in_attributes(value)}
    return Secrets(secrets)


def _secrets_in_attributes(value: object) -> Iterator[str]:
    """Yield the ``SecretStr`` values of an object's attributes, and the secrets in its texts.

    Texts count only in attributes with a name such as ``api_key``.
    """
    for name, attribute in getattr(value, "__dict__", {}).items():
        if isinstance(attribute, SecretStr):
            yield attribute.get_secret_value()
        elif isinstance(attribute, str) and is_secret_name(name):
            yield from secrets_of_options({name: attribute})


def reprs_of(subject: object) -> list[str]:
    """Return the ``repr`` and ``str`` of an object, and the ``repr`` of objects in its attributes.

    Objects of other packages are left out.
    """
    package = type(subject).__module__.partition(".")[0]
    texts = [repr(subject), str(subject)]
    for attribute in list(getattr(subject, "__dict__", {}).values()):
        items: Iterable[object]
        if isinstance(attribute, dict):
            items = list(cast("dict[object, object]", attribute).values())
        elif isinstance(attribute, (list, tuple, set)):
            items = cast("Iterable[object]", attribute)
        else:
            items = [attribute]
        texts += [
            repr(item)
            for item in islice(items, _MAX_SEARCHED_ITEMS)
            if type(item).__module__.partition(".")[0] == package
        ]
    return texts


def texts_of(error: BaseException) -> str:
    """Return the texts of an error: message, notes and hint."""
    notes = getattr(error, "__notes__", ())
    return f"{error!s} {error!r} {notes} {getattr(error, 'hint', None) or ''}"


def declared_secrets_of(settings: object) -> set[str]:
    """Return the values of the ``SecretStr`` fields of settings."""
    if not isinstance(settings, PluginSettings):
        return set()
    values = dict(settings).values()
    secret_values = {value.get_secret_value() for value in values if isinstance(value, SecretStr)}
    return secret_values - {""}


@contextlib.contextmanager
def captured_logs() -> Generator[list[str]]:
    """Collect all log messages and prints of the block, without passing them on."""
    lines: list[str] = []
    formatter, printed = logging.Formatter(), io.StringIO()

    def keep(_logger: logging.Logger, record: logging.LogRecord) -> None:
        lines.append(formatter.format(record))

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging.Logger, "callHandlers", keep)  # called after the logger's filters
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                yield lines
    finally:
        root.setLevel(level)
    lines += printed.getvalue().splitlines()


def _secret_parts(secret: str) -> set[str]:
    """Return the secret parts of a text: a URL's password, or the whole text."""
    if "://" in secret:
        password = urlsplit(secret).password
        return {password, unquote(password)} if password else set()
    return {secret} if secret else set()
