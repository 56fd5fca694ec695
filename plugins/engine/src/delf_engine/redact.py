"""Redaction of declared secrets in journals, prompts, scripts, errors and logs."""

from __future__ import annotations

import base64
import dataclasses
import enum
import html
import json
import logging
import math
import re
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

from delf.errors import DelfError, ForeignError, without_passwords
from delf.messages import ImagePart
from delf.values.conversion import fields_of
from delf_engine.secrets import MIN_SECRET_LENGTH, redactable, secrets_of_settings

REDACTED: Final = "[redacted]"

_SIMPLE: Final = frozenset({type(None), bool, int, float})
_BYTES: Final = (bytes, bytearray, memoryview)
# The characters, besides letters, digits and ``_.-~``, that encoders for URLs leave as they are.
_SAFE_IN_URLS: Final = (
    "",
    "/",  # urllib's quote()
    "!'()*",  # JavaScript's encodeURIComponent()
    ";,/?:@&=+$!'()*#",  # JavaScript's encodeURI()
    "!#$%&'()*+,/:;=?@[]",  # requests
    "$&+,;=",  # Go, user and password
    "!$&'()*+,;=",  # RFC 3986, user and password
    "!$&'()*+,;=:@",  # RFC 3986, a part of a path
    "!$&'()*+,;=:@/",  # RFC 3986, a path
    "!$&'()*+,;=:@/?",  # RFC 3986, a query
    "!$%&'()*+,",  # httpx, user or password
    "!$%&'()*+,:",  # httpx, user and password
    "!$%&'()*+,/:;=@[\\]^|",  # httpx, a path
    "!$%&'()*+,/:;=?@[\\]^`{|}",  # httpx, a query
)
# The forms of the double and the single quote in HTML and XML.
_QUOTES_IN_MARKUP: Final = (
    ('"', "'"),  # between tags
    ("&quot;", "'"),
    ("&quot;", "&#x27;"),
    ("&quot;", "&#39;"),
    ("&#34;", "&#39;"),
    ("&quot;", "&apos;"),
)
# A quote, and its form in a text between such quotes.
_QUOTES_IN_COMMANDS: Final = (
    ("'", "''"),  # SQL
    ('"', '""'),  # CSV
    ("'", "'\"'\"'"),  # Python's shlex.quote()
    ("'", "'\\''"),  # shells
)
# Matches characters that are the same in a plain and an escaped text.
_NEVER_ESCAPED: Final = re.compile("[A-Za-z0-9]+")
_COLLECTION_TYPES: Final[tuple[type[Any], ...]] = (list, tuple, set, frozenset, deque)


