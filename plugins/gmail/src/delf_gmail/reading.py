"""Conversion of Gmail's messages to records, and of MIME parts to a text and files."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header
from typing import Any, Final, TypedDict, cast

from delf.errors import ToolRefusedError
from delf.network import charsets
from delf_gmail.html_text import text_of
from delf_google.mailboxes import Mailbox, format_mailbox, split

_MAX_PART_DEPTH: Final = 60
# The maximum number of characters of a message's text that a script gets.
_MAX_TEXT_LENGTH: Final = 100_000
_HTML: Final = re.compile(r"\bx?html\b", re.IGNORECASE)
_LINKS: Final = re.compile(r"\(?https?://\S+")
_MAX_PLACEHOLDER_LENGTH: Final = 600
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\([^()]*\)')
_GMAIL_SERVER: Final = "mx.google.com"
_ESCAPE: Final = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")
_CHARSET: Final = re.compile(r'charset\s*=\s*"?([^\s";]+)', re.IGNORECASE)


class FileInMail(TypedDict):
    """The description of an attachment; ``part`` distinguishes attachments of the same name."""

    name: str
    type: str
    size: int
    part: str


class MessageLine(TypedDict):
    """A message in a search result, without its text."""

    id: str
    thread: str
    date: dt.datetime | None
    sender: str
    to: str
    subject: str
    snippet: str
    labels: list[str]
    unread: bool


class Mail(TypedDict):
    """A message with its text."""

    id: str
    thread: str
    date: dt.datetime | None
    sender: str
    verified_sender: str | None
    to: list[str]
    cc: list[str]
    reply_to: str
    subject: str
    text: str
    attachments: list[FileInMail]
    labels: list[str]
    unread: bool
    notice: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """A MIME part that is an attachment.

    Args:
        number: The position in the message, such as ``1.2``, by which scripts can name the part.
        name: The file name.
        type: The media type.
        size: The size in bytes.
        attachment_id: The id by which Gmail returns the content; None if ``data`` has the content.
        data: The content in base64; None for a large part.
    """

    number: str
    name: str
    type: str
    size: int
    attachment_id: str | None
    data: str | None


Resource = Mapping[str, Any]


def headers_of(resource: Resource) -> dict[str, str]:
    """Return a mapping from lower-case header names to decoded values.

    If a header is repeated, its first value counts.
    """
    headers: dict[str, str] = {}
    for item in cast("Sequence[Resource]", resource.get("headers") or ()):
        name = str(item.get("name", "")).lower()
        headers.setdefault(name, decoded(str(item.get("value", ""))))
    return headers


def decoded(value: str) -> str:
    """Decode the encoded words (RFC 2047) of a header; return an undecodable header unchanged."""
    if "=?" not in value:
        return value
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError, binascii.Error):
        return value
    text = "".join(
        piece if isinstance(piece, str) else _text(piece, charset) for piece, charset in pieces
    )
    # Beside encoded words, decode_header() replaces characters outside of Latin-1 by escapes, such
    # as ``€`` by ``\u20ac``. Replace these escapes by the characters again.
    escapes = {c.encode("raw-unicode-escape").decode(): c for c in set(value) if c > "\xff"}
    return _ESCAPE.sub(lambda match: escapes.get(match[0], match[0]), text)


def checked_mailboxes(payload: Resource, header: str) -> list[str]:
    """Return the mailboxes in an address header, each as ``name <address>``.

    Names are decoded only after parsing, because an encoded name may look like an address.

    Raises:
        ToolRefusedError: If the header has an invalid address.
    """
    people: list[str] = []
    for name, person in _people(payload, header):
        if not person.is_valid:
            raise ToolRefusedError(
                f"{header} of the message: {(person.address or person.text)[:200]!r} is not a mail "
                "address"
            )
        people.append(format_mailbox(name, person.address))
    return people


def displayed_mailboxes(payload: Resource, header: str) -> list[str]:
    """Return the mailboxes in an address header; keep the original text of an invalid address."""
    return [
        format_mailbox(name, person.address) if person.is_valid else _display_text(person.text)
        for name, person in _people(payload, header)
    ]


def _people(payload: Resource, header: str) -> Iterator[tuple[str, Mailbox]]:
    """Yield the decoded name and the mailbox of each person in an address header."""
    for item in cast("Sequence[Resource]", payload.get("headers") or ()):
        if str(item.get("name", "")).lower() == header.lower():
            for person in split(str(item.get("value", ""))):
                yield _display_text(decoded(person.name)), person


def _display_text(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).strip()


def verified_sender(payload: Resource) -> str | None:
    """Return the sender's address if Gmail verified its domain by DMARC, else None.

    Google puts a header with its result above all headers of the message, so the first such header
    is Google's. The sender controls the quoted parts of the result, such as the envelope address.
    """
    senders = [person.address for _, person in _people(payload, "From")]
    results = headers_of(payload).get("authentication-results", "").strip().lower()
    # Gmail checks the domain of one sender only. Of two "dmarc=", one may be the sender's own text.
    if len(senders) != 1 or results.count("dmarc=") != 1:
        return None
    server, *checks = _QUOTED.sub("", results).split(";")
    domain = senders[0].rpartition("@")[2].lower()
    for check in checks:
        if check.split() == ["dmarc=pass", f"header.from={domain}"]:
            return senders[0] if server.strip() == _GMAIL_SERVER else None
    return None


def draft_text(resource: Resource) -> str:
    """Return the recipients, subject, attachments and texts of a draft, for review by a person.

    HTML is shown as visible text and as source, because recipients also get the invisible parts.
    """
    payload: Resource = resource.get("payload") or {}
    lines = [
        f"{name}: {person}"
        for name in ("To", "Cc", "Bcc")
        for person in checked_mailboxes(payload, name)
    ]
    lines.append(f"Subject: {headers_of(payload).get('subject', '')}")
    lines += [f"Attached: {part.name}, {part.size:,} bytes" for part in files_of(payload)]
    distinct_texts = list(dict.fromkeys(filter(None, _texts_in(payload))))
    first, *others = distinct_texts or [""]
    lines += ["", first]
    for text in others:  # recipients may see any of the alternatives
        lines += ["", "In its other part:", text]
    for source in _html_in(payload):
        lines += ["", "The source of its HTML:", source.strip()]
    return "\n".join(lines)


def _html_in(payload: Resource, depth: int = 0) -> Iterator[str]:
    """Yield the source of each HTML part that is no attachment."""
    children = cast("Sequence[Resource]", payload.get("parts") or ())
    if _kind(payload) == "text/html" and not payload.get("filename") and not children:
        yield _source_of(payload)
    if depth < _MAX_PART_DEPTH:
        for child in children:
            yield from _html_in(child, depth + 1)


def _texts_in(payload: Resource, depth: int = 0) -> Iterator[str]:
    """Yield the text of each MIME part, every alternative included."""
    children = cast("Sequence[Resource]", payload.get("parts") or ())
    if depth >= _MAX_PART_DEPTH:
        yield "(there are parts within parts that are not shown)"
    elif not children:
        yield body_text(payload).strip()
    else:
        for child in children:
            yield from _texts_in(child, depth + 1)


def moment_of(resource: Resource) -> dt.datetime | None:
    """Return the time at which Gmail received a message; None if missing or invalid."""
    milliseconds = str(resource.get("internalDate") or "")
    if not milliseconds.lstrip("-").isdigit():
        return None
    try:
        return dt.datetime.fromtimestamp(int(milliseconds) / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return None


def line_of(resource: Resource, labels: Sequence[str]) -> MessageLine:
    """Convert a message of the Gmail API to an entry of a search result.

    Args:
        resource: The message as JSON data.
        labels: The names of its labels.
    """
    payload: Resource = resource.get("payload") or {}
    headers = headers_of(payload)
    return MessageLine(
        id=str(resource["id"]),
        thread=str(resource["threadId"]),
        date=moment_of(resource),
        sender=", ".join(displayed_mailboxes(payload, "From")),
        to=", ".join(displayed_mailboxes(payload, "To")),
        subject=headers.get("subject", ""),
        snippet=html.unescape(str(resource.get("snippet") or "")),
        labels=list(labels),
        unread="UNREAD" in (resource.get("labelIds") or ()),
    )


def mail_of(resource: Resource, labels: Sequence[str]) -> Mail:
    """Convert a message of the Gmail API to a mail with its text.

    Args:
        resource: The message as JSON data, with all parts.
        labels: The names of its labels.
    """
    payload: Resource = resource.get("payload") or {}
    headers = headers_of(payload)
    text = body_text(payload)
    notice = None
    if len(text) > _MAX_TEXT_LENGTH:
        notice = (
            f"the text has {len(text):,} characters, of which these are the first "
            f"{_MAX_TEXT_LENGTH:,}"
        )
        text = text[:_MAX_TEXT_LENGTH]
    return Mail(
        id=str(resource["id"]),
        thread=str(resource["threadId"]),
        date=moment_of(resource),
        sender=", ".join(displayed_mailboxes(payload, "From")),
        verified_sender=verified_sender(payload),
        to=displayed_mailboxes(payload, "To"),
        cc=displayed_mailboxes(payload, "Cc"),
        reply_to=", ".join(displayed_mailboxes(payload, "Reply-To")),
        subject=headers.get("subject", ""),
        text=text,
        attachments=[
            FileInMail(name=part.name, type=part.type, size=part.size, part=part.number)
            for part in files_of(payload)
        ],
        labels=list(labels),
        unread="UNREAD" in (resource.get("labelIds") or ()),
        notice=notice,
    )


def body_text(payload: Resource, depth: int = 0) -> str:
    """Return the text of a MIME part: plain text if available, else text extracted from HTML."""
    kind = _kind(payload)
    children = cast("Sequence[Resource]", payload.get("parts") or ())
    if payload.get("filename"):  # an attachment, such as a forwarded message
        return ""
    if children:
        if depth >= _MAX_PART_DEPTH:
            return ""
        texts = [(child, body_text(child, depth + 1)) for child in children]
        if kind == "multipart/alternative":
            return _best_alternative(texts)
        return "\n\n".join(text for _, text in texts if text)
    if kind not in ("text/plain", "text/html", ""):
        return ""
    text = _source_of(payload)
    if kind == "text/html":
        return text_of(text)
    return text.replace("\r\n", "\n").strip()


def _source_of(payload: Resource) -> str:
    """Return the decoded content of a text part, as it was sent."""
    data = content_of(payload)
    charset = _charset(payload)
    if charset is None and _kind(payload) == "text/html":
        charset = charsets.label_in_page(data)
    return _text(data, charset)


def _best_alternative(texts: Sequence[tuple[Resource, str]]) -> str:
    """Return the plain text; the text of the HTML if the plain text is missing or a placeholder."""
    filled = [(_kind(child), text) for child, text in texts if text]
    plain = next((text for kind, text in filled if kind == "text/plain"), "")
    # A message has its richest alternative last.
    html_text = next((text for kind, text in reversed(filled) if kind != "text/plain"), "")
    if html_text and _is_placeholder(plain, html_text):
        return html_text
    return plain or html_text


def _is_placeholder(plain: str, html_text: str) -> bool:
    """Return True if a plain text says hardly more than "your program cannot show HTML"."""
    if len(plain) > _MAX_PLACEHOLDER_LENGTH:
        return False
    # Only the plain text has the word HTML, so it is probably about the missing HTML.
    if _HTML.search(plain) and not _HTML.search(html_text):
        return True
    return _word_count(html_text) > 2 * _word_count(plain) + 20


def _word_count(text: str) -> int:
    """Count the words of a text that are not in links."""
    return len(re.findall(r"\w+", _LINKS.sub("", text)))


def _kind(payload: Resource) -> str:
    return str(payload.get("mimeType") or "").lower()


def separate_text_bodies(payload: Resource, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the ``body`` object of each text part that Gmail sends without its content."""
    body: Any = payload.get("body") or {}
    is_text = _kind(payload) in ("text/plain", "text/html") and not payload.get("filename")
    if is_text and body.get("attachmentId") and not body.get("data"):
        yield body
    if depth < _MAX_PART_DEPTH:
        for child in cast("Sequence[Resource]", payload.get("parts") or ()):
            yield from separate_text_bodies(child, depth + 1)


