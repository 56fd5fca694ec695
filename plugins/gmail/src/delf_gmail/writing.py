"""Messages to send: headers that cannot be injected, text, HTML, attachments."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from email.headerregistry import Address, BaseHeader, HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage
from email.policy import SMTP, Policy
from typing import Final, NotRequired, TypedDict

from delf.errors import ToolRefusedError
from delf_gmail.html_text import text_of
from delf_google.addresses import parse

MAX_BYTES: Final = 36_700_160
"""The maximum number of bytes of an encoded message; base64 enlarges attachments by a third."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_MAX_LINE_LENGTH: Final = 998


class _MessageIds(UnstructuredHeader, BaseHeader):
    """A header with ids of messages, one in each line.

    The ids are not encoded, because mail programs do not decode ids.
    """

    def fold(self, *, policy: Policy) -> str:
        """Return the header with one id in each line, without encoding the ids.

        A header that cannot be written so, such as one with umlauts, is left to the base class.
        """
        ids = self.split()
        fits_in_lines = self.isascii() and max(map(len, ids), default=0) < _MAX_LINE_LENGTH
        if not fits_in_lines:
            return super().fold(policy=policy)
        folded_ids = policy.linesep.join(f" {each}" for each in ids)
        return f"{self.name}:{folded_ids}{policy.linesep}"


_HEADERS: Final = HeaderRegistry()
for _name in ("in-reply-to", "references"):
    _HEADERS.map_to_type(_name, _MessageIds)
_POLICY: Final = SMTP.clone(header_factory=_HEADERS)


class Attachment(TypedDict):
    """A file to send. The media type is guessed from the name if ``type`` is missing."""

    name: str
    data: bytes | str
    type: NotRequired[str]


People = str | Sequence[str]


@contextmanager
def _refuse_lone_surrogates() -> Generator[None]:
    """Refuse a text with a lone surrogate: convert the encoding error to ToolRefusedError."""
    try:
        yield
    except UnicodeEncodeError:
        raise ToolRefusedError("a text of the message contains half of a character") from None


@_refuse_lone_surrogates()
def build(
    *,
    to: People,
    subject: str,
    text: str,
    html: str | None = None,
    cc: People = (),
    bcc: People = (),
    attachments: Sequence[Attachment] = (),
    extra_headers: Mapping[str, str] | None = None,
) -> bytes:
    """Encode a message as MIME.

    Args:
        to: The recipients.
        subject: The subject.
        text: The plain text; derived from ``html`` if empty.
        html: The HTML alternative, if any.
        cc: The recipients of copies.
        bcc: The recipients of blind copies.
        attachments: The attached files.
        extra_headers: Additional headers by name.

    Raises:
        ToolRefusedError: If an address or a text is not valid, or the message is too large.
    """
    # Estimate the size in base64 first, because the encoding of large files takes long.
    estimated_size = sum(len(item["data"]) for item in attachments) * 4 // 3
    if estimated_size > MAX_BYTES:
        raise _too_large(estimated_size)
    message = EmailMessage(policy=_POLICY)
    people = {"To": _people(to, "to"), "Cc": _people(cc, "cc"), "Bcc": _people(bcc, "bcc")}
    if not any(people.values()):
        raise ToolRefusedError("to, cc and bcc are empty")
    for name, addresses in people.items():
        if addresses:
            message[name] = addresses
    message["Subject"] = _one_line(subject, "subject")
    for name, value in (extra_headers or {}).items():
        message[name] = _one_line(value, name)
    message.set_content(text or (text_of(html) if html else ""))
    if html:
        message.add_alternative(html, subtype="html")
    for item in attachments:
        _attach(message, item)
    data = message.as_bytes()
    if len(data) > MAX_BYTES:
        raise _too_large(len(data))
    return data


def _too_large(size: int) -> ToolRefusedError:
    return ToolRefusedError(
        f"the message has {size:,} bytes, and Gmail takes {MAX_BYTES:,}; "
        "store the files elsewhere and send links"
    )


def _attach(message: EmailMessage, item: Attachment) -> None:
    name = _one_line(item["name"], "an attachment's name")
    kind = item.get("type") or mimetypes.guess_type(name)[0] or "application/octet-stream"
    major, slash, minor = kind.partition("/")
    if not slash or not re.fullmatch(r"[\w.+-]+", major) or not re.fullmatch(r"[\w.+-]+", minor):
        raise ToolRefusedError(f"{kind!r} is not a media type such as application/pdf")
    data = item["data"]
    content = data.encode() if isinstance(data, str) else data
    if major in ("message", "multipart"):  # mail programs would show the file as a message
        major = "application"
        minor = "octet-stream"
    message.add_attachment(content, maintype=major, subtype=minor, filename=name)


def _people(addresses_given: People, what: str) -> tuple[Address, ...]:
    try:
        return tuple(parse(addresses_given))
    except ValueError as error:
        raise ToolRefusedError(f"{what}: {error}") from None


def _one_line(text: str, what: str) -> str:
    """Return the value of a header unchanged; refuse control characters.

    A line break would begin another header.
    """
    if _CONTROL.search(text):
        raise ToolRefusedError(f"{what} holds a line break or another control character")
    return text