class SecretForms:
    """The forms in which a set of secrets may occur in a text: plain, escaped or encoded.

    Args:
        secrets: The secrets in plain text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # For a fast search, the forms by a text that each of them contains: only a text with "wolf"
        # can contain an escaped form of "wolf-12". Encoded forms, such as base64, have the key "".
        self._forms_by_part: dict[str, set[str]] = {}
        for secret in secrets:
            longest_part = max(_NEVER_ESCAPED.findall(secret), key=len, default="")
            for form in forms_of(secret):
                if len(form) >= MIN_SECRET_LENGTH:
                    part = longest_part if longest_part in form else ""
                    self._forms_by_part.setdefault(part, set()).add(form)
        forms = set[str]().union(*self._forms_by_part.values())
        # The pattern prefers its first alternatives, so the longest form stands first.
        self._forms = sorted(forms, key=len, reverse=True)
        self.shortest = len(self._forms[-1]) if self._forms else sys.maxsize
        """The length of the shortest encoded form of any secret."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """A pattern that matches each encoded form of the secrets, compiled on first use."""
        return re.compile("|".join(map(re.escape, self._forms)))

    def holds(self, text: str) -> bool:
        """Return True if a text contains a secret."""
        for part, forms in self._forms_by_part.items():
            if part in text and any(form in text for form in forms):
                return True
        return False

    @cached_property
    def _by_start(self) -> dict[str, list[str]]:
        """The forms in which the secrets may be written, grouped by their first characters."""
        forms_by_start: dict[str, list[str]] = {}
        for form in self._forms:
            forms_by_start.setdefault(form[0], []).append(form)
        return forms_by_start

    def start_of_unfinished_secret(self, text: str) -> int:
        """Return the index of a secret that the next piece of a text may complete.

        For the secret ``wolf-12``, the result is 4 for ``is: wol``. If no secret can have begun,
        the result is the length of the text.
        """
        max_length = len(self._forms[0]) - 1 if self._forms else 0
        first_start = max(0, len(text) - max_length)
        for start in range(first_start, len(text)):
            # Look the forms up by their first character, for speed: a script may print thousands of
            # lines.
            forms = self._by_start.get(text[start])
            if forms is not None:
                text_end = text[start:]
                is_beginning_of_secret = any(form.startswith(text_end) for form in forms)
                if is_beginning_of_secret:
                    return start
        return len(text)


class Redactor:
    """Redacts declared secrets in texts and values; thread-safe.

    Secrets are found in plain text, and in the forms that they have in URLs, JSON, Python's
    ``repr``, HTML, shell commands, SQL, CSV, base64 and hexadecimal digits.

    Args:
        secrets: The secrets in plain text; :func:`delf_engine.secrets.redactable` decides which
            are redacted.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._declared = redactable(secrets)
        # The secrets that learn() added, by their source, such as a connection's name.
        self._learned: dict[str, set[str]] = {}
        self._learning_lock = threading.Lock()
        self.secret_forms = SecretForms(self._declared)

    @property
    def knows_any(self) -> bool:
        """True if any secret is declared."""
        return self.secret_forms.shortest < sys.maxsize

    def learn(self, source: str, secrets: Sequence[str]) -> None:
        """Replace the secrets of a source, such as a connection, by its current secrets."""
        # If a secret is a whole key file or URL, the secrets inside of it count, too.
        new_secrets = secrets_of_settings([SecretStr(secret) for secret in secrets])
        with self._learning_lock:
            old_union = self._declared.union(*self._learned.values())
            self._learned[source] = redactable(new_secrets)
            new_union = self._declared.union(*self._learned.values())
            if new_union != old_union:  # computing all forms takes long
                self.secret_forms = SecretForms(new_union)

    def redact_text(self, text: str) -> str:
        """Redact a text; a text without secrets is returned unchanged."""
        # The secrets in plain text, URL-encoded and so on. Read the attribute once, because other
        # threads may replace its value.
        forms = self.secret_forms
        if len(text) < forms.shortest or not forms.holds(text):
            return text
        return forms.pattern.sub(REDACTED, text)

    def redact_failure(self, text: str) -> str:
        """Redact declared secrets, and all passwords in URLs, in the text of a failure."""
        return without_passwords(self.redact_text(text))

    def redact_error(self, error: DelfError) -> DelfError:
        """Redact an error and its causes in place.

        A cause that contains a secret, or a URL with a password, is replaced by a
        :class:`ForeignError`, unless the cause is itself a :class:`DelfError`.
        """
        redact = self.redact_failure
        error.message = redact(error.message)
        redacted_args: list[Any] = []
        for argument in error.args:
            # A text is also searched for URLs with passwords, like the message.
            redact_argument = redact if type(argument) is str else self.redact_value
            redacted_args.append(redact_argument(argument))
        error.args = tuple(redacted_args)
        if error.hint is not None:
            error.hint = redact(error.hint)
        if hasattr(error, "__notes__"):
            error.__notes__ = [redact(str(note)) for note in error.__notes__]
        suppress_context = error.__suppress_context__  # setting the cause changes it
        cause = error.__cause__
        context = error.__context__
        # Detach the causes before the recursion, which would not end if a cause has this error as
        # its own cause.
        error.__cause__ = error.__context__ = None
        redacted_cause = self._redact_cause(cause)
        redacted_context = self._redact_cause(context)
        error.__cause__ = redacted_cause
        error.__context__ = redacted_context
        error.__suppress_context__ = suppress_context
        return error

    def _redact_cause(self, error: BaseException | None) -> BaseException | None:
        """Return an error unchanged, or redacted if its text contains a secret.

        A :class:`DelfError` is redacted in place; any other error becomes a :class:`ForeignError`.
        """
        if error is None:
            return None
        formatted = "".join(traceback.format_exception(error))
        redacted = self.redact_failure(formatted)
        if redacted == formatted:
            return error
        # The class of a DelfError decides about retries.
        if isinstance(error, DelfError):
            return self.redact_error(error)
        return ForeignError(redacted.rstrip())

    def log_failure(
        self,
        log: logging.Logger,
        message: str,
        error: BaseException,
        level: int = logging.ERROR,
    ) -> None:
        """Log an error with its redacted traceback."""
        if not log.isEnabledFor(level):
            return
        formatted = "".join(traceback.format_exception(error))
        redacted = self.redact_failure(formatted)
        if redacted == formatted:
            log.log(level, "%s", message, exc_info=error)
        else:
            log.log(level, "%s\n%s", self.redact_failure(message), redacted)

    def may_be_in(self, encoded: bytes) -> bool:
        """Return True if encoded JSON may contain a known secret.

        JSON with backslash escapes or with ``bytes`` values in base64 may contain any known secret,
        because a secret may be written differently there.
        """
        if not self.knows_any:
            return False
        if b"\\" in encoded or b'"$t":"bytes"' in encoded:
            return True
        return self.secret_forms.holds(encoded.decode("utf-8", "surrogatepass"))

    def redact_value(self, value: Any) -> Any:
        """Redact a value; return the same object if it contains no secret.

        But a member of an enumeration becomes its value, and a value that is nested too deeply
        becomes a text such as ``<dict, nested too deeply>``.
        """
        if not self.knows_any:
            return value
        try:
            return self._clean(value)
        except RecursionError:
            return f"<{type(value).__name__}, nested too deeply>"

    def _clean(self, value: Any) -> Any:
        """Redact a value of any type; see :meth:`redact_value`."""
        # The exact types of nearly all values first: a result may have millions of values.
        kind = cast("type[Any]", type(value))
        if kind is str:
            return self.redact_text(value)
        if kind in _SIMPLE:
            return value
        if kind is dict:
            return self._clean_mapping(value)
        if kind is list or kind is tuple:
            return self._clean_members(value)
        return self._clean_other(value)

    def _clean_other(self, value: Any) -> Any:
        """Redact a value whose type :meth:`_clean` does not handle, such as a subclass of ``str``.

        If the ``repr`` or ``str`` of an object without fields contains a secret, the redacted
        ``repr`` or ``str`` replaces the object.
        """
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, (int, float, ImagePart)):
            return value  # searching an image would take a second
        if isinstance(value, _BYTES):
            return self._clean_bytes(cast("bytes", value))
        if isinstance(value, Mapping):
            return self._clean_mapping(cast("Mapping[Any, Any]", value))
        if isinstance(value, Collection):
            return self._clean_members(cast("Collection[Any]", value))
        if isinstance(value, enum.Enum):
            return self._clean(value.value)
        fields = fields_of(value)
        if fields is None:
            for convert in (repr, str):  # events are written by repr, results by str
                formatted = convert(value)
                redacted = self.redact_text(formatted)
                has_secret = redacted is not formatted
                if has_secret:
                    return redacted
            return value
        cleaned = self._clean_mapping(fields)
        return value if cleaned is fields else _with_fields(value, cleaned)

    def _clean_mapping(self, items: Mapping[Any, Any]) -> Any:
        """Redact keys and values; return the given mapping itself if there is no secret in it."""
        clean = self._clean
        cleaned: dict[Any, Any] = {}
        is_unchanged = True
        for key, item in items.items():
            new_key = clean(key)
            new_item = clean(item)
            is_unchanged = is_unchanged and new_item is item and new_key is key
            cleaned[new_key] = new_item
        return items if is_unchanged else cleaned

    def _clean_members(self, members: Collection[Any]) -> Any:
        """Redact the members of a collection; return the collection itself if it has no secret."""
        parts: list[Any] = []
        is_unchanged = True
        for item in members:
            part = self._clean(item)
            is_unchanged = is_unchanged and part is item
            parts.append(part)
        return members if is_unchanged else _collection_like(members, parts)

    def _clean_bytes(self, value: bytes) -> Any:
        text = bytes(value).decode("utf-8", "surrogateescape")
        cleaned = self.redact_text(text)
        if cleaned is text:
            return value
        return cleaned.encode("utf-8", "surrogateescape")