def files_of(payload: Resource) -> list[Part]:
    """Return the parts that are attachments, including invitations and forwarded messages."""
    return list(_files(payload, 0))


def _files(payload: Resource, depth: int) -> Iterator[Part]:
    """Yield the attachments of a message's part and of the parts in it."""
    kind = str(payload.get("mimeType") or "application/octet-stream").lower()
    body: Resource = payload.get("body") or {}
    name = decoded(str(payload.get("filename") or ""))
    children = cast("Sequence[Resource]", payload.get("parts") or ())
    is_text = kind in ("text/plain", "text/html")
    is_unnamed_file = not children and not is_text and bool(body.get("size"))
    if name or is_unnamed_file:
        yield Part(
            number=str(payload.get("partId") or ""),
            name=_safe_name(name) or _default_name(kind),
            type=kind,
            size=int(body.get("size") or 0),
            attachment_id=body.get("attachmentId"),
            data=body.get("data"),
        )
    elif depth < _MAX_PART_DEPTH:  # the parts of an attached mail are in its own file
        for child in children:
            yield from _files(child, depth + 1)


def _default_name(kind: str) -> str:
    """Return a name for a file without a name, such as ``attachment.pdf``."""
    if kind == "text/calendar":
        return "invite.ics"
    minor_type = kind.rpartition("/")[2]
    extension = re.sub(r"[^a-z0-9]", "", minor_type)[:8] or "bin"
    return f"attachment.{extension}"