class RedactedStream:
    """Redacts a text that arrives in pieces.

    A tail that may be the start of a secret is held back until the next piece or the end.

    Args:
        redactor: The redactor with the current secrets.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # The end of the text so far, if it may be the beginning of a secret; otherwise empty. The
        # next feed() looks at it again together with the next piece, and end() passes it on.
        self._held_back = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that can be passed on."""
        text = self._redactor.redact_text(self._held_back + piece)
        # Hold the end of the text back if the next piece could complete it to a secret.
        end = self._redactor.secret_forms.start_of_unfinished_secret(text)
        self._held_back = text[end:]
        return text[:end]

    def end(self) -> str:
        """End a text and return its held-back tail. The next piece begins another text."""
        held_text = self._held_back
        self._held_back = ""
        return held_text


def restore_secrets(edited: Any, shown: Any, original: Any) -> Any:
    """Restore the secrets in arguments that a person edited.

    Each value that the person left unchanged gets its original value, also within records. An
    unchanged item of a list gets its original value even if the person moved the item. Within a
    changed item, secrets are restored only if all other items are unchanged and in their places.
    Otherwise the item may be another one, such as another recipient, and a secret must not go
    there.

    Args:
        edited: The arguments, or a part of them, as the person edited them.
        shown: The redacted arguments, or the same part of them, that the person saw.
        original: The original arguments, or the same part of them, with their secrets.
    """
    versions = (edited, shown, original)
    if all(isinstance(version, Mapping) for version in versions):
        common_names = [name for name in edited if name in shown and name in original]
        return {**edited} | {
            name: restore_secrets(edited[name], shown[name], original[name])
            for name in common_names
        }
    if all(isinstance(version, list) for version in versions) and len(shown) == len(original):
        return _restore_secrets_in_items(edited, shown, original)
    return original if _is_unchanged(edited, shown) else edited


def _is_unchanged(edited: Any, shown: Any) -> bool:
    """Return True if an edited value equals the shown value; True and 1 are not equal."""
    # First a fast comparison: for lists, this function may be called with every pair of items.
    if edited != shown:
        return False
    if isinstance(edited, Mapping) and isinstance(shown, Mapping):
        edited_fields = cast("Mapping[str, Any]", edited)
        shown_fields = cast("Mapping[str, Any]", shown)
        return all(_is_unchanged(edited_fields[name], shown_fields[name]) for name in shown_fields)
    if isinstance(edited, list) and isinstance(shown, list):
        edited_items = cast("list[Any]", edited)
        shown_items = cast("list[Any]", shown)
        return all(map(_is_unchanged, edited_items, shown_items))
    # Equal values such as True and 1 count as unchanged only if both or neither are a bool.
    return isinstance(edited, bool) is isinstance(shown, bool)


def _restore_secrets_in_items(
    edited: list[Any], shown: list[Any], original: list[Any]
) -> list[Any]:
    """Restore the secrets in a list that a person edited, as :func:`restore_secrets` describes."""
    if len(edited) == len(shown):
        changed_count = sum(not _is_unchanged(*pair) for pair in zip(edited, shown, strict=True))
        if changed_count <= 1:  # the changed item is the edit of the item at the same place
            return [restore_secrets(*parts) for parts in zip(edited, shown, original, strict=True)]
    restored: list[Any] = []
    for item in edited:
        # Look for the unchanged item at any place.
        pairs = zip(shown, original, strict=True)
        candidates = [
            original_item for shown_item, original_item in pairs if _is_unchanged(item, shown_item)
        ]
        is_unique = bool(candidates) and all(each == candidates[0] for each in candidates)
        restored.append(candidates[0] if is_unique else item)
    return restored


def _with_fields(value: Any, fields: dict[str, Any]) -> Any:
    """Copy a dataclass object with new ``fields``; return ``fields`` if the class refuses them."""
    try:
        return dataclasses.replace(value, **fields)
    except Exception:  # the class's own validation may raise anything
        return fields