def _safe_name(name: str) -> str:
    """Return a file's name without folders and control characters."""
    last = re.split(r"[/\\]", name)[-1]
    return re.sub(r"[\x00-\x1f\x7f]", "", last).strip(" .")[:200]


def content_of(payload: Resource) -> bytes:
    """Return the decoded content of a message part; empty if the content must be fetched."""
    body: Resource = payload.get("body") or {}
    return unbase64(str(body.get("data") or ""))


def unbase64(text: str) -> bytes:
    """Decode URL-safe base64; return empty bytes if the text is invalid."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""


def _charset(payload: Resource) -> str | None:
    for item in cast("Sequence[Resource]", payload.get("headers") or ()):
        if str(item.get("name", "")).lower() == "content-type":
            match = _CHARSET.search(str(item.get("value", "")))
            return match[1] if match else None
    return None


def _text(data: bytes, charset: str | None) -> str:
    """Decode bytes as UTF-8, or by the declared charset if they are not valid UTF-8.

    A missing or unknown charset is taken as windows-1252. Bytes that fit neither are replaced.
    """
    known_charset = charset if charsets.codec_of(charset) else "windows-1252"
    text = charsets.decode_charset(data, known_charset)  # tries UTF-8 first; None if neither fits
    return data.decode("utf-8", "replace") if text is None else text