def _collection_like(old: Any, parts: list[Any]) -> Any:
    """Return a collection of the same type as another, with other items."""
    is_named_tuple = hasattr(old, "_fields")
    if is_named_tuple:
        return type(old)(*parts)
    for collection_type in _COLLECTION_TYPES:
        if isinstance(old, collection_type):
            return cast("Any", collection_type(parts))
    return parts


def forms_of(secret: str) -> Iterator[str]:
    """Yield the forms of a secret: plain, encoded for URLs, escaped, hexadecimal and base64.

    Most secrets have few forms, because no rule escapes any of their characters.
    """
    data = secret.encode("utf-8", "surrogatepass")
    urls = _in_url(data)
    texts = {secret, *urls, *_in_markup(secret), *_in_quotes(secret), *_in_literal(secret)}
    for url in urls:
        texts |= {html.escape(url), html.escape(url, quote=False)}
    # Escape all forms once more: JSON or a repr is often nested as text within another.
    texts |= {form for text in texts for form in _in_common_literal(text)}
    for text in texts:
        yield text
        yield text.replace("/", "\\/")
    yield data.hex()
    yield data.hex().upper()
    for encoded in _in_base64(data):
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield the forms of a secret within base64.

    Three bytes become four characters of 6 bits, so the form depends on the number of bytes before
    the secret.
    """
    for bytes_before in range(3):
        encoded = base64.b64encode(bytes(bytes_before) + data).decode()
        first_bit = 8 * bytes_before
        end_bit = first_bit + 8 * len(data)
        # Leave out the first and the last character if these also have bits of other bytes.
        first_character = math.ceil(first_bit / 6)
        end_character = end_bit // 6
        yield encoded[first_character:end_character]


def _in_url(data: bytes) -> set[str]:
    """Encode a text for URLs as the usual libraries do, with ``%2F`` and with ``%2f``."""
    urls = {quote(data, safe=safe) for safe in _SAFE_IN_URLS}
    urls.add(quote_plus(data))
    return urls | {re.sub("%..", _lower, url) for url in urls}


def _in_markup(text: str) -> Iterator[str]:
    """Yield the forms of a text in HTML and XML, whose libraries escape quotes differently."""
    for double, single in _QUOTES_IN_MARKUP:
        escaped = html.escape(text, quote=False)
        yield escaped.replace('"', double).replace("'", single)


def _in_quotes(text: str) -> Iterator[str]:
    """Yield the forms of a text within the quotes of a shell, of SQL and of CSV."""
    for quote_mark, escaped in _QUOTES_IN_COMMANDS:
        yield text.replace(quote_mark, escaped)


def _in_literal(text: str) -> Iterator[str]:
    """Yield the forms that a text has between the quotes of a literal in JSON or Python."""
    yield from _in_common_literal(text)
    for ascii_only in (True, False):
        in_json = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield re.sub("[&<>]", _as_unicode_escape, in_json)  # Go's libraries
        yield re.sub("[&<>']", _as_unicode_escape, in_json)  # JSON in a page's script
    for represent in (ascii, _repr_of_bytes):
        yield from _in_repr(text, represent)


def _in_common_literal(text: str) -> Iterator[str]:
    r"""Yield the forms of a text in ``json`` and ``repr`` output: a line break is ``\n``."""
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield from _in_repr(text, repr)


def _in_repr(text: str, represent: Callable[[str], str]) -> Iterator[str]:
    r"""Yield a text as ``repr`` writes it between single quotes, and between double quotes.

    The text ``it's`` is ``it\'s`` between single quotes, and stays ``it's`` between double quotes.
    """
    # represent() puts each part in single quotes, which ``[1:-1]`` cuts off.
    parts = [represent(part)[1:-1] for part in text.split("'")]
    yield "\\'".join(parts)
    yield "'".join(parts)


def _repr_of_bytes(text: str) -> str:
    """Return the ``repr`` of a text's bytes, without the letter before the quotes."""
    return repr(text.encode("utf-8", "surrogatepass"))[1:]


def _as_unicode_escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character.group()):04x}"


def _lower(escape: re.Match[str]) -> str:
    return escape.group().lower()
